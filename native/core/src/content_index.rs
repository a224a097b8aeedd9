//! Which leaves of an image other images have at the same place.
//!
//! A leaf's chaining value depends on its place (see [`crate::manifest`]), so that what is found is at the same offset. The index keeps four bytes of
//! each leaf that is not zero. They only say where to look: a leaf of another image has to be compared with the manifest of the target.

use std::ops::Range;

use crate::hash_tree::Hash;
use crate::manifest::{LeafHash, Manifest};

/// Leaves that are indexed at most: 256 GiB of data, for which 16 MiB of memory are used.
pub const MOST_LEAVES: usize = 1 << 22;
/// Images from which one is taken at most: each is an open file, and the first has the most.
const MOST_SOURCES: usize = 16;

/// What an image shares with another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// Content ID of the other image.
    pub image: Hash,
    /// Leaves that it probably has as well, in order.
    pub leaves: Vec<Range<u64>>,
}

/// Neighbouring leaves that are not zero.
#[derive(Clone, Copy)]
struct Run {
    /// Number of the first one.
    first: u64,
    /// Place of its mark.
    at: usize,
}

/// An image as it is indexed.
struct Indexed {
    image: Hash,
    runs: Vec<Run>,
    marks: Vec<u32>,
}

impl Indexed {
    fn new(manifest: &Manifest) -> Indexed {
        let (mut runs, mut marks): (Vec<Run>, Vec<u32>) = (Vec::new(), Vec::new());
        let mut next = None;
        for (leaf, mark) in data_leaves(manifest, 0..manifest.leaf_count()) {
            if next != Some(leaf) {
                let at = marks.len();
                runs.push(Run { first: leaf, at });
            }
            marks.push(mark);
            next = Some(leaf + 1);
        }
        marks.shrink_to_fit();
        runs.shrink_to_fit();
        Indexed {
            image: manifest.content_id(),
            runs,
            marks,
        }
    }

    /// Numbers and marks of its leaves, in order.
    fn leaves(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let ends = self.runs.iter().skip(1).map(|run| run.at);
        let ends = ends.chain([self.marks.len()]);
        self.runs.iter().zip(ends).flat_map(|(run, end)| {
            let marks = self.marks.get(run.at..end).unwrap_or_default();
            (run.first..).zip(marks.iter().copied())
        })
    }

    /// Those of the wanted leaves, given in order, that it has with the same mark.
    fn common<'a>(&'a self, wanted: &'a [(u64, u32)]) -> impl Iterator<Item = (u64, u32)> + 'a {
        let mut rest = wanted;
        self.leaves().filter(move |(leaf, mark)| {
            let before = match rest.first() {
                Some((first, _)) if first < leaf => rest.partition_point(|(one, _)| one < leaf),
                _ => 0,
            };
            rest = &rest[before..];
            rest.first() == Some(&(*leaf, *mark))
        })
    }
}

/// Index of the leaves of images, by their manifests.
#[derive(Default)]
pub struct ContentIndex {
    images: Vec<Indexed>,
    leaves: usize,
}

impl ContentIndex {
    /// Returns whether an image is in it.
    pub fn contains(&self, image: &Hash) -> bool {
        self.images.iter().any(|one| one.image == *image)
    }

    /// Returns the number of images in it.
    pub fn len(&self) -> usize {
        self.images.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.images.is_empty()
    }

    /// Adds an image; false if it would be too many leaves.
    pub fn add(&mut self, manifest: &Manifest) -> bool {
        if self.contains(&manifest.content_id()) {
            return true;
        }
        let leaves = (manifest.leaf_count() - manifest.zero_leaf_count()) as usize;
        if self.leaves.saturating_add(leaves) > MOST_LEAVES {
            return false;
        }
        self.leaves += leaves;
        self.images.push(Indexed::new(manifest));
        true
    }

    /// Removes the images for which `stays` is false.
    pub fn retain(&mut self, stays: impl Fn(&Hash) -> bool) {
        self.images.retain(|one| stays(&one.image));
        self.leaves = self.images.iter().map(|one| one.marks.len()).sum();
    }

    /// Finds the leaves of `target` that other images have, among those for which `wants` is true: the image with the most comes first, and no leaf
    /// twice.
    pub fn shared(&self, target: &Manifest, wants: impl Fn(u64) -> bool) -> Vec<Share> {
        let mut wanted: Vec<(u64, u32)> = data_leaves(target, 0..target.leaf_count())
            .filter(|(leaf, _)| wants(*leaf))
            .collect();
        let others = self
            .images
            .iter()
            .filter(|one| one.image != target.content_id());
        let mut ranked: Vec<(usize, &Indexed)> = others
            .map(|one| (one.common(&wanted).count(), one))
            .filter(|(count, _)| *count > 0)
            .collect();
        ranked.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let mut shares = Vec::new();
        for (_, one) in ranked {
            if wanted.is_empty() || shares.len() == MOST_SOURCES {
                break;
            }
            let found: Vec<(u64, u32)> = one.common(&wanted).collect();
            if found.is_empty() {
                continue;
            }
            let mut taken = found.iter().peekable();
            wanted.retain(|leaf| taken.next_if_eq(&leaf).is_none());
            shares.push(Share {
                image: one.image,
                leaves: join(found.iter().map(|(leaf, _)| *leaf)),
            });
        }
        shares
    }
}

/// Numbers of an image's leaves that are not zero, with the first bytes of their chaining values; none of an image of a single leaf.
fn data_leaves(manifest: &Manifest, within: Range<u64>) -> impl Iterator<Item = (u64, u32)> + '_ {
    let next = |leaf: u64| manifest.next_data_leaf(leaf);
    let first = next(within.start);
    std::iter::successors(first, move |leaf| next(leaf + 1))
        .take_while(move |leaf| *leaf < within.end)
        .filter_map(|leaf| match manifest.leaf(leaf) {
            Some(LeafHash::Data([a, b, c, d, ..])) => {
                Some((leaf, u32::from_le_bytes([a, b, c, d])))
            }
            _ => None,
        })
}

/// Joins numbers in order to ranges of neighbours.
fn join(numbers: impl Iterator<Item = u64>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some(last) if last.end == number => last.end += 1,
            _ => ranges.push(number..number + 1),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;
    use crate::manifest::LEAF_LEN;
    use crate::task::Task;

    #[test]
    fn leaves_beyond_the_bound_are_left_out() {
        let image = noise(1, 3 * LEAF_LEN);
        let manifest = Manifest::from_source(&image, &Task::default()).unwrap();
        let mut index = ContentIndex {
            images: Vec::new(),
            leaves: MOST_LEAVES - 2,
        };
        assert!(!index.add(&manifest));
        assert!(index.is_empty());
        index.leaves = MOST_LEAVES - 3;
        assert!(index.add(&manifest));
        index.retain(|_| false);
        assert_eq!((index.len(), index.leaves), (0, 0));
    }
}
