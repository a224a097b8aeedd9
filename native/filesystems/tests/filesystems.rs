//! Free space of real filesystems, and of damaged ones.
//!
//! The images in `data` were made by mke2fs and mkfs.xfs and written to by the kernel: files of blocks that begin with `keep`, and a file of blocks that
//! begin with `gone`, which was removed. The `dirty` ones were copied while they were mounted.

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used)]

mod volumes;

use std::sync::{Arc, LazyLock};

use diffcache_core::patch::{create, CreateOptions};
use diffcache_core::source::{FileSource, ReadAt, SourceError};
use diffcache_core::task::Task;
use diffcache_filesystems::{survey, trim, TrimError};
use proptest::prelude::*;
use volumes::{load, Image};

static EXT4: Image = LazyLock::new(|| load("ext4"));
static EXT4_OLD: Image = LazyLock::new(|| load("ext4-1k"));
static EXT4_DIRTY: Image = LazyLock::new(|| load("ext4-dirty"));
static XFS: Image = LazyLock::new(|| load("xfs"));
static XFS_OLD: Image = LazyLock::new(|| load("xfs4"));
static XFS_DIRTY: Image = LazyLock::new(|| load("xfs-dirty"));

/// Blocks that begin with a word, by where they start.
fn blocks(image: &[u8], word: &[u8]) -> Vec<u64> {
    (0u64..)
        .step_by(1024)
        .zip(image.chunks(1024))
        .filter(|(_, block)| block.starts_with(word))
        .map(|(at, _)| at)
        .collect()
}

fn assert_tells_free_from_used(image: &Arc<Vec<u8>>, kind: &str, free: u64) {
    let survey = survey(image).unwrap();
    assert_eq!(survey.filesystems.len(), 1);
    assert_eq!(survey.filesystems[0].kind, kind);
    assert_eq!(survey.filesystems[0].free, Ok(free));
    let covered = |at: u64| {
        survey
            .free_within(at, at + 1024)
            .map(|(from, to)| to - from)
            .sum::<u64>()
    };
    let (kept, gone) = (blocks(image, b"keep"), blocks(image, b"gone"));
    assert!(kept.len() >= 70 && gone.len() >= 60);
    assert!(kept.into_iter().all(|at| covered(at) == 0));
    assert!(gone.into_iter().all(|at| covered(at) == 1024));
}

#[test]
fn ext4_tells_what_is_free() {
    // As dumpe2fs counts.
    assert_tells_free_from_used(&EXT4, "ext4", 13_768 * 1024);
}

#[test]
fn ext4_without_checksums_and_with_unwritten_bitmaps_tells_nothing_wrong() {
    let survey = survey(&*EXT4_OLD).unwrap();
    let free = survey.filesystems[0].free.clone().unwrap();
    // Groups without a bitmap give less than dumpe2fs counts, never more.
    assert!((48_000 * 1024..=57_785 * 1024).contains(&free), "{free}");
    assert_tells_free_from_used(&EXT4_OLD, "ext4", free);
}

#[test]
fn xfs_tells_what_is_free() {
    // As xfs_db counts, without the four blocks of each group that are in reserve for the trees.
    assert_tells_free_from_used(&XFS, "xfs", (60_304 - 16) * 4096);
}

#[test]
fn xfs_of_version_4_tells_what_is_free() {
    // No kernel of today writes to it, so that it has no files. xfs_db counts the blocks in reserve for the trees too.
    let survey = survey(&*XFS_OLD).unwrap();
    assert_eq!(survey.filesystems[0].free, Ok((60_396 - 16) * 4096));
}

#[test]
fn a_filesystem_whose_journal_is_not_empty_is_left_alone() {
    for image in [&EXT4_DIRTY, &XFS_DIRTY] {
        let survey = survey(&**image).unwrap();
        let reason = survey.filesystems[0].free.clone().unwrap_err();
        assert!(reason.contains("mount and unmount"), "{reason}");
        assert!(!survey.is_known() && survey.free.is_empty());
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("output");
        assert!(matches!(
            trim(&**image, &output, &Task::default()),
            Err(TrimError::Unknown(_))
        ));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}

/// An image with a partition table, whose only partition is a filesystem.
fn partitioned(volume: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 1 << 20];
    image[450] = 0x83;
    image[454..458].copy_from_slice(&2048u32.to_le_bytes());
    image[458..462].copy_from_slice(&((volume.len() / 512) as u32).to_le_bytes());
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image.extend_from_slice(volume);
    image
}

