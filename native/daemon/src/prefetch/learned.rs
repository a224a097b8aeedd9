//! What instances here have read: the counts of `diffcache_prefetch::Learner`, in memory that outlives a worker.
//!
//! An instance is an open handle. For each chunk the memory has the number of instances that read it and the sum of their times from opening to
//! the first read; for each of the latest instances when it was opened and which chunks it has read. A handle uses the place of its number modulo
//! [`INSTANCES`], so that a newer one takes the place of one opened long before, whose further reads are not counted: memory is bounded, and none is lost
//! by a kill. A count is written as whole values to a journal first, and a new worker applies what it finds there, so that a worker killed at
//! any moment has counted a read once or not at all; the read is answered, and counted, again then.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use serde_json::{json, Value};

use crate::error::DaemonError;
use crate::prefetch::profile::FORMAT;
use crate::processes::mapping::{self, Mapping};
use crate::sizes::CHUNK;

/// Instances whose reads are followed at once.
pub const INSTANCES: u64 = 1024;
const PAGE_WORDS: u64 = 512;
const WORD_BITS: u64 = 64;
/// A profile's counts have 32 bits.
const MAX_COUNT: u64 = u32::MAX as u64;
const NS_PER_US: f64 = 1000.0;

/// Words of the first page.
const CHUNKS: u64 = 0;
const TOTAL_INSTANCES: u64 = 1;
const JOURNAL: u64 = 8;
/// Words of the journal: whether it is to be applied, then what is to be written.
const JOURNAL_LEN: usize = 7;
/// Words of an instance: its handle (0: none), when it was opened, and how many chunks it has read.
const INSTANCE_LEN: u64 = 4;
const INSTANCES_AT: u64 = PAGE_WORDS;
const RECORDS_AT: u64 = INSTANCES_AT + INSTANCES * INSTANCE_LEN;
/// Words of a record: number of instances, and the sum of their times in nanoseconds.
const RECORD_LEN: u64 = 2;

/// What is counted of a chunk after another instance has read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The chunk.
    pub chunk: u64,
    /// Number of instances.
    pub count: u64,
    /// Sum of their times.
    pub total_ns: u64,
}

/// What one read changes; whole values, so that it may be applied twice.
#[derive(Clone, Copy, Debug)]
struct Change {
    chunk: u64,
    count: u64,
    total_ns: u64,
    place: u64,
    read_chunks: u64,
    instances: u64,
}

impl Change {
    fn encode(self) -> [u64; JOURNAL_LEN - 1] {
        [
            self.chunk,
            self.count,
            self.total_ns,
            self.place,
            self.read_chunks,
            self.instances,
        ]
    }

    fn decode(words: [u64; JOURNAL_LEN - 1]) -> Change {
        let [chunk, count, total_ns, place, read_chunks, instances] = words;
        Change {
            chunk,
            count,
            total_ns,
            place,
            read_chunks,
            instances,
        }
    }
}

fn row_words(chunks: u64) -> u64 {
    chunks.div_ceil(WORD_BITS)
}

fn rows_at(chunks: u64) -> u64 {
    RECORDS_AT + chunks * RECORD_LEN
}

/// The counts of one image.
pub struct Learned {
    memory: Mapping,
    chunks: u64,
    /// Held while this process changes the memory.
    changing: Mutex<()>,
}

// SAFETY: the mapping lives as long as the value and is only ever used as atomics.
unsafe impl Send for Learned {}
// SAFETY: as above.
unsafe impl Sync for Learned {}

impl Learned {
    /// Create the memory for an image of this many chunks. Pages that are not used take no memory.
    ///
    /// # Errors
    /// `System`.
    pub fn create(chunks: u64) -> Result<OwnedFd, DaemonError> {
        let words = rows_at(chunks) + INSTANCES * row_words(chunks);
        let fd = mapping::create("learned", words * 8)?;
        rustix::io::pwrite(&fd, &chunks.to_le_bytes(), CHUNKS * 8)
            .map_err(DaemonError::system("prepare memory of what is read"))?;
        Ok(fd)
    }

    /// Map the memory.
    ///
    /// # Errors
    /// `System`, or `Config` if it is not such memory.
    pub fn map(fd: impl AsFd) -> Result<Learned, DaemonError> {
        let memory = Mapping::new(fd, RECORDS_AT as usize * 8)?;
        let mut learned = Learned {
            memory,
            chunks: 0,
            changing: Mutex::default(),
        };
        let chunks = learned.get(CHUNKS);
        let words = rows_at(chunks) + INSTANCES * row_words(chunks);
        if learned.memory.len as u64 != words * 8 {
            let reason = "the memory of what is read has another length";
            return Err(DaemonError::Config(reason.to_owned()));
        }
        learned.chunks = chunks;
        Ok(learned)
    }

