//! Building a target: to a file, to a sink, or only to see whether it would come out right.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{copy_file_range, fallocate, ioctl_ficlone, FallocateFlags};

use super::format::LEAF_BLOCKS;
use super::reader::{FrameCache, PatchFile};
use super::runs::{within, Run, Src, BLOCK, BLOCK_LEN};
use super::PatchError;
use crate::manifest::{
    is_zero, leaf_count, leaf_hash, leaf_len, to_hex, Builder, LeafHash, Manifest, LEAF_LEN,
    LEAF_SIZE,
};
use crate::output::Output;
use crate::sink::LeafSink;
use crate::source::{FileSource, ReadAt};
use crate::task::{for_each_piece_with, Meter, Task};

/// Leaves per piece of work: 4 MiB, so that remote reads are large, and most frames lie in one piece.
const PIECE_LEAVES: u64 = 64;
/// Leaves that are built, hashed and handed on at a time: 256 KiB, which stay in a core's own cache meanwhile.
const STEP_LEAVES: u64 = 4;
/// The same in blocks.
pub(super) const STEP_BLOCKS: u32 = STEP_LEAVES as u32 * LEAF_BLOCKS;

/// Shorter runs of moved blocks are written rather than shared: an extent costs the filesystem more.
const MIN_SHARED: u32 = 16;

/// What applying a patch came to.
#[derive(Debug, Clone)]
pub struct ApplyStats {
    /// The target's manifest, as computed from its bytes.
    pub manifest: Manifest,
    /// Whether the output shares unchanged blocks with the base.
    pub reflinked: bool,
    /// Bytes written to the output or given to the sink.
    pub bytes_written: u64,
    /// Time taken.
    pub elapsed: Duration,
}

/// Builds the target in a new file beside `output` and renames it. Blocks are shared with the base where the filesystem can; otherwise the output is
/// sparse where the target is zero. Every byte is verified before the rename. `output` may be the base itself, which it then replaces.
///
/// # Errors
/// `BaseMismatch`, `Corrupt`, `Format`, `NoSpace`, `Source`, `Io`, `Cancelled`; nothing is left behind.
pub fn apply(
    base: &Path,
    patch: &Path,
    output: &Path,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let base = FileSource::open(base)?;
    let patch = PatchFile::open(FileSource::open(patch)?)?;
    patch.check_base_size(&base)?;
    let name = output.display().to_string();
    let failed = |error| PatchError::from_write(&name, error);
    let out = Output::create(output).map_err(failed)?;
    let reflinked = ioctl_ficlone(out.file(), base.file()).is_ok();
    out.file()
        .set_len(patch.header().target_size)
        .map_err(failed)?;
    let writer = Writer {
        file: out.file(),
        name: &name,
        base: &base,
        patch: &patch,
        reflinked,
    };
    let build = Build {
        patch: &patch,
        base: &base,
        meter: task.meter(patch.header().target_size),
    };
    let (manifest, bytes_written) = build.run(task, |first, data| writer.write(first, data))?;
    // Whoever cancelled gets no output, however late it was.
    task.check()?;
    out.commit().map_err(failed)?;
    Ok(ApplyStats {
        manifest,
        reflinked,
        bytes_written,
        elapsed: started.elapsed(),
    })
}

/// Does everything that `apply` does but writing.
///
/// # Errors
/// `BaseMismatch`, `Corrupt`, `Format`, `Source`, `Cancelled`.
pub fn verify(
    base: &dyn ReadAt,
    patch: &dyn ReadAt,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let patch = PatchFile::open(patch)?;
    patch.check_base_size(base)?;
    let build = Build {
        patch: &patch,
        base,
        meter: task.meter(patch.header().target_size),
    };
    let (manifest, bytes_written) = build.run(task, |_, _| Ok(0))?;
    Ok(ApplyStats {
        manifest,
        reflinked: false,
        bytes_written,
        elapsed: started.elapsed(),
    })
}

/// The target's manifest, from the base's and the patch; reads only the patch's ends.
///
/// # Errors
/// `BaseMismatch`, `Corrupt`, `Format`, `Source`, `Cancelled`.
pub fn target_manifest(
    base: &Manifest,
    patch: &dyn ReadAt,
    task: &Task<'_>,
) -> Result<Manifest, PatchError> {
    PatchFile::open(patch)?.target_manifest(base, task)
}

