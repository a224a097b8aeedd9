//! What is fetched before it is read: chunks of the profile, and those that continue a sequence.
//!
//! The order is that of the simulation: the queue and the sequences are those of `diffcache-prefetch`. All handles share one queue, as they share
//! the file; each has sequences of its own. A chunk that a handle here has read is here, so that only the profile brings hints.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};

use diffcache_prefetch::replay::Policy;
use diffcache_prefetch::{Chunk, Hint, Profile, Queue, Sequences, Threshold};

use crate::lazy_file::lock;

/// Prefetches of one image.
pub struct Prefetcher {
    chunks: Chunk,
    policy: Policy,
    state: Mutex<State>,
    changed: Condvar,
    idle: Condvar,
}

struct State {
    /// The chunks that enough instances read.
    profile: Profile,
    queue: Queue,
    sequences: HashMap<u64, Sequences>,
    has_begun: bool,
    /// Reads that wait for a chunk that was not on its way.
    misses: usize,
}

impl State {
    fn hint(&self, chunk: Chunk) -> Hint {
        Hint {
            chunk,
            record: self.profile.get(chunk),
        }
    }

    fn queue_profile(&mut self) {
        let chunks = self.profile.rows();
        let hints: Vec<_> = chunks.map(|(chunk, ..)| self.hint(chunk)).collect();
        self.queue.replace_hints(hints);
    }
}

/// Leave the chunks out that too few of a profile's instances read.
fn choose(profile: &Profile) -> Profile {
    let instances = usize::try_from(profile.most()).unwrap_or(usize::MAX);
    let least = Threshold::default().readers(instances);
    profile.at_least(least)
}

/// A read that stops prefetching until it has its chunks.
pub struct Miss<'a>(&'a Prefetcher);

impl Drop for Miss<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.misses -= 1;
        if state.misses == 0 {
            state.queue.resume();
            self.0.changed.notify_all();
        }
    }
}

