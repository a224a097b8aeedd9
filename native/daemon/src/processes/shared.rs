//! Memory that outlives a worker: counters, a slot for each thread's request, and what became of each chunk that was prefetched.
//!
//! A slot holds the request that its thread reads next. The first word of a FUSE request is its length, which is zero here until the kernel has
//! copied a request, and again after the answer; so a worker killed at any moment leaves each unanswered request to be found.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicU8, Ordering};

use crate::error::DaemonError;
use crate::processes::mapping::{self, Mapping};
use crate::sizes::{MAX_HOMES, MAX_SOURCES, SLOTS};

/// Bytes of a slot: the kernel refuses a buffer smaller than a write of 1 MiB and its header.
pub const SLOT_LEN: usize = (1 << 20) + 8192;
const COUNTERS_LEN: usize = 4096;
const MARKS_AT: usize = COUNTERS_LEN + SLOTS * SLOT_LEN;

/// A chunk that was not prefetched.
const NO_MARK: u8 = 0;
/// A chunk that was prefetched and not read yet.
const PREFETCHED: u8 = 1;
/// A chunk that was prefetched, then read.
const USED: u8 = 2;

/// What is counted since the daemon started.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum Counter {
    /// Reads answered.
    Reads,
    /// Bytes answered.
    BytesRead,
    /// Bytes fetched and verified.
    BytesFetched,
    /// Reads that waited for at least one chunk.
    Misses,
    /// Microseconds that reads waited.
    StallUs,
    /// Reads that failed.
    Errors,
    /// Leaves dropped because their bytes were wrong.
    Corrupt,
    /// Workers started after the first.
    WorkerRestarts,
    /// 1 when all of the image is on the local disk, verified.
    Complete,
    /// Chunks served without keeping them, because the disk was full.
    NotKept,
    /// Process id of the worker.
    WorkerPid,
    /// Number given to the last file handle.
    Handles,
    /// When the daemon started, in nanoseconds of the monotonic clock.
    StartNs,
    /// When all of the image was there for the first time, by the same clock; 0 before.
    CompletedNs,
    /// Bytes that hydration fetched.
    HydratedBytes,
    /// Nanoseconds that its requests took.
    HydratingNs,
    /// When its next request may begin by its rate, by the monotonic clock.
    HydrateNextNs,
    /// Rows of the record that were begun.
    Rows,
    /// Reads in the record.
    Recorded,
    /// Reads that the record lacks.
    NotRecorded,
    /// Modification time that the file shows, in seconds since 1970.
    ModifiedS,
    /// Ranges that were served to peers.
    PeerRequests,
    /// Their bytes.
    PeerBytes,
    /// Counts of other hosts that were news.
    HintsReceived,
    /// Chunks that were prefetched for them.
    HintsUsed,
    /// Texts of other hosts that were none.
    HintsMalformed,
    /// Counts of hosts that are not of the site, by host and text.
    HintsUnknown,
    /// Whether the kernel sends unanswered requests again: 0 before the first worker, else a `resend::Way`.
    Resend,
    /// Requests of peers that were referred to other hosts.
    ReferralsGiven,
    /// Referrals of homes to hosts that then sent the chunks.
    ReferralsFollowed,
    /// Referrals of homes after which the chunks came from the home.
    ReferralsFailed,
    /// Doubts in what is kept that a worker has answered by verifying it.
    Doubts,
}

/// What is counted of each source.
#[derive(Clone, Copy, Debug)]
#[repr(usize)]
pub enum SourceCounter {
    /// Requests.
    Requests,
    /// Bytes that came, before they are decompressed.
    Bytes,
    /// Requests that failed, or brought wrong bytes.
    Failures,
    /// Bytes that are of a patch.
    PatchBytes,
}

/// Where the counters of sources begin, and how many a source has room for.
const SOURCES_AT: usize = 128;
const SOURCE_LEN: usize = 4;
/// Sources that are counted: homes come after the others.
const COUNTED: usize = MAX_SOURCES + MAX_HOMES;
const _: () = assert!((SOURCES_AT + COUNTED * SOURCE_LEN) * 8 <= COUNTERS_LEN);

/// A mapping of the shared memory.
pub struct Shared {
    memory: Mapping,
}

