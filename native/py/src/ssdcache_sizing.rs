//! Python bindings of the sizes in `diffcache-simulation`.

use diffcache_simulation::sizing::{latency, pool, Demand};
use pyo3::prelude::*;

use crate::ssdcache_curves::HitCurve;

/// A volume that gets a partition; attributes of a Python object.
#[derive(FromPyObject)]
struct Volume {
    curve: Py<HitCurve>,
    weight: f64,
    min: u64,
    max: u64,
}

fn demands(volumes: &[Volume]) -> Vec<Demand<'_>> {
    volumes
        .iter()
        .map(|each| Demand {
            curve: &each.curve.get().0,
            weight: each.weight,
            min: each.min,
            max: each.max,
        })
        .collect()
}

/// Returns the sizes with the most weighted hits and whether that is proven, or None.
#[pyfunction]
fn sizing_latency(
    py: Python<'_>,
    volumes: Vec<Volume>,
    capacity: u64,
    step: u64,
) -> Option<(Vec<u64>, bool)> {
    let found = py.detach(|| latency::most_hits(&demands(&volumes), capacity, step));
    found.map(|sizes| (sizes.blocks, sizes.optimal))
}

/// Returns the sizes that volumes take by themselves in a shared LRU cache.
#[pyfunction]
fn sizing_shared(py: Python<'_>, volumes: Vec<Volume>, capacity: u64) -> Vec<u64> {
    py.detach(|| pool::shared(&demands(&volumes), capacity))
}

/// Adds this file's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(sizing_latency, m)?)?;
    m.add_function(wrap_pyfunction!(sizing_shared, m)?)
}
