//! Leaves that images have in common, beside a search that looks at each of them.
#![allow(missing_docs, clippy::unwrap_used)]

#[allow(dead_code)]
mod images;

use std::collections::HashMap;

use proptest::prelude::*;

use diffcache_core::content_index::{ContentIndex, Share};
use diffcache_core::manifest::{Builder, Hash, LeafHash, Manifest, LEAF_LEN};
use diffcache_core::task::Task;
use images::noise;

/// The manifest of an image whose leaves are given by number: 0 is zeroes.
fn manifest(leaves: &[u8]) -> Manifest {
    let size = (leaves.len() * LEAF_LEN) as u64;
    let mut builder = Builder::new(size);
    let hash = |leaf: &u8, place: u64| match leaf {
        0 => LeafHash::Zero,
        // A hash of what and where, as a chaining value is.
        leaf => {
            LeafHash::Data(*blake3::hash(&[&[*leaf][..], &place.to_le_bytes()].concat()).as_bytes())
        }
    };
    let hashes: Vec<LeafHash> = leaves
        .iter()
        .zip(0..)
        .map(|(leaf, place)| hash(leaf, place))
        .collect();
    builder.add(0, &hashes);
    builder.finish(&Task::default()).unwrap()
}

fn image() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0u8..4, 2..80)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares with looking at each leaf of each image.
    #[test]
    fn what_is_found_is_what_others_have(others in prop::collection::vec(image(), 0..6), target in image(), skipped in 0u64..3) {
        let mut index = ContentIndex::default();
        let mut held: HashMap<Hash, Vec<u8>> = HashMap::new();
        for other in &others {
            prop_assert!(index.add(&manifest(other)));
            held.insert(manifest(other).content_id(), other.clone());
        }
        let wants = |leaf: u64| leaf % 3 != skipped;
        let whole = manifest(&target);
        held.remove(&whole.content_id());
        let mut found = vec![0; target.len()];
        for share in index.shared(&whole, wants) {
            let other = &held[&share.image];
            for leaf in share.leaves.into_iter().flatten() {
                prop_assert_eq!(other.get(leaf as usize), target.get(leaf as usize));
                found[leaf as usize] += 1;
            }
        }
        for (place, leaf) in target.iter().enumerate() {
            let there = held.values().any(|other| other.get(place) == Some(leaf));
            let expected = *leaf != 0 && wants(place as u64) && there;
            prop_assert_eq!(found[place], u8::from(expected), "leaf {}", place);
        }
    }
}

#[test]
fn the_image_with_the_most_comes_first() {
    let mut index = ContentIndex::default();
    let (few, most) = (manifest(&[1, 1, 2, 2, 2, 1]), manifest(&[2, 1, 1, 1, 2, 1]));
    index.add(&few);
    index.add(&most);
    let shares = index.shared(&manifest(&[1, 1, 1, 1, 0, 1]), |_| true);
    let first = 0..1;
    let expected = [
        Share {
            image: most.content_id(),
            leaves: vec![1..4, 5..6],
        },
        Share {
            image: few.content_id(),
            leaves: vec![first],
        },
    ];
    assert_eq!(shares, expected);
}

#[test]
fn what_is_removed_is_not_found() {
    let mut index = ContentIndex::default();
    let (one, two) = (manifest(&[1, 2]), manifest(&[1, 3]));
    index.add(&one);
    index.add(&two);
    index.retain(|image| *image == two.content_id());
    assert!(index.contains(&two.content_id()) && !index.contains(&one.content_id()));
    assert_eq!(index.len(), 1);
    assert!(index.shared(&manifest(&[9, 2]), |_| true).is_empty());
}

#[test]
fn real_leaves_are_found_at_their_places_alone() {
    let task = Task::default();
    let bytes = noise(7, 5 * LEAF_LEN + 100);
    let mut index = ContentIndex::default();
    index.add(&Manifest::from_source(&&bytes[..], &task).unwrap());
    let mut longer = bytes[..5 * LEAF_LEN].to_vec();
    longer.extend(noise(8, LEAF_LEN));
    let shares = index.shared(&Manifest::from_source(&&longer[..], &task).unwrap(), |_| {
        true
    });
    let alike = 0..5;
    assert_eq!(shares[0].leaves, [alike]);
    let moved = &bytes[LEAF_LEN..];
    assert!(index
        .shared(&Manifest::from_source(&moved, &task).unwrap(), |_| true)
        .is_empty());
    // A single leaf has no chaining value.
    assert!(index
        .shared(&Manifest::of_single_leaf(&bytes[..LEAF_LEN]), |_| true)
        .is_empty());
}
