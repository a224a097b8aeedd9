//! The mode write-back: writes are complete when the cache has them, and reach the origin later.
//!
//! Blocks that the origin lacks are dirty; only volumes in this mode have some. A block is written
//! by one request at a time. A write goes to a slot of its own, so that a power cut leaves either
//! version whole. A flush makes data durable first, and then the entries that say so: a durable
//! entry whose data are not as expected is damage, and never a write that a power cut lost.

use std::ops::Range;
use std::panic::resume_unwind;
use std::time::Instant;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::{start_in, thread, MutexGuard};

use super::entries::STEP;
use super::state::dirty::DirtyBlock;
use super::volume::{Counters, Mode, Volume};
use super::*;
use crate::device::format::{checksum, UNKNOWN_ORIGIN};

/// Dirty blocks that are written back between two flushes of an origin.
const ROUND: usize = 4096;
/// Threads that copy them while something waits for all, and the fewest for each.
const COPIERS: usize = 16;
const LEAST: usize = 16;

impl Cache {
    /// The dirty blocks of a volume.
    #[must_use]
    pub fn dirty_blocks(&self, volume: &Volume) -> u32 {
        self.lock().blocks.dirty(volume.partition)
    }

    /// Notes that the device may have newer blocks of a volume.
    pub(super) fn begin_unsaved(&self, volume: &Volume) -> Result<(), CacheError> {
        let noted = self
            .unsaved
            .as_ref()
            .map(|notes| notes.begin(volume.attachment.origin));
        noted
            .unwrap_or(Ok(()))
            .map_err(|error| note_error(volume, error))
    }

    /// Notes that the device has no newer blocks of a volume.
    pub(super) fn end_unsaved(&self, volume: &Volume) -> Result<(), CacheError> {
        let noted = self
            .unsaved
            .as_ref()
            .map(|notes| notes.end(volume.attachment.origin));
        noted
            .unwrap_or(Ok(()))
            .map_err(|error| note_error(volume, error))
    }

    /// Removes the notes of origins that no record of the device names: a process ended before that.
    pub(super) fn forget_unsaved_others(&self) {
        let volumes = self.volumes();
        let origins: Vec<u64> = volumes.iter().map(|v| v.attachment.origin).collect();
        // What damaged records named is not known.
        let notes = self.unsaved.as_ref();
        let notes = notes.filter(|_| !origins.contains(&UNKNOWN_ORIGIN));
        if let Some(Err(error)) = notes.map(|notes| notes.retain(&origins)) {
            log::warn!("Could not remove notes of former volumes, the next start will: {error}");
        }
    }

    /// Writes the dirty blocks of a range back, which is locked by a request or not written.
    pub(super) fn clean(&self, volume: &Volume, blocks: Range<Block>) -> io::Result<()> {
        let is_dirty = || {
            let ids = (volume.id, volume.partition);
            self.lock().first_dirty(ids, &blocks).is_some()
        };
        while is_dirty() {
            let selection = Selection::Range(blocks.clone());
            self.despite_losses(volume, || self.write_back(volume, &selection))?;
        }
        Ok(())
    }

    /// Writes all dirty blocks back of a volume that is not being written.
    ///
    /// # Errors
    /// A dirty block cannot be read, or not be written to the origin.
    pub(super) fn drain(&self, volume: &Volume) -> Result<(), CacheError> {
        self.write_back_all(volume)
            .map_err(|source| origin_error(volume, source))
    }

    pub(super) fn write_back_all(&self, volume: &Volume) -> io::Result<()> {
        while self.dirty_blocks(volume) > 0 {
            self.write_back(volume, &Selection::All)?;
        }
        Ok(())
    }

    /// Writes those dirty blocks back that a volume has now, while it may be written.
    ///
    /// # Errors
    /// A dirty block cannot be read, or not be written to the origin.
    pub fn write_back_now(&self, volume: &Volume) -> Result<(), CacheError> {
        let rounds = self.dirty_blocks(volume) as usize / ROUND + 1;
        for _ in 0..rounds {
            self.write_back(volume, &Selection::All)
                .map_err(|source| origin_error(volume, source))?;
        }
        Ok(())
    }

