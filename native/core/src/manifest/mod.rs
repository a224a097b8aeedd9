//! Manifests: the BLAKE3 subtree hashes of an image's 64 KiB leaves.
//!
//! BLAKE3 is a tree (BLAKE3 paper, section 2.1): the chaining values of aligned 64 KiB subtrees merge to the hash of the whole, so the list of them
//! is verified by the image's content id, which is what `b3sum` prints, and each leaf of an image by the list. A leaf that is all zeroes is kept as a
//! mark; its chaining value, which depends on its place, comes from [`crate::zeroes`] when it is needed.

use diffcache_base::hex;

mod builder;
mod error;
mod file;
mod images;
#[cfg(test)]
mod tests;

use crate::task::{for_each_piece, Task};
use crate::{hash_tree, zeroes};

pub use builder::Builder;
pub use error::ManifestError;

pub use crate::hash_tree::{leaf_hash, Hash};
pub use crate::leaf::{is_zero, leaf_count, leaf_len, LEAF_LEN, LEAF_SIZE};

/// Leaves merged by one piece of work: 4 GiB, the largest subtree of zeroes that is known.
const GROUP_LEAVES: u64 = 65_536;
/// 2^48 bytes: larger images are refused, and so are files that claim them.
pub const MAX_SIZE: u64 = 1 << 48;

static ZEROES: [u8; LEAF_LEN] = [0; LEAF_LEN];

/// What a manifest says of one leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeafHash {
    /// All bytes are zero.
    Zero,
    /// The chaining value of the leaf's subtree, at the leaf's place.
    Data(Hash),
}

/// The leaves of one image: which are zero, and the chaining values of the others.
///
/// Memory: 1 bit and 1/16 byte per leaf, and 32 bytes per leaf that is not zero.
#[derive(Clone, PartialEq, Eq)]
pub struct Manifest {
    size: u64,
    root: Hash,
    /// One bit per leaf, 1 = not zero.
    marks: Vec<u64>,
    /// For each word of `marks`, the number of leaves that are not zero before it.
    ranks: Vec<u32>,
    /// Chaining values of the leaves that are not zero, in order; empty for an image of a single leaf.
    cvs: Vec<Hash>,
}

impl std::fmt::Debug for Manifest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manifest")
            .field("content_id", &hex::encode(&self.root))
            .field("size", &self.size)
            .finish_non_exhaustive()
    }
}

impl Manifest {
    /// Returns the manifest of an image of at most `LEAF_SIZE` bytes.
    pub fn of_single_leaf(data: &[u8]) -> Manifest {
        let root = *blake3::hash(data).as_bytes();
        let marks = match data.len() {
            0 => vec![],
            _ => vec![u64::from(!is_zero(data))],
        };
        Manifest {
            size: data.len() as u64,
            root,
            ranks: ranks(&marks),
            marks,
            cvs: Vec::new(),
        }
    }

    /// Returns the manifest of an image of at most `LEAF_SIZE` bytes of which only the hash is known.
    ///
    /// # Errors
    /// `Format` if such an image has more than one leaf.
    pub fn of_hash(size: u64, root: Hash) -> Result<Manifest, ManifestError> {
        let zeroes = usize::try_from(size).ok().and_then(|len| ZEROES.get(..len));
        let zeroes = zeroes.ok_or_else(|| {
            ManifestError::Format(format!("an image of {size} bytes is more than its hash"))
        })?;
        let manifest = Manifest::of_single_leaf(zeroes);
        if manifest.root == root {
            return Ok(manifest);
        }
        let marks = vec![1; leaf_count(size) as usize];
        Ok(Manifest {
            size,
            root,
            ranks: ranks(&marks),
            marks,
            cvs: Vec::new(),
        })
    }

    /// Returns the hash of the image: exactly what `b3sum` prints, as bytes.
    pub fn content_id(&self) -> Hash {
        self.root
    }

    /// Returns the content id as 64 hex digits.
    pub fn content_id_hex(&self) -> String {
        hex::encode(&self.root)
    }

    /// Returns the size of the image in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns the number of leaves: `size / LEAF_SIZE`, rounded up.
    pub fn leaf_count(&self) -> u64 {
        leaf_count(self.size)
    }

    /// Returns the number of leaves that are all zeroes.
    pub fn zero_leaf_count(&self) -> u64 {
        self.leaf_count()
            - self
                .marks
                .iter()
                .map(|word| u64::from(word.count_ones()))
                .sum::<u64>()
    }

