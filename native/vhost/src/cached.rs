//! Reads of cached blocks from the device, without the daemon.
//!
//! They are read into memory of this process, and copied to the guest once they are known to be the
//! blocks: a slot may get a block of another guest meanwhile, which this one must not see.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::time::Instant;

use diffcache_ssdcache::device::format::{checksum, BLOCK};
use diffcache_ssdcache::shared::hits::{Hit, Hits};
use diffcache_ssdcache::shared::index::{Found, Index};
use rustix::io::{preadv2, ReadWriteFlags};

/// Bytes of a read that are read here, at most.
const LARGEST: usize = 64 << 10;

/// The cached blocks of a volume.
pub struct Cached {
    pub index: Index,
    hits: Hits,
    device: File,
    /// Where the data of the first slot are.
    data: u64,
    found: Vec<Found>,
    buffer: Vec<u8>,
}

impl Cached {
    pub fn new(index: Index, hits: Hits, device: File) -> Self {
        Self {
            data: index.facts().data,
            index,
            hits,
            device,
            found: Vec::new(),
            buffer: vec![0; LARGEST],
        }
    }

    /// The bytes of a range, if all its blocks are cached and in memory.
    pub fn read(&mut self, offset: u64, length: u32, begun: Instant) -> Option<&[u8]> {
        let blocks = touched(offset, length);
        let count = (blocks.end - blocks.start) as usize;
        if count * BLOCK > LARGEST {
            return None;
        }
        self.found.clear();
        for block in blocks.clone() {
            self.found.push(self.index.find(block)?);
        }
        let mut done = 0;
        while done < count {
            let run = adjoining(&self.found[done..]);
            let into = &mut self.buffer[done * BLOCK..(done + run) * BLOCK];
            let at = self.data + u64::from(self.found[done].slot) * BLOCK as u64;
            let length = into.len();
            let into = &mut [IoSliceMut::new(into)];
            let read = preadv2(&self.device, into, at, ReadWriteFlags::NOWAIT);
            if read != Ok(length) {
                return None;
            }
            done += run;
        }
        let mut data = self.buffer.chunks_exact(BLOCK).zip(&self.found);
        if !data.all(|(data, found)| checksum(data) == found.checksum) {
            return None;
        }
        if !self.found.iter().all(|found| self.index.is_current(found)) {
            return None;
        }
        self.hits.add(Hit {
            block: blocks.start,
            count: count as u64,
            took: begun.elapsed(),
        });
        let skip = (offset % BLOCK as u64) as usize;
        self.buffer.get(skip..skip + length as usize)
    }

    /// Has the daemon count what was read.
    pub fn publish(&self) {
        self.hits.publish();
    }
}

/// The blocks that a range touches.
fn touched(offset: u64, length: u32) -> Range<u64> {
    let end = offset + u64::from(length);
    offset / BLOCK as u64..end.div_ceil(BLOCK as u64)
}

/// How many of the first blocks are in slots that follow one another.
fn adjoining(found: &[Found]) -> usize {
    let follows = |pair: &&[Found]| pair[0].slot.checked_add(1) == Some(pair[1].slot);
    1 + found.windows(2).take_while(follows).count()
}
