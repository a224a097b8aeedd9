//! Python bindings of `diffcache-core`: hashes, manifests, and what two files have in common.

use std::path::{Path, PathBuf};

use diffcache_core::common_blocks::{self, CommonBlocksError};
use diffcache_core::manifest::Manifest;
use diffcache_core::overlap::{self, OverlapError};
use diffcache_core::source::{self, FileSource, PacedFile, ReadAt};
use diffcache_core::task::Task;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::blocks::{manifest_dict, manifest_error, os_error, run, source_error};
use crate::errors::Cancelled;

/// The content id of a file: the hex BLAKE3 of its bytes, as b3sum prints it. Holes are not read. With a rate (bytes per second), by one thread,
/// and from the disk.
#[pyfunction]
#[pyo3(signature = (path, progress=None, rate=None))]
fn hash_file(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
    rate: Option<u64>,
) -> PyResult<String> {
    let manifest = run(py, progress, |task| {
        let (source, task) = open_at(&path, rate, task)?;
        Manifest::from_source(&*source, &task).map_err(manifest_error)
    })?;
    Ok(manifest.content_id_hex())
}

/// Opens a file, with a rate as one that is read beside other work, and returns the job that reads it so.
pub fn open_at<'a>(
    path: &Path,
    rate: Option<u64>,
    task: &Task<'a>,
) -> PyResult<(Box<dyn ReadAt>, Task<'a>)> {
    let Some(rate) = rate else {
        let file = FileSource::open(path).map_err(source_error)?;
        return Ok((Box::new(file), *task));
    };
    let file = PacedFile::open(path, rate).map_err(source_error)?;
    // The priority is that of the calling thread.
    Ok((
        Box::new(file),
        Task {
            threads: 1,
            ..*task
        },
    ))
}

/// Has the disk serve the calling thread only while nothing else wants it.
#[pyfunction]
fn use_idle_io() -> PyResult<()> {
    source::use_idle_io().map_err(|error| os_error(error, "ioprio_set"))
}

/// Looks for the windows around sampled bytes of a file in another at any offset. Returns a dictionary: changed_size, the bytes in blocks of
/// 4 KiB that differ at the same offset and are not zero; how many of them were sampled; and missing, those of the sample that no match of at
/// least two windows covers.
#[pyfunction]
#[pyo3(signature = (base, target, window, count, progress=None))]
fn overlap_estimate(
    py: Python<'_>,
    base: PathBuf,
    target: PathBuf,
    window: usize,
    count: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let found = run(py, progress, |task| {
        let base = FileSource::open(&base).map_err(source_error)?;
        let target = FileSource::open(&target).map_err(source_error)?;
        overlap::estimate(&base, &target, window, count, task).map_err(overlap_error)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("changed_size", found.changed_size)?;
    dict.set_item("sampled", found.sampled)?;
    dict.set_item("missing", found.missing)?;
    Ok(dict)
}

fn overlap_error(error: OverlapError) -> PyErr {
    let message = error.to_string();
    match error {
        OverlapError::Source(error) => source_error(error),
        OverlapError::Cancelled(_) => Cancelled::new_err(message),
        OverlapError::Window => PyValueError::new_err(message),
    }
}

/// Chunks of the base with the number of their blocks, and (chunk of the target, chunk of the base, blocks) of those that are in both.
type CommonRows = (Vec<(u64, u64)>, Vec<(u64, u64, u64)>);

/// Looks for the blocks of some chunks of a file in another file, which is read once.
#[pyfunction]
#[pyo3(signature = (base, target, chunks, chunk_bytes, progress=None))]
fn common_blocks_find(
    py: Python<'_>,
    base: PathBuf,
    target: PathBuf,
    chunks: Vec<u64>,
    chunk_bytes: u64,
    progress: Option<Py<PyAny>>,
) -> PyResult<CommonRows> {
    let found = run(py, progress, |task| {
        let base = FileSource::open(&base).map_err(source_error)?;
        let target = FileSource::open(&target).map_err(source_error)?;
        common_blocks::find(&base, &target, &chunks, chunk_bytes, task).map_err(common_error)
    })?;
    let row = |each: &common_blocks::Common| (each.target, each.base, each.blocks);
    Ok((found.base, found.found.iter().map(row).collect()))
}

fn common_error(error: CommonBlocksError) -> PyErr {
    let message = error.to_string();
    match error {
        CommonBlocksError::Source(error) => source_error(error),
        CommonBlocksError::Cancelled(_) => Cancelled::new_err(message),
        CommonBlocksError::Chunk => PyValueError::new_err(message),
    }
}

/// Writes the manifest of a file; returns content_id, size and data_size in bytes, leaves and zero_leaves (of 64 KiB).
#[pyfunction]
#[pyo3(signature = (path, out_path, progress=None))]
fn manifest_create(
    py: Python<'_>,
    path: PathBuf,
    out_path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let manifest = run(py, progress, |task| {
        let source = FileSource::open(&path).map_err(source_error)?;
        let manifest = Manifest::from_source(&source, task).map_err(manifest_error)?;
        manifest.save(&out_path).map_err(manifest_error)?;
        Ok(manifest)
    })?;
    manifest_dict(py, &manifest)
}

/// Reads a manifest and checks that it is whole; returns what manifest_create does.
#[pyfunction]
fn manifest_info(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let manifest = run(py, None, |_| Manifest::load(&path).map_err(manifest_error))?;
    manifest_dict(py, &manifest)
}

/// Compares a file with its manifest; raises IntegrityError with the first place that differs. With a rate, as hash_file.
#[pyfunction]
#[pyo3(signature = (manifest_path, file_path, progress=None, rate=None))]
fn manifest_verify(
    py: Python<'_>,
    manifest_path: PathBuf,
    file_path: PathBuf,
    progress: Option<Py<PyAny>>,
    rate: Option<u64>,
) -> PyResult<()> {
    run(py, progress, |task| {
        let manifest = Manifest::load(&manifest_path).map_err(manifest_error)?;
        let (source, task) = open_at(&file_path, rate, task)?;
        manifest
            .verify_source(&*source, &task)
            .map_err(manifest_error)
    })
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(hash_file, m)?)?;
    m.add_function(wrap_pyfunction!(use_idle_io, m)?)?;
    m.add_function(wrap_pyfunction!(overlap_estimate, m)?)?;
    m.add_function(wrap_pyfunction!(common_blocks_find, m)?)?;
    m.add_function(wrap_pyfunction!(manifest_create, m)?)?;
    m.add_function(wrap_pyfunction!(manifest_info, m)?)?;
    m.add_function(wrap_pyfunction!(manifest_verify, m)?)?;
    Ok(())
}