    /// Returns the size of the leaves that are not all zeroes: what the image takes at least, stored sparsely by leaves.
    pub fn data_size(&self) -> u64 {
        let count = self.leaf_count();
        let mut bytes = (count - self.zero_leaf_count()) * LEAF_SIZE;
        if count > 0 && !self.is_zero_leaf(count - 1) {
            bytes -= LEAF_SIZE - leaf_len(self.size, count - 1) as u64;
        }
        bytes
    }

    /// Returns whether leaf `index` is all zeroes; so is everything past the end.
    pub fn is_zero_leaf(&self, index: u64) -> bool {
        let word = usize::try_from(index / 64)
            .ok()
            .and_then(|word| self.marks.get(word));
        word.is_none_or(|word| word >> (index % 64) & 1 == 0)
    }

    /// Returns the first index of a leaf that is not zero, at or after `index`.
    pub fn next_data_leaf(&self, index: u64) -> Option<u64> {
        let first = usize::try_from(index / 64).ok()?;
        let masked = self.marks.get(first)? & (u64::MAX << (index % 64));
        if masked != 0 {
            return Some(first as u64 * 64 + u64::from(masked.trailing_zeros()));
        }
        let word = self
            .marks
            .get(first + 1..)?
            .iter()
            .position(|word| *word != 0)?
            + first
            + 1;
        Some(word as u64 * 64 + u64::from(self.marks[word].trailing_zeros()))
    }

    /// Returns what is known of leaf `index`; `None` past the end, and for the leaf of an image of a single leaf if it is not zero.
    pub fn leaf(&self, index: u64) -> Option<LeafHash> {
        if index >= self.leaf_count() {
            return None;
        }
        if self.is_zero_leaf(index) {
            return Some(LeafHash::Zero);
        }
        let word = usize::try_from(index / 64).ok()?;
        let before = self.marks.get(word)? & ((1u64 << (index % 64)) - 1);
        let rank = *self.ranks.get(word)? as usize + before.count_ones() as usize;
        self.cvs.get(rank).map(|cv| LeafHash::Data(*cv))
    }

    /// Returns whether `data` are the bytes of leaf `index`.
    pub fn verify_leaf(&self, index: u64, data: &[u8]) -> bool {
        if index >= self.leaf_count() || data.len() != leaf_len(self.size, index) {
            return false;
        }
        match self.leaf(index) {
            Some(LeafHash::Zero) => is_zero(data),
            Some(LeafHash::Data(cv)) => leaf_hash(index, data) == cv,
            None => *blake3::hash(data).as_bytes() == self.root,
        }
    }

    /// Merges all leaves to the root.
    fn merge(&self, task: &Task<'_>) -> Result<Hash, ManifestError> {
        let count = self.leaf_count();
        if count == 0 {
            return Ok(*blake3::hash(&[]).as_bytes());
        }
        if count <= GROUP_LEAVES {
            let left = hash_tree::left_count(count);
            return Ok(hash_tree::root(
                &self.node(0, left),
                &self.node(left, count - left),
            ));
        }
        let groups = for_each_piece(task, count.div_ceil(GROUP_LEAVES), |group| {
            let first = group * GROUP_LEAVES;
            Ok::<_, ManifestError>(self.node(first, GROUP_LEAVES.min(count - first)))
        })?;
        Ok(hash_tree::merge_root(&groups))
    }

    /// Returns the chaining value of `count` leaves from `first` on: a subtree of an image of more leaves than those.
    pub fn subtree(&self, first: u64, count: u64) -> Hash {
        self.node(first, count)
    }

    /// Does that. Subtrees of zeroes are not descended into.
    fn node(&self, first: u64, count: u64) -> Hash {
        let full = (first + count) * LEAF_SIZE <= self.size;
        let any = self
            .next_data_leaf(first)
            .is_some_and(|leaf| leaf < first + count);
        if !any && full && count.is_power_of_two() {
            return zeroes::subtree(first, count);
        }
        if count == 1 {
            return match self.leaf(first) {
                Some(LeafHash::Data(cv)) => cv,
                _ => leaf_hash(first, &ZEROES[..leaf_len(self.size, first)]),
            };
        }
        let left = hash_tree::left_count(count);
        hash_tree::inner(
            &self.node(first, left),
            &self.node(first + left, count - left),
        )
    }
}

/// Creates one for each word, the number of ones in the words before.
fn ranks(marks: &[u64]) -> Vec<u32> {
    let mut before = 0u32;
    let rank = |word: &u64| {
        let here = before;
        before += word.count_ones();
        here
    };
    marks.iter().map(rank).collect()
}