impl Prefetcher {
    /// Prefetch an image of so many chunks.
    pub fn new(chunks: Chunk, profile: Profile, policy: Policy) -> Prefetcher {
        Prefetcher {
            chunks,
            policy,
            state: Mutex::new(State {
                profile: choose(&profile),
                queue: Queue::new(policy.in_flight),
                sequences: HashMap::new(),
                has_begun: false,
                misses: 0,
            }),
            changed: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Return how many chunks may be on their way.
    pub fn in_flight(&self) -> usize {
        self.policy.in_flight
    }

    /// Queue the chunks of the profile, unless a read has done so.
    pub fn begin(&self) {
        self.begin_with(&mut lock(&self.state));
    }

    fn begin_with(&self, state: &mut State) {
        if !state.has_begun {
            state.has_begun = true;
            state.queue_profile();
            self.changed.notify_all();
        }
    }

    /// Prefetch by another profile from now on; what waits of the last one is forgotten.
    pub fn replace(&self, profile: Profile) {
        let mut state = lock(&self.state);
        state.profile = choose(&profile);
        if state.has_begun {
            state.queue_profile();
            self.changed.notify_all();
        }
    }

    /// Stop prefetching while a miss is served.
    pub fn enter_miss(&self) -> Miss<'_> {
        let mut state = lock(&self.state);
        state.misses += 1;
        state.queue.stop();
        Miss(self)
    }

    /// Follow what a handle reads, and queue what continues it.
    pub fn note_read(&self, handle: u64, chunks: std::ops::Range<u64>) {
        let mut state = lock(&self.state);
        self.begin_with(&mut state);
        let State {
            profile,
            queue,
            sequences,
            ..
        } = &mut *state;
        let new = || Sequences::new(self.chunks, self.policy.read_ahead);
        let sequences = sequences.entry(handle).or_insert_with(new);
        let mut is_wanted = false;
        for chunk in chunks.filter_map(|chunk| Chunk::try_from(chunk).ok()) {
            let ahead = sequences.read(chunk, profile.get(chunk).count > 0);
            is_wanted |= !ahead.is_empty();
            queue.add_sequence(ahead);
        }
        if is_wanted {
            self.changed.notify_all();
        }
    }

    /// Forget a handle that was closed.
    pub fn forget(&self, handle: u64) {
        lock(&self.state).sequences.remove(&handle);
    }

    /// Wait for the next chunk to fetch, which then is in flight until it is `done`. Chunks that are there or on their way are dropped.
    pub fn next(&self, is_there: impl Fn(Chunk) -> bool) -> Chunk {
        let mut state = lock(&self.state);
        loop {
            if let Some(chunk) = state.queue.next(&is_there) {
                return chunk;
            }
            if state.queue.is_idle() {
                self.idle.notify_all();
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// End the flight of a chunk. One that failed is queued again if it is in the profile.
    pub fn done(&self, chunk: Chunk, is_there: bool) {
        let mut state = lock(&self.state);
        state.queue.done();
        if !is_there && state.profile.get(chunk).count > 0 {
            let hint = state.hint(chunk);
            state.queue.add_hints([hint]);
        }
        self.changed.notify_all();
        if state.queue.is_idle() {
            self.idle.notify_all();
        }
    }

    /// Wait until nothing is queued or on its way.
    pub fn wait_until_idle(&self) {
        let waited = self
            .idle
            .wait_while(lock(&self.state), |state| !state.queue.is_idle());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefetcher(in_flight: usize) -> Prefetcher {
        let profile = Profile::from_rows([(5, 2, 9.0), (7, 3, 50.0), (8, 3, 20.0)]).unwrap();
        let policy = Policy {
            in_flight,
            read_ahead: 2,
        };
        Prefetcher::new(100, profile, policy)
    }

    /// Return the chunks to fetch now, without waiting.
    fn take(prefetcher: &Prefetcher) -> Option<Chunk> {
        lock(&prefetcher.state).queue.next(|_| false)
    }

    #[test]
    fn begins_with_the_first_read_most_frequent_then_earliest_first() {
        let prefetcher = prefetcher(3);
        assert_eq!(None, take(&prefetcher));
        prefetcher.begin();
        prefetcher.begin();
        let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
        assert_eq!(vec![8, 7, 5], found);
    }

    #[test]
    fn another_profile_takes_the_place_of_what_waits() {
        let prefetcher = prefetcher(9);
        let rows = [(1, 1, 9.0), (2, 100, 9.0), (3, 10, 9.0), (4, 9, 0.0)];
        prefetcher.begin();
        assert_eq!(Some(8), take(&prefetcher));
        prefetcher.replace(Profile::from_rows(rows).unwrap());
        // A tenth of the instances at least.
        let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
        assert_eq!(vec![2, 3], found);
        // What failed and is no longer known is not queued again.
        prefetcher.done(8, false);
        prefetcher.done(2, false);
        assert_eq!(Some(2), take(&prefetcher));
        assert_eq!(None, take(&prefetcher));
    }

    #[test]
    fn a_profile_that_comes_before_the_first_read_waits_for_it() {
        let prefetcher = prefetcher(9);
        prefetcher.replace(Profile::from_rows([(2, 1, 9.0)]).unwrap());
        assert_eq!(None, take(&prefetcher));
        prefetcher.note_read(1, 50..51);
        assert_eq!(Some(2), take(&prefetcher));
        assert_eq!(None, take(&prefetcher));
    }

    #[test]
    fn a_miss_stops_it_until_the_last_is_served() {
        let prefetcher = prefetcher(3);
        let one = prefetcher.enter_miss();
        let other = prefetcher.enter_miss();
        prefetcher.begin();
        assert_eq!(None, take(&prefetcher));
        drop(one);
        assert_eq!(None, take(&prefetcher));
        drop(other);
        assert_eq!(Some(8), take(&prefetcher));
    }

    #[test]
    fn few_are_in_flight_and_a_failed_one_is_queued_again() {
        let prefetcher = prefetcher(1);
        prefetcher.begin();
        assert_eq!(Some(8), take(&prefetcher));
        assert_eq!(None, take(&prefetcher));
        prefetcher.done(8, false);
        assert_eq!(Some(8), take(&prefetcher));
        prefetcher.done(8, true);
        assert_eq!(7, prefetcher.next(|_| false));
    }

    #[test]
    fn sequences_are_those_of_a_handle() {
        let prefetcher = prefetcher(3);
        prefetcher.begin();
        assert_eq!(3, std::iter::from_fn(|| take(&prefetcher)).count());
        [5, 7, 8]
            .iter()
            .for_each(|chunk| prefetcher.done(*chunk, true));
        for chunk in 20..23 {
            prefetcher.note_read(chunk, chunk..chunk + 1);
        }
        assert_eq!(None, take(&prefetcher));
        prefetcher.note_read(1, 30..33);
        assert_eq!(Some(33), take(&prefetcher));
        assert_eq!(Some(34), take(&prefetcher));
        prefetcher.forget(1);
        assert!(!lock(&prefetcher.state).sequences.contains_key(&1));
    }

    #[test]
    fn is_idle_when_all_is_done() {
        let prefetcher = prefetcher(3);
        prefetcher.begin();
        while let Some(chunk) = take(&prefetcher) {
            prefetcher.done(chunk, true);
        }
        prefetcher.wait_until_idle();
    }
}
