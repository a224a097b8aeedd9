//! The cheapest chains of patches, found in rounds.
//!
//! After `n` rounds each template has the cost of the cheapest chain of at most
//! `n` patches (Bellman 1958, Ford 1956). A round builds on the chains of the
//! round before it alone, so the order of the patches does not matter.

use crate::held::Held;
use crate::problem::Problem;
use crate::rows::Rows;

/// The patches as the edges of a graph, followed in one direction.
#[derive(Clone, Copy)]
pub struct Edges<'a> {
    /// Patches by the template that they are followed from.
    pub rows: &'a Rows<u32>,
    /// Template that each patch leads to.
    pub end: &'a [u32],
    /// Seconds to apply each patch.
    pub apply: &'a [f64],
}

impl<'a> Edges<'a> {
    /// From bases to targets.
    #[must_use]
    pub fn forward(problem: &'a Problem) -> Self {
        Self {
            rows: &problem.from,
            end: &problem.target,
            apply: &problem.apply,
        }
    }

    /// From targets to bases.
    #[must_use]
    pub fn backward(problem: &'a Problem) -> Self {
        Self {
            rows: &problem.into,
            end: &problem.base,
            apply: &problem.apply,
        }
    }
}

/// A search for the cheapest chains; its memory serves many searches.
#[derive(Debug, Clone, Default)]
pub struct Chains {
    /// Seconds of the cheapest chain so far by template; infinite without one.
    least: Vec<f64>,
    /// Templates that have a chain.
    reached: Vec<u32>,
    /// Templates whose chains the last round made cheaper, and their seconds.
    latest: Vec<(u32, f64)>,
    next: Vec<(u32, f64)>,
}

impl Chains {
    /// A search among this many templates.
    #[must_use]
    pub fn new(templates: usize) -> Self {
        Self {
            least: vec![f64::INFINITY; templates],
            ..Self::default()
        }
    }

    /// Forgets all chains.
    pub fn clear(&mut self) {
        for template in self.reached.drain(..) {
            self.least[template as usize] = f64::INFINITY;
        }
        self.latest.clear();
    }

    /// Begins a chain at a template that has none.
    pub fn begin(&mut self, template: u32, seconds: f64) {
        self.least[template as usize] = seconds;
        self.reached.push(template);
        self.latest.push((template, seconds));
    }

    /// Extends the chains of the last round by one patch. Chains that take
    /// `limit` seconds or longer are left out. Returns false if no template
    /// got a cheaper chain: further rounds would not find one either.
    pub fn extend(&mut self, edges: Edges, fetch: impl Fn(u32) -> f64, limit: f64) -> bool {
        let mut next = std::mem::take(&mut self.next);
        next.clear();
        for &(template, seconds) in &self.latest {
            for &patch in edges.rows.row(template as usize) {
                let end = edges.end[patch as usize];
                let known = self.least[end as usize];
                let total = seconds + edges.apply[patch as usize];
                if total >= known.min(limit) {
                    continue;
                }
                let total = total + fetch(patch);
                if total >= known.min(limit) {
                    continue;
                }
                if known == f64::INFINITY {
                    self.reached.push(end);
                }
                self.least[end as usize] = total;
                next.push((end, total));
            }
        }
        next.retain(|&(template, seconds)| seconds <= self.least[template as usize]);
        self.next = std::mem::replace(&mut self.latest, next);
        !self.latest.is_empty()
    }

    /// Seconds of the cheapest chain to a template.
    #[must_use]
    pub fn least(&self, template: u32) -> f64 {
        self.least[template as usize]
    }

    /// Templates that have a chain, each once.
    #[must_use]
    pub fn reached(&self) -> &[u32] {
        &self.reached
    }
}

/// Seconds of the cheapest way to each template at each host, template by
/// template, when hosts hold the given objects.
#[must_use]
pub fn service_seconds(problem: &Problem, held: &Held) -> Vec<f64> {
    let hosts = problem.hosts();
    let mut seconds = vec![0.0; problem.templates * hosts];
    let mut chains = Chains::new(problem.templates);
    for host in 0..hosts {
        let members = 0..problem.templates as u32;
        search_host(&mut chains, problem, held, members.clone(), host);
        for template in members {
            seconds[template as usize * hosts + host] = chains.least(template);
        }
    }
    seconds
}

/// Finds the cheapest way at a host to each of some templates, which have to be
/// whole components of the patch graph.
pub fn search_host(
    chains: &mut Chains,
    problem: &Problem,
    held: &Held,
    members: impl Iterator<Item = u32>,
    host: usize,
) {
    chains.clear();
    for template in members {
        chains.begin(template, held.fetch(problem, template as usize, host));
    }
    let edges = Edges::forward(problem);
    for _ in 0..problem.hops {
        let fetch = |patch| held.fetch(problem, problem.patch(patch), host);
        if !chains.extend(edges, fetch, f64::INFINITY) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Hosts, Links, Patches, Templates};

    /// A line of templates, each 100 MB, with a patch of 1 MB from each to the
    /// next, the patches in the order given; the first is held at host 0.
    fn line(order: &[u32], hops: usize) -> (Problem, Held) {
        let links = vec![Links {
            local: 1.0,
            near: 2.0,
            repo: 10.0,
        }];
        let problem = Problem::new(
            Templates::uncompressed(vec![100.0; order.len() + 1]),
            Patches {
                base: order.to_vec(),
                target: order.iter().map(|base| base + 1).collect(),
                size: vec![1.0; order.len()],
                apply: vec![0.0; order.len()],
            },
            Hosts {
                capacity: vec![1000.0],
                links,
            },
            &vec![1.0; order.len() + 1],
            hops,
        )
        .unwrap();
        let mut held = Held::new(&problem);
        held.insert(0, 0);
        (problem, held)
    }

    #[test]
    fn a_chain_has_no_more_patches_than_hops_in_any_order() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            for hops in 0..=4 {
                let (problem, held) = line(&order, hops);
                let mut wanted = [1000.0; 5];
                for (patches, seconds) in wanted.iter_mut().enumerate().take(hops + 1) {
                    *seconds = 100.0 + 10.0 * patches as f64;
                }
                assert_eq!(service_seconds(&problem, &held), wanted, "{order:?}");
            }
        }
    }

    #[test]
    fn searches_share_memory_and_nothing_else() {
        let (problem, held) = line(&[0, 1], 2);
        let mut chains = Chains::new(3);
        search_host(&mut chains, &problem, &held, 0..3, 0);
        chains.clear();
        assert!(chains.reached().is_empty());
        assert_eq!(chains.least(2), f64::INFINITY);
    }
}
