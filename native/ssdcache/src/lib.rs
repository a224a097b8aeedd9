//! The host's SSD as a cache of volumes, partitioned per volume.
//!
//! Follows "Differentiated SSD caching" (one global list of unused cache blocks; per volume a
//! lookup tree, an eviction list and a limit; limits from reuse distances). Knows no service and
//! no network.
//!
//! * [`trace`]: requests that were recorded;
//! * [`curve`]: hits of a cache of any size, from reuse distances;
//! * [`sizing`]: sizes of partitions, from curves;
//! * [`partition`]: which block is in which slot of the cache;
//! * [`simulate`]: a trace, played to it;
//! * [`device`]: the SSD, and what it has after a restart;
//! * [`cache`]: volumes read and written through it;
//! * [`rates`]: what a volume may do per second;
//! * [`shared`]: what processes of guests see of it.

pub mod cache;
pub mod device;
pub mod rates;
pub mod shared;
