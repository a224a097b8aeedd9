//! Flushes: what they make durable, and what becomes of what an origin lost.
//!
//! A flush of a client succeeds only while nothing is lost, see [`losses`](super::losses). What was
//! lost is forgotten in the cache, too: it would return what the origin lacks until the block leaves.

use std::io;
use std::ops::Range;

use super::entries::STEP;
use super::losses::{Losses, Writer};
use super::ranges::Ranges;
use super::*;
use crate::device::intents::{Flushing, Intent};

/// Ranges that a message names.
const NAMED: usize = 4;

impl Cache {
    /// Makes all completed writes to a volume durable.
    ///
    /// # Errors
    /// The origin or the device cannot be flushed, or dirty blocks were lost with the device, or the
    /// origin has lost what was written before.
    pub fn flush(&self, volume: &Volume) -> io::Result<()> {
        if volume.mode() == Mode::WriteBack {
            self.commit(volume)?;
            self.check_lost(volume, 0..Block::MAX)?;
        }
        self.sync_origin(volume)?;
        match volume.losses.first() {
            None => Ok(()),
            Some(offset) => Err(io::Error::other(format!(
                "the origin lost what was written at {offset}; write it again, or see \"diffcache \
                 ssdcache accept-loss\""
            ))),
        }
    }

    /// Writes the dirty blocks back that a volume has now, and makes all completed writes durable.
    ///
    /// # Errors
    /// Dirty blocks cannot be written back, or the origin cannot be flushed.
    pub fn flush_back(&self, volume: &Volume) -> Result<(), CacheError> {
        self.write_back_now(volume)?;
        self.flush(volume)
            .map_err(|source| origin_error(volume, source))
    }

    /// Does a client's write to the origin of a volume, and notes that.
    pub(super) fn put(
        &self,
        volume: &Volume,
        range: Range<u64>,
        write: impl FnOnce(&dyn Disk) -> io::Result<()>,
    ) -> io::Result<()> {
        let ticket = volume.losses.begin(range, Writer::Client);
        let written = write(volume.origin());
        volume.losses.end(ticket, written.is_ok(), volume.size());
        written
    }

    /// Copies dirty blocks to the origin.
    pub(super) fn copy(&self, volume: &Volume, data: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        let ticket = volume.losses.begin(range, Writer::WriteBack);
        let written = volume.origin().write_at(data, offset);
        volume.losses.end(ticket, written.is_ok(), volume.size());
        written
    }

    /// Flushes the origin of a volume if it was written since the last time, and notes what it lost.
    ///
    /// # Errors
    /// It cannot be flushed.
    pub(super) fn sync_origin(&self, volume: &Volume) -> io::Result<()> {
        let losses = &volume.losses;
        let flushes = losses.flushes();
        let _turn = losses.turn();
        let intents = self.device.intents().begin_flush(volume.record);
        if !losses.is_needed(flushes) {
            if losses.is_clean() {
                self.end_flush(volume, &intents);
            }
            return Ok(());
        }
        losses.begin_flush();
        if let Err(error) = volume.origin().sync() {
            let mut failed = losses.fail_flush();
            self.leave_out_dirty(volume, &mut failed.copied);
            let mut lost = failed.by_clients;
            lost.extend(&failed.copied);
            self.lose(volume, &lost, &error.to_string());
            return Err(error);
        }
        if losses.end_flush() {
            self.note_losses(volume);
        }
        self.end_flush(volume, &intents);
        Ok(())
    }

    /// Does a part of a request that needs the origin flushed, and once more if that finds what was
    /// lost before: it is the next flush of the client that fails of it.
    pub(super) fn despite_losses(
        &self,
        volume: &Volume,
        part: impl Fn() -> io::Result<()>,
    ) -> io::Result<()> {
        let failures = volume.losses.failures();
        part().or_else(|error| match volume.losses.failures() == failures {
            true => Err(error),
            false => part(),
        })
    }

    /// Notes that regions were flushed.
    fn end_flush(&self, volume: &Volume, flushed: &Flushing) {
        if !self.has_failed() {
            let noted = self.device.end_flush(volume.record, flushed);
            noted.unwrap_or_else(|error| self.fail(&error));
        }
    }

    /// Notes that the origin of a volume lost what was written to it, and forgets what is cached of
    /// that. A block that is dirty counts, too: a client may have written a part of it after the loss.
    pub(super) fn lose(&self, volume: &Volume, lost: &Ranges, reason: &str) {
        if lost.is_empty() {
            return;
        }
        volume.losses.add(lost, volume.size());
        let name = volume.name();
        log::error!(
            "Volume {name}: its origin lost what was written at {}; flushes fail \
             until it was written again, or until \"diffcache ssdcache accept-loss\": {reason}",
            named(lost)
        );
        self.forget_lost(volume, lost);
        self.note_losses(volume);
    }

    /// Forgets what the cache, and the origin's own cache, have of ranges that the origin lost.
    fn forget_lost(&self, volume: &Volume, lost: &Ranges) {
        self.forget_ranges(volume, lost);
        for range in lost.iter() {
            volume
                .origin()
                .forget_lost(range.start, range.end - range.start);
        }
    }

    /// Leaves out what the cache writes back anyway.
    fn leave_out_dirty(&self, volume: &Volume, lost: &mut Ranges) {
        let state = self.lock();
        let slots = state.blocks.dirty_slots(volume.partition);
        for block in slots.map(|slot| state.blocks.block_of(slot).1) {
            lost.remove(&(block * BLOCK as u64..(block + 1) * BLOCK as u64));
        }
    }

