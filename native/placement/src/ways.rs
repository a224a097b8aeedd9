//! For each template, the bases it can be built from, at the least cost of
//! the patches in between: a relaxation that lower bounds price.
//!
//! With one hop a way is a patch. With more, the patches before the last are
//! taken to be on the requesting host's disk and to take no space, and the last
//! is taken to be as small as the smallest patch to the target. Every target
//! built by a chain has such a last patch of its own, so no space is counted
//! twice and bounds stay valid.

use crate::chains::{Chains, Edges};
use crate::problem::Problem;
use crate::rows::Rows;

/// One base for one target.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// The base.
    pub base: u32,
    /// The patch whose size and place count.
    pub patch: u32,
    /// Seconds that the chain takes, fetching `patch` left out.
    pub seconds: f64,
}

/// Ways by target. Those that cannot beat the repository are left out.
#[must_use]
pub fn ways(problem: &Problem) -> Rows<Way> {
    let best = problem
        .links
        .iter()
        .map(|l| l.local)
        .fold(f64::INFINITY, f64::min);
    let slow = problem.links.iter().map(|l| l.repo).fold(0.0, f64::max);
    let mut found: Vec<(usize, Way)> = Vec::new();
    let mut search = Chains::new(problem.templates);
    for target in 0..problem.templates {
        let limit = problem.wire[target] * slow;
        let list = if problem.hops > 1 {
            chains(problem, target, best, limit, &mut search)
        } else {
            single(problem, target)
        };
        for way in list {
            let size = problem.size[way.base as usize] + problem.size[problem.patch(way.patch)];
            if best * size + way.seconds < limit {
                found.push((target, way));
            }
        }
    }
    Rows::collect(problem.templates, found.iter().copied())
}

fn single(problem: &Problem, target: usize) -> Vec<Way> {
    let way = |&patch: &u32| Way {
        base: problem.base[patch as usize],
        patch,
        seconds: problem.apply[patch as usize],
    };
    problem.into.row(target).iter().map(way).collect()
}

/// The cheapest chain from each base.
fn chains(
    problem: &Problem,
    target: usize,
    best: f64,
    limit: f64,
    search: &mut Chains,
) -> Vec<Way> {
    let by_size = |a: &u32, b: &u32| {
        problem.size[problem.patch(*a)].total_cmp(&problem.size[problem.patch(*b)])
    };
    let Some(smallest) = problem.into.row(target).iter().copied().min_by(by_size) else {
        return Vec::new();
    };
    search.clear();
    search.begin(target as u32, 0.0);
    let edges = Edges::backward(problem);
    for _ in 0..problem.hops {
        let fetch = |patch| best * problem.size[problem.patch(patch)];
        if !search.extend(edges, fetch, limit) {
            break;
        }
    }
    let last = best * problem.size[problem.patch(smallest)];
    let bases = search.reached().iter().copied();
    bases
        .filter(|&base| base as usize != target)
        .map(|base| Way {
            base,
            patch: smallest,
            seconds: search.least(base) - last,
        })
        .collect()
}
