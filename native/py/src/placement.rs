//! Python bindings of `diffcache-placement`.

use pyo3::prelude::*;

/// Adds this crate's names to the extension module.
pub fn register(_m: &Bound<'_, PyModule>) -> PyResult<()> {
    Ok(())
}
