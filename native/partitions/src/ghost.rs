//! Which blocks were referenced or evicted not long ago, without their data.
//!
//! Four bytes for each block: 16 entries share a bucket, and an entry is a fingerprint, the age in
//! sixty-fourths of the window, and a count. A block can be taken for another with a chance of
//! 1 in 65,000; where a bucket is full, its oldest entry goes.

use std::ops::Range;

use crate::index::mix;

const WAYS: usize = 16;
/// Entries that a bucket has to hold on average.
const LOAD: u32 = 14;
const PARTS: u32 = 64;
const COUNT_BITS: u32 = 4;
const STAMP_BITS: u32 = 8;
/// References to a block are counted up to this number.
pub const MAX_COUNT: u32 = (1 << COUNT_BITS) - 1;
const STAMPS: u32 = 1 << STAMP_BITS;

/// A set that remembers its latest `window` additions.
#[derive(Debug)]
pub struct Ghost {
    buckets: Vec<[u32; WAYS]>,
    window: u32,
    seed: u64,
    stamp: u32,
    added: u32,
}

impl Ghost {
    /// An empty set; a window of 0 remembers nothing.
    #[must_use]
    pub fn new(window: u32, seed: u64) -> Self {
        Self {
            buckets: vec![[0; WAYS]; window.div_ceil(LOAD) as usize],
            window,
            seed,
            stamp: 0,
            added: 0,
        }
    }

    /// Changes the window. What is remembered stays if the table suits both.
    pub fn resize(&mut self, window: u32) {
        if window == self.window {
            return;
        }
        let needed = window.div_ceil(LOAD) as usize;
        if needed > self.buckets.len() || needed < self.buckets.len() / 2 {
            *self = Self::new(window, self.seed);
        }
        // A longer window must not bring back what has expired.
        self.sweep(0..self.buckets.len());
        self.window = window;
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<[u32; WAYS]>()
    }

    /// Counts a key, as if it were new if it is not remembered, and returns its count.
    pub fn count(&mut self, key: u64) -> u32 {
        if self.window == 0 {
            return 1;
        }
        let count = self.take(key).map_or(1, |count| (count + 1).min(MAX_COUNT));
        let (bucket, print) = self.place(key);
        let entry = print | self.stamp << COUNT_BITS | count;
        let way = self.oldest(bucket);
        self.buckets[bucket][way] = entry;
        self.advance();
        count
    }

    /// Forgets a key, and returns its count if it was remembered.
    pub fn take(&mut self, key: u64) -> Option<u32> {
        if self.window == 0 {
            return None;
        }
        let (bucket, print) = self.place(key);
        let alive = |&entry: &u32| same(entry, print) && self.age(entry) <= self.oldest_age();
        let way = self.buckets[bucket].iter().position(alive)?;
        let count = self.buckets[bucket][way] & MAX_COUNT;
        self.buckets[bucket][way] = 0;
        Some(count)
    }

    /// The bucket of a key and its fingerprint, in the upper bits.
    fn place(&self, key: u64) -> (usize, u32) {
        let hash = mix(key ^ self.seed);
        let bucket = ((hash >> 32) * self.buckets.len() as u64) >> 32;
        (bucket as usize, (hash as u32) << (COUNT_BITS + STAMP_BITS))
    }

    /// The way to overwrite: an empty one, or the oldest.
    fn oldest(&self, bucket: usize) -> usize {
        let ages = self.buckets[bucket].map(|entry| match entry {
            0 => u32::MAX,
            _ => self.age(entry),
        });
        let oldest = ages.iter().enumerate().max_by_key(|&(_, age)| age);
        oldest.map_or(0, |(way, _)| way)
    }

    fn age(&self, entry: u32) -> u32 {
        self.stamp.wrapping_sub(entry >> COUNT_BITS) % STAMPS
    }

    /// Additions with the same stamp.
    fn step(&self) -> u32 {
        self.window.div_ceil(PARTS).max(1)
    }

    fn oldest_age(&self) -> u32 {
        self.window / self.step()
    }

    fn advance(&mut self) {
        self.added += 1;
        if self.added < self.step() {
            return;
        }
        self.added = 0;
        self.stamp = (self.stamp + 1) % STAMPS;
        // Each bucket is swept before stamps come round again.
        let (len, parts) = (self.buckets.len(), PARTS as usize);
        let part = self.stamp as usize % parts;
        self.sweep(len * part / parts..len * (part + 1) / parts);
    }

    /// Drops the expired entries of some buckets.
    fn sweep(&mut self, buckets: Range<usize>) {
        for bucket in buckets {
            for way in 0..WAYS {
                if self.age(self.buckets[bucket][way]) > self.oldest_age() {
                    self.buckets[bucket][way] = 0;
                }
            }
        }
    }
}

fn same(entry: u32, print: u32) -> bool {
    entry != 0 && entry >> (COUNT_BITS + STAMP_BITS) == print >> (COUNT_BITS + STAMP_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_set_remembers_exactly_its_window() {
        let mut ghost = Ghost::new(10, 1);
        for key in 0..11 {
            assert_eq!(1, ghost.count(key));
        }
        assert_eq!(None, ghost.take(0));
        assert_eq!(Some(1), ghost.take(1));
        assert_eq!(None, ghost.take(1));
        assert_eq!(2, ghost.count(10));
        assert_eq!(3, ghost.count(10));
    }

    #[test]
    fn a_large_set_remembers_most_of_its_window_and_nothing_long_after_it() {
        let window = 100_000;
        let mut ghost = Ghost::new(window, 7);
        let mistaken = (0..500_000).filter(|&key| ghost.count(key) > 1).count();
        // 1 in 65,000 was announced.
        assert!(mistaken < 24, "{mistaken} keys were taken for others");
        let alive = |from: u64, to: u64, ghost: &mut Ghost| {
            (from..to).filter(|&key| ghost.take(key).is_some()).count()
        };
        assert!(alive(400_000, 500_000, &mut ghost) > 90_000);
        assert_eq!(0, alive(300_000, 398_000, &mut ghost));
    }

    #[test]
    fn a_longer_window_does_not_bring_back_what_has_expired() {
        let mut ghost = Ghost::new(12, 1);
        ghost.resize(4);
        for key in 0..6 {
            ghost.count(key);
        }
        ghost.resize(12);
        assert_eq!(None, ghost.take(0));
        assert_eq!(Some(1), ghost.take(2));
    }
}
