//! Reuse distances of a sample of the blocks.
//!
//! SHARDS (Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST 2015): a block is in
//! the sample if its hash is below a threshold; distances among references to these blocks are
//! shorter than the real ones by the rate of the sample. With a most number of blocks the threshold
//! is lowered so that they stay that few (section 4.1), and what the sample has too many or too few
//! of all references goes to the smallest distance (SHARDS-adj, section 3.3).

use std::collections::BinaryHeap;

use super::positions::Positions;
use super::table::{mix, Table};
use super::{Curve, Step};
use crate::Block;

// Of the sample only, so that it does not depend on how tables are filled.
const SEED: u64 = 0x2545_f491_4f6c_dd1d;
const ONE: f64 = 18_446_744_073_709_551_616.0;
/// Positions are numbered anew when there are four for each block, and this many more.
const ROOM: u64 = 1 << 16;

/// How blocks are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// The part of all blocks, above 0 and up to 1.
    Rate(f64),
    /// The most blocks of a volume.
    Blocks(usize),
}

/// Takes the references of one volume.
pub struct Sampler {
    threshold: u64,
    most: usize,
    references: u64,
    last: Table,
    latest: Positions,
    // Position of the first reference of the epoch.
    begin: u64,
    // Of the blocks of the sample; the first to leave it is the first.
    hashes: BinaryHeap<(u64, Block)>,
    buckets: Buckets,
}

impl Sampler {
    /// Makes a sampler without references.
    pub fn new(sample: Sample) -> Self {
        let (threshold, most) = match sample {
            // Saturates at the largest number, which excludes one hash.
            Sample::Rate(rate) => ((rate * ONE) as u64, usize::MAX),
            Sample::Blocks(most) => (u64::MAX, most),
        };
        Sampler {
            threshold,
            most,
            references: 0,
            last: Table::default(),
            latest: Positions::default(),
            begin: 0,
            hashes: BinaryHeap::new(),
            buckets: Buckets::default(),
        }
    }

    /// Takes references, in their order.
    pub fn take(&mut self, references: impl IntoIterator<Item = Block>) {
        for block in references {
            self.references += 1;
            let hash = mix(block, SEED);
            if hash < self.threshold {
                self.sampled(block, hash);
            }
        }
    }

    /// Takes a reference to a block that [`is_sampled`]; [`Sampler::cut`] counts it.
    pub fn take_sampled(&mut self, block: Block) {
        let hash = mix(block, SEED);
        if hash < self.threshold {
            self.sampled(block, hash);
        }
    }

    /// Returns the hash below which blocks are in the sample now; see [`is_sampled`].
    pub fn threshold(&self) -> u64 {
        self.threshold
    }

    /// Returns how many positions are kept, of blocks that are in the sample or were.
    #[cfg(test)]
    pub fn positions(&self) -> u64 {
        self.latest.end()
    }

    /// Returns the part of all blocks that is sampled now.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / ONE
    }

    fn sampled(&mut self, block: Block, hash: u64) {
        if self.latest.end() >= 4 * self.latest.members() + ROOM {
            self.renumber();
        }
        let position = self.latest.push();
        let weight = 1.0 / self.rate();
        match self.last.replace(block, position) {
            Some(before) => {
                // The position that was just added is not between the two.
                let distance = self.latest.take(before) - 1;
                self.buckets.add(distance as f64 * weight, weight);
            }
            None => {
                self.buckets.cold += weight;
                if self.most < usize::MAX {
                    self.hashes.push((hash, block));
                    self.shrink();
                }
            }
        }
    }

    /// Lowers the threshold until the sample is small enough.
    fn shrink(&mut self) {
        while self.last.len() > self.most {
            let Some((hash, block)) = self.hashes.pop() else {
                return;
            };
            self.threshold = hash;
            if let Some(position) = self.last.remove(block) {
                self.latest.take(position);
            }
        }
    }

    /// Leaves out the positions that are no longer in the set, so that memory stays bounded.
    fn renumber(&mut self) {
        let latest = &self.latest;
        self.begin = latest.rank(self.begin);
        self.last.renumber(|position| latest.rank(position));
        self.latest = Positions::first(self.latest.members());
    }

    /// Returns the curve, estimated for all references of the epoch.
    pub fn curve(&self) -> Curve {
        // The last reference to each of them is in the epoch.
        let blocks = self.latest.members() - self.latest.rank(self.begin);
        let distinct = (blocks as f64 / self.rate()).round() as u64;
        self.buckets.curve(self.references, distinct)
    }

    /// Returns the curve of the epoch, and begins another.
    ///
    /// Distances go back beyond the begin of an epoch; different blocks are those of its references,
    /// so that hits and different blocks may be more than the references.
    ///
    /// `references` is how many there were besides those that [`Sampler::take`] took.
    pub fn cut(&mut self, references: u64) -> Curve {
        self.references += references;
        let curve = self.curve();
        self.begin = self.latest.end();
        self.references = 0;
        self.buckets = Buckets::default();
        curve
    }
}

/// Returns whether a block is in the sample with a [`threshold`](Sampler::threshold).
pub fn is_sampled(block: Block, threshold: u64) -> bool {
    mix(block, SEED) < threshold
}

const MANTISSA: u32 = 8;

/// Weights of references by distance; distances above 512 are rounded down to 9 binary digits.
#[derive(Default)]
struct Buckets {
    weights: Vec<f64>,
    total: f64,
    cold: f64,
}

impl Buckets {
    fn add(&mut self, distance: f64, weight: f64) {
        let bucket = bucket_of(distance as u64);
        if bucket >= self.weights.len() {
            self.weights.resize(bucket + 1, 0.0);
        }
        self.weights[bucket] += weight;
        self.total += weight;
    }

    fn curve(&self, references: u64, distinct: u64) -> Curve {
        let all = references as f64;
        // SHARDS-adj: as many as the sample has too few, or less than none.
        let mut hits = all - self.total - self.cold;
        let mut steps: Vec<Step> = Vec::new();
        for (bucket, &weight) in self.weights.iter().enumerate() {
            hits += weight;
            let rounded = hits.clamp(0.0, all).round() as u64;
            if rounded > steps.last().map_or(0, |step| step.hits) {
                let size = least_of(bucket) + 1;
                steps.push(Step {
                    size,
                    hits: rounded,
                });
            }
        }
        Curve {
            references,
            distinct: distinct.min(references),
            steps,
        }
    }
}

fn bucket_of(distance: u64) -> usize {
    let digits = u64::BITS - distance.leading_zeros();
    let shift = digits.saturating_sub(MANTISSA + 1);
    ((u64::from(shift) << MANTISSA) + (distance >> shift)) as usize
}

fn least_of(bucket: usize) -> u64 {
    let shift = (bucket as u64 >> MANTISSA).saturating_sub(1);
    (bucket as u64 - (shift << MANTISSA)) << shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_their_least_distance() {
        for distance in (0..5000).chain([1 << 20, (1 << 40) + 12345, u64::MAX]) {
            let bucket = bucket_of(distance);
            let least = least_of(bucket);
            assert!(least <= distance, "{distance}");
            assert!((distance - least) as f64 <= distance as f64 / 256.0);
            assert_eq!(bucket, bucket_of(least));
            assert_eq!(distance < 512, distance < 512 && least == distance);
        }
    }
}
