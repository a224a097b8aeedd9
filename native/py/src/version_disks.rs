//! Disks that versions are written to in place.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::FileSource;
use diffcache_qcow2::snapshots::Disk as Qcow2Disk;
use diffcache_versions::restore::in_place::{RawDisk, Writer};
use diffcache_versions::restore::nbd::NbdDisk;
use diffcache_versions::save::disk::Format;
use diffcache_versions::VersionsError;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::blocks::source_error;
use crate::qcow2::qcow2_error;
use crate::version_errors::versions_error;
use crate::version_types::to_format;

enum Disk {
    Raw(RawDisk),
    Nbd(NbdDisk),
}

impl Disk {
    fn writer(&mut self) -> &mut (dyn Writer + Send) {
        match self {
            Disk::Raw(disk) => disk,
            Disk::Nbd(disk) => disk,
        }
    }
}

/// A disk that is open for writing.
#[pyclass(frozen)]
pub struct DiskWriter(Mutex<Option<Disk>>);

impl DiskWriter {
    fn disk(&self) -> MutexGuard<'_, Option<Disk>> {
        self.0.lock().unpoisoned()
    }

    /// Calls `job` with the disk.
    pub fn with<T>(
        &self,
        job: impl FnOnce(&mut dyn Writer) -> Result<T, VersionsError>,
    ) -> Result<T, VersionsError> {
        match self.disk().as_mut() {
            Some(disk) => job(disk.writer()),
            None => Err(VersionsError::Invalid("the disk is closed".to_owned())),
        }
    }
}

/// A descriptor of its own for a file of the caller's. Locks on the open file are shared.
fn duplicate(fd: i32) -> PyResult<OwnedFd> {
    if fd < 0 {
        return Err(PyOSError::new_err("the file is closed"));
    }
    // SAFETY: the descriptor is only borrowed for this call, in which the caller's file object keeps it open; one that is not open is an
    // error of `dup` and no undefined behaviour.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    Ok(borrowed.try_clone_to_owned()?)
}

#[pymethods]
impl DiskWriter {
    /// A raw disk by the descriptor of its file; `name` is for messages.
    #[staticmethod]
    fn raw(fd: i32, name: String) -> PyResult<Self> {
        let disk = RawDisk::new(File::from(duplicate(fd)?), name);
        Ok(Self(Mutex::new(Some(Disk::Raw(disk)))))
    }

    /// The disk that an NBD server exports, by the descriptor of a socket that is connected to it.
    #[staticmethod]
    fn nbd(py: Python<'_>, fd: i32) -> PyResult<Self> {
        let stream = UnixStream::from(duplicate(fd)?);
        let disk = py.detach(|| NbdDisk::open(stream));
        let disk = disk.map_err(versions_error)?;
        Ok(Self(Mutex::new(Some(Disk::Nbd(disk)))))
    }

    /// Makes all that was written durable.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.with(|writer| writer.flush()))
            .map_err(versions_error)
    }

    /// Closes the disk, and ends the session with an NBD server.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match self.disk().take() {
            Some(Disk::Nbd(disk)) => disk.disconnect(),
            _ => Ok(()),
        })
        .map_err(versions_error)
    }
}

/// Reads the tables of a disk: format, size in bytes, cluster size, bits of a reference count, backing file's name, snapshots as (number, name, fingerprint).
///
/// Without `disk_format` the format is detected by the first bytes, which the guest of a raw disk may have written.
#[pyfunction]
#[pyo3(signature = (disk, disk_format=None))]
fn version_disk_info<'py>(
    py: Python<'py>,
    disk: PathBuf,
    disk_format: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let file = FileSource::open(&disk).map_err(source_error)?;
    let format = Format::of(to_format(disk_format)?, &file).map_err(versions_error)?;
    if format == Format::Raw {
        dict.set_item("format", "raw")?;
        dict.set_item("size", diffcache_core::source::ReadAt::len(&file))?;
        dict.set_item("cluster_size", py.None())?;
        dict.set_item("refcount_bits", py.None())?;
        dict.set_item("backing", py.None())?;
        dict.set_item("snapshots", Vec::<(String, String, String)>::new())?;
        return Ok(dict);
    }
    let tables = Qcow2Disk::open(&file).map_err(qcow2_error)?;
    let snapshots: Vec<(String, String, String)> = tables
        .snapshots
        .iter()
        .map(|s| (s.id.clone(), s.name.clone(), s.fingerprint.clone()))
        .collect();
    dict.set_item("format", "qcow2")?;
    dict.set_item("size", tables.header().size)?;
    dict.set_item("cluster_size", tables.header().cluster_size())?;
    dict.set_item("refcount_bits", 1 << tables.header().refcount_order)?;
    dict.set_item("backing", tables.backing.clone())?;
    dict.set_item("snapshots", snapshots)?;
    Ok(dict)
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<DiskWriter>()?;
    m.add_function(wrap_pyfunction!(version_disk_info, m)?)
}
