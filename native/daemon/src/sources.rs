//! The sources of one image, asked in the order of their cost.
//!
//! A source that fails is left alone for a while, twice as long each time, as long as others serve. When all fail, each is asked at every attempt.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lazy_file::{lock, ChunkError};
use crate::leaves::Leaves;
use crate::shared::{Counter, Shared, SourceCounter};
use crate::source::{Fetched, Source, SourceError};

const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// A host that does not have the image may get it.
const ABSENT_REST: Duration = Duration::from_secs(20);
/// A source that sent wrong bytes holds another image or is damaged.
const WRONG_REST: Duration = Duration::from_secs(300);
/// How long a source may take while another one could be asked.
const SHARE_TIME: Duration = Duration::from_secs(10);

/// How long a source is left alone.
#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Option<Instant>,
    next: Duration,
}

struct Known {
    source: Box<dyn Source>,
    rest: Mutex<Rest>,
}

impl Known {
    fn awake_at(&self, now: Instant) -> Instant {
        lock(&self.rest).until.map_or(now, |until| until.max(now))
    }

    fn succeeded(&self) {
        *lock(&self.rest) = Rest {
            until: None,
            next: FIRST_REST,
        };
    }

    fn failed(&self, error: &ChunkError) {
        let mut rest = lock(&self.rest);
        let time = match error {
            ChunkError::Wrong(_) => WRONG_REST,
            ChunkError::Source(error) if error.is_absent() => ABSENT_REST,
            error => {
                let time = rest.next.max(error.delay());
                rest.next = (rest.next * 2).min(LONGEST_REST);
                time
            }
        };
        rest.until = Some(Instant::now() + time);
    }
}

/// All sources of an image.
pub struct Sources {
    known: Vec<Known>,
    shared: Arc<Shared>,
}

impl Sources {
    /// Take sources, the cheapest first, and count what they do.
    pub fn new(sources: Vec<Box<dyn Source>>, shared: Arc<Shared>) -> Sources {
        let know = |source| Known {
            source,
            rest: Mutex::new(Rest {
                until: None,
                next: FIRST_REST,
            }),
        };
        Sources {
            known: sources.into_iter().map(know).collect(),
            shared,
        }
    }

    /// Return the name of the cheapest source, for logs.
    pub fn name(&self) -> &str {
        self.known.first().map_or("", |known| known.source.name())
    }

    /// Fetch a chunk, verified, from the first source that serves it within `limit`.
    ///
    /// # Errors
    /// Of the source that was asked last.
    pub fn fetch(
        &self,
        leaves: &Leaves,
        chunk: u64,
        limit: Duration,
    ) -> Result<Fetched, ChunkError> {
        let begun = Instant::now();
        let order = self.order(begun);
        let mut last = ChunkError::TooSlow;
        for (place, index) in order.iter().enumerate() {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            let is_last = place + 1 == order.len();
            let limit = if is_last { left } else { left.min(SHARE_TIME) };
            match self.ask(*index, leaves, chunk, limit) {
                Ok(fetched) => return Ok(fetched),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Return the sources that are not left alone, then the others, those first whose rest ends first.
    fn order(&self, now: Instant) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.known.len()).collect();
        order.sort_by_key(|index| self.known[*index].awake_at(now));
        order
    }

    fn ask(
        &self,
        index: usize,
        leaves: &Leaves,
        chunk: u64,
        limit: Duration,
    ) -> Result<Fetched, ChunkError> {
        let known = &self.known[index];
        self.count(index, SourceCounter::Requests, 1);
        let (_, len) = leaves.chunk_range(chunk);
        let asked = known.source.fetch(chunk, len, limit);
        let outcome = asked
            .map_err(ChunkError::from)
            .and_then(|fetched| self.verify(index, leaves, chunk, fetched));
        match &outcome {
            Ok(_) => known.succeeded(),
            Err(error) => {
                self.count(index, SourceCounter::Failures, 1);
                known.failed(error);
            }
        }
        outcome
    }

    /// Check a chunk, and drop what came with it if that is wrong.
    fn verify(
        &self,
        index: usize,
        leaves: &Leaves,
        chunk: u64,
        mut fetched: Fetched,
    ) -> Result<Fetched, ChunkError> {
        self.count(index, SourceCounter::Bytes, fetched.moved);
        if fetched.bytes.len() != leaves.chunk_range(chunk).1 {
            let reason = format!("{} bytes of chunk {chunk}", fetched.bytes.len());
            return Err(SourceError::Short(reason).into());
        }
        let name = self.known[index].source.name();
        let is_sound = |chunk: u64, bytes: &[u8]| match leaves.find_wrong(chunk, bytes) {
            None => Ok(()),
            Some(leaf) => {
                self.shared.add(Counter::Corrupt, 1);
                eprintln!("Dropped leaf {leaf} from {name}: wrong bytes");
                Err(ChunkError::Wrong(leaf))
            }
        };
        is_sound(chunk, &fetched.bytes)?;
        fetched.others.retain(|(other, bytes)| {
            bytes.len() == leaves.chunk_range(*other).1 && is_sound(*other, bytes).is_ok()
        });
        Ok(fetched)
    }

    fn count(&self, index: usize, counter: SourceCounter, count: u64) {
        self.shared
            .source_counter(index, counter)
            .fetch_add(count, Ordering::Relaxed);
    }
}
