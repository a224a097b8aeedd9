//! For each template, the bases it can be built from, at the least cost of
//! the patches in between.
//!
//! With one hop a way is a patch. With more, the patches before the last are
//! taken to be on the asking host's disk and to take no space, and the last is
//! taken to be as small as the smallest patch to the target. Every target built
//! by a chain has such a last patch of its own, so no space is counted twice
//! and bounds stay valid. Chains may be of any length here: rounds of lookup
//! allow long ones where patches follow one another in order.

use crate::problem::{Problem, Rows};

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
    let mut reached = vec![f64::INFINITY; problem.templates];
    for target in 0..problem.templates {
        let limit = problem.size[target] * slow;
        let list = if problem.hops > 1 {
            chains(problem, target, best, limit, &mut reached)
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

/// The cheapest chain from each base. `reached` is infinite before and after.
fn chains(
    problem: &Problem,
    target: usize,
    best: f64,
    limit: f64,
    reached: &mut [f64],
) -> Vec<Way> {
    let by_size = |a: &u32, b: &u32| {
        problem.size[problem.patch(*a)].total_cmp(&problem.size[problem.patch(*b)])
    };
    let Some(smallest) = problem.into.row(target).iter().copied().min_by(by_size) else {
        return Vec::new();
    };
    let step = |e: u32| problem.apply[e as usize] + best * problem.size[problem.patch(e)];
    let mut touched = vec![target as u32];
    reached[target] = 0.0;
    let mut frontier = vec![(target as u32, 0.0)];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for &(template, seconds) in &frontier {
            if seconds > reached[template as usize] {
                continue;
            }
            for &e in problem.into.row(template as usize) {
                let (base, total) = (problem.base[e as usize], seconds + step(e));
                if total < reached[base as usize].min(limit) {
                    if reached[base as usize] == f64::INFINITY {
                        touched.push(base);
                    }
                    reached[base as usize] = total;
                    next.push((base, total));
                }
            }
        }
        frontier = next;
    }
    let last = best * problem.size[problem.patch(smallest)];
    touched
        .into_iter()
        .filter_map(|base| {
            let total = std::mem::replace(&mut reached[base as usize], f64::INFINITY);
            (base as usize != target).then_some(Way {
                base,
                patch: smallest,
                seconds: total - last,
            })
        })
        .collect()
}
