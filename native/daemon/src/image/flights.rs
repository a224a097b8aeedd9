//! Fetches that are on their way, so that a chunk is fetched once for all that want it.
//!
//! A fetch may reach for other hosts of the site, which may be about to fetch the chunk for this one, or go directly to where the image is. What a
//! peer asks this host for waits for direct fetches alone: hosts never wait for one another in a circle. Only what a home refers here waits for any
//! fetch, but begins none: homes refer to hosts that asked before alone, and the wait is short.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::atomic::{AtomicBool, Ordering};
use diffcache_base::sync::{wait_timeout, Arc, Condvar, Mutex};

use crate::image::chunk::{Chunk, ChunkError, Outcome};

/// Where a fetch may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reach {
    /// To hosts that have the chunk already, and to where the image comes from.
    Direct,
    /// Also to the chunk's home, which fetches it for this host.
    Site,
}

/// Why a chunk is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A read waits for it.
    Demand,
    /// A read is expected.
    Prefetch,
    /// All of the image is wanted.
    Hydration,
    /// A peer asked for it.
    Peer,
}

/// One fetch of a chunk.
pub struct Flight {
    purpose: Purpose,
    /// Whether bytes of the chunk have arrived.
    has_arrived: AtomicBool,
    outcome: Mutex<Option<Outcome>>,
    changed: Condvar,
}

impl Flight {
    /// Wait for the outcome.
    ///
    /// # Errors
    /// That of the fetch; `TooSlow` after `limit`.
    pub fn wait(&self, limit: Duration) -> Outcome {
        self.wait_for(limit, || false)
    }

    /// Wait for the outcome, or until the leaves that are wanted of the chunk are local.
    ///
    /// # Errors
    /// As `wait`.
    pub fn wait_for(&self, limit: Duration, are_local: impl Fn() -> bool) -> Outcome {
        let begin = Instant::now();
        let mut outcome = self.outcome.lock().unpoisoned();
        let mut is_over = false;
        while !is_over && outcome.is_none() && !are_local() {
            let left = limit.saturating_sub(begin.elapsed());
            (outcome, is_over) = wait_timeout((&self.outcome, &self.changed), outcome, left);
        }
        match &*outcome {
            Some(Ok(chunk)) => Ok(chunk.clone()),
            _ if are_local() => Ok(Chunk::Local),
            Some(Err(error)) => Err(error.clone()),
            None => Err(ChunkError::TooSlow),
        }
    }

    fn note_arrival(&self) {
        // A thread that looked and found nothing is waiting once the lock is free.
        drop(self.outcome.lock().unpoisoned());
        self.changed.notify_all();
    }
}

type OnTheirWay = Mutex<HashMap<(u64, Reach), Arc<Flight>>>;

/// The fetches of an image.
#[derive(Default)]
pub struct Flights {
    flights: Arc<OnTheirWay>,
}

/// The chunks of a run: those that are the caller's to fetch, and the fetches of the others.
pub struct Begun {
    /// To be fetched.
    pub own: Landing,
    /// Fetched by others.
    pub joined: Vec<(u64, Arc<Flight>)>,
}

impl Flights {
    /// Begin the fetch of chunks, except for those that others fetch.
    pub fn begin(&self, run: Range<u64>, reach: Reach, purpose: Purpose) -> Begun {
        let mut flights = self.flights.lock().unpoisoned();
        let (mut own, mut joined) = (BTreeMap::new(), Vec::new());
        for chunk in run {
            let found = flights.get(&(chunk, Reach::Direct));
            let found = found.or_else(|| flights.get(&(chunk, reach)));
            if let Some(flight) = found {
                joined.push((chunk, flight.clone()));
                continue;
            }
            let flight = Arc::new(Flight {
                purpose,
                has_arrived: AtomicBool::new(false),
                outcome: Mutex::default(),
                changed: Condvar::new(),
            });
            flights.insert((chunk, reach), flight.clone());
            own.insert(chunk, Own::new(flight, reach));
        }
        Begun {
            own: Landing {
                flights: self.flights.clone(),
                chunks: own,
            },
            joined,
        }
    }

