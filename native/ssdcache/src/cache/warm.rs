//! Blocks that are cached before they are requested, because another cache had them.

use std::ops::Range;

use diffcache_partitions::Block;
use serde::Serialize;

use super::volume::Counters;
use super::{origin_error, Cache, CacheError, Volume, RUN};
use crate::device::format::BLOCK;

/// The number of a block, and how many blocks follow one another from there.
pub type Run = (Block, u64);

/// What [`Cache::warm`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Warmed {
    /// Blocks that are cached now, and were not.
    pub blocks: u64,
    /// Whether there is room for more of the volume's blocks.
    pub room: bool,
}

impl Cache {
    /// The blocks of a volume that are cached and would stay the longest, at most this many, in
    /// ascending order. Dirty blocks are left out.
    #[must_use]
    pub fn hottest(&self, volume: &Volume, most: usize) -> Vec<Run> {
        let mut blocks = self.lock().blocks.hottest(volume.id, most);
        blocks.sort_unstable();
        let next = |one: &Block, other: &Block| one + 1 == *other;
        let runs = blocks.chunk_by(next);
        runs.map(|run| (run[0], run.len() as u64)).collect()
    }

    /// Reads blocks of a volume from its origin and caches them, while its partition has room: none
    /// is evicted for them. They do not count as requests. Blocks behind the volume's end are left
    /// out.
    ///
    /// # Errors
    /// The origin cannot be read.
    pub fn warm(&self, volume: &Volume, runs: &[Run]) -> Result<Warmed, CacheError> {
        let end = volume.size().div_ceil(BLOCK as u64);
        let mut blocks = 0;
        for &(first, count) in runs {
            let run = first.min(end)..first.saturating_add(count).min(end);
            for first in run.clone().step_by(RUN) {
                blocks += self.warm_run(volume, first..run.end.min(first + RUN as u64))?;
                if !self.has_room(volume) {
                    return Ok(Warmed {
                        blocks,
                        room: false,
                    });
                }
            }
        }
        Ok(Warmed {
            blocks,
            room: self.has_room(volume),
        })
    }

    fn has_room(&self, volume: &Volume) -> bool {
        self.is_active(volume) && self.lock().blocks.has_room(volume.partition)
    }

    /// Caches some of adjoining blocks, and returns how many.
    fn warm_run(&self, volume: &Volume, run: Range<Block>) -> Result<u64, CacheError> {
        if !self.is_active(volume) {
            return Ok(0);
        }
        let mut state = self.lock();
        let token = state.token();
        let mut taken = Vec::new();
        for block in run {
            if !state.blocks.has_room(volume.partition) {
                break;
            }
            if let Some(slot) = state.take_unrequested(volume.id, block, token) {
                Counters::add(
                    &volume.counters.evictions,
                    u64::from(slot.evicted.is_some()),
                );
                taken.push(block);
            }
        }
        let _ = self.write_entries(state);
        let (Some(&first), Some(&last)) = (taken.first(), taken.last()) else {
            return Ok(0);
        };
        if let Err(error) = self.fill(volume, first..last + 1, token) {
            self.cancel_fills(volume, first..last + 1, token);
            return Err(origin_error(volume, error));
        }
        Ok(taken.len() as u64)
    }
}
