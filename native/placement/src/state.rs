//! A placement with its cost, changed object by object.

mod gains;

use crate::chains::{search_host, Chains};
use crate::held::Held;
use crate::problem::Problem;
use crate::rows::Rows;

/// Where a placement may start from and what its changes cost besides.
#[derive(Debug, Clone, Default)]
pub struct Fixed {
    /// (object, host) that must stay.
    pub pinned: Vec<(u32, u32)>,
    /// (object, host) that need no transfer.
    pub placed: Vec<(u32, u32)>,
    /// Cost per second of transfer that a new object takes to its host.
    pub move_weight: f64,
}

/// What each host holds, and what all requests cost.
#[derive(Clone)]
pub struct State<'a> {
    problem: &'a Problem,
    held: Held,
    pinned: Held,
    placed: Held,
    move_weight: f64,
    /// Bytes free on each host.
    pub free: Vec<f64>,
    /// Objects of each host, in no order.
    pub contents: Vec<Vec<u32>>,
    /// Patches to each template whose base is near.
    active: Vec<Vec<u32>>,
    /// Patches to each template that are useful with their base from far,
    /// those with the smallest bases first.
    far: Rows<u32>,
    cell: Vec<f64>,
    /// Seconds over all requests, and the cost of moving.
    pub cost: f64,
    chains: Chains,
    /// Requests that an object being removed served.
    served: Vec<(u32, u32)>,
}

impl<'a> State<'a> {
    /// The placement of the pinned objects alone.
    #[must_use]
    pub fn new(problem: &'a Problem, fixed: &Fixed) -> Self {
        let mut state = Self {
            problem,
            held: Held::new(problem),
            pinned: Held::of(problem, &fixed.pinned),
            placed: Held::of(problem, &fixed.placed),
            move_weight: fixed.move_weight,
            free: problem.capacity.clone(),
            contents: vec![Vec::new(); problem.hosts()],
            active: vec![Vec::new(); problem.templates],
            far: useful_from_far(problem),
            cell: vec![0.0; problem.cells.items().len()],
            cost: 0.0,
            chains: Chains::new(problem.templates),
            served: Vec::new(),
        };
        for t in 0..problem.templates {
            for position in problem.cells.range(t) {
                let seconds = state.cell_seconds(t, position);
                state.cell[position] = seconds;
                state.cost += problem.cells.items()[position].rate * seconds;
            }
        }
        if problem.hops > 1 {
            for g in 0..problem.groups.len() {
                state.update_group(g);
            }
        }
        for &(object, host) in &fixed.pinned {
            state.add(object as usize, host as usize);
        }
        state
    }

    /// The host holds the object.
    #[must_use]
    pub fn holds(&self, object: usize, host: usize) -> bool {
        self.held.contains(object, host)
    }

    /// The object must stay on the host.
    #[must_use]
    pub fn is_pinned(&self, object: usize, host: usize) -> bool {
        self.pinned.contains(object, host)
    }

    /// Hosts that hold the object.
    #[must_use]
    pub fn copies(&self, object: usize) -> u32 {
        self.held.copies(object)
    }

    /// Cost of moving the object to the host.
    #[must_use]
    pub fn move_cost(&self, object: usize, host: usize) -> f64 {
        if self.move_weight == 0.0 || self.placed.contains(object, host) {
            return 0.0;
        }
        // One copy in the site was enough for the others to read from.
        let links = self.problem.links[host];
        let near = self.placed.copies(object) > 0 || self.copies(object) > 0;
        let seconds = if near {
            links.near * self.problem.size[object]
        } else {
            links.repo * self.problem.wire[object]
        };
        self.move_weight * seconds
    }

    /// Patches to a template that can be used now; those whose base is far
    /// only if there are no others.
    #[must_use]
    pub fn usable_patches(&self, template: usize) -> &[u32] {
        match self.active[template].as_slice() {
            [] => self.far.row(template),
            near => near,
        }
    }

