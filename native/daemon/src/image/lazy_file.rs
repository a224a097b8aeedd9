//! A file whose chunks are fetched when they are read.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use diffcache_dataplane::gate::lock;
use diffcache_dataplane::serving::partial::{RangeRequest, Want};
use diffcache_prefetch::Profile;

use crate::image::aside::{Aside, Fetch};
use crate::image::flights::{Flight, Flights, Landing, Purpose, Reach};
use crate::image::leaves::{Leaves, CHUNK, GROUP_CHUNKS};
use crate::peers::homes::PROBE_PAUSE;
use crate::prefetch::file_follower::{FileFollower, ReadRanges};
use crate::prefetch::hydration::Plan;
use crate::prefetch::prefetcher::{Miss, Prefetcher};
use crate::prefetch::record::now_ns;
use crate::processes::shared::{Counter, Shared};
use crate::sources::selection::{Sources, Wanted};
use crate::sources::source::{Fetched, SourceError, REQUEST_TIME};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a read waits for its only attempt, if it does not wait for another.
const ONE_ATTEMPT: Duration = Duration::from_secs(10);
const NS_PER_S: f64 = 1e9;

/// Where the bytes of a chunk are.
#[derive(Clone)]
pub enum Chunk {
    /// In the local file.
    Local,
    /// Only here: the disk did not take them.
    Bytes(Arc<Vec<u8>>),
}

/// Why a chunk could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ChunkError {
    /// The source failed.
    #[error("source failed: {0}")]
    Source(#[from] SourceError),
    /// Bytes that are not the image's.
    #[error("leaf {0} has wrong bytes: the source holds another image or is damaged")]
    Wrong(u64),
    /// The local disk failed.
    #[error("local disk failed: {0}")]
    Disk(String),
    /// The fetch that is on its way takes too long.
    #[error("the source is too slow")]
    TooSlow,
    /// The fetch ended without a result.
    #[error("the fetch was abandoned")]
    Abandoned,
}

impl ChunkError {
    /// Return whether the source does not have the chunk.
    pub fn is_absent(&self) -> bool {
        matches!(self, ChunkError::Source(error) if error.is_absent())
    }

    /// Return whether the source can be connected to, and does not answer in time.
    pub fn is_silence(&self) -> bool {
        matches!(self, ChunkError::Source(SourceError::Silent(_)))
    }

    /// Return how long the source asks to be left alone.
    pub fn delay(&self) -> Duration {
        match self {
            ChunkError::Source(error) => error.delay(),
            _ => Duration::ZERO,
        }
    }
}

/// What became of the fetch of a chunk.
pub type Outcome = Result<Chunk, ChunkError>;

/// Bytes of chunks that the disk did not take, by number.
pub type KeptOut = HashMap<u64, Arc<Vec<u8>>>;

