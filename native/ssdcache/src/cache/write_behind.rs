//! Writes that are complete when the cache has them: blocks get dirty, and durable with a flush.

use std::time::Instant;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::MutexGuard;
use diffcache_partitions::Slot;

use super::entries::STEP;
use super::state::dirty::DirtyBlock;
use super::volume::{Counters, Volume};
use super::*;
use crate::device::format::{checksum, DirtyVersion, BLOCK};

/// Dirty blocks that a write has written back where it finds no room.
const ROOM: usize = 256;

/// How often a write looks for room.
const ATTEMPTS: usize = 3;

impl Cache {
    /// Refuses requests to dirty blocks after a failure of the device: what the origin has of them
    /// is older.
    pub(super) fn check_lost(&self, volume: &Volume, blocks: Range<Block>) -> io::Result<()> {
        if !self.has_failed() {
            return Ok(());
        }
        let ids = (volume.id, volume.partition);
        let found = self.lock().first_dirty(ids, &blocks);
        found.map_or(Ok(()), |block| Err(lost(volume, block)))
    }

    /// Writes to the cache; where it has no room, to the origin.
    pub(super) fn write_behind(
        &self,
        volume: &Volume,
        data: &[u8],
        offset: u64,
        passes: bool,
    ) -> io::Result<()> {
        let blocks = touched(offset, data.len());
        let _locked = volume.writing.lock(blocks.clone());
        let admitted = self.admit_writes(volume, blocks.clone(), passes);
        let mut start = blocks.start;
        for run in admitted.chunk_by(|one, other| one == other) {
            let range = start..start + run.len() as u64;
            start = range.end;
            if run[0] {
                for block in range {
                    self.write_block(volume, block, (data, offset))?;
                }
            } else {
                self.write_past(volume, range, (data, offset))?;
            }
        }
        Ok(())
    }

    /// Notes references by a write, and returns which blocks are to be cached.
    fn admit_writes(&self, volume: &Volume, blocks: Range<Block>, passes: bool) -> Vec<bool> {
        if self.has_failed() {
            Counters::add(&volume.counters.bypassed, blocks.end - blocks.start);
            return blocks.map(|_| false).collect();
        }
        let mut hits = 0;
        let mut state = self.lock();
        let admitted: Vec<bool> = blocks
            .map(|block| {
                let hit = state.blocks.reference(volume.id, block).is_some();
                hits += u64::from(hit);
                hit || !passes && state.blocks.admit(volume.id, block)
            })
            .collect();
        drop(state);
        let misses = admitted.len() as u64 - hits;
        Counters::add(&volume.counters.hits, hits);
        Counters::add(&volume.counters.misses, misses);
        if passes {
            Counters::add(&volume.counters.bypassed, misses);
        }
        admitted
    }

    /// Writes blocks to the origin alone. The request has locked them.
    fn write_past(
        &self,
        volume: &Volume,
        blocks: Range<Block>,
        (data, offset): (&[u8], u64),
    ) -> io::Result<()> {
        self.clean(volume, blocks.clone())?;
        let start = offset.max(blocks.start * BLOCK as u64);
        let end = (offset + data.len() as u64).min(blocks.end * BLOCK as u64);
        let part = &data[(start - offset) as usize..(end - offset) as usize];
        self.write_origin(volume, part, start, false)
    }

