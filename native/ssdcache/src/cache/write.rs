//! Writes to origins, and what they change of the cache.

use std::io;
use std::ops::Range;

use diffcache_partitions::{Block, NEVER};

use super::state::Token;
use super::volume::{Counters, Mode, Volume};
use super::{touched, Cache};
use crate::device::format::{checksum, BLOCK};

impl Cache {
    /// Writes the data of a block to its slot, if it is still owned.
    pub(super) fn store(&self, volume: &Volume, block: Block, data: &[u8], token: Token) {
        let mut state = self.lock();
        let Some(slot) = state.begin_data(volume.id, block, token) else {
            return;
        };
        // Who took the slot waited for that, and a later change of its entry gave it another owner.
        debug_assert!(
            !state.is_slot_changing(slot),
            "an entry of before may be on the device"
        );
        drop(state);
        let written = self.write_device(data, slot);
        let checksum = checksum(data);
        let mut state = self.lock();
        let valid = state.end_data((volume.id, block), slot, token) && written.is_ok();
        if !valid {
            state.forget(slot);
        } else {
            state.blocks.set_checksum(slot, Some(checksum));
            let entry = volume.entry(block, checksum, None);
            state.want(slot, (volume.id, block), entry);
        }
        let _ = self.write_entries(state);
        if let Err(error) = written {
            self.fail(&error);
        }
        Counters::add(&volume.counters.ssd_bytes_written, BLOCK as u64);
    }

    /// Writes to a volume. Durable after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// The origin cannot be written, or dirty blocks were lost with the device.
    pub fn write(&self, volume: &Volume, data: &[u8], offset: u64) -> io::Result<()> {
        let blocks = touched(offset, data.len());
        Counters::add(&volume.counters.writes, blocks.end - blocks.start);
        let _entered = volume.enter();
        let passes = volume.passes(offset, data.len());
        let caches = matches!(volume.mode(), Mode::WriteThrough | Mode::WriteBack);
        if caches && !passes && self.is_active(volume) {
            volume.access.note(blocks);
        }
        if volume.mode() == Mode::WriteBack {
            return self.write_behind(volume, data, offset, passes);
        }
        self.write_origin(volume, data, offset, passes)
    }

    /// Writes to the origin, and to the cache in the mode write-through.
    pub(super) fn write_origin(
        &self,
        volume: &Volume,
        data: &[u8],
        offset: u64,
        passes: bool,
    ) -> io::Result<()> {
        let blocks = touched(offset, data.len());
        let end = offset + data.len() as u64;
        self.change(volume, offset..end, passes, |token| {
            self.put(volume, offset..end, |origin| origin.write_at(data, offset))?;
            Counters::add(&volume.counters.origin_bytes_written, data.len() as u64);
            if volume.mode() == Mode::WriteThrough && self.is_active(volume) {
                for block in blocks.clone() {
                    self.cache_written(volume, block, (data, offset), token);
                }
            }
            Ok(())
        })
    }

    /// Changes a range of the origin, while nothing older than that is cached.
    pub(super) fn change(
        &self,
        volume: &Volume,
        range: Range<u64>,
        passes: bool,
        work: impl FnOnce(Token) -> io::Result<()>,
    ) -> io::Result<()> {
        let recorded = self.device.begin(volume.record, &range);
        let blocks = touched(range.start, (range.end - range.start) as usize);
        let token = self.begin_writes(volume, blocks.clone(), passes);
        self.wait_for_entries(volume, &blocks);
        if let Err(error) = &recorded {
            self.fail(error);
        }
        let result = self.check_noted().and_then(|()| work(token));
        let mut state = self.lock();
        for block in blocks {
            if let Some(slot) = state.end_write(volume.id, block, token) {
                state.forget(slot);
            }
        }
        let _ = self.write_entries(state);
        if let Ok(intents) = recorded {
            self.device.intents().end(&intents);
        }
        result
    }

    fn begin_writes(&self, volume: &Volume, blocks: Range<Block>, passes: bool) -> Token {
        let mut state = self.lock();
        let open = state.blocks.admission(volume.partition) < NEVER;
        let through = open && volume.mode() == Mode::WriteThrough && self.is_active(volume);
        let token = state.token();
        let (mut hits, mut misses, mut evicted) = (0, 0, 0);
        for block in blocks {
            let slot = state.begin_write(volume.id, block, token);
            hits += u64::from(slot.is_some());
            misses += u64::from(slot.is_none());
            match slot {
                Some(_) if through => {}
                Some(slot) => state.forget(slot),
                None if through && !passes => {
                    let taken = state.take_for_write(volume.id, block, token);
                    evicted += u64::from(taken.is_some_and(|taken| taken.evicted.is_some()));
                }
                None => {}
            }
        }
        let _ = self.write_entries(state);
        Counters::add(&volume.counters.evictions, evicted);
        if through {
            Counters::add(&volume.counters.hits, hits);
            Counters::add(&volume.counters.misses, misses);
        }
        // The mode write-back has counted them.
        let bypassed = match volume.mode() {
            _ if through => misses * u64::from(passes),
            Mode::WriteBack => 0,
            _ => hits + misses,
        };
        Counters::add(&volume.counters.bypassed, bypassed);
        token
    }

    /// Caches a block that was written; what the write does not cover is read from the origin.
    fn cache_written(
        &self,
        volume: &Volume,
        block: Block,
        (data, offset): (&[u8], u64),
        token: Token,
    ) {
        let start = block * BLOCK as u64;
        let covered = offset <= start && start + BLOCK as u64 <= offset + data.len() as u64;
        if covered {
            let from = (start - offset) as usize;
            return self.store(volume, block, &data[from..from + BLOCK], token);
        }
        if self.lock().owned(volume.id, block, token).is_none() {
            return;
        }
        let mut whole = [0; BLOCK];
        let inside = BLOCK.min((volume.size() - start) as usize);
        // Without it the block stays invalid, and is removed.
        if self
            .read_origin(volume, &mut whole[..inside], start)
            .is_ok()
        {
            self.store(volume, block, &whole, token);
        }
    }
}
