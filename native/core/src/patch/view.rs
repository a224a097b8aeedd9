//! Random access to a target without building it.

use diffcache_base::hex;

use super::apply::target_leaf_len;
use super::format::LEAF_BLOCKS;
use super::frame_cache::FrameCache;
use super::reader::PatchFile;
use super::runs::{within, Src, BLOCK};
use super::PatchError;
use crate::manifest::{is_zero, leaf_hash, Manifest, LEAF_SIZE};
use crate::source::{ReadAt, SourceError};

/// The target of a patch, read through base and patch. With the target's manifest every leaf read is verified; without it, only the leaves
/// that differ from the base's are, and the others are the base's at the same place.
pub struct PatchView<B, P> {
    base: B,
    patch: PatchFile<P>,
    manifest: Option<Manifest>,
    cache: FrameCache,
}

impl<B: ReadAt, P: ReadAt> PatchView<B, P> {
    /// Opens a view; reads the ends of the patch, nothing of the base.
    ///
    /// # Errors
    /// `BaseMismatch` if the base's size is wrong, `TargetMismatch` if the manifest is of another image, `Format`, `Corrupt`, `Source`.
    pub fn open(
        base: B,
        patch: P,
        manifest: Option<Manifest>,
    ) -> Result<PatchView<B, P>, PatchError> {
        let patch = PatchFile::open(patch)?;
        patch.check_base_size(&base)?;
        if let Some(manifest) = &manifest {
            if manifest.content_id() != patch.header().target_hash {
                let made = hex::encode(&patch.header().target_hash);
                return Err(PatchError::TargetMismatch {
                    patch: made,
                    wanted: manifest.content_id_hex(),
                });
            }
        }
        Ok(PatchView {
            base,
            patch,
            manifest,
            cache: FrameCache::default(),
        })
    }

    /// Returns the patch that is read through.
    pub fn patch(&self) -> &PatchFile<P> {
        &self.patch
    }

    /// Reads a range of the target; reads nothing of base or patch that the touched leaves do not need.
    ///
    /// # Errors
    /// `Leaf` if what was read is not what a hash promises, `Corrupt`, `Source`; `Source` of kind `PastEnd` outside the target.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> Result<(), PatchError> {
        let size = self.patch.header().target_size;
        let end = offset
            .checked_add(buf.len() as u64)
            .filter(|end| *end <= size);
        let Some(end) = end else {
            let end = offset.saturating_add(buf.len() as u64);
            return Err(SourceError::PastEnd {
                name: "target of the patch".to_owned(),
                len: size,
                end,
            }
            .into());
        };
        if buf.is_empty() {
            return Ok(());
        }
        // Whole leaves only, since only whole leaves can be verified; a few megabytes at a time bound the memory.
        let mut leaf = offset / LEAF_SIZE;
        while leaf * LEAF_SIZE < end {
            let until = (leaf + 64).min(end.div_ceil(LEAF_SIZE));
            let start = leaf * LEAF_SIZE;
            let data = self.leaves(leaf, until)?;
            let (from, to) = (offset.max(start), end.min(start + data.len() as u64));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&data[(from - start) as usize..(to - start) as usize]);
            leaf = until;
        }
        Ok(())
    }

    fn leaves(&self, first: u64, end: u64) -> Result<Vec<u8>, PatchError> {
        let size = self.patch.header().target_size;
        let mut data = vec![0; ((end * LEAF_SIZE).min(size) - first * LEAF_SIZE) as usize];
        self.patch.rebuild(
            &self.base,
            first as u32 * LEAF_BLOCKS,
            &mut data,
            &self.cache,
        )?;
        let mut rest = data.as_slice();
        for leaf in first..end {
            let (this, others) = rest.split_at(target_leaf_len(&self.patch, leaf));
            self.check(leaf, this)?;
            rest = others;
        }
        Ok(data)
    }

    fn check(&self, leaf: u64, data: &[u8]) -> Result<(), PatchError> {
        let right = match (&self.manifest, self.patch.changed_hash(leaf)) {
            (Some(manifest), _) => manifest.verify_leaf(leaf, data),
            (None, Some(hash)) => leaf_hash(leaf, data) == hash,
            (None, None) if self.patch.header().target_size <= LEAF_SIZE => {
                *blake3::hash(data).as_bytes() == self.patch.header().target_hash
            }
            (None, None) => !self.patch.is_zero_leaf(leaf) || is_zero(data),
        };
        match right {
            true => Ok(()),
            false => Err(PatchError::Leaf {
                leaf,
                target: hex::encode(&self.patch.header().target_hash),
            }),
        }
    }
}

impl<B: ReadAt, P: ReadAt> ReadAt for PatchView<B, P> {
    fn len(&self) -> u64 {
        self.patch.header().target_size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.read(buf, offset).map_err(|error| match error {
            PatchError::Source(error) => error,
            error => SourceError::Corrupt {
                name: "target of the patch".to_owned(),
                reason: error.to_string(),
            },
        })
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        let size = self.len();
        if offset >= size {
            return Ok(None);
        }
        let block = (offset / BLOCK) as u32;
        let data = within(self.patch.runs(), block, u32::MAX).find(|run| run.src != Src::Zero);
        Ok(data.map(|run| {
            (
                (u64::from(run.start) * BLOCK).max(offset),
                (u64::from(run.end()) * BLOCK).min(size),
            )
        }))
    }
}