/// Builds the target from base and patch wherever they lie, and gives `sink` every leaf that is not zero, verified against `target`. Base and patch
/// are read in large ranges, each byte about once, by all the task's threads.
///
/// # Errors
/// `TargetMismatch` if the manifest is of another image; `BaseMismatch`; `Leaf` if base and patch give other bytes than the manifest promises;
/// `Corrupt`, `Format`, `Source`, `Sink`, `Cancelled`.
pub fn apply_to_sink(
    base: &dyn ReadAt,
    patch: &dyn ReadAt,
    target: &Manifest,
    sink: &dyn LeafSink,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let patch = PatchFile::open(patch)?;
    let header = patch.header();
    if header.target_hash != target.content_id() || header.target_size != target.size() {
        return Err(PatchError::TargetMismatch {
            patch: to_hex(&header.target_hash),
            wanted: target.content_id_hex(),
        });
    }
    patch.check_base_size(base)?;
    let build = Build {
        patch: &patch,
        base,
        meter: task.meter(target.size()),
    };
    let cache = FrameCache::default();
    let pieces = target.leaf_count().div_ceil(PIECE_LEAVES);
    let written = for_each_piece_with(task, pieces, Vec::new, |buf, piece| {
        let mut written = 0;
        let (first, len) = (piece * PIECE_LEAVES, build.len(piece, PIECE_LEAVES));
        if build.read(first, len, buf, &cache)? {
            for (leaf, data) in leaves_of(first, buf) {
                if !target.verify_leaf(leaf, data) {
                    return Err(PatchError::Leaf {
                        leaf,
                        target: target.content_id_hex(),
                    });
                }
                if !target.is_zero_leaf(leaf) {
                    sink.put(leaf, data)?;
                    written += data.len() as u64;
                }
            }
        } else if target
            .next_data_leaf(piece * PIECE_LEAVES)
            .is_some_and(|leaf| leaf < (piece + 1) * PIECE_LEAVES)
        {
            return Err(PatchError::Leaf {
                leaf: piece * PIECE_LEAVES,
                target: target.content_id_hex(),
            });
        }
        build.meter.add(len as u64);
        Ok(written)
    })?;
    Ok(ApplyStats {
        manifest: target.clone(),
        reflinked: false,
        bytes_written: written.iter().sum(),
        elapsed: started.elapsed(),
    })
}

/// The leaves in the bytes from leaf `first` on, by index.
fn leaves_of(first: u64, buf: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    (first..).zip(buf.chunks(LEAF_LEN))
}

/// One run through a target.
pub(super) struct Build<'a, P> {
    pub patch: &'a PatchFile<P>,
    pub base: &'a dyn ReadAt,
    pub meter: Meter<'a>,
}

/// What one thread keeps between pieces.
#[derive(Default)]
struct Hands {
    buf: Vec<u8>,
    cache: FrameCache,
}

/// What became of a piece.
struct Built {
    /// Its leaves; none if all of it is zero.
    leaves: Vec<LeafHash>,
    written: u64,
    /// The manifest of an image of a single leaf, which leaves do not tell.
    single: Option<Box<Manifest>>,
}

impl<P: ReadAt> Build<'_, P> {
    /// Bytes of the `index`-th stretch of `leaves` leaves.
    fn len(&self, index: u64, leaves: u64) -> usize {
        let start = index * leaves * LEAF_SIZE;
        let rest = self.patch.header().target_size.saturating_sub(start);
        rest.min(leaves * LEAF_SIZE) as usize
    }

    /// Rebuilds the `len` bytes from leaf `first` on into `buf`; false, and nothing is touched, if all of them are zero.
    fn read(
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
        let parts = for_each_piece_with(task, pieces, Hands::default, |hands, piece| {
            self.piece(piece, hands, &consume)
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

    /// Rebuilds a piece step by step.
    fn piece<F>(&self, piece: u64, hands: &mut Hands, consume: &F) -> Result<Built, PatchError>
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
            let filled = self.read(first, len, &mut hands.buf, &hands.cache)?;
            if !filled {
                hands.buf.clear();
            }
            let hashes = self.hash_leaves(first, &hands.buf)?;
            built.leaves.extend(hashes);
            built.leaves.resize(
                (first - piece * PIECE_LEAVES) as usize + leaf_count(len as u64) as usize,
                LeafHash::Zero,
            );
            built.written += consume(first as u32 * LEAF_BLOCKS, &hands.buf)?;
            self.meter.add(len as u64);
        }
        if leaf_count(self.patch.header().target_size) == 1 {
            hands.buf.resize(self.len(0, 1), 0);
            built.single = Some(Box::new(Manifest::of_single_leaf(&hands.buf)));
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
                return Err(self
                    .patch
                    .base_mismatch(format!("leaf {leaf} of the target comes out wrong")));
            }
            leaves.push(LeafHash::Data(hash));
        }
        Ok(leaves)
    }
}

