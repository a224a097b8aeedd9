//! Where a version store's objects are: local files, and blobs that Python reads.

use std::path::PathBuf;

use diffcache_versions::store::{Place, Remote};
use diffcache_versions::VersionsError;
use pyo3::prelude::*;

use crate::errors::ObjectMissing;

/// Reads blobs through Python callables.
pub struct Callables {
    /// Returns bytes of a blob.
    pub read: Py<PyAny>,
    /// Returns a local file that has all of a blob.
    pub fetch: Py<PyAny>,
}

impl Remote for Callables {
    fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, VersionsError> {
        Python::attach(|py| {
            let bytes = self.read.call1(py, (name, offset, len))?;
            bytes.extract::<Vec<u8>>(py)
        })
        .map_err(|error: PyErr| unread(name, &error))
    }

    fn fetch(&self, name: &str) -> Result<PathBuf, VersionsError> {
        Python::attach(|py| self.fetch.call1(py, (name,))?.extract::<PathBuf>(py))
            .map_err(|error: PyErr| unread(name, &error))
    }
}

/// A local file, or the name of a blob.
#[derive(FromPyObject)]
pub enum PlaceArgument {
    /// A blob.
    Blob(String),
    /// A file.
    File(PathBuf),
}

impl From<PlaceArgument> for Place {
    fn from(place: PlaceArgument) -> Place {
        match place {
            PlaceArgument::Blob(name) => Place::Blob(name),
            PlaceArgument::File(path) => Place::File(path),
        }
    }
}

/// The reason why a blob was not read.
fn unread(name: &str, error: &PyErr) -> VersionsError {
    match Python::attach(|py| error.is_instance_of::<ObjectMissing>(py)) {
        true => VersionsError::Missing(name.to_owned()),
        false => VersionsError::Unavailable {
            name: name.to_owned(),
            reason: error.to_string(),
        },
    }
}
