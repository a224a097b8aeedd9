//! The mode write-back: writes are complete when the cache has them, and reach the origin later.
//!
//! Blocks that the origin lacks are dirty; only volumes in this mode have some. A block is written
//! by one request at a time. A write goes to a slot of its own, so that a power cut leaves either
//! version whole. A flush makes data durable first, and then the entries that say so: a durable
//! entry whose data are not as expected is damage, and never a write that a power cut lost.

use std::ops::Range;
use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use super::state::dirty::DirtyBlock;
use super::volume::{Counters, Mode, Volume};
use super::*;
use crate::device::format::DirtyVersion;

/// Dirty blocks that are written back between two flushes of an origin.
const ROUND: usize = 4096;
/// Dirty blocks that a write has written back where it finds no room.
const ROOM: usize = 256;
/// How often a write looks for room.
const ATTEMPTS: usize = 3;

/// A volume whose blocks are written back.
pub struct Due(Arc<Volume>);

impl Due {
    fn take(volume: Arc<Volume>) -> Option<Self> {
        let is_free = !volume.is_due.swap(true, Ordering::AcqRel);
        is_free.then_some(Self(volume))
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        self.0.is_due.store(false, Ordering::Release);
    }
}

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
                volume.losses.note_rewritten(&(from..to));
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
                self.write_back(volume, &Selection::Oldest(ROOM))?;
            }
            if self.has_failed() {
                break;
            }
            let mut state = self.lock();
            let most = self.dirty_max(&state, volume);
            let ids = (volume.id, volume.partition);
            if let Some(reserved) = state.reserve(ids, block, most) {
                for evicted in reserved.evicted {
                    self.note_eviction(evicted.volume);
                    self.erase(evicted.slot);
                }
                return Ok(Some(reserved.slot));
            }
        }
        Ok(None)
    }

    fn dirty_max(&self, state: &State, volume: &Volume) -> u32 {
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
        let written = self.write_dirty_entry(volume, (slot, block, checksum), Some(version));
        let erased = match published.erased {
            // A restart might take either for the newer one.
            Some(older) => self.device.write_entry(older, None),
            None => Ok(()),
        };
        drop(state);
        Counters::add(&volume.counters.ssd_bytes_written, BLOCK as u64);
        written.and(erased.inspect_err(|error| self.fail(error)))?;
        Ok(true)
    }

    fn write_dirty_entry(
        &self,
        volume: &Volume,
        (slot, block, checksum): (Slot, Block, u32),
        dirty: Option<DirtyVersion>,
    ) -> io::Result<()> {
        let entry = Entry {
            record: volume.record,
            block,
            checksum,
            dirty,
        };
        let entry = Some((entry, volume.attachment.generation));
        self.device
            .write_entry(slot, entry)
            .inspect_err(|error| self.fail(error))
    }

    /// Excludes others that make versions durable.
    pub(super) fn begin_committing(&self) -> MutexGuard<'_, ()> {
        let lock = self.committing.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all versions of dirty blocks durable that were complete when this was called.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn commit(&self) -> io::Result<()> {
        let _one = self.begin_committing();
        if self.has_failed() {
            return Ok(());
        }
        let versions = self.lock().begin_commit();
        if versions.is_empty() {
            return Ok(());
        }
        self.sync_device()?;
        let volumes = self.volumes();
        for version in &versions {
            let place = volumes.binary_search_by_key(&version.volume, |volume| volume.id);
            let Ok(place) = place else {
                continue;
            };
            let dirty = DirtyVersion {
                number: version.number,
                is_durable: true,
            };
            let of = (version.slot, version.block, version.checksum);
            self.write_dirty_entry(&volumes[place], of, Some(dirty))?;
        }
        self.sync_device()?;
        let mut state = self.lock();
        for older in state.end_commit(&versions) {
            self.erase(older);
        }
        Ok(())
    }

    pub(super) fn sync_device(&self) -> io::Result<()> {
        self.device.sync().inspect_err(|error| self.fail(error))
    }

    /// Writes the dirty blocks of a range back, which is locked by a request or not written.
    pub(super) fn clean(&self, volume: &Volume, blocks: Range<Block>) -> io::Result<()> {
        let is_dirty = || {
            let ids = (volume.id, volume.partition);
            self.lock().first_dirty(ids, &blocks).is_some()
        };
        while is_dirty() {
            self.write_back(volume, &Selection::Range(blocks.clone()))?;
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

    /// Takes up the volumes that have blocks to write back, each with
    /// [`write_back_due`](Self::write_back_due): those that have been dirty for too long, or are too
    /// many. To be called every second or so.
    pub fn take_due(&self) -> Vec<Due> {
        if self.has_failed() {
            return Vec::new();
        }
        let volumes = self.volumes().into_iter();
        let due = volumes.filter(|volume| volume.may_retry() && self.is_due(volume));
        due.filter_map(Due::take).collect()
    }

    fn is_due(&self, volume: &Volume) -> bool {
        !volume.is_held() && (volume.following_mode().is_some() || self.due(volume).is_some())
    }

    /// Writes the blocks of a volume back that are due. Other volumes do not wait for its origin.
    /// Returns why that failed, unless it did for the same reason before; it is tried again later.
    #[must_use]
    pub fn write_back_due(&self, due: &Due) -> Option<String> {
        let volume = &due.0;
        let done = match (volume.following_mode(), self.due(volume)) {
            (Some(mode), _) => self.set_mode(volume, mode),
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
        self.commit()?;
        let state = self.lock();
        let chosen = state.to_write_back((volume.id, volume.partition), selection, ROUND);
        drop(state);
        let mut failed = Ok(());
        let mut copied = Vec::new();
        let failures = volume.losses.failures();
        for run in chosen.chunks(RUN) {
            let result = self.copy_back(volume, run, &mut copied);
            failed = failed.and(result);
        }
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

    /// Excludes others that write dirty blocks of a volume back.
    pub(super) fn begin_writing_back<'a>(&self, volume: &'a Volume) -> MutexGuard<'a, ()> {
        let lock = volume.writing_back.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
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
        if let Err(error) = self.device.read_data(into, dirty.slot) {
            self.fail(&error);
            return Err(lost(volume, dirty.block));
        }
        if checksum(into) == dirty.checksum {
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
        self.sync_device()?;
        let state = self.lock();
        for dirty in blocks.iter().filter(|dirty| state.is_current(dirty)) {
            let of = (dirty.slot, dirty.block, dirty.checksum);
            self.write_dirty_entry(volume, of, None)?;
        }
        drop(state);
        self.sync_device()?;
        let mut state = self.lock();
        for dirty in blocks {
            if !state.is_current(dirty) {
                continue;
            }
            if let Some(evicted) = state.end_write_back(dirty) {
                Counters::add(&volume.counters.evictions, 1);
                self.erase(evicted.slot);
            }
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
