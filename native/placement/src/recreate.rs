//! Density-ordered lazy insertion: what saves most per byte goes first.
//!
//! Gains only rarely grow as objects are added, so an entry of the queue is
//! evaluated again only when it comes to the top.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::problem::Problem;
use crate::random::Random;
use crate::state::State;

/// How insertion ranks candidates.
#[derive(Debug, Clone, Copy)]
pub struct Ranking {
    /// Price per byte charged for patches that a template would need.
    pub price: f64,
    /// Power of the size that gains are divided by: 1 ranks by density.
    pub power: f64,
    /// Ranks are multiplied by up to one plus this, at random.
    pub noise: f64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    rank: f64,
    factor: f64,
    object: u32,
    host: u32,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank
            .total_cmp(&other.rank)
            .then_with(|| other.object.cmp(&self.object))
            .then_with(|| other.host.cmp(&self.host))
    }
}

/// What may be added, and where.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'c> {
    /// Hosts with space to fill.
    pub hosts: &'c [u32],
    /// Templates to choose from; the patches they need are added to these.
    pub templates: &'c [u32],
    /// Patches to choose from, by object number.
    pub patches: &'c [u32],
}

/// Fills space; returns the (object, host) pairs added.
pub fn fill(
    state: &mut State,
    problem: &Problem,
    choice: Choice,
    ranking: Ranking,
    random: &mut Random,
    over: &mut dyn FnMut() -> bool,
) -> Vec<(u32, u32)> {
    let hosts = choice.hosts;
    let mut fill = Fill {
        state,
        problem,
        hosts,
        ranking,
        random,
        queue: BinaryHeap::new(),
    };
    for &template in choice.templates {
        if over() {
            break;
        }
        for &host in hosts {
            fill.propose(template, host);
        }
    }
    for &patch in choice.patches {
        fill.propose_patch(patch);
    }
    let mut added = Vec::new();
    while let Some(entry) = fill.queue.pop() {
        if over() {
            break;
        }
        if let Some(pair) = fill.take(entry) {
            added.push(pair);
        }
    }
    added
}

struct Fill<'f, 'a> {
    state: &'f mut State<'a>,
    problem: &'f Problem,
    hosts: &'f [u32],
    ranking: Ranking,
    random: &'f mut Random,
    queue: BinaryHeap<Entry>,
}

impl Fill<'_, '_> {
    fn fits(&self, object: u32, host: u32) -> bool {
        self.problem.size[object as usize] <= self.state.free[host as usize]
            && !self.state.holds(object as usize, host as usize)
    }

    fn propose(&mut self, object: u32, host: u32) {
        if !self.fits(object, host) {
            return;
        }
        let factor = 1.0 + self.ranking.noise * self.random.unit();
        self.push(object, host, factor);
    }

    fn push(&mut self, object: u32, host: u32, factor: f64) {
        let price = self.ranking.price;
        let gain = self.state.gain(object as usize, host as usize, price);
        if gain > 0.0 {
            let rank = factor * gain / self.problem.size[object as usize].powf(self.ranking.power);
            self.queue.push(Entry {
                rank,
                factor,
                object,
                host,
            });
        }
    }

    /// Proposes a patch for the host with most requests for its target, or the one
    /// with most room.
    fn propose_patch(&mut self, object: u32) {
        let target = self.problem.anchor(object as usize);
        let mut best: Option<(f64, f64, u32)> = None;
        for &host in self.hosts {
            if !self.fits(object, host) {
                continue;
            }
            let cells = self.problem.cells.items();
            let rate = self
                .problem
                .cell_at(target, host as usize)
                .map_or(0.0, |position| cells[position].rate);
            let key = (rate, self.state.free[host as usize], host);
            if best.is_none_or(|best| (key.0, key.1) > (best.0, best.1)) {
                best = Some(key);
            }
        }
        if let Some((_, _, host)) = best {
            self.propose(object, host);
        }
    }

    /// Proposes the patches that a template, held or built, can be the base of.
    fn propose_patches_from(&mut self, template: usize) {
        for &patch in self.problem.from.row(template) {
            let patch = self.problem.patch(patch);
            if self.state.copies(patch) == 0 {
                self.propose_patch(patch as u32);
            }
        }
    }

    fn take(&mut self, entry: Entry) -> Option<(u32, u32)> {
        let (object, host) = (entry.object, entry.host);
        if !self.fits(object, host) {
            let patch = object as usize >= self.problem.templates;
            if patch && self.state.copies(object as usize) == 0 {
                self.propose_patch(object);
            }
            return None;
        }
        let size = self.problem.size[object as usize];
        let gain = self
            .state
            .gain(object as usize, host as usize, self.ranking.price);
        let rank = entry.factor * gain / size.powf(self.ranking.power);
        if gain <= 0.0 {
            return None;
        }
        if self
            .queue
            .peek()
            .is_some_and(|next| rank < next.rank * (1.0 - 1e-9))
        {
            self.queue.push(Entry { rank, ..entry });
            return None;
        }
        let first = self.state.copies(object as usize) == 0;
        self.state.add(object as usize, host as usize);
        let chained = self.problem.hops > 1;
        if first && (chained || (object as usize) < self.problem.templates) {
            self.propose_patches_from(self.problem.anchor(object as usize));
        }
        Some((object, host))
    }
}