    /// Finish what a worker was counting when it was killed.
    pub fn take_over(&self) {
        let _changing = self.changing.lock().unpoisoned();
        if self.get(JOURNAL) == 1 {
            let mut words = [0; JOURNAL_LEN - 1];
            for (at, word) in (JOURNAL + 1..).zip(&mut words) {
                *word = self.get(at);
            }
            self.apply(Change::decode(words));
        }
    }

    /// Follow a handle from now on.
    pub fn open(&self, handle: u64, now_ns: u64) {
        let _changing = self.changing.lock().unpoisoned();
        let place = handle % INSTANCES;
        let at = INSTANCES_AT + place * INSTANCE_LEN;
        self.set(at, 0);
        if self.get(at + 2) > 0 {
            let row = rows_at(self.chunks) + place * row_words(self.chunks);
            (row..row + row_words(self.chunks)).for_each(|word| self.set(word, 0));
        }
        self.set(at + 2, 0);
        self.set(at + 1, now_ns);
        self.set(at, handle);
    }

    /// Count the chunks that a handle has not read before, and return their counts.
    pub fn read(&self, handle: u64, chunks: std::ops::Range<u64>, now_ns: u64) -> Vec<Counted> {
        let mut counted = Vec::new();
        let place = handle % INSTANCES;
        let at = INSTANCES_AT + place * INSTANCE_LEN;
        let _changing = self.changing.lock().unpoisoned();
        if handle == 0 || self.get(at) != handle {
            return counted;
        }
        let since_ns = now_ns.saturating_sub(self.get(at + 1));
        for chunk in chunks.start..chunks.end.min(self.chunks) {
            let (word, bit) = self.mark(place, chunk);
            if self.get(word) & bit != 0 {
                continue;
            }
            let change = self.change(place, chunk, since_ns);
            self.write_down(change);
            self.apply(change);
            counted.push(Counted {
                chunk,
                count: change.count,
                total_ns: change.total_ns,
            });
        }
        counted
    }

    fn change(&self, place: u64, chunk: u64, since_ns: u64) -> Change {
        let record = RECORDS_AT + chunk * RECORD_LEN;
        let (mut count, mut total_ns) = (self.get(record), self.get(record + 1));
        if count >= MAX_COUNT || total_ns.checked_add(since_ns).is_none() {
            // Forgets half of the instances, evenly: the mean remains.
            (count, total_ns) = (count / 2, total_ns / 2);
        }
        let read_chunks = self.get(INSTANCES_AT + place * INSTANCE_LEN + 2);
        Change {
            chunk,
            count: count + 1,
            total_ns: total_ns.saturating_add(since_ns),
            place,
            read_chunks: read_chunks + 1,
            instances: self.get(TOTAL_INSTANCES) + u64::from(read_chunks == 0),
        }
    }

    fn write_down(&self, change: Change) {
        for (at, word) in (JOURNAL + 1..).zip(change.encode()) {
            self.set(at, word);
        }
        self.set(JOURNAL, 1);
    }

    fn apply(&self, change: Change) {
        if change.chunk < self.chunks && change.place < INSTANCES {
            let record = RECORDS_AT + change.chunk * RECORD_LEN;
            self.set(record, change.count);
            self.set(record + 1, change.total_ns);
            let instance = INSTANCES_AT + change.place * INSTANCE_LEN;
            self.set(instance + 2, change.read_chunks);
            self.set(TOTAL_INSTANCES, change.instances);
            let (word, bit) = self.mark(change.place, change.chunk);
            self.set(word, self.get(word) | bit);
        }
        self.set(JOURNAL, 0);
    }

    /// Return the word and the bit of a chunk that an instance has read.
    fn mark(&self, place: u64, chunk: u64) -> (u64, u64) {
        let row = rows_at(self.chunks) + place * row_words(self.chunks);
        (row + chunk / WORD_BITS, 1 << (chunk % WORD_BITS))
    }

    /// Return how many chunks the image has.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Return how many instances have read anything.
    pub fn instances(&self) -> u64 {
        self.get(TOTAL_INSTANCES)
    }

