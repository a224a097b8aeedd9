//! Writing a target to a new file: a clone of the base where the filesystem can, or an empty one.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{copy_file_range, fallocate, FallocateFlags};
use rustix::io::retry_on_intr;

use super::reader::PatchFile;
use super::runs::{parts_within, Run, Src, BLOCK, BLOCK_LEN};
use super::PatchError;
use crate::manifest::is_zero;
use crate::reflink::share_blocks;
use crate::source::{data_after, read_padded, FileSource, ReadAt, Stamp};
use crate::task::Task;
use diffcache_base::output::Output;

/// Shorter runs of moved blocks are written rather than shared: an extent costs the filesystem more.
const MIN_SHARED: u32 = 16;
/// Bytes copied at a time where the filesystem does not share what it should.
const COPY: u64 = 1 << 20;
/// Bytes after which what was written begins to go to the disk, so that it does so while the rest is built.
const WRITEBACK: u64 = 32 << 20;

/// A target that is being written.
pub struct NewFile<'a> {
    base: &'a FileSource,
    patch: &'a PatchFile<FileSource>,
    out: Output,
    name: String,
    written: AtomicU64,
    /// Stamp of the base before it was cloned; none if it was not.
    cloned: Option<Stamp>,
}

impl<'a> NewFile<'a> {
    /// Creates a file beside `output`, as a clone of the base if the filesystem can, with the target's length.
    ///
    /// # Errors
    /// `NoSpace`, `Source`, `Io`.
    pub fn begin(
        base: &'a FileSource,
        patch: &'a PatchFile<FileSource>,
        output: &Path,
    ) -> Result<NewFile<'a>, PatchError> {
        NewFile::begin_by(base, patch, output, share_blocks)
    }

    /// Does the same as `begin` with another function that clones the base, and returns whether it could.
    pub(super) fn begin_by(
        base: &'a FileSource,
        patch: &'a PatchFile<FileSource>,
        output: &Path,
        clone: impl FnOnce(&File, &File) -> bool,
    ) -> Result<NewFile<'a>, PatchError> {
        let name = output.display().to_string();
        let failed = |error| PatchError::from_write(&name, error);
        let out = Output::create(output).map_err(failed)?;
        let stamp = base.stamp()?;
        let cloned = clone(out.file(), base.file());
        out.file()
            .set_len(patch.header().target_size)
            .map_err(failed)?;
        Ok(NewFile {
            base,
            patch,
            out,
            name,
            written: AtomicU64::new(0),
            cloned: cloned.then_some(stamp),
        })
    }

    /// Returns whether it shares blocks with the base.
    pub fn is_clone(&self) -> bool {
        self.cloned.is_some()
    }

    /// Prepares a clone as far as that needs no verified bytes: zeroes runs, and shares the long runs that moved. Returns the bytes written.
    ///
    /// # Errors
    /// `NoSpace`, `Source`, `Io`, `Cancelled`.
    pub fn lay_out(&self, task: &Task<'_>) -> Result<u64, PatchError> {
        let mut written = 0;
        if self.is_clone() {
            for run in self.patch.runs() {
                task.check()?;
                match run.src {
                    Src::Zero => self.clear(run)?,
                    Src::Base(block) if is_shared(run) => written += self.share(block, run)?,
                    _ => {}
                }
            }
        }
        Ok(written)
    }

    /// Writes what `lay_out` leaves of the blocks from `first` on; `data` are their bytes, none if all of them are zero. Returns the bytes written.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn write(&self, first: u32, data: &[u8]) -> Result<u64, PatchError> {
        match self.is_clone() {
            true => self.write_changes(first, data),
            false => self.write_data(first, data),
        }
    }

    /// Writes into an empty file: everything but zero blocks.
    fn write_data(&self, first: u32, data: &[u8]) -> Result<u64, PatchError> {
        let mut written = 0;
        let mut at = 0;
        // Neighbouring blocks of one kind are written in one call.
        for group in data
            .chunks(BLOCK_LEN)
            .map(|block| (is_zero(block), block.len()))
            .collect::<Vec<_>>()
            .chunk_by(|a, b| a.0 == b.0)
        {
            let len: usize = group.iter().map(|(_, len)| len).sum();
            if !group.first().is_some_and(|(zero, _)| *zero) {
                self.put(u64::from(first) * BLOCK + at as u64, &data[at..at + len])?;
                written += len as u64;
            }
            at += len;
        }
        Ok(written)
    }

    /// Writes into a clone of the base: literals, and what moved in short runs.
    fn write_changes(&self, first: u32, data: &[u8]) -> Result<u64, PatchError> {
        let end = first + data.len().div_ceil(BLOCK_LEN) as u32;
        let mut written = 0;
        for (whole, part) in parts_within(self.patch.runs(), first, end) {
            let is_there = match part.src {
                Src::Zero => true,
                Src::Base(block) => block == part.start || is_shared(whole),
                Src::Literal(_) => false,
            };
            if !is_there {
                let from = (part.start - first) as usize * BLOCK_LEN;
                let to = (from + part.len as usize * BLOCK_LEN).min(data.len());
                self.put(u64::from(part.start) * BLOCK, &data[from..to])?;
                written += (to - from) as u64;
            }
        }
        Ok(written)
    }

    /// Shares the base's blocks from `block` on with a run, and copies what the filesystem does not share. Returns the bytes copied.
    fn share(&self, block: u32, run: &Run) -> Result<u64, PatchError> {
        let (mut from, mut to) = (u64::from(block) * BLOCK, u64::from(run.start) * BLOCK);
        let end = (u64::from(run.end()) * BLOCK).min(self.patch.header().target_size);
        // A last block that either image has only a part of is not shared.
        let have = self.base.len().saturating_sub(from).min(end - to);
        let mut left = have - have % BLOCK;
        while left > 0 {
            let want = usize::try_from(left).unwrap_or(usize::MAX);
            let (source, target) = (self.base.file(), self.out.file());
            match copy_file_range(source, Some(&mut from), target, Some(&mut to), want) {
                Ok(0) | Err(_) => break,
                Ok(copied) => left = left.saturating_sub(copied as u64),
            }
        }
        self.copy(from, to, end)
    }

    /// Copies the base's bytes from `from` on to `to..end`.
    fn copy(&self, from: u64, to: u64, end: u64) -> Result<u64, PatchError> {
        let mut buf = Vec::new();
        for done in (0..end - to).step_by(COPY as usize) {
            buf.resize(COPY.min(end - to - done) as usize, 0);
            read_padded(self.base, from + done, &mut buf)?;
            self.put(to + done, &buf)?;
        }
        Ok(end - to)
    }

    /// Zeroes a run of the clone where the base has data.
    fn clear(&self, run: &Run) -> Result<(), PatchError> {
        let mut at = u64::from(run.start) * BLOCK;
        let end = (u64::from(run.end()) * BLOCK).min(self.patch.header().target_size);
        while let Some((from, to)) = data_after(self.base, at)? {
            if from >= end {
                break;
            }
            let to = to.min(end);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            retry_on_intr(|| fallocate(self.out.file(), flags, from, to - from))
                .map_err(|error| PatchError::from_write(&self.name, error.into()))?;
            at = to;
        }
        Ok(())
    }

    fn put(&self, offset: u64, data: &[u8]) -> Result<(), PatchError> {
        self.out
            .file()
            .write_all_at(data, offset)
            .map_err(|error| PatchError::from_write(&self.name, error))?;
        let len = data.len() as u64;
        let before = self.written.fetch_add(len, Ordering::Relaxed);
        if before / WRITEBACK != (before + len) / WRITEBACK {
            self.out.begin_writeback();
        }
        Ok(())
    }

    /// Gives the file its name, unless the job was cancelled or the base changed after it was cloned. Returns whether it is a clone.
    ///
    /// # Errors
    /// `Changed`, `Source`, `Io`, `Cancelled`; the file is removed then.
    pub fn finish(self, task: &Task<'_>) -> Result<bool, PatchError> {
        // A cancelled job leaves no output, however late it was cancelled.
        task.check()?;
        if let Some(before) = self.cloned {
            if self.base.stamp()? != before {
                return Err(PatchError::Changed {
                    name: self.base.name().to_owned(),
                });
            }
        }
        let (cloned, name) = (self.is_clone(), self.name);
        self.out
            .commit()
            .map_err(|error| PatchError::from_write(&name, error))?;
        Ok(cloned)
    }
}

/// Returns whether a run of moved blocks is shared as a whole.
fn is_shared(run: &Run) -> bool {
    matches!(run.src, Src::Base(block) if block != run.start) && run.len >= MIN_SHARED
}
