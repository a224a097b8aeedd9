//! What one instance prefetches next.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::chunks::Chunk;
use crate::learn::Hint;

/// A chunk that waits to be prefetched. The greatest is the next.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Hint(Hint),
    /// A chunk of a sequence, by when it was asked for.
    Ahead(u64, Chunk),
}

impl Entry {
    fn chunk(&self) -> Chunk {
        match self {
            Entry::Hint(hint) => hint.chunk,
            Entry::Ahead(_, chunk) => *chunk,
        }
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        let first = match (self, other) {
            (Entry::Hint(one), Entry::Hint(other)) => one
                .record
                .urgency(&other.record)
                .then(one.chunk.cmp(&other.chunk)),
            (Entry::Ahead(one, a), Entry::Ahead(other, b)) => one.cmp(other).then(a.cmp(b)),
            // A sequence is being read now; what others read may come any time.
            (Entry::Ahead(..), Entry::Hint(_)) => Ordering::Less,
            (Entry::Hint(_), Entry::Ahead(..)) => Ordering::Greater,
        };
        first.reverse()
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The prefetches of one instance: most frequent first, then earliest; stopped while a miss is
/// served, and bounded in flight.
#[derive(Debug, Clone)]
pub struct Queue {
    waiting: BinaryHeap<Entry>,
    in_flight: usize,
    limit: usize,
    stopped: bool,
    asked: u64,
}

impl Queue {
    /// An empty queue that lets at most `limit` requests be in flight.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            waiting: BinaryHeap::new(),
            in_flight: 0,
            limit,
            stopped: false,
            asked: 0,
        }
    }

    /// Adds hints.
    pub fn add_hints(&mut self, hints: impl IntoIterator<Item = Hint>) {
        self.waiting.extend(hints.into_iter().map(Entry::Hint));
    }

    /// Adds hints in place of those that wait; sequences stay.
    pub fn replace_hints(&mut self, hints: impl IntoIterator<Item = Hint>) {
        self.waiting
            .retain(|entry| matches!(entry, Entry::Ahead(..)));
        self.add_hints(hints);
    }

    /// Adds chunks that continue a sequence; they come before hints.
    pub fn add_sequence(&mut self, chunks: Range<Chunk>) {
        self.add_in_order(chunks);
    }

    /// Adds chunks that are likely to be read next, in this order; they come before hints.
    pub fn add_in_order(&mut self, chunks: impl IntoIterator<Item = Chunk>) {
        for chunk in chunks {
            self.asked += 1;
            self.waiting.push(Entry::Ahead(self.asked, chunk));
        }
    }

    /// Stops while a miss is served.
    pub fn stop(&mut self) {
        self.stopped = true;
    }

    /// Continues after the miss was served.
    pub fn resume(&mut self) {
        self.stopped = false;
    }

    /// Returns the next chunk to request, which then is in flight; none while the queue is
    /// stopped, empty or at its limit.
    ///
    /// Chunks that `is_there` are dropped: those that the instance has, and those on their way
    /// to it.
    pub fn next(&mut self, is_there: impl Fn(Chunk) -> bool) -> Option<Chunk> {
        if self.stopped || self.in_flight >= self.limit {
            return None;
        }
        while let Some(entry) = self.waiting.pop() {
            if !is_there(entry.chunk()) {
                self.in_flight += 1;
                return Some(entry.chunk());
            }
        }
        None
    }

    /// Whether anything waits, and may be requested now.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.stopped && self.in_flight < self.limit && !self.waiting.is_empty()
    }

    /// Whether nothing waits and nothing is in flight.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    /// Counts a request of this queue that arrived or failed.
    pub fn done(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn hints(rows: &[(Chunk, u64, f64)]) -> Vec<Hint> {
        let profile = Profile::from_rows(rows.iter().copied()).unwrap();
        rows.iter()
            .map(|&(chunk, ..)| Hint {
                chunk,
                record: profile.get(chunk),
            })
            .collect()
    }

    fn drain(queue: &mut Queue) -> Vec<Chunk> {
        std::iter::from_fn(|| queue.next(|_| false)).collect()
    }

    #[test]
    fn most_frequent_then_earliest_then_lowest() {
        let mut queue = Queue::new(9);
        queue.add_hints(hints(&[(1, 2, 1.0), (2, 3, 8.0), (3, 3, 4.0)]));
        queue.add_hints(hints(&[(0, 3, 8.0), (4, 9, 99.0)]));
        assert_eq!(vec![4, 3, 0, 2, 1], drain(&mut queue));
    }

    #[test]
    fn sequences_come_before_hints_in_their_order() {
        let mut queue = Queue::new(9);
        queue.add_hints(hints(&[(1, 2, 1.0)]));
        queue.add_sequence(7..9);
        queue.add_sequence(3..5);
        assert_eq!(vec![7, 8, 3, 4, 1], drain(&mut queue));
    }

    #[test]
    fn replaced_hints_leave_sequences() {
        let mut queue = Queue::new(9);
        queue.add_hints(hints(&[(1, 2, 1.0)]));
        queue.add_sequence(7..9);
        queue.replace_hints(hints(&[(5, 2, 1.0)]));
        assert_eq!(vec![7, 8, 5], drain(&mut queue));
    }

    #[test]
    fn stops_while_a_miss_is_served() {
        let mut queue = Queue::new(9);
        queue.add_sequence(0..2);
        queue.stop();
        assert_eq!(None, queue.next(|_| false));
        queue.resume();
        assert_eq!(Some(0), queue.next(|_| false));
    }

    #[test]
    fn says_when_something_can_be_requested() {
        let mut queue = Queue::new(1);
        assert!(!queue.has_next());
        queue.add_sequence(0..2);
        assert!(queue.has_next());
        queue.stop();
        assert!(!queue.has_next());
        queue.resume();
        assert_eq!(Some(0), queue.next(|_| false));
        assert!(!queue.has_next());
        queue.done();
        assert!(queue.has_next());
    }

    #[test]
    fn bounded_in_flight() {
        let mut queue = Queue::new(2);
        queue.add_sequence(0..4);
        assert_eq!(vec![0, 1], drain(&mut queue));
        queue.done();
        assert_eq!(vec![2], drain(&mut queue));
    }

    #[test]
    fn drops_what_is_there_or_on_its_way() {
        let mut queue = Queue::new(1);
        queue.add_sequence(0..5);
        assert_eq!(Some(3), queue.next(|chunk| chunk < 3));
        queue.done();
        assert_eq!(None, queue.next(|_| true));
        // What was dropped took no place.
        queue.add_sequence(5..6);
        assert_eq!(Some(5), queue.next(|_| false));
    }
}