    /// Return (chunk, count, mean time in microseconds) of the chunks that were read, by chunk.
    pub fn rows(&self) -> impl Iterator<Item = (u64, u64, f64)> + '_ {
        (0..self.chunks).filter_map(|chunk| {
            let record = RECORDS_AT + chunk * RECORD_LEN;
            let (count, total_ns) = (self.get(record), self.get(record + 1));
            let mean_us = || total_ns as f64 / count as f64 / NS_PER_US;
            (count > 0).then(|| (chunk, count, mean_us()))
        })
    }

    /// Return what was learned as JSON that a profile is loaded from.
    pub fn describe(&self) -> Value {
        let rows: Vec<_> = self.rows().collect();
        json!({"format": FORMAT, "chunk": CHUNK, "instances": self.instances(), "profile": rows})
    }

    fn word(&self, at: u64) -> &AtomicU64 {
        assert!(at * 8 < self.memory.len as u64, "a word past the end");
        // SAFETY: within the mapping, which begins at a page, so that the word is aligned; it is only ever used as an atomic.
        unsafe {
            self.memory
                .base
                .cast::<AtomicU64>()
                .add(at as usize)
                .as_ref()
        }
    }

    fn get(&self, at: u64) -> u64 {
        self.word(at).load(Ordering::SeqCst)
    }

    fn set(&self, at: u64, value: u64) {
        self.word(at).store(value, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use diffcache_prefetch::{Learner, Profile, Reader};
    use proptest::prelude::*;

    fn learned(chunks: u64) -> (OwnedFd, Learned) {
        let fd = Learned::create(chunks).unwrap();
        let learned = Learned::map(&fd).unwrap();
        learned.take_over();
        (fd, learned)
    }

    proptest! {
        /// Workers are killed before, while and after they count: the counts are the learner's.
        #[test]
        fn counts_what_the_learner_counts_whatever_is_killed(
            reads in prop::collection::vec((1u64..6, 0u64..70, 0u64..1_000_000, 0u8..4), 0..80),
        ) {
            let (fd, mut memory) = learned(70);
            let mut learner = Learner::new(70, 1, Profile::default());
            let mut readers: BTreeMap<u64, Reader> = BTreeMap::new();
            (1..6).for_each(|handle| memory.open(handle, handle));
            for (handle, chunk, since_ns, kill) in reads {
                let reader = readers.entry(handle).or_default();
                learner.read(reader, chunk as u32, since_ns);
                let (word, bit) = memory.mark(handle, chunk);
                if kill > 0 && memory.get(word) & bit == 0 {
                    let change = memory.change(handle, chunk, since_ns);
                    memory.write_down(change);
                    if kill > 1 {
                        memory.set(RECORDS_AT + chunk * RECORD_LEN, change.count);
                    }
                    if kill > 2 {
                        memory.apply(change);
                        memory.set(JOURNAL, 1);
                    }
                    memory = Learned::map(&fd).unwrap();
                    memory.take_over();
                }
                // Answered, or answered again.
                memory.read(handle, chunk..chunk + 1, handle + since_ns);
            }
            let found: Vec<_> = memory.rows().map(|(c, n, mean)| (c as u32, n, mean)).collect();
            let expected: Vec<_> = learner.profile().rows().collect();
            prop_assert_eq!(found.len(), expected.len());
            for (one, other) in found.iter().zip(&expected) {
                prop_assert_eq!((one.0, one.1), (other.0, other.1));
                prop_assert!((one.2 - other.2).abs() < 1e-6);
            }
            prop_assert_eq!(memory.instances(), readers.len() as u64);
        }
    }

    #[test]
    fn a_newer_handle_takes_the_place_of_an_old_one() {
        let (_, memory) = learned(3);
        memory.open(1, 0);
        let counted = memory.read(1, 0..2, 5000);
        let row = |chunk| Counted {
            chunk,
            count: 1,
            total_ns: 5000,
        };
        assert_eq!(vec![row(0), row(1)], counted);
        assert!(memory.read(1, 0..2, 6000).is_empty());
        memory.open(1 + INSTANCES, 10_000);
        memory.read(1, 2..3, 99_000);
        memory.read(1 + INSTANCES, 0..9, 13_000);
        memory.read(0, 0..3, 1);
        let rows: Vec<_> = memory.rows().collect();
        assert_eq!(vec![(0, 2, 4.0), (1, 2, 4.0), (2, 1, 3.0)], rows);
        assert_eq!(2, memory.instances());
    }

    #[test]
    fn what_is_learned_is_a_profile() {
        let (_, memory) = learned(10);
        memory.open(7, 0);
        memory.read(7, 3..5, 1500);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), memory.describe().to_string()).unwrap();
        let rows: Vec<_> = crate::prefetch::profile::load(file.path(), 10)
            .unwrap()
            .rows()
            .collect();
        assert_eq!(vec![(3, 1, 1.5), (4, 1, 1.5)], rows);
        assert_eq!(1, memory.describe()["instances"]);
    }

    #[test]
    fn counts_stay_in_their_range() {
        let (_, memory) = learned(1);
        memory.open(1, 0);
        memory.set(RECORDS_AT, MAX_COUNT);
        memory.set(RECORDS_AT + 1, u64::MAX);
        memory.read(1, 0..1, 1000);
        let (_, count, _) = memory.rows().next().unwrap();
        assert_eq!(MAX_COUNT / 2 + 1, count);
    }

    #[test]
    fn other_memory_is_refused() {
        let fd = Learned::create(5).unwrap();
        rustix::io::pwrite(&fd, &u64::from(u32::MAX).to_le_bytes(), 0).unwrap();
        assert!(Learned::map(&fd).is_err());
    }
}
