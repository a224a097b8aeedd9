//! Reads: from slots, and from the origin where a block is not cached or not as expected.

use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diffcache_partitions::{Block, Slot};

use super::state::{Source, Token};
use super::volume::Counters;
use super::{lost, touched, Cache, Volume, RUN};
use crate::device::format::{checksum, BLOCK};

/// A read that was begun.
pub struct PendingRead {
    started: Instant,
    offset: u64,
    blocks: Range<Block>,
    /// Where the blocks are; none if the cache is not looked at.
    found: Option<(Vec<Source>, Token)>,
}

impl Cache {
    /// Reads from a volume.
    ///
    /// # Errors
    /// The origin cannot be read.
    pub fn read(&self, volume: &Volume, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.begin_read(volume, offset, buffer.len());
        self.end_read(volume, &read, buffer)
    }

    /// Looks up what a read touches, and counts it. [`read_now`](Self::read_now) or
    /// [`end_read`](Self::end_read) must follow: slots may wait for what is read.
    pub fn begin_read(&self, volume: &Volume, offset: u64, length: usize) -> PendingRead {
        let started = Instant::now();
        let blocks = touched(offset, length);
        let count = blocks.end - blocks.start;
        Counters::add(&volume.counters.reads, count);
        let found = if self.is_active(volume) {
            let passes = volume.passes(offset, length);
            if !passes {
                volume.access.note(blocks.clone());
            }
            Some(self.sources(volume, blocks.clone(), passes))
        } else {
            Counters::add(&volume.counters.bypassed, count);
            None
        };
        PendingRead {
            started,
            offset,
            blocks,
            found,
        }
    }

    /// Fills the buffer of a read, if all is cached, as expected and in memory. `false`: it is
    /// not.
    pub fn read_now(&self, volume: &Volume, read: &PendingRead, buffer: &mut [u8]) -> bool {
        let Some((sources, _)) = &read.found else {
            return false;
        };
        let mut done = 0;
        while done < sources.len() {
            let run = adjoining(&sources[done..]);
            let block = read.blocks.start + done as u64;
            let into = part(buffer, read.offset, block..block + run as u64);
            let disk = |into: &mut [u8], slot| self.device.read_data_now(into, slot);
            if run == 0 || !read_adjoining(into, &sources[done..done + run], disk) {
                return false;
            }
            done += run;
        }
        volume.hit.note(read.started.elapsed());
        true
    }

    /// Where on the device the whole blocks of a read are, as offsets and lengths; none: not all are
    /// cached.
    #[must_use]
    pub fn pieces(&self, read: &PendingRead) -> Option<Vec<(u64, usize)>> {
        let mut rest = &read.found.as_ref()?.0[..];
        let mut pieces = Vec::with_capacity(1);
        while let Some(Source::Cached(slot, _)) = rest.first() {
            let run = adjoining(rest);
            pieces.push((self.device.data_at(*slot), run * BLOCK));
            rest = &rest[run..];
        }
        rest.is_empty().then_some(pieces)
    }

