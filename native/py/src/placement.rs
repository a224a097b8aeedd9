//! Python bindings of `diffcache-placement`.

use std::time::{Duration, Instant};

use diffcache_placement::chains::service_seconds;
use diffcache_placement::solve::Watch;
use diffcache_placement::state::{Fixed, State};
use diffcache_placement::{solve, Held, Hosts, Limits, Links, Patches, Problem, Report, Templates};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Arrays of one site's instance. Hosts are columns, 0..K-1; objects are
/// templates 0..N-1, then patches N..N+E-1.
#[derive(FromPyObject)]
struct Arrays {
    sizes: Vec<f64>,
    wire_sizes: Vec<f64>,
    patch_base: Vec<u32>,
    patch_target: Vec<u32>,
    patch_sizes: Vec<f64>,
    patch_seconds: Vec<f64>,
    capacities: Vec<f64>,
    /// Seconds per MB: local, near, repository; one triple per host.
    links: Vec<(f64, f64, f64)>,
    rates: pyo3::buffer::PyBuffer<f64>,
    hops: usize,
    threads: usize,
    pinned: Vec<(u32, u32)>,
    placed: Vec<(u32, u32)>,
    move_weight: f64,
    start: Vec<(u32, u32)>,
}

/// Calls back into Python a few times a second, so that a solve can be stopped.
struct Caller {
    watch: Option<Py<PyAny>>,
    begin: Instant,
    limit: Option<f64>,
    asked: Instant,
    stop: bool,
    error: Option<PyErr>,
}

const ASK_EVERY: Duration = Duration::from_millis(100);

impl Watch for Caller {
    fn report(&mut self, report: Report) {
        if self.asked.elapsed() < ASK_EVERY || self.stop {
            return;
        }
        self.asked = Instant::now();
        let answer = Python::attach(|py| match &self.watch {
            Some(watch) => watch
                .bind(py)
                .call1((report.stage, report.cost, report.bound))
                .and_then(|stop| stop.is_truthy()),
            None => py.check_signals().map(|()| false),
        });
        match answer {
            Ok(stop) => self.stop = stop,
            Err(error) => {
                self.stop = true;
                self.error = Some(error);
            }
        }
    }

    fn elapsed(&mut self) -> f64 {
        if self.stop {
            return f64::INFINITY;
        }
        self.limit.map_or(0.0, |limit| {
            if limit > 0.0 {
                self.begin.elapsed().as_secs_f64() / limit
            } else {
                f64::INFINITY
            }
        })
    }
}

impl Arrays {
    fn problem(&mut self, py: Python<'_>) -> PyResult<Problem> {
        let rates = self.rates.to_vec(py)?;
        let links = self
            .links
            .iter()
            .map(|&(local, near, repo)| Links { local, near, repo })
            .collect();
        Problem::new(
            Templates {
                size: std::mem::take(&mut self.sizes),
                wire: std::mem::take(&mut self.wire_sizes),
            },
            Patches {
                base: std::mem::take(&mut self.patch_base),
                target: std::mem::take(&mut self.patch_target),
                size: std::mem::take(&mut self.patch_sizes),
                apply: std::mem::take(&mut self.patch_seconds),
            },
            Hosts {
                capacity: std::mem::take(&mut self.capacities),
                links,
            },
            &rates,
            self.hops,
        )
        .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn fixed(&mut self) -> Fixed {
        Fixed {
            pinned: std::mem::take(&mut self.pinned),
            placed: std::mem::take(&mut self.placed),
            move_weight: self.move_weight,
        }
    }
}

/// Writes the seconds of the cheapest way to each template at each host into
/// `seconds`, row by row, when hosts hold what `start` names.
#[pyfunction]
fn placement_seconds(
    py: Python<'_>,
    mut arrays: Arrays,
    seconds: pyo3::buffer::PyBuffer<f64>,
) -> PyResult<()> {
    let problem = arrays.problem(py)?;
    let found = py.detach(|| {
        let held = Held::of(&problem, &arrays.start);
        service_seconds(&problem, &held)
    });
    seconds.copy_from_slice(py, &found)
}

/// What all requests would cost more without each object of `start`, in
/// seconds: one number per (object, host) pair, in their order.
#[pyfunction]
fn placement_losses(py: Python<'_>, mut arrays: Arrays) -> PyResult<Vec<f64>> {
    let problem = arrays.problem(py)?;
    let pairs = std::mem::take(&mut arrays.start);
    Ok(py.detach(|| {
        let mut state = State::new(&problem, &Fixed::default());
        for &(object, host) in &pairs {
            state.add(object as usize, host as usize);
        }
        pairs
            .iter()
            .map(|&(object, host)| state.loss(object as usize, host as usize))
            .collect()
    }))
}

/// The (object, host) pairs, the bound, and the steps it took.
type Solved = (Vec<(u32, u32)>, f64, usize);

/// Solves one site's instance.
///
/// `watch(stage, cost, bound)` is called a few times a second and stops the
/// solve by returning something true; other threads run meanwhile. Returns
/// ((object, host) pairs, bound, steps).
#[pyfunction]
#[pyo3(signature = (arrays, time_limit, gap, patience, bound_share, watch))]
fn placement_solve(
    py: Python<'_>,
    mut arrays: Arrays,
    time_limit: Option<f64>,
    gap: f64,
    patience: usize,
    bound_share: f64,
    watch: Option<Py<PyAny>>,
) -> PyResult<Solved> {
    let begin = Instant::now();
    let problem = arrays.problem(py)?;
    let fixed = arrays.fixed();
    let mut caller = Caller {
        watch,
        begin,
        limit: time_limit,
        asked: begin,
        stop: false,
        error: None,
    };
    let limits = Limits {
        gap,
        patience,
        bound_share,
        until: 1.0,
        threads: arrays.threads,
    };
    let outcome = py.detach(|| solve(&problem, &fixed, &arrays.start, limits, &mut caller));
    match caller.error {
        Some(error) => Err(error),
        None => Ok((outcome.pairs, outcome.bound, outcome.steps)),
    }
}

/// Adds this crate's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(placement_losses, m)?)?;
    m.add_function(wrap_pyfunction!(placement_seconds, m)?)?;
    m.add_function(wrap_pyfunction!(placement_solve, m)?)
}
