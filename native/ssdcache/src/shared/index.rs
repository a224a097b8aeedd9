//! Where the valid blocks of a volume are, for the process of a guest to read them itself.
//!
//! A table of buckets, each with a sequence number that is odd while the bucket is changed (a seqlock). A
//! block is in one of two buckets, or in none: the table forgets blocks where it has no room, and who
//! does not find a block asks the daemon. Of one that is found, the slot is read, and the bucket looked
//! at again: if it did not change, the slot had the block all the time, because its entry is removed
//! before anything else is written to the slot.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{fence, AtomicU32, Ordering};
use std::sync::Arc;

use diffcache_partitions::{Block, Mirror, Slot};

use super::memory::Memory;
use crate::rates::{Rates, COUNT};

/// Entries of a bucket, which is a line of a processor's cache.
const ENTRIES: usize = 5;
const BUCKET: usize = 16;
/// Of a bucket: its sequence, then all blocks, all slots, all checksums.
const BLOCKS: usize = 1;
const SLOTS: usize = BLOCKS + ENTRIES;
const CHECKSUMS: usize = SLOTS + ENTRIES;
/// The slot of an entry without a block.
const NONE: u32 = Slot::MAX;
/// Bytes in front of the buckets, and halves of words there.
const HEAD: usize = 4096;
const HEAD_HALVES: usize = HEAD / 4;
/// Entries for each block that the volume may have: so few are forgotten.
const LOAD: usize = 4;

/// Words of the head.
const IS_OPEN: usize = 0;
const SIZE: usize = 1;
const DATA: usize = 2;
const EXPORT: usize = 3;
const SERIAL: usize = 5;
const RATES: usize = 8;
/// Bytes of a volume's serial number.
pub const SERIAL_BYTES: usize = 24;

/// What stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// Where on the device the data of the first slot are.
    pub data: u64,
    /// The name of the volume's export, as a number.
    pub export: u128,
    /// What guests know the volume by; zeroes follow.
    pub serial: [u8; SERIAL_BYTES],
}

/// A block that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its slot.
    pub slot: Slot,
    /// Checksum of its data.
    pub checksum: u32,
    bucket: usize,
    sequence: u32,
}

/// The index of a volume.
#[derive(Debug, Clone)]
pub struct Index {
    memory: Arc<Memory>,
}

