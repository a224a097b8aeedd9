//! What adding or removing an object changes.

use super::State;

impl State<'_> {
    /// What adding the object would save; `price` per byte is what patches that
    /// are not near yet would be charged, if that beats the repository.
    pub fn gain(&mut self, object: usize, host: usize, price: f64) -> f64 {
        if self.holds(object, host) {
            return 0.0;
        }
        if self.problem.hops > 1 {
            let before = self.cost;
            self.add(object, host);
            let gain = before - self.cost;
            self.remove(object, host);
            self.cost = before;
            return gain;
        }
        let saved = match self.problem.as_patch(object) {
            Some(patch) => self.patch_gain(patch as u32, host),
            None => self.template_gain(object, host, price),
        };
        saved - self.move_cost(object, host)
    }

    fn patch_gain(&self, patch: u32, host: usize) -> f64 {
        let problem = self.problem;
        let target = problem.target[patch as usize] as usize;
        let base = problem.base[patch as usize] as usize;
        if self.copies(base) == 0 && !self.far.row(target).contains(&patch) {
            return 0.0;
        }
        let size = problem.size[problem.patch(patch)];
        let first = self.copies(problem.patch(patch)) == 0;
        let mut saved = 0.0;
        for position in self.positions(target, (!first).then_some(host)) {
            let cell = problem.cells.items()[position];
            let at = cell.host as usize;
            let links = problem.links[at];
            let link = if at == host { links.local } else { links.near };
            let way = self.fetch(base, at) + link * size + problem.apply[patch as usize];
            saved += cell.rate * (self.cell[position] - way).max(0.0);
        }
        saved
    }

    fn template_gain(&self, template: usize, host: usize, price: f64) -> f64 {
        if self.copies(template) > 0 {
            return self.copy_gain(template, host, price);
        }
        let problem = self.problem;
        let size = problem.size[template];
        let link = |at: usize| {
            let links = problem.links[at];
            if at == host {
                links.local
            } else {
                links.near
            }
        };
        let mut saved = 0.0;
        for position in problem.cells.range(template) {
            let cell = problem.cells.items()[position];
            let way = link(cell.host as usize) * size;
            saved += cell.rate * (self.cell[position] - way).max(0.0);
        }
        for &patch in problem.from.row(template) {
            let target = problem.target[patch as usize] as usize;
            let object = problem.patch(patch);
            let bytes = problem.size[object];
            let mut held = 0.0;
            let mut bought = -price * bytes;
            for position in problem.cells.range(target) {
                let cell = problem.cells.items()[position];
                let at = cell.host as usize;
                let now = self.cell[position];
                let base = link(at) * size + problem.apply[patch as usize];
                if base >= now {
                    continue;
                }
                held += cell.rate * (now - base - self.fetch(object, at)).max(0.0);
                bought += cell.rate * (now - base - problem.links[at].near * bytes).max(0.0);
            }
            saved += held.max(bought);
        }
        saved
    }

    /// What a further copy of a template saves: requests of its host alone.
    fn copy_gain(&self, template: usize, host: usize, price: f64) -> f64 {
        let problem = self.problem;
        let links = problem.links[host];
        let size = problem.size[template];
        let cells = problem.cells.items();
        let mut saved = 0.0;
        if let Some(position) = problem.cell_at(template, host) {
            let left = self.cell[position] - links.local * size;
            saved += cells[position].rate * left.max(0.0);
        }
        for (patch, position) in problem.built_at(template, host) {
            let object = problem.patch(patch);
            let bytes = problem.size[object];
            let left = self.cell[position] - links.local * size - problem.apply[patch as usize];
            if left <= 0.0 {
                continue;
            }
            let rate = cells[position].rate;
            let held = rate * (left - self.fetch(object, host)).max(0.0);
            let bought = rate * (left - links.near * bytes).max(0.0) - price * bytes;
            saved += held.max(bought);
        }
        saved
    }

    pub(super) fn positions(&self, template: usize, host: Option<usize>) -> std::ops::Range<usize> {
        match host {
            None => self.problem.cells.range(template),
            Some(host) => match self.problem.cell_at(template, host) {
                Some(position) => position..position + 1,
                None => 0..0,
            },
        }
    }

    /// What all requests and moves would cost more without the object.
    pub fn loss(&mut self, object: usize, host: usize) -> f64 {
        let before = self.cost;
        self.remove(object, host);
        let loss = self.cost - before;
        self.add(object, host);
        self.cost = before;
        loss
    }
}
