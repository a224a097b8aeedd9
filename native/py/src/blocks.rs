//! Python bindings of `diffcache-core`: hashes, manifests and patches of the block codec.
//!
//! Every call that reads or writes images releases the GIL. `progress(bytes_done, bytes_total)` is called at most five times a second, and once
//! at the end; if it raises, the call ends with that exception.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::hex;
use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::{Manifest, ManifestError};
use diffcache_core::patch::format::{Header, STALE_UNKNOWN};
use diffcache_core::patch::{self, ApplyStats, CreateOptions, PatchError, PatchView, VerifiedBase};
use diffcache_core::retry::ErrorKind;
use diffcache_core::sink::SinkError;
use diffcache_core::source::{FileSource, SourceError};
use diffcache_core::task::Task;
use diffcache_filesystems::survey;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::errors::{self, NoSpace};

/// An error of the core as the Python exception of its kind. Errors of the system stay `OSError` (`FileNotFoundError`, ...).
pub fn patch_error(error: PatchError) -> PyErr {
    match error {
        PatchError::Source(error) => source_error(error),
        PatchError::Manifest(error) => manifest_error(error),
        PatchError::Sink(SinkError::Io { source, name }) | PatchError::Io { source, name } => {
            os_error(source, &name)
        }
        error => errors::raise(error.kind(), error.to_string()),
    }
}

/// See `patch_error`.
pub fn manifest_error(error: ManifestError) -> PyErr {
    let kind = error.kind();
    match error {
        ManifestError::Source(error) => source_error(error),
        ManifestError::Io(error) if kind == ErrorKind::System => os_error(error, "manifest"),
        error => errors::raise(kind, error.to_string()),
    }
}

/// See `patch_error`.
pub fn source_error(error: SourceError) -> PyErr {
    match error {
        SourceError::Io { name, source } => os_error(source, &name),
        error => errors::raise(error.kind(), error.to_string()),
    }
}

/// An error of the system with the file's name: `NoSpace` if a filesystem is full, otherwise of the subclass of `OSError` that its number asks for.
pub fn os_error(error: std::io::Error, name: &str) -> PyErr {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    if matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge) {
        return NoSpace::new_err(format!(
            "{name}: error; free space on its filesystem and try again"
        ));
    }
    match error.raw_os_error() {
        Some(number) => {
            let text = error.to_string();
            let code = format!(" (os error {number})");
            let text = text.strip_suffix(&code).unwrap_or(&text).to_owned();
            pyo3::exceptions::PyOSError::new_err((number, text, name.to_owned()))
        }
        None => pyo3::exceptions::PyOSError::new_err(format!("{name}: {error}")),
    }
}

/// Runs a job without the GIL, reporting to a Python callable from time to time.
pub fn run<T, F>(py: Python<'_>, progress: Option<Py<PyAny>>, job: F) -> PyResult<T>
where
    T: Send,
    F: FnOnce(&Task<'_>) -> PyResult<T> + Send,
{
    let stop = AtomicBool::new(false);
    let Some(callable) = progress else {
        return py.detach(|| {
            job(&Task {
                cancel: Some(&stop),
                ..Task::default()
            })
        });
    };
    let reporter = Reporter {
        callable,
        state: Mutex::new((Instant::now(), None)),
        stop: &stop,
    };
    let report = |done: u64, total: u64| reporter.report(done, total);
    let result = py.detach(|| {
        job(&Task {
            progress: Some(&report),
            cancel: Some(&stop),
            ..Task::default()
        })
    });
    let raised = reporter.state.lock().unpoisoned().1.take();
    raised.map_or(result, Err)
}

/// Passes progress on to Python.
struct Reporter<'a> {
    callable: Py<PyAny>,
    /// When it was last called, and what it raised.
    state: Mutex<(Instant, Option<PyErr>)>,
    stop: &'a AtomicBool,
}

impl Reporter<'_> {
    fn report(&self, done: u64, total: u64) {
        {
            // If it is locked, the thread that holds it reports. The lock is not held while waiting for the GIL.
            let Ok(mut state) = self.state.try_lock() else {
                return;
            };
            if state.0.elapsed() < Duration::from_millis(200) && done < total {
                return;
            }
            state.0 = Instant::now();
        }
        let outcome = Python::attach(|py| self.callable.call1(py, (done, total)).map(|_| ()));
        if let Err(error) = outcome {
            self.state.lock().unpoisoned().1 = Some(error);
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

pub fn manifest_dict<'py>(py: Python<'py>, manifest: &Manifest) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("content_id", manifest.content_id_hex())?;
    dict.set_item("size", manifest.size())?;
    dict.set_item("data_size", manifest.data_size())?;
    dict.set_item("leaves", manifest.leaf_count())?;
    dict.set_item("zero_leaves", manifest.zero_leaf_count())?;
    Ok(dict)
}

fn header_dict<'py>(py: Python<'py>, header: &Header) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("codec", "block")?;
    dict.set_item("base_hash", hex::encode(&header.base_hash))?;
    dict.set_item("target_hash", hex::encode(&header.target_hash))?;
    dict.set_item("base_size", header.base_size)?;
    dict.set_item("target_size", header.target_size)?;
    dict.set_item("patch_size", header.patch_size)?;
    dict.set_item("block_size", 4096)?;
    dict.set_item("blocks_copied", header.blocks_copied)?;
    dict.set_item("blocks_inserted", header.blocks_inserted)?;
    dict.set_item("blocks_zero", header.blocks_zero)?;
    set_stale(&dict, header)?;
    dict.set_item("level", header.level as i64)?;
    dict.set_item("create_cpu_seconds", header.create_cpu_us as f64 / 1e6)?;
    dict.set_item("create_seconds", header.create_wall_us as f64 / 1e6)?;
    Ok(dict)
}

