//! Python bindings of `diffcache-ssdcache`.

use std::fs::File;
use std::path::PathBuf;

use diffcache_core::retry::ErrorKind;
use diffcache_core::task::Task;
use diffcache_ssdcache::curve::analysis::{analyse, AnalysisError, Method, References, Volume};
use diffcache_ssdcache::curve::sampled::Sample;
use diffcache_ssdcache::trace::binary::{self, PackError};
use diffcache_ssdcache::trace::{Reader, TraceError};
use pyo3::prelude::*;

use crate::blocks::{os_error, run};
use crate::errors;

/// (name, references, distinct blocks, part of the blocks that was sampled, (size, hits) ...).
type VolumeRow = (String, u64, u64, f64, Vec<(u64, u64)>);

/// The error of a trace with the name of its file.
fn translate(error: TraceError, name: &str) -> PyErr {
    match error {
        TraceError::Io(error) => os_error(error, name),
        error => errors::raise(ErrorKind::Format, format!("{name}: {error}")),
    }
}

/// How to analyse a trace; attributes of a Python object.
///
/// `rate` or `samples` select a sample of the blocks, `sizes` the sizes of which hits are returned:
/// without, those at which they change, thinned to `most_sizes`.
#[derive(FromPyObject)]
struct Analysis {
    block: u64,
    writes: bool,
    rate: Option<f64>,
    samples: Option<usize>,
    sizes: Option<Vec<u64>>,
    most_sizes: usize,
}

impl Analysis {
    fn method(&self) -> Method {
        match (self.rate, self.samples) {
            (Some(rate), _) => Method::Shards(Sample::Rate(rate)),
            (None, Some(samples)) => Method::Shards(Sample::Blocks(samples)),
            (None, None) => Method::Exact,
        }
    }
}

/// Returns the curves of a trace's volumes.
#[pyfunction]
#[pyo3(signature = (path, analysis, progress=None))]
fn trace_curves(
    py: Python<'_>,
    path: PathBuf,
    analysis: Analysis,
    progress: Option<Py<PyAny>>,
) -> PyResult<Vec<VolumeRow>> {
    let references = References {
        block: analysis.block,
        writes: analysis.writes,
    };
    let name = path.display().to_string();
    run(py, progress, |task: &Task<'_>| {
        let file = File::open(&path).map_err(|error| os_error(error, &name))?;
        let total = file.metadata().map_or(0, |found| found.len());
        let reader = Reader::new(file).map_err(|error| translate(error, &name))?;
        let volumes = analyse(reader, references, analysis.method(), total, task).map_err(
            |error| match error {
                AnalysisError::Trace(error) => translate(error, &name),
                AnalysisError::Cancelled(error) => {
                    errors::raise(ErrorKind::Cancelled, error.to_string())
                }
            },
        )?;
        Ok(volumes
            .into_iter()
            .map(|volume| row(volume, &analysis))
            .collect())
    })
}

fn row(volume: Volume, analysis: &Analysis) -> VolumeRow {
    let curve = &volume.curve;
    let hits = match &analysis.sizes {
        Some(sizes) => sizes.iter().map(|&size| (size, curve.hits(size))).collect(),
        None => {
            let steps = curve.thinned(analysis.most_sizes);
            steps.iter().map(|step| (step.size, step.hits)).collect()
        }
    };
    (
        volume.name,
        curve.references,
        curve.distinct,
        volume.rate,
        hits,
    )
}

/// Writes a trace in its binary form; returns the number of requests.
///
/// The source is read twice: the names of its volumes come first.
#[pyfunction]
#[pyo3(signature = (source, dest, progress=None))]
fn trace_pack(
    py: Python<'_>,
    source: PathBuf,
    dest: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<u64> {
    let (from, to) = (source.display().to_string(), dest.display().to_string());
    run(py, progress, |task: &Task<'_>| {
        let input = || File::open(&source).map_err(|error| os_error(error, &from));
        let total = input()?.metadata().map_or(0, |found| found.len());
        let output = File::create(&dest).map_err(|error| os_error(error, &to))?;
        binary::pack(input()?, input()?, output, total, task).map_err(|error| match error {
            PackError::Trace(error) => translate(error, &from),
            PackError::Output(error) => os_error(error, &to),
            PackError::Cancelled(error) => errors::raise(ErrorKind::Cancelled, error.to_string()),
        })
    })
}

/// Adds this crate's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(trace_curves, m)?)?;
    m.add_function(wrap_pyfunction!(trace_pack, m)?)
}
