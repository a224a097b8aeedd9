//! Reads of cached blocks from the device, without the daemon.
//!
//! They are read into memory of this process, and copied to the guest once they are known to be the
//! blocks: a slot may get a block of another guest meanwhile, which this one must not see.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use diffcache_nbd::server::pace::Tries;
use diffcache_nbd::server::ring::{Disk, Ring, LARGEST, PIECES};
use diffcache_ssdcache::device::format::{checksum, BLOCK};
use diffcache_ssdcache::shared::hits::{Hit, Hits};
use diffcache_ssdcache::shared::index::{Found, Index};
use rustix::io::{preadv2, ReadWriteFlags};

/// Where the blocks of a read are.
#[derive(Debug, Clone, Default)]
pub struct Sought {
    offset: u64,
    length: u32,
    found: Vec<Found>,
}

impl Sought {
    /// The blocks that it touches.
    fn blocks(&self) -> Range<u64> {
        let end = self.offset + u64::from(self.length);
        self.offset / BLOCK as u64..end.div_ceil(BLOCK as u64)
    }
}

/// The cached blocks of a volume.
pub struct Cached<T> {
    /// Where they are.
    pub index: Index,
    /// Reads that are under way.
    pub reads: Reads<T>,
    hits: Hits,
    device: File,
    /// Where the data of the first slot are.
    data: u64,
    sought: Sought,
    tries: Tries,
    is_tried: bool,
    buffer: Vec<u8>,
}

/// Reads past the memory of the system, with what belongs to them; none: the kernel forbids that.
pub struct Reads<T>(Option<Ring<(T, Sought, Instant)>>);

/// A read that ended.
pub type Ended<'a, T> = ((T, Sought, Instant), Option<&'a [u8]>);

impl<T> Default for Reads<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Reads<T> {
    /// `waker` is what has [`wait`](Self::wait) return, besides the end of a read.
    pub fn new([direct, buffered, waker]: [BorrowedFd<'_>; 3]) -> Self {
        let ring = Ring::new(Disk { direct, buffered }, waker);
        let warn = |error: &io::Error| log::warn!("Blocks are read by the daemon: {error}");
        Self(ring.inspect_err(warn).ok())
    }

    /// Whether some are under way.
    pub fn is_busy(&self) -> bool {
        self.0.as_ref().is_some_and(Ring::is_reading)
    }

    /// Begins those that were added, and waits until one ends; also for the waker, if that is wanted.
    pub fn wait(&mut self, is_woken: bool) -> io::Result<()> {
        let Some(ring) = &mut self.0 else {
            return Ok(());
        };
        if is_woken {
            ring.watch();
        }
        ring.wait()
    }

    /// Begins those that were added.
    pub fn submit(&mut self) -> io::Result<()> {
        self.0.as_mut().map_or(Ok(()), Ring::submit)
    }

    /// The next one that ended, and its bytes if they could be read.
    pub fn next(&mut self) -> Option<Ended<'_, T>> {
        self.0
            .as_mut()?
            .next_read()
            .map(|read| (read.item, read.bytes))
    }
}

impl<T> Cached<T> {
    pub fn new(index: Index, hits: Hits, device: File, reads: Reads<T>) -> Self {
        Self {
            data: index.facts().data,
            index,
            reads,
            hits,
            device,
            sought: Sought::default(),
            tries: Tries::default(),
            is_tried: false,
            buffer: vec![0; LARGEST],
        }
    }

    /// Looks for a range. `false`: not all of it is cached.
    pub fn seek(&mut self, offset: u64, length: u32) -> bool {
        let sought = &mut self.sought;
        (sought.offset, sought.length) = (offset, length);
        sought.found.clear();
        let blocks = sought.blocks();
        if blocks.end - blocks.start > (LARGEST / BLOCK) as u64 {
            return false;
        }
        for block in blocks {
            match self.index.find(block) {
                Some(found) => sought.found.push(found),
                None => return false,
            }
        }
        self.is_tried = self.reads.0.is_none() || self.tries.is_due();
        true
    }

    /// The bytes of the range that was found, if they are in the memory of the system.
    pub fn read_now(&mut self, begun: Instant) -> Option<&[u8]> {
        if !self.is_tried {
            return None;
        }
        let mut at = 0;
        let mut is_there = true;
        for (offset, length) in pieces(self.data, &self.sought.found) {
            let into = &mut [IoSliceMut::new(&mut self.buffer[at..at + length])];
            let read = preadv2(&self.device, into, offset, ReadWriteFlags::NOWAIT);
            is_there &= read == Ok(length);
            at += length;
        }
        self.tries.count(is_there);
        let Self { buffer, sought, .. } = self;
        let bytes = Some(&buffer[..at]).filter(|_| is_there)?;
        check(&self.index, &mut self.hits, (sought, begun), bytes)
    }

    /// Begins to read the range that was found; returns what belongs to it if that is not possible now.
    pub fn begin(&mut self, item: T, begun: Instant) -> Option<T> {
        let pieces: Vec<_> = pieces(self.data, &self.sought.found).collect();
        let Some(ring) = self.reads.0.as_mut().filter(|_| pieces.len() <= PIECES) else {
            return Some(item);
        };
        // Looking for the bytes has begun to read them into memory.
        let item = (item, self.sought.clone(), begun);
        let left = ring.begin((&pieces, self.is_tried), item);
        left.map(|(item, _, _)| item)
    }

    /// The bytes of a range that was read, if they are those that were sought.
    pub fn take<'a>(
        &mut self,
        (sought, begun): (&Sought, Instant),
        bytes: Option<&'a [u8]>,
    ) -> Option<&'a [u8]> {
        check(&self.index, &mut self.hits, (sought, begun), bytes?)
    }

    /// Has the daemon count what was read.
    pub fn publish(&self) {
        self.hits.publish();
    }
}

/// The part of whole blocks that was sought, if they are these blocks.
fn check<'a>(
    index: &Index,
    hits: &mut Hits,
    (sought, begun): (&Sought, Instant),
    bytes: &'a [u8],
) -> Option<&'a [u8]> {
    let mut data = bytes.chunks_exact(BLOCK).zip(&sought.found);
    let is_expected = data.all(|(data, found)| checksum(data) == found.checksum);
    if !is_expected || !sought.found.iter().all(|found| index.is_current(found)) {
        return None;
    }
    hits.add(Hit {
        block: sought.blocks().start,
        count: sought.found.len() as u64,
        took: begun.elapsed(),
    });
    let skip = (sought.offset % BLOCK as u64) as usize;
    bytes.get(skip..skip + sought.length as usize)
}

/// Where on the device blocks are: offsets and lengths of slots that follow one another.
fn pieces(data: u64, found: &[Found]) -> impl Iterator<Item = (u64, usize)> + '_ {
    let follows = |one: &Found, next: &Found| one.slot.checked_add(1) == Some(next.slot);
    let runs = found.chunk_by(follows);
    runs.map(move |run| {
        let at = data + u64::from(run[0].slot) * BLOCK as u64;
        (at, run.len() * BLOCK)
    })
}