    fn fetch(&self, object: usize, host: usize) -> f64 {
        self.held.fetch(self.problem, object, host)
    }

    fn way_seconds(&self, patch: u32, host: usize) -> f64 {
        let problem = self.problem;
        let base = problem.base[patch as usize] as usize;
        self.fetch(base, host)
            + self.fetch(problem.patch(patch), host)
            + problem.apply[patch as usize]
    }

    fn cell_seconds(&self, template: usize, position: usize) -> f64 {
        self.cell_seconds_at(template, self.problem.cells.items()[position].host as usize)
    }

    fn cell_seconds_at(&self, template: usize, host: usize) -> f64 {
        let mut best = self.fetch(template, host);
        for &patch in &self.active[template] {
            best = best.min(self.way_seconds(patch, host));
        }
        // With a base near, one from the repository rarely is cheaper.
        let repo = self.problem.links[host].repo;
        for &patch in self.far.row(template) {
            let base = self.problem.base[patch as usize] as usize;
            if repo * self.problem.wire[base] >= best {
                break;
            }
            best = best.min(self.way_seconds(patch, host));
        }
        best
    }

    fn set_cell(&mut self, position: usize, seconds: f64) {
        let rate = self.problem.cells.items()[position].rate;
        self.cost += rate * (seconds - self.cell[position]);
        self.cell[position] = seconds;
    }

    /// Adds the object to the host. The caller has checked the space.
    pub fn add(&mut self, object: usize, host: usize) {
        if self.holds(object, host) {
            return;
        }
        self.cost += self.move_cost(object, host);
        self.held.insert(object, host);
        self.free[host] -= self.problem.size[object];
        self.contents[host].push(object as u32);
        let first = self.copies(object) == 1;
        if first && object < self.problem.templates {
            self.activate(object);
        }
        let host = (!first).then_some(host);
        if self.problem.hops > 1 {
            self.refresh_component(object, host);
        } else {
            self.visit(object, host, |state, template, position, patch| {
                let seconds = state.seconds_by(template, position, patch);
                if seconds < state.cell[position] {
                    state.set_cell(position, seconds);
                }
            });
        }
    }

    /// Removes the object from the host.
    pub fn remove(&mut self, object: usize, host: usize) {
        if !self.holds(object, host) {
            return;
        }
        let last = self.copies(object) == 1;
        let only = (!last).then_some(host);
        let mut served = std::mem::take(&mut self.served);
        if self.problem.hops <= 1 {
            self.visit(object, only, |state, template, position, patch| {
                if state.seconds_by(template, position, patch) <= state.cell[position] {
                    served.push((template as u32, position as u32));
                }
            });
        }
        self.held.remove(object, host);
        self.cost -= self.move_cost(object, host);
        self.free[host] += self.problem.size[object];
        self.contents[host].retain(|&held| held != object as u32);
        if last && object < self.problem.templates {
            self.deactivate(object);
        }
        if self.problem.hops > 1 {
            self.refresh_component(object, only);
        }
        for (template, position) in served.drain(..) {
            let seconds = self.cell_seconds(template as usize, position as usize);
            self.set_cell(position as usize, seconds);
        }
        self.served = served;
    }

    fn activate(&mut self, template: usize) {
        for &patch in self.problem.from.row(template) {
            self.active[self.problem.target[patch as usize] as usize].push(patch);
        }
    }

    fn deactivate(&mut self, template: usize) {
        for &patch in self.problem.from.row(template) {
            let target = self.problem.target[patch as usize] as usize;
            self.active[target].retain(|&held| held != patch);
        }
    }