    /// Whether a volume has blocks to write back: they have been dirty for too long, or are too many.
    pub(super) fn is_due(&self, volume: &Volume) -> bool {
        volume.may_retry()
            && !volume.is_held()
            && (volume.following_mode().is_some() || self.due(volume).is_some())
    }

    /// Writes the blocks of a volume back that are due. Returns why that failed, unless it did for
    /// the same reason before.
    pub(super) fn write_back_due(&self, volume: &Volume) -> Option<String> {
        let done = match (volume.following_mode(), self.due(volume)) {
            (Some(mode), _) => self.reach_mode(volume, mode, volume.last_mode_change()),
            (None, Some(selection)) => self
                .write_back(volume, &selection)
                .map_err(|source| origin_error(volume, source)),
            (None, None) => Ok(()),
        };
        let reason = done.err().map(|error| error.to_string());
        let is_new = volume.note_failure(reason.clone());
        reason.filter(|_| is_new)
    }

    fn due(&self, volume: &Volume) -> Option<Selection> {
        if volume.mode() != Mode::WriteBack || volume.is_held() {
            return None;
        }
        let state = self.lock();
        let (dirty, most) = (
            state.blocks.dirty(volume.partition),
            self.dirty_max(&state, volume),
        );
        if dirty > most / 2 {
            // A write would soon have to wait.
            return Some(Selection::Oldest((dirty - most / 4) as usize));
        }
        let age = Instant::now().checked_sub(self.options.dirty_age)?;
        let oldest = state.dirty_since(volume.partition)?;
        (oldest <= age).then_some(Selection::Since(age))
    }

    /// Writes a round of dirty blocks back, in ascending order.
    pub(super) fn write_back(&self, volume: &Volume, selection: &Selection) -> io::Result<()> {
        let _one = self.begin_writing_back(volume);
        self.check_lost(volume, 0..Block::MAX)?;
        if self.dirty_blocks(volume) == 0 {
            return Ok(());
        }
        self.commit(volume)?;
        let chosen = self.choose(volume, selection);
        let failures = volume.losses.failures();
        let copiers = match selection {
            Selection::All => COPIERS,
            _ => 1,
        };
        let (failed, copied) = self.copy_round(volume, &chosen, copiers);
        if !copied.is_empty() {
            self.sync_origin(volume)?;
            if volume.losses.failures() != failures {
                // Another flush met the error: they stay dirty, and are written again.
                return Err(io::Error::other(
                    "the origin lost what was written meanwhile",
                ));
            }
            self.end_write_back(volume, &copied)?;
        }
        failed
    }

    /// The blocks of a round, in ascending order.
    fn choose(&self, volume: &Volume, selection: &Selection) -> Vec<DirtyBlock> {
        let ids = (volume.id, volume.partition);
        let most = match selection {
            Selection::Oldest(count) => ROUND.min(*count),
            _ => ROUND,
        };
        let (mut chosen, mut last) = (Vec::new(), None);
        while chosen.len() < most {
            let place = (last, STEP);
            last = self
                .lock()
                .to_write_back(ids, selection, place, &mut chosen);
            if last.is_none() {
                break;
            }
        }
        chosen.truncate(most);
        chosen.sort_unstable_by_key(|dirty| dirty.block);
        chosen
    }