impl Index {
    /// Makes the index of a volume with this many cached blocks at most; it is not open.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(most: u32, facts: &Facts) -> io::Result<Self> {
        let buckets = most as usize / LOAD + 1;
        let length = (HEAD + buckets * BUCKET * 4).next_multiple_of(HEAD);
        let memory = Memory::new("diffcache-index", length, true)?;
        let words = memory.words();
        let set = |at: usize, value: u64| words[at].store(value, Ordering::Relaxed);
        set(DATA, facts.data);
        set(EXPORT, (facts.export >> 64) as u64);
        set(EXPORT + 1, facts.export as u64);
        for (at, bytes) in facts.serial.chunks_exact(8).enumerate() {
            set(
                SERIAL + at,
                bytes
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte)),
            );
        }
        let index = Self {
            memory: Arc::new(memory),
        };
        for bucket in 0..index.buckets() {
            let entries = &index.bucket(bucket)[SLOTS..CHECKSUMS];
            entries
                .iter()
                .for_each(|slot| slot.store(NONE, Ordering::Relaxed));
        }
        Ok(index)
    }

    /// Opens an index that another process made.
    ///
    /// # Errors
    /// It is none.
    pub fn open(file: OwnedFd) -> io::Result<Self> {
        let memory = Memory::open(file, false)?;
        if memory.halves().len() < HEAD_HALVES + BUCKET {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self {
            memory: Arc::new(memory),
        })
    }

    /// Its memory, for another process.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.memory.file()
    }

    /// What stays as it is.
    #[must_use]
    pub fn facts(&self) -> Facts {
        let words = self.memory.words();
        let get = |at: usize| words[at].load(Ordering::Relaxed);
        let mut serial = [0; SERIAL_BYTES];
        for (at, bytes) in serial.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&get(SERIAL + at).to_le_bytes());
        }
        Facts {
            data: get(DATA),
            export: u128::from(get(EXPORT)) << 64 | u128::from(get(EXPORT + 1)),
            serial,
        }
    }

    /// Whether blocks may be read. Where they may not, none is found.
    pub fn set_open(&self, is_open: bool) {
        self.memory.words()[IS_OPEN].store(u64::from(is_open), Ordering::SeqCst);
    }

    /// The size of the volume in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.memory.words()[SIZE].load(Ordering::Acquire)
    }

    /// Changes the size of the volume.
    pub fn set_size(&self, size: u64) {
        self.memory.words()[SIZE].store(size, Ordering::Release);
    }

    /// What the volume may do per second.
    #[must_use]
    pub fn rates(&self) -> Rates {
        let words = &self.memory.words()[RATES..RATES + COUNT];
        let mut words = words.iter().map(|word| word.load(Ordering::Relaxed));
        Rates::new([0; COUNT].map(|_: u64| words.next().unwrap_or(0)))
    }

    /// Changes what the volume may do per second.
    pub fn set_rates(&self, rates: Rates) {
        let words = &self.memory.words()[RATES..];
        for (word, value) in words.iter().zip(rates.values()) {
            word.store(value, Ordering::Relaxed);
        }
    }

    fn is_open(&self) -> bool {
        self.memory.words()[IS_OPEN].load(Ordering::Acquire) != 0
    }

    fn buckets(&self) -> usize {
        (self.memory.halves().len() - HEAD_HALVES) / BUCKET
    }

    fn bucket(&self, number: usize) -> &[AtomicU32] {
        &self.memory.halves()[HEAD_HALVES + number * BUCKET..][..BUCKET]
    }

    /// The two buckets that a block may be in.
    fn places(&self, block: Block) -> [usize; 2] {
        let mixed = block.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let place = |hash: u64| (((hash >> 32) * self.buckets() as u64) >> 32) as usize;
        [
            place(mixed),
            place((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)),
        ]
    }

    /// Looks a block up. None: it is not cached, or the daemon has to be asked.
    #[must_use]
    pub fn find(&self, block: Block) -> Option<Found> {
        let wanted = u32::try_from(block).ok()?;
        let mut places = self.places(block).into_iter();
        let found = places.find_map(|place| self.find_in(place, wanted));
        found.filter(|_| self.is_open())
    }

    fn find_in(&self, number: usize, wanted: u32) -> Option<Found> {
        let bucket = self.bucket(number);
        let sequence = bucket[0].load(Ordering::Acquire);
        let get = |at: usize| bucket[at].load(Ordering::Relaxed);
        let has = |entry: &usize| get(BLOCKS + entry) == wanted && get(SLOTS + entry) != NONE;
        let entry = (0..ENTRIES).find(has)?;
        let found = Found {
            slot: get(SLOTS + entry),
            checksum: get(CHECKSUMS + entry),
            bucket: number,
            sequence,
        };
        (sequence % 2 == 0 && self.is_current(&found)).then_some(found)
    }

    /// Whether what was read before this call, of the slot of a block that was found, is that block.
    #[must_use]
    pub fn is_current(&self, found: &Found) -> bool {
        // What was read before stays before, and what the daemon did before it wrote is seen.
        fence(Ordering::SeqCst);
        self.bucket(found.bucket)[0].load(Ordering::Relaxed) == found.sequence && self.is_open()
    }

    /// Changes a bucket.
    fn change(&self, number: usize, work: impl FnOnce(&[AtomicU32])) {
        debug_assert!(
            self.memory.is_writable(),
            "another process writes this index"
        );
        let bucket = self.bucket(number);
        let sequence = bucket[0].load(Ordering::Relaxed);
        bucket[0].store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        work(bucket);
        bucket[0].store(sequence.wrapping_add(2), Ordering::Release);
        // The slot may be written to from now on.
        fence(Ordering::SeqCst);
    }

    /// The entry of a block.
    fn entry(&self, block: u32) -> Option<(usize, usize)> {
        self.places(Block::from(block))
            .into_iter()
            .find_map(|place| {
                let bucket = self.bucket(place);
                let get = |at: usize| bucket[at].load(Ordering::Relaxed);
                let has =
                    |entry: &usize| get(BLOCKS + entry) == block && get(SLOTS + entry) != NONE;
                (0..ENTRIES).find(has).map(|entry| (place, entry))
            })
    }

    /// Where a block gets an entry: in the bucket with more room, or in place of another block.
    fn room(&self, block: u32) -> (usize, usize) {
        let places = self.places(Block::from(block)).map(|place| {
            let slots = &self.bucket(place)[SLOTS..CHECKSUMS];
            let is_free = |slot: &&AtomicU32| slot.load(Ordering::Relaxed) == NONE;
            let first = slots.iter().position(|slot| is_free(&slot));
            (slots.iter().filter(is_free).count(), place, first)
        });
        let [one, other] = places;
        let (_, place, first) = if other.0 > one.0 { other } else { one };
        (place, first.unwrap_or(block as usize % ENTRIES))
    }
}

impl Mirror for Index {
    fn put(&mut self, block: Block, slot: Slot, checksum: u32) {
        let Ok(block) = u32::try_from(block) else {
            return;
        };
        let (place, entry) = self.entry(block).unwrap_or_else(|| self.room(block));
        self.change(place, |bucket| {
            for (at, value) in [(BLOCKS, block), (SLOTS, slot), (CHECKSUMS, checksum)] {
                bucket[at + entry].store(value, Ordering::Relaxed);
            }
        });
    }

    fn remove(&mut self, block: Block) {
        let entry = u32::try_from(block)
            .ok()
            .and_then(|block| self.entry(block));
        if let Some((place, entry)) = entry {
            self.change(place, |bucket| {
                bucket[SLOTS + entry].store(NONE, Ordering::Relaxed)
            });
        }
    }
}
