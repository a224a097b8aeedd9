//! Steps to better multipliers.

use super::{Lagrangian, Multipliers};
use crate::problem::Problem;

/// Share of the last direction that the next one keeps.
const KEEP: f64 = 0.9;

/// Part of the distance to the known cost that the first step may go.
const FIRST: f64 = 0.1;

/// Steps without a better bound after which steps get shorter, and how much.
const PATIENCE: usize = 30;

const SHORTER: f64 = 0.7;

/// Steps this short change nothing any more.
const LAST: f64 = 2e-4;

/// How fast shares in patches move, by the length of steps.
const SHARING: f64 = 20.0;

/// Rise of the bound that counts as one.
const RISE: f64 = 1e-5;

/// The volume algorithm: ascends to good multipliers.
pub struct Ascent<'o, 'a> {
    lagrangian: &'o mut Lagrangian<'a>,
    /// The bound at the best multipliers so far.
    pub value: f64,
    best: Multipliers,
    now: Multipliers,
    direction: Multipliers,
    /// Change of each number per unit of direction.
    scale: Multipliers,
    length: f64,
    idle: usize,
}

impl<'o, 'a> Ascent<'o, 'a> {
    /// Starts at some multipliers.
    pub fn new(lagrangian: &'o mut Lagrangian<'a>, start: Multipliers) -> Self {
        let problem = lagrangian.problem;
        Self {
            scale: scale(problem, &start),
            direction: Multipliers::zero(problem),
            now: start.clone(),
            best: start,
            value: f64::NEG_INFINITY,
            length: FIRST,
            idle: 0,
            lagrangian,
        }
    }

    /// Further steps would be too short to matter.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.length < LAST
    }

    /// One step; `above` is a cost that some placement reaches.
    pub fn step(&mut self, above: f64) {
        let value = self.lagrangian.evaluate(&mut self.now);
        self.idle += 1;
        if value > self.value {
            if value > self.value + RISE * value.abs() {
                self.idle = 0;
            }
            self.value = value;
            self.best.clone_from(&self.now);
        }
        if self.idle >= PATIENCE {
            self.idle = 0;
            self.length *= SHORTER;
            self.now.clone_from(&self.best);
            self.direction = Multipliers::zero(self.lagrangian.problem);
            return;
        }
        let sharing = (SHARING * self.length).exp();
        self.lagrangian.reshare(&mut self.now.share, sharing);
        self.go((above - value).max(0.0));
    }

    fn go(&mut self, distance: f64) {
        let slope = &self.lagrangian.slope;
        let mut norm = 0.0;
        for ((way, now), (slope, scale)) in
            (self.direction.lists_mut().into_iter().zip(self.now.lists()))
                .zip(slope.lists().into_iter().zip(self.scale.lists()))
        {
            for (((way, now), slope), scale) in way.iter_mut().zip(now).zip(slope).zip(scale) {
                *way = KEEP * *way + (1.0 - KEEP) * slope;
                if *way > 0.0 || *now > 0.0 {
                    norm += scale * *way * *way;
                }
            }
        }
        if norm <= 0.0 {
            self.length = 0.0;
            return;
        }
        let step = self.length * distance / norm;
        for ((now, way), scale) in (self.now.lists_mut().into_iter())
            .zip(self.direction.lists())
            .zip(self.scale.lists())
        {
            for ((now, way), scale) in now.iter_mut().zip(way).zip(scale) {
                *now = (*now + step * scale * way).max(0.0);
            }
        }
    }
}

/// Typical magnitudes: of assignment multipliers the cost of a template from near,
/// of the others that of its space at the start.
fn scale(problem: &Problem, start: &Multipliers) -> Multipliers {
    let mut scale = Multipliers::zero(problem);
    let hosts = start.space.len().max(1) as f64;
    let price = (start.space.iter().sum::<f64>() / hosts).max(1e-15);
    for t in 0..problem.templates {
        scale.near[t] = price * problem.size[t];
        for c in problem.cells.range(t) {
            let cell = problem.cells.items()[c];
            let links = problem.links[cell.host as usize];
            scale.assignment[c] = cell.rate * links.near * problem.size[t];
        }
    }
    for (slot, capacity) in scale.space.iter_mut().zip(&problem.capacity) {
        *slot = if *capacity > 0.0 {
            price / capacity
        } else {
            0.0
        };
    }
    scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dual::tests::optimum;
    use crate::dual::Dual;
    use crate::problem::tests::{chain, compressed_chain};
    use crate::random::Random;

    #[test]
    fn any_prices_bound_the_optimum() {
        let mut random = Random::new(11);
        for problem in [chain(1), chain(2), compressed_chain(1), compressed_chain(2)] {
            let least = optimum(&problem);
            let dual = Dual::new(&problem);
            let (ways, far) = dual.ways();
            let mut lagrangian = Lagrangian::new(&problem, ways, far);
            let mut best = f64::NEG_INFINITY;
            for _ in 0..2000 {
                let mut multipliers = lagrangian.start(Vec::new(), Vec::new(), Vec::new());
                let part = random.unit();
                let mut draw = |count: usize, most: f64| -> Vec<f64> {
                    let most = most * part;
                    (0..count).map(|_| most * random.unit()).collect()
                };
                multipliers.assignment = draw(problem.cells.items().len(), 4000.0);
                multipliers.near = draw(problem.templates, 3000.0);
                multipliers.space = draw(problem.hosts(), 4.0);
                let value = lagrangian.evaluate(&mut multipliers);
                assert!(value <= least * (1.0 + 1e-9), "{value} {least}");
                best = best.max(value);
            }
            assert!(best > 0.0, "{best}");
        }
    }

    #[test]
    fn climbs_from_where_the_simpler_dual_ends() {
        let problem = chain(1);
        let least = optimum(&problem);
        let mut dual = Dual::new(&problem);
        let space = [1.0, 1.0];
        let value = dual.evaluate(&space, 20, 2).value;
        let (ways, far) = dual.ways();
        let mut lagrangian = Lagrangian::new(&problem, ways, far);
        let start = lagrangian.start(dual.multipliers(), dual.price.clone(), space.to_vec());
        let mut ascent = Ascent::new(&mut lagrangian, start);
        ascent.step(least);
        assert!(
            ascent.value >= value * (1.0 - 1e-6),
            "{} {value}",
            ascent.value
        );
        for _ in 0..2000 {
            ascent.step(least);
        }
        assert!(ascent.value > value && ascent.value <= least * (1.0 + 1e-9));
        assert!(ascent.value > 0.6 * least, "{} {least}", ascent.value);
    }
}
