//! The last position of each block: a hash table with open addressing.

use std::hint::black_box;

use crate::Block;

const EMPTY: u64 = u64::MAX;
const LEAST: usize = 16;
/// Blocks whose places are looked at before the first of them is needed.
pub const AHEAD: usize = 32;

#[derive(Clone, Copy)]
struct Entry {
    block: Block,
    position: u64,
}

const FREE: Entry = Entry {
    block: 0,
    position: EMPTY,
};

/// Positions by block.
pub struct Table {
    entries: Vec<Entry>,
    used: usize,
    seed: u64,
}

impl Default for Table {
    fn default() -> Self {
        Table::with_seed(0x9e37_79b9_7f4a_7c15)
    }
}

impl Table {
    /// Makes an empty table; traces that are made for one seed are harmless with another.
    pub fn with_seed(seed: u64) -> Self {
        Table {
            entries: Vec::new(),
            used: 0,
            seed,
        }
    }

    /// Returns how many blocks have a position.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Returns whether no block has a position.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Reads the places of blocks that are needed soon, all at once.
    ///
    /// The memory answers several reads in the time of one.
    pub fn prefetch(&self, blocks: &[Block]) {
        if self.entries.len() > AHEAD * LEAST {
            let mut seen = 0;
            for &block in blocks {
                seen ^= self.entries[self.home(block)].block;
            }
            black_box(seen);
        }
    }

    /// Sets the position of a block; returns the one before.
    pub fn replace(&mut self, block: Block, position: u64) -> Option<u64> {
        if (self.used + 1) * 4 > self.entries.len() * 3 {
            self.grow();
        }
        let at = self.find(block);
        let entry = &mut self.entries[at];
        let before = std::mem::replace(&mut entry.position, position);
        if before != EMPTY {
            return Some(before);
        }
        entry.block = block;
        self.used += 1;
        None
    }

    /// Replaces all positions by others.
    pub fn renumber(&mut self, number: impl Fn(u64) -> u64) {
        let used = self.entries.iter_mut();
        for entry in used.filter(|entry| entry.position != EMPTY) {
            entry.position = number(entry.position);
        }
    }

    /// Forgets a block; returns its position.
    pub fn remove(&mut self, block: Block) -> Option<u64> {
        if self.used == 0 {
            return None;
        }
        let mut hole = self.find(block);
        let position = self.entries[hole].position;
        if position == EMPTY {
            return None;
        }
        // Move back what was put beyond the place that is free now.
        let mask = self.entries.len() - 1;
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let entry = self.entries[next];
            if entry.position == EMPTY {
                break;
            }
            let distance = next.wrapping_sub(self.home(entry.block)) & mask;
            if distance >= (next.wrapping_sub(hole) & mask) {
                self.entries[hole] = entry;
                hole = next;
            }
        }
        self.entries[hole] = FREE;
        self.used -= 1;
        Some(position)
    }

    /// Returns where a block is, or would be.
    fn find(&self, block: Block) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(block);
        while self.entries[at].position != EMPTY && self.entries[at].block != block {
            at = (at + 1) & mask;
        }
        at
    }

    fn home(&self, block: Block) -> usize {
        mix(block, self.seed) as usize & (self.entries.len() - 1)
    }

    fn grow(&mut self) {
        let larger = (self.entries.len() * 2).max(LEAST);
        let old = std::mem::replace(&mut self.entries, vec![FREE; larger]);
        for entry in old {
            if entry.position != EMPTY {
                let at = self.find(entry.block);
                self.entries[at] = entry;
            }
        }
    }
}

/// Returns a hash: both halves of a product of 128 bits.
pub fn mix(value: u64, seed: u64) -> u64 {
    let product = u128::from(value ^ seed) * 0xa076_1d64_78bd_642f_u128;
    ((product >> 64) as u64) ^ (product as u64)
}
