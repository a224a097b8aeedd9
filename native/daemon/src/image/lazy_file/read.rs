//! Reads of guests: they wait for the leaves that they need.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::image::chunk::{Chunk, ChunkError, KeptOut, Outcome};
use crate::image::flights::{Flight, Purpose};
use crate::image::lazy_file::{find_delay, split_runs, LazyFile, FIRST_PAUSE, LONGEST_PAUSE};
use crate::prefetch::prefetcher::Miss;
use crate::processes::shared::Counter;
use crate::sizes::CHUNK;
use crate::sources::source::REQUEST_TIME;

/// How long a read waits for its only attempt, if it does not wait for another.
const ONE_ATTEMPT: Duration = Duration::from_secs(10);

impl LazyFile {
    /// Make the chunks of a range available to a handle. Those that the disk did not take are returned by number; all others are in the local file.
    ///
    /// # Errors
    /// Of the last attempt, when the time to wait is over.
    pub fn prepare(&self, handle: u64, offset: u64, len: usize) -> Result<KeptOut, ChunkError> {
        let end = offset.saturating_add(len as u64).min(self.size());
        let chunks = offset / CHUNK..end.div_ceil(CHUNK);
        let wanted = offset..end;
        let mut absent = Vec::new();
        for chunk in chunks.clone() {
            if !self.has_wanted(chunk, &wanted) {
                absent.push(chunk);
            }
        }
        // What was on its way may have arrived since the first look.
        let is_missed =
            |chunk: &u64| !self.flights.is_ahead(*chunk) && !self.leaves.is_marked(*chunk);
        let is_miss = absent.iter().any(is_missed);
        let stopped = self.follow(handle, chunks.clone(), is_miss);
        let kept_out = if absent.is_empty() {
            Ok(HashMap::new())
        } else {
            self.obtain_for_read(&absent, &wanted, is_miss)
        };
        drop(stopped);
        self.note_complete();
        if kept_out.is_ok() {
            chunks.for_each(|chunk| self.shared.note_used(chunk));
            if self.prefetcher.is_some() && !self.leaves.is_complete() {
                self.read_ranges.add(wanted);
            }
        }
        kept_out
    }

