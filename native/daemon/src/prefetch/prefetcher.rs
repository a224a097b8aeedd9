//! What is fetched before it is read: chunks of the profile, those that continue a sequence, and the rest of a file.
//!
//! The order is that of the simulation: the queue and the sequences are those of `diffcache-prefetch`. All handles share one queue, as they share
//! the file; each has sequences of its own. A chunk that a handle here has read is here, so that hints come from the profile and from other hosts
//! alone. Of a chunk that both count, the greater count is taken: the profile has what the hosts of the site reported of this run, late, and what
//! others did before, so that a sum would count instances twice.

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex, PoisonError};

use diffcache_dataplane::gate::lock;
use diffcache_prefetch::Policy;
use diffcache_prefetch::{Chunk, ChunkSet, Hint, Profile, Queue, Record, Sequences, Threshold};

/// Chunks of hints that are fetched before any of them is read: 64 MiB.
const UNPROVEN: u64 = 256;
/// Further ones for each that is read: of what an honest profile names, more is.
const FOR_EACH_READ: u64 = 8;

/// Prefetches of one image.
pub struct Prefetcher {
    chunks: Chunk,
    policy: Policy,
    state: Mutex<State>,
    changed: Condvar,
    idle: Condvar,
}

struct State {
    threshold: Threshold,
    /// The chunks that enough instances read, by the profile alone.
    profile: Profile,
    /// What the hosts of the site know.
    site: Profile,
    /// The greater count of both, for each chunk.
    known: Profile,
    /// The greatest count, and the least of a hint.
    most: u64,
    least: u64,
    /// Hints that were queued.
    given: ChunkSet,
    queue: Queue,
    sequences: HashMap<u64, Sequences>,
    /// Whether hints are queued.
    has_begun: bool,
    /// Whether hints are taken at all.
    takes_hints: bool,
    /// What was fetched for hints since guests read the image, and was not read yet; and how many chunks were.
    unread: HashSet<Chunk>,
    proven: u64,
    /// Whether hints are left alone, as too few of them were read.
    is_doubted: bool,
    /// Whether guests read the image: what other hosts know is fetched from then on alone.
    is_read: bool,
    /// Reads that wait for a chunk that was not on its way.
    misses: usize,
}

impl State {
    fn new(profile: &Profile, policy: Policy) -> State {
        let mut state = State {
            threshold: policy.threshold,
            profile: Profile::default(),
            site: Profile::default(),
            known: Profile::default(),
            most: 0,
            least: 1,
            given: ChunkSet::default(),
            queue: Queue::new(policy.in_flight),
            sequences: HashMap::new(),
            has_begun: false,
            takes_hints: true,
            unread: HashSet::new(),
            proven: 0,
            is_doubted: false,
            is_read: false,
            misses: 0,
        };
        state.set_profile(profile);
        state
    }

    fn set_profile(&mut self, profile: &Profile) {
        self.profile = choose(profile, self.threshold);
        self.known = profile.clone();
        for (chunk, ..) in self.site.rows() {
            self.known.raise(chunk, self.site.get(chunk));
        }
        self.most = self.known.most();
        self.least = least_of(self.most, self.threshold);
    }

    /// Return whether a chunk is a hint: by the profile, whatever others count, or because enough instances of the site read it.
    fn is_known(&self, chunk: Chunk) -> bool {
        let is_shared = || self.known.get(chunk).count >= self.least;
        self.profile.get(chunk).count > 0 || (self.is_read && is_shared())
    }

    fn hint(&self, chunk: Chunk) -> Hint {
        Hint {
            chunk,
            record: self.known.get(chunk),
        }
    }

    /// Note a chunk that is to be fetched. Once much was fetched of which little was read, hints of any origin are no help to this guest.
    fn note_taken(&mut self, chunk: Chunk) {
        if self.is_read && self.is_known(chunk) && self.unread.insert(chunk) {
            self.is_doubted = self.unread.len() as u64 > UNPROVEN + FOR_EACH_READ * self.proven;
            if self.is_doubted {
                self.queue.replace_hints([]);
            }
        }
    }

