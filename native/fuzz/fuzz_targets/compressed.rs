//! The index of a compressed form whose checksum is right and whose lengths are anything, and a frame of it.

#![no_main]

use std::sync::OnceLock;

use diffcache_core::compressed::{Arriving, Decoder, Index};
use diffcache_core::manifest::Manifest;
use diffcache_fuzz::{manifest, noise, Parts};
use libfuzzer_sys::fuzz_target;

/// Bytes before the lengths of frames, and where the checksum of those is.
const HEADER: usize = 96;
const CHECK: std::ops::Range<usize> = 64..96;

fn image() -> &'static Manifest {
    static IMAGE: OnceLock<Manifest> = OnceLock::new();
    IMAGE.get_or_init(|| manifest(&noise(5, 3_300_000)))
}

fuzz_target!(|data: &[u8]| {
    let mut parts = Parts(data);
    let total = parts.number();
    let mut bytes = parts.part().to_vec();
    if bytes.len() >= HEADER {
        let check = blake3::hash(&bytes[HEADER..]);
        bytes[CHECK].copy_from_slice(check.as_bytes());
    }
    let Ok(index) = Index::parse(&bytes, total, image()) else {
        return;
    };
    for frame in index.frames() {
        assert!(frame.length <= frame.raw && frame.offset + frame.length as u64 <= total);
        let found = index.frame_of(frame.group * 16);
        assert_eq!(Some(frame), found);
    }
    let Some(frame) = index.frames().first() else {
        return;
    };
    let mut whole = Vec::new();
    let _ = Decoder::new().decode(frame, parts.0, &mut whole);
    assert!(whole.len() <= frame.raw);
    if let Ok(mut arriving) = Arriving::new(frame) {
        assert!(arriving.extend(parts.0).len() <= frame.raw);
    }
});
