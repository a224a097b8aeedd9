//! Read-ahead: chunks that continue what an instance reads in order.
//!
//! Kernel, initial RAM disk and large files are read from their beginning to their end. No other
//! instance has to have read them for that to be seen.

use std::collections::VecDeque;
use std::ops::Range;

use crate::chunks::Chunk;

/// As many sequences are followed at once.
const STREAMS: usize = 8;
/// A sequence has to be this many chunks long before anything is read ahead.
const RUN: u32 = 3;

#[derive(Debug, Clone)]
struct Stream {
    /// The chunk that continues the sequence.
    next: Chunk,
    /// Chunks read so far.
    run: u32,
    /// The end of what was asked for.
    ahead: Chunk,
}

/// The sequences that an instance is reading.
#[derive(Debug, Clone)]
pub struct Sequences {
    streams: VecDeque<Stream>,
    chunks: Chunk,
    window: Chunk,
}

impl Sequences {
    /// Follows the reads of an image of this many chunks, at most `window` chunks ahead.
    #[must_use]
    pub fn new(chunks: Chunk, window: Chunk) -> Self {
        Self {
            streams: VecDeque::new(),
            chunks,
            window,
        }
    }

    /// Returns the chunks to read ahead after a read of this chunk; often none.
    ///
    /// The window begins with as many chunks as were read in order. After a chunk that other
    /// instances are known to have read (`is_known`) none are: hints say what follows it.
    pub fn read(&mut self, chunk: Chunk, is_known: bool) -> Range<Chunk> {
        let none = chunk..chunk;
        let follows = |s: &Stream| s.next == chunk || s.next == chunk.wrapping_add(1);
        let Some(at) = self.streams.iter().position(follows) else {
            self.start(chunk);
            return none;
        };
        let Some(mut stream) = self.streams.remove(at) else {
            return none;
        };
        if stream.next == chunk {
            stream.next = chunk.saturating_add(1);
            stream.run = stream.run.saturating_add(1);
        }
        let mut wanted = none;
        if stream.run >= RUN && !is_known {
            let end = stream.next.saturating_add(stream.run.min(self.window));
            wanted = stream.ahead.max(stream.next)..end.min(self.chunks);
            stream.ahead = stream.ahead.max(wanted.end);
        }
        self.streams.push_front(stream);
        wanted
    }

    fn start(&mut self, chunk: Chunk) {
        self.streams.truncate(STREAMS - 1);
        self.streams.push_front(Stream {
            next: chunk.saturating_add(1),
            run: 1,
            ahead: 0,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn begins_with_the_third_chunk_in_order() {
        let mut reads = Sequences::new(100, 4);
        let wanted: Vec<_> = (10..16).map(|chunk| reads.read(chunk, false)).collect();
        let none = |range: &Range<Chunk>| range.is_empty();
        assert!(wanted[..2].iter().all(none));
        assert_eq!([13..16, 16..18, 18..19, 19..20], wanted[2..]);
    }

    #[test]
    fn a_chunk_read_again_belongs_to_its_sequence() {
        let mut reads = Sequences::new(100, 4);
        for chunk in [5, 5, 6, 6] {
            assert!(reads.read(chunk, false).is_empty());
        }
        assert_eq!(8..11, reads.read(7, false));
        assert!(reads.read(7, false).is_empty());
    }

    #[test]
    fn sequences_may_alternate() {
        let mut reads = Sequences::new(100, 4);
        for chunk in [5, 50, 6, 51] {
            assert!(reads.read(chunk, false).is_empty());
        }
        assert_eq!(8..11, reads.read(7, false));
        assert_eq!(53..56, reads.read(52, false));
    }

    #[test]
    fn where_others_have_read_hints_say_what_follows() {
        let mut reads = Sequences::new(100, 4);
        assert!((0..9).all(|chunk| reads.read(chunk, true).is_empty()));
        assert_eq!(10..14, reads.read(9, false));
    }

    #[test]
    fn without_a_window_nothing_is_read_ahead() {
        let mut reads = Sequences::new(100, 0);
        assert!((0..100).all(|chunk| reads.read(chunk, false).is_empty()));
    }

    proptest! {
        #[test]
        fn stays_in_the_image_and_asks_once_in_a_sequence(
            chunks in 1u32..60, window in 0u32..20,
        ) {
            let mut reads = Sequences::new(chunks, window);
            let mut asked = std::collections::BTreeSet::new();
            for chunk in 0..chunks {
                for ahead in reads.read(chunk, false) {
                    prop_assert!(ahead > chunk && ahead < chunks && ahead - chunk <= window);
                    prop_assert!(asked.insert(ahead));
                }
            }
        }

        #[test]
        fn any_chunk_may_be_read(chunks in prop::collection::vec(any::<Chunk>(), 0..50)) {
            let mut reads = Sequences::new(Chunk::MAX, 16);
            for chunk in chunks {
                let _ = reads.read(chunk, false);
                prop_assert!(reads.streams.len() <= STREAMS);
            }
        }
    }
}
