//! Sizes of volumes' partitions, from their curves.
//!
//! * [`latency`]: the sizes with the most hits, each weighted;
//! * [`pool`]: the sizes that volumes take by themselves in a shared LRU cache.

pub mod latency;
pub mod pool;

use diffcache_partitions::curve::Curve;

/// A volume that gets a partition.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// Hits of any size.
    pub curve: &'a Curve,
    /// Value of a hit.
    pub weight: f64,
    /// Blocks that it has at least.
    pub min: u64,
    /// Blocks that it has at most.
    pub max: u64,
}

#[cfg(test)]
mod tests;