    /// Return the fetch of a chunk that is on its way.
    pub fn find(&self, chunk: u64) -> Option<Arc<Flight>> {
        let flights = self.flights.lock().unpoisoned();
        let direct = flights.get(&(chunk, Reach::Direct));
        direct
            .or_else(|| flights.get(&(chunk, Reach::Site)))
            .cloned()
    }

    /// Return whether a chunk is on its way.
    pub fn has(&self, chunk: u64) -> bool {
        let flights = self.flights.lock().unpoisoned();
        flights.contains_key(&(chunk, Reach::Direct)) || flights.contains_key(&(chunk, Reach::Site))
    }

    /// Return whether a chunk was on its way before a read here asked for it, or has begun to arrive.
    pub fn is_ahead(&self, chunk: u64) -> bool {
        let flights = self.flights.lock().unpoisoned();
        let found = [Reach::Direct, Reach::Site].map(|reach| flights.get(&(chunk, reach)));
        let mut found = found.into_iter().flatten();
        found.any(|flight| {
            flight.purpose != Purpose::Demand || flight.has_arrived.load(Ordering::Relaxed)
        })
    }
}

/// The chunks of a landing after it turned to where the image comes from.
pub struct Turned {
    /// To be fetched.
    pub own: Vec<u64>,
    /// Fetched by others.
    pub joined: Vec<(u64, Arc<Flight>)>,
}

/// One fetch of a landing.
struct Own {
    flight: Arc<Flight>,
    reach: Reach,
    outcome: Outcome,
}

impl Own {
    fn new(flight: Arc<Flight>, reach: Reach) -> Own {
        Own {
            flight,
            reach,
            outcome: Err(ChunkError::Abandoned),
        }
    }
}

/// Fetches of one thread; their outcomes go to all that wait, whatever ends them.
pub struct Landing {
    flights: Arc<OnTheirWay>,
    chunks: BTreeMap<u64, Own>,
}

impl Landing {
    /// Return the chunks, in order.
    pub fn chunks(&self) -> Vec<u64> {
        self.chunks.keys().copied().collect()
    }

    /// Return whether all chunks are fetched by others.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Return the fetches, to wait for them elsewhere.
    pub fn flights(&self) -> Vec<(u64, Arc<Flight>)> {
        let flight = |(chunk, own): (&u64, &Own)| (*chunk, own.flight.clone());
        self.chunks.iter().map(flight).collect()
    }

    /// Turn fetches of chunks that no home served into direct ones; those that others fetch directly by now are joined.
    pub fn turn_direct(&mut self, chunks: Vec<u64>) -> Turned {
        let mut flights = self.flights.lock().unpoisoned();
        let (mut own, mut joined) = (Vec::new(), Vec::new());
        for chunk in chunks {
            let Some(found) = self.chunks.get_mut(&chunk) else {
                continue;
            };
            if let Some(other) = flights.get(&(chunk, Reach::Direct)) {
                joined.push((chunk, other.clone()));
                continue;
            }
            flights.remove(&(chunk, found.reach));
            flights.insert((chunk, Reach::Direct), found.flight.clone());
            found.reach = Reach::Direct;
            own.push(chunk);
        }
        Turned { own, joined }
    }

    /// Note that leaves of some of the chunks are about to become local.
    pub fn note_begun(&self, chunks: Range<u64>) {
        for (_, own) in self.chunks.range(chunks) {
            own.flight.has_arrived.store(true, Ordering::Relaxed);
        }
    }

    /// Note that leaves of some of the chunks have become local.
    pub fn note_arrival(&self, chunks: Range<u64>) {
        for (_, own) in self.chunks.range(chunks) {
            own.flight.note_arrival();
        }
    }

    /// Note what became of a chunk.
    pub fn set(&mut self, chunk: u64, outcome: Outcome) {
        if let Some(own) = self.chunks.get_mut(&chunk) {
            own.outcome = outcome;
        }
    }

