//! What the daemon shares with the process that serves a guest: memory, and no locks.
//!
//! * [`index`]: where the blocks of its volume are, which the daemon writes and the process reads;
//! * [`hits`]: which of them it read, the other way round.
//!
//! The process belongs to a guest. What it writes is checked like what a guest sends, and nothing in
//! these memories can be given another size.

pub mod hits;
pub mod index;
mod memory;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, MutexGuard};

use diffcache_base::locks::Unpoisoned;

use hits::Hits;
use index::{Facts, Index};

/// What is shared with a process.
pub struct Lent {
    /// Where blocks are.
    pub index: Index,
    hits: Mutex<Hits>,
}

impl Lent {
    /// Shares a volume with this many cached blocks at most.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(most: u32, facts: &Facts) -> io::Result<Self> {
        Ok(Self {
            index: Index::new(most, facts)?,
            hits: Mutex::new(Hits::new()?),
        })
    }

    /// The ring of hits.
    pub fn hits(&self) -> MutexGuard<'_, Hits> {
        self.hits.lock().unpoisoned()
    }

    /// Has the descriptors of the memories of the index and of hits used.
    pub fn with_files<T>(&self, work: impl FnOnce([BorrowedFd<'_>; 2]) -> T) -> T {
        work([self.index.file(), self.hits().file()])
    }
}
