//! What is fetched before it is read: by hints and profiles, the rest of files, and the whole image.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::image::chunk::{Chunk, Outcome};
use crate::image::flights::Purpose;
use crate::image::lazy_file::{find_delay, split_runs, LazyFile, FIRST_PAUSE, LONGEST_PAUSE};
use crate::prefetch::file_follower::FileFollower;
use crate::prefetch::hydration::Plan;
use crate::prefetch::record::now_ns;
use crate::processes::shared::Counter;
use crate::sizes::{CHUNK, GROUP_CHUNKS};
use crate::sources::source::REQUEST_TIME;

const NS_PER_S: f64 = 1e9;
/// How often what has arrived is made durable: for so long at most the disk may lose some of it unnoticed.
const FLUSH_PAUSE: Duration = Duration::from_secs(3);
/// The same after the disk has lost some again and again.
const LONGEST_FLUSH_PAUSE: Duration = Duration::from_secs(3600);

impl LazyFile {
    /// Return how many threads prefetch.
    pub fn prefetches(&self) -> usize {
        let prefetcher = self.prefetcher.as_ref();
        prefetcher.map_or(0, |prefetcher| prefetcher.in_flight())
    }

    /// Fetch what is going to be read, without end.
    pub fn prefetch(&self) {
        let Some(prefetcher) = &self.prefetcher else {
            return;
        };
        let mut pause = FIRST_PAUSE;
        loop {
            let chunk = prefetcher.next(|chunk| self.is_there(chunk.into()));
            let number = u64::from(chunk);
            let is_local =
                self.obtain_unasked(&(number..number + 1), Purpose::Prefetch, &mut pause);
            let is_taught = is_local && prefetcher.was_taught(chunk);
            self.shared.add(Counter::HintsUsed, u64::from(is_taught));
            prefetcher.done(chunk, is_local);
        }
    }