    /// End the fetches, and return what became of the chunks.
    pub fn land(self) -> Vec<(u64, Outcome)> {
        let outcome = |(chunk, own): (&u64, &Own)| (*chunk, own.outcome.clone());
        self.chunks.iter().map(outcome).collect()
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        let mut flights = self.flights.lock().unpoisoned();
        for (chunk, own) in &self.chunks {
            flights.remove(&(*chunk, own.reach));
        }
        drop(flights);
        for own in self.chunks.values() {
            *own.flight.outcome.lock().unpoisoned() = Some(own.outcome.clone());
            own.flight.changed.notify_all();
        }
    }
}

#[cfg(all(test, feature = "schedules"))]
mod schedules;

#[cfg(test)]
mod tests {
    use super::*;

    fn is_joined(begun: &Begun) -> Vec<u64> {
        begun.joined.iter().map(|(chunk, _)| *chunk).collect()
    }

    #[test]
    fn chunks_on_their_way_are_joined_and_the_others_begun() {
        let flights = Flights::default();
        let first = flights.begin(3..5, Reach::Site, Purpose::Prefetch);
        assert_eq!(first.own.chunks(), [3, 4]);
        let second = flights.begin(2..6, Reach::Site, Purpose::Demand);
        assert_eq!(second.own.chunks(), [2, 5]);
        assert_eq!(is_joined(&second), [3, 4]);
        assert!(flights.is_ahead(3) && !flights.is_ahead(2) && flights.has(2));
        let mut own = first.own;
        own.set(3, Ok(Chunk::Local));
        own.land();
        let waited = |at: usize| second.joined[at].1.wait(Duration::ZERO);
        assert!(matches!(waited(0), Ok(Chunk::Local)));
        assert!(matches!(waited(1), Err(ChunkError::Abandoned)));
        assert!(!flights.has(3));
    }

    #[test]
    fn what_a_peer_asks_for_never_waits_for_a_fetch_by_way_of_the_site() {
        let flights = Flights::default();
        let by_site = flights.begin(0..1, Reach::Site, Purpose::Demand);
        let direct = flights.begin(0..1, Reach::Direct, Purpose::Peer);
        assert_eq!(direct.own.chunks(), [0]);
        // All others wait for the direct one.
        let third = flights.begin(0..1, Reach::Site, Purpose::Demand);
        assert!(Arc::ptr_eq(
            &third.joined[0].1,
            &direct.own.chunks[&0].flight
        ));
        drop(by_site);
        assert!(flights.has(0));
        drop(direct);
        assert!(!flights.has(0));
    }

    #[test]
    fn what_homes_do_not_serve_is_fetched_directly_once() {
        let flights = Flights::default();
        let mut by_site = flights.begin(0..2, Reach::Site, Purpose::Demand).own;
        let direct = flights.begin(1..2, Reach::Direct, Purpose::Peer).own;
        let Turned { own, joined } = by_site.turn_direct(vec![0, 1]);
        assert_eq!((own, joined.len(), joined[0].0), (vec![0], 1, 1));
        assert!(Arc::ptr_eq(&joined[0].1, &direct.chunks[&1].flight));
        // A chunk of which this host has become the home meanwhile.
        let second = flights.begin(0..2, Reach::Direct, Purpose::Demand);
        assert_eq!(is_joined(&second), [0, 1]);
        drop(direct);
        assert!(flights.has(0) && flights.has(1));
        drop(by_site);
        assert!(!flights.has(0) && !flights.has(1));
    }

    #[test]
    fn a_fetch_that_takes_too_long_is_left() {
        let flights = Flights::default();
        let _own = flights.begin(0..1, Reach::Direct, Purpose::Demand);
        let joined = flights.begin(0..1, Reach::Site, Purpose::Demand).joined;
        let waited = joined[0].1.wait(Duration::ZERO);
        assert!(matches!(waited, Err(ChunkError::TooSlow)));
    }
}
