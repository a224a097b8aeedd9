//! Python bindings of the SSD cache in `diffcache-simulation`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use diffcache_partitions::eviction::Policy;
use diffcache_simulation::cache::{
    simulate, Counts, Decider, EpochVolume, Lengths, Report, Row, Scenario, Served, Sharing,
    SimulateError,
};
use diffcache_simulation::trace::{Reader, TraceError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::blocks::os_error;
use crate::ssdcache_curves::HitCurve;

/// (microseconds since the first request, blocks of each volume).
type BlocksRow = (u64, Vec<u32>);

/// What to simulate; attributes of a Python object.
#[derive(FromPyObject)]
struct Simulated {
    capacity: u32,
    block: u64,
    sizes: Option<Vec<(String, u32)>>,
    evict: String,
    admission: u8,
    sequential: u64,
    ignore_writes: bool,
    occupancy_us: Option<NonZeroU64>,
    epoch_us: Option<NonZeroU64>,
    look_us: Option<NonZeroU64>,
}

/// One volume's numbers.
#[derive(IntoPyObject)]
struct VolumeRow {
    name: String,
    references: u64,
    hits: u64,
    evictions: u64,
    written: u64,
}

/// What a simulation found.
#[derive(IntoPyObject)]
struct Found {
    volumes: Vec<VolumeRow>,
    occupancy: Vec<BlocksRow>,
    sizes: Vec<BlocksRow>,
}

impl Simulated {
    fn scenario(self) -> PyResult<Scenario> {
        let eviction = Policy::named(&self.evict).ok_or_else(|| {
            PyValueError::new_err(format!("evict: there is no policy {}", self.evict))
        })?;
        Ok(Scenario {
            capacity: self.capacity,
            block: self.block,
            sharing: match (self.epoch_us, self.sizes) {
                (Some(longest_us), _) => Sharing::Dynamic(Lengths {
                    longest_us,
                    look_us: self.look_us,
                }),
                (None, Some(sizes)) => Sharing::Partitioned(sizes),
                (None, None) => Sharing::Unified,
            },
            eviction,
            admission: self.admission,
            sequential: self.sequential,
            ignore_writes: self.ignore_writes,
            occupancy_us: self.occupancy_us,
        })
    }
}

fn volume_row((name, counts): (String, Counts)) -> VolumeRow {
    VolumeRow {
        name,
        references: counts.references,
        hits: counts.hits,
        evictions: counts.evictions,
        written: counts.written,
    }
}

fn blocks_rows(rows: Vec<Row>) -> Vec<BlocksRow> {
    rows.into_iter()
        .map(|row| (row.time_us, row.blocks))
        .collect()
}

fn translate(error: SimulateError, trace: &str) -> PyErr {
    match error {
        SimulateError::Trace(TraceError::Io(error)) => os_error(error, trace),
        SimulateError::Trace(error) => PyValueError::new_err(format!("{trace}: {error}")),
        error => PyValueError::new_err(error.to_string()),
    }
}

/// A Python object that decides, and what it raised.
///
/// `decide(time_us, [(served, size, curve)]) -> [size]`, and
/// `ends_early(time_us, [served]) -> bool`, where `served` is `(name, references, hits, full)`.
struct Asked {
    decider: Option<Py<PyAny>>,
    raised: Option<PyErr>,
}

impl Asked {
    fn ask<T>(&mut self, call: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<T>) -> Option<T> {
        let decider = self.decider.as_ref()?;
        let answer = Python::attach(|py| call(py, decider));
        answer.map_err(|error| self.raised = Some(error)).ok()
    }
}

fn row(served: Served) -> (String, u64, u64, bool) {
    (served.name, served.references, served.hits, served.full)
}

impl Decider for Asked {
    fn decide(&mut self, time_us: u64, volumes: Vec<EpochVolume>) -> Option<Vec<u32>> {
        if self.decider.is_none() {
            return Some(volumes.iter().map(|volume| volume.size).collect());
        }
        let rows: Vec<_> = volumes
            .into_iter()
            .map(|volume| {
                let curve = HitCurve(Arc::new(volume.curve));
                (row(volume.served), volume.size, curve)
            })
            .collect();
        self.ask(|py, decider| {
            let answer = decider.call_method1(py, "decide", (time_us, rows))?;
            answer.extract(py)
        })
    }

    fn ends_early(&mut self, time_us: u64, volumes: Vec<Served>) -> Option<bool> {
        if self.decider.is_none() {
            return Some(false);
        }
        let rows: Vec<_> = volumes.into_iter().map(row).collect();
        self.ask(|py, decider| {
            let answer = decider.call_method1(py, "ends_early", (time_us, rows))?;
            answer.extract(py)
        })
    }
}

/// Plays a trace to a cache. `decider` sizes the partitions after each epoch, if there are epochs,
/// and says whether they end early: see [`Asked`].
///
/// Raises `OSError` if the trace cannot be opened or read, and `ValueError` if it or the scenario
/// cannot be used.
#[pyfunction]
#[pyo3(signature = (trace, scenario, decider=None))]
fn ssdcache_simulate(
    py: Python<'_>,
    trace: PathBuf,
    scenario: Simulated,
    decider: Option<Py<PyAny>>,
) -> PyResult<Found> {
    let scenario = scenario.scenario()?;
    let mut signal = None;
    let mut watch = || {
        signal = Python::attach(|py| py.check_signals()).err();
        signal.is_none()
    };
    let mut asked = Asked {
        decider,
        raised: None,
    };
    let run = || -> Result<Report, SimulateError> {
        simulate(Reader::open(&trace)?, scenario, &mut asked, &mut watch)
    };
    let found = py.detach(run);
    if let Some(error) = signal.or(asked.raised) {
        return Err(error);
    }
    let report = found.map_err(|error| translate(error, &trace.to_string_lossy()))?;
    Ok(Found {
        volumes: report.volumes.into_iter().map(volume_row).collect(),
        occupancy: blocks_rows(report.occupancy),
        sizes: blocks_rows(report.sizes),
    })
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(ssdcache_simulate, m)?)
}
