//! Flushes: what they make durable, and what becomes of what an origin lost.
//!
//! A flush of a client succeeds only while nothing is lost, see [`losses`](super::losses). What was
//! lost is forgotten in the cache, too: it would return what the origin lacks until the block leaves.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use super::losses::Losses;
use super::ranges::Ranges;
use super::settings::SHRINK;
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
            self.commit()?;
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
        let ticket = volume.losses.begin(range);
        let written = write(volume.origin.as_ref());
        volume.losses.end(ticket, written.is_ok(), volume.size());
        written
    }

    /// Copies dirty blocks to the origin. What they have beside a client's write may be what the
    /// origin had after a loss: they make none good.
    pub(super) fn copy(&self, volume: &Volume, data: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + data.len() as u64;
        let ticket = volume.losses.begin(range);
        let written = volume.origin.write_at(data, offset);
        volume.losses.end(ticket, false, volume.size());
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
        if let Err(error) = volume.origin.sync() {
            let lost = losses.fail_flush();
            self.lose(volume, lost, &error.to_string());
            return Err(error);
        }
        if losses.end_flush() {
            self.note_losses(volume);
        }
        self.end_flush(volume, &intents);
        Ok(())
    }

    /// Notes that regions were flushed.
    fn end_flush(&self, volume: &Volume, flushed: &Flushing) {
        if !self.has_failed() {
            let noted = self.device.end_flush(volume.record, flushed);
            noted.unwrap_or_else(|error| self.fail(&error));
        }
    }

    /// Notes that the origin of a volume lost what was written to it, except for what the cache has
    /// to write back anyway, and forgets what is cached of that.
    pub(super) fn lose(&self, volume: &Volume, mut lost: Ranges, reason: &str) {
        self.leave_out_dirty(volume, &mut lost);
        if lost.is_empty() {
            return;
        }
        volume.losses.add(&lost, volume.size());
        let name = volume.name();
        log::error!(
            "Volume {name}: its origin lost what was written at {}; flushes fail \
             until it was written again, or until \"diffcache ssdcache accept-loss\": {reason}",
            named(&lost)
        );
        self.forget_ranges(volume, &lost);
        for range in lost.iter() {
            volume
                .origin
                .forget_lost(range.start, range.end - range.start);
        }
        self.note_losses(volume);
    }

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
        for some in cached.chunks(SHRINK) {
            let mut state = self.lock();
            for &block in some {
                let slot = state.blocks.find(volume.id, block);
                if let Some(slot) = slot.filter(|slot| !state.blocks.is_dirty(*slot)) {
                    self.forget(&mut state, slot);
                }
            }
        }
    }

    /// Has what a volume lost noted where a start finds it.
    fn note_losses(&self, volume: &Volume) {
        let Some(notes) = &self.loss_notes else {
            return;
        };
        let lost: Vec<Range<u64>> = volume.losses.lost().iter().collect();
        let noted = notes.write(volume.attachment.origin, &lost);
        volume.losses.set_noted(noted.is_ok());
        if let Err(error) = noted {
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
        let lost = volume.losses.lost();
        if !lost.is_empty() {
            let (name, lost) = (volume.name(), named(&lost));
            log::info!("Volume {name}: the loss at {lost} was accepted");
        }
        self.forget_losses(volume);
    }

    /// Ends the losses of a volume that no client has any more which wrote before them.
    pub(super) fn forget_losses(&self, volume: &Volume) {
        volume.losses.forget();
        self.note_losses(volume);
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
            self.lose(volume, inside.collect(), "before the cache was started");
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
            if volume.origin.outlives_processes() {
                volume.losses.add_written(&unflushed);
            } else {
                self.lose(
                    &volume,
                    unflushed,
                    "the cache was killed before it was flushed",
                );
            }
        }
    }

    /// Clears the intents of regions that were not written since the last call. To be called
    /// every few seconds.
    ///
    /// # Errors
    /// An origin or the device cannot be flushed. Intents of other volumes are cleared.
    pub fn settle(&self) -> io::Result<()> {
        self.clear(&self.device.intents().idle())
    }

    /// Clears intents of volumes whose origins can be flushed.
    pub(super) fn clear(&self, intents: &[Intent]) -> io::Result<()> {
        if intents.is_empty() || self.has_failed() {
            return Ok(());
        }
        let mut of: BTreeMap<u16, Vec<Intent>> = BTreeMap::new();
        for &intent in intents {
            of.entry(intent.0).or_default().push(intent);
        }
        let mut failed = Ok(());
        for volume in self.volumes() {
            if !of.contains_key(&volume.record) {
                continue;
            }
            let flushed = self
                .sync_origin(&volume)
                .and_then(|()| self.check_noted_losses(&volume));
            if let Err(error) = flushed {
                of.remove(&volume.record);
                let error = format!("volume {}: {error}", volume.name());
                failed = failed.and(Err(io::Error::other(error)));
            }
        }
        let flushed: Vec<Intent> = of.into_values().flatten().collect();
        let cleared = self.device.clear(&flushed);
        cleared.inspect_err(|error| self.fail(error)).and(failed)
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
