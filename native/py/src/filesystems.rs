//! Python bindings of `diffcache_filesystems`: what guests' filesystems mark free, and where they store their files.

use std::path::PathBuf;

use diffcache_core::source::{FileSource, ReadAt, SourceError};
use diffcache_core::task::{Meter, Task};
use diffcache_filesystems::TrimError;
use diffcache_qcow2::Image;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::blocks::{os_error, run, source_error};
use crate::errors::{Cancelled, FormatError};
use crate::qcow2::qcow2_error;

fn trim_error(error: TrimError) -> PyErr {
    let message = error.to_string();
    match error {
        TrimError::Source(error) => source_error(error),
        TrimError::Io { source, name } => os_error(source, &name),
        TrimError::Unknown(_) => FormatError::new_err(message),
        TrimError::Cancelled(_) => Cancelled::new_err(message),
    }
}

/// Writes what a guest reads from an image, raw or qcow2, to a new raw file, with the blocks zeroed that the guest's filesystems mark free. Returns
/// size, data_before and data_after in bytes, and filesystems (kind, offset, size, and free in bytes or reason).
#[pyfunction]
#[pyo3(signature = (image, output, progress=None))]
fn image_trim(
    py: Python<'_>,
    image: PathBuf,
    output: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let stats = run(py, progress, |task| {
        let image = Image::open(&image).map_err(qcow2_error)?;
        diffcache_filesystems::trim(image.content(), &output, task).map_err(trim_error)
    })?;
    let dict = PyDict::new(py);
    dict.set_item("size", stats.size)?;
    dict.set_item("data_before", stats.data_before)?;
    dict.set_item("data_after", stats.data_after)?;
    let filesystems = PyList::empty(py);
    for found in &stats.survey.filesystems {
        let one = PyDict::new(py);
        one.set_item("kind", found.kind)?;
        one.set_item("offset", found.offset)?;
        one.set_item("size", found.size)?;
        one.set_item("free", found.free.as_ref().ok())?;
        one.set_item("reason", found.free.as_ref().err())?;
        filesystems.append(one)?;
    }
    dict.set_item("filesystems", filesystems)?;
    Ok(dict)
}

/// (kind, where its partition starts, path, size, reason).
type EntryRow = (&'static str, u64, String, u64, String);
/// (start, end, entry, position in its content).
type ExtentRow = (u64, u64, u32, u64);

/// A source whose reads report progress, and fail once the caller has stopped the job.
struct Watched<'a> {
    source: &'a dyn ReadAt,
    task: &'a Task<'a>,
    meter: Meter<'a>,
}

impl ReadAt for Watched<'_> {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.meter.add(buf.len() as u64);
        self.task.check().map_err(|cancelled| SourceError::Io {
            name: "the image".to_owned(),
            source: std::io::Error::other(cancelled),
        })?;
        self.source.read_exact_at(buf, offset)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        self.source.next_data(offset)
    }
}

fn map_files(source: &dyn ReadAt, task: &Task<'_>) -> PyResult<diffcache_filesystems::FileMap> {
    let meter = task.meter(source.len());
    let watched = Watched {
        source,
        task,
        meter,
    };
    diffcache_filesystems::map_files(&watched).map_err(source_error)
}

/// Returns which file each byte of what a guest reads from an image, raw or qcow2, belongs to: entries, and extents in order.
#[pyfunction]
#[pyo3(signature = (image, progress=None))]
fn image_files(
    py: Python<'_>,
    image: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<EntryRow>, Vec<ExtentRow>)> {
    let map = run(py, progress, |task| {
        let image = Image::open(&image).map_err(qcow2_error)?;
        map_files(image.content(), task)
    })?;
    rows(map)
}

/// Does the same for content, whatever its first bytes look like.
#[pyfunction]
#[pyo3(signature = (content, progress=None))]
fn content_files(
    py: Python<'_>,
    content: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Vec<EntryRow>, Vec<ExtentRow>)> {
    let map = run(py, progress, |task| {
        let source = FileSource::open(&content).map_err(source_error)?;
        map_files(&source, task)
    })?;
    rows(map)
}

fn rows(map: diffcache_filesystems::FileMap) -> PyResult<(Vec<EntryRow>, Vec<ExtentRow>)> {
    let entry =
        |e: diffcache_filesystems::Entry| (e.kind.name(), e.partition, e.path, e.size, e.reason);
    let extent = |e: diffcache_filesystems::Extent| (e.start, e.end, e.entry, e.position);
    Ok((
        map.entries.into_iter().map(entry).collect(),
        map.extents.into_iter().map(extent).collect(),
    ))
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(image_trim, m)?)?;
    m.add_function(wrap_pyfunction!(image_files, m)?)?;
    m.add_function(wrap_pyfunction!(content_files, m)?)
}
