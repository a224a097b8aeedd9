//! What fuzz targets share: a source that refuses to be read outside of its bytes, and files whose checksums are made right.

use diffcache_core::manifest::Manifest;
use diffcache_core::patch::format::{Header, HEADER_LEN};
use diffcache_core::task::Task;

#[path = "../../filesystems/tests/fuzzing/arrived.rs"]
mod arrived;
#[path = "../../ssdcache/tests/fuzzing/device.rs"]
pub mod device;
#[path = "../../nbd/tests/fuzzing/nbd.rs"]
pub mod nbd;
#[path = "../../core/tests/images/noise.rs"]
mod noise;
#[path = "../../core/tests/fuzzing/strict.rs"]
mod strict;

pub use arrived::Arrived;
pub use noise::noise;
pub use strict::Strict;

/// A task of one thread.
pub fn task() -> Task<'static> {
    Task {
        threads: 1,
        ..Task::default()
    }
}

/// `body` and the checksum that indexes and maps of a version store end with.
pub fn sealed(body: &[u8]) -> Vec<u8> {
    [body, blake3::hash(body).as_bytes()].concat()
}

/// Bytes taken from the front of others.
pub struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    /// The next number, in 8 bytes; 0 when too few are left.
    pub fn number(&mut self) -> u64 {
        let mut bytes = [0; 8];
        let taken = self.take(8);
        bytes[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(bytes)
    }

    /// The next bytes behind their length in 2 bytes.
    pub fn part(&mut self) -> &'a [u8] {
        let len = self.take(2);
        let len = len
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | usize::from(*byte));
        self.take(len)
    }

    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// The base of every patch that the target `patch` reads.
pub fn base() -> Vec<u8> {
    [noise(1, 60_000), vec![0; 40_000], noise(2, 31_001)].concat()
}

/// What the target `patch` builds when its input is a seed.
pub fn target() -> Vec<u8> {
    let mut target = base();
    target.copy_within(8192..40_960, 4096);
    target[70_000..80_000].copy_from_slice(&noise(3, 10_000));
    target[20_480..24_576].fill(0);
    target.extend(noise(4, 777));
    target
}

/// Builds a patch of plain sections, with lengths and hashes that are right.
///
/// The input has the sizes of base and target, the numbers of runs and frames, and data, map, frames and leaves, each behind its length.
pub fn forge(template: Header, input: &[u8]) -> Vec<u8> {
    let mut parts = Parts(input);
    let mut header = template;
    header.base_size = parts.number();
    header.target_size = parts.number();
    header.runs = parts.number();
    header.frames = parts.number();
    let data = parts.part();
    let (map, frames) = (pack(parts.part()), pack(parts.part()));
    let leaves = parts.part();
    header.leaves = leaves.len() as u64 / 32;
    header.meta_offset = HEADER_LEN + data.len() as u64;
    header.map_len = map.len() as u64;
    header.frames_len = frames.len() as u64;
    let meta = [&map[..], &frames, &leaves[..header.leaves as usize * 32]].concat();
    header.patch_size = header.meta_offset + meta.len() as u64;
    header.meta_hash = *blake3::hash(&meta).as_bytes();
    [&header.encode()[..], data, &meta].concat()
}

/// The manifest of an image in memory.
pub fn manifest(image: &[u8]) -> Manifest {
    Manifest::from_source(&image, &task()).expect("an image in memory can be read")
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 1).expect("memory suffices")
}