    /// Calls `change` with the position of each request that an object may
    /// serve, at one host or at all, and the patch that it then uses.
    fn visit(
        &mut self,
        object: usize,
        host: Option<usize>,
        mut change: impl FnMut(&mut Self, usize, usize, Option<u32>),
    ) {
        let problem = self.problem;
        let target = problem.anchor(object);
        let own = problem.as_patch(object).map(|patch| patch as u32);
        for position in self.positions(target, host) {
            change(self, target, position, own);
        }
        if own.is_some() {
            return;
        }
        match host {
            Some(host) => {
                for (patch, position) in problem.built_at(object, host) {
                    let target = problem.target[patch as usize] as usize;
                    change(self, target, position, Some(patch));
                }
            }
            None => {
                for &patch in problem.from.row(object) {
                    let target = problem.target[patch as usize] as usize;
                    for position in problem.cells.range(target) {
                        change(self, target, position, Some(patch));
                    }
                }
            }
        }
    }

    /// Seconds for a request with one patch, or whole.
    fn seconds_by(&self, template: usize, position: usize, patch: Option<u32>) -> f64 {
        let host = self.problem.cells.items()[position].host as usize;
        match patch {
            Some(patch) => self.way_seconds(patch, host),
            None => self.fetch(template, host),
        }
    }

    fn refresh_component(&mut self, object: usize, host: Option<usize>) {
        let problem = self.problem;
        let component = problem.component[problem.anchor(object)] as usize;
        for &g in problem.groups_of.row(component) {
            let at = problem.groups[g as usize].host as usize;
            if host.is_none_or(|host| host == at) {
                self.update_group(g as usize);
            }
        }
    }

    /// Finds the cheapest chains for a host's requests for one component.
    fn update_group(&mut self, g: usize) {
        let problem = self.problem;
        let group = &problem.groups[g];
        let members = problem.members.row(group.component as usize);
        let mut chains = std::mem::take(&mut self.chains);
        search_host(
            &mut chains,
            problem,
            &self.held,
            members.iter().copied(),
            group.host as usize,
        );
        for &(template, position) in &group.cells {
            self.set_cell(position as usize, chains.least(template));
        }
        self.chains = chains;
    }

    /// (object, host) pairs of the placement, sorted.
    #[must_use]
    pub fn pairs(&self) -> Vec<(u32, u32)> {
        let mut pairs: Vec<(u32, u32)> = self
            .contents
            .iter()
            .enumerate()
            .flat_map(|(host, objects)| objects.iter().map(move |&o| (o, host as u32)))
            .collect();
        pairs.sort_unstable();
        pairs
    }
}

/// The patch beats fetching its target even with its base from the repository.
fn beats_repository(problem: &Problem, patch: u32) -> bool {
    let base = problem.wire[problem.base[patch as usize] as usize];
    let target = problem.wire[problem.target[patch as usize] as usize];
    let bytes = problem.size[problem.patch(patch)];
    problem.links.iter().any(|links| {
        links.repo * base + links.local * bytes + problem.apply[patch as usize]
            < links.repo * target
    })
}

