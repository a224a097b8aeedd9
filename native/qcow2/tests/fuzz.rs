//! Forged images: whatever a file says, nothing panics, nothing is read outside of it, and no more memory is taken than promised.
//!
//! DIFFCACHE_FUZZ_SECONDS and DIFFCACHE_FUZZ_SEED mean what they mean for forged patches.

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, Mutex};

use diffcache_core::source::ReadAt;
use diffcache_qcow2::snapshots::Disk;
use diffcache_qcow2::Qcow2Source;

#[path = "../../core/tests/fuzzing/mod.rs"]
mod fuzzing;
#[allow(dead_code)]
#[path = "../../core/tests/images/mod.rs"]
mod images;
use fuzzing::{fuzz, spoil, Chance, Strict};
use images::noise;

/// Disks that are claimed to be larger are opened, and not walked through.
const BUILT: u64 = 64 << 20;
const BITS: usize = 9;
const CLUSTER: usize = 1 << BITS;
const TABLES: usize = 5 * CLUSTER;

fn put(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// A qcow2 image of 32 clusters, every third of them zero and every other one compressed.
fn qcow2() -> Vec<u8> {
    let mut image = vec![0; TABLES];
    image[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    put(&mut image, 16, BITS as u64);
    put(&mut image, 24, 32 * CLUSTER as u64);
    put(&mut image, 36, 1 << 32);
    put(&mut image, 40, 3 * CLUSTER as u64);
    put(&mut image, 48, CLUSTER as u64);
    image[56..60].copy_from_slice(&1u32.to_be_bytes());
    image[96..104].copy_from_slice(&[0, 0, 0, 4, 0, 0, 0, 104]);
    put(&mut image, CLUSTER, 2 * CLUSTER as u64);
    put(&mut image, 3 * CLUSTER, (4 * CLUSTER as u64) | (1 << 63));
    for index in (0..32).filter(|index| index % 3 != 2) {
        let content = noise(index as u64 + 1, CLUSTER);
        let entry = if index % 2 == 0 {
            let offset = image.len() as u64;
            // A stored block of deflate.
            image.extend([1, 0, 2, 0xff, 0xfd]);
            image.extend(content);
            let sectors = (offset % 512 + 517).div_ceil(512) - 1;
            (1 << 62) | (sectors << (62 - (BITS as u64 - 8))) | offset
        } else {
            image.resize(image.len().next_multiple_of(CLUSTER), 0);
            let offset = image.len() as u64;
            image.extend(content);
            offset | (1 << 63)
        };
        put(&mut image, 4 * CLUSTER + index * 8, entry);
    }
    image
}

#[test]
fn the_image_to_spoil_is_valid() {
    let source = Qcow2Source::open(Arc::new(Strict(qcow2()))).unwrap();
    let mut content = vec![0; source.len() as usize];
    source.read_exact_at(&mut content, 0).unwrap();
    for (index, cluster) in content.chunks(CLUSTER).enumerate() {
        let expected = match index % 3 {
            2 => vec![0; CLUSTER],
            _ => noise(index as u64 + 1, CLUSTER),
        };
        assert!(cluster == expected, "cluster {index}");
    }
}

/// Changes numbers of an image, as an attacker would.
fn forge(image: &mut Vec<u8>, chance: &mut Chance) {
    let len = image.len();
    for _ in 0..=chance.below(3) {
        match chance.below(8) {
            0 => image.truncate(chance.below(len + 1)),
            1 => spoil(image, chance),
            2 | 3 => {
                // The header's fields of 4 bytes.
                let at = 4 + 4 * chance.below(26);
                let value = chance.number(CLUSTER as u64) as u32;
                if let Some(field) = image.get_mut(at..at + 4) {
                    field.copy_from_slice(&value.to_be_bytes());
                }
            }
            _ => {
                // Entries of the header, of the tables, and of what follows.
                let tables = [24, 40, 48, 56, 64, CLUSTER, 3 * CLUSTER];
                let at = match chance.below(3) {
                    0 => tables[chance.below(tables.len())],
                    _ => 4 * CLUSTER + 8 * chance.below(64),
                };
                let to = (chance.below(len) & !(CLUSTER - 1)) as u64;
                let flags = (chance.next() % 4) << 62;
                if image.len() >= at + 8 {
                    put(image, at, chance.number(to) | flags);
                }
            }
        }
    }
}

#[test]
fn forged_images_do_no_harm() {
    let valid = qcow2();
    let buf = Mutex::new(Vec::new());
    fuzz(|chance| {
        let mut image = valid.clone();
        forge(&mut image, chance);
        let image = Strict(image);
        if let Ok(disk) = Disk::open(&image) {
            let present = disk.state(None).ok();
            for snapshot in &disk.snapshots {
                if let (Some(new), Ok(old)) = (&present, disk.state(Some(snapshot))) {
                    let _ = disk.changed(new, Some(&old), &mut |_, _| {});
                }
            }
            if let Some(new) = present.filter(|state| state.size < BUILT) {
                let _ = disk.changed(&new, None, &mut |_, _| {});
            }
        }
        if let Ok(source) = Qcow2Source::open(Arc::new(image)) {
            let len = source.len();
            let mut buf = buf.lock().unwrap();
            for from in [0, chance.next() % len.max(1), len.saturating_sub(5000)] {
                buf.resize((len - from).min(1 << 20) as usize, 0);
                let _ = source.read_exact_at(&mut buf, from);
            }
            // A file that is mostly holes is long to walk through.
            let mut at = 0;
            for _ in 0..1000 {
                match source.next_data(at) {
                    Ok(Some((from, to))) => {
                        assert!(at <= from && from < to && to <= len);
                        at = to;
                    }
                    _ => break,
                }
            }
        }
    });
}
