//! Rebuilding a target, in pieces and in parallel.

use super::format::LEAF_BLOCKS;
use super::frame_cache::FrameCache;
use super::reader::PatchFile;
use super::runs::{within, Src, BLOCK_LEN};
use super::PatchError;
use crate::manifest::{
    is_zero, leaf_count, leaf_hash, Builder, LeafHash, Manifest, LEAF_LEN, LEAF_SIZE,
};
use crate::source::ReadAt;
use crate::task::{for_each_piece_with, Meter, Task};

/// Leaves per piece of work: 4 MiB, so that remote reads are large, and most frames are in one piece.
pub(super) const PIECE_LEAVES: u64 = 64;

/// Leaves that are built, hashed and passed on at a time: 256 KiB, which stay in a core's own cache.
pub(super) const STEP_LEAVES: u64 = 4;

/// The same in blocks.
pub(super) const STEP_BLOCKS: u32 = STEP_LEAVES as u32 * LEAF_BLOCKS;

/// Returns the leaves in the bytes from leaf `first` on, by index.
pub(super) fn leaves_of(first: u64, buf: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    (first..).zip(buf.chunks(LEAF_LEN))
}

/// Groups leaves in order into stretches of neighbours (first, number), each of at most `STEP_LEAVES`.
pub(super) fn stretches(leaves: &[u32]) -> impl Iterator<Item = (u64, u64)> + '_ {
    leaves
        .chunk_by(|a, b| a + 1 == *b)
        .flat_map(|neighbours| neighbours.chunks(STEP_LEAVES as usize))
        .map(|step| (u64::from(step[0]), step.len() as u64))
}

/// A pass over a target.
pub(super) struct Build<'a, P> {
    pub patch: &'a PatchFile<P>,
    pub base: &'a dyn ReadAt,
    pub meter: Meter<'a>,
}

/// Buffers of one thread.
#[derive(Default)]
struct Buffers {
    buf: Vec<u8>,
    cache: FrameCache,
}

/// A built piece.
struct Built {
    /// Its leaves; none if all of it is zero.
    leaves: Vec<LeafHash>,
    written: u64,
    /// The manifest of an image of a single leaf, which does not follow from leaves.
    single: Option<Box<Manifest>>,
}

