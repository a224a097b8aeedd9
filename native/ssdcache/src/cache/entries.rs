//! Entries that are written once the lock is released, see [`state::entries`](super::state::entries).
//!
//! A thread writes the entries of what it changed right after it released the lock, and before it goes
//! on. What must not be done before an entry is written that another thread writes, waits for that:
//! data are written to a slot after its entry of before is erased, and an origin after the entries of
//! its blocks are.

use std::io;
use std::ops::Range;

use diffcache_base::locks::ShortGuard;
use diffcache_partitions::{Block, Slot};

use super::state::entries::{Begun, Writing};
use super::state::State;
use super::volume::Volume;
use super::Cache;

/// Entries, or what else is looked at or changed while the lock is held, at once.
pub(super) const STEP: usize = 64;

impl Cache {
    /// Releases the lock, and writes the entries that were changed since it was taken, in this order.
    /// A failure is noted, and those after it are not written.
    ///
    /// # Errors
    /// The device cannot be written.
    pub(super) fn write_entries<'a>(&'a self, mut state: ShortGuard<'a, State>) -> io::Result<()> {
        let fresh = state.take_fresh();
        let mut rest = &fresh[..];
        let mut done = Ok(());
        while !rest.is_empty() {
            let begun = begin_entries(&mut state, &mut rest);
            if begun.is_empty() && !rest.is_empty() {
                state = self.wait_for_writing(state);
                continue;
            }
            drop(state);
            for writing in &begun {
                done = done.and_then(|()| self.device.write_entry(writing.slot, writing.wanted));
            }
            if let Err(error) = &done {
                // Other threads go on only after the failure is noted.
                self.fail(error);
            }
            state = self.lock();
            begun.iter().for_each(|writing| state.end_entry(writing));
            if state.waiting > 0 {
                self.written.notify_all();
            }
        }
        done
    }

    /// Releases the lock until entries were written.
    fn wait_for_writing<'a>(&self, mut state: ShortGuard<'a, State>) -> ShortGuard<'a, State> {
        state.waiting += 1;
        let mut state = state.wait(&self.written);
        state.waiting -= 1;
        state
    }

    /// Waits until all is written that is changed now of the entries of some blocks.
    pub(super) fn wait_for_entries(&self, volume: &Volume, blocks: &Range<Block>) {
        let mut state = self.lock();
        let changes = state.changes();
        while state.is_changing(volume.id, blocks, changes) {
            state = self.wait_for_writing(state);
        }
    }

    /// Makes all durable that was written to the device, and all entries of a volume that are changed
    /// now. Those of others do not matter: a slot passes to another volume once its entry is erased.
    ///
    /// # Errors
    /// The device cannot be flushed.
    pub(super) fn sync_entries(&self, volume: &Volume) -> io::Result<()> {
        self.wait_for_all_entries(volume);
        self.device.sync()
    }

    /// Waits until all entries of a volume are written that are changed now.
    pub(super) fn wait_for_all_entries(&self, volume: &Volume) {
        let mut state = self.lock();
        let changes = state.changes();
        while state.is_any_changing(volume.id, changes) {
            state = self.wait_for_writing(state);
        }
    }

    /// Does so; a failure is that of the device.
    ///
    /// # Errors
    /// As [`sync_entries`](Self::sync_entries).
    pub(super) fn sync_device(&self, volume: &Volume) -> io::Result<()> {
        let synced = self.sync_entries(volume);
        synced.inspect_err(|error| self.fail(error))
    }
}

/// Begins to write entries of the first slots, up to one whose entry another thread writes.
fn begin_entries(state: &mut State, slots: &mut &[Slot]) -> Vec<Writing> {
    let mut begun = Vec::new();
    while let Some((slot, rest)) = slots.split_first() {
        match state.begin_entry(*slot) {
            Begun::Busy => break,
            Begun::Written => {}
            Begun::Write(writing) => begun.push(writing),
        }
        *slots = rest;
    }
    begun
}
