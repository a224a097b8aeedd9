//! Tests of saves whose steps run side by side.

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;
use crate::save::disk::{Format, Place};
use crate::store::crypt::Name;
use crate::store::frames::Encoder;
use crate::store::pack_index::{PackIndex, FRAME_BLOCKS};
use crate::store::pack_set::{PackWriter, PACK_RAW};

const SIZE: usize = 4096;
/// More than fit into one pack, even without copies and zeroes.
const BLOCKS: u32 = 22_000;

/// A block of the disk: every ninth is zero, every eleventh a copy of one that came long before.
fn block(number: u32) -> Vec<u8> {
    let seed = match number {
        0.. if number % 9 == 0 => return vec![0; SIZE],
        100.. if number % 11 == 0 => number / 2,
        _ => number,
    };
    let mut block = vec![7; SIZE];
    block[..4].copy_from_slice(&seed.to_le_bytes());
    blake3::Hasher::new()
        .update(&seed.to_le_bytes())
        .finalize_xof()
        .fill(&mut block[4..64]);
    block
}

fn disk(dir: &Path) -> DiskSource {
    let path = dir.join("disk");
    let file = std::fs::File::create(&path).unwrap();
    for number in 0..BLOCKS {
        let at = u64::from(number) * SIZE as u64;
        file.write_all_at(&block(number), at).unwrap();
    }
    DiskSource {
        place: Place::File(path),
        format: Some(Format::Raw),
        ..DiskSource::default()
    }
}

fn request(source: &DiskSource, directory: &Path) -> SaveRequest {
    SaveRequest {
        source: source.clone(),
        against: Reference {
            root: NodeRef::Zero,
            size: 0,
            snapshot: None,
        },
        parent: None,
        regrouping: None,
        target: SaveTarget {
            directory: directory.to_owned(),
            version: 1,
            next_pack: 5,
            next_map: 1,
            level: 3,
            journal: None,
        },
    }
}

/// The same packs, written by one thread that takes each step in its turn.
fn in_turn(store: &Store, dir: &Path) -> Vec<Written> {
    let mut known = HashSet::new();
    let new: Vec<(Name, Vec<u8>)> = (0..BLOCKS)
        .map(block)
        .filter(|block| block != &[0; SIZE])
        .map(|block| (store.cipher.name(&block), block))
        .filter(|(name, _)| known.insert(*name))
        .collect();
    let encoder = Encoder::new(3);
    let pack = |(blocks, number): (&[(Name, Vec<u8>)], u32)| {
        let index = PackIndex::new(number, 0, SIZE as u32, store.cipher.seals());
        let mut writer = PackWriter::create(dir, index).unwrap();
        for frame in blocks.chunks(FRAME_BLOCKS) {
            let names: Vec<Name> = frame.iter().map(|(name, _)| *name).collect();
            let bytes: Vec<u8> = frame.iter().flat_map(|(_, block)| block.clone()).collect();
            let encoded = encoder.encode(&bytes, &store.cipher).unwrap();
            writer.append(&names, &encoded).unwrap();
        }
        writer.finish(None).unwrap()
    };
    new.chunks(PACK_RAW as usize / SIZE)
        .zip(5..)
        .map(pack)
        .collect()
}

#[test]
fn packs_have_the_same_bytes_however_many_threads_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let source = disk(dir.path());
    let store = Store::new(SIZE as u32, Some(&[3; 32])).unwrap();
    let wanted_dir = tempfile::tempdir().unwrap();
    let wanted = in_turn(&store, wanted_dir.path());
    assert_eq!(wanted.len(), 2);
    for threads in [1, 2, 7] {
        let dir = tempfile::tempdir().unwrap();
        let task = Task {
            threads,
            ..Task::default()
        };
        let saved = save_disk(&store, &request(&source, dir.path()), &task).unwrap();
        assert_eq!(saved.packs.len(), wanted.len());
        for (one, other) in saved.packs.iter().zip(&wanted) {
            assert_eq!((one.id, one.blocks), (other.id, other.blocks));
            for (one, other) in [(&one.data, &other.data), (&one.index, &other.index)] {
                assert!(std::fs::read(one).unwrap() == std::fs::read(other).unwrap());
            }
        }
    }
}

/// Bytes that were read when a save ended, and how it ended. `cancel` is set after so many bytes.
fn stopped(request: &SaveRequest, cancel_after: u64) -> (u64, VersionsError) {
    let store = Store::new(SIZE as u32, None).unwrap();
    let (cancel, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let progress = |done, _| {
        read.fetch_max(done, Ordering::SeqCst);
        if done >= cancel_after {
            cancel.store(true, Ordering::SeqCst);
        }
    };
    let task = Task {
        threads: 2,
        progress: Some(&progress),
        cancel: Some(&cancel),
    };
    let error = save_disk(&store, request, &task).unwrap_err();
    (read.into_inner(), error)
}

#[test]
fn a_save_that_is_cancelled_ends_with_the_pieces_that_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let source = disk(dir.path());
    let (read, error) = stopped(&request(&source, dir.path()), 40 << 20);
    assert!(matches!(error, VersionsError::Cancelled(_)), "{error}");
    // One more by the other thread.
    assert!(read <= 42 << 20, "{read}");
}

#[test]
fn a_save_that_cannot_write_ends_without_reading_all_of_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let source = disk(dir.path());
    let (read, error) = stopped(&request(&source, &dir.path().join("none")), u64::MAX);
    assert!(matches!(error, VersionsError::Io { .. }), "{error}");
    assert!(read < u64::from(BLOCKS) * SIZE as u64, "{read}");
}