impl<P: ReadAt> Build<'_, P> {
    /// Returns the bytes of the `index`-th stretch of `leaves` leaves.
    pub fn len(&self, index: u64, leaves: u64) -> usize {
        let start = index * leaves * LEAF_SIZE;
        let rest = self.patch.header().target_size.saturating_sub(start);
        rest.min(leaves * LEAF_SIZE) as usize
    }

    /// Rebuilds the `len` bytes from leaf `first` on into `buf`; false, without a change, if all of them are zero.
    pub fn read(
        &self,
        first: u64,
        len: usize,
        buf: &mut Vec<u8>,
        cache: &FrameCache,
    ) -> Result<bool, PatchError> {
        let start = first as u32 * LEAF_BLOCKS;
        let end = start + len.div_ceil(BLOCK_LEN) as u32;
        let mut runs = within(self.patch.runs(), start, end);
        if runs.all(|run| run.src == Src::Zero) {
            return Ok(false);
        }
        buf.resize(len, 0);
        self.patch.rebuild(self.base, start, buf, cache)?;
        Ok(true)
    }

    /// Rebuilds everything, passing each step of `STEP_BLOCKS` to `consume` (first block; bytes, none if all of them are zero), which returns the
    /// bytes that it wrote.
    pub fn run<F>(&self, task: &Task<'_>, consume: F) -> Result<(Manifest, u64), PatchError>
    where
        F: Fn(u32, &[u8]) -> Result<u64, PatchError> + Sync,
    {
        let size = self.patch.header().target_size;
        let pieces = leaf_count(size).div_ceil(PIECE_LEAVES);
        let parts = for_each_piece_with(task, pieces, Buffers::default, |buffers, piece| {
            self.piece(piece, buffers, &consume)
        })?;
        let written = parts.iter().map(|built| built.written).sum();
        let single = parts.first().and_then(|built| built.single.clone());
        let manifest = match single {
            Some(manifest) => *manifest,
            None => {
                let mut builder = Builder::new(size);
                for (built, piece) in parts.iter().zip(0u64..) {
                    builder.add(piece * PIECE_LEAVES, &built.leaves);
                }
                builder.finish(&task.silent())?
            }
        };
        if manifest.content_id() != self.patch.header().target_hash {
            return Err(self.patch.base_mismatch(
                "what it gives together with the patch is not the target".to_owned(),
            ));
        }
        Ok((manifest, written))
    }

    /// Rebuilds the leaves given in order, and compares them with the target's manifest; passes stretches of neighbours to `consume` as `run` does.
    /// Returns the bytes that it wrote.
    pub fn run_changes<F>(
        &self,
        leaves: &[u32],
        target: &Manifest,
        task: &Task<'_>,
        consume: F,
    ) -> Result<u64, PatchError>
    where
        F: Fn(u32, &[u8]) -> Result<u64, PatchError> + Sync,
    {
        let piece = |leaf: &u32| u64::from(*leaf) / PIECE_LEAVES;
        let pieces: Vec<&[u32]> = leaves.chunk_by(|a, b| piece(a) == piece(b)).collect();
        let written = for_each_piece_with(
            task,
            pieces.len() as u64,
            Buffers::default,
            |buffers, index| {
                let mut written = 0;
                for stretch in stretches(pieces[index as usize]) {
                    self.changed(stretch, target, buffers)?;
                    written += consume(stretch.0 as u32 * LEAF_BLOCKS, &buffers.buf)?;
                    self.meter.add(buffers.buf.len() as u64);
                }
                Ok::<_, PatchError>(written)
            },
        )?;
        Ok(written.iter().sum())
    }

    /// Rebuilds a stretch of leaves (first, number) and compares them with the target's manifest.
    fn changed(
        &self,
        (first, count): (u64, u64),
        target: &Manifest,
        buffers: &mut Buffers,
    ) -> Result<(), PatchError> {
        let end = ((first + count) * LEAF_SIZE).min(target.size());
        let len = (end - first * LEAF_SIZE) as usize;
        if !self.read(first, len, &mut buffers.buf, &buffers.cache)? {
            buffers.buf.clear();
            buffers.buf.resize(len, 0);
        }
        match leaves_of(first, &buffers.buf).find(|(leaf, data)| !target.verify_leaf(*leaf, data)) {
            Some((leaf, _)) => Err(self.wrong_leaf(leaf)),
            None => Ok(()),
        }
    }

    fn wrong_leaf(&self, leaf: u64) -> PatchError {
        self.patch
            .base_mismatch(format!("leaf {leaf} of the target comes out wrong"))
    }

    /// Rebuilds a piece step by step.
    fn piece<F>(&self, piece: u64, buffers: &mut Buffers, consume: &F) -> Result<Built, PatchError>
    where
        F: Fn(u32, &[u8]) -> Result<u64, PatchError>,
    {
        let mut built = Built {
            leaves: Vec::new(),
            written: 0,
            single: None,
        };
        for step in piece * (PIECE_LEAVES / STEP_LEAVES)..(piece + 1) * (PIECE_LEAVES / STEP_LEAVES)
        {
            let len = self.len(step, STEP_LEAVES);
            if len == 0 {
                break;
            }
            let first = step * STEP_LEAVES;
            let filled = self.read(first, len, &mut buffers.buf, &buffers.cache)?;
            if !filled {
                buffers.buf.clear();
            }
            let hashes = self.hash_leaves(first, &buffers.buf)?;
            built.leaves.extend(hashes);
            built.leaves.resize(
                (first - piece * PIECE_LEAVES) as usize + leaf_count(len as u64) as usize,
                LeafHash::Zero,
            );
            built.written += consume(first as u32 * LEAF_BLOCKS, &buffers.buf)?;
            self.meter.add(len as u64);
        }
        if leaf_count(self.patch.header().target_size) == 1 {
            buffers.buf.resize(self.len(0, 1), 0);
            built.single = Some(Box::new(Manifest::of_single_leaf(&buffers.buf)));
        }
        if built.leaves.iter().all(|leaf| *leaf == LeafHash::Zero) {
            built.leaves = Vec::new();
        }
        Ok(built)
    }

    /// Hashes the leaves from number `first` on; those that the patch carries hashes of are compared at once.
    fn hash_leaves(&self, first: u64, buf: &[u8]) -> Result<Vec<LeafHash>, PatchError> {
        let mut leaves = Vec::with_capacity(STEP_LEAVES as usize);
        for (leaf, data) in leaves_of(first, buf) {
            if is_zero(data) {
                leaves.push(LeafHash::Zero);
                continue;
            }
            let hash = leaf_hash(leaf, data);
            if self
                .patch
                .changed_hash(leaf)
                .is_some_and(|expected| expected != hash)
            {
                return Err(self.wrong_leaf(leaf));
            }
            leaves.push(LeafHash::Data(hash));
        }
        Ok(leaves)
    }
}
