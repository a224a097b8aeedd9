//! Reads that the process of a guest served itself, for the daemon to count.
//!
//! A ring that the process writes and never waits for: where the daemon looks too seldom, the oldest are
//! lost. The process may write anything: it can only have blocks of its own volume stay.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diffcache_partitions::Block;

use super::memory::Memory;

/// Reads that the ring has.
pub const ROOM: usize = 1 << 16;
/// Reads that are taken at once where nothing else bounds it: who makes them up delays others no longer.
pub const MOST: usize = 1 << 13;
const BITS: u32 = 40;
/// A process reads 64 KiB at once.
const COUNT_BITS: u32 = 4;
/// A unit of time, in nanoseconds.
const UNIT: u64 = 256;

/// A read that was served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Its first block.
    pub block: Block,
    /// How many blocks follow one another from there: 1 to [`MOST`](Self::MOST).
    pub count: u64,
    /// What it took.
    pub took: Duration,
}

impl Hit {
    /// Blocks of a read at most.
    pub const MOST: u64 = 1 << COUNT_BITS;

    fn encode(self) -> u64 {
        let units = (self.took.as_nanos() as u64 / UNIT).min((1 << (64 - BITS - COUNT_BITS)) - 1);
        let block = self.block & ((1 << BITS) - 1);
        block | ((self.count - 1) % Self::MOST) << BITS | units << (BITS + COUNT_BITS)
    }

    fn decode(word: u64) -> Self {
        Self {
            block: word & ((1 << BITS) - 1),
            count: (word >> BITS) % Self::MOST + 1,
            took: Duration::from_nanos((word >> (BITS + COUNT_BITS)) * UNIT),
        }
    }
}

/// The ring: a number of how many reads there were, and the last ones.
#[derive(Debug)]
pub struct Hits {
    memory: Memory,
    /// How many reads were seen, or written.
    count: u64,
}

impl Hits {
    /// Makes a ring.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new() -> io::Result<Self> {
        let memory = Memory::new("diffcache-hits", (ROOM + 1) * 8, false)?;
        Ok(Self { memory, count: 0 })
    }

    /// Opens a ring that another process made, to write to it.
    ///
    /// # Errors
    /// It is none.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let memory = Memory::open(file, true)?;
        let count = match memory.words() {
            [count, ring @ ..] if ring.len() >= ROOM => count.load(Ordering::Relaxed),
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok(Self { memory, count })
    }

    /// Its memory, for another process.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.memory.words()[1 + number as usize % ROOM]
    }

    /// Notes a read; it is [published](Self::publish) later.
    pub fn add(&mut self, hit: Hit) {
        self.place(self.count)
            .store(hit.encode(), Ordering::Relaxed);
        self.count = self.count.wrapping_add(1);
    }

    /// Has the daemon see the reads that were noted.
    pub fn publish(&self) {
        self.memory.words()[0].store(self.count, Ordering::Release);
    }

    /// Takes the next reads that are not lost, at most this many.
    pub fn take(&mut self, most: usize) -> Vec<Hit> {
        let written = self.memory.words()[0].load(Ordering::Acquire);
        let new = written.wrapping_sub(self.count);
        let lost = new.saturating_sub(ROOM as u64);
        self.count = self.count.wrapping_add(lost);
        let number = (new - lost).min(most as u64);
        let word = |at: u64| {
            self.place(self.count.wrapping_add(at))
                .load(Ordering::Relaxed)
        };
        let hits = (0..number).map(|at| Hit::decode(word(at))).collect();
        self.count = self.count.wrapping_add(number);
        hits
    }
}