    /// Excludes others that write dirty blocks of a volume back.
    pub(super) fn begin_writing_back<'a>(&self, volume: &'a Volume) -> MutexGuard<'a, ()> {
        let lock = volume.writing_back.lock();
        lock.unpoisoned()
    }

    /// Copies the dirty blocks of a round to the origin, several at a time. Returns which.
    fn copy_round(
        &self,
        volume: &Volume,
        chosen: &[DirtyBlock],
        copiers: usize,
    ) -> (io::Result<()>, Vec<DirtyBlock>) {
        let size = chosen.len().div_ceil(copiers).clamp(LEAST, RUN);
        let runs = Mutex::new(chosen.chunks(size));
        let copy = || {
            let (mut failed, mut copied) = (Ok(()), Vec::new());
            loop {
                let run = runs.lock().unpoisoned().next();
                let Some(run) = run else {
                    return (failed, copied);
                };
                let result = self.copy_back(volume, run, &mut copied);
                failed = failed.and(result);
            }
        };
        thread::scope(|scope| {
            let more = (size..chosen.len()).step_by(size).take(copiers - 1);
            let warn = |error: &io::Error| log::warn!("Fewer threads write back: {error}");
            let others = more.map_while(|_| start_in(scope, copy).inspect_err(warn).ok());
            let others: Vec<_> = others.collect();
            let (mut failed, mut copied) = copy();
            for other in others {
                let (result, some) = other.join().unwrap_or_else(|panic| resume_unwind(panic));
                failed = failed.and(result);
                copied.extend(some);
            }
            (failed, copied)
        })
    }

    /// Copies dirty blocks to the origin, and notes which.
    fn copy_back(
        &self,
        volume: &Volume,
        blocks: &[DirtyBlock],
        copied: &mut Vec<DirtyBlock>,
    ) -> io::Result<()> {
        let mut data = vec![0; blocks.len() * BLOCK];
        let mut failed = Ok(());
        let mut good = Vec::new();
        for (dirty, into) in blocks.iter().zip(data.chunks_exact_mut(BLOCK)) {
            let found = self.read_dirty(volume, dirty, into);
            good.push(matches!(found, Ok(true)));
            failed = failed.and(found.map(|_| ()));
        }
        let mut done = 0;
        while done < blocks.len() {
            let follows = |n: &usize| blocks[*n].block == blocks[done].block + (*n - done) as u64;
            let run = (done..blocks.len()).take_while(|n| good[*n] && follows(n));
            let end = done + run.count();
            if end == done {
                done += 1;
                continue;
            }
            let start = blocks[done].block * BLOCK as u64;
            let inside = (volume.size() - start).min(((end - done) * BLOCK) as u64) as usize;
            let part = &data[done * BLOCK..done * BLOCK + inside];
            self.copy(volume, part, start)?;
            Counters::add(&volume.counters.origin_bytes_written, inside as u64);
            copied.extend(&blocks[done..end]);
            done = end;
        }
        failed
    }

    /// Reads a version of a dirty block. `false`: it was replaced by a newer one.
    fn read_dirty(&self, volume: &Volume, dirty: &DirtyBlock, into: &mut [u8]) -> io::Result<bool> {
        let read = self.device.read_data(into, dirty.slot);
        if let Err(error) = &read {
            self.note_unreadable(error);
        }
        if read.is_ok() && checksum(into) == dirty.checksum {
            return Ok(true);
        }
        if self.lock().is_current(dirty) {
            Counters::add(&volume.counters.corrupted, 1);
            return Err(lost(volume, dirty.block));
        }
        Ok(false)
    }

    /// Notes that the origin has blocks durably, first on the device.
    fn end_write_back(&self, volume: &Volume, blocks: &[DirtyBlock]) -> io::Result<()> {
        // Entries of older versions were erased: they must not be found again afterwards.
        self.sync_device(volume)?;
        for some in blocks.chunks(STEP) {
            let mut state = self.lock();
            for dirty in some {
                if state.is_current(dirty) {
                    let entry = volume.entry(dirty.block, dirty.checksum, None);
                    state.want(dirty.slot, (volume.id, dirty.block), entry);
                }
            }
            self.write_entries(state)?;
        }
        self.sync_device(volume)?;
        for some in blocks.chunks(STEP) {
            let mut state = self.lock();
            for dirty in some {
                if state.is_current(dirty) && state.end_write_back(dirty) {
                    Counters::add(&volume.counters.evictions, 1);
                }
            }
            // A failure is noted.
            let _ = self.write_entries(state);
        }
        Ok(())
    }
}

fn note_error(volume: &Volume, source: io::Error) -> CacheError {
    CacheError::Note {
        name: volume.name().to_owned(),
        source,
    }
}
