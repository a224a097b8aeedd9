//! Lower bounds from prices.
//!
//! The linear relaxation of the compact model has, per request (j, r), the
//! multiplier of being served (`multiplier`), and per object its price of being near and
//! what it is worth on each host's disk. For prices of space per byte on each
//! host (lambda), the rest nearly solves itself:
//!
//! * an object's near price is what its space costs on the host where holding
//!   it locally is worth most, less that worth;
//! * multipliers are, component by component, the dual of a facility location
//!   problem with those prices ([`crate::location`]);
//! * where local copies would be worth more than their space, the requests of
//!   that host lower their multipliers (`cut`) until they are not.
//!
//! The value is computed from the final numbers with every excess subtracted,
//! so it is a bound whatever they are.

mod cuts;

use crate::location::{self, Costs, Scratch};
use crate::problem::{Links, Problem};
use crate::rows::Rows;
use crate::ways::{self, Way};

/// Rounds of cutting multipliers per component and host.
const CUT_ROUNDS: usize = 6;

/// Excess over a price that counts as none, relative to the price.
const SLACK: f64 = 1e-9;

/// Sums over one template's requests.
#[derive(Debug, Clone, Copy, Default)]
struct Demand {
    rate: f64,
    near: f64,
    repo: f64,
}

/// One base that could serve one request from the host's own disk.
#[derive(Debug, Clone, Copy)]
struct Entry {
    base: u32,
    target: u32,
    cell: u32,
    /// Saved if the base is local, over the base being near.
    local: f64,
    /// Saved if the patch is local, over it being near.
    patch: f64,
    /// What the way costs when near, beyond the request's multiplier.
    margin: f64,
}

impl Entry {
    /// What the base on the host's disk contributes to the request.
    fn worth(&self, cut: f64) -> f64 {
        (self.local + self.patch - (self.margin + cut).max(0.0)).clamp(0.0, self.local)
    }

    /// What the patch on the host's disk contributes.
    fn patch_worth(&self, cut: f64) -> f64 {
        (self.patch - (self.margin + cut).max(0.0)).max(0.0)
    }
}

/// A bound, and the use of space at its prices.
#[derive(Debug, Clone)]
pub struct Bound {
    /// No placement costs less.
    pub value: f64,
    /// Bytes that the priced problem would take on each host.
    pub used: Vec<f64>,
}

/// Prices that carry over from one evaluation to the next.
pub struct Dual<'a> {
    problem: &'a Problem,
    ways: Rows<Way>,
    /// Positions of the ways that may be worth it with a base from far.
    far_ways: Rows<u32>,
    demand: Vec<Demand>,
    way_cost: Vec<f64>,
    direct: Vec<f64>,
    far: Vec<f64>,
    /// Price per byte of patches to each template.
    patch_rate: Vec<f64>,
    /// Price of having each template near.
    pub price: Vec<f64>,
    /// Host on which each template's near price is lowest.
    home: Vec<u32>,
    /// Multiplier of each template being served, over all its requests.
    multiplier: Vec<f64>,
    /// Templates that the priced problem would have near.
    pub open: Vec<bool>,
    cut: Vec<f64>,
    /// Bytes of local copies that are worth their space, by host.
    local_used: Vec<f64>,
    scratch: Scratch,
    entries: Vec<Entry>,
    /// Bases whose `worth` is not zero in the group at hand.
    bases: Vec<u32>,
    worth: Vec<f64>,
    slope: Vec<f64>,
}

impl<'a> Dual<'a> {
    /// Prices of one instance, all at zero.
    #[must_use]
    pub fn new(problem: &'a Problem) -> Self {
        let n = problem.templates;
        let ways = ways::ways(problem);
        let demand = (0..n)
            .map(|t| {
                problem
                    .cells
                    .row(t)
                    .iter()
                    .fold(Demand::default(), |sum, cell| {
                        let links = problem.links[cell.host as usize];
                        Demand {
                            rate: sum.rate + cell.rate,
                            near: sum.near + cell.rate * links.near,
                            repo: sum.repo + cell.rate * links.repo,
                        }
                    })
            })
            .collect();
        Self {
            problem,
            way_cost: vec![0.0; ways.items().len()],
            far_ways: far_ways(problem, &ways),
            ways,
            demand,
            direct: vec![0.0; n],
            far: vec![0.0; n],
            patch_rate: vec![0.0; n],
            price: vec![0.0; n],
            home: vec![0; n],
            multiplier: vec![0.0; n],
            open: vec![false; n],
            cut: vec![0.0; problem.cells.items().len()],
            local_used: Vec::new(),
            scratch: Scratch::new(n),
            entries: Vec::new(),
            bases: Vec::new(),
            worth: vec![0.0; n],
            slope: vec![0.0; n],
        }
    }

    /// The ways it prices, and which of them may be worth it from far.
    #[must_use]
    pub fn ways(&self) -> (&Rows<Way>, &Rows<u32>) {
        (&self.ways, &self.far_ways)
    }

