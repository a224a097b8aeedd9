//! Zeroes and trims, which may be of a large part of a volume.
//!
//! What they cost depends on what is cached of their range, and not on the range: they take no slots,
//! and the lock is held for some blocks at a time.

use std::io;
use std::ops::Range;

use diffcache_partitions::{Block, Cursor, Slot};

use super::entries::STEP;
use super::state::{State, Token};
use super::volume::{Counters, Mode, Volume};
use super::{touched, Cache};
use crate::device::format::BLOCK;

impl Cache {
    /// Replaces a range of a volume by zeroes.
    ///
    /// # Errors
    /// The origin cannot be written.
    pub fn zero(&self, volume: &Volume, offset: u64, length: u64) -> io::Result<()> {
        let _entered = volume.enter();
        let range = offset..offset + length;
        if volume.mode() != Mode::WriteBack {
            return self.zero_origin(volume, &range);
        }
        let _locked = volume.writing.lock(blocks_of(&range));
        let range = self.zero_dirty_parts(volume, range)?;
        self.despite_losses(volume, || self.zero_behind(volume, &range))
    }

    /// Writes zeroes to the cache for the parts of blocks at the ends of a range, where the blocks
    /// are dirty. Returns the rest.
    fn zero_dirty_parts(&self, volume: &Volume, range: Range<u64>) -> io::Result<Range<u64>> {
        let zeroes = [0; BLOCK];
        let mut rest = range;
        let blocks = blocks_of(&rest);
        for block in [blocks.start, blocks.end.saturating_sub(1)] {
            let whole = bytes_of(volume, block..block + 1);
            let part = rest.start.max(whole.start)..rest.end.min(whole.end);
            if part.is_empty()
                || part == whole
                || self.lock().find_dirty(volume.id, block).is_none()
            {
                continue;
            }
            let length = (part.end - part.start) as usize;
            self.write_block(volume, block, (&zeroes[..length], part.start))?;
            if part.start == rest.start {
                rest.start = part.end;
            } else {
                rest.end = part.start;
            }
        }
        Ok(rest)
    }

    /// Replaces a range whose dirty blocks are whole ones. They are lost once the origin has the
    /// zeroes durably: what was flushed is there after a power cut, or zeroes are.
    fn zero_behind(&self, volume: &Volume, range: &Range<u64>) -> io::Result<()> {
        if self.dirty_blocks(volume) == 0 {
            return self.zero_origin(volume, range);
        }
        self.check_lost(volume, blocks_of(range))?;
        // None of them is written back over the zeroes.
        let _writing_back = self.begin_writing_back(volume);
        let failures = volume.losses.failures();
        self.zero_origin(volume, range)?;
        let dirty = self.dirty_within(volume, blocks_of(range));
        if dirty.is_empty() {
            return Ok(());
        }
        self.sync_origin(volume)?;
        if volume.losses.failures() != failures {
            // Another flush met the error: they stay dirty.
            return Err(io::Error::other(
                "the origin lost what was written meanwhile",
            ));
        }
        let _committing = volume.begin_committing();
        // Entries of older versions were erased: they must not be found again afterwards.
        self.sync_device(volume)?;
        self.each_dirty(volume, &dirty, State::erase_dirty)?;
        // Before others get the slots: what a power cut leaves of the entries would be damage.
        self.sync_device(volume)?;
        self.each_dirty(volume, &dirty, State::forget_dirty)
    }

    /// Changes those of some blocks that are dirty, with their entries.
    fn each_dirty(
        &self,
        volume: &Volume,
        blocks: &[Block],
        change: impl Fn(&mut State, Slot),
    ) -> io::Result<()> {
        for some in blocks.chunks(STEP) {
            let mut state = self.lock();
            for block in some {
                if let Some(slot) = state.find_dirty(volume.id, *block) {
                    change(&mut state, slot);
                }
            }
            self.write_entries(state)?;
        }
        Ok(())
    }

    fn dirty_within(&self, volume: &Volume, blocks: Range<Block>) -> Vec<Block> {
        let mut found = Vec::new();
        self.each_cached(volume, blocks, |state, block, slot| {
            if state.blocks.is_dirty(slot) {
                found.push(block);
            }
        });
        found
    }

    /// Replaces a range of the origin, while nothing older than that is cached.
    fn zero_origin(&self, volume: &Volume, range: &Range<u64>) -> io::Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let recorded = self.device.begin(volume.record, range);
        let token = self.begin_zero(volume, blocks_of(range));
        self.wait_for_entries(volume, &blocks_of(range));
        if let Err(error) = &recorded {
            self.fail(error);
        }
        let length = range.end - range.start;
        let zeroed = self.check_noted().and_then(|()| {
            self.put(volume, range.clone(), |origin| {
                origin.zero(range.start, length)
            })
        });
        self.lock().end_zero(token);
        if let Ok(intents) = recorded {
            self.device.intents().end(&intents);
        }
        zeroed
    }

    /// Keeps a range from being cached, and removes what is cached of it; dirty blocks stay.
    fn begin_zero(&self, volume: &Volume, blocks: Range<Block>) -> Token {
        let mut state = self.lock();
        let token = state.token();
        state.begin_zero(volume.id, blocks.clone(), token);
        drop(state);
        let mut bypassed = 0;
        self.each_cached(volume, blocks, |state, _, slot| {
            if !state.blocks.is_dirty(slot) {
                state.forget(slot);
                bypassed += 1;
            }
        });
        Counters::add(&volume.counters.bypassed, bypassed);
        token
    }

    /// Visits the blocks of a range that are cached, and writes the entries that this changes.
    fn each_cached(
        &self,
        volume: &Volume,
        range: Range<Block>,
        mut visit: impl FnMut(&mut State, Block, Slot),
    ) {
        let length = range.end.saturating_sub(range.start);
        if length <= u64::from(self.lock().blocks.blocks(volume.id)) {
            for first in range.clone().step_by(STEP) {
                let mut state = self.lock();
                for block in first..range.end.min(first + STEP as Block) {
                    if let Some(slot) = state.blocks.find(volume.id, block) {
                        visit(&mut state, block, slot);
                    }
                }
                // A failure is noted.
                let _ = self.write_entries(state);
            }
            return;
        }
        let mut cursor = Cursor::default();
        loop {
            let mut state = self.lock();
            let Some(slots) = state.blocks.visit(volume.id, &mut cursor, STEP as u32) else {
                return;
            };
            for slot in slots {
                let (_, block) = state.blocks.block_of(slot);
                if range.contains(&block) {
                    visit(&mut state, block, slot);
                }
            }
            let _ = self.write_entries(state);
        }
    }
}

fn blocks_of(range: &Range<u64>) -> Range<Block> {
    touched(range.start, (range.end - range.start) as usize)
}

/// The bytes of a volume that some of its blocks have.
fn bytes_of(volume: &Volume, blocks: Range<Block>) -> Range<u64> {
    let block = BLOCK as u64;
    blocks.start * block..(blocks.end * block).min(volume.size())
}
