//! Reuse distances of all references of one volume.
//!
//! Split in two halves that can run on two cores: [`Finder`] finds the position of the reference
//! before to the same block, [`Counter`] counts the blocks that were referenced since.

use diffcache_partitions::curve::positions::Positions;
use diffcache_partitions::curve::table::{Table, AHEAD};
use diffcache_partitions::curve::Curve;
use diffcache_partitions::Block;

/// In place of the reference before the first one to a block.
pub const NONE: u64 = u64::MAX;

/// Finds the reference before.
#[derive(Default)]
pub struct Finder {
    last: Table,
    position: u64,
}

impl Finder {
    /// Makes a finder whose table has a seed.
    pub fn with_seed(seed: u64) -> Self {
        Finder {
            last: Table::with_seed(seed),
            position: 0,
        }
    }

    /// Replaces references by the position of those before, or [`NONE`].
    pub fn find(&mut self, references: &mut [Block]) {
        for part in references.chunks_mut(AHEAD) {
            self.last.prefetch(part);
            for reference in part {
                *reference = self.next(*reference).unwrap_or(NONE);
            }
        }
    }

    fn next(&mut self, block: Block) -> Option<u64> {
        let position = self.position;
        self.position += 1;
        self.last.replace(block, position)
    }
}

/// Counts references by their distance.
#[derive(Default)]
pub struct Counter {
    latest: Positions,
    references: u64,
    distinct: u64,
    distances: Vec<u64>,
    // Position of the first reference since the last `take`.
    begin: u64,
}

impl Counter {
    /// Takes what [`Finder::find`] returned, in the same order.
    pub fn count(&mut self, before: &[u64]) {
        let mut distances = [0; AHEAD];
        for part in before.chunks(AHEAD) {
            self.references += part.len() as u64;
            self.latest.prefetch(part);
            let mut found = 0;
            for &position in part {
                self.distinct += u64::from(position == NONE || position < self.begin);
                if position != NONE {
                    distances[found] = self.latest.take(position) as usize;
                    found += 1;
                }
                self.latest.push();
            }
            // Apart from the loop before, so that the memory answers several at once.
            self.add(&distances[..found]);
        }
    }

    fn add(&mut self, distances: &[usize]) {
        let largest = distances.iter().copied().max().unwrap_or(0);
        if largest >= self.distances.len() {
            self.distances.resize((largest + 1).next_power_of_two(), 0);
        }
        for &distance in distances {
            self.distances[distance] += 1;
        }
    }

    /// Returns the curve.
    pub fn curve(&self) -> Curve {
        Curve::from_distances(self.distinct, self.references, &self.distances)
    }

    /// Returns the curve of the references since this was called before.
    ///
    /// Distances go back beyond that; different blocks are those of these references, so that
    /// hits and different blocks may be more than the references.
    pub fn take(&mut self) -> Curve {
        let curve = self.curve();
        self.begin += self.references;
        self.references = 0;
        self.distinct = 0;
        self.distances.clear();
        curve
    }
}