    /// Note a chunk that was read. Hints count again when enough of them were.
    fn note_proof(&mut self, chunk: Chunk) {
        if !self.unread.remove(&chunk) {
            return;
        }
        self.proven += 1;
        let most = UNPROVEN + FOR_EACH_READ * self.proven;
        if self.is_doubted && (self.unread.len() as u64) < most {
            self.is_doubted = false;
            self.queue_known();
        }
    }

    /// Queue all hints in place of those that wait.
    fn queue_known(&mut self) {
        if self.is_doubted {
            return;
        }
        let chunks = self.known.rows().map(|(chunk, ..)| chunk);
        let chunks: Vec<_> = chunks.filter(|chunk| self.is_known(*chunk)).collect();
        self.given = ChunkSet::default();
        for chunk in &chunks {
            self.given.insert(*chunk);
        }
        let hints: Vec<_> = chunks.into_iter().map(|chunk| self.hint(chunk)).collect();
        self.queue.replace_hints(hints);
    }

    /// Queue chunks that have become hints.
    fn queue_new(&mut self, chunks: &[Chunk]) {
        if self.is_doubted {
            return;
        }
        for chunk in chunks {
            if self.is_known(*chunk) && self.given.insert(*chunk) {
                let hint = self.hint(*chunk);
                self.queue.add_hints([hint]);
            }
        }
    }
}

/// Return the least number of readers of a hint where the most frequent chunk has so many.
fn least_of(most: u64, threshold: Threshold) -> u64 {
    threshold.readers(usize::try_from(most).unwrap_or(usize::MAX))
}

/// Leave the chunks out that too few of a profile's instances read.
pub fn choose(profile: &Profile, threshold: Threshold) -> Profile {
    profile.at_least(least_of(profile.most(), threshold))
}

/// A read that stops prefetching until it has its chunks.
pub struct Miss<'a>(&'a Prefetcher);

impl Drop for Miss<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.misses -= 1;
        if state.misses == 0 {
            state.queue.resume();
            self.0.wake(&state);
        }
    }
}

