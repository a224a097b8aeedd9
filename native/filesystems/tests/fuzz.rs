//! Filesystems that are arriving: whatever their structures say, nothing panics, nothing is read outside of the image, and memory stays bounded. Cases as in the fuzz tests of core.

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used, clippy::panic)]

use diffcache_filesystems::ArrivingFiles;

#[path = "fuzzing/arrived.rs"]
mod arrived;
#[allow(dead_code, unused_imports)]
#[path = "../../core/tests/fuzzing/mod.rs"]
mod fuzzing;
#[allow(dead_code)]
#[path = "../../core/tests/images/mod.rs"]
mod images;
#[allow(dead_code)]
mod volumes;
use arrived::Arrived;
use fuzzing::fuzz;
use volumes::load;

#[test]
fn forged_filesystems_that_are_arriving_do_no_harm() {
    let volumes = ["ext2-files", "ext4-files", "xfs-files"].map(load);
    fuzz(|chance| {
        // They take longer than others.
        if chance.below(4) > 0 {
            return;
        }
        let mut image = volumes[chance.below(volumes.len())].to_vec();
        // Where the structures are that say where all others are.
        for _ in 0..=chance.below(4) {
            let reach = [2048, 8192, 1 << 18, image.len()][chance.below(4)];
            let at = chance.below(reach.min(image.len()).saturating_sub(8));
            let near = u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
            let number = chance.number(near).to_le_bytes();
            let len = 1 + chance.below(8);
            image[at..at + len].copy_from_slice(&number[..len]);
        }
        let len = image.len() as u64;
        let mut arrived = Arrived::new(&image);
        let mut files = ArrivingFiles::default();
        let mut found = 0;
        for _ in 0..chance.below(40) {
            let number = match chance.below(3) {
                0 => chance.next() % 16,
                _ => chance.next() % len.div_ceil(4096),
            };
            let Some(range) = arrived.arrive(number) else {
                continue;
            };
            for piece in files.note(&arrived, range).pieces {
                assert!(piece.start < piece.end && piece.end <= len);
                found += 1;
            }
        }
        assert!(found <= 1 << 18);
    });
}
