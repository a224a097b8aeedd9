//! Cuts of the price of a host's space.

use super::{Dual, Entry, CUT_ROUNDS, SLACK};

impl Dual<'_> {
    /// Lists the bases of a group's requests, cuts multipliers until no base is
    /// worth more on the host's disk than its space, and returns the excess
    /// that is left.
    pub(super) fn cut_group(&mut self, g: usize, lambda: &[f64]) -> f64 {
        let problem = self.problem;
        let group = &problem.groups[g];
        let host = group.host as usize;
        self.list_entries(g);
        let mut excess = 0.0;
        for &(_, cell) in &group.cells {
            self.cut[cell as usize] = 0.0;
        }
        self.cut_patches(lambda[host]);
        for round in 0..=CUT_ROUNDS {
            self.sum_worth();
            let mut worst: Option<(f64, u32)> = None;
            excess = 0.0;
            for &base in &self.bases {
                let b = base as usize;
                let space = lambda[host] * problem.size[b];
                let beyond = self.worth[b] - space;
                excess += beyond.max(0.0);
                let need = beyond / self.slope[b];
                if beyond > SLACK * space && worst.is_none_or(|(most, _)| need > most) {
                    worst = Some((need, base));
                }
            }
            let Some((_, base)) = worst else { break };
            if round == CUT_ROUNDS {
                break;
            }
            self.cut_for(base, lambda[host] * problem.size[base as usize]);
        }
        excess
    }

    /// One entry per request and base, direct service included.
    fn list_entries(&mut self, g: usize) {
        let problem = self.problem;
        let group = &problem.groups[g];
        let host = group.host as usize;
        let links = problem.links[host];
        let mut entries = std::mem::take(&mut self.entries);
        entries.clear();
        for &(template, cell) in &group.cells {
            let t = template as usize;
            let multiplier = self.multiplier_at(t, cell as usize);
            let rate = problem.cells.items()[cell as usize].rate;
            let saved = rate * (links.near - links.local);
            let room = problem.capacity[host];
            let local = |size: f64| if size <= room { saved * size } else { 0.0 };
            let size = problem.size[t];
            entries.push(Entry {
                base: template,
                target: template,
                cell,
                local: local(size),
                patch: 0.0,
                margin: rate * links.near * size - multiplier,
            });
            let part = self.patch_rate[t] * rate * links.near / self.demand[t].near;
            for way in self.ways.row(t) {
                let patch = problem.size[problem.patch(way.patch)];
                let base = problem.size[way.base as usize];
                let near = (rate * links.near + part).min(rate * links.repo);
                let margin = rate * (links.near * base + way.seconds) + near * patch - multiplier;
                let entry = Entry {
                    base: way.base,
                    target: template,
                    cell,
                    local: local(base),
                    patch: local(patch),
                    margin,
                };
                if margin < entry.local + entry.patch {
                    entries.push(entry);
                }
            }
        }
        self.entries = entries;
    }

    /// Cuts multipliers of requests so frequent that even a patch's own copy on the
    /// host would be worth more than its space.
    fn cut_patches(&mut self, lambda: f64) {
        let problem = self.problem;
        for entry in &self.entries {
            if entry.patch <= 0.0 {
                continue;
            }
            let cell = problem.cells.items()[entry.cell as usize];
            let links = problem.links[cell.host as usize];
            let size = entry.patch / (cell.rate * (links.near - links.local));
            // The near price of the patch is already part of its space.
            let budget = ((lambda - self.patch_rate[entry.target as usize]) * size).max(0.0);
            let cut = &mut self.cut[entry.cell as usize];
            let beyond = entry.patch_worth(*cut) - budget;
            if beyond > 0.0 {
                *cut += beyond + (-(entry.margin + *cut)).max(0.0);
            }
        }
    }

    /// Sums per base what it is worth on the host's disk.
    fn sum_worth(&mut self) {
        for &base in &self.bases {
            self.worth[base as usize] = 0.0;
            self.slope[base as usize] = 0.0;
        }
        self.bases.clear();
        for entry in &self.entries {
            let worth = entry.worth(self.cut[entry.cell as usize]);
            if worth > 0.0 {
                if self.slope[entry.base as usize] == 0.0 {
                    self.bases.push(entry.base);
                }
                self.worth[entry.base as usize] += worth;
                let rate = self.problem.cells.items()[entry.cell as usize].rate;
                self.slope[entry.base as usize] += rate;
            }
        }
    }

    /// Lowers the multipliers of the requests that `base` serves, in proportion to
    /// their rates, until it is worth its budget.
    fn cut_for(&mut self, base: u32, budget: f64) {
        let cells = self.problem.cells.items();
        let own: Vec<Entry> = self
            .entries
            .iter()
            .filter(|entry| entry.base == base)
            .copied()
            .collect();
        for entry in &own {
            let cut = &mut self.cut[entry.cell as usize];
            if entry.worth(*cut) > 0.0 {
                *cut = cut.max(entry.patch - entry.margin).max(0.0);
            }
        }
        // Newton on a convex, decreasing, piecewise linear function.
        for _ in 0..20 {
            let (mut worth, mut slope) = (0.0, 0.0);
            for entry in &own {
                let value = entry.worth(self.cut[entry.cell as usize]);
                if value > 0.0 {
                    worth += value;
                    slope += cells[entry.cell as usize].rate;
                }
            }
            if worth <= budget * (1.0 + SLACK) || slope <= 0.0 {
                break;
            }
            let by = (worth - budget) / slope;
            for entry in &own {
                let rate = cells[entry.cell as usize].rate;
                let cut = &mut self.cut[entry.cell as usize];
                if entry.worth(*cut) > 0.0 {
                    *cut += by * rate;
                }
            }
        }
    }
}
