//! Python bindings of `diffcache_core::sketch`: what a patch would take, without making it.

use std::path::PathBuf;

use diffcache_core::sketch::{Sketch, SketchError, BLOCK};
use diffcache_core::task::{for_each_piece, Cancelled as TaskCancelled, Task};
use diffcache_qcow2::Image;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::blocks::{run, source_error};
use crate::errors::{Cancelled, FormatError, NativeError};
use crate::qcow2::qcow2_error;

fn sketch_error(error: SketchError) -> PyErr {
    let message = error.to_string();
    match error {
        SketchError::Source(error) => source_error(error),
        SketchError::Format => FormatError::new_err(message),
        SketchError::Memory => NativeError::new_err(message),
        SketchError::Cancelled(_) => Cancelled::new_err(message),
    }
}

/// A small sample of an image's guest content, from which patch sizes are estimated.
#[pyclass(name = "Sketch", module = "diffcache_openstack._native", frozen)]
pub struct PySketch(Sketch);

#[pymethods]
impl PySketch {
    /// Reads an image, raw or qcow2, once.
    #[new]
    #[pyo3(signature = (path, progress=None))]
    fn new(py: Python<'_>, path: PathBuf, progress: Option<Py<PyAny>>) -> PyResult<Self> {
        run(py, progress, |task| {
            let image = Image::open(&path).map_err(qcow2_error)?;
            Ok(Self(
                Sketch::of(image.content(), task).map_err(sketch_error)?,
            ))
        })
    }

    /// The sketch that to_bytes made.
    #[staticmethod]
    fn from_bytes(data: &[u8]) -> PyResult<Self> {
        Ok(Self(Sketch::decode(data).map_err(sketch_error)?))
    }

    /// The sketch as bytes, for keeping.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    /// Bytes of the image.
    #[getter]
    fn size(&self) -> u64 {
        self.0.size
    }

    /// Bytes in 4 KiB blocks that are not all zero.
    #[getter]
    fn data_size(&self) -> u64 {
        self.0.data_blocks * BLOCK as u64
    }

    /// The bytes that similar images are found by; all zero if the image has too little content.
    #[getter]
    fn signature<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.signature)
    }

    /// The estimated bytes of the block patch from base to this image.
    fn patch_size_from(&self, py: Python<'_>, base: &Self) -> u64 {
        py.detach(|| self.0.patch_size_from(&base.0))
    }
}

/// The estimated patch sizes between sketches, in bytes: one list for each base, with one number for each target.
#[pyfunction]
fn sketch_matrix(py: Python<'_>, sketches: Vec<Bound<'_, PySketch>>) -> PyResult<Vec<Vec<u64>>> {
    let sketches: Vec<&Sketch> = sketches.iter().map(|sketch| &sketch.get().0).collect();
    let row = |base: u64| {
        let base = sketches[base as usize];
        Ok(sketches
            .iter()
            .map(|target| target.patch_size_from(base))
            .collect())
    };
    let rows = py.detach(|| for_each_piece(&Task::default(), sketches.len() as u64, row));
    rows.map_err(|error: TaskCancelled| Cancelled::new_err(error.to_string()))
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<PySketch>()?;
    m.add_function(wrap_pyfunction!(sketch_matrix, m)?)?;
    Ok(())
}
