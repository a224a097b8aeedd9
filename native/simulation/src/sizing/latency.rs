//! Sizes with the largest sum of weighted hits within a capacity.
//!
//! A knapsack problem with a choice for each volume (multiple-choice knapsack), solved by branch and
//! bound. The bound of a part of all divisions is that of the [`relaxation`] on the concave
//! [`hull`]s of the curves. All divisions close to it are [combined](combine), for growing losses,
//! until the best of them has no larger one. Curves with cliffs have divisions far below the bound,
//! and so many of them near it that this would take too long: the part is divided in two then, at
//! the size at which the relaxation is on the way over a cliff. In each of them hulls are closer
//! to the curves.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::rc::Rc;

use super::Demand;

mod choices;
mod combine;
mod hull;
mod relaxation;

use choices::{choices_of, Choice};
use combine::{Best, Part};
use hull::Hull;
use relaxation::{relax, Relaxation};

/// Combinations that are looked at, at most, before the search is given up.
const MOST_EFFORT: usize = 1 << 27;
/// Combinations of a part before it is divided; and the share of all until then, if that is more.
const LEAST_EFFORT: usize = 1 << 17;
const EFFORT_SHARE: usize = 4;
/// Work for each volume of a part, counted as combinations.
const VOLUME_EFFORT: usize = 64;
/// Losses that are tried first are this part of those that are possible, and grow by a factor.
const FIRST_PART: f64 = 1.0 / 1024.0;
const GROWTH: f64 = 2.0;
/// Part of the bound that rounding may cost.
const ROUNDING: f64 = 1e-12;

/// The sizes that were found.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Blocks of each volume, multiples of the step.
    pub blocks: Vec<u64>,
    /// Whether no sizes have a larger sum.
    pub optimal: bool,
}

