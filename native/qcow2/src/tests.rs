//! Tests on images made here byte by byte: valid ones in every flavour, hostile ones, and valid ones that were damaged.

use std::path::Path;
use std::sync::Arc;

use diffcache_core::manifest::Manifest;
use diffcache_core::patch::CreateOptions;
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_core::task::Task;
use proptest::prelude::*;

use crate::cluster::{compressed_entry, plain_entry, Cluster};
use crate::compress::Settings;
use crate::header::{Compression, Header};
use crate::map::Map;
use crate::patch::TargetView;
use crate::recipe::{describe, rebuild, Ingredients, Recipe, RecipeView, PIECE};
use crate::snapshots::Disk;
use crate::{image as images, patch, Qcow2Error, Qcow2Source};

const BITS: u32 = 9;
const CLUSTER: usize = 1 << BITS;

/// How a test image is to be written.
#[derive(Debug, Clone, Copy)]
struct Flavour {
    version: u32,
    compression: Compression,
    compressed: bool,
    /// Another compressor than the usual, whose streams cannot be made again.
    foreign: bool,
}

const PLAIN: Flavour = Flavour {
    version: 3,
    compression: Compression::Zlib,
    compressed: false,
    foreign: false,
};
const ZLIB: Flavour = Flavour {
    compressed: true,
    ..PLAIN
};
const ZSTD: Flavour = Flavour {
    compression: Compression::Zstd,
    ..ZLIB
};
const V2: Flavour = Flavour { version: 2, ..ZLIB };
const FOREIGN: Flavour = Flavour {
    foreign: true,
    ..ZLIB
};

