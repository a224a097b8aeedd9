//! Python bindings of `diffcache-versions`: files of hooks, by which a save finds copies.

use std::path::PathBuf;

use diffcache_versions::store::hooks::Merge;
use diffcache_versions::store::pack_index::Check;
use pyo3::prelude::*;

use crate::version_errors::versions_error;
use crate::version_places::PlaceArgument;
use crate::versions::BlockStore;

/// Adds a file of hooks of some bytes, which ends with a checksum. It is read when it is needed.
#[pyfunction]
fn add_hooks(store: &BlockStore, number: u32, place: PlaceArgument, length: u64, check: Check) {
    store.write().add_hooks(number, place.into(), length, check);
}

/// Reads all of a file of hooks; raises if it is damaged.
#[pyfunction]
fn verify_hooks(py: Python<'_>, store: &BlockStore, number: u32) -> PyResult<()> {
    py.detach(|| store.store().check_hooks(number).map_err(versions_error))
}

/// Writes a file of the hooks of some files, of some packs of the store, and of the packs of some new indexes. Returns how many it has;
/// without any no file is written.
#[pyfunction]
fn write_hooks(
    py: Python<'_>,
    store: &BlockStore,
    output: PathBuf,
    files: Vec<u32>,
    packs: Vec<u32>,
    indexes: Vec<PathBuf>,
) -> PyResult<u32> {
    let merge = Merge {
        files,
        packs,
        indexes,
    };
    py.detach(|| {
        store
            .store()
            .write_hooks(&merge, &output)
            .map_err(versions_error)
    })
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(add_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(verify_hooks, m)?)?;
    m.add_function(wrap_pyfunction!(write_hooks, m)?)?;
    Ok(())
}
