//! Python bindings of the simulation in `diffcache-ssdcache`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use diffcache_ssdcache::partition::eviction::Policy;
use diffcache_ssdcache::simulate::{
    simulate, Counts, EpochVolume, Report, Row, Scenario, Sharing, SimulateError,
};
use diffcache_ssdcache::trace::{Reader, TraceError};
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
                (Some(epoch), _) => Sharing::Dynamic(epoch),
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

/// Has a Python callable decide sizes: `decide(time_us, [(name, size, curve)]) -> [size]`.
fn ask(decide: &Py<PyAny>, time_us: u64, volumes: Vec<EpochVolume>) -> PyResult<Vec<u32>> {
    Python::attach(|py| {
        let rows: Vec<_> = volumes
            .into_iter()
            .map(|volume| (volume.name, volume.size, HitCurve(Arc::new(volume.curve))))
            .collect();
        decide.call1(py, (time_us, rows))?.extract(py)
    })
}

/// Plays a trace to a cache. `decide` sizes the partitions after each epoch, if there are epochs.
///
/// Raises `OSError` if the trace cannot be opened or read, and `ValueError` if it or the scenario
/// cannot be used.
#[pyfunction]
#[pyo3(signature = (trace, scenario, decide=None))]
fn ssdcache_simulate(
    py: Python<'_>,
    trace: PathBuf,
    scenario: Simulated,
    decide: Option<Py<PyAny>>,
) -> PyResult<Found> {
    let scenario = scenario.scenario()?;
    let (mut signal, mut raised) = (None, None);
    let mut watch = || {
        signal = Python::attach(|py| py.check_signals()).err();
        signal.is_none()
    };
    let mut sizes = |time_us: u64, volumes: Vec<EpochVolume>| {
        let decided = match &decide {
            Some(decide) => ask(decide, time_us, volumes),
            None => Ok(volumes.iter().map(|volume| volume.size).collect()),
        };
        decided.map_err(|error| raised = Some(error)).ok()
    };
    let run = || -> Result<Report, SimulateError> {
        simulate(Reader::open(&trace)?, scenario, &mut sizes, &mut watch)
    };
    let found = py.detach(run);
    if let Some(error) = signal.or(raised) {
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