/// Returns the best sizes, or none if the least sizes exceed the capacity.
///
/// Sizes are multiples of `step` blocks; a volume has at least `min` and at most `max` blocks.
pub fn most_hits(demands: &[Demand<'_>], capacity: u64, step: u64) -> Option<Sizes> {
    // Steps are added and subtracted as signed numbers.
    let capacity = (capacity / step).min(i64::MAX as u64);
    let mut choices = Vec::with_capacity(demands.len());
    for demand in demands {
        choices.push(choices_of(demand, capacity, step)?);
    }
    let mut tree = Tree::new(&choices, capacity);
    tree.set_unit(unit_of(demands));
    let (best, optimal) = tree.search()?;
    let chosen = choices.iter().zip(&best.chosen);
    let blocks = chosen.map(|(each, &at)| each[at].steps * step).collect();
    Some(Sizes { blocks, optimal })
}

/// Returns what all gains are a multiple of: the weight of a hit if volumes have the same; or 0.
fn unit_of(demands: &[Demand<'_>]) -> f64 {
    match demands {
        [first, others @ ..] if others.iter().all(|each| each.weight == first.weight) => {
            first.weight
        }
        _ => 0.0,
    }
}

/// A part of all divisions that was not searched yet. The one with the largest bound is greatest.
struct Node {
    hulls: Vec<Rc<Hull>>,
    relaxation: Relaxation,
    /// Of two with the same bound the later one is greater.
    number: usize,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Node {}

impl PartialOrd for Node {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Node {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_bound = self.relaxation.bound.total_cmp(&other.relaxation.bound);
        by_bound.then(self.number.cmp(&other.number))
    }
}

/// Parts of all divisions, and what is known of them.
struct Tree<'a> {
    choices: &'a [Vec<Choice>],
    capacity: u64,
    /// Gains that differ by less are the same.
    rounding: f64,
    /// A better division gains more than the best one by more than this.
    resolution: f64,
    best: Best,
    nodes: BinaryHeap<Node>,
    count: usize,
    effort: usize,
    least_effort: usize,
}

impl<'a> Tree<'a> {
    fn new(choices: &'a [Vec<Choice>], capacity: u64) -> Self {
        let gains = choices.iter().map(|each| each[each.len() - 1].gain);
        let rounding = gains.sum::<f64>() * ROUNDING;
        Tree {
            choices,
            capacity,
            rounding,
            resolution: rounding,
            best: Best {
                gain: f64::NEG_INFINITY,
                chosen: Vec::new(),
            },
            nodes: BinaryHeap::new(),
            count: 0,
            effort: 0,
            least_effort: LEAST_EFFORT,
        }
    }

    /// Notes that all gains are multiples of a number.
    fn set_unit(&mut self, unit: f64) {
        self.resolution = self.resolution.max(unit - self.rounding);
    }

    /// Returns the best division and whether it is proven to be; none if there is no division.
    fn search(mut self) -> Option<(Best, bool)> {
        let hulls = self.choices.iter().map(|each| Rc::new(Hull::of(each)));
        self.add(hulls.collect());
        while let Some(node) = self.nodes.pop() {
            if self.is_searched(node.relaxation.bound) {
                break;
            }
            if self.effort > MOST_EFFORT {
                return Some((self.best, false));
            }
            if !self.search_part(&node) {
                self.divide(&node);
            }
        }
        (self.best.gain > f64::NEG_INFINITY).then_some((self.best, true))
    }

    /// Whether no division with this bound is better than the best one.
    fn is_searched(&self, bound: f64) -> bool {
        self.missing(bound) <= 0.0
    }

    /// Returns the largest loss, below a bound, of a division that is better than the best one.
    fn missing(&self, bound: f64) -> f64 {
        bound - self.best.gain - self.resolution
    }

    /// Adds a part, unless it has no better division.
    fn add(&mut self, hulls: Vec<Rc<Hull>>) {
        self.effort += hulls.len() * VOLUME_EFFORT;
        let Some(relaxation) = relax(&hulls, self.capacity) else {
            return;
        };
        if relaxation.gain > self.best.gain {
            let pairs = hulls.iter().zip(&relaxation.chosen);
            self.best = Best {
                gain: relaxation.gain,
                chosen: pairs.map(|(hull, &at)| hull.corners()[at].at).collect(),
            };
        }
        if !self.is_searched(relaxation.bound) {
            self.count += 1;
            self.nodes.push(Node {
                hulls,
                relaxation,
                number: self.count,
            });
        }
    }

    /// Looks for the best division of a part near its bound; `false`: it may be further away.
    fn search_part(&mut self, node: &Node) -> bool {
        let part = Part {
            choices: self.choices,
            hulls: &node.hulls,
            relaxation: &node.relaxation,
            capacity: self.capacity,
            resolution: self.resolution,
        };
        let bound = node.relaxation.bound;
        let granted = self.least_effort.max(self.effort / EFFORT_SHARE);
        let mut left = granted;
        let mut limit = self.missing(bound) * FIRST_PART;
        let searched = loop {
            let tried = limit.min(self.missing(bound)).max(self.rounding);
            if !part.combine(tried, &mut left, &mut self.best) {
                break false;
            }
            // All divisions of no larger loss were among those that were combined.
            if self.missing(bound) <= tried {
                break true;
            }
            limit *= GROWTH;
        };
        self.effort += granted - left;
        searched
    }

    /// Adds the two parts of a part in which the volume that is cut has up to this many steps, or more.
    fn divide(&mut self, node: &Node) {
        let Some(cut) = node.relaxation.cut else {
            return;
        };
        let (hull, choices) = (&node.hulls[cut], &self.choices[cut]);
        let from = &hull.corners()[node.relaxation.chosen[cut]];
        let to = &hull.corners()[node.relaxation.chosen[cut] + 1];
        let reached = from.steps + (self.capacity - node.relaxation.steps);
        let between = &choices[from.at..to.at];
        let after = from.at + between.partition_point(|choice| choice.steps <= reached);
        for part in [
            hull.up_to(choices, after - 1),
            hull.beginning_at(choices, after),
        ] {
            let mut hulls = node.hulls.clone();
            hulls[cut] = Rc::new(part);
            self.add(hulls);
        }
    }
}

#[cfg(test)]
mod tests;