fn useful_from_far(problem: &Problem) -> Rows<u32> {
    let useful = (0..problem.base.len() as u32).filter(|&patch| beats_repository(problem, patch));
    let mut far = Rows::collect(
        problem.templates,
        useful.map(|patch| (problem.target[patch as usize] as usize, patch)),
    );
    let wire = |patch: &u32| problem.wire[problem.base[*patch as usize] as usize];
    far.sort_rows_by(|a, b| wire(a).total_cmp(&wire(b)));
    far
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::chains::service_seconds;
    use crate::problem::{tests::chain, Hosts, Links, Patches, Templates};
    use crate::random::Random;

    /// Eight templates on three hosts, most pairs with a patch, some of them
    /// worth it with the base from the repository.
    pub(crate) fn mesh(hops: usize) -> Problem {
        let mut random = Random::new(23);
        let ends: Vec<(u32, u32)> = (0..64u32)
            .map(|n| (n / 8, n % 8))
            .filter(|(a, b)| a != b && random.below(4) > 0)
            .collect();
        let mut draw = |count: usize, low: f64, high: f64| -> Vec<f64> {
            let one = |_| low + (high - low) * random.unit();
            (0..count).map(one).collect()
        };
        let links = Links {
            local: 0.02,
            near: 0.04,
            repo: 0.8,
        };
        let size = draw(8, 800.0, 1600.0);
        let shares = draw(8, 0.2, 1.0);
        let wire = size.iter().zip(shares).map(|(mb, share)| mb * share);
        Problem::new(
            Templates {
                wire: wire.collect(),
                size,
            },
            Patches {
                base: ends.iter().map(|ends| ends.0).collect(),
                target: ends.iter().map(|ends| ends.1).collect(),
                size: draw(ends.len(), 10.0, 400.0),
                apply: draw(ends.len(), 0.0, 9.0),
            },
            Hosts {
                capacity: vec![3000.0; 3],
                links: vec![links; 3],
            },
            &draw(24, -2.0, 4.0),
            hops,
        )
        .unwrap()
    }

    /// Adding and removing at random ends where a fresh state with the same
    /// contents is.
    #[test]
    fn changes_leave_no_trace() {
        for problem in [chain(1), chain(2), mesh(1), mesh(2)] {
            let mut state = State::new(&problem, &Fixed::default());
            let mut random = Random::new(5);
            for _ in 0..600 {
                let object = random.below(problem.objects());
                let host = random.below(problem.hosts());
                if state.holds(object, host) {
                    state.remove(object, host);
                } else {
                    state.add(object, host);
                }
                let mut fresh = State::new(&problem, &Fixed::default());
                for (object, host) in state.pairs() {
                    fresh.add(object as usize, host as usize);
                }
                assert!((fresh.cost - state.cost).abs() < 1e-6);
            }
        }
    }

    /// After changes at random, the cost is what the search for chains finds
    /// from nothing.
    #[test]
    fn cost_is_that_of_the_cheapest_ways() {
        for problem in [chain(1), chain(2), mesh(1), mesh(2), mesh(3)] {
            let mut state = State::new(&problem, &Fixed::default());
            let mut random = Random::new(31);
            for _ in 0..200 {
                let object = random.below(problem.objects());
                let host = random.below(problem.hosts());
                if state.holds(object, host) {
                    state.remove(object, host);
                } else {
                    state.add(object, host);
                }
                let seconds = service_seconds(&problem, &state.held);
                let cells = (0..problem.templates)
                    .flat_map(|t| problem.cells.row(t).iter().map(move |cell| (t, cell)));
                let cost: f64 = cells
                    .map(|(t, cell)| cell.rate * seconds[t * problem.hosts() + cell.host as usize])
                    .sum();
                assert!((cost - state.cost).abs() < 1e-6 * cost);
            }
        }
    }

    #[test]
    fn gain_is_what_adding_saves() {
        gains_are_savings(&chain(1), &[3]);
        gains_are_savings(&mesh(1), &[0, 5, 9, 20, 30]);
    }

    fn gains_are_savings(problem: &Problem, held: &[usize]) {
        let mut state = State::new(problem, &Fixed::default());
        for &object in held {
            state.add(object, 0);
        }
        for object in 0..problem.objects() {
            for host in 0..problem.hosts() {
                let gain = state.gain(object, host, 1e9);
                let before = state.cost;
                if !state.holds(object, host) {
                    state.add(object, host);
                    assert!((before - state.cost - gain).abs() < 1e-6, "{object} {host}");
                    state.remove(object, host);
                }
            }
        }
    }

    #[test]
    fn moves_cost_unless_placed() {
        let problem = chain(1);
        let fixed = Fixed {
            placed: vec![(0, 0)],
            move_weight: 1.0,
            pinned: vec![],
        };
        let state = State::new(&problem, &fixed);
        assert_eq!(state.move_cost(0, 0), 0.0);
        assert_eq!(state.move_cost(0, 1), 0.04 * 1000.0);
        assert_eq!(state.move_cost(1, 1), 0.8 * 1100.0);
    }
}
