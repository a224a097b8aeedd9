//! What fuzz tests share: cases by chance, an allocator that counts, and a source that refuses to be read outside of its bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::images::noise;

mod strict;

pub use strict::Strict;

/// What the engine promises to take at most, for any images.
const MEMORY: usize = 1 << 30;
/// Cases of each kind in a usual run.
const CASES: u64 = 400;
/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Numbers by chance.
pub struct Chance(u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A number at an edge, or near `to`, or any.
    pub fn number(&mut self, to: u64) -> u64 {
        match self.below(6) {
            0 => self.next() % 3,
            1 => to.wrapping_add(self.next() % 5).wrapping_sub(2),
            2 => 1 << self.below(64),
            3 => (1u64 << self.below(64)).wrapping_sub(1),
            4 => to ^ (1 << self.below(44)),
            _ => self.next(),
        }
    }
}

/// Calls `case` a bounded number of times, or for as long as was asked for.
pub fn fuzz(mut case: impl FnMut(&mut Chance)) {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds: Option<u64> = variable("DIFFCACHE_FUZZ_SECONDS");
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let anew = since.unwrap().as_nanos() as u64;
    let first = variable("DIFFCACHE_FUZZ_SEED").unwrap_or(seconds.map_or(1, |_| anew));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut count = 0;
    while end.map_or(count < CASES, |end| Instant::now() < end) {
        let seed = first.wrapping_add(count);
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut chance)));
        assert!(outcome.is_ok(), "DIFFCACHE_FUZZ_SEED={seed} fails");
        assert!(
            PEAK.load(Ordering::Relaxed) < MEMORY,
            "DIFFCACHE_FUZZ_SEED={seed} takes too much memory"
        );
        count += 1;
    }
    println!(
        "{count} cases, {} MB at most",
        PEAK.load(Ordering::Relaxed) / 1_000_000
    );
}

/// Changes some bytes: sets, inserts, removes or repeats them.
pub fn spoil(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + 1 + chance.below(6)).min(bytes.len());
        let (range, new) = match chance.below(6) {
            0 => (at..at, noise(chance.next(), 1 + chance.below(9))),
            1 => (at..end, Vec::new()),
            2 => (at..at, bytes[at..end].to_vec()),
            3 => (at..end, vec![0xff; 6]),
            _ => (at..end, noise(chance.next(), end - at)),
        };
        bytes.splice(range, new);
    }
}
