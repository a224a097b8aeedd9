//! Raw images whose filesystems guests wrote, of which blocks arrive in any order.
//!
//! The input begins with the order, behind its length: numbers of blocks in 2 bytes. The rest is the image.

#![no_main]

use diffcache_filesystems::ArrivingFiles;
use diffcache_fuzz::{Arrived, Parts};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut parts = Parts(data);
    let order = parts.part();
    let mut image = Arrived::new(parts.0);
    let mut files = ArrivingFiles::default();
    let mut found = 0;
    for number in order.chunks_exact(2) {
        let number = u64::from(number[0]) | u64::from(number[1]) << 8;
        let Some(range) = image.arrive(number) else {
            continue;
        };
        for piece in files.note(&image, range).pieces {
            assert!(piece.start < piece.end && piece.end <= parts.0.len() as u64);
            found += 1;
        }
    }
    assert!(found <= 1 << 18);
});
