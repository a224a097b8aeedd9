//! Bound, construct, improve; stop on request, at the gap or at the time limit.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::dual::Dual;
use crate::lagrangian::ascent::Ascent;
use crate::lagrangian::Lagrangian;
use crate::problem::Problem;
use crate::random::Random;
use crate::recreate::{fill, Choice, Ranking};
use crate::search::Search;
use crate::state::{Fixed, State};

/// Seed of the first thread's search.
const SEED: u64 = 7;

/// Most evaluations that set the prices of hosts apart.
const REFINEMENTS: usize = 20;

/// Most steps of the ascent.
const STEPS: usize = 4000;

/// When to stop.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Share of the cost by which cost and bound may differ at the end.
    pub gap: f64,
    /// Steps of the search without any improvement after which it ends.
    pub patience: usize,
    /// Share of the time for bounds.
    pub bound_share: f64,
    /// Share of the time at which the search ends.
    pub until: f64,
    /// Threads that search; the first one finds bounds, too.
    pub threads: usize,
}

/// How far a solve is.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    /// Current stage.
    pub stage: &'static str,
    /// Cost of the best placement so far.
    pub cost: f64,
    /// Best bound so far.
    pub bound: f64,
}

/// A placement and a bound.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// (object, host) pairs.
    pub pairs: Vec<(u32, u32)>,
    /// No placement costs less, moves not counted.
    pub bound: f64,
    /// Steps of the search that were taken.
    pub steps: usize,
}

/// How the caller follows and ends a solve.
pub trait Watch {
    /// Receives progress a few times a second.
    fn report(&mut self, report: Report);
    /// Returns the share of the time limit that has passed; 1 or more ends the
    /// solve.
    fn elapsed(&mut self) -> f64;
}

/// Solves an instance from `start`, or from nothing if that is empty.
pub fn solve(
    problem: &Problem,
    fixed: &Fixed,
    start: &[(u32, u32)],
    limits: Limits,
    watch: &mut dyn Watch,
) -> Outcome {
    let mut state = State::new(problem, fixed);
    let mut bounds = Bounds::new(problem);
    if watch.elapsed() < 1.0 {
        bounds.scale(watch, limits.bound_share / 4.0);
    }
    add_fitting(problem, &mut state, start);
    construct(problem, &mut state, &bounds, watch);
    watch.report(Report {
        stage: "built",
        cost: state.cost,
        bound: bounds.best,
    });
    // A better cost to aim at makes for better steps of the bound.
    let first = Limits {
        patience: limits.patience / 4,
        until: limits.bound_share / 2.0,
        ..limits
    };
    let mut steps = improve(problem, &mut state, &bounds, first, watch);
    let stop = AtomicBool::new(watch.elapsed() >= 1.0);
    thread::scope(|scope| {
        let others: Vec<_> = (1..limits.threads)
            .map(|n| {
                let (own, seed) = (state.clone(), SEED + n as u64);
                let (price, favourites) = (bounds.price(), bounds.favourites());
                let stop = &stop;
                scope.spawn(move || search_until(problem, own, price, &favourites, seed, stop))
            })
            .collect();
        if watch.elapsed() < 1.0 {
            bounds.refine(watch, limits.bound_share * 0.7, state.cost);
            bounds.ascend(watch, limits.bound_share * 1.5, state.cost, limits.gap);
        }
        steps += improve(problem, &mut state, &bounds, limits, watch);
        stop.store(true, Ordering::Relaxed);
        for other in others {
            let found = other.join().unwrap_or_else(|panic| resume_unwind(panic));
            if found.cost < state.cost {
                state = found;
            }
        }
    });
    Outcome {
        pairs: state.pairs(),
        bound: bounds.best,
        steps,
    }
}

/// Adds the pairs of a placement that there is room for.
fn add_fitting(problem: &Problem, state: &mut State, pairs: &[(u32, u32)]) {
    for &(object, host) in pairs {
        let (object, host) = (object as usize, host as usize);
        if problem.size[object] <= state.free[host] {
            state.add(object, host);
        }
    }
}

/// Prices of space, and the best bound they gave.
struct Bounds<'a> {
    dual: Dual<'a>,
    lambda: Vec<f64>,
    best: f64,
    open: Vec<bool>,
    capacity: f64,
}

impl<'a> Bounds<'a> {
    fn new(problem: &'a Problem) -> Self {
        Self {
            dual: Dual::new(problem),
            lambda: vec![0.0; problem.hosts()],
            best: 0.0,
            open: vec![false; problem.templates],
            capacity: problem.capacity.iter().sum(),
        }
    }

    /// Templates that the bound would have near, each several times.
    fn favourites(&self) -> Vec<u32> {
        let near = self.open.iter().enumerate().filter(|(_, open)| **open);
        near.flat_map(|(t, _)| std::iter::repeat_n(t as u32, 8))
            .collect()
    }

    fn price(&self) -> f64 {
        let sum: f64 = self.lambda.iter().sum();
        sum / self.lambda.len().max(1) as f64
    }

    fn evaluate(&mut self, lambda: &[f64], steps: usize, rounds: usize) -> (f64, Vec<f64>) {
        let bound = self.dual.evaluate(lambda, steps, rounds);
        if bound.value > self.best {
            self.best = bound.value;
            self.lambda = lambda.to_vec();
            self.open.clone_from(&self.dual.open);
        }
        (bound.value, bound.used)
    }

