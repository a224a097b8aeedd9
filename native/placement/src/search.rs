//! Large-neighbourhood search (ruin and recreate): remove part of a placement,
//! insert anew, keep what is no worse. Ejection is the smallest such neighbourhood: one object
//! goes in, just enough comes out for it.
//!
//! In small instances, where nothing helps any more, the search climbs: for some
//! steps it accepts what is not much dearer than the best so far, less and less of
//! it (record-to-record travel, Dueck 1993), goes downhill from there, and begins
//! again at the best.

use crate::pack::{pack, Item};
use crate::problem::Problem;
use crate::random::Random;
use crate::recreate::{fill, Choice, Ranking};
use crate::state::State;

/// Templates besides those removed that an insertion may choose from.
const EXTRA: usize = 16;

/// Templates not near that a packing may choose from.
const POOL: usize = 20;

/// Requested pairs of template and host up to which the search may climb: in
/// small instances it soon is where no single step helps, and steps are cheap.
const SMALL: usize = 2000;

/// How far above the least cost a climb begins at most, how many steps it
/// takes to come down again, and how many go downhill only thereafter.
const DEVIATION: f64 = 0.02;
const CLIMB: usize = 300;
const COLD: usize = 1500;

/// A search over one placement.
pub struct Search<'s, 'a> {
    problem: &'a Problem,
    state: &'s mut State<'a>,
    random: Random,
    price: f64,
    /// Templates to draw from, each as often as its demand says.
    tickets: Vec<u32>,
    hosts: Vec<u32>,
    /// What an ejection made room for.
    wanted: Option<(u32, u32)>,
    /// Least cost so far.
    best: f64,
    /// Contents of the hosts at that cost, if the state has gone on from it.
    saved: Option<Vec<Vec<u32>>>,
    /// Share of the least cost by which a climb may begin above it at most,
    /// and by which the one at hand began.
    deviation: f64,
    now: f64,
    /// Steps since the least cost was found.
    idle: usize,
}

impl<'s, 'a> Search<'s, 'a> {
    /// A search that changes `state`; `price` is what space is worth per byte.
    pub fn new(
        problem: &'a Problem,
        state: &'s mut State<'a>,
        price: f64,
        favourites: &[u32],
        seed: u64,
    ) -> Self {
        let mut tickets: Vec<u32> = favourites.to_vec();
        for t in 0..problem.templates {
            let rate: f64 = problem.cells.row(t).iter().map(|cell| cell.rate).sum();
            if rate > 0.0 {
                tickets.extend(std::iter::repeat_n(
                    t as u32,
                    1 + (rate.sqrt() as usize).min(8),
                ));
            }
        }
        let hosts = (0..problem.hosts() as u32)
            .filter(|&host| problem.capacity[host as usize] > 0.0)
            .collect();
        let small = problem.cells.items().len() <= SMALL;
        Self {
            best: state.cost,
            saved: None,
            deviation: if small { DEVIATION } else { 0.0 },
            now: 0.0,
            idle: 0,
            problem,
            state,
            random: Random::new(seed),
            price,
            tickets,
            hosts,
            wanted: None,
        }
    }

