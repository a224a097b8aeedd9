//! Python bindings of `diffcache_core::compressed`: the compressed form of images.

use std::path::{Path, PathBuf};

use diffcache_core::compressed::{self, CompressedError};
use diffcache_core::manifest::Manifest;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::blocks::{manifest_error, os_error, run, source_error};
use crate::errors;
use crate::manifests::open_at;

fn compressed_error(error: CompressedError) -> PyErr {
    match error {
        CompressedError::Source(error) => source_error(error),
        CompressedError::Io { name, source } => os_error(source, &name),
        error => errors::raise(error.kind(), error.to_string()),
    }
}

fn load(path: &Path) -> PyResult<Manifest> {
    Manifest::load(path).map_err(manifest_error)
}

/// Writes the compressed form of an image, of zstd's `level`; returns data and bytes (of the form), and stored, the frames that did not compress.
#[pyfunction]
#[pyo3(signature = (content, manifest, output, level, progress=None))]
fn compressed_create(
    py: Python<'_>,
    content: PathBuf,
    manifest: PathBuf,
    output: PathBuf,
    level: i32,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let made = run(py, progress, |task| {
        compressed::create(&content, &load(&manifest)?, &output, level, task)
            .map_err(compressed_error)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("data", made.data)?;
    dict.set_item("bytes", made.bytes)?;
    dict.set_item("stored", made.stored)?;
    Ok(dict)
}

/// Checks header and lengths of a compressed form against the image's manifest; returns its frames.
#[pyfunction]
fn compressed_check(py: Python<'_>, form: PathBuf, manifest: PathBuf) -> PyResult<usize> {
    run(py, None, |_| {
        let index = compressed::open(&form, &load(&manifest)?).map_err(compressed_error)?;
        Ok(index.frames().len())
    })
}

/// Decompresses a form and compares all of it with the image's manifest.
#[pyfunction]
#[pyo3(signature = (form, manifest, progress=None, rate=None))]
fn compressed_verify(
    py: Python<'_>,
    form: PathBuf,
    manifest: PathBuf,
    progress: Option<Py<PyAny>>,
    rate: Option<u64>,
) -> PyResult<()> {
    run(py, progress, |task| {
        let (source, task) = open_at(&form, rate, task)?;
        compressed::verify(&*source, &load(&manifest)?, &task).map_err(compressed_error)
    })
}

pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(compressed_create, m)?)?;
    m.add_function(wrap_pyfunction!(compressed_check, m)?)?;
    m.add_function(wrap_pyfunction!(compressed_verify, m)?)?;
    Ok(())
}