    /// The last multiplier of each request, cuts taken off.
    #[must_use]
    pub fn multipliers(&self) -> Vec<f64> {
        let mut multipliers = vec![0.0; self.cut.len()];
        for t in 0..self.problem.templates {
            for cell in self.problem.cells.range(t) {
                multipliers[cell] = self.multiplier_at(t, cell) - self.cut[cell];
            }
        }
        multipliers
    }

    /// The instance.
    #[must_use]
    pub fn problem(&self) -> &'a Problem {
        self.problem
    }

    /// Cost of serving everything from the repository, by the last prices.
    #[must_use]
    pub fn far_cost(&self) -> f64 {
        self.far.iter().sum()
    }

    /// The bound at prices per byte of each host's space.
    ///
    /// `steps` are the subgradient steps spent on multipliers, `rounds` how often
    /// multipliers and near prices are fitted to each other.
    pub fn evaluate(&mut self, lambda: &[f64], steps: usize, rounds: usize) -> Bound {
        self.price_ways(lambda);
        let mut best = Bound {
            value: self.price_templates(lambda),
            used: Vec::new(),
        };
        for _ in 0..rounds.max(1) {
            self.fit_multipliers(steps);
            let near = self.count_used(lambda);
            let value = self.price_templates(lambda);
            if value > best.value || best.used.is_empty() {
                let used = near
                    .iter()
                    .zip(&self.local_used)
                    .map(|(n, l)| n + l)
                    .collect();
                best = Bound {
                    value: best.value.max(value),
                    used,
                };
            }
        }
        best
    }

    /// Prices patches and from them every way.
    fn price_ways(&mut self, lambda: &[f64]) {
        let problem = self.problem;
        let room = problem.capacity.iter().copied().fold(0.0, f64::max);
        let usable = |h: &usize| problem.capacity[*h] > 0.0;
        let least = (0..lambda.len())
            .filter(usable)
            .map(|h| lambda[h])
            .fold(f64::MAX, f64::min);
        for t in 0..problem.templates {
            let mut rate = least;
            for cell in problem.cells.row(t) {
                let host = cell.host as usize;
                let links = problem.links[host];
                if usable(&host) {
                    let saved = cell.rate * (links.near - links.local);
                    rate = rate.min((lambda[host] - saved).max(0.0));
                }
            }
            // A hair less, or rounding would look like a local copy's worth.
            let rate = rate * (1.0 - SLACK);
            self.patch_rate[t] = rate;
            let demand = self.demand[t];
            self.direct[t] = demand.near * problem.size[t];
            self.far[t] = demand.repo * problem.wire[t];
            for n in self.ways.range(t) {
                let way = self.ways.items()[n];
                let patch = problem.size[problem.patch(way.patch)];
                let near = if patch <= room {
                    patch * (demand.near + rate)
                } else {
                    f64::INFINITY
                };
                let chain = demand.rate * way.seconds + near.min(patch * demand.repo);
                let base = problem.size[way.base as usize];
                self.way_cost[n] = demand.near * base + chain;
                let base = problem.wire[way.base as usize];
                self.far[t] = self.far[t].min(demand.repo * base + chain);
            }
        }
    }

    /// Prices templates by the space they take where they are worth most, and
    /// returns the bound that the numbers prove, every excess subtracted.
    fn price_templates(&mut self, lambda: &[f64]) -> f64 {
        let problem = self.problem;
        self.price_space(lambda);
        self.local_used = vec![0.0; lambda.len()];
        let mut contributed = vec![0.0; problem.templates];
        let mut total = 0.0;
        for g in 0..problem.groups.len() {
            total -= self.cut_group(g, lambda);
            self.lower_prices(g, lambda);
            for entry in &self.entries {
                let surplus = -(entry.margin + self.cut[entry.cell as usize]);
                contributed[entry.base as usize] += surplus.max(0.0);
            }
            for &(template, cell) in &problem.groups[g].cells {
                total +=
                    self.multiplier_at(template as usize, cell as usize) - self.cut[cell as usize];
            }
        }
        for (contributed, price) in contributed.iter().zip(&self.price) {
            total -= (contributed - price).max(0.0);
        }
        total
            - lambda
                .iter()
                .zip(&problem.capacity)
                .map(|(l, c)| l * c)
                .sum::<f64>()
    }

    /// Near prices if no copy were worth anything locally.
    fn price_space(&mut self, lambda: &[f64]) {
        for (t, &size) in self.problem.size[..self.problem.templates]
            .iter()
            .enumerate()
        {
            self.price[t] = f64::INFINITY;
            for (host, &price) in lambda.iter().enumerate() {
                if size <= self.problem.capacity[host] && price * size < self.price[t] {
                    self.price[t] = price * size;
                    self.home[t] = host as u32;
                }
            }
        }
    }

    /// Subtracts from near prices what local copies save the group's host.
    fn lower_prices(&mut self, g: usize, lambda: &[f64]) {
        let host = self.problem.groups[g].host as usize;
        let mut full = None;
        for &base in &self.bases {
            let b = base as usize;
            let space = lambda[host] * self.problem.size[b];
            let left = (space - self.worth[b]).max(0.0);
            if left < self.price[b] {
                self.price[b] = left;
                self.home[b] = host as u32;
            }
            if left <= 1e-6 * space {
                full = Some(b);
            }
        }
        if let Some(base) = full {
            self.local_used[host] += self.problem.size[base];
        }
    }

    /// Facility location, component by component.
    fn fit_multipliers(&mut self, steps: usize) {
        let costs = Costs {
            ways: &self.ways,
            way: &self.way_cost,
            direct: &self.direct,
            far: &self.far,
            price: &self.price,
        };
        for component in 0..self.problem.members.len() {
            let members = self.problem.members.row(component);
            let above = location::open(&costs, members, &mut self.open, &mut self.scratch);
            let (multiplier, scratch) = (&mut self.multiplier, &mut self.scratch);
            location::price(
                &costs, members, &self.open, above, steps, multiplier, scratch,
            );
        }
    }

    /// Bytes that near templates and patches take on each host.
    fn count_used(&self, lambda: &[f64]) -> Vec<f64> {
        let problem = self.problem;
        let spread = 1.0 / lambda.len().max(1) as f64;
        let mut used = vec![0.0; lambda.len()];
        for t in 0..problem.templates {
            if self.open[t] && self.price[t] > 0.0 {
                used[self.home[t] as usize] += problem.size[t];
            }
            let mut least = if self.open[t] {
                self.direct[t]
            } else {
                self.far[t]
            };
            let mut patch = 0.0;
            for n in self.ways.range(t) {
                let way = self.ways.items()[n];
                if self.open[way.base as usize] && self.way_cost[n] < least {
                    least = self.way_cost[n];
                    let size = problem.size[problem.patch(way.patch)];
                    let demand = self.demand[t];
                    let near = demand.near + self.patch_rate[t] < demand.repo;
                    patch = if near { size } else { 0.0 };
                }
            }
            for slot in &mut used {
                *slot += patch * spread;
            }
        }
        used
    }

    /// The multiplier of one request: its part of its template's.
    fn multiplier_at(&self, template: usize, cell: usize) -> f64 {
        let problem = self.problem;
        let request = problem.cells.items()[cell];
        let links = problem.links[request.host as usize];
        let demand = self.demand[template];
        let part = request.rate * links.near / demand.near;
        let mut far = request.rate * links.repo * problem.wire[template];
        for &n in self.far_ways.row(template) {
            let way = self.ways.items()[n as usize];
            let patch = problem.size[problem.patch(way.patch)];
            let near = request.rate * links.near + self.patch_rate[template] * part;
            let base = request.rate * (links.repo * problem.wire[way.base as usize] + way.seconds);
            far = far.min(base + patch * near.min(request.rate * links.repo));
        }
        (self.multiplier[template] * part).min(far)
    }
}

