//! Partitions of a cache: one global list of unused blocks; per volume a look-up structure, and
//! per partition an eviction order and a limit.
//!
//! Follows the partitioner of "Differentiated SSD caching". Usually a volume has a partition of
//! its own; volumes that share one are what the paper calls a unified cache. Decides which slot of
//! the cache has which block, and knows neither data nor devices. At most 32 bytes of memory for
//! each cached block: 24 of its slot, 2 of the index, and 4 where evicted blocks are remembered.
//!
//! * [`Partitioner`]: which block is in which slot of the cache;
//! * [`eviction`]: which block leaves a full partition;
//! * [`Streams`]: sequential requests, which bypass the cache;
//! * [`curve`]: hits of a cache of any size, from reuse distances.

pub mod curve;
pub mod eviction;
mod ghost;
mod index;
mod partitioner;
mod slots;
mod streams;

pub use index::Cursor;
pub use partitioner::{
    Evicted, Mirror, PartitionError, PartitionId, Partitioner, Settings, VolumeId, MAX_ADMISSION,
    MAX_CAPACITY, NEVER,
};
pub use slots::{Slot, MAX_BLOCK};
pub use streams::Streams;

/// Number of a block within a volume; blocks have the cache's block size, 4 KiB by default.
pub type Block = u64;
