//! What became of a chunk that was fetched.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::sources::source::SourceError;

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