    /// Writes the part of a request that is of one block to the cache, if there is room.
    pub(super) fn write_block(
        &self,
        volume: &Volume,
        block: Block,
        request: (&[u8], u64),
    ) -> io::Result<()> {
        let (data, offset) = request;
        let start = block * BLOCK as u64;
        let end = offset + data.len() as u64;
        let mut whole = [0; BLOCK];
        if offset > start || end < start + BLOCK as u64 {
            self.read_block(volume, block, &mut whole)?;
        }
        let from = offset.max(start);
        let to = end.min(start + BLOCK as u64);
        whole[(from - start) as usize..(to - start) as usize]
            .copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]);
        let slot = self.reserve(volume, block)?;
        let stored = slot.map(|slot| self.store_dirty(volume, block, slot, &whole));
        match stored.transpose()? {
            Some(true) => {
                volume.losses.note_cached(&(from..to));
                Ok(())
            }
            _ => self.write_past(volume, block..block + 1, request),
        }
    }

    /// Reads what a block has now. The request has locked it.
    fn read_block(&self, volume: &Volume, block: Block, whole: &mut [u8; BLOCK]) -> io::Result<()> {
        let start = block * BLOCK as u64;
        let inside = BLOCK.min((volume.size() - start) as usize);
        let into = &mut whole[..inside];
        let state = self.lock();
        let slot = state.blocks.find(volume.id, block);
        let cached = slot.and_then(|slot| Some((slot, state.blocks.checksum(slot)?)));
        drop(state);
        match cached {
            Some((slot, checksum)) => {
                self.read_cached(volume, into, start, (block, slot, checksum))
            }
            None => self.read_origin(volume, into, start),
        }
    }

    /// Takes a slot for a new version of a block; writes others back where there is no room.
    fn reserve(&self, volume: &Volume, block: Block) -> io::Result<Option<Slot>> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                let room = Selection::Oldest(ROOM);
                self.despite_losses(volume, || self.write_back(volume, &room))?;
            }
            if self.has_failed() {
                break;
            }
            let mut state = self.lock();
            let most = self.dirty_max(&state, volume);
            let ids = (volume.id, volume.partition);
            let reserved = state.reserve(ids, block, most);
            // A failure is noted.
            let _ = self.write_entries(state);
            if let Some(reserved) = reserved {
                Counters::add(&volume.counters.evictions, reserved.evicted);
                return Ok(Some(reserved.slot));
            }
        }
        Ok(None)
    }

    pub(super) fn dirty_max(&self, state: &State, volume: &Volume) -> u32 {
        let limit = state.blocks.limit(volume.partition);
        self.options.dirty_max.of(limit)
    }

    /// Writes a version of a block to the slot that was taken for it. `false`: the device failed
    /// before, and the block is what it was.
    fn store_dirty(
        &self,
        volume: &Volume,
        block: Block,
        slot: Slot,
        data: &[u8],
    ) -> io::Result<bool> {
        if let Err(error) = self.device.write_data(data, slot) {
            self.lock().unreserve(slot);
            self.fail(&error);
            return Ok(false);
        }
        let checksum = checksum(data);
        let mut state = self.lock();
        let published = state.publish(slot, checksum, Instant::now());
        let version = DirtyVersion {
            number: published.number,
            is_durable: false,
        };
        let of = (volume.id, block);
        state.want(slot, of, volume.entry(block, checksum, Some(version)));
        // A restart might take either for the newer one.
        published
            .erased
            .into_iter()
            .for_each(|older| state.leave_version(older));
        let written = self.write_entries(state);
        Counters::add(&volume.counters.ssd_bytes_written, BLOCK as u64);
        written.map(|()| true)
    }

    /// Makes all versions of a volume's dirty blocks durable that were complete when this was called.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn commit(&self, volume: &Volume) -> io::Result<()> {
        self.commit_some(&[volume])
    }

    /// Does so for all volumes, with as many flushes of the device as for one.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn commit_all(&self) -> io::Result<()> {
        let volumes = self.volumes();
        let volumes: Vec<&Volume> = volumes.iter().map(AsRef::as_ref).collect();
        self.commit_some(&volumes)
    }

    /// Does so for volumes that are in the order of their numbers.
    fn commit_some(&self, volumes: &[&Volume]) -> io::Result<()> {
        let alone = volumes.iter().map(|volume| volume.begin_committing());
        let _alone: Vec<MutexGuard<'_, ()>> = alone.collect();
        if self.has_failed() {
            return Ok(());
        }
        let begun = volumes
            .iter()
            .map(|&volume| (volume, self.begin_commit(volume)));
        let begun: Vec<_> = begun.filter(|(_, versions)| !versions.is_empty()).collect();
        if begun.is_empty() {
            return Ok(());
        }
        self.sync_some(&begun)?;
        for (volume, versions) in &begun {
            for some in versions.chunks(STEP) {
                self.write_durable(volume, some)?;
            }
        }
        self.sync_some(&begun)?;
        for some in begun.iter().flat_map(|(_, versions)| versions.chunks(STEP)) {
            let mut state = self.lock();
            state.end_commit(some);
            // A failure is noted.
            let _ = self.write_entries(state);
        }
        Ok(())
    }

    /// Begins to make all versions of a volume durable that are complete now.
    fn begin_commit(&self, volume: &Volume) -> Vec<DirtyBlock> {
        self.lock().choose_written(volume.id);
        let mut versions = Vec::new();
        loop {
            let begun = self.lock().begin_commit(volume.id, STEP);
            if begun.is_empty() {
                return versions;
            }
            versions.extend(begun);
        }
    }

    /// Flushes the device once the entries of volumes are written.
    fn sync_some(&self, begun: &[(&Volume, Vec<DirtyBlock>)]) -> io::Result<()> {
        for (volume, _) in begun {
            self.wait_for_all_entries(volume);
        }
        let synced = self.device.sync();
        synced.inspect_err(|error| self.fail(error))
    }

    /// Writes entries of versions as those of durable ones.
    fn write_durable(&self, volume: &Volume, versions: &[DirtyBlock]) -> io::Result<()> {
        let mut state = self.lock();
        for version in versions {
            let dirty = DirtyVersion {
                number: version.number,
                is_durable: true,
            };
            let entry = volume.entry(version.block, version.checksum, Some(dirty));
            state.want(version.slot, (volume.id, version.block), entry);
        }
        self.write_entries(state)
    }
}

impl Volume {
    /// Excludes others that make versions of this volume's blocks durable.
    pub(super) fn begin_committing(&self) -> MutexGuard<'_, ()> {
        let lock = self.committing.lock();
        lock.unpoisoned()
    }
}
