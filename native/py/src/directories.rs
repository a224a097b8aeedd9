//! Python bindings of `diffcache_base::directory`, and of the attributes of a process that Python has no calls for.

use std::os::fd::{BorrowedFd, IntoRawFd};
use std::path::PathBuf;

use diffcache_base::directory::open_beneath as open;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use rustix::fs::{Mode, OFlags};
use rustix::thread::CapabilitySet;

use crate::blocks::os_error;

/// Opens a path below a directory, of which a descriptor is given, and follows no symbolic link. `flags` and `mode` are those of `os.open`. Returns
/// a descriptor, which the caller closes.
#[pyfunction]
fn open_beneath(
    py: Python<'_>,
    directory: i32,
    path: PathBuf,
    flags: u32,
    mode: u32,
) -> PyResult<i32> {
    if directory < 0 {
        return Err(PyOSError::new_err("the directory is closed"));
    }
    // SAFETY: the descriptor is borrowed for this call only, in which the caller keeps it open; one that is not open is an error of the system
    // call and no undefined behaviour.
    let directory = unsafe { BorrowedFd::borrow_raw(directory) };
    let (flags, mode) = (
        OFlags::from_bits_retain(flags),
        Mode::from_bits_retain(mode),
    );
    // A network filesystem may take its time.
    let opened = py.detach(|| open(directory, &path, flags, mode));
    let opened = opened.map_err(|error| os_error(error, &path.display().to_string()))?;
    Ok(opened.into_raw_fd())
}

/// Makes sure that neither this thread nor what it starts ever gains privileges by executing a program.
#[pyfunction]
fn set_no_new_privileges() -> PyResult<()> {
    rustix::thread::set_no_new_privs(true).map_err(|errno| os_error(errno.into(), "no_new_privs"))
}

/// Passes a capability of this thread on to the programs that it starts.
#[pyfunction]
fn pass_on_capability(number: u32) -> PyResult<()> {
    let capability = 1u64
        .checked_shl(number)
        .map(CapabilitySet::from_bits_retain)
        .ok_or_else(|| PyOSError::new_err("there is no such capability"))?;
    let passed = || -> rustix::io::Result<()> {
        let mut sets = rustix::thread::capabilities(None)?;
        sets.inheritable |= capability;
        rustix::thread::set_capabilities(None, sets)?;
        rustix::thread::configure_capability_in_ambient_set(capability, true)
    };
    passed().map_err(|errno| os_error(errno.into(), "capabilities"))
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(open_beneath, m)?)?;
    m.add_function(wrap_pyfunction!(pass_on_capability, m)?)?;
    m.add_function(wrap_pyfunction!(set_no_new_privileges, m)?)
}
