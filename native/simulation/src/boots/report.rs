//! What a replay reports.

use diffcache_prefetch::tree::Visit;
use diffcache_prefetch::{Chunk, ChunkSet, Profile};

/// An access of an instance to a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub time_ns: u64,
    /// Which instance.
    pub instance: u32,
    /// Which chunk.
    pub chunk: Chunk,
    /// Whether the chunk was neither there nor being prefetched.
    pub miss: bool,
    /// Chunks to prefetch, in this order.
    pub hints: Vec<Chunk>,
    /// Nodes of the tree, by how they came to be known.
    pub visit: Visit,
}

/// The boot of one instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Boot {
    /// From its start to the end of its last read.
    pub boot_ns: u64,
    /// The part of it that was not think time.
    pub stall_ns: u64,
    /// Accesses to chunks that were neither there nor being prefetched.
    pub misses: u64,
    /// Chunks requested before they were read.
    pub prefetched: u64,
    /// How many of these were read later.
    pub used: u64,
}

/// The boots of all instances.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// By number of the instance.
    pub boots: Vec<Boot>,
    /// Bytes that were prefetched and never read.
    pub wasted_bytes: u64,
    /// Bytes sent by the repository.
    pub wan_bytes: u64,
    /// Bytes sent by instances.
    pub lan_bytes: u64,
    /// Bytes of the distinct chunks that instances read.
    pub unique_bytes: u64,
    /// The longest think time, or the time of these bytes on the WAN if they cross it.
    pub bound_ns: u64,
    /// Nodes of the tree that misses looked at.
    pub visit: Visit,
    /// Accesses to chunks.
    pub accesses: u64,
    /// When each chunk was first asked for remotely: chunk, instances, least, mean and greatest
    /// time since the beginning.
    pub requests: Vec<Requests>,
    /// What instances read, in the deployments before this one, too.
    pub profile: Profile,
}

/// When the instances asked others for a chunk, or the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// The chunk.
    pub chunk: Chunk,
    /// How many asked.
    pub count: u64,
    /// The first time.
    pub first_ns: u64,
    /// The sum of the times.
    pub total_ns: u128,
    /// The last time.
    pub last_ns: u64,
}

/// Chunks that at least one instance read.
#[derive(Debug, Clone, Default)]
pub struct Distinct {
    chunks: ChunkSet,
    /// Their bytes.
    pub bytes: u64,
}

impl Distinct {
    /// Counts a chunk of this many bytes once.
    pub fn add(&mut self, chunk: Chunk, bytes: u64) {
        if self.chunks.insert(chunk) {
            self.bytes += bytes;
        }
    }
}