fn put32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put64(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

const L1: usize = 3 * CLUSTER;
const REFTABLE: usize = CLUSTER;
const REFBLOCK: usize = 2 * CLUSTER;
const FIRST_L2: usize = 4 * CLUSTER;

fn header(flavour: Flavour, size: usize, l1_entries: usize) -> Vec<u8> {
    let mut image = vec![0; FIRST_L2 + l1_entries * CLUSTER];
    image[..4].copy_from_slice(b"QFI\xfb");
    put32(&mut image, 4, flavour.version);
    put32(&mut image, 20, BITS);
    put64(&mut image, 24, size as u64);
    put32(&mut image, 36, l1_entries as u32);
    put64(&mut image, 40, L1 as u64);
    put64(&mut image, 48, REFTABLE as u64);
    put32(&mut image, 56, 1);
    put64(&mut image, REFTABLE, REFBLOCK as u64);
    if flavour.version == 3 {
        put32(&mut image, 96, 4);
        put32(&mut image, 100, 104);
        if flavour.compression == Compression::Zstd {
            put64(&mut image, 72, 8);
            put32(&mut image, 100, 112);
            image[104] = 1;
        }
    }
    image
}

/// A stream that our compressor never produces.
fn foreign_stream(cluster: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    let length = cluster.len() as u16;
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(cluster);
    out
}

/// Writes `content` as a qcow2 image.
fn image(content: &[u8], flavour: Flavour) -> Vec<u8> {
    let clusters: Vec<&[u8]> = content.chunks(CLUSTER).collect();
    let l1_entries = clusters.len().div_ceil(CLUSTER / 8).max(1);
    let mut image = header(flavour, content.len(), l1_entries);
    let mut compressor = Settings::candidates(flavour.compression)[0]
        .compressor()
        .unwrap();
    for table in 0..l1_entries {
        put64(
            &mut image,
            L1 + table * 8,
            (FIRST_L2 + table * CLUSTER) as u64 | 1 << 63,
        );
    }
    for (index, cluster) in clusters.iter().enumerate() {
        if cluster.iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut whole = cluster.to_vec();
        whole.resize(CLUSTER, 0);
        let mut stream = Vec::new();
        let shorter = compressor.compress(&whole, &mut stream).unwrap();
        let entry = if flavour.compressed && (shorter || flavour.foreign) {
            if flavour.foreign {
                stream = foreign_stream(&whole);
            }
            let offset = image.len() as u64;
            image.extend(&stream);
            compressed_entry(BITS, offset, stream.len() as u64)
        } else {
            image.resize(image.len().next_multiple_of(CLUSTER), 0);
            let offset = image.len() as u64;
            image.extend(&whole);
            plain_entry(offset)
        };
        put64(&mut image, FIRST_L2 + index * 8, entry);
    }
    image
}

/// Content that compresses, with runs of zeroes.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (0..2000_usize).prop_map(|length| vec![0; length]),
        (any::<u8>(), 0..2000_usize).prop_map(|(byte, length)| vec![byte; length]),
        prop::collection::vec(any::<u8>(), 0..700),
        prop::collection::vec(b'a'..=b'd', 0..1500),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn flavour() -> impl Strategy<Value = Flavour> {
    prop::sample::select(vec![PLAIN, ZLIB, ZSTD, V2, FOREIGN])
}

fn open(bytes: Vec<u8>) -> Result<Qcow2Source, Qcow2Error> {
    Qcow2Source::open(Arc::new(bytes))
}

fn read_all(source: &dyn ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Creates and applies a patch between two files; returns what came out.
fn round_trip(dir: &Path, base: &[u8], target: &[u8]) -> Result<Vec<u8>, Qcow2Error> {
    let [from, to, between, out] = ["base", "target", "patch", "out"].map(|name| dir.join(name));
    std::fs::write(&from, base).unwrap();
    std::fs::write(&to, target).unwrap();
    let info = patch::create(&from, &to, &between, &CreateOptions::default())?;
    assert_eq!(info.header.target_size, target.len() as u64);
    patch::verify(&from, &between, &Task::default())?;
    patch::apply(&from, &between, &out, &Task::default())?;
    Ok(std::fs::read(&out).unwrap())
}

/// Content whose file has one piece, or several. Streams that the test's clusters have no room for are short.
fn longer(content: &[u8], times: usize, flavour: Flavour) -> Vec<u8> {
    let most = if flavour.foreign { 7 } else { 4000 };
    let mut longer = content.repeat(times);
    longer.truncate(most * CLUSTER);
    longer
}

/// Opens the target of the patch that `round_trip` left for reading.
fn view_of(dir: &Path, content: Vec<u8>) -> Result<Option<TargetView>, Qcow2Error> {
    TargetView::open(Arc::new(content), &dir.join("patch"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn content_is_what_the_guest_reads(content in content(), flavour in flavour()) {
        let source = open(image(&content, flavour)).unwrap();
        prop_assert_eq!(read_all(&source), content);
    }

    #[test]
    fn images_and_disks_are_read_alike(content in content(), flavour in flavour()) {
        let bytes = image(&content, flavour);
        let map = Map::read(&bytes).unwrap();
        let disk = Disk::open(&bytes).unwrap();
        let mut found = Vec::new();
        let state = disk.state(None).unwrap();
        disk.changed(&state, None, &mut |index, cluster| found.push((index, cluster))).unwrap();
        prop_assert_eq!(found, map.iter().collect::<Vec<_>>());
    }

    #[test]
    fn entries_come_back(bits in 9..=21_u32, place in 1..1_u64 << 32, length in 1..1_u64 << 21) {
        let header = Header { cluster_bits: bits, file_size: 1 << 50, ..sample_header() };
        let length = length % (1 << bits) + 1;
        let entry = compressed_entry(bits, place, length);
        let Cluster::Compressed { offset, length: upper } = Cluster::decode(&header, entry) else {
            panic!("{entry:x}")
        };
        prop_assert_eq!(offset, place);
        prop_assert!((length..length + 512).contains(&upper), "{} for {}", upper, length);
        prop_assert_eq!(Cluster::decode(&header, plain_entry(place << bits)), Cluster::Plain(place << bits));
    }

    #[test]
    fn any_target_comes_back_bit_for_bit(
        base in content(), edit in content(), at in any::<prop::sample::Index>(),
        forms in (prop::option::of(flavour()), prop::option::of(flavour())),
    ) {
        let mut target = base.clone();
        let cut = at.index(base.len() + 1);
        target.splice(cut..base.len().min(cut + edit.len() / 2), edit);
        let write = |content: &[u8], form: Option<Flavour>| form.map_or(content.to_vec(), |form| image(content, form));
        let (base, target) = (write(&base, forms.0), write(&target, forms.1));
        let dir = tempfile::tempdir().unwrap();
        prop_assert_eq!(round_trip(dir.path(), &base, &target).unwrap(), target);
    }

    #[test]
    fn damaged_images_never_crash_the_reader(
        content in content(), flavour in flavour(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), tables in any::<bool>(),
    ) {
        let mut bytes = image(&content, flavour);
        let span = if tables { bytes.len().min(FIRST_L2 + 2 * CLUSTER) } else { bytes.len() };
        for (at, byte) in damage {
            bytes[at.index(span)] = byte;
        }
        if let Ok(source) = open(bytes) {
            if source.len() < 1 << 20 {
                let mut all = vec![0; source.len() as usize];
                // Either outcome is right; reading outside the file would panic.
                let _ = source.read_exact_at(&mut all, 0);
            }
        }
    }

    #[test]
    fn damaged_forms_never_crash_a_rebuild(
        content in content(), flavour in flavour(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>(),
    ) {
        let source = open(image(&content, flavour)).unwrap();
        let mut description = describe(&source, None, &Task::default()).unwrap();
        description.add_sequence(&Manifest::from_source(source.file(), &Task::default()).unwrap());
        let mut bytes = description.recipe.encode(&description.placed);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 4) + 1);
        if let Ok(recipe) = Recipe::decode(&bytes) {
            let out = tempfile::tempfile().unwrap();
            let stored = vec![0; 1 << 16];
            let ingredients = Ingredients { recipe: &recipe, content: &source, base: Some(&source), stored: &stored };
            // Either outcome is right; a panic is not.
            let _ = rebuild(&ingredients, &out, &Task::default());
            if let Some(sequence) = &recipe.sequence {
                let _ = sequence.places(&recipe.layout, &recipe.streams);
            }
        }
    }

    #[test]
    fn any_range_of_a_target_is_read_without_the_rest(
        content in content(), flavour in flavour(), times in 1..60_usize,
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let content = longer(&content, times, flavour);
        let dir = tempfile::tempdir().unwrap();
        let target = image(&content, flavour);
        round_trip(dir.path(), &content, &target).unwrap();
        let view = view_of(dir.path(), content).unwrap().unwrap();
        prop_assert_eq!(view.size(), target.len() as u64);
        for (at, length) in ranges {
            let at = at.index(target.len() + 9);
            let end = (at + length.index(target.len() + 9)).min(target.len());
            let read = view.read(at as u64, (end.max(at) - at) as u64, &Task::default()).unwrap();
            prop_assert_eq!(&read, target.get(at..end).unwrap_or_default());
        }
        prop_assert_eq!(view.read(0, u64::MAX, &Task::default()).unwrap(), target);
    }

    #[test]
    fn a_damaged_patch_or_content_never_gives_a_wrong_byte(
        content in content(), flavour in flavour(), times in 1..60_usize, which in any::<bool>(),
        at in any::<prop::sample::Index>(), flip in 1..=255_u8,
    ) {
        let mut content = longer(&content, times, flavour);
        content.push(1);
        let dir = tempfile::tempdir().unwrap();
        let target = image(&content, flavour);
        round_trip(dir.path(), &content, &target).unwrap();
        if which {
            let at = at.index(content.len());
            content[at] ^= flip;
        } else {
            let path = dir.path().join("patch");
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            std::fs::write(path, bytes).unwrap();
        }
        if let Ok(Some(view)) = view_of(dir.path(), content) {
            for (number, piece) in target.chunks(PIECE as usize).enumerate() {
                if let Ok(read) = view.read(number as u64 * PIECE, PIECE, &Task::default()) {
                    prop_assert_eq!(&read, piece);
                }
            }
        }
    }

    #[test]
    fn damaged_patches_never_give_a_wrong_image(
        base in content(), target in content(), flavour in flavour(),
        at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let target = image(&target, flavour);
        round_trip(dir.path(), &base, &target).unwrap();
        let (between, out) = (dir.path().join("patch"), dir.path().join("again"));
        let mut bytes = std::fs::read(&between).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        std::fs::write(&between, &bytes).unwrap();
        match patch::apply(&dir.path().join("base"), &between, &out, &Task::default()) {
            Ok(_) => prop_assert_eq!(std::fs::read(&out).unwrap(), target),
            Err(_) => prop_assert!(!out.exists()),
        }
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        prop_assert!(left.len() <= 5, "{left:?}");
    }
}

/// Who began to read behind the end of the file, within its last cluster, got an error.
#[test]
fn what_a_cut_last_cluster_lacks_reads_as_zeroes() {
    let mut bytes = image(&[7; CLUSTER], PLAIN);
    bytes.truncate(bytes.len() - 100);
    let source = open(bytes).unwrap();
    let mut end = [1; 50];
    source.read_exact_at(&mut end, CLUSTER as u64 - 50).unwrap();
    assert_eq!(end, [0; 50]);
    assert_eq!(read_all(&source)[..CLUSTER - 100], [7; CLUSTER - 100]);
}

fn sample_header() -> Header {
    Header::read(&sample(PLAIN)).unwrap()
}

/// A small valid image to spoil.
fn sample(flavour: Flavour) -> Vec<u8> {
    let mut content = vec![7; 10 * CLUSTER];
    content[3 * CLUSTER..5 * CLUSTER].fill(0);
    image(&content, flavour)
}

fn refusal(spoil: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = sample(ZLIB);
    spoil(&mut bytes);
    match open(bytes) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn images_that_name_other_files_are_refused() {
    let backing = refusal(|image| {
        put64(image, 8, 200);
        put32(image, 16, 11);
        image[200..211].copy_from_slice(b"/etc/shadow");
    });
    assert!(backing.contains("backing file"), "{backing}");
    // The refusal comes first, whatever else is wrong with the header.
    let unfinished = refusal(|image| {
        put32(image, 16, 11);
        put32(image, 100, 0);
    });
    assert!(unfinished.contains("backing file"), "{unfinished}");
    let length_only = refusal(|image| put32(image, 16, 4));
    assert!(length_only.contains("backing file"), "{length_only}");
    let data_bit = refusal(|image| put64(image, 72, 4));
    assert!(data_bit.contains("data file"), "{data_bit}");
    let data_name = refusal(|image| {
        put32(image, 104, 0x4441_5441);
        put32(image, 108, 11);
    });
    assert!(data_name.contains("data file"), "{data_name}");
}

#[test]
fn encrypted_corrupt_and_unknown_images_are_refused() {
    for (at, value, word) in [
        (32, 2, "encrypted"),
        (76, 2, "corrupt"),
        (76, 16, "extended"),
        (76, 32, "unknown"),
        (4, 4, "version"),
    ] {
        let reason = refusal(|image| put32(image, at, value));
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn zero_marks_need_version_3() {
    let spoil = |version: u32| {
        let mut bytes = sample(ZLIB);
        put32(&mut bytes, 4, version);
        put64(&mut bytes, FIRST_L2, 1);
        Map::read(&bytes).map(|map| map.cluster(0))
    };
    assert_eq!(spoil(3).unwrap(), Cluster::Zero);
    assert!(matches!(spoil(2), Err(Qcow2Error::Damaged(_))));
}

#[test]
fn absurd_and_misplaced_tables_are_refused() {
    for (what, spoil) in [
        (
            "large",
            (|image| put32(image, 36, u32::MAX)) as fn(&mut Vec<u8>),
        ),
        ("too large", |image| put32(image, 56, u32::MAX)),
        ("misplaced", |image| put64(image, 40, 1 << 62)),
        ("misplaced", |image| put64(image, 40, L1 as u64 + 8)),
        ("misplaced", |image| put64(image, 48, u64::MAX - 511)),
        ("short", |image| put64(image, 24, 1 << 40)),
        ("16 TiB", |image| put64(image, 24, 1 << 60)),
        ("clusters", |image| put32(image, 20, 40)),
        ("overlap", |image| put64(image, 40, REFBLOCK as u64)),
        ("overlap", |image| put64(image, L1, L1 as u64)),
        ("overlap", |image| put64(image, REFTABLE, FIRST_L2 as u64)),
        ("second-level table is misplaced", |image| {
            put64(image, L1, 1 << 50)
        }),
        ("overlaps a table", |image| {
            put64(image, FIRST_L2, plain_entry(L1 as u64))
        }),
        ("overlaps a table", |image| {
            put64(image, FIRST_L2, compressed_entry(BITS, L1 as u64 + 5, 100))
        }),
        ("the same place", |image| {
            image.copy_within(FIRST_L2..FIRST_L2 + 8, FIRST_L2 + 8)
        }),
    ] {
        let reason = refusal(spoil);
        assert!(reason.contains(what), "{what}: {reason}");
    }
}

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
