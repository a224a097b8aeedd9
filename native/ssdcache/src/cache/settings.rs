//! Changes of a volume's mode and limit, and what leaves the cache by them.

use std::io;
use std::sync::atomic::Ordering;

use diffcache_base::locks::Unpoisoned;

use super::entries::STEP;
use super::error::{origin_error, CacheError};
use super::state::dirty::Selection;
use super::volume::{Counters, Mode, Volume};
use super::Cache;
use crate::device::format::{Kept, Leaving, VolumeRecord};

impl Cache {
    /// Changes what a volume's cache does. What it has stays valid in any mode; dirty blocks are
    /// written back before another mode than write-back begins.
    ///
    /// # Errors
    /// Dirty blocks cannot be written back, and the mode is as before; or a note cannot be written,
    /// or not be removed; or a volume that is to be in write-back is being detached; or another change
    /// of the mode began while this one waited.
    pub fn set_mode(&self, volume: &Volume, mode: Mode) -> Result<(), CacheError> {
        self.reach_mode(volume, mode, volume.begin_mode())
    }

    /// Does so for the change with a number, unless another one began since.
    pub(super) fn reach_mode(
        &self,
        volume: &Volume,
        mode: Mode,
        change: u64,
    ) -> Result<(), CacheError> {
        if mode != Mode::WriteBack {
            // Most of it while the volume can be written.
            self.write_back_now(volume)?;
        }
        let _closed = volume.close_gate();
        if volume.last_mode_change() != change {
            return Err(CacheError::Superseded(volume.name().to_owned()));
        }
        if mode == Mode::WriteBack {
            // What is written from now on would be lost with the record.
            if volume.ending.load(Ordering::Acquire) {
                return Err(CacheError::Detaching(volume.name().to_owned()));
            }
            if self.has_failed() {
                return Err(io::Error::other("it failed, and has no newer blocks").into());
            }
            self.begin_unsaved(volume)?;
            // Before the first dirty block: a start writes those back of another mode.
            self.keep(volume, |kept| kept.mode = mode as u8)?;
            volume.set_mode(mode);
            self.refresh_lent();
            return Ok(());
        }
        self.drain(volume)?;
        volume.set_mode(mode);
        self.refresh_lent();
        self.keep(volume, |kept| kept.mode = mode as u8)?;
        self.end_unsaved(volume)
    }

    /// Changes the most blocks of a volume, and evicts those above. Dirty ones are written back
    /// before.
    ///
    /// # Errors
    /// The limits do not fit, or dirty blocks cannot be written back.
    pub fn set_limit(&self, volume: &Volume, limit: u32) -> Result<(), CacheError> {
        self.lock()
            .blocks
            .set_limits(&[(volume.partition, limit)])?;
        self.keep(volume, |kept| kept.limit = limit)?;
        self.shrink(volume)
    }

    /// Evicts the blocks of a volume above its limits.
    fn shrink(&self, volume: &Volume) -> Result<(), CacheError> {
        loop {
            self.evict_excess(volume);
            let state = self.lock();
            let (held, limit) = (
                state.blocks.held(volume.partition),
                state.blocks.limit(volume.partition),
            );
            let dirty = state.blocks.dirty(volume.partition);
            drop(state);
            let excess = dirty.saturating_sub(self.options.dirty_max.of(limit));
            if excess > 0 || held > limit && dirty > 0 {
                let most = excess.max(held.saturating_sub(limit)) as usize;
                self.write_back(volume, &Selection::Oldest(most))
                    .map_err(|source| origin_error(volume, source))?;
            } else if held <= limit {
                return Ok(());
            } else {
                // The rest is of writes that are under way.
                drop(volume.close_gate());
            }
        }
    }

    /// Evicts the clean blocks of a volume above its limit.
    pub(super) fn evict_excess(&self, volume: &Volume) {
        loop {
            let mut state = self.lock();
            let evict = |_: &usize| state.shrink(volume.partition).is_some();
            let evicted = (0..STEP).take_while(evict).count();
            // A failure is noted.
            let _ = self.write_entries(state);
            Counters::add(&volume.counters.evictions, evicted as u64);
            if evicted < STEP {
                return;
            }
        }
    }

    /// Removes all cached blocks of a volume. Dirty ones are written back before, or lost if they
    /// are to be discarded.
    ///
    /// # Errors
    /// Dirty blocks cannot be written back, or the device cannot be flushed.
    pub fn invalidate(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        let _closed = volume.close_gate();
        if !discard_dirty {
            self.drain(volume)?;
        }
        // No change of the settings writes the record meanwhile.
        let kept = volume.kept();
        self.note_leaving(volume, &kept, Leaving::Blocks)?;
        self.empty(volume, discard_dirty)?;
        self.note_leaving(volume, &kept, Leaving::Nothing)
    }

    /// Records what of a volume leaves from now on: a start finishes it.
    pub(super) fn note_leaving(
        &self,
        volume: &Volume,
        kept: &Option<Kept>,
        leaving: Leaving,
    ) -> Result<(), CacheError> {
        let record = VolumeRecord {
            leaving,
            ..volume.record_with(kept.clone())
        };
        self.put_record(volume, Some(&record))
    }

    /// Removes all cached blocks of a volume that is not being written, and of which that was noted.
    pub(super) fn empty(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        let _writing_back = self.begin_writing_back(volume);
        let _committing = volume.begin_committing();
        self.drop_blocks(volume);
        let damaged = match discard_dirty {
            true => std::mem::take(&mut *volume.damaged.lock().unpoisoned()),
            false => Vec::new(),
        };
        for some in damaged.chunks(STEP) {
            let mut state = self.lock();
            some.iter().for_each(|slot| state.forget(*slot));
            let _ = self.write_entries(state);
        }
        match self.has_failed() {
            true => Ok(()),
            // Clean ones, too: their origin may have been changed in another way.
            false => Ok(self.sync_device(volume)?),
        }
    }

    pub(super) fn drop_blocks(&self, volume: &Volume) {
        loop {
            let mut state = self.lock();
            let dropped = (0..STEP).take_while(|_| state.pop(volume.id)).count();
            let _ = self.write_entries(state);
            if dropped < STEP {
                return;
            }
        }
    }
}