    /// Fills the buffer of a read with what was read from its [pieces](Self::pieces), which took this time if it is known. `false`: it is not as expected,
    /// because its block was written meanwhile, or the device could not be read.
    pub fn take_pieces(
        &self,
        volume: &Volume,
        read: &PendingRead,
        (bytes, took): (Option<&[u8]>, Option<Duration>),
        buffer: &mut [u8],
    ) -> bool {
        if let Some(took) = took {
            self.pace.device.note(took);
        }
        Counters::add(&self.ring_reads, 1);
        let sources = read.found.as_ref().map(|(sources, _)| sources);
        let expected = bytes
            .zip(sources)
            .filter(|(bytes, sources)| are_expected(bytes, sources));
        let skip = (read.offset % BLOCK as u64) as usize;
        match expected.and_then(|(bytes, _)| bytes.get(skip..skip + buffer.len())) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                volume.hit.note(read.started.elapsed());
                true
            }
            None => {
                Counters::add(&self.ring_refused, 1);
                false
            }
        }
    }

    /// Fills the buffer of a read.
    ///
    /// # Errors
    /// The origin cannot be read.
    pub fn end_read(
        &self,
        volume: &Volume,
        read: &PendingRead,
        buffer: &mut [u8],
    ) -> io::Result<()> {
        let Some((sources, token)) = &read.found else {
            self.check_lost(volume, read.blocks.clone())?;
            return self.read_origin(volume, buffer, read.offset);
        };
        let hit = sources
            .iter()
            .all(|source| matches!(source, Source::Cached(..)));
        let result = self.read_sources(volume, buffer, read.offset, sources, *token);
        if result.is_err() {
            self.cancel_fills(volume, read.blocks.clone(), *token);
        }
        let latency = if hit { &volume.hit } else { &volume.miss };
        latency.note(read.started.elapsed());
        result
    }

    /// Looks blocks up, and takes slots for those that are to be cached.
    fn sources(&self, volume: &Volume, blocks: Range<Block>, passes: bool) -> (Vec<Source>, Token) {
        let mut state = self.lock();
        let token = state.token();
        let (mut hits, mut evicted) = (0, 0);
        let sources: Vec<Source> = blocks
            .map(|block| {
                let source = state.read(volume.id, block, token, passes);
                match source {
                    Source::Cached(..) => hits += 1,
                    Source::Fill(taken) => evicted += u64::from(taken.evicted.is_some()),
                    Source::Origin => {}
                }
                source
            })
            .collect();
        // A failure is noted.
        let _ = self.write_entries(state);
        Counters::add(&volume.counters.hits, hits);
        Counters::add(&volume.counters.evictions, evicted);
        let misses = sources.len() as u64 - hits;
        Counters::add(&volume.counters.misses, misses);
        if passes {
            Counters::add(&volume.counters.bypassed, misses);
        }
        (sources, token)
    }

    fn read_sources(
        &self,
        volume: &Volume,
        buffer: &mut [u8],
        offset: u64,
        sources: &[Source],
        token: Token,
    ) -> io::Result<()> {
        let first = offset / BLOCK as u64;
        let mut done = 0;
        while done < sources.len() {
            let block = first + done as u64;
            let run = match sources[done] {
                Source::Cached(slot, expected) => {
                    let run = adjoining(&sources[done..]);
                    let into = part(buffer, offset, block..block + run as u64);
                    let disk = |into: &mut [u8], slot| self.read_device(into, slot).is_ok();
                    if !read_adjoining(into, &sources[done..done + run], disk) {
                        let into = part(buffer, offset, block..block + 1);
                        self.read_cached(volume, into, offset, (block, slot, expected))?;
                        done += 1;
                        continue;
                    }
                    run
                }
                Source::Fill(_) | Source::Origin => {
                    let rest = sources[done..].iter().take(RUN);
                    let missed = |source: &&Source| !matches!(source, Source::Cached(..));
                    let run = rest.take_while(missed).count();
                    let blocks = block..block + run as u64;
                    let into = part(buffer, offset, blocks.clone());
                    self.read_missed(volume, into, offset, blocks, token)?;
                    run
                }
            };
            done += run;
        }
        Ok(())
    }

    /// Logs that the device did not return a block: of one that dies not each of many.
    pub(super) fn note_unreadable(&self, error: &io::Error) {
        let count = self.unreadable.fetch_add(1, Ordering::Relaxed) + 1;
        if count.is_power_of_two() {
            log::warn!(
                "Could not read a block from the cache device, {count} since the start: {error}"
            );
        }
    }

    /// Reads a cached block, from the origin if its data are not what was written.
    pub(super) fn read_cached(
        &self,
        volume: &Volume,
        into: &mut [u8],
        offset: u64,
        (block, slot, expected): (Block, Slot, u32),
    ) -> io::Result<()> {
        let mut data = [0; BLOCK];
        let skip = offset.saturating_sub(block * BLOCK as u64) as usize;
        let (mut slot, mut expected) = (slot, expected);
        loop {
            let read = self.read_device(&mut data, slot);
            if read.is_ok() && checksum(&data) == expected {
                into.copy_from_slice(&data[skip..skip + into.len()]);
                return Ok(());
            }
            if let Err(error) = &read {
                self.note_unreadable(error);
            }
            match self.replaced(volume, block, (slot, expected))? {
                Some(other) => (slot, expected) = other,
                None => return self.read_origin(volume, into, block * BLOCK as u64 + skip as u64),
            }
        }
    }

    /// Where a block is that was not as expected in a slot: in another slot, because it was written
    /// while it was read, or in the origin.
    fn replaced(
        &self,
        volume: &Volume,
        block: Block,
        (slot, expected): (Slot, u32),
    ) -> io::Result<Option<(Slot, u32)>> {
        let mut state = self.lock();
        let Some(found) = state.blocks.find(volume.id, block) else {
            return Ok(None);
        };
        let checksum = state.blocks.checksum(found);
        if (found, checksum) != (slot, Some(expected)) {
            return Ok(checksum.map(|checksum| (found, checksum)));
        }
        Counters::add(&volume.counters.corrupted, 1);
        if state.blocks.is_dirty(slot) {
            return Err(lost(volume, block));
        }
        state.forget(slot);
        let _ = self.write_entries(state);
        Ok(None)
    }

    /// Gives back the slots that an operation took and did not fill.
    pub(super) fn cancel_fills(&self, volume: &Volume, blocks: Range<Block>, token: Token) {
        let mut state = self.lock();
        for block in blocks {
            if let Some(slot) = state.cancel_fill(volume.id, block, token) {
                state.forget(slot);
            }
        }
        let _ = self.write_entries(state);
    }

    /// Reads blocks that are not cached, and caches those that have slots for it.
    fn read_missed(
        &self,
        volume: &Volume,
        into: &mut [u8],
        offset: u64,
        blocks: Range<Block>,
        token: Token,
    ) -> io::Result<()> {
        let skip = offset.saturating_sub(blocks.start * BLOCK as u64) as usize;
        let data = self.fill(volume, blocks, token)?;
        into.copy_from_slice(&data[skip..skip + into.len()]);
        Ok(())
    }

    /// Reads blocks from the origin, and caches those that have slots for it.
    pub(super) fn fill(
        &self,
        volume: &Volume,
        blocks: Range<Block>,
        token: Token,
    ) -> io::Result<Vec<u8>> {
        let start = blocks.start * BLOCK as u64;
        let mut data = vec![0; (blocks.end - blocks.start) as usize * BLOCK];
        let inside = data.len().min((volume.size() - start) as usize);
        self.read_origin(volume, &mut data[..inside], start)?;
        for (block, data) in blocks.zip(data.chunks_exact(BLOCK)) {
            self.store(volume, block, data, token);
        }
        Ok(data)
    }
}

