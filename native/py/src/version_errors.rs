//! Errors of `diffcache-versions` as Python exceptions.

use diffcache_versions::VersionsError;
use pyo3::PyErr;

use crate::blocks::{os_error, source_error};
use crate::errors;
use crate::qcow2::qcow2_error;

/// Converts an error to the Python exception of its kind. Errors of the system stay `OSError`.
pub fn versions_error(error: VersionsError) -> PyErr {
    match error {
        VersionsError::Source(error) => source_error(error),
        VersionsError::Qcow2(error) => qcow2_error(error),
        VersionsError::Io { name, source } => os_error(source, &name),
        error => errors::raise(error.kind(), error.to_string()),
    }
}