    /// Forgets what is cached of ranges, except for dirty blocks.
    fn forget_ranges(&self, volume: &Volume, lost: &Ranges) {
        let blocks = lost
            .iter()
            .map(|range| touched(range.start, (range.end - range.start) as usize));
        let blocks: Vec<Range<Block>> = blocks.collect();
        let count: u64 = blocks.iter().map(|range| range.end - range.start).sum();
        let held = self.lock().blocks.blocks(volume.id);
        let cached: Vec<Block> = if count > u64::from(held) {
            let held = self.lock().blocks.hottest(volume.id, usize::MAX);
            let is_lost = |block: &Block| {
                let after = blocks.partition_point(|range| range.end <= *block);
                blocks.get(after).is_some_and(|range| range.contains(block))
            };
            held.into_iter().filter(is_lost).collect()
        } else {
            blocks.into_iter().flatten().collect()
        };
        for some in cached.chunks(STEP) {
            let mut state = self.lock();
            for &block in some {
                let slot = state.blocks.find(volume.id, block);
                if let Some(slot) = slot.filter(|slot| !state.blocks.is_dirty(*slot)) {
                    state.forget(slot);
                }
            }
            // A failure is noted.
            let _ = self.write_entries(state);
        }
        // Others may have begun to erase entries of the ranges.
        self.wait_for_all_entries(volume);
    }

    /// Has what a volume lost noted where a start finds it.
    fn note_losses(&self, volume: &Volume) {
        let Some(notes) = &self.loss_notes else {
            return;
        };
        let origin = volume.attachment.origin;
        if let Err(error) = volume.losses.note(|lost| notes.write(origin, lost)) {
            let name = volume.name();
            log::warn!(
                "Volume {name}: could not note what its origin lost, will \
                 retry: {error}"
            );
        }
    }

    /// Ends the losses of a volume, because someone decided that its client is to go on without what
    /// was lost.
    pub fn accept_loss(&self, volume: &Volume) {
        let lost = self.forget_losses(volume);
        if !lost.is_empty() {
            let (name, lost) = (volume.name(), named(&lost));
            log::info!("Volume {name}: the loss at {lost} was accepted");
        }
    }

    /// Ends the losses of a volume that no client has any more which wrote before them, and returns
    /// what was lost.
    pub(super) fn forget_losses(&self, volume: &Volume) -> Ranges {
        let lost = volume.losses.begin_forgetting();
        // Reads since then may have cached what was still in a server's memory.
        self.forget_lost(volume, &lost);
        volume.losses.end_forgetting();
        self.note_losses(volume);
        lost
    }

    /// Ends the losses of a volume whose client lost its memory, as at a power cut: it expects that
    /// what it did not flush is lost.
    pub fn end_guest(&self, volume: &Volume) {
        // What the origin cannot keep of it is no loss to the next client.
        if let Err(error) = self.sync_origin(volume) {
            let name = volume.name();
            log::warn!("Volume {name}: its guest ended: {error}");
        }
        self.forget_losses(volume);
    }

    /// Has it noted what origins lost, and continues what an earlier process noted.
    #[must_use]
    pub fn noting_losses(mut self, notes: LossNotes) -> Self {
        let found: Vec<_> = self
            .volumes()
            .iter()
            .map(|v| notes.read(v.attachment.origin))
            .collect();
        self.loss_notes = Some(notes);
        for (volume, found) in self.volumes().iter().zip(found) {
            let lost = found.unwrap_or_else(|error| {
                let name = volume.name();
                log::warn!("Volume {name}: could not read what its origin lost: {error}");
                std::iter::once(0..volume.size()).collect()
            });
            let inside = lost
                .into_iter()
                .map(|range| range.start..range.end.min(volume.size()));
            self.lose(volume, &inside.collect(), "before the cache was started");
            self.note_losses(volume);
        }
        self
    }

    /// Notes which writes of an earlier process, which did not end in order, origins may not have.
    pub(super) fn take_over(&self) {
        for volume in self.volumes() {
            let unflushed = self
                .device
                .intents()
                .unflushed(volume.record, volume.size());
            let unflushed: Ranges = unflushed.into_iter().collect();
            if volume.origin().outlives_processes() {
                volume.losses.add_written(&unflushed);
            } else {
                self.lose(
                    &volume,
                    &unflushed,
                    "the cache was killed before it was flushed",
                );
            }
        }
    }

    /// Clears intents of a volume, whose origin is flushed before.
    pub(super) fn clear(&self, volume: &Volume, intents: &[Intent]) -> io::Result<()> {
        if intents.is_empty() || self.has_failed() {
            return Ok(());
        }
        self.sync_origin(volume)?;
        self.check_noted_losses(volume)?;
        let cleared = self.device.clear(intents);
        cleared.inspect_err(|error| self.fail(error))
    }

    /// Refuses to forget that a region was written while its loss is not noted.
    fn check_noted_losses(&self, volume: &Volume) -> io::Result<()> {
        if !volume.losses.is_noted() {
            self.note_losses(volume);
        }
        match volume.losses.is_noted() {
            true => Ok(()),
            false => Err(io::Error::other("what its origin lost is not noted")),
        }
    }
}

/// Ranges as a message has them.
fn named(lost: &Ranges) -> String {
    let ranges = lost.iter().take(NAMED);
    let named: Vec<String> = ranges
        .map(|range| format!("{} ({} bytes)", range.start, range.end - range.start))
        .collect();
    let more = match lost.len().saturating_sub(NAMED) {
        0 => String::new(),
        count => format!(" and {count} more places"),
    };
    named.join(", ") + &more
}

impl Volume {
    /// What its origin lost: offsets and lengths in bytes.
    pub(super) fn lost(&self) -> Vec<(u64, u64)> {
        let lost = Losses::lost(&self.losses);
        lost.iter()
            .map(|range| (range.start, range.end - range.start))
            .collect()
    }
}
