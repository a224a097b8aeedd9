//! Changes of a volume's mode and limit, and what leaves the cache by them.

use std::sync::atomic::Ordering;

use diffcache_base::locks::Unpoisoned;
use diffcache_partitions::Slot;

use super::error::{origin_error, CacheError};
use super::state::dirty::Selection;
use super::volume::{Counters, Mode, Volume};
use super::Cache;

/// Blocks that are evicted at once when a limit is lowered.
pub(super) const SHRINK: usize = 1024;

impl Cache {
    /// Changes what a volume's cache does. What it has stays valid in any mode; dirty blocks are
    /// written back before another mode than write-back begins.
    ///
    /// # Errors
    /// Dirty blocks cannot be written back, and the mode is as before; or a note cannot be written,
    /// or not be removed; or a volume that is to be in write-back is being detached.
    pub fn set_mode(&self, volume: &Volume, mode: Mode) -> Result<(), CacheError> {
        if mode != Mode::WriteBack {
            // Most of it while the volume can be written.
            self.write_back_now(volume)?;
        }
        let _closed = volume.close_gate();
        if mode == Mode::WriteBack {
            // What is written from now on would be lost with the record.
            if volume.ending.load(Ordering::Acquire) {
                return Err(CacheError::Detaching(volume.name().to_owned()));
            }
            self.begin_unsaved(volume)?;
            // Before the first dirty block: a start writes those back of another mode.
            self.keep(volume, |kept| kept.mode = mode as u8)?;
            volume.set_mode(mode);
            return Ok(());
        }
        self.drain(volume)?;
        volume.set_mode(mode);
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
            }
        }
    }

    /// Evicts the clean blocks of a volume above its limit.
    pub(super) fn evict_excess(&self, volume: &Volume) {
        loop {
            let mut state = self.lock();
            for _ in 0..SHRINK {
                let Some(evicted) = state.blocks.shrink(volume.partition) else {
                    return;
                };
                Counters::add(&volume.counters.evictions, 1);
                state.disown(evicted.slot);
                self.erase(evicted.slot);
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
        self.empty(volume, discard_dirty)
    }

    /// Removes all cached blocks of a volume that is not being written.
    pub(super) fn empty(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        if !discard_dirty {
            self.drain(volume)?;
        }
        let _writing_back = self.begin_writing_back(volume);
        let _committing = self.begin_committing();
        let had_dirty = self.dirty_blocks(volume) > 0;
        self.drop_blocks(volume, |slot| self.erase(slot));
        let damaged = match discard_dirty {
            true => std::mem::take(&mut *volume.damaged.lock().unpoisoned()),
            false => Vec::new(),
        };
        for slot in &damaged {
            self.forget(&mut self.lock(), *slot);
        }
        if (had_dirty || !damaged.is_empty()) && !self.has_failed() {
            self.device.sync()?;
        }
        Ok(())
    }

    pub(super) fn drop_blocks(&self, volume: &Volume, dropped: impl Fn(Slot)) {
        loop {
            let mut state = self.lock();
            for _ in 0..SHRINK {
                let Some(evicted) = state.blocks.pop(volume.id) else {
                    return;
                };
                state.disown(evicted.slot);
                let older = state.forget_version(evicted.slot);
                older.into_iter().for_each(&dropped);
                dropped(evicted.slot);
            }
        }
    }
}
