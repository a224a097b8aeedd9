//! Which host holds which object.

use crate::problem::Problem;

/// A set of (object, host) pairs, and the copies of each object.
#[derive(Debug, Clone, Default)]
pub struct Held {
    words: usize,
    bits: Vec<u64>,
    copies: Vec<u32>,
}

impl Held {
    /// The empty set.
    #[must_use]
    pub fn new(problem: &Problem) -> Self {
        let words = problem.hosts().div_ceil(64);
        Self {
            words,
            bits: vec![0; words * problem.objects()],
            copies: vec![0; problem.objects()],
        }
    }

    /// The set of some pairs.
    #[must_use]
    pub fn of(problem: &Problem, pairs: &[(u32, u32)]) -> Self {
        let mut held = Self::new(problem);
        for &(object, host) in pairs {
            held.insert(object as usize, host as usize);
        }
        held
    }

    fn slot(&self, object: usize, host: usize) -> (usize, u64) {
        (object * self.words + host / 64, 1 << (host % 64))
    }

    /// The host holds the object.
    #[must_use]
    pub fn contains(&self, object: usize, host: usize) -> bool {
        let (word, bit) = self.slot(object, host);
        self.bits[word] & bit != 0
    }

    /// Hosts that hold the object.
    #[must_use]
    pub fn copies(&self, object: usize) -> u32 {
        self.copies[object]
    }

    /// Adds a pair; false if it was there.
    pub fn insert(&mut self, object: usize, host: usize) -> bool {
        let (word, bit) = self.slot(object, host);
        let new = self.bits[word] & bit == 0;
        self.bits[word] |= bit;
        self.copies[object] += u32::from(new);
        new
    }

    /// Takes a pair out; false if it was not there.
    pub fn remove(&mut self, object: usize, host: usize) -> bool {
        let (word, bit) = self.slot(object, host);
        let was = self.bits[word] & bit != 0;
        self.bits[word] &= !bit;
        self.copies[object] -= u32::from(was);
        was
    }

    /// Seconds to fetch the object to the host from where it is cheapest.
    #[must_use]
    pub fn fetch(&self, problem: &Problem, object: usize, host: usize) -> f64 {
        let links = problem.links[host];
        if self.contains(object, host) {
            links.local * problem.size[object]
        } else if self.copies[object] > 0 {
            links.near * problem.size[object]
        } else {
            links.repo * problem.wire[object]
        }
    }
}
