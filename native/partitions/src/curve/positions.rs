//! A set of positions that grows at its end, with the rank of any position.
//!
//! One bit for each position, and counts of the bits of 512 positions, of 64 times as many, and so
//! on: a rank is the sum of at most 63 neighbouring counts of each level, which vector units add,
//! and a change touches one count of each level. With some 10^8 positions the counts stay in the
//! processor's second-level cache.

use std::hint::black_box;

const LINE: u64 = 512;
const WORDS: usize = 8;
const FAN_OUT: usize = 64;
const SHIFT: u32 = 6;

/// Positions from 0 on, each in the set or not.
#[derive(Debug, Default)]
pub struct Positions {
    bits: Vec<[u64; WORDS]>,
    levels: Vec<Vec<u32>>,
    end: u64,
    members: u64,
}

impl Positions {
    /// Returns how many positions are in the set.
    pub fn members(&self) -> u64 {
        self.members
    }

    /// Makes a set of as many positions, from 0 on.
    pub fn first(members: u64) -> Self {
        let mut found = Positions::default();
        for _ in 0..members {
            found.push();
        }
        found
    }

    /// Returns the position that is added next.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns how many positions before one are in the set.
    pub fn rank(&self, position: u64) -> u64 {
        if position >= self.end {
            return self.members;
        }
        let line = (position / LINE) as usize;
        let (word, bit) = (word_of(position), bit_of(position));
        let bits = &self.bits[line];
        let mut before: u64 = u64::from((bits[word] & (bit - 1)).count_ones());
        for each in &bits[..word] {
            before += u64::from(each.count_ones());
        }
        let mut at = line;
        for level in &self.levels {
            let first = at & !(FAN_OUT - 1);
            before += level[first..at].iter().map(|&n| u64::from(n)).sum::<u64>();
            at >>= SHIFT;
        }
        before
    }

    /// Adds the position after all others, and returns it.
    pub fn push(&mut self) -> u64 {
        let position = self.end;
        self.end += 1;
        let line = (position / LINE) as usize;
        if line == self.bits.len() {
            self.bits.push([0; WORDS]);
            self.grow(line);
        }
        self.bits[line][word_of(position)] |= bit_of(position);
        let mut at = line;
        for level in &mut self.levels {
            level[at] += 1;
            at >>= SHIFT;
        }
        self.members += 1;
        position
    }

    /// Makes room for a line in all levels; there is one with a single count.
    fn grow(&mut self, line: usize) {
        let mut at = line;
        for level in &mut self.levels {
            if at == level.len() {
                level.push(0);
            }
            at >>= SHIFT;
        }
        while self.levels.last().is_none_or(|top| top.len() > FAN_OUT) {
            let above = match self.levels.last() {
                Some(top) => top.chunks(FAN_OUT).map(|part| part.iter().sum()).collect(),
                None => vec![0],
            };
            self.levels.push(above);
        }
    }

    /// Reads what [`Positions::take`] needs of some positions soon, all at once.
    pub fn prefetch(&self, positions: &[u64]) {
        let mut seen = 0;
        for &position in positions {
            if let Some(bits) = self.bits.get((position / LINE) as usize) {
                seen ^= bits[0];
            }
        }
        black_box(seen);
    }

    /// Removes a position, and returns how many later ones are in the set.
    ///
    /// The position must be in the set.
    pub fn take(&mut self, position: u64) -> u64 {
        debug_assert!(self.contains(position));
        let line = (position / LINE) as usize;
        let (word, bit) = (word_of(position), bit_of(position));
        let bits = &mut self.bits[line];
        bits[word] &= !bit;
        // Without the position itself, which was counted.
        let mut before: u64 = u64::from((bits[word] & (bit - 1)).count_ones());
        for each in &bits[..word] {
            before += u64::from(each.count_ones());
        }
        let mut at = line;
        for level in &mut self.levels {
            let first = at & !(FAN_OUT - 1);
            before += level[first..at].iter().map(|&n| u64::from(n)).sum::<u64>();
            level[at] -= 1;
            at >>= SHIFT;
        }
        self.members -= 1;
        self.members - before
    }

    /// Returns whether a position is in the set.
    pub fn contains(&self, position: u64) -> bool {
        position < self.end
            && self.bits[(position / LINE) as usize][word_of(position)] & bit_of(position) != 0
    }
}

fn word_of(position: u64) -> usize {
    (position % LINE / 64) as usize
}

fn bit_of(position: u64) -> u64 {
    1 << (position % 64)
}
