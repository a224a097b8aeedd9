//! Sizes and numbers that several parts of the daemon agree on.

use diffcache_core::compressed::GROUP_LEAVES;
use diffcache_core::leaf::LEAF_LEN;

/// Bytes of a chunk, which one request fetches.
pub const CHUNK: u64 = 256 << 10;
/// Chunks of a group, which have one frame in a compressed form, and one home at a site.
pub const GROUP_CHUNKS: u64 = GROUP_LEAVES * LEAF_LEN as u64 / CHUNK;
/// Sources of an image at most: each has counters in the shared memory.
pub const MAX_SOURCES: usize = 32;
/// Hosts that are homes of an image's chunks at most, for the same reason.
pub const MAX_HOMES: usize = 64;
/// Threads of a worker at most, each with one slot.
pub const SLOTS: usize = 64;
