//! What is fetched before it is read: chunks of the profile, those that continue a sequence, and the rest of a file.
//!
//! The order is that of the simulation: the queue and the sequences are those of `diffcache-prefetch`. All handles share one queue, as they share
//! the file; each has sequences of its own. A chunk that a handle here has read is here, so that hints come from the profile and from other hosts
//! alone. Of a chunk that both count, the greater count is taken: the profile has what the hosts of the site reported of this run, late, and what
//! others did before, so that a sum would count instances twice.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::{Condvar, Mutex};

use diffcache_base::locks::Unpoisoned;
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

/// Return the least number of readers of a hint where the most frequent chunk has this many.
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
        let mut state = self.0.state.lock().unpoisoned();
        state.misses -= 1;
        if state.misses == 0 {
            state.queue.resume();
            self.0.wake(&state);
        }
    }
}

impl Prefetcher {
    /// Prefetch an image of this many chunks.
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
        self.begin_with(&mut self.state.lock().unpoisoned());
    }

    /// Queue the chunks of the profile before any read.
    pub fn begin_profile(&self) {
        let mut state = self.state.lock().unpoisoned();
        if !state.has_begun {
            state.has_begun = true;
            state.queue_known();
            self.wake(&state);
        }
    }

    /// Queue the chunks of the profile again that are not there: those that were left to another fetch, which failed.
    pub fn queue_absent(&self, is_there: impl Fn(Chunk) -> bool) {
        let mut state = self.state.lock().unpoisoned();
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
        let mut state = self.state.lock().unpoisoned();
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
        let mut state = self.state.lock().unpoisoned();
        state.takes_hints = false;
        state.site = Profile::default();
        state.set_profile(&Profile::default());
        state.queue_known();
        self.wake(&state);
    }

    /// Prefetch what hosts of the site have read, too: chunks, by how many instances in all, and their mean time in microseconds.
    pub fn learn(&self, rows: Vec<(Chunk, u64, f64)>) {
        let mut state = self.state.lock().unpoisoned();
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
        let state = self.state.lock().unpoisoned();
        state.is_known(chunk) && state.profile.get(chunk).count == 0
    }

    /// Stop prefetching while a miss is served.
    pub fn enter_miss(&self) -> Miss<'_> {
        let mut state = self.state.lock().unpoisoned();
        state.misses += 1;
        state.queue.stop();
        Miss(self)
    }

    /// Follow what a handle reads, and queue what continues it.
    pub fn note_read(&self, handle: u64, chunks: std::ops::Range<u64>) {
        let mut state = self.state.lock().unpoisoned();
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
        let state = self.state.lock().unpoisoned();
        let is_known = Chunk::try_from(chunk).is_ok_and(|chunk| state.is_known(chunk));
        match is_known {
            true => 0,
            false => self.policy.rest,
        }
    }

    /// Queue the rest of a file that is being read.
    pub fn note_rest(&self, chunks: Vec<Chunk>) {
        if !chunks.is_empty() {
            let mut state = self.state.lock().unpoisoned();
            state.queue.add_in_order(chunks);
            self.wake(&state);
        }
    }

    /// Forget a handle that was closed.
    pub fn forget(&self, handle: u64) {
        self.state.lock().unpoisoned().sequences.remove(&handle);
    }

    /// Wait for the next chunk to fetch, which then is in flight until it is `done`. Chunks that are there or on their way are dropped.
    pub fn next(&self, is_there: impl Fn(Chunk) -> bool) -> Chunk {
        let mut state = self.state.lock().unpoisoned();
        loop {
            if let Some(chunk) = state.queue.next(&is_there) {
                state.note_taken(chunk);
                return chunk;
            }
            if state.queue.is_idle() {
                self.idle.notify_all();
            }
            let waited = self.changed.wait(state);
            state = waited.unpoisoned();
        }
    }

    /// End the flight of a chunk, by the thread that fetched it and then takes the next. One that failed is queued again if it is a hint.
    pub fn done(&self, chunk: Chunk, is_there: bool) {
        let mut state = self.state.lock().unpoisoned();
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
        self.state.lock().unpoisoned().queue.is_idle()
    }

    /// Wait until nothing is queued or on its way.
    pub fn wait_until_idle(&self) {
        let waited = self
            .idle
            .wait_while(self.state.lock().unpoisoned(), |state| {
                !state.queue.is_idle()
            });
        drop(waited.unpoisoned());
    }
}