#[test]
fn trimming_zeroes_what_is_free_and_nothing_else() {
    for volume in [&EXT4, &XFS] {
        let image = partitioned(volume);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("output");
        let stats = trim(&image, &path, &Task::default()).unwrap();
        let output = std::fs::read(&path).unwrap();
        assert_eq!(output.len(), image.len());
        assert!(blocks(&output, b"gone").is_empty());
        assert_eq!(blocks(&output, b"keep"), blocks(&image, b"keep"));
        assert!(stats.data_before - stats.data_after >= 60 * 4096);
        // The same guest: what is in use did not change, and the survey of the filesystem is the same.
        assert_eq!(survey(&output).unwrap(), stats.survey);
        let mut at = 0;
        for (from, to) in &stats.survey.free {
            assert!(output[at..*from as usize] == image[at..*from as usize]);
            assert!(output[*from as usize..*to as usize]
                .iter()
                .all(|byte| *byte == 0));
            at = *to as usize;
        }
        assert!(output[at..] == image[at..]);
        let holes = FileSource::open(&path).unwrap();
        let (_, first_end) = holes.next_data(0).unwrap().unwrap();
        assert!(first_end < output.len() as u64);
    }
}

/// The label of a ZFS pool, as far as it tells that there is one.
const ZFS: &[u8] = b"\x01\x01\0\0\0\0\0\0\0\0\0\x01";

/// Asserts that nothing is trimmed in an image that has a ZFS label somewhere, nor called stale in a patch to it.
fn assert_left_alone(mut image: Vec<u8>, label: usize) {
    image[label..label + ZFS.len()].copy_from_slice(ZFS);
    let found = survey(&image).unwrap();
    assert!(found.free.is_empty() && !found.is_known());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("output");
    let error = trim(&image, &path, &Task::default()).unwrap_err();
    assert!(
        error.to_string().contains("signature of another"),
        "{error}"
    );
    assert!(!path.exists());
}

#[test]
fn a_disk_that_became_a_zfs_pool_is_left_alone() {
    for volume in [&EXT4, &XFS] {
        let size = volume.as_slice().len() / (256 << 10) * (256 << 10);
        for label in [0, 256 << 10, size - (512 << 10), size - (256 << 10)] {
            assert_left_alone(volume.to_vec(), label + (16 << 10));
            assert_left_alone(partitioned(volume), (1 << 20) + label + (16 << 10));
        }
        // A pool on the disk whose old table of partitions is still there.
        assert_left_alone(partitioned(volume), 16 << 10);
    }
}

#[test]
fn a_patch_tells_how_much_of_it_is_stale() {
    let dir = tempfile::tempdir().unwrap();
    let stale = |image: Vec<u8>| {
        let survey = survey(&image).unwrap();
        let options = CreateOptions {
            free: survey.known_free(),
            ..CreateOptions::default()
        };
        let made = create(&Vec::new(), &image, &dir.path().join("patch"), &options);
        made.unwrap().header.stale_blocks
    };
    for image in [partitioned(&EXT4), EXT4.to_vec()] {
        // 60 blocks of the removed file, and what directories and journal left.
        let stale = stale(image);
        assert!((60..80).contains(&stale), "{stale}");
    }
    assert_eq!(stale(vec![7u8; 1 << 20]), u64::MAX);
}

/// An image of which some bytes are others.
struct Damaged {
    image: Arc<Vec<u8>>,
    bytes: Vec<(usize, u8)>,
    len: usize,
}

impl ReadAt for Damaged {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.image[..self.len].read_exact_at(buf, offset)?;
        for (at, byte) in &self.bytes {
            if let Some(at) = at.checked_sub(offset as usize).filter(|at| *at < buf.len()) {
                buf[at] = *byte;
            }
        }
        Ok(())
    }
}

/// Places where structures are, most of all.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..512usize,
        1024..2048usize,
        2048..8192usize,
        0..100_000usize,
        (0..4usize, 0..20_000usize).prop_map(|(group, at)| group * 78_643_200 + at),
        0..300_000_000usize,
    ]
}

fn check(image: &Image, bytes: Vec<(usize, u8)>, cut: Option<prop::sample::Index>) {
    let image = Arc::clone(image);
    let size = image.as_slice().len();
    let len = cut.map_or(size, |cut| cut.index(size));
    let damaged = Damaged { image, bytes, len };
    // No read leaves the image: `Damaged` would refuse it, and so fail the survey.
    let survey = survey(&damaged).unwrap();
    let mut end = 0;
    for (from, to) in &survey.free {
        assert!(end <= *from && from < to && *to <= len as u64);
        end = *to;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_ext4_does_no_harm(bytes in prop::collection::vec((place(), any::<u8>()), 1..12), cut in prop::option::weighted(0.2, any::<prop::sample::Index>())) {
        check(&EXT4_OLD, bytes.clone(), cut);
        check(&EXT4, bytes, cut);
    }

    #[test]
    fn a_damaged_table_of_partitions_does_no_harm(bytes in prop::collection::vec((446..1400usize, any::<u8>()), 1..40)) {
        static IMAGE: Image = LazyLock::new(|| Arc::new(partitioned(&EXT4)));
        check(&IMAGE, bytes, None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_damaged_xfs_does_no_harm(bytes in prop::collection::vec((place(), any::<u8>()), 1..12), cut in prop::option::weighted(0.2, any::<prop::sample::Index>())) {
        check(&XFS_OLD, bytes.clone(), cut);
        check(&XFS, bytes, cut);
    }
}
