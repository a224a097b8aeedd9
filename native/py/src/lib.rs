//! `diffcache_openstack._native`: the native parts as one Python extension module.
//!
//! Each submodule binds one crate and registers its names here; this crate has no logic.

use pyo3::prelude::*;

mod blocks;
mod compressed;
mod dataplane;
mod dataplane_handles;
mod dataplane_options;
mod directories;
mod errors;
mod filesystems;
mod manifests;
mod placement;
mod prefetch;
mod qcow2;
mod sketch;
mod ssdcache_curves;
mod ssdcache_simulation;
mod ssdcache_sizing;
mod version_disks;
mod version_errors;
mod version_hooks;
mod version_places;
mod version_types;
mod versions;

#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    blocks::register(m)?;
    compressed::register(m)?;
    dataplane::register(m)?;
    directories::register(m)?;
    errors::register(m)?;
    filesystems::register(m)?;
    manifests::register(m)?;
    placement::register(m)?;
    prefetch::register(m)?;
    qcow2::register(m)?;
    sketch::register(m)?;
    ssdcache_curves::register(m)?;
    ssdcache_simulation::register(m)?;
    ssdcache_sizing::register(m)?;
    version_disks::register(m)?;
    version_types::register(m)?;
    versions::register(m)?;
    version_hooks::register(m)?;
    Ok(())
}