/// Reads whole blocks whose slots follow one another. `false`: one of them has to be looked at on
/// its own, because the request has a part of it only, or its data are not as expected.
fn read_adjoining(
    into: &mut [u8],
    sources: &[Source],
    read: impl FnOnce(&mut [u8], Slot) -> bool,
) -> bool {
    let Some(Source::Cached(slot, _)) = sources.first() else {
        return false;
    };
    let whole = into.len() == sources.len() * BLOCK;
    whole && read(into, *slot) && are_expected(into, sources)
}

/// Whether whole blocks are those of slots.
fn are_expected(blocks: &[u8], sources: &[Source]) -> bool {
    let is_expected = |(data, source): (&[u8], &Source)| matches!(source, Source::Cached(_, expected) if checksum(data) == *expected);
    blocks.chunks_exact(BLOCK).zip(sources).all(is_expected)
}

/// How many of the first blocks are in slots that follow one another.
fn adjoining(sources: &[Source]) -> usize {
    let follows = |pair: &&[Source]| match (&pair[0], &pair[1]) {
        (Source::Cached(one, _), Source::Cached(next, _)) => one.checked_add(1) == Some(*next),
        _ => false,
    };
    1 + sources.windows(2).take_while(follows).count()
}

/// The part of a request's buffer that is of some blocks.
fn part(buffer: &mut [u8], offset: u64, blocks: Range<Block>) -> &mut [u8] {
    let start = (blocks.start * BLOCK as u64).saturating_sub(offset) as usize;
    let end = (blocks.end * BLOCK as u64 - offset) as usize;
    let end = end.min(buffer.len());
    &mut buffer[start..end]
}
