//! Properties of manifests and of their files.

use super::*;
use crate::source::{ReadAt, SourceError};
use proptest::prelude::*;

fn sample(len: usize) -> Vec<u8> {
    let mut data = vec![0u8; len];
    for (i, leaf) in data.chunks_mut(LEAF_LEN).enumerate() {
        // Every third leaf stays zero.
        if i % 3 != 1 {
            leaf.iter_mut()
                .enumerate()
                .for_each(|(j, byte)| *byte = (i * 31 + j * 7 + j / 251) as u8);
        }
    }
    data
}

fn sizes() -> Vec<usize> {
    vec![
        0,
        1,
        1023,
        65535,
        65536,
        65537,
        3 * 65536,
        16 * 65536,
        16 * 65536 + 5,
        17 * 65536,
        33 * 65536,
        48 * 65536 - 1,
    ]
}

fn bytes_of(manifest: &Manifest) -> Vec<u8> {
    let mut bytes = Vec::new();
    manifest.write_to(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_content_id_is_the_plain_hash() {
    for len in sizes() {
        let data = sample(len);
        let manifest = Manifest::from_source(&data, &Task::default()).unwrap();
        assert_eq!(
            manifest.content_id(),
            *blake3::hash(&data).as_bytes(),
            "{len} bytes"
        );
    }
}

#[test]
fn files_come_back_as_they_went() {
    for len in sizes() {
        let manifest = Manifest::from_source(&sample(len), &Task::default()).unwrap();
        let again = Manifest::read_from(&mut bytes_of(&manifest).as_slice()).unwrap();
        assert_eq!(again, manifest);
        assert_eq!(
            again.zero_leaf_count(),
            (0..again.leaf_count())
                .filter(|i| again.is_zero_leaf(*i))
                .count() as u64
        );
    }
}

#[test]
fn leaves_prove_themselves() {
    let data = sample(5 * LEAF_LEN + 100);
    let manifest = Manifest::from_source(&data, &Task::default()).unwrap();
    for (i, leaf) in data.chunks(LEAF_LEN).enumerate() {
        assert!(manifest.verify_leaf(i as u64, leaf));
        let mut wrong = leaf.to_vec();
        wrong[50] ^= 1;
        assert!(!manifest.verify_leaf(i as u64, &wrong));
        assert!(!manifest.verify_leaf(i as u64 + 1, leaf));
    }
    // Leaves 1 and 4 of the six are zero; the last has 100 bytes.
    assert_eq!(manifest.data_size(), 3 * LEAF_SIZE + 100);
}

#[test]
fn data_leaves_are_found_in_order() {
    let manifest = Manifest::from_source(&sample(200 * LEAF_LEN), &Task::default()).unwrap();
    let expected: Vec<u64> = (0..200).filter(|i| i % 3 != 1).collect();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(leaf) = manifest.next_data_leaf(at) {
        found.push(leaf);
        at = leaf + 1;
    }
    assert_eq!(found, expected);
}

#[test]
fn a_changed_image_is_told_by_its_leaf() {
    let mut data = sample(40 * LEAF_LEN);
    let manifest = Manifest::from_source(&data, &Task::default()).unwrap();
    manifest.verify_source(&data, &Task::default()).unwrap();
    data[33 * LEAF_LEN + 17] ^= 4;
    let task = Task {
        threads: 1,
        ..Task::default()
    };
    assert!(matches!(
        manifest.verify_source(&data, &task),
        Err(ManifestError::Leaf { leaf: 33, .. })
    ));
    data.pop();
    assert!(matches!(
        manifest.verify_source(&data, &task),
        Err(ManifestError::Size { .. })
    ));
}

/// An image of zeroes but for some bytes, which knows its holes.
struct Sparse {
    len: u64,
    at: u64,
    data: Vec<u8>,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = self.at + self.data.len() as u64;
        for (at, byte) in (offset..).zip(buf) {
            let is_data = (self.at..end).contains(&at);
            *byte = if is_data {
                self.data[(at - self.at) as usize]
            } else {
                0
            };
        }
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        let end = self.at + self.data.len() as u64;
        let is_ahead = offset < end && !self.data.is_empty();
        Ok(is_ahead.then_some((offset.max(self.at), end)))
    }
}

#[test]
fn holes_of_terabytes_are_neither_read_nor_hashed() {
    let mut image = Sparse {
        len: 6 << 40,
        at: (5 << 40) + (1 << 30),
        data: sample(40 * LEAF_LEN),
    };
    let task = Task::default();
    let manifest = Manifest::from_source(&image, &task).unwrap();
    assert_eq!(manifest.next_data_leaf(0), Some(image.at / LEAF_SIZE));
    manifest.verify_source(&image, &task).unwrap();
    let data = std::mem::take(&mut image.data);
    let verified = manifest.verify_source(&image, &task);
    assert!(matches!(verified, Err(ManifestError::Leaf { .. })));
    image.data = data;
    image.at += LEAF_SIZE;
    let verified = manifest.verify_source(&image, &task);
    assert!(matches!(verified, Err(ManifestError::Leaf { .. })));
}

#[test]
fn an_absurd_header_allocates_nothing() {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"DCMANIF1");
    bytes.extend_from_slice(&1u64.to_le_bytes());
    bytes.extend_from_slice(&MAX_SIZE.to_le_bytes());
    bytes.extend_from_slice(&[0; 32]);
    bytes.extend_from_slice(&leaf_count(MAX_SIZE).to_le_bytes());
    bytes.extend_from_slice(&leaf_count(MAX_SIZE).to_le_bytes());
    assert!(matches!(
        Manifest::read_from(&mut bytes.as_slice()),
        Err(ManifestError::Format(_))
    ));
}

#[test]
fn a_manifest_of_another_version_is_refused_by_its_name_and_number() {
    let mut bytes = bytes_of(&Manifest::from_source(&sample(9), &Task::default()).unwrap());
    bytes[8] += 1;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("later.manifest");
    std::fs::write(&path, bytes).unwrap();
    let message = Manifest::load(&path).unwrap_err().to_string();
    assert!(
        message.starts_with(&format!("{}: version 2 ", path.display())),
        "{message}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_flipped_bit_goes_unseen(len in 0usize..(6 * LEAF_LEN), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = bytes_of(&Manifest::from_source(&sample(len), &Task::default()).unwrap());
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Manifest::read_from(&mut bytes.as_slice()).is_err());
    }

    #[test]
    fn no_cut_goes_unseen(len in 0usize..(6 * LEAF_LEN), at in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&Manifest::from_source(&sample(len), &Task::default()).unwrap());
        prop_assert!(Manifest::read_from(&mut &bytes[..at.index(bytes.len())]).is_err());
    }
}