    /// Finds the best one price for all hosts.
    fn scale(&mut self, watch: &mut dyn Watch, share: f64) {
        let hosts = self.lambda.len();
        let (free, _) = self.evaluate(&vec![0.0; hosts], 0, 1);
        let empty = self.dual.far_cost();
        if self.capacity <= 0.0 || empty <= free {
            return;
        }
        let mut centre = (empty - free) / self.capacity;
        let mut best = f64::NEG_INFINITY;
        let mut factor: f64 = 4.0;
        for round in 0..24 {
            let mut moved = false;
            for next in [centre * factor, centre / factor] {
                if watch.elapsed() > share && round > 1 {
                    return;
                }
                let (value, _) = self.evaluate(&vec![next; hosts], 6, 2);
                if value > best {
                    best = value;
                    centre = next;
                    moved = true;
                    break;
                }
            }
            watch.report(Report {
                stage: "bounding",
                cost: empty,
                bound: self.best,
            });
            if !moved {
                factor = factor.powf(0.45);
                if factor < 1.01 {
                    return;
                }
            }
        }
    }

    /// Prices hosts apart: those that would be overfull cost more.
    fn refine(&mut self, watch: &mut dyn Watch, share: f64, cost: f64) {
        let problem = self.dual.problem();
        let mut lambda = self.lambda.clone();
        let mut rate = 0.2;
        let mut idle = 0;
        for _ in 0..REFINEMENTS {
            if watch.elapsed() > share || idle > 12 || self.best >= cost * (1.0 - 1e-4) {
                break;
            }
            let before = self.best;
            let (_, used) = self.evaluate(&lambda, 30, 3);
            if self.best > before * (1.0 + 1e-5) {
                idle = 0;
            } else {
                idle += 1;
                rate *= 0.7;
                lambda.clone_from(&self.lambda);
            }
            for (host, price) in lambda.iter_mut().enumerate() {
                let room = problem.capacity[host];
                if room > 0.0 {
                    let step = ((used[host] - room) / room).clamp(-1.0, 1.0);
                    *price *= (rate * step).exp();
                }
            }
            watch.report(Report {
                stage: "bounding",
                cost,
                bound: self.best,
            });
        }
    }

    /// Ascends with a multiplier for each request, from the best prices so far.
    fn ascend(&mut self, watch: &mut dyn Watch, share: f64, cost: f64, gap: f64) {
        let lambda = self.lambda.clone();
        self.evaluate(&lambda, 30, 3);
        let (ways, far) = self.dual.ways();
        let mut lagrangian = Lagrangian::new(self.dual.problem(), ways, far);
        let start = lagrangian.start(self.dual.multipliers(), self.dual.price.clone(), lambda);
        let mut ascent = Ascent::new(&mut lagrangian, start);
        for _ in 0..STEPS {
            if ascent.is_done() || watch.elapsed() > share || cost - self.best <= gap * cost {
                break;
            }
            ascent.step(cost);
            self.best = self.best.max(ascent.value);
            watch.report(Report {
                stage: "bounding",
                cost,
                bound: self.best,
            });
        }
    }
}

fn construct(problem: &Problem, state: &mut State, bounds: &Bounds, watch: &mut dyn Watch) {
    let hosts: Vec<u32> = (0..problem.hosts() as u32).collect();
    let chosen: Vec<u32> = (0..problem.templates as u32)
        .filter(|&t| bounds.open[t as usize])
        .collect();
    let mut random = Random::new(1);
    let ranking = Ranking {
        price: bounds.price(),
        power: 1.0,
        noise: 0.0,
    };
    let mut calls = 0usize;
    let mut over = || {
        calls += 1;
        calls % 64 == 0 && watch.elapsed() >= 1.0
    };
    let first = Choice {
        hosts: &hosts,
        templates: &chosen,
        patches: &[],
    };
    fill(state, problem, first, ranking, &mut random, &mut over);
    let all: Vec<u32> = (0..problem.templates as u32).collect();
    let patches: Vec<u32> = (problem.templates as u32..problem.objects() as u32).collect();
    let then = Choice {
        hosts: &hosts,
        templates: &all,
        patches: &patches,
    };
    fill(state, problem, then, ranking, &mut random, &mut over);
}

/// Searches from `state` until `stop` is set.
fn search_until<'a>(
    problem: &'a Problem,
    mut state: State<'a>,
    price: f64,
    favourites: &[u32],
    seed: u64,
    stop: &AtomicBool,
) -> State<'a> {
    let mut search = Search::new(problem, &mut state, price, favourites, seed);
    while !stop.load(Ordering::Relaxed) {
        search.step(&mut || stop.load(Ordering::Relaxed));
    }
    search.settle();
    state
}

fn improve<'a>(
    problem: &'a Problem,
    state: &mut State<'a>,
    bounds: &Bounds,
    limits: Limits,
    watch: &mut dyn Watch,
) -> usize {
    let favourites = bounds.favourites();
    let mut search = Search::new(problem, state, bounds.price(), &favourites, SEED);
    let (mut steps, mut idle) = (0, 0);
    while idle < limits.patience {
        let cost = search.cost();
        if cost - bounds.best <= limits.gap * cost || watch.elapsed() >= limits.until {
            break;
        }
        idle = if search.step(&mut || false) {
            0
        } else {
            idle + 1
        };
        steps += 1;
        if steps % 64 == 0 {
            watch.report(Report {
                stage: "improving",
                cost,
                bound: bounds.best,
            });
        }
    }
    search.settle();
    steps
}
