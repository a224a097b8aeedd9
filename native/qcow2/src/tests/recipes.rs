//! What a recipe takes its bytes from, and what it costs.

use super::*;

#[test]
fn only_the_very_base_gives_what_has_to_be_copied() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..8 * CLUSTER).map(|at| (at / 100) as u8).collect();
    let mut edited = content.clone();
    edited[5 * CLUSTER] ^= 1;
    let (base, target) = (image(&content, FOREIGN), image(&edited, FOREIGN));
    assert_eq!(round_trip(dir.path(), &base, &target).unwrap(), target);
    let header = patch::info(&dir.path().join("patch")).unwrap().header;
    assert!(header.needs_base_file);
    assert_eq!((header.clusters_copied, header.clusters_stored), (7, 1));
    // The same content in another form has no streams to copy.
    std::fs::write(dir.path().join("base"), image(&content, ZLIB)).unwrap();
    let (between, out) = (dir.path().join("patch"), dir.path().join("again"));
    let error =
        patch::apply(&dir.path().join("base"), &between, &out, &Task::default()).unwrap_err();
    assert!(matches!(error, Qcow2Error::BaseMismatch(_)), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_patch_of_another_version_is_refused_by_its_name_and_number() {
    let dir = tempfile::tempdir().unwrap();
    let content = vec![7; 9 * CLUSTER];
    round_trip(dir.path(), &content, &image(&content, ZLIB)).unwrap();
    let path = dir.path().join("patch");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[184] += 1;
    std::fs::write(&path, bytes).unwrap();
    let message = patch::info(&path).unwrap_err().to_string();
    let name = path.display().to_string();
    assert!(
        message.contains("version 2 ") && message.contains(&name),
        "{message}"
    );
}

#[test]
fn a_base_may_come_in_another_form() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..100 * CLUSTER).map(|at| (at / 100) as u8).collect();
    let mut edited = content.clone();
    edited[5 * CLUSTER..7 * CLUSTER].fill(9);
    let target = image(&edited, ZLIB);
    assert_eq!(
        round_trip(dir.path(), &image(&content, ZLIB), &target).unwrap(),
        target
    );
    for form in [
        content.clone(),
        image(&content, PLAIN),
        image(&content, FOREIGN),
    ] {
        std::fs::write(dir.path().join("base"), form).unwrap();
        let (between, out) = (dir.path().join("patch"), dir.path().join("again"));
        patch::apply(&dir.path().join("base"), &between, &out, &Task::default()).unwrap();
        assert_eq!(std::fs::read(&out).unwrap(), target);
    }
}

/// Clusters that compress a little.
fn noise_of(clusters: usize) -> Vec<u8> {
    let mut state = 1_u32;
    (0..clusters * CLUSTER)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 26) as u8
        })
        .collect()
}

#[test]
fn a_sequence_is_behind_all_else_of_a_recipe() {
    let content = noise_of(4000);
    let source = open(image(&content, ZLIB)).unwrap();
    let mut description = describe(&source, None, &Task::default()).unwrap();
    let before = description.recipe.encode(&description.placed);
    assert!(Recipe::decode(&before).unwrap().sequence.is_none());
    description.add_sequence(&Manifest::from_source(source.file(), &Task::default()).unwrap());
    let with = description.recipe.encode(&description.placed);
    assert_eq!(with[..before.len()], before);
    let sequence = Recipe::decode(&with).unwrap().sequence.unwrap();
    assert!(sequence.pieces.len() > 1);
    assert_eq!(Some(sequence), description.recipe.sequence);
    let mut longer = with.clone();
    longer.push(0);
    for wrong in [&with[..with.len() - 1], &longer] {
        assert!(Recipe::decode(wrong).is_err());
    }
}

#[test]
fn a_target_whose_base_is_qcow2_is_not_read_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let content = vec![7; 100 * CLUSTER];
    round_trip(dir.path(), &image(&content, ZLIB), &image(&content, ZSTD)).unwrap();
    assert!(view_of(dir.path(), content).unwrap().is_none());
}

/// Streams of another length than the recipe says would put all that follows at wrong places.
#[test]
fn pieces_of_another_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let content = noise_of(4000);
    round_trip(dir.path(), &content, &image(&content, PLAIN)).unwrap();
    let container = patch::Container::open(FileSource::open(&dir.path().join("patch")).unwrap());
    let container = container.unwrap();
    let mut recipe = container.recipe().unwrap().clone();
    let hash = container.header().target_hash;
    assert!(RecipeView::new(&recipe, &hash).unwrap().is_some());
    recipe.sequence.as_mut().unwrap().pieces[1][0] ^= 1;
    assert!(matches!(
        RecipeView::new(&recipe, &hash),
        Err(Qcow2Error::BadPatch(_))
    ));
}

#[test]
fn another_base_is_told_from_a_damaged_patch() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..100 * CLUSTER).map(|at| (at / 100) as u8).collect();
    let mut edited = content.clone();
    edited[5 * CLUSTER..7 * CLUSTER].fill(9);
    round_trip(dir.path(), &image(&content, ZLIB), &image(&edited, ZLIB)).unwrap();
    let mut other = content.clone();
    other[50 * CLUSTER] ^= 1;
    std::fs::write(dir.path().join("base"), image(&other, ZLIB)).unwrap();
    let (between, out) = (dir.path().join("patch"), dir.path().join("again"));
    let error =
        patch::apply(&dir.path().join("base"), &between, &out, &Task::default()).unwrap_err();
    assert!(matches!(error, Qcow2Error::BaseMismatch(_)), "{error}");
}

#[test]
fn the_description_of_a_usual_image_is_small() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..900 * CLUSTER as u32)
        .map(|at| ((at / 7).wrapping_mul(2_654_435_761) >> 29) as u8)
        .collect();
    let image = image(&content, ZLIB);
    std::fs::write(dir.path().join("base"), &content).unwrap();
    std::fs::write(dir.path().join("target"), &image).unwrap();
    let [base, target, between] = ["base", "target", "patch"].map(|name| dir.path().join(name));
    let info = patch::create(&base, &target, &between, &CreateOptions::default()).unwrap();
    // The images of these tests carry no refcounts, so those differ from the prediction.
    assert!(info.header.recipe_len < 3000, "{}", info.header.recipe_len);
    assert_eq!(info.header.clusters_stored, 0);
}

#[test]
fn a_raw_copy_has_the_content_and_its_hash() {
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..9 * CLUSTER + 5).map(|at| (at / 100) as u8).collect();
    let (path, raw) = (dir.path().join("image"), dir.path().join("raw"));
    std::fs::write(&path, image(&content, ZSTD)).unwrap();
    let manifest = images::to_raw(&path, &raw, &Task::default()).unwrap();
    assert_eq!(std::fs::read(&raw).unwrap(), content);
    assert_eq!(manifest.content_id(), *blake3::hash(&content).as_bytes());
    let same = images::content_manifest(&path, &Task::default()).unwrap();
    assert_eq!(same.content_id(), manifest.content_id());
}