// SAFETY: the mapping lives as long as the value; counters and marks are atomic, and each slot is used by one thread (`Slot` is handed out once per index).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Create the memory for an image of this many chunks.
    ///
    /// # Errors
    /// `System`.
    pub fn create(chunks: u64) -> Result<OwnedFd, DaemonError> {
        mapping::create("diffcached", MARKS_AT as u64 + chunks)
    }

    /// Map the memory.
    ///
    /// # Errors
    /// `System`.
    pub fn map(fd: impl AsFd) -> Result<Shared, DaemonError> {
        Ok(Shared {
            memory: Mapping::new(fd, MARKS_AT)?,
        })
    }

    /// Return a counter.
    pub fn counter(&self, counter: Counter) -> &AtomicU64 {
        // SAFETY: within the first page of the mapping and aligned to 8 bytes; it is only ever used as an atomic.
        unsafe {
            self.memory
                .base
                .cast::<AtomicU64>()
                .add(counter as usize)
                .as_ref()
        }
    }

    /// Return a counter of a source.
    pub fn source_counter(&self, source: usize, counter: SourceCounter) -> &AtomicU64 {
        let at = SOURCES_AT + source.min(COUNTED - 1) * SOURCE_LEN + counter as usize;
        // SAFETY: within the first page of the mapping and aligned to 8 bytes; it is only ever used as an atomic.
        unsafe { self.memory.base.cast::<AtomicU64>().add(at).as_ref() }
    }

    /// Forget what was counted of sources, because they are others now.
    pub fn clear_sources(&self) {
        for source in 0..COUNTED {
            for counter in [
                SourceCounter::Requests,
                SourceCounter::Bytes,
                SourceCounter::Failures,
                SourceCounter::PatchBytes,
            ] {
                self.source_counter(source, counter)
                    .store(0, Ordering::Relaxed);
            }
        }
    }

    /// Add to a counter.
    pub fn add(&self, counter: Counter, count: u64) {
        self.counter(counter).fetch_add(count, Ordering::Relaxed);
    }

    /// Return the value of a counter.
    pub fn get(&self, counter: Counter) -> u64 {
        self.counter(counter).load(Ordering::Relaxed)
    }

    /// Change a counter and return what it was; none if `next` of that is none.
    pub fn update(&self, counter: Counter, next: impl FnMut(u64) -> Option<u64>) -> Option<u64> {
        let order = Ordering::Relaxed;
        self.counter(counter).fetch_update(order, order, next).ok()
    }

    fn marks(&self) -> &[AtomicU8] {
        // SAFETY: the rest of the mapping, which is only ever used as atomics.
        unsafe {
            let start = self.memory.base.add(MARKS_AT).cast::<AtomicU8>();
            std::slice::from_raw_parts(start.as_ptr(), self.memory.len - MARKS_AT)
        }
    }

    fn change_mark(&self, chunk: u64, from: u8, to: u8) {
        let Some(mark) = self.marks().get(chunk as usize) else {
            return;
        };
        // Most reads change nothing.
        if mark.load(Ordering::Acquire) == from {
            // Another thread may have changed it: then it is what it should be.
            let _ = mark.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
        }
    }

    /// Note that a chunk is there because it was prefetched.
    pub fn note_prefetched(&self, chunk: u64) {
        self.change_mark(chunk, NO_MARK, PREFETCHED);
    }

    /// Note that a prefetched chunk could not be kept.
    pub fn note_lost(&self, chunk: u64) {
        self.change_mark(chunk, PREFETCHED, NO_MARK);
    }

    /// Note that a chunk was read.
    pub fn note_used(&self, chunk: u64) {
        self.change_mark(chunk, PREFETCHED, USED);
    }

    /// Return how many chunks were prefetched, and how many of these were read.
    pub fn count_prefetched(&self) -> (u64, u64) {
        let (mut all, mut used) = (0, 0);
        for mark in self.marks() {
            let mark = mark.load(Ordering::Acquire);
            all += u64::from(mark != NO_MARK);
            used += u64::from(mark == USED);
        }
        (all, used)
    }

    /// Return the bytes of a slot.
    ///
    /// # Safety
    /// The caller is the only user of slot `index` in this process while the reference lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slot(&self, index: usize) -> &mut [u8] {
        assert!(index < SLOTS, "a slot past the end");
        // SAFETY: within the mapping; the caller has the slot for itself.
        unsafe {
            let start = self.memory.base.add(COUNTERS_LEN + index * SLOT_LEN);
            std::slice::from_raw_parts_mut(start.as_ptr(), SLOT_LEN)
        }
    }
}

/// Return the length of the request in a slot, 0 if there is none.
pub fn request_len(slot: &[u8]) -> usize {
    match slot.first_chunk::<4>() {
        Some(len) => u32::from_ne_bytes(*len) as usize,
        None => 0,
    }
}

/// Free a slot after its answer.
pub fn free(slot: &mut [u8]) {
    if let Some(len) = slot.first_chunk_mut::<4>() {
        // SAFETY: a slot begins at a page; one aligned store, so that a kill leaves the whole old or the whole new value.
        unsafe { AtomicU32::from_ptr(len.as_mut_ptr().cast()) }.store(0, Ordering::SeqCst);
    }
}
