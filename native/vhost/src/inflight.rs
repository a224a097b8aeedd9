//! Which requests are under way, in memory that QEMU keeps when this process ends: the next one repeats
//! them.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, Ordering};

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use vm_memory::Bytes;

use crate::memory::{bytes_of, map, Mapped};
use crate::message::invalid;
use crate::ring::LARGEST;

const ALIGNMENT: usize = 64;
/// Of a ring: how far answers came, then a state for each descriptor.
const HEAD: usize = 16;
const STATE: usize = 16;
const USED: usize = 14;
const LAST: usize = 12;
const VERSION_AT: usize = 8;
/// Of a state.
const NEXT: usize = 6;
const COUNTER: usize = 8;

/// The memory, for some rings of one size.
pub struct Inflight {
    mapped: Mapped,
    rings: usize,
    size: usize,
    counter: u64,
}

impl Inflight {
    /// Bytes of a ring's part.
    fn part(size: u16) -> usize {
        (HEAD + STATE * usize::from(size)).next_multiple_of(ALIGNMENT)
    }

    /// Makes the memory; returns it and its size.
    pub fn make(rings: u16, size: u16) -> io::Result<(OwnedFd, u64)> {
        if rings == 0 || size == 0 || size > LARGEST {
            return Err(invalid("rings have a wrong size"));
        }
        let length = (usize::from(rings) * Self::part(size)) as u64;
        let file = memfd_create("diffcache-inflight", MemfdFlags::CLOEXEC)?;
        ftruncate(&file, length)?;
        Ok((file, length))
    }

    /// Maps it.
    pub fn open(
        file: OwnedFd,
        (offset, length): (u64, u64),
        rings: u16,
        size: u16,
    ) -> io::Result<Self> {
        let needed = usize::from(rings) * Self::part(size);
        if size == 0 || size > LARGEST || length < needed as u64 {
            return Err(invalid("the memory of requests under way has a wrong size"));
        }
        let inflight = Self {
            mapped: map(file, offset, length)?,
            rings: usize::from(rings),
            size: usize::from(size),
            counter: 0,
        };
        for ring in 0..inflight.rings {
            let at = inflight.at(ring);
            inflight.put(at + VERSION_AT, 1u16)?;
            inflight.put(at + VERSION_AT + 2, size)?;
        }
        Ok(inflight)
    }

    fn at(&self, ring: usize) -> usize {
        ring * Self::part(self.size as u16)
    }

    fn state(&self, ring: usize, head: u16) -> usize {
        self.at(ring) + HEAD + STATE * usize::from(head)
    }

    fn get<T: vm_memory::ByteValued>(&self, at: usize) -> io::Result<T> {
        bytes_of(&self.mapped)
            .read_obj(at)
            .map_err(io::Error::other)
    }

    fn put<T: vm_memory::ByteValued>(&self, at: usize, value: T) -> io::Result<()> {
        bytes_of(&self.mapped)
            .write_obj(value, at)
            .map_err(io::Error::other)
    }

    fn has(&self, ring: usize, head: u16) -> bool {
        ring < self.rings && usize::from(head) < self.size
    }

    /// Notes a request before anything is done for it.
    pub fn begin(&mut self, ring: usize, head: u16) -> io::Result<()> {
        if !self.has(ring, head) {
            return Err(invalid("a ring is larger than was said"));
        }
        let at = self.state(ring, head);
        self.put(at + COUNTER, self.counter)?;
        self.counter += 1;
        fence(Ordering::Release);
        self.put(at, 1u8)
    }

    /// Notes that a request is about to be answered.
    pub fn answer(&self, ring: usize, head: u16) -> io::Result<()> {
        let last: u16 = self.get(self.at(ring) + LAST)?;
        self.put(self.state(ring, head) + NEXT, last)?;
        self.put(self.at(ring) + LAST, head)
    }

    /// Notes that it was, so that the ring has so many answers.
    pub fn end(&self, ring: usize, head: u16, used: u16) -> io::Result<()> {
        fence(Ordering::Release);
        self.put(self.state(ring, head), 0u8)?;
        fence(Ordering::Release);
        self.put(self.at(ring) + USED, used)
    }

    /// The requests of a ring with so many answers that were begun and not answered, in their order.
    pub fn under_way(&mut self, ring: usize, used: u16) -> io::Result<Vec<u16>> {
        if ring >= self.rings {
            return Ok(Vec::new());
        }
        if self.get::<u16>(self.at(ring) + USED)? != used {
            // The last one was answered, and the process ended before that was noted.
            let last: u16 = self.get(self.at(ring) + LAST)?;
            if self.has(ring, last) {
                self.put(self.state(ring, last), 0u8)?;
            }
            self.put(self.at(ring) + USED, used)?;
        }
        let mut found = Vec::new();
        for head in 0..self.size as u16 {
            let at = self.state(ring, head);
            if self.get::<u8>(at)? != 0 {
                found.push((self.get::<u64>(at + COUNTER)?, head));
            }
        }
        found.sort_unstable();
        if let Some((last, _)) = found.last() {
            self.counter = self.counter.max(last.wrapping_add(1));
        }
        Ok(found.into_iter().map(|(_, head)| head).collect())
    }
}
