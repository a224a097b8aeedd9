//! Properties of patches between images of every kind.

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Mutex;

use diffcache_core::manifest::{leaf_len, Manifest, LEAF_SIZE};
use diffcache_core::patch::format::{block_count, MAX_SIZE};
use diffcache_core::patch::{
    apply, apply_in_place, apply_to_sink, create, info, target_manifest, verify, CreateOptions,
    PatchError, PatchView,
};
use diffcache_core::retry::ErrorKind;
use diffcache_core::sink::{LeafSink, SinkError};
use diffcache_core::source::{FileSource, ReadAt, SourceError};
use diffcache_core::task::Task;
use proptest::prelude::*;

#[path = "../images/mod.rs"]
mod images;
mod programs;
use images::{noise, pair, BLOCK};

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        Files {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn make(base: &[u8], target: &[u8], level: i32) -> Vec<u8> {
    let files = Files::new();
    let options = CreateOptions {
        level,
        ..CreateOptions::default()
    };
    create(&base, &target, &files.path("patch"), &options).unwrap();
    assert_eq!(files.names(), ["patch"]);
    std::fs::read(files.path("patch")).unwrap()
}

/// Collects leaves into an image.
struct Collect {
    image: Mutex<Vec<u8>>,
}

impl LeafSink for Collect {
    fn put(&self, index: u64, data: &[u8]) -> Result<(), SinkError> {
        let at = (index * LEAF_SIZE) as usize;
        self.image.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

fn rebuild_by_sink(base: &[u8], patch: &[u8], target: &Manifest) -> Result<Vec<u8>, PatchError> {
    let sink = Collect {
        image: Mutex::new(vec![0; target.size() as usize]),
    };
    apply_to_sink(&base, &patch, target, &sink, &Task::default())?;
    Ok(sink.image.into_inner().unwrap())
}

fn manifest(image: &[u8]) -> Manifest {
    Manifest::from_source(&image, &Task::default()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn applying_gives_the_target((base, target) in pair(), level in prop_oneof![Just(1), Just(3)]) {
        let files = Files::new();
        let patch = make(&base, &target, level);
        let header = info(&patch).unwrap().header;
        prop_assert_eq!(header.target_size, target.len() as u64);
        prop_assert_eq!(header.patch_size, patch.len() as u64);
        prop_assert_eq!(header.blocks_copied + header.blocks_inserted + header.blocks_zero, target.len().div_ceil(BLOCK) as u64);
        let (base_path, patch_path) = (files.write("base", &base), files.write("patch", &patch));
        let stats = apply(&base_path, &patch_path, &files.path("out"), &Task::default()).unwrap();
        prop_assert_eq!(std::fs::read(files.path("out")).unwrap(), target.clone());
        prop_assert_eq!(stats.manifest, manifest(&target));
        prop_assert_eq!(files.names(), ["base", "out", "patch"]);
    }

    #[test]
    fn applying_in_place_gives_the_target((base, target) in pair(), level in prop_oneof![Just(1), Just(3)]) {
        let files = Files::new();
        let image = files.write("image", &base);
        let patch = files.write("patch", &make(&base, &target, level));
        apply_in_place(&image, &patch, &files.path("journal"), &Task::default()).unwrap();
        prop_assert!(std::fs::read(&image).unwrap() == target);
        prop_assert_eq!(files.names(), ["image", "patch"]);
    }

    #[test]
    fn a_wrong_base_is_left_alone((base, target) in pair(), at in any::<prop::sample::Index>()) {
        prop_assume!(!base.is_empty() && base != target);
        let mut wrong = base.clone();
        let at = at.index(wrong.len());
        wrong[at] ^= 1;
        let files = Files::new();
        let image = files.write("image", &wrong);
        let patch = files.write("patch", &make(&base, &target, 1));
        // A byte that the target does not need may differ.
        let applied = apply_in_place(&image, &patch, &files.path("journal"), &Task::default());
        let left = std::fs::read(&image).unwrap();
        let expected = if applied.is_ok() { &target } else { &wrong };
        prop_assert!(left == *expected);
        prop_assert_eq!(files.names(), ["image", "patch"]);
    }

    #[test]
    fn sinks_and_views_give_the_target((base, target) in pair(), reads in prop::collection::vec((any::<prop::sample::Index>(), 0..300_000usize), 4)) {
        let patch = make(&base, &target, 3);
        let of_target = manifest(&target);
        prop_assert_eq!(rebuild_by_sink(&base, &patch, &of_target).unwrap(), target.clone());
        prop_assert_eq!(verify(&base, &patch, &Task::default()).unwrap().manifest, of_target.clone());
        prop_assert_eq!(target_manifest(&manifest(&base), &patch, &Task::default()).unwrap(), of_target.clone());
        for known in [None, Some(of_target)] {
            let view = PatchView::open(&base, &patch, known).unwrap();
            for (at, len) in &reads {
                let from = at.index(target.len() + 1);
                let to = (from + len).min(target.len());
                let mut buf = vec![0xaa; to - from];
                view.read(&mut buf, from as u64).unwrap();
                prop_assert_eq!(&buf, &target[from..to]);
            }
        }
    }

    #[test]
    fn a_flipped_bit_never_gives_a_wrong_byte((base, target) in pair(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut patch = make(&base, &target, 3);
        let at = at.index(patch.len());
        patch[at] ^= 1 << bit;
        prop_assert!(verify(&base, &patch, &Task::default()).is_err());
        prop_assert!(rebuild_by_sink(&base, &patch, &manifest(&target)).is_err());
        if let Ok(view) = PatchView::open(&base, &patch, None) {
            for leaf in 0..target.len().div_ceil(LEAF_SIZE as usize) as u64 {
                let start = (leaf * LEAF_SIZE) as usize;
                let mut buf = vec![0; leaf_len(target.len() as u64, leaf)];
                if view.read(&mut buf, leaf * LEAF_SIZE).is_ok() {
                    prop_assert_eq!(&buf, &target[start..start + buf.len()]);
                }
            }
        }
    }

    #[test]
    fn a_forged_patch_does_no_harm((base, target) in pair(), seed in any::<u64>(), header in any::<bool>()) {
        // A forger computes the hashes of the patch anew; only the hash of its output cannot be forged.
        let mut patch = make(&base, &target, 1);
        let mut fixed = info(&patch).unwrap().header;
        let changes = noise(seed, 6);
        let meta = fixed.meta_offset as usize;
        if header {
            let fields = [&mut fixed.base_size, &mut fixed.target_size, &mut fixed.map_len, &mut fixed.frames_len, &mut fixed.leaves,
                &mut fixed.runs, &mut fixed.frames];
            let field = changes[0] as usize % fields.len();
            *fields.into_iter().nth(field).unwrap() ^= 1 << (changes[1] % 44);
        } else {
            let len = patch.len() - meta;
            prop_assume!(len > 0);
            let at = meta + (changes[0] as usize * 256 + changes[1] as usize) % len;
            patch[at] = changes[2];
        }
        fixed.meta_hash = *blake3::hash(&patch[meta..]).as_bytes();
        patch[..288].copy_from_slice(&fixed.encode());
        let task = Task::default();
        if let Ok(stats) = verify(&base, &patch, &task) {
            prop_assert_eq!(stats.manifest, manifest(&target));
        }
        if let Ok(view) = PatchView::open(&base, &patch, None) {
            let mut buf = vec![0; view.len().min(300_000) as usize];
            // It may fail, and it may give what the forger wanted; it must not panic.
            let _ = view.read(&mut buf, 0);
        }
    }

    #[test]
    fn a_cut_patch_is_refused((base, target) in pair(), at in any::<prop::sample::Index>()) {
        let files = Files::new();
        let patch = make(&base, &target, 1);
        let (base_path, patch_path) = (files.write("base", &base), files.write("patch", &patch[..at.index(patch.len())]));
        let result = apply(&base_path, &patch_path, &files.path("out"), &Task::default());
        let refused = matches!(result, Err(PatchError::Corrupt(_)));
        prop_assert!(refused);
        prop_assert_eq!(files.names(), ["base", "patch"]);
    }

    #[test]
    fn a_changed_base_is_refused((base, target) in pair(), at in any::<prop::sample::Index>()) {
        prop_assume!(!base.is_empty());
        let files = Files::new();
        let patch = make(&base, &target, 3);
        let mut other = base.clone();
        other[at.index(base.len())] ^= 0x10;
        let (base_path, patch_path) = (files.write("base", &other), files.write("patch", &patch));
        match apply(&base_path, &patch_path, &files.path("out"), &Task::default()) {
            // The target may not need the byte that changed.
            Ok(_) => prop_assert_eq!(std::fs::read(files.path("out")).unwrap(), target),
            Err(error) => {
                let refused = matches!(error, PatchError::BaseMismatch { .. });
                prop_assert!(refused, "{}", error);
                prop_assert_eq!(files.names(), ["base", "patch"]);
            }
        }
    }

    #[test]
    fn a_base_of_another_size_is_refused((base, target) in pair()) {
        let patch = make(&base, &target, 1);
        let mut longer = base.clone();
        longer.push(1);
        let result = verify(&longer, &patch, &Task::default());
        let refused = matches!(result, Err(PatchError::BaseMismatch { .. }));
        prop_assert!(refused);
    }
}

#[test]
fn moved_blocks_cost_next_to_nothing() {
    let base = noise(1, 600 * BLOCK);
    let target = [&base[200 * BLOCK..], &base[..200 * BLOCK]].concat();
    let patch = make(&base, &target, 3);
    assert_eq!(info(&patch).unwrap().header.blocks_inserted, 0);
    // What is left are the hashes of the changed leaves.
    assert!(patch.len() < 3000, "{} bytes", patch.len());
}

#[test]
fn holes_stay_holes() {
    use std::os::unix::fs::MetadataExt;
    let files = Files::new();
    let mut target = vec![0; 8 << 20];
    target[4 << 20..(4 << 20) + BLOCK].copy_from_slice(&noise(5, BLOCK));
    let base = files.write("base", &[]);
    let patch = files.write("patch", &make(&[], &target, 3));
    apply(&base, &patch, &files.path("out"), &Task::default()).unwrap();
    let blocks = std::fs::metadata(files.path("out")).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} sectors");
}

/// Hashing terabytes of zeroes instead of looking them up would take the better part of an hour.
#[test]
fn sparse_images_of_terabytes_take_time_by_their_data() {
    let files = Files::new();
    let image = |name: &str, at: &[u64]| {
        let file = std::fs::File::create(files.path(name)).unwrap();
        file.set_len(3 << 40).unwrap();
        for (seed, offset) in (1..).zip(at) {
            file.write_all_at(&noise(seed, 3 * BLOCK), *offset).unwrap();
        }
        FileSource::open(&files.path(name)).unwrap()
    };
    let base = image("base", &[0, 1 << 40, (2 << 40) + 4096]);
    let target = image("target", &[4096, 1 << 40, (3 << 40) - 3 * 4096]);
    let made = create(
        &base,
        &target,
        &files.path("patch"),
        &CreateOptions::default(),
    )
    .unwrap();
    assert_eq!(made.header.blocks_inserted, 0);
    let (patch, output) = (files.path("patch"), files.path("output"));
    apply(&files.path("base"), &patch, &output, &Task::default()).unwrap();
    let output = FileSource::open(&output).unwrap();
    let rebuilt = Manifest::from_source(&output, &Task::default()).unwrap();
    assert_eq!(rebuilt.content_id(), made.target.content_id());
}

#[test]
fn a_manifest_of_another_image_is_refused() {
    let (base, target) = (noise(1, 300_000), noise(2, 300_000));
    let patch = make(&base, &target, 1);
    assert!(matches!(
        rebuild_by_sink(&base, &patch, &manifest(&base)),
        Err(PatchError::TargetMismatch { .. })
    ));
    assert!(matches!(
        PatchView::open(&base, &patch, Some(manifest(&base))),
        Err(PatchError::TargetMismatch { .. })
    ));
}

#[test]
fn a_stopped_job_leaves_nothing() {
    let files = Files::new();
    let stop = std::sync::atomic::AtomicBool::new(true);
    let task = Task {
        cancel: Some(&stop),
        ..Task::default()
    };
    let options = CreateOptions {
        task,
        ..CreateOptions::default()
    };
    let images = (noise(1, 300_000), noise(2, 300_000));
    assert!(matches!(
        create(&images.0, &images.1, &files.path("patch"), &options),
        Err(PatchError::Cancelled(_))
    ));
    let patch = files.write("patch", &make(&images.0, &images.1, 1));
    let base = files.write("base", &images.0);
    assert!(matches!(
        apply(&base, &patch, &files.path("out"), &task),
        Err(PatchError::Cancelled(_))
    ));
    assert_eq!(files.names(), ["base", "patch"]);
}

#[test]
fn reads_past_the_end_are_refused() {
    let (base, target) = (noise(1, 100_000), noise(2, 100_000));
    let patch = make(&base, &target, 1);
    let view = PatchView::open(&base, &patch, None).unwrap();
    assert!(view.read_exact_at(&mut [0; 2], 99_999).is_err());
    assert!(view.read_exact_at(&mut [0; 2], u64::MAX).is_err());
}

/// Base and target of `data/block-1.bin`, a kept patch of version 1: moved blocks, text that repeats, noise, zeroes, growth.
fn kept_images() -> (Vec<u8>, Vec<u8>) {
    let mut base = noise(1, 60 * BLOCK);
    base.resize(100 * BLOCK, 0);
    base.extend(noise(2, 20 * BLOCK + 100));
    let mut target = base.clone();
    target[5 * BLOCK..9 * BLOCK].copy_from_slice(&base[30 * BLOCK..34 * BLOCK]);
    let text: Vec<u8> = (0..20 * BLOCK).map(|i| (i / 97) as u8).collect();
    target[70 * BLOCK..90 * BLOCK].copy_from_slice(&text);
    target[100 * BLOCK..100 * BLOCK + 3000].copy_from_slice(&noise(3, 3000));
    target[20 * BLOCK..24 * BLOCK].fill(0);
    target.extend(text);
    target.extend(noise(4, 777));
    (base, target)
}

/// Its last run is coded as two records, of which the reader took the second for one run too many.
#[test]
fn a_repeat_followed_by_the_last_new_blocks_is_read() {
    let repeat = noise(1, 10 * BLOCK);
    let target = [repeat.as_slice(), &repeat, &noise(2, 3 * BLOCK)].concat();
    let base = Vec::new();
    let patch = make(&base, &target, 3);
    let view = PatchView::open(&base, &patch, None).unwrap();
    let mut bytes = vec![0; target.len()];
    view.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == target);
}

#[test]
fn a_kept_patch_applies() {
    let (base, target) = kept_images();
    let patch = include_bytes!("../data/block-1.bin").to_vec();
    let files = Files::new();
    let out = files.path("out");
    apply(
        &files.write("base", &base),
        &files.write("patch", &patch),
        &out,
        &Task::default(),
    )
    .unwrap();
    assert!(std::fs::read(out).unwrap() == target);
    let view = PatchView::open(&base, &patch, None).unwrap();
    let mut bytes = vec![0; target.len()];
    view.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == target);
}

/// An image that is nothing but long.
struct Long(u64);

impl ReadAt for Long {
    fn len(&self) -> u64 {
        self.0
    }

    fn read_exact_at(&self, buf: &mut [u8], _offset: u64) -> Result<(), SourceError> {
        buf.fill(0);
        Ok(())
    }

    fn next_data(&self, _offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        Ok(None)
    }
}

#[test]
fn the_longest_image_has_numbers_for_all_blocks() {
    assert_eq!(u64::from(block_count(MAX_SIZE)), MAX_SIZE / BLOCK as u64);
    let files = Files::new();
    let made = create(
        &Long(MAX_SIZE + 1),
        &noise(1, BLOCK),
        &files.path("patch"),
        &CreateOptions::default(),
    );
    assert!(matches!(made, Err(PatchError::TooLarge { .. })));
    assert_eq!(std::fs::read_dir(files.dir.path()).unwrap().count(), 0);
}

#[test]
fn a_patch_of_another_version_is_refused_by_its_name_and_number() {
    let files = Files::new();
    let mut patch = make(&noise(1, 9000), &noise(2, 9000), 3);
    patch[8] += 1;
    let check = *blake3::hash(&patch[..256]).as_bytes();
    patch[256..288].copy_from_slice(&check);
    let path = files.path("later.patch");
    std::fs::write(&path, patch).unwrap();
    let error = info(&FileSource::open(&path).unwrap()).unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("{}: version 2 ", path.display())),
        "{message}"
    );
    assert_eq!(error.kind(), ErrorKind::Format);
}
