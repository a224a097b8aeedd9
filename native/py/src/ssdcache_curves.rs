//! Python bindings of curves and traces in `diffcache-simulation`.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use diffcache_core::retry::ErrorKind;
use diffcache_core::task::Task;
use diffcache_partitions::curve::sampled::Sample;
use diffcache_partitions::curve::{Curve, Step};
use diffcache_simulation::curves::analysis::{analyse, AnalysisError, Method, References};
use diffcache_simulation::trace::ahead::Ahead;
use diffcache_simulation::trace::binary::{self, PackError};
use diffcache_simulation::trace::{Reader, TraceError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::blocks::{os_error, run};
use crate::errors;

/// (name, part of the blocks that was sampled, curve).
type VolumeRow = (String, f64, HitCurve);

/// Hits of one volume at all sizes of an LRU cache.
#[pyclass(frozen, module = "diffcache_openstack._native")]
#[derive(Clone)]
pub struct HitCurve(pub Arc<Curve>);

#[pymethods]
impl HitCurve {
    /// `steps` are the sizes at which the hits become more, and the hits; both ascend.
    #[new]
    fn new(references: u64, distinct: u64, steps: Vec<(u64, u64)>) -> PyResult<Self> {
        let mut last = (0, 0);
        for &step in &steps {
            if step.0 <= last.0 || step.1 <= last.1 {
                let text = "steps: sizes and hits have to ascend";
                return Err(PyValueError::new_err(text));
            }
            last = step;
        }
        // Not their sum: the reference before one that hits may be of an earlier epoch.
        if last.1.max(distinct) > references {
            let text = "references: fewer than hits or different blocks";
            return Err(PyValueError::new_err(text));
        }
        let steps = steps.into_iter().map(|(size, hits)| Step { size, hits });
        Ok(HitCurve(Arc::new(Curve {
            references,
            distinct,
            steps: steps.collect(),
        })))
    }

    #[getter]
    fn references(&self) -> u64 {
        self.0.references
    }

    #[getter]
    fn distinct(&self) -> u64 {
        self.0.distinct
    }

    #[getter]
    fn most_hits(&self) -> u64 {
        self.0.most_hits()
    }

    /// Hits of a cache of this many blocks.
    fn hits(&self, size: u64) -> u64 {
        self.0.hits(size)
    }

    /// Blocks of the smallest cache with this many hits.
    fn size_for(&self, hits: u64) -> Option<u64> {
        self.0.size_for(hits)
    }

    /// Sizes where the hits become more, and the hits; at most `most` of them.
    fn thinned(&self, most: usize) -> Vec<(u64, u64)> {
        let steps = self.0.thinned(most);
        steps.iter().map(|step| (step.size, step.hits)).collect()
    }
}

/// The error of a trace with the name of its file.
fn translate(error: TraceError, name: &str) -> PyErr {
    match error {
        TraceError::Io(error) => os_error(error, name),
        error => errors::raise(ErrorKind::Format, format!("{name}: {error}")),
    }
}

/// How to analyse a trace; attributes of a Python object.
///
/// `rate` or `samples` select a sample of the blocks.
#[derive(FromPyObject)]
struct Analysis {
    block: u64,
    writes: bool,
    rate: Option<f64>,
    samples: Option<usize>,
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
        let ahead = Ahead::new(file).map_err(|error| os_error(error, &name))?;
        let reader = Reader::new(ahead).map_err(|error| translate(error, &name))?;
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
            .map(|volume| (volume.name, volume.rate, HitCurve(Arc::new(volume.curve))))
            .collect())
    })
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
        let open = || File::open(&source).map_err(|error| os_error(error, &from));
        let input = || Ahead::new(open()?).map_err(|error| os_error(error, &from));
        let total = open()?.metadata().map_or(0, |found| found.len());
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
    m.add_class::<HitCurve>()?;
    m.add_function(wrap_pyfunction!(trace_curves, m)?)?;
    m.add_function(wrap_pyfunction!(trace_pack, m)?)
}