    /// Forget what is expected to be read, for good: reads are answered all the same.
    pub fn drop_hints(&self) {
        self.read_ranges.close();
        *self.follower.lock().unpoisoned() = FileFollower::default();
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.forget_hints();
        }
    }

    /// Prefetch the rest of the files that were read, unless another thread is about to.
    pub fn follow_files(&self) {
        let Some(prefetcher) = &self.prefetcher else {
            return;
        };
        // Again after the lock was let go: others may have left theirs to this thread.
        while self.read_ranges.is_waiting() {
            let Ok(mut follower) = self.follower.try_lock() else {
                return;
            };
            while let Some(range) = self.read_ranges.take() {
                let most = prefetcher.wanted_rest((range.end - 1) / CHUNK);
                prefetcher.note_rest(follower.follow(&self.leaves, range, most));
            }
        }
    }

    /// Look for absent chunks of the profile whenever nothing is prefetched, without end.
    pub fn complete_profile(&self) {
        let Some(prefetcher) = &self.prefetcher else {
            return;
        };
        loop {
            prefetcher.wait_until_idle();
            std::thread::sleep(LONGEST_PAUSE);
            prefetcher.queue_absent(|chunk| self.is_there(chunk.into()));
        }
    }

    /// Fetch chunks that no read waits for, and return whether they are local; pause if they are not.
    fn obtain_unasked(&self, run: &Range<u64>, purpose: Purpose, pause: &mut Duration) -> bool {
        let mut delay = Duration::ZERO;
        // What is not kept would be fetched again.
        if self.leaves.has_room() {
            let outcomes = self.obtain(run, self.sources.reach(run.start), purpose, REQUEST_TIME);
            let is_local = |(_, outcome): &(u64, Outcome)| matches!(outcome, Ok(Chunk::Local));
            if outcomes.iter().all(is_local) {
                *pause = FIRST_PAUSE;
                return true;
            }
            delay = find_delay(&outcomes).unwrap_or_default();
        }
        std::thread::sleep(delay.max(*pause));
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        false
    }

    /// Make durable what arrives, without end. While the disk loses it again and again, less and less is fetched that nothing reads.
    pub fn keep_durable(&self) {
        let (mut pause, mut failed) = (FLUSH_PAUSE, Instant::now());
        loop {
            std::thread::sleep(FLUSH_PAUSE);
            if self.flush() {
                if failed.elapsed() > 2 * pause {
                    pause = FLUSH_PAUSE;
                }
                continue;
            }
            pause = (2 * pause).min(LONGEST_FLUSH_PAUSE);
            self.leaves.set_failing(true);
            std::thread::sleep(pause);
            self.leaves.set_failing(false);
            failed = Instant::now();
        }
    }

    /// Make durable what has arrived, and return whether it is; verify an image that was whole if the disk has lost any of it.
    pub(super) fn flush(&self) -> bool {
        let Err(error) = self.leaves.flush() else {
            return true;
        };
        log::warn!(
            "Verifying what is kept of {}, which could not be written to the disk: {error}",
            self.sources.name()
        );
        let complete = self.shared.counter(Counter::Complete);
        complete.store(0, Ordering::Release);
        self.verify_left();
        false
    }

    /// Fetch all chunks, and again those that the disk loses, without end.
    pub fn keep_hydrated(&self, plan: &Plan) {
        loop {
            if !self.leaves.is_complete() {
                self.hydrate(plan);
            }
            std::thread::sleep(FLUSH_PAUSE);
        }
    }

    /// Fetch all chunks while no read waits and nothing is prefetched, those first that this host is home of; ends when all are local.
    pub fn hydrate(&self, plan: &Plan) {
        let mut pause = FIRST_PAUSE;
        // The worker before this one may have rested for a lower rate.
        let longest = plan.rest(GROUP_CHUNKS * CHUNK);
        let allowed = self.shared.counter(Counter::HydrateNextNs);
        allowed.fetch_min(after(now_ns(), longest), Ordering::Relaxed);
        let groups = self.leaves.chunk_count().div_ceil(GROUP_CHUNKS);
        let order = self.sources.homes().hydration_order(groups);
        while !self.leaves.is_complete() {
            // A group that cannot be had does not keep the others out.
            for group in &order {
                for run in split_runs(&self.absent_of(*group)) {
                    self.hydrate_run(&run, plan, &mut pause);
                }
            }
        }
        self.note_complete();
    }

    fn absent_of(&self, group: u64) -> Vec<u64> {
        let first = group * GROUP_CHUNKS;
        let end = (first + GROUP_CHUNKS).min(self.leaves.chunk_count());
        (first..end)
            .filter(|chunk| !self.is_local(*chunk))
            .collect()
    }

    fn hydrate_run(&self, run: &Range<u64>, plan: &Plan, pause: &mut Duration) {
        // The worker before this one may have fetched just now.
        sleep_until(self.shared.get(Counter::HydrateNextNs));
        self.wait_until_idle();
        if run.clone().all(|chunk| self.is_local(chunk)) {
            return;
        }
        let begun = now_ns();
        let len = self.leaves.run_len(run);
        let elapsed = begun.saturating_sub(self.shared.get(Counter::StartNs)) as f64 / NS_PER_S;
        let interval = plan.interval(len as u64, self.leaves.absent_bytes(), elapsed);
        let next = after(begun, plan.rest(len as u64));
        let allowed = self.shared.counter(Counter::HydrateNextNs);
        allowed.store(next, Ordering::Relaxed);
        if self.obtain_unasked(run, Purpose::Hydration, pause) {
            sleep_until(after(begun, interval));
        }
    }

    /// Verify what an unclean end left of an image that was whole, while no read waits: nothing else may, and who waits for it to be whole is to know.
    pub fn verify_left(&self) {
        let chunks = 0..self.leaves.chunk_count();
        if self.leaves.is_complete() || !chunks.clone().all(|chunk| self.leaves.is_marked(chunk)) {
            return;
        }
        for chunk in chunks {
            self.wait_until_idle();
            self.is_local(chunk);
        }
        self.note_complete();
    }

    fn wait_until_idle(&self) {
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.wait_until_idle();
        }
        let waited = self
            .no_demand
            .wait_while(self.demand.lock().unpoisoned(), |count| *count > 0);
        drop(waited.unpoisoned());
    }
}

/// Return the time this many seconds later, by the monotonic clock in nanoseconds.
pub(super) fn after(time_ns: u64, seconds: f64) -> u64 {
    // The conversion saturates.
    time_ns.saturating_add((seconds * NS_PER_S) as u64)
}

fn sleep_until(time_ns: u64) {
    std::thread::sleep(Duration::from_nanos(time_ns.saturating_sub(now_ns())));
}