    /// Tell the prefetcher what is read. It stops until what is returned is dropped, if the read misses a chunk.
    pub(super) fn follow(
        &self,
        handle: u64,
        chunks: Range<u64>,
        is_miss: bool,
    ) -> Option<Miss<'_>> {
        let prefetcher = self.prefetcher.as_ref()?;
        if self.leaves.is_complete() {
            return None;
        }
        let stopped = is_miss.then(|| prefetcher.enter_miss());
        prefetcher.note_read(handle, chunks);
        stopped
    }

    /// Fetch the chunks that a read lacks, all at once, and count its wait.
    fn obtain_for_read(
        &self,
        absent: &[u64],
        wanted: &Range<u64>,
        is_miss: bool,
    ) -> Result<KeptOut, ChunkError> {
        let start = Instant::now();
        let demand = self.enter_demand();
        let outcomes = self.obtain_all(&split_runs(absent), wanted, start);
        drop(demand);
        self.shared.add(Counter::Misses, u64::from(is_miss));
        self.shared
            .add(Counter::StallUs, start.elapsed().as_micros() as u64);
        collect_kept_out(outcomes)
    }

    fn obtain_all(
        &self,
        runs: &[Range<u64>],
        wanted: &Range<u64>,
        start: Instant,
    ) -> Vec<(u64, Outcome)> {
        let Some((first, others)) = runs.split_first() else {
            return Vec::new();
        };
        std::thread::scope(|scope| {
            let fetch = |run: &Range<u64>| {
                let thread = std::thread::Builder::new();
                let fetched = run.clone();
                let begin = move || self.obtain_within(&fetched, wanted, start);
                (run.clone(), thread.spawn_scoped(scope, begin))
            };
            let threads: Vec<_> = others.iter().map(fetch).collect();
            let mut outcomes = self.obtain_within(first, wanted, start);
            for (run, thread) in threads {
                outcomes.extend(match thread {
                    Ok(thread) => thread.join().unwrap_or_else(|_| {
                        run.map(|chunk| (chunk, Err(ChunkError::Abandoned)))
                            .collect()
                    }),
                    // No thread could be had.
                    Err(_) => self.obtain_within(&run, wanted, start),
                });
            }
            outcomes
        })
    }

    /// Copy a range whose chunks were prepared.
    ///
    /// # Errors
    /// Of the local disk.
    pub fn copy(&self, offset: u64, buffer: &mut [u8], kept_out: &KeptOut) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let within = (at % CHUNK) as usize;
            let len = (CHUNK as usize - within).min(buffer.len() - done);
            let target = &mut buffer[done..done + len];
            match kept_out.get(&(at / CHUNK)) {
                Some(bytes) => target.copy_from_slice(&bytes[within..within + len]),
                None => self.leaves.file().read_exact_at(target, at)?,
            }
            done += len;
        }
        Ok(())
    }

    /// Return whether the leaves of a chunk that a range of bytes needs are local.
    fn has_wanted(&self, chunk: u64, wanted: &Range<u64>) -> bool {
        let start = (chunk * CHUNK).max(wanted.start);
        let end = ((chunk + 1) * CHUNK).min(wanted.end);
        let is_local = self.leaves.check_range(&(start..end));
        self.count_lost();
        is_local
    }

    pub(super) fn is_local(&self, chunk: u64) -> bool {
        let is_local = self.leaves.check(chunk);
        self.count_lost();
        is_local
    }

    fn count_lost(&self) {
        let lost = self.leaves.take_lost();
        if lost > 0 {
            self.shared.add(Counter::Corrupt, lost);
        }
    }

    /// Fetch chunks for a read that began at `start`, again and again until its time is over.
    fn obtain_within(
        &self,
        run: &Range<u64>,
        wanted: &Range<u64>,
        start: Instant,
    ) -> Vec<(u64, Outcome)> {
        let mut pause = FIRST_PAUSE;
        loop {
            let limit = match self.wait {
                Duration::ZERO => ONE_ATTEMPT,
                wait => wait.saturating_sub(start.elapsed()).max(FIRST_PAUSE),
            };
            let outcomes = self.obtain_wanted(run, wanted, limit);
            let left = self.wait.saturating_sub(start.elapsed());
            let Some(delay) = find_delay(&outcomes).filter(|_| !left.is_zero()) else {
                return outcomes;
            };
            std::thread::sleep(pause.max(delay).min(left));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Fetch adjacent chunks as `obtain` does, but wait no longer than until the leaves that a read needs are there.
    fn obtain_wanted(
        &self,
        run: &Range<u64>,
        wanted: &Range<u64>,
        limit: Duration,
    ) -> Vec<(u64, Outcome)> {
        let limit = limit.min(REQUEST_TIME);
        let reach = self.sources.reach(run.start);
        let begun = self.flights.begin(run.clone(), reach, Purpose::Demand);
        let mut flights = begun.own.flights();
        flights.extend(begun.joined);
        if !begun.own.is_empty() {
            let fetch = (begun.own, reach, limit);
            self.aside.fetch(fetch, |fetch| self.fetch_for_read(fetch));
        }
        let wait = |(chunk, flight): (u64, Arc<Flight>)| {
            let are_local = || self.has_wanted(chunk, wanted);
            (chunk, flight.wait_for(limit, are_local))
        };
        flights.into_iter().map(wait).collect()
    }
}

pub(super) fn collect_kept_out(outcomes: Vec<(u64, Outcome)>) -> Result<KeptOut, ChunkError> {
    let mut kept_out = HashMap::new();
    for (chunk, outcome) in outcomes {
        if let Chunk::Bytes(bytes) = outcome? {
            kept_out.insert(chunk, bytes);
        }
    }
    Ok(kept_out)
}