/// Writes pieces of the target to a file that either is a clone of the base or empty.
struct Writer<'a> {
    file: &'a File,
    name: &'a str,
    base: &'a FileSource,
    patch: &'a PatchFile<FileSource>,
    reflinked: bool,
}

impl Writer<'_> {
    /// Writes a step that starts at block `first`; `data` is empty if it is all zeroes.
    fn write(&self, first: u32, data: &[u8]) -> Result<u64, PatchError> {
        match self.reflinked {
            true => self.write_changes(first, data),
            false => self.write_data(first, data),
        }
    }

    /// Into an empty file: everything but zero blocks.
    fn write_data(&self, first: u32, data: &[u8]) -> Result<u64, PatchError> {
        let mut written = 0;
        let mut at = 0;
        // Neighbouring blocks of one kind go together.
        for group in data
            .chunks(BLOCK_LEN)
            .map(|block| (is_zero(block), block.len()))
            .collect::<Vec<_>>()
            .chunk_by(|a, b| a.0 == b.0)
        {
            let len: usize = group.iter().map(|(_, len)| len).sum();
            if !group.first().is_some_and(|(zero, _)| *zero) {
                self.put(first, data, at, at + len)?;
                written += len as u64;
            }
            at += len;
        }
        Ok(written)
    }

    /// Into a clone of the base: what is not the base's block at the same place.
    fn write_changes(&self, first: u32, data: &[u8]) -> Result<u64, PatchError> {
        let size = self.patch.header().target_size;
        let mut written = 0;
        for run in within(self.patch.runs(), first, first + STEP_BLOCKS) {
            let start = (run.start - first) as usize * BLOCK_LEN;
            let end = ((run.end() - first) as usize * BLOCK_LEN)
                .min((size - u64::from(first) * BLOCK) as usize);
            match run.src {
                Src::Base(block) if block == run.start => {}
                Src::Zero => self.clear(
                    u64::from(run.start) * BLOCK,
                    (u64::from(run.end()) * BLOCK).min(size),
                )?,
                Src::Base(block) if run.len >= MIN_SHARED && self.share(block, run) => {}
                _ => {
                    self.put(first, data, start, end)?;
                    written += (end - start) as u64;
                }
            }
        }
        Ok(written)
    }

    /// Lets a run share the base's blocks from `block` on; false if the filesystem did not, or not all of
    /// them, and nothing is lost: the caller writes them then.
    fn share(&self, block: u32, run: Run) -> bool {
        let mut from = u64::from(block) * BLOCK;
        let mut to = u64::from(run.start) * BLOCK;
        let mut left = u64::from(run.len) * BLOCK;
        // A last block that either image has only a part of is not shared.
        if from + left > self.base.len() || to + left > self.patch.header().target_size {
            return false;
        }
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX);
            let copied = copy_file_range(
                self.base.file(),
                Some(&mut from),
                self.file,
                Some(&mut to),
                want,
            );
            match copied {
                Ok(0) | Err(_) => return false,
                Ok(copied) => left = left.saturating_sub(copied as u64),
            }
        }
        true
    }

    fn put(&self, first: u32, data: &[u8], from: usize, to: usize) -> Result<(), PatchError> {
        let offset = u64::from(first) * BLOCK + from as u64;
        self.file
            .write_all_at(&data[from..to], offset)
            .map_err(|error| PatchError::from_write(self.name, error))
    }

    /// Makes a range of the clone zero where the base has data.
    fn clear(&self, start: u64, end: u64) -> Result<(), PatchError> {
        let mut at = start;
        while let Some((from, to)) = self.base.next_data(at)? {
            if from >= end {
                break;
            }
            let to = to.min(end);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(self.file, flags, from, to - from)
                .map_err(|error| PatchError::from_write(self.name, error.into()))?;
            at = to;
        }
        Ok(())
    }
}

/// Bytes of leaf `leaf` of the patch's target.
pub(super) fn target_leaf_len<P: ReadAt>(patch: &PatchFile<P>, leaf: u64) -> usize {
    leaf_len(patch.header().target_size, leaf)
}
