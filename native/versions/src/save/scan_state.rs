//! The state of a scan: what was read so far, and what was found in it. A scan returns it; a journal keeps it.

use crate::store::nodes::Run;

/// How many blocks were found to be what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// They differ from the parent's.
    pub changed: u64,
    /// Of these, the ones that the store already had, or that came earlier in the same disk.
    pub deduplicated: u64,
    /// Of these, the ones that are new to the store.
    pub new: u64,
}

/// How far a scan is, and what it has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScanState {
    /// Pieces of work that are done.
    pub pieces: u64,
    /// Bytes that were read of the disk for them.
    pub bytes_read: u64,
    /// What the blocks were.
    pub counts: Counts,
    /// What changed.
    pub runs: Vec<Run>,
}
