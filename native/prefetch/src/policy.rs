//! How much an instance prefetches.

use crate::chunks::Chunk;
use crate::threshold::Threshold;

/// How an instance prefetches.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// Requests that it has in flight at most.
    pub in_flight: usize,
    /// Chunks that it reads ahead at most; 0: none.
    pub read_ahead: Chunk,
    /// Chunks of the rest of a file that it prefetches after a read of it at most; 0: none.
    pub rest: usize,
    /// From how many readers on a chunk is a hint.
    pub threshold: Threshold,
}

impl Default for Policy {
    /// The best of those that `bench/run lazy boots` tried: more in flight makes reads of other instances
    /// wait at the homes, more read-ahead or rest of a file brings chunks that no instance reads.
    fn default() -> Self {
        Self {
            in_flight: 3,
            read_ahead: 2,
            rest: 8,
            threshold: Threshold::default(),
        }
    }
}