    /// Least cost so far.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.best
    }

    /// Goes back to the best placement so far.
    pub fn settle(&mut self) {
        let Some(saved) = self.saved.take() else {
            return;
        };
        for (host, wanted) in saved.iter().enumerate() {
            for object in self.state.contents[host].clone() {
                if !wanted.contains(&object) {
                    self.state.remove(object as usize, host);
                }
            }
        }
        for (host, wanted) in saved.iter().enumerate() {
            for &object in wanted {
                self.state.add(object as usize, host);
            }
        }
        self.state.cost = self.best;
    }

    /// Share of the least cost by which the state may be above it now.
    fn slack(&mut self) -> f64 {
        if self.deviation == 0.0 {
            return 0.0;
        }
        self.idle += 1;
        let Some(phase) = self.idle.checked_sub(COLD) else {
            return 0.0;
        };
        let phase = phase % (CLIMB + COLD);
        if phase == 0 {
            self.settle();
            self.now = self.deviation * self.random.unit();
        }
        self.now * (1.0 - phase as f64 / CLIMB as f64).max(0.0)
    }

    /// One step; true if it found a cost below all others.
    pub fn step(&mut self, over: &mut dyn FnMut() -> bool) -> bool {
        let slack = self.slack();
        if self.hosts.is_empty() || self.tickets.is_empty() {
            return false;
        }
        let before = self.state.cost;
        let mut removed = Vec::new();
        let mut added = Vec::new();
        let hosts = match self.random.below(14) {
            0..=3 => self.ruin_hosts(&mut removed),
            4..=6 => self.ruin_objects(&mut removed),
            7..=10 => self.ruin_component(&mut removed),
            11 => self.eject(&mut removed),
            _ => self.repack(&mut removed, &mut added),
        };
        self.insert(&hosts, &removed, &mut added, over);
        let after = self.state.cost;
        if after < self.best - 1e-9 * self.best.abs() {
            self.best = after;
            self.saved = None;
            self.idle = 0;
            return true;
        }
        if after > before * (1.0 + 1e-12) {
            let accepted = after <= self.best * (1.0 + slack);
            if !accepted || self.saved.is_none() {
                self.undo(&removed, &added);
                self.state.cost = before;
            }
            if accepted && self.saved.is_none() {
                self.saved = Some(self.state.contents.clone());
                self.undo(&added, &removed);
            }
        }
        false
    }

    /// Removes what was added and adds what was removed.
    fn undo(&mut self, removed: &[(u32, u32)], added: &[(u32, u32)]) {
        for &(object, host) in added.iter().rev() {
            self.state.remove(object as usize, host as usize);
        }
        for &(object, host) in removed.iter().rev() {
            self.state.add(object as usize, host as usize);
        }
    }

    fn host(&mut self) -> u32 {
        self.hosts[self.random.below(self.hosts.len())]
    }

    fn take(&mut self, object: u32, host: u32, removed: &mut Vec<(u32, u32)>) {
        if !self.state.is_pinned(object as usize, host as usize) {
            self.state.remove(object as usize, host as usize);
            removed.push((object, host));
        }
    }

    /// Empties one to three hosts.
    fn ruin_hosts(&mut self, removed: &mut Vec<(u32, u32)>) -> Vec<u32> {
        let mut hosts = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let host = self.host();
            if hosts.contains(&host) {
                continue;
            }
            hosts.push(host);
            for object in self.state.contents[host as usize].clone() {
                self.take(object, host, removed);
            }
        }
        hosts
    }

    /// Removes a few templates from a few hosts, and some of their patches.
    fn ruin_objects(&mut self, removed: &mut Vec<(u32, u32)>) -> Vec<u32> {
        let mut hosts = Vec::new();
        for _ in 0..2 + self.random.below(4) {
            let host = self.host();
            let contents = self.state.contents[host as usize].clone();
            let templates: Vec<u32> = contents
                .iter()
                .copied()
                .filter(|&object| (object as usize) < self.problem.templates)
                .collect();
            if let Some(&object) = templates.get(self.random.below(templates.len())) {
                self.take(object, host, removed);
            }
            for object in contents {
                let patch = object as usize >= self.problem.templates;
                if patch && self.random.below(4) == 0 {
                    self.take(object, host, removed);
                }
            }
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// Removes all objects of one component from all hosts.
    fn ruin_component(&mut self, removed: &mut Vec<(u32, u32)>) -> Vec<u32> {
        let pick = self.tickets[self.random.below(self.tickets.len())];
        let component = self.problem.component[pick as usize];
        let mut hosts = Vec::new();
        for host in self.hosts.clone() {
            if hosts.len() >= 6 {
                break;
            }
            let mut here = false;
            for object in self.state.contents[host as usize].clone() {
                let anchor = self.problem.anchor(object as usize);
                if self.problem.component[anchor] == component {
                    self.take(object, host, removed);
                    here = true;
                }
            }
            if here {
                hosts.push(host);
            }
        }
        while hosts.len() < 2.min(self.hosts.len()) {
            let host = self.host();
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// Makes room for one template on one host by removing the objects of least
    /// loss per byte; another host may take in what was ejected.
    fn eject(&mut self, removed: &mut Vec<(u32, u32)>) -> Vec<u32> {
        let template = self.tickets[self.random.below(self.tickets.len())];
        let host = self.host();
        let size = self.problem.size[template as usize];
        if size > self.problem.capacity[host as usize]
            || self.state.holds(template as usize, host as usize)
        {
            return vec![host];
        }
        let mut cheap: Vec<(f64, u32)> = Vec::new();
        for object in self.state.contents[host as usize].clone() {
            let loss = self.state.loss(object as usize, host as usize);
            cheap.push((loss / self.problem.size[object as usize], object));
        }
        cheap.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, object) in cheap {
            if self.state.free[host as usize] >= size {
                break;
            }
            self.take(object, host, removed);
        }
        let mut hosts = vec![host];
        for _ in 0..2 {
            let other = self.host();
            if !hosts.contains(&other) {
                hosts.push(other);
            }
        }
        self.wanted = Some((template, host));
        hosts
    }

    /// Packs the templates of one to three hosts anew, exactly, with some that no
    /// host holds to choose from.
    fn repack(&mut self, removed: &mut Vec<(u32, u32)>, added: &mut Vec<(u32, u32)>) -> Vec<u32> {
        let mut hosts = vec![self.host()];
        for _ in 0..self.random.below(3) {
            let host = self.host();
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        let mut pool: Vec<(u32, Item)> = Vec::new();
        let mut filler = f64::INFINITY;
        for &host in &hosts {
            for object in self.state.contents[host as usize].clone() {
                let size = self.problem.size[object as usize];
                let value = self.state.loss(object as usize, host as usize);
                if (object as usize) < self.problem.templates {
                    if !pool.iter().any(|(known, _)| *known == object) {
                        pool.push((object, Item { size, value }));
                    }
                } else if self.random.below(2) == 0 {
                    filler = filler.min(value / size);
                }
                self.take(object, host, removed);
            }
        }
        for _ in 0..POOL {
            let object = self.tickets[self.random.below(self.tickets.len())];
            if !pool.iter().any(|(known, _)| *known == object) {
                let value = self
                    .state
                    .gain(object as usize, hosts[0] as usize, self.price);
                let size = self.problem.size[object as usize];
                pool.push((object, Item { size, value }));
            }
        }
        self.keep_one_per_component(&mut pool);
        let filler = if filler.is_finite() {
            filler.max(0.0)
        } else {
            0.0
        };
        let items: Vec<Item> = pool.iter().map(|(_, item)| *item).collect();
        let room: Vec<f64> = hosts
            .iter()
            .map(|&host| self.state.free[host as usize])
            .collect();
        for ((object, _), at) in pool.iter().zip(pack(&items, &room, filler)) {
            if let Some(at) = at {
                if !self.state.holds(*object as usize, hosts[at] as usize) {
                    self.state.add(*object as usize, hosts[at] as usize);
                    added.push((*object, hosts[at]));
                }
            }
        }
        hosts
    }

    /// Keeps one template of each component, those of the hosts first: savings
    /// within a component do not add up.
    fn keep_one_per_component(&mut self, pool: &mut Vec<(u32, Item)>) {
        let mut seen: Vec<u32> = Vec::new();
        let problem = self.problem;
        pool.retain(|(object, _)| {
            let component = problem.component[*object as usize];
            let known = seen.contains(&component);
            seen.push(component);
            !known
        });
    }

    fn insert(
        &mut self,
        hosts: &[u32],
        removed: &[(u32, u32)],
        added: &mut Vec<(u32, u32)>,
        over: &mut dyn FnMut() -> bool,
    ) {
        let split = self.problem.templates as u32;
        let mut templates: Vec<u32> = removed
            .iter()
            .map(|pair| pair.0)
            .filter(|&object| object < split)
            .collect();
        let mut patches: Vec<u32> = removed
            .iter()
            .map(|pair| pair.0)
            .filter(|&object| object >= split)
            .collect();
        for _ in 0..EXTRA.min(self.tickets.len()) {
            templates.push(self.tickets[self.random.below(self.tickets.len())]);
        }
        for _ in 0..EXTRA {
            let target = self.tickets[self.random.below(self.tickets.len())] as usize;
            let usable = if self.problem.hops > 1 {
                self.problem.into.row(target)
            } else {
                self.state.usable_patches(target)
            };
            if !usable.is_empty() {
                let patch = usable[self.random.below(usable.len())];
                patches.push(self.problem.patch(patch) as u32);
            }
        }
        for list in [&mut templates, &mut patches] {
            list.sort_unstable();
            list.dedup();
        }
        let ranking = Ranking {
            price: self.price,
            power: [0.5, 0.8, 1.0, 1.0, 1.2][self.random.below(5)],
            noise: [0.0, 0.1, 0.1, 0.5, 0.5, 1.0, 1.0, 20.0][self.random.below(8)],
        };
        if let Some((object, host)) = self.wanted.take() {
            if self.state.free[host as usize] >= self.problem.size[object as usize] {
                self.state.add(object as usize, host as usize);
                added.push((object, host));
            }
        }
        let random = &mut self.random;
        let (state, problem) = (&mut *self.state, self.problem);
        let choice = Choice {
            hosts,
            templates: &templates,
            patches: &patches,
        };
        added.extend(fill(state, problem, choice, ranking, random, over));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{tests::mesh, Fixed};

    /// Whatever it climbs over, the search ends at the least cost it saw.
    #[test]
    fn climbs_come_back_to_the_best() {
        let problem = mesh(1);
        let mut state = State::new(&problem, &Fixed::default());
        let empty = state.cost;
        let mut least = empty;
        let mut climbed = false;
        let mut search = Search::new(&problem, &mut state, 0.1, &[], 3);
        for _ in 0..4 * (CLIMB + COLD) {
            search.step(&mut || false);
            climbed |= search.state.cost > search.cost() * (1.0 + 1e-6);
            least = least.min(search.state.cost);
        }
        search.settle();
        let best = search.cost();
        assert!(climbed && best < 0.5 * empty);
        assert!((best - least).abs() < 1e-6 * best);
        let mut fresh = State::new(&problem, &Fixed::default());
        for (object, host) in state.pairs() {
            fresh.add(object as usize, host as usize);
        }
        assert!((fresh.cost - best).abs() < 1e-6 * best);
        assert!(state.free.iter().all(|&free| free >= 0.0));
    }
}
