//! The look-up structure of one volume: block number to slot.
//!
//! Linear hashing (Litwin, 1980) with chains through the slots: it grows and shrinks by one bucket
//! at a time, so that no request waits while a large table is built anew, and takes two bytes for
//! each block besides the chain.

use std::hint::black_box;

use crate::slots::{Slot, Slots, NONE};
use crate::Block;

/// Blocks for each bucket.
const LOAD: u32 = 2;
/// Buckets that are allocated at a time.
const SEGMENT: u32 = 1024;
/// Buckets that are looked at before the last of them is used.
const AHEAD: u32 = 32;

/// How far the blocks of a volume were visited.
#[derive(Debug, Default)]
pub struct Cursor {
    next: u32,
    buckets: u32,
}

/// The slots of one volume's blocks.
#[derive(Debug)]
pub struct Index {
    segments: Vec<Box<[Slot]>>,
    buckets: u32,
    len: u32,
    seed: u64,
}

impl Index {
    /// An empty index. Guests choose block numbers: with a secret `seed` they cannot choose such
    /// that are all in one chain.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            segments: vec![segment()],
            buckets: 1,
            len: 0,
            seed,
        }
    }

    /// Number of blocks.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.segments.len() * SEGMENT as usize * size_of::<Slot>()
            + self.segments.capacity() * size_of::<Box<[Slot]>>()
    }

    /// The slot of a block.
    #[must_use]
    pub fn find(&self, slots: &Slots, block: Block) -> Option<Slot> {
        let mut slot = self.head(self.bucket(block));
        while slot != NONE && slots.block(slot) != block {
            slot = slots.chain(slot);
        }
        (slot != NONE).then_some(slot)
    }

    /// Reads what [`find`](Self::find) and [`insert`](Self::insert) will, of blocks that are added
    /// next: the memory answers several reads in the time of one.
    pub fn prefetch(&self, slots: &Slots, blocks: &[Block]) {
        let divided = self.buckets..self.buckets + blocks.len() as u32 / LOAD;
        let buckets = blocks.iter().map(|block| self.bucket(*block));
        self.follow(slots, buckets.chain(divided.map(buddy)));
    }

    /// Reads what the next calls of [`last`](Self::last) will.
    fn prefetch_last(&self, slots: &Slots) {
        self.follow(slots, self.buckets.saturating_sub(AHEAD)..self.buckets);
    }

    fn follow(&self, slots: &Slots, buckets: impl Iterator<Item = u32>) {
        let known = buckets.filter(|bucket| *bucket < self.buckets);
        let mut places: Vec<Slot> = known.map(|bucket| self.head(bucket)).collect();
        let mut seen = 0;
        for _ in 0..=LOAD {
            for place in places.iter_mut().filter(|place| **place != NONE) {
                seen ^= slots.block(*place);
                *place = slots.chain(*place);
            }
        }
        black_box(seen);
    }

    /// The slots of some more buckets; none: there are no more. A slot that is here from the first
    /// call to the last is returned at least once, whatever is added and removed in between.
    pub fn visit(&self, slots: &Slots, cursor: &mut Cursor, buckets: u32) -> Option<Vec<Slot>> {
        if cursor.next >= self.buckets {
            return None;
        }
        // What was in buckets that are gone is in such that were visited before, or will be.
        let merged = (self.buckets..cursor.buckets).map(|gone| {
            let mut into = gone;
            while into >= self.buckets {
                into = buddy(into);
            }
            into
        });
        let next = cursor.next;
        let again = merged.filter(|bucket| *bucket < next);
        let end = self.buckets.min(next.saturating_add(buckets));
        let mut found = Vec::new();
        for bucket in again.chain(next..end) {
            let mut slot = self.head(bucket);
            while slot != NONE {
                found.push(slot);
                slot = slots.chain(slot);
            }
        }
        *cursor = Cursor {
            next: end,
            buckets: self.buckets,
        };
        Some(found)
    }

    /// Adds a slot; its block is not here yet.
    pub fn insert(&mut self, slots: &mut Slots, slot: Slot) {
        let bucket = self.bucket(slots.block(slot));
        slots.set_chain(slot, self.head(bucket));
        self.set_head(bucket, slot);
        self.len += 1;
        if self.len > self.buckets.saturating_mul(LOAD) {
            self.split(slots);
        }
    }

    /// Removes a slot that is here.
    pub fn remove(&mut self, slots: &mut Slots, slot: Slot) {
        let bucket = self.bucket(slots.block(slot));
        let after = slots.chain(slot);
        let mut before = self.head(bucket);
        if before == slot {
            self.set_head(bucket, after);
        } else {
            while slots.chain(before) != slot {
                before = slots.chain(before);
            }
            slots.set_chain(before, after);
        }
        self.len -= 1;
        // Half of what makes it grow, so that it does not go back and forth.
        if self.buckets > 1 && self.len < (self.buckets - 1) / 2 * LOAD {
            self.merge(slots);
        }
    }

    /// Any of its slots. Gives empty buckets at the end back, so that nothing looks at them again.
    pub fn last(&mut self, slots: &mut Slots) -> Option<Slot> {
        if self.len % AHEAD == 0 {
            self.prefetch_last(slots);
        }
        while self.head(self.buckets - 1) == NONE && self.buckets > 1 {
            self.merge(slots);
        }
        let slot = self.head(self.buckets - 1);
        (slot != NONE).then_some(slot)
    }

    /// Divides the bucket whose turn it is.
    fn split(&mut self, slots: &mut Slots) {
        let made = self.buckets;
        if made % SEGMENT == 0 {
            self.segments.push(segment());
        }
        self.buckets += 1;
        let source = buddy(made);
        let mut slot = self.head(source);
        let (mut stays, mut moves) = (NONE, NONE);
        while slot != NONE {
            let next = slots.chain(slot);
            let list = if self.bucket(slots.block(slot)) == made {
                &mut moves
            } else {
                &mut stays
            };
            slots.set_chain(slot, *list);
            *list = slot;
            slot = next;
        }
        self.set_head(source, stays);
        self.set_head(made, moves);
    }

    /// Undoes the last division.
    fn merge(&mut self, slots: &mut Slots) {
        self.buckets -= 1;
        let gone = self.buckets;
        let target = buddy(gone);
        let mut slot = self.head(gone);
        while slot != NONE {
            let next = slots.chain(slot);
            slots.set_chain(slot, self.head(target));
            self.set_head(target, slot);
            slot = next;
        }
        self.set_head(gone, NONE);
        if gone % SEGMENT == 0 {
            self.segments.pop();
        }
    }

    fn bucket(&self, block: Block) -> u32 {
        let hash = mix(block ^ self.seed) as u32;
        let bucket = hash & (self.buckets.next_power_of_two() - 1);
        if bucket < self.buckets {
            bucket
        } else {
            buddy(bucket)
        }
    }

    fn head(&self, bucket: u32) -> Slot {
        self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize]
    }

    fn set_head(&mut self, bucket: u32, slot: Slot) {
        self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize] = slot;
    }
}

fn segment() -> Box<[Slot]> {
    vec![NONE; SEGMENT as usize].into_boxed_slice()
}

/// The bucket that `bucket` was divided from: without its highest bit.
fn buddy(bucket: u32) -> u32 {
    bucket ^ 1 << (31 - bucket.leading_zeros())
}

/// Mixes the bits of a number (the finisher of MurmurHash3).
pub(super) fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    x = (x ^ x >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^ x >> 33
}