/// Sets how many of the inserted blocks are stale, and their share of them: None if no filesystem could be read.
pub fn set_stale(dict: &Bound<'_, PyDict>, header: &Header) -> PyResult<()> {
    let stale = (header.stale_blocks != STALE_UNKNOWN).then_some(header.stale_blocks);
    dict.set_item("blocks_stale", stale)?;
    let share = stale.map(|stale| stale as f64 / header.blocks_inserted.max(1) as f64);
    dict.set_item("stale_share", share)
}

/// Raises ValueError unless a level of compression is one.
pub fn check_level(level: i32) -> PyResult<()> {
    match (1..=19).contains(&level) {
        true => Ok(()),
        false => Err(PyValueError::new_err(format!(
            "level must be 1 to 19, not {level}"
        ))),
    }
}

fn apply_dict<'py>(py: Python<'py>, stats: &ApplyStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = manifest_dict(py, &stats.manifest)?;
    dict.set_item("reflinked", stats.reflinked)?;
    dict.set_item("bytes_verified", stats.bytes_verified)?;
    dict.set_item("bytes_written", stats.bytes_written)?;
    dict.set_item("seconds", stats.elapsed.as_secs_f64())?;
    Ok(dict)
}

/// Makes the block patch from base to target; returns what patch_info does, and seconds.
#[pyfunction]
#[pyo3(signature = (base, target, patch, level=3, progress=None))]
fn patch_create(
    py: Python<'_>,
    base: PathBuf,
    target: PathBuf,
    patch: PathBuf,
    level: i32,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    check_level(level)?;
    let stats = run(py, progress, |task| {
        let base = FileSource::open(&base).map_err(source_error)?;
        let target = FileSource::open(&target).map_err(source_error)?;
        let survey = survey(&target).map_err(source_error)?;
        let options = CreateOptions {
            level,
            free: survey.known_free(),
            task: *task,
            ..CreateOptions::default()
        };
        patch::create(&base, &target, &patch, &options).map_err(patch_error)
    })?;
    let dict = header_dict(py, &stats.header)?;
    dict.set_item("seconds", stats.elapsed.as_secs_f64())?;
    Ok(dict)
}

/// What a block patch says of itself; sizes in bytes, times in seconds.
#[pyfunction]
fn patch_info(py: Python<'_>, patch: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let info = run(py, None, |_| {
        patch::info(&FileSource::open(&patch).map_err(source_error)?).map_err(patch_error)
    })?;
    header_dict(py, &info.header)
}

/// Builds the target of a block patch in output, verified and atomically, sharing blocks with the base where the filesystem can.
#[pyfunction]
#[pyo3(signature = (base, patch, output, progress=None))]
fn patch_apply(
    py: Python<'_>,
    base: PathBuf,
    patch: PathBuf,
    output: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let stats = run(py, progress, |task| {
        patch::apply(&base, &patch, &output, task).map_err(patch_error)
    })?;
    apply_dict(py, &stats)
}

/// Does what patch_apply does from a base that was verified when its manifest was written: where blocks are shared with it, only what differs from
/// it is read and verified.
#[pyfunction]
#[pyo3(signature = (base, base_manifest, patch, output, progress=None))]
fn patch_apply_verified(
    py: Python<'_>,
    base: PathBuf,
    base_manifest: PathBuf,
    patch: PathBuf,
    output: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let stats = run(py, progress, |task| {
        let base = VerifiedBase::open(&base, &base_manifest).map_err(patch_error)?;
        patch::apply_verified(&base, &patch, &output, task).map_err(patch_error)
    })?;
    apply_dict(py, &stats)
}

