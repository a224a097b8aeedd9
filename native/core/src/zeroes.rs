//! Chaining values of subtrees that are all zeroes.
//!
//! A chaining value depends on the place of its bytes, so hashing the holes of a sparse image would cost as much as hashing data.
//! `zeroes.bin` has the values of aligned subtrees of zeroes at each place, as `examples/make_zeroes.rs` computes them: of a hole below 9 TiB, only the
//! edges are hashed.

use std::sync::LazyLock;

use blake3::hazmat::HasherExt;

use crate::hash_tree::{inner, Hash};
use crate::leaf::{LEAF_LEN, LEAF_SIZE};

/// Subtrees of one size: leaves of each, and how many of them are known from the start of an image on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Leaves of a subtree, a power of two.
    pub leaves: u64,
    /// Number of subtrees.
    pub count: u64,
}

/// What the table holds, in this order: 1 MiB up to 8 GiB, 16 MiB up to 256 GiB, 256 MiB up to 4 TiB, 4 GiB up to 9 TiB.
pub const LEVELS: [Level; 4] = [
    Level {
        leaves: 16,
        count: 8192,
    },
    Level {
        leaves: 256,
        count: 16384,
    },
    Level {
        leaves: 4096,
        count: 16384,
    },
    Level {
        leaves: 65_536,
        count: 2304,
    },
];

static TABLE: &[u8] = include_bytes!("zeroes.bin");
static ZEROES: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; LEAF_LEN]);

/// Returns the chaining value of `count` leaves of zeroes from leaf `first` on. `count` is a power of two and divides `first`.
pub fn subtree(first: u64, count: u64) -> Hash {
    if let Some(hash) = known(first, count) {
        return hash;
    }
    if count <= LEVELS[0].leaves {
        return computed(first, count);
    }
    let half = count / 2;
    inner(&subtree(first, half), &subtree(first + half, half))
}

/// Computes the same as `subtree` by hashing.
pub fn computed(first: u64, count: u64) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(first * LEAF_SIZE);
    for _ in 0..count {
        hasher.update(&ZEROES);
    }
    hasher.finalize_non_root()
}

fn known(first: u64, count: u64) -> Option<Hash> {
    let mut start = 0;
    for level in LEVELS {
        if level.leaves == count && first / count < level.count {
            let at = usize::try_from(start + first / count).ok()? * 32;
            return TABLE.get(at..at + 32)?.try_into().ok();
        }
        start += level.count;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_whole() {
        let count: u64 = LEVELS.iter().map(|level| level.count).sum();
        assert_eq!(TABLE.len() as u64, count * 32);
    }

    #[test]
    fn samples_of_the_table_are_what_hashing_gives() {
        for level in &LEVELS[..2] {
            for at in [0, 1, level.count / 3, level.count - 1] {
                let first = at * level.leaves;
                assert_eq!(
                    known(first, level.leaves),
                    Some(computed(first, level.leaves))
                );
            }
        }
        for level in &LEVELS[2..] {
            let first = (level.count - 1) * level.leaves;
            let last = known(first, level.leaves);
            assert_eq!(last, Some(computed(first, level.leaves)));
        }
    }

    #[test]
    fn neighbouring_levels_agree() {
        for pair in LEVELS.windows(2) {
            let end = (pair[0].leaves * pair[0].count / pair[1].leaves).min(pair[1].count);
            for at in 0..end {
                let halves = |size: u64| {
                    let cvs: Vec<Hash> = (0..pair[1].leaves / size)
                        .filter_map(|i| known(at * pair[1].leaves + i * size, size))
                        .collect();
                    crate::hash_tree::merge_inner(&cvs)
                };
                let first = at * pair[1].leaves;
                assert_eq!(known(first, pair[1].leaves), Some(halves(pair[0].leaves)));
            }
        }
    }

    #[test]
    fn what_the_table_lacks_is_hashed() {
        for (first, count) in [(3, 1), (8, 8), (1 << 26, 32), (131_072 + 32, 32)] {
            assert_eq!(subtree(first, count), computed(first, count));
        }
    }
}
