//! A file whose chunks are fetched when they are read.

mod fetch;
mod provide;
mod read;
mod unasked;

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use diffcache_base::locks::Unpoisoned;
use diffcache_prefetch::Profile;

use crate::image::aside::Aside;
use crate::image::chunk::{ChunkError, Outcome};
use crate::image::flights::Flights;
#[cfg(test)]
use crate::image::flights::{Landing, Purpose, Reach};
use crate::image::leaves::Leaves;
use crate::peers::homes::PROBE_PAUSE;
use crate::prefetch::file_follower::{FileFollower, ReadRanges};
use crate::prefetch::prefetcher::Prefetcher;
use crate::prefetch::record::now_ns;
use crate::processes::shared::{Counter, Shared};
use crate::sizes::GROUP_CHUNKS;
use crate::sources::selection::Sources;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One image.
pub struct LazyFile {
    leaves: Leaves,
    sources: Sources,
    shared: Arc<Shared>,
    wait: Duration,
    prefetcher: Option<Arc<Prefetcher>>,
    flights: Flights,
    aside: Aside,
    read_ranges: ReadRanges,
    follower: Mutex<FileFollower>,
    /// Reads that wait for a chunk.
    demand: Mutex<usize>,
    no_demand: Condvar,
}

struct Demand<'a>(&'a LazyFile);

impl Drop for Demand<'_> {
    fn drop(&mut self) {
        *self.0.demand.lock().unpoisoned() -= 1;
        self.0.no_demand.notify_all();
    }
}

impl LazyFile {
    /// Serve an image from its local part and sources; a read waits at most `wait`. Without a prefetcher, chunks are fetched when they are read.
    pub fn new(
        leaves: Leaves,
        sources: Sources,
        shared: Arc<Shared>,
        wait: Duration,
        prefetcher: Option<Arc<Prefetcher>>,
    ) -> LazyFile {
        let file = LazyFile {
            leaves,
            sources,
            shared,
            wait,
            prefetcher,
            flights: Flights::default(),
            aside: Aside::default(),
            read_ranges: ReadRanges::default(),
            follower: Mutex::default(),
            demand: Mutex::default(),
            no_demand: Condvar::new(),
        };
        // What an earlier run completed; after an unclean end that is to be seen.
        let complete = file.shared.counter(Counter::Complete);
        complete.store(0, Ordering::Release);
        file.note_complete();
        file
    }

    /// Return the local part.
    pub fn leaves(&self) -> &Leaves {
        &self.leaves
    }

    /// Return the sources.
    pub fn sources(&self) -> &Sources {
        &self.sources
    }

    /// Return the size of the image.
    pub fn size(&self) -> u64 {
        self.leaves.manifest().size()
    }

    /// Prefetch by another profile from now on.
    pub fn replace_profile(&self, profile: Profile) {
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.replace(profile);
        }
    }

    /// Forget a handle that was closed.
    pub fn forget(&self, handle: u64) {
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.forget(handle);
        }
    }

    /// Return whether a chunk is local or on its way.
    fn is_there(&self, chunk: u64) -> bool {
        self.leaves.is_marked(chunk) || self.flights.has(chunk)
    }

    fn enter_demand(&self) -> Demand<'_> {
        *self.demand.lock().unpoisoned() += 1;
        Demand(self)
    }

    /// Begin fetches of chunks, as a thread does that then fetches them.
    #[cfg(test)]
    pub fn begin(&self, run: Range<u64>, reach: Reach, purpose: Purpose) -> Landing {
        self.flights.begin(run, reach, purpose).own
    }

    /// Return whether anything is to be prefetched.
    #[cfg(test)]
    pub fn has_queued(&self) -> bool {
        self.prefetcher.as_ref().is_some_and(|each| !each.is_idle())
    }

    /// Return whether a thread waits for what reads begin to fetch.
    #[cfg(test)]
    pub fn has_fetcher(&self) -> bool {
        self.aside.is_ready()
    }

    /// Probe homes that did not answer, without end.
    pub fn probe_homes(&self) {
        loop {
            std::thread::sleep(PROBE_PAUSE);
            self.sources.homes().probe();
        }
    }

    /// Note that all is local, and verified by this worker.
    fn note_complete(&self) {
        if self.shared.get(Counter::Complete) == 0 && self.leaves.is_complete() {
            // The worker before this one may have completed it.
            let completed = self.shared.counter(Counter::CompletedNs);
            let (order, now) = (Ordering::Relaxed, now_ns());
            let _ = completed.compare_exchange(0, now, order, order);
            let complete = self.shared.counter(Counter::Complete);
            complete.store(1, Ordering::Release);
            // What the disk has lost meanwhile was noted before.
            if !self.leaves.is_complete() {
                complete.store(0, Ordering::Release);
            }
        }
    }

    /// Count an answered or failed read.
    pub fn count(&self, outcome: Result<usize, &ChunkError>) {
        match outcome {
            Ok(bytes) => {
                self.shared.add(Counter::Reads, 1);
                self.shared.add(Counter::BytesRead, bytes as u64);
            }
            Err(error) => {
                self.shared.add(Counter::Errors, 1);
                let name = self.sources.name();
                log::error!("Could not read from {name}, answering EIO: {error}");
            }
        }
    }

    /// Return the time that the file shows, in seconds since 1970.
    pub fn modified_s(&self) -> u64 {
        self.shared.get(Counter::ModifiedS)
    }

    /// Change the time that the file shows.
    pub fn set_modified(&self, time_s: u64) {
        self.shared
            .counter(Counter::ModifiedS)
            .store(time_s, Ordering::Relaxed);
    }

    /// Return a number for a new handle.
    pub fn next_handle(&self) -> u64 {
        self.shared
            .counter(Counter::Handles)
            .fetch_add(1, Ordering::Relaxed)
            + 1
    }
}

/// Divide chunks, which are in order, into runs of adjacent ones of one group.
fn split_runs(chunks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for chunk in chunks {
        match runs.last_mut() {
            Some(run) if run.end == *chunk && chunk % GROUP_CHUNKS != 0 => run.end += 1,
            _ => runs.push(*chunk..chunk + 1),
        }
    }
    runs
}

/// Return how long to wait before another attempt; none if none is needed.
fn find_delay(outcomes: &[(u64, Outcome)]) -> Option<Duration> {
    let errors = outcomes
        .iter()
        .filter_map(|(_, outcome)| outcome.as_ref().err());
    errors.map(ChunkError::delay).max()
}
