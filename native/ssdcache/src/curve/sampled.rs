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

    /// Returns the part of all blocks that is sampled now.
    pub fn rate(&self) -> f64 {
        self.threshold as f64 / ONE
    }

    fn sampled(&mut self, block: Block, hash: u64) {
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

    /// Returns the curve, estimated for all references.
    pub fn curve(&self) -> Curve {
        let distinct = (self.last.len() as f64 / self.rate()).round() as u64;
        self.buckets.curve(self.references, distinct)
    }
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
