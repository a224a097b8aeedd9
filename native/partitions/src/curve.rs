//! Miss-ratio curves: how many references an LRU cache of any size would have hit.
//!
//! The reuse distance of a reference is the number of different blocks since the one before it to
//! the same block; an LRU cache of `s` blocks hits the references with a distance below `s`
//! (Mattson et al., "Evaluation techniques for storage hierarchies", 1970).
//!
//! * [`positions`]: which positions of a stream are the last of their block, counted by rank;
//! * [`table`]: the position of each block's last reference;
//! * [`sampled`]: the distances of a sample of the blocks (SHARDS).

pub mod positions;
pub mod sampled;
pub mod table;

/// The hits at one size and, if it is the last step, at any larger one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Blocks.
    pub size: u64,
    /// References with a reuse distance below `size`.
    pub hits: u64,
}

/// Hits of one volume at all sizes of an LRU cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Curve {
    /// References, cold ones included.
    pub references: u64,
    /// Different blocks; as many references are cold.
    pub distinct: u64,
    /// Sizes at which the hits become more, ascending.
    pub steps: Vec<Step>,
}

impl Curve {
    /// Makes a curve from the number of references at each distance.
    pub fn from_distances(distinct: u64, references: u64, distances: &[u64]) -> Self {
        let mut hits = 0;
        let mut steps = Vec::new();
        for (distance, &count) in distances.iter().enumerate() {
            if count > 0 {
                hits += count;
                let size = distance as u64 + 1;
                steps.push(Step { size, hits });
            }
        }
        Curve {
            references,
            distinct,
            steps,
        }
    }

    /// Returns the hits of a cache of `size` blocks.
    pub fn hits(&self, size: u64) -> u64 {
        let larger = self.steps.partition_point(|step| step.size <= size);
        larger.checked_sub(1).map_or(0, |at| self.steps[at].hits)
    }

    /// Returns the size of the smallest cache with this many hits, if there is one.
    pub fn size_for(&self, hits: u64) -> Option<u64> {
        if hits == 0 {
            return Some(0);
        }
        let at = self.steps.partition_point(|step| step.hits < hits);
        self.steps.get(at).map(|step| step.size)
    }

    /// Returns the most hits that any cache has.
    pub fn most_hits(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.hits)
    }

    /// Returns at most `most` of the steps, the last one included.
    ///
    /// Where there are more, each of the others comes after about the same number of hits.
    pub fn thinned(&self, most: usize) -> Vec<Step> {
        if self.steps.len() <= most {
            return self.steps.clone();
        }
        let share = self.most_hits() as f64 / most as f64;
        let mut next = share;
        let mut found = Vec::with_capacity(most);
        for (at, step) in self.steps.iter().enumerate() {
            if step.hits as f64 >= next || at + 1 == self.steps.len() {
                found.push(*step);
                next = (step.hits as f64 / share).floor() * share + share;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests;
