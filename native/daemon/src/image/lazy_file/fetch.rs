//! Fetches of chunks: from their homes, else from the sources, into the local file.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::image::aside::Fetch;
use crate::image::chunk::{Chunk, ChunkError, Outcome};
use crate::image::flights::{Flight, Landing, Purpose, Reach};
use crate::image::lazy_file::{split_runs, LazyFile};
use crate::prefetch::record::now_ns;
use crate::processes::shared::Counter;
use crate::sizes::CHUNK;
use crate::sources::selection::Wanted;
use crate::sources::source::{Fetched, REQUEST_TIME};

impl LazyFile {
    /// Fetch adjacent chunks of one group, or wait for the fetches that are on their way, within `limit`.
    pub(super) fn obtain(
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
        let outcomes = own.land();
        if purpose == Purpose::Prefetch {
            let failed = outcomes.iter().filter(|(_, outcome)| outcome.is_err());
            failed.for_each(|(chunk, _)| self.shared.note_lost(*chunk));
        }
        outcomes
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
            match self.ask(own, &run, purpose, from_homes) {
                Some(fetched) => self.receive(own, &run, fetched, purpose, begun),
                None => absent.extend(run),
            }
        }
    }

    fn fetch_directly(&self, own: &mut Landing, absent: &[u64], purpose: Purpose, end: Instant) {
        for run in split_runs(absent) {
            let begun = now_ns();
            let directly = |wanted: Wanted<'_>| self.sources.fetch_directly(wanted, end);
            match self.ask(own, &run, purpose, directly) {
                Ok(fetched) => self.receive(own, &run, fetched, purpose, begun),
                Err(error) => run.for_each(|chunk| own.set(chunk, Err(error.clone()))),
            }
        }
    }

    /// Have a run fetched; leaves are kept as they arrive.
    fn ask<T>(
        &self,
        own: &Landing,
        run: &Range<u64>,
        purpose: Purpose,
        fetch: impl FnOnce(Wanted<'_>) -> T,
    ) -> T {
        fetch(Wanted {
            leaves: &self.leaves,
            run,
            before_arrival: &|bytes| {
                let begun = run.start..run.start + (bytes as u64).div_ceil(CHUNK);
                own.note_begun(begun.clone());
                self.note_fetched(begun, purpose);
            },
            on_arrival: &|| own.note_arrival(run.clone()),
        })
    }

    /// Fetch chunks that reads wait for, without end.
    pub fn fetch_aside(&self) {
        loop {
            self.fetch_for_read(self.aside.next());
        }
    }

    pub(super) fn fetch_for_read(&self, (own, reach, limit): Fetch) {
        self.fetch_own(own, reach, Purpose::Demand, limit);
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
        self.note_fetched(run.clone(), purpose);
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

    /// Note why chunks are there. Before a read can find a part of them: it would not count as a use.
    fn note_fetched(&self, chunks: Range<u64>, purpose: Purpose) {
        if purpose == Purpose::Prefetch {
            chunks.for_each(|chunk| self.shared.note_prefetched(chunk));
        }
    }

    pub(super) fn keep(&self, chunk: u64, bytes: &[u8]) -> Outcome {
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
}
