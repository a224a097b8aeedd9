//! Building manifests leaf by leaf.

use super::{ranks, LeafHash, Manifest, ManifestError, MAX_SIZE};
use crate::hash_tree::Hash;
use crate::leaf::leaf_count;
use crate::task::Task;

/// Builds a manifest from leaves that are added in order; the others are zero.
pub struct Builder {
    size: u64,
    marks: Vec<u64>,
    cvs: Vec<Hash>,
}

impl Builder {
    /// Starts the manifest of an image of `size` bytes, at most `MAX_SIZE`.
    pub fn new(size: u64) -> Builder {
        Builder {
            size,
            marks: vec![0; leaf_count(size.min(MAX_SIZE)).div_ceil(64) as usize],
            cvs: Vec::new(),
        }
    }

    /// Adds leaves from number `first` on, which comes after all those before. Leaves past the end of the image are ignored.
    pub fn add(&mut self, first: u64, leaves: &[LeafHash]) {
        for (leaf, hash) in (first..leaf_count(self.size)).zip(leaves) {
            if let LeafHash::Data(cv) = hash {
                self.marks[(leaf / 64) as usize] |= 1 << (leaf % 64);
                self.cvs.push(*cv);
            }
        }
    }

    /// Returns the manifest.
    ///
    /// # Errors
    /// `Format` if the image is a single leaf, whose content id does not follow from its leaves, or too large; `Cancelled`.
    pub fn finish(self, task: &Task<'_>) -> Result<Manifest, ManifestError> {
        if leaf_count(self.size) == 1 || self.size > MAX_SIZE {
            return Err(ManifestError::Format(format!(
                "an image of {} bytes cannot be built from its leaves",
                self.size
            )));
        }
        let mut manifest = Manifest {
            size: self.size,
            root: [0; 32],
            ranks: ranks(&self.marks),
            marks: self.marks,
            cvs: self.cvs,
        };
        manifest.root = manifest.merge(task)?;
        Ok(manifest)
    }
}

impl Manifest {
    /// Builds a manifest from what is known of every leaf, in order.
    ///
    /// An image of a single leaf is its content id; use `of_single_leaf` for it.
    ///
    /// # Errors
    /// `Format` if the number of leaves does not fit the size, or is one; `Cancelled`.
    pub fn from_leaves(
        size: u64,
        leaves: impl Iterator<Item = LeafHash>,
        task: &Task<'_>,
    ) -> Result<Manifest, ManifestError> {
        let count = leaf_count(size);
        if count == 1 || size > MAX_SIZE {
            return Err(ManifestError::Format(format!(
                "an image of {size} bytes cannot be built from its leaves"
            )));
        }
        let mut builder = Builder::new(size);
        let mut seen = 0u64;
        for leaf in leaves {
            if let (LeafHash::Data(_), true) = (leaf, seen < count) {
                builder.add(seen, &[leaf]);
            }
            seen += 1;
        }
        if seen != count {
            return Err(ManifestError::Format(format!(
                "{seen} leaves were given for an image of {count}"
            )));
        }
        builder.finish(task)
    }
}