/// A range of the image for a peer.
#[derive(Debug, PartialEq, Eq)]
pub enum Provided {
    /// It is in the local file.
    InFile,
    /// Some of it is not there.
    Absent,
    /// Its bytes, some of which the disk did not take.
    Bytes(Vec<u8>),
}

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
        *lock(&self.0.demand) -= 1;
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
    fn follow(&self, handle: u64, chunks: Range<u64>, is_miss: bool) -> Option<Miss<'_>> {
        let prefetcher = self.prefetcher.as_ref()?;
        if self.leaves.is_complete() {
            return None;
        }
        let stopped = is_miss.then(|| prefetcher.enter_miss());
        prefetcher.note_read(handle, chunks);
        stopped
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

    fn is_local(&self, chunk: u64) -> bool {
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

    /// Return whether a chunk is local or on its way.
    fn is_there(&self, chunk: u64) -> bool {
        self.leaves.is_marked(chunk) || self.flights.has(chunk)
    }

    fn enter_demand(&self) -> Demand<'_> {
        *lock(&self.demand) += 1;
        Demand(self)
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

    /// Fetch adjacent chunks of one group, or wait for the fetches that are on their way, within `limit`.
    fn obtain(
        &self,
        run: &Range<u64>,
        reach: Reach,
        purpose: Purpose,
        limit: Duration,
    ) -> Vec<(u64, Outcome)> {
        let limit = limit.min(REQUEST_TIME);
        let begun = self.flights.begin(run.clone(), reach, purpose);
        let mut outcomes = self.fetch_own(begun.own, reach, purpose, limit);
        let wait = |(chunk, flight): (u64, Arc<Flight>)| (chunk, flight.wait(limit));
        outcomes.extend(begun.joined.into_iter().map(wait));
        outcomes
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

    /// Fetch the chunks of a landing, and return what became of them.
    fn fetch_own(
        &self,
        mut own: Landing,
        reach: Reach,
        purpose: Purpose,
        limit: Duration,
    ) -> Vec<(u64, Outcome)> {
        let end = Instant::now() + limit;
        let mut absent = own.chunks();
        let mut joined = Vec::new();
        self.skip_local(&mut own, &mut absent);
        if reach == Reach::Site {
            self.fetch_from_homes(&mut own, &mut absent, purpose, end);
            let turned = own.turn_direct(absent);
            (absent, joined) = (turned.own, turned.joined);
            self.skip_local(&mut own, &mut absent);
        }
        self.fetch_directly(&mut own, &absent, purpose, end);
        for (chunk, flight) in joined {
            own.set(
                chunk,
                flight.wait(end.saturating_duration_since(Instant::now())),
            );
        }
        own.land()
    }

    /// Leave out chunks whose fetch by others ended between the caller's look and the beginning of its own.
    fn skip_local(&self, own: &mut Landing, absent: &mut Vec<u64>) {
        absent.retain(|chunk| {
            let is_local = self.is_local(*chunk);
            if is_local {
                own.set(*chunk, Ok(Chunk::Local));
            }
            !is_local
        });
    }

    /// Fetch chunks from their homes; those that none served stay `absent`.
    fn fetch_from_homes(
        &self,
        own: &mut Landing,
        absent: &mut Vec<u64>,
        purpose: Purpose,
        end: Instant,
    ) {
        let runs = split_runs(absent);
        absent.clear();
        for run in runs {
            let begun = now_ns();
            let from_homes = |wanted: Wanted<'_>| self.sources.fetch_from_homes(wanted, end);
            match self.ask(own, &run, from_homes) {
                Some(fetched) => self.receive(own, &run, fetched, purpose, begun),
                None => absent.extend(run),
            }
        }
    }

    fn fetch_directly(&self, own: &mut Landing, absent: &[u64], purpose: Purpose, end: Instant) {
        for run in split_runs(absent) {
            let begun = now_ns();
            let directly = |wanted: Wanted<'_>| self.sources.fetch_directly(wanted, end);
            match self.ask(own, &run, directly) {
                Ok(fetched) => self.receive(own, &run, fetched, purpose, begun),
                Err(error) => run.for_each(|chunk| own.set(chunk, Err(error.clone()))),
            }
        }
    }

    /// Have a run fetched; leaves are kept as they arrive.
    fn ask<T>(&self, own: &Landing, run: &Range<u64>, fetch: impl FnOnce(Wanted<'_>) -> T) -> T {
        fetch(Wanted {
            leaves: &self.leaves,
            run,
            on_arrival: &|| own.note_arrival(run.clone()),
        })
    }

    /// Fetch chunks that reads wait for, without end.
    pub fn fetch_aside(&self) {
        loop {
            self.fetch_for_read(self.aside.next());
        }
    }

    fn fetch_for_read(&self, (own, reach, limit): Fetch) {
        self.fetch_own(own, reach, Purpose::Demand, limit);
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

    /// Keep and count what was fetched since `begun`, by the monotonic clock in nanoseconds.
    fn receive(
        &self,
        own: &mut Landing,
        run: &Range<u64>,
        fetched: Fetched,
        purpose: Purpose,
        begun: u64,
    ) {
        self.shared
            .add(Counter::BytesFetched, fetched.bytes.len() as u64);
        if purpose == Purpose::Prefetch {
            // Before a read can find the chunks.
            run.clone()
                .for_each(|chunk| self.shared.note_prefetched(chunk));
        }
        let with_it = self.keep_others(&fetched);
        if purpose == Purpose::Hydration {
            let bytes = fetched.bytes.len() as u64 + with_it;
            self.shared.add(Counter::HydratedBytes, bytes);
            self.shared.add(Counter::HydratingNs, now_ns() - begun);
        }
        let chunks = run.clone().zip(fetched.bytes.chunks(CHUNK as usize));
        chunks.for_each(|(chunk, bytes)| own.set(chunk, self.keep(chunk, bytes)));
        self.note_complete();
    }

    fn keep(&self, chunk: u64, bytes: &[u8]) -> Outcome {
        let Err(error) = self.leaves.keep(chunk, bytes) else {
            return Ok(Chunk::Local);
        };
        // Of leaves that were kept when they arrived, the source may have sent others since.
        if let Some(leaf) = self.leaves.find_wrong(chunk, bytes, 0) {
            return Err(ChunkError::Wrong(leaf));
        }
        self.shared.note_lost(chunk);
        self.shared.add(Counter::NotKept, 1);
        log::warn!("Serving chunk {chunk} without keeping it: {error}");
        Ok(Chunk::Bytes(Arc::new(bytes.to_vec())))
    }

    /// Give a range to a peer: what is there, or what can be fetched without other hosts that would fetch it.
    ///
    /// # Errors
    /// Of the last attempt.
    pub fn provide(&self, request: &RangeRequest, limit: Duration) -> Result<Provided, ChunkError> {
        let chunks = request.offset / CHUNK..(request.offset + request.len).div_ceil(CHUNK);
        let mut absent = Vec::new();
        for chunk in chunks {
            if !self.is_local(chunk) {
                absent.push(chunk);
            }
        }
        if request.want == Want::Present {
            // By its home, or by the host that takes its place.
            self.sources.homes().wake_home_of(request.offset / CHUNK);
            if !absent.is_empty() {
                return Ok(Provided::Absent);
            }
        }
        let outcomes = match request.want {
            Want::Arriving => match self.await_arriving(&absent, limit) {
                Some(outcomes) => outcomes,
                None => return Ok(Provided::Absent),
            },
            Want::Present | Want::Fetched => self.obtain_for_peer(&absent, limit),
        };
        let kept_out = collect_kept_out(outcomes)?;
        if kept_out.is_empty() {
            return Ok(Provided::InFile);
        }
        let mut bytes = vec![0; request.len as usize];
        let copied = self.copy(request.offset, &mut bytes, &kept_out);
        copied.map_err(|error| ChunkError::Disk(error.to_string()))?;
        Ok(Provided::Bytes(bytes))
    }

    fn obtain_for_peer(&self, absent: &[u64], limit: Duration) -> Vec<(u64, Outcome)> {
        let _demand = (!absent.is_empty()).then(|| self.enter_demand());
        let obtain = |run: Range<u64>| self.obtain(&run, Reach::Direct, Purpose::Peer, limit);
        split_runs(absent).into_iter().flat_map(obtain).collect()
    }

    /// Wait for chunks that are on their way here; none if some are not, or do not come.
    fn await_arriving(&self, absent: &[u64], limit: Duration) -> Option<Vec<(u64, Outcome)>> {
        let end = Instant::now() + limit;
        let wait = |chunk: &u64| match self.flights.find(*chunk) {
            Some(flight) => {
                let outcome = flight.wait(end.saturating_duration_since(Instant::now()));
                outcome.is_ok().then_some((*chunk, outcome))
            }
            // It may have come since the look at the file.
            None => {
                let is_local = self.is_local(*chunk);
                is_local.then_some((*chunk, Ok(Chunk::Local)))
            }
        };
        absent.iter().map(wait).collect()
    }

    /// Count a range that is sent to a peer.
    pub fn count_provided(&self, len: u64) {
        self.shared.add(Counter::PeerRequests, 1);
        self.shared.add(Counter::PeerBytes, len);
    }

    /// Probe homes that did not answer, without end.
    pub fn probe_homes(&self) {
        loop {
            std::thread::sleep(PROBE_PAUSE);
            self.sources.homes().probe();
        }
    }

    /// Keep the absent ones of the chunks that came with another; return their bytes.
    fn keep_others(&self, fetched: &Fetched) -> u64 {
        let mut kept = 0;
        for (chunk, bytes) in &fetched.others {
            if self.leaves.is_marked(*chunk) || !self.leaves.has_room() {
                continue;
            }
            match self.leaves.keep(*chunk, bytes) {
                Ok(()) => kept += bytes.len() as u64,
                Err(error) => log::warn!("Could not keep chunk {chunk}: {error}"),
            }
        }
        self.shared.add(Counter::BytesFetched, kept);
        kept
    }

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
        *lock(&self.follower) = FileFollower::default();
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

    /// Note that all is local, and verified by this worker.
    fn note_complete(&self) {
        if self.shared.get(Counter::Complete) == 0 && self.leaves.is_complete() {
            // The worker before this one may have completed it.
            let completed = self.shared.counter(Counter::CompletedNs);
            let (order, now) = (Ordering::Relaxed, now_ns());
            let _ = completed.compare_exchange(0, now, order, order);
            let complete = self.shared.counter(Counter::Complete);
            complete.store(1, Ordering::Release);
        }
    }

    fn wait_until_idle(&self) {
        if let Some(prefetcher) = &self.prefetcher {
            prefetcher.wait_until_idle();
        }
        let waited = self
            .no_demand
            .wait_while(lock(&self.demand), |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
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

fn collect_kept_out(outcomes: Vec<(u64, Outcome)>) -> Result<KeptOut, ChunkError> {
    let mut kept_out = HashMap::new();
    for (chunk, outcome) in outcomes {
        if let Chunk::Bytes(bytes) = outcome? {
            kept_out.insert(chunk, bytes);
        }
    }
    Ok(kept_out)
}

/// Return the time so many seconds later, by the monotonic clock in nanoseconds.
fn after(time_ns: u64, seconds: f64) -> u64 {
    // The conversion saturates.
    time_ns.saturating_add((seconds * NS_PER_S) as u64)
}

fn sleep_until(time_ns: u64) {
    std::thread::sleep(Duration::from_nanos(time_ns.saturating_sub(now_ns())));
}