/// Turns base into the target of a block patch in place, with a journal; after an interruption the same call resumes.
#[pyfunction]
#[pyo3(signature = (base, patch, journal, progress=None))]
fn patch_apply_in_place(
    py: Python<'_>,
    base: PathBuf,
    patch: PathBuf,
    journal: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let stats = run(py, progress, |task| {
        patch::apply_in_place(&base, &patch, &journal, task).map_err(patch_error)
    })?;
    apply_dict(py, &stats)
}

/// Does everything that patch_apply does but writing.
#[pyfunction]
#[pyo3(signature = (base, patch, progress=None))]
fn patch_verify(
    py: Python<'_>,
    base: PathBuf,
    patch: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let stats = run(py, progress, |task| {
        let base = FileSource::open(&base).map_err(source_error)?;
        let patch = FileSource::open(&patch).map_err(source_error)?;
        patch::verify(&base, &patch, task).map_err(patch_error)
    })?;
    apply_dict(py, &stats)
}

/// Writes the manifest of a block patch's target, given the base's manifest; reads no image.
#[pyfunction]
fn patch_manifest(
    py: Python<'_>,
    base_manifest: PathBuf,
    patch: PathBuf,
    out_path: PathBuf,
) -> PyResult<Bound<'_, PyDict>> {
    let manifest = run(py, None, |task| {
        let base = Manifest::load(&base_manifest).map_err(manifest_error)?;
        let patch = FileSource::open(&patch).map_err(source_error)?;
        let manifest = patch::target_manifest(&base, &patch, task).map_err(patch_error)?;
        manifest.save(&out_path).map_err(manifest_error)?;
        Ok(manifest)
    })?;
    manifest_dict(py, &manifest)
}

/// The target of a block patch, read through base and patch without building it. With the path of the target's manifest every leaf that is read is
/// verified; without, those that differ from the base's.
#[pyclass(name = "PatchView", module = "diffcache_openstack._native", frozen)]
struct View {
    view: PatchView<FileSource, FileSource>,
}

#[pymethods]
impl View {
    #[new]
    #[pyo3(signature = (base, patch, manifest=None))]
    fn new(
        py: Python<'_>,
        base: PathBuf,
        patch: PathBuf,
        manifest: Option<PathBuf>,
    ) -> PyResult<View> {
        let view = run(py, None, |_| {
            let manifest = manifest
                .map(|path| Manifest::load(&path))
                .transpose()
                .map_err(manifest_error)?;
            let base = FileSource::open(&base).map_err(source_error)?;
            let patch = FileSource::open(&patch).map_err(source_error)?;
            PatchView::open(base, patch, manifest).map_err(patch_error)
        })?;
        Ok(View { view })
    }

    /// Bytes of the target.
    #[getter]
    fn size(&self) -> u64 {
        self.view.patch().header().target_size
    }

    /// Bytes of the target from offset on; less than length of them at its end.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let length = length.min(self.size().saturating_sub(offset)) as usize;
        let data = py.detach(|| {
            let mut data = vec![0; length];
            self.view
                .read(&mut data, offset.min(self.size()))
                .map_err(patch_error)?;
            Ok::<_, PyErr>(data)
        })?;
        Ok(PyBytes::new(py, &data))
    }

    /// Bytes of base and of patch that reading a range takes: (from base, from patch), the caches left out.
    fn read_cost(&self, offset: u64, length: u64) -> (u64, u64) {
        let block =
            |bytes: u64| u32::try_from(bytes.min(self.size()).div_ceil(4096)).unwrap_or(u32::MAX);
        self.view.patch().read_cost(
            (offset / 4096).min(u64::from(u32::MAX)) as u32,
            block(offset.saturating_add(length)),
        )
    }
}

/// Adds this crate's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("PATCH_FORMAT", patch::VERSION)?;
    m.add_function(wrap_pyfunction!(patch_create, m)?)?;
    m.add_function(wrap_pyfunction!(patch_info, m)?)?;
    m.add_function(wrap_pyfunction!(patch_apply, m)?)?;
    m.add_function(wrap_pyfunction!(patch_apply_verified, m)?)?;
    m.add_function(wrap_pyfunction!(patch_apply_in_place, m)?)?;
    m.add_function(wrap_pyfunction!(patch_verify, m)?)?;
    m.add_function(wrap_pyfunction!(patch_manifest, m)?)?;
    m.add_class::<View>()?;
    Ok(())
}