impl Prefetcher {
    /// Prefetch an image of so many chunks.
    pub fn new(chunks: Chunk, profile: Profile, policy: Policy) -> Prefetcher {
        Prefetcher {
            chunks,
            policy,
            state: Mutex::new(State::new(&profile, policy)),
            changed: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Return how many chunks may be on their way.
    pub fn in_flight(&self) -> usize {
        self.policy.in_flight
    }

    /// Queue the chunks that are known, unless a read has done so.
    pub fn begin(&self) {
        self.begin_with(&mut lock(&self.state));
    }

    /// Queue the chunks of the profile before any read.
    pub fn begin_profile(&self) {
        let mut state = lock(&self.state);
        if !state.has_begun {
            state.has_begun = true;
            state.queue_known();
            self.wake(&state);
        }
    }

    /// Queue the chunks of the profile again that are not there: those that were left to another fetch, which failed.
    pub fn queue_absent(&self, is_there: impl Fn(Chunk) -> bool) {
        let mut state = lock(&self.state);
        let chunks = state.profile.rows().map(|(chunk, ..)| chunk);
        let absent = chunks.filter(|chunk| !is_there(*chunk));
        let hints: Vec<_> = absent.map(|chunk| state.hint(chunk)).collect();
        state.queue.add_hints(hints);
        self.wake(&state);
    }

    /// Wake the threads that wait for a chunk, or for the end of all, if there is one.
    fn wake(&self, state: &State) {
        if state.queue.has_next() {
            self.changed.notify_all();
        } else if state.queue.is_idle() {
            self.idle.notify_all();
        }
    }

    fn begin_with(&self, state: &mut State) {
        if !state.is_read {
            (state.has_begun, state.is_read) = (true, true);
            state.queue_known();
            self.wake(state);
        }
    }

    /// Prefetch by another profile from now on; what waits of the last one is forgotten.
    pub fn replace(&self, profile: Profile) {
        let mut state = lock(&self.state);
        if !state.takes_hints {
            return;
        }
        state.set_profile(&profile);
        if state.has_begun {
            state.queue_known();
            self.wake(&state);
        }
    }

    /// Forget all hints, and take no more: what continues a sequence is prefetched alone.
    pub fn forget_hints(&self) {
        let mut state = lock(&self.state);
        state.takes_hints = false;
        state.site = Profile::default();
        state.set_profile(&Profile::default());
        state.queue_known();
        self.wake(&state);
    }

    /// Prefetch what hosts of the site have read, too: chunks, by how many instances in all, and their mean time in microseconds.
    pub fn learn(&self, rows: Vec<(Chunk, u64, f64)>) {
        let mut state = lock(&self.state);
        if !state.takes_hints {
            return;
        }
        for &(chunk, count, mean_us) in &rows {
            let record = Record::new(count, mean_us);
            state.site.raise(chunk, record);
            state.known.raise(chunk, record);
            state.most = state.most.max(record.count);
        }
        let before = state.least;
        state.least = least_of(state.most, state.threshold);
        if !state.is_read {
            return;
        }
        if state.least == before {
            let chunks: Vec<_> = rows.iter().map(|row| row.0).collect();
            state.queue_new(&chunks);
        } else {
            state.queue_known();
        }
        self.wake(&state);
    }

    /// Return whether a chunk is a hint by what hosts of the site have read, and not by the profile.
    pub fn was_taught(&self, chunk: Chunk) -> bool {
        let state = lock(&self.state);
        state.is_known(chunk) && state.profile.get(chunk).count == 0
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
        let new = || Sequences::new(self.chunks, self.policy.read_ahead);
        for chunk in chunks.filter_map(|chunk| Chunk::try_from(chunk).ok()) {
            state.note_proof(chunk);
            let is_known = state.is_known(chunk);
            let sequences = state.sequences.entry(handle).or_insert_with(new);
            let ahead = sequences.read(chunk, is_known);
            if !ahead.is_empty() {
                state.queue.add_sequence(ahead);
                self.wake(&state);
            }
        }
    }

    /// Return how many chunks of the rest of a file to prefetch after a read that ends in this chunk: none where hints say what follows.
    pub fn wanted_rest(&self, chunk: u64) -> usize {
        let state = lock(&self.state);
        let is_known = Chunk::try_from(chunk).is_ok_and(|chunk| state.is_known(chunk));
        match is_known {
            true => 0,
            false => self.policy.rest,
        }
    }

    /// Queue the rest of a file that is being read.
    pub fn note_rest(&self, chunks: Vec<Chunk>) {
        if !chunks.is_empty() {
            let mut state = lock(&self.state);
            state.queue.add_in_order(chunks);
            self.wake(&state);
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
                state.note_taken(chunk);
                return chunk;
            }
            if state.queue.is_idle() {
                self.idle.notify_all();
            }
            let waited = self.changed.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// End the flight of a chunk, by the thread that fetched it and then takes the next. One that failed is queued again if it is a hint.
    pub fn done(&self, chunk: Chunk, is_there: bool) {
        let mut state = lock(&self.state);
        state.queue.done();
        if !is_there && state.is_known(chunk) && !state.is_doubted {
            let hint = state.hint(chunk);
            state.queue.add_hints([hint]);
        }
        // What can be fetched next, the caller takes.
        if state.queue.is_idle() {
            self.idle.notify_all();
        }
    }

    /// Return whether nothing is queued or on its way.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        lock(&self.state).queue.is_idle()
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

    /// Take and end fetches until nothing is queued, and return what was fetched.
    fn fetch_all(prefetcher: &Prefetcher, there: &mut HashSet<Chunk>) -> Vec<Chunk> {
        let mut fetched = Vec::new();
        while !prefetcher.is_idle() {
            let chunk = prefetcher.next(|chunk| there.contains(&chunk));
            there.insert(chunk);
            prefetcher.done(chunk, true);
            fetched.push(chunk);
        }
        fetched
    }

    /// Regression: chunks that one host had invented were fetched before all others, 2 GiB of which nothing was read.
    #[test]
    fn hints_of_which_nothing_is_read_are_left_alone() {
        let invented = (0..8192).map(|chunk| (chunk, 16, 0.0));
        let policy = Policy {
            in_flight: 1,
            read_ahead: 0,
            ..Policy::default()
        };
        let profile = Profile::from_rows(invented).unwrap();
        let prefetcher = Prefetcher::new(20_000, profile, policy);
        let mut there = HashSet::from([10_000]);
        prefetcher.note_read(1, 10_000..10_001);
        let fetched = fetch_all(&prefetcher, &mut there);
        assert_eq!(fetched.len() as u64, UNPROVEN + 1);
        // What other hosts count is no proof either.
        prefetcher.learn((8192..9000).map(|chunk| (chunk, 99, 0.0)).collect());
        assert!(prefetcher.is_idle());
        // What is read is: the others follow.
        prefetcher.note_read(1, 0..3);
        assert!(fetch_all(&prefetcher, &mut there).len() as u64 >= FOR_EACH_READ);
    }

    #[test]
    fn all_hints_are_followed_of_which_enough_is_read() {
        let rows = (0..2000).map(|chunk| (chunk, 2, f64::from(chunk)));
        let profile = Profile::from_rows(rows).unwrap();
        let policy = Policy {
            in_flight: 1,
            read_ahead: 0,
            ..Policy::default()
        };
        let prefetcher = Prefetcher::new(2000, profile, policy);
        let mut there = HashSet::new();
        for chunk in (0..2000).step_by(4) {
            there.insert(chunk);
            prefetcher.note_read(1, u64::from(chunk)..u64::from(chunk) + 1);
            fetch_all(&prefetcher, &mut there);
        }
        assert_eq!(there.len(), 2000);
    }

    fn prefetcher(in_flight: usize) -> Prefetcher {
        let profile = Profile::from_rows([(5, 2, 9.0), (7, 3, 50.0), (8, 3, 20.0)]).unwrap();
        let policy = Policy {
            in_flight,
            read_ahead: 2,
            ..Policy::default()
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
    fn the_threshold_says_which_chunks_are_hints() {
        let rows = [(1, 1, 9.0), (2, 10, 8.0), (3, 5, 9.0), (4, 4, 9.0)];
        let given = |threshold: f64| {
            let policy = Policy {
                threshold: Threshold::new(threshold).unwrap(),
                ..Policy::default()
            };
            let profile = Profile::from_rows(rows).unwrap();
            let prefetcher = Prefetcher::new(100, profile, policy);
            prefetcher.begin();
            let chunks = || {
                std::iter::from_fn(|| {
                    let chunk = take(&prefetcher)?;
                    prefetcher.done(chunk, true);
                    Some(chunk)
                })
            };
            let of_profile: Vec<_> = chunks().collect();
            prefetcher.learn(vec![(50, 3, 1.0), (51, 9, 2.0)]);
            (of_profile, chunks().collect::<Vec<_>>())
        };
        // A share of the instances that read the most frequent chunk, or a number.
        assert_eq!((vec![2, 3, 4, 1], vec![51, 50]), given(0.1));
        assert_eq!((vec![2, 3], vec![51]), given(0.5));
        assert_eq!((vec![2, 3, 4], vec![51]), given(4.0));
        assert_eq!((vec![], vec![]), given(11.0));
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
    fn what_hosts_have_read_is_prefetched_once() {
        let prefetcher = Prefetcher::new(100, Profile::default(), Policy::default());
        let take = || std::iter::from_fn(|| take(&prefetcher));
        prefetcher.learn(vec![(4, 1, 20.0), (5, 1, 9.0)]);
        assert_eq!(None, take().next());
        prefetcher.begin();
        assert_eq!(vec![5, 4], Vec::from_iter(take()));
        (0..2).for_each(|_| prefetcher.done(4, true));
        prefetcher.learn(vec![(4, 2, 20.0), (6, 1, 9.0)]);
        assert_eq!(vec![6], Vec::from_iter(take()));
        assert!(prefetcher.was_taught(6));
        prefetcher.done(6, false);
        assert_eq!(Some(6), take().next());
    }

    #[test]
    fn few_readers_are_no_hint_where_others_have_many() {
        let prefetcher = Prefetcher::new(100, Profile::default(), Policy::default());
        prefetcher.begin();
        // One waits while the count of another rises: it is no longer a hint.
        prefetcher.learn(vec![(4, 1, 20.0)]);
        prefetcher.learn(vec![(5, 11, 20.0), (6, 2, 20.0), (7, 1, 20.0)]);
        assert_eq!(
            vec![5, 6],
            Vec::from_iter(std::iter::from_fn(|| take(&prefetcher)))
        );
        assert!(!prefetcher.was_taught(4));
    }

    #[test]
    fn instances_in_the_profile_and_among_hosts_count_once() {
        let prefetcher = prefetcher(9);
        prefetcher.begin();
        // The profile has chunk 7 three times.
        prefetcher.learn(vec![(7, 2, 1.0), (8, 4, 20.0), (9, 1, 1.0)]);
        assert_eq!(3, lock(&prefetcher.state).known.get(7).count);
        assert!(!prefetcher.was_taught(8) && prefetcher.was_taught(9));
        // Another profile: what hosts know remains.
        prefetcher.replace(Profile::from_rows([(8, 1, 9.0), (2, 3, 9.0)]).unwrap());
        let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
        assert_eq!(vec![8, 2, 7, 9], found);
    }

    #[test]
    fn before_a_read_the_profile_alone_is_fetched() {
        let prefetcher = prefetcher(9);
        let take = || std::iter::from_fn(|| take(&prefetcher));
        prefetcher.begin_profile();
        assert_eq!(vec![8, 7, 5], Vec::from_iter(take()));
        prefetcher.learn(vec![(20, 9, 1.0)]);
        prefetcher.replace(Profile::from_rows([(6, 1, 9.0)]).unwrap());
        assert_eq!(vec![6], Vec::from_iter(take()));
        prefetcher.done(20, false);
        assert_eq!(None, take().next());
        prefetcher.note_read(1, 50..51);
        assert_eq!(vec![20, 6], Vec::from_iter(take()));
        prefetcher.note_read(1, 60..61);
        assert_eq!(None, take().next());
    }

    #[test]
    fn counts_of_the_site_drop_no_chunk_of_the_profile() {
        let prefetcher = prefetcher(9);
        prefetcher.begin();
        prefetcher.learn(vec![(20, 1000, 1.0), (21, 3, 1.0)]);
        let found: Vec<_> = std::iter::from_fn(|| take(&prefetcher)).collect();
        assert_eq!(vec![20, 8, 7, 5], found);
        prefetcher.done(5, false);
        assert_eq!(Some(5), take(&prefetcher));
    }

    #[test]
    fn a_chunk_that_was_left_to_another_fetch_is_queued_again() {
        let prefetcher = prefetcher(3);
        prefetcher.begin_profile();
        let next = |there: Chunk| lock(&prefetcher.state).queue.next(|chunk| chunk == there);
        assert_eq!([Some(7), Some(5), None], [next(8), next(8), next(8)]);
        [7, 5]
            .iter()
            .for_each(|chunk| prefetcher.done(*chunk, true));
        prefetcher.queue_absent(|chunk| chunk != 8);
        assert_eq!([Some(8), None], [next(0), next(0)]);
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
