//! The inner nodes of BLAKE3 trees (BLAKE3 paper, section 2.1), whose leaves here are of 64 KiB.

use blake3::hazmat::{merge_subtrees_non_root, merge_subtrees_root, HasherExt, Mode};

use crate::leaf::LEAF_SIZE;

/// A BLAKE3 hash, or the chaining value of a subtree.
pub type Hash = [u8; 32];

/// Returns the chaining value of leaf `index` with the bytes `data` (1 to `LEAF_SIZE` of them). It depends on the index.
pub fn leaf_hash(index: u64, data: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(index * LEAF_SIZE);
    hasher.update(data);
    hasher.finalize_non_root()
}

/// Returns the chaining value above two subtrees.
pub fn inner(left: &Hash, right: &Hash) -> Hash {
    merge_subtrees_non_root(left, right, Mode::Hash)
}

/// Returns the hash of the whole, above two subtrees.
pub fn root(left: &Hash, right: &Hash) -> Hash {
    *merge_subtrees_root(left, right, Mode::Hash).as_bytes()
}

/// Merges chaining values of neighbouring subtrees of equal size (the last may be smaller) into one, as an inner node.
pub fn merge_inner(cvs: &[Hash]) -> Hash {
    match cvs {
        [] => [0; 32],
        [one] => *one,
        _ => {
            let (left, right) = cvs.split_at(left_count(cvs.len() as u64) as usize);
            inner(&merge_inner(left), &merge_inner(right))
        }
    }
}

/// Does the same as `merge_inner` for two or more values, as the root.
pub fn merge_root(cvs: &[Hash]) -> Hash {
    let (left, right) = cvs.split_at(left_count(cvs.len() as u64) as usize);
    root(&merge_inner(left), &merge_inner(right))
}

/// Returns the largest power of two that is less than `count` (for `count` of two or more).
pub fn left_count(count: u64) -> u64 {
    1 << (u64::BITS - 1 - (count - 1).leading_zeros())
}