/// Ways that beat the repository even with the base coming from there, at some
/// host.
fn far_ways(problem: &Problem, ways: &Rows<Way>) -> Rows<u32> {
    let mut found = Vec::new();
    for t in 0..problem.templates {
        for n in ways.range(t) {
            let way = ways.items()[n];
            let saved = problem.wire[t] - problem.wire[way.base as usize];
            let patch = problem.size[problem.patch(way.patch)];
            let wins = |l: &Links| l.repo * saved > way.seconds + l.local * patch;
            if problem.links.iter().any(wins) {
                found.push((t, n as u32));
            }
        }
    }
    Rows::collect(problem.templates, found.iter().copied())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::problem::tests::{chain, compressed_chain};
    use crate::state::{Fixed, State};

    /// The least cost of all placements that fit, by trying them.
    pub(crate) fn optimum(problem: &Problem) -> f64 {
        let slots = problem.objects() * problem.hosts();
        let mut best = f64::INFINITY;
        for choice in 0u32..1 << slots {
            let mut state = State::new(problem, &Fixed::default());
            for slot in (0..slots).filter(|slot| choice >> slot & 1 == 1) {
                state.add(slot / problem.hosts(), slot % problem.hosts());
            }
            if state.free.iter().all(|&free| free >= 0.0) {
                best = best.min(state.cost);
            }
        }
        best
    }

    #[test]
    fn any_prices_bound_the_optimum() {
        for problem in [chain(1), chain(2), compressed_chain(1), compressed_chain(2)] {
            let least = optimum(&problem);
            let mut dual = Dual::new(&problem);
            let mut best = 0.0f64;
            for price in [0.0, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
                for other in [0.0, 0.3, 1.0, 3.0] {
                    let bound = dual.evaluate(&[price, other], 20, 2);
                    assert!(bound.value <= least * (1.0 + 1e-9), "{price} {other}");
                    best = best.max(bound.value);
                }
            }
            assert!(best > 0.5 * least, "{best} of {least}");
        }
    }
}
