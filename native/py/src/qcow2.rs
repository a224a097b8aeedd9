//! Python bindings of `diffcache_qcow2`: guest content of images, and patches that re-create qcow2 files.
//!
//! The interpreter lock, progress and errors are handled as in `blocks`.

use std::path::PathBuf;
use std::sync::Arc;

use diffcache_base::hex;
use diffcache_core::patch::{CreateOptions, PatchView};
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_core::task::Task;
use diffcache_qcow2::image::{self, Image};
use diffcache_qcow2::patch::{self, PatchInfo, TargetView};
use diffcache_qcow2::Qcow2Error;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::blocks::{
    check_level, manifest_dict, manifest_error, os_error, patch_error, run, set_stale, source_error,
};
use crate::errors;

/// Converts an error of the crate to the Python exception of its kind.
pub fn qcow2_error(error: Qcow2Error) -> PyErr {
    match error {
        Qcow2Error::Source(error) => source_error(error),
        Qcow2Error::Hash(error) => manifest_error(error),
        Qcow2Error::Content(error) => patch_error(error),
        Qcow2Error::Write(error) => os_error(error, "output"),
        error => errors::raise(error.kind(), error.to_string()),
    }
}

fn info_dict<'py>(py: Python<'py>, info: &PatchInfo) -> PyResult<Bound<'py, PyDict>> {
    let form = |qcow2: bool| if qcow2 { "qcow2" } else { "raw" };
    let (header, content) = (&info.header, &info.content.header);
    let dict = PyDict::new(py);
    dict.set_item("codec", "qcow2")?;
    dict.set_item("base_hash", hex::encode(&header.base_hash))?;
    dict.set_item("target_hash", hex::encode(&header.target_hash))?;
    dict.set_item("base_size", header.base_size)?;
    dict.set_item("target_size", header.target_size)?;
    dict.set_item("patch_size", info.patch_size)?;
    dict.set_item("block_size", 4096)?;
    dict.set_item("blocks_copied", content.blocks_copied)?;
    dict.set_item("blocks_inserted", content.blocks_inserted)?;
    dict.set_item("blocks_zero", content.blocks_zero)?;
    set_stale(&dict, content)?;
    dict.set_item("base_form", form(header.base_is_qcow2))?;
    dict.set_item("target_form", form(header.target_is_qcow2))?;
    dict.set_item("base_content_id", hex::encode(&content.base_hash))?;
    dict.set_item("needs_base_file", header.needs_base_file)?;
    dict.set_item("content_patch_size", header.content_len)?;
    dict.set_item("form_size", header.recipe_len)?;
    dict.set_item("clusters_compressed", header.clusters_compressed)?;
    dict.set_item("clusters_stored", header.clusters_stored)?;
    dict.set_item("clusters_copied", header.clusters_copied)?;
    dict.set_item("level", content.level as i64)?;
    Ok(dict)
}

/// Creates the patch from base to target, each a raw or a qcow2 image; returns the same as qcow2_patch_info.
#[pyfunction]
#[pyo3(signature = (base, target, patch, level=3, progress=None))]
fn qcow2_patch_create(
    py: Python<'_>,
    base: PathBuf,
    target: PathBuf,
    patch: PathBuf,
    level: i32,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    check_level(level)?;
    let info = run(py, progress, |task| {
        let options = CreateOptions {
            level,
            task: *task,
            ..CreateOptions::default()
        };
        patch::create(&base, &target, &patch, &options).map_err(qcow2_error)
    })?;
    info_dict(py, &info)
}

/// Returns the headers of a qcow2 patch as a dict; sizes in bytes. Hashes are those of the files, base_content_id that of the base's guest content.
#[pyfunction]
fn qcow2_patch_info(py: Python<'_>, patch: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let info = run(py, None, |_| patch::info(&patch).map_err(qcow2_error))?;
    info_dict(py, &info)
}

/// Writes the target of a qcow2 patch to output, verified and atomically.
#[pyfunction]
#[pyo3(signature = (base, patch, output, progress=None))]
fn qcow2_patch_apply(
    py: Python<'_>,
    base: PathBuf,
    patch: PathBuf,
    output: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    run(py, progress, |task| {
        patch::apply(&base, &patch, &output, task).map_err(qcow2_error)
    })?;
    Ok(())
}

/// Checks that a qcow2 patch would apply to base, writing nothing.
#[pyfunction]
#[pyo3(signature = (base, patch, progress=None))]
fn qcow2_patch_verify(
    py: Python<'_>,
    base: PathBuf,
    patch: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<()> {
    run(py, progress, |task| {
        patch::verify(&base, &patch, task).map_err(qcow2_error)
    })?;
    Ok(())
}

/// Returns the content id of what a guest reads from an image: the same whether it is stored as qcow2 or raw.
#[pyfunction]
#[pyo3(signature = (path, progress=None))]
fn qcow2_content_id(
    py: Python<'_>,
    path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<String> {
    let manifest = run(py, progress, |task| {
        image::content_manifest(&path, task).map_err(qcow2_error)
    })?;
    Ok(manifest.content_id_hex())
}

/// Writes the manifest of what a guest reads from an image; returns the same as manifest_create.
#[pyfunction]
#[pyo3(signature = (path, out_path, progress=None))]
fn qcow2_manifest_create(
    py: Python<'_>,
    path: PathBuf,
    out_path: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let manifest = run(py, progress, |task| {
        let manifest = image::content_manifest(&path, task).map_err(qcow2_error)?;
        manifest.save(&out_path).map_err(manifest_error)?;
        Ok(manifest)
    })?;
    manifest_dict(py, &manifest)
}

/// Writes what a guest reads from an image to output, raw, sparse and atomically; returns the same as manifest_create.
#[pyfunction]
#[pyo3(signature = (path, output, progress=None))]
fn qcow2_to_raw(
    py: Python<'_>,
    path: PathBuf,
    output: PathBuf,
    progress: Option<Py<PyAny>>,
) -> PyResult<Bound<'_, PyDict>> {
    let manifest = run(py, progress, |task| {
        image::to_raw(&path, &output, task).map_err(qcow2_error)
    })?;
    manifest_dict(py, &manifest)
}

/// Returns whether an image is qcow2, by its first bytes, and the size of the guest's disk in bytes. Refuses what patches would refuse.
#[pyfunction]
fn qcow2_probe(py: Python<'_>, path: PathBuf) -> PyResult<(bool, u64)> {
    run(py, None, |_: &Task<'_>| {
        let image = Image::open(&path).map_err(qcow2_error)?;
        Ok((image.qcow2().is_some(), image.content().len()))
    })
}

/// Returns how many bytes of the guest's disk an image stores, by its tables: what qcow2_to_raw writes at most.
#[pyfunction]
fn qcow2_data_size(py: Python<'_>, path: PathBuf) -> PyResult<u64> {
    run(py, None, |_: &Task<'_>| {
        image::data_size(&path).map_err(qcow2_error)
    })
}

/// The file that a recipe makes of raw content, read without building it: in any order, each MiB verified before it is returned.
#[pyclass(name = "RecipeTarget", module = "diffcache_openstack._native", frozen)]
struct RecipeTarget {
    view: TargetView,
}

#[pymethods]
impl RecipeTarget {
    /// Bytes of the file.
    #[getter]
    fn size(&self) -> u64 {
        self.view.size()
    }

    /// Bytes of the file from offset on; less than length of them at its end. Compresses with every core.
    fn read<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        length: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = run(py, None, |task| {
            self.view.read(offset, length, task).map_err(qcow2_error)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// Opens the file that a recipe makes, of raw content, or of the target of a block patch whose base the content is. None if the recipe does not say
/// where each part of the file is.
#[pyfunction]
#[pyo3(signature = (recipe, content, patch=None))]
fn qcow2_open(
    py: Python<'_>,
    recipe: PathBuf,
    content: PathBuf,
    patch: Option<PathBuf>,
) -> PyResult<Option<RecipeTarget>> {
    let view = run(py, None, |_| {
        let content = FileSource::open(&content).map_err(source_error)?;
        let content: Arc<dyn ReadAt> = match patch {
            None => Arc::new(content),
            Some(patch) => {
                let patch = FileSource::open(&patch).map_err(source_error)?;
                Arc::new(PatchView::open(content, patch, None).map_err(patch_error)?)
            }
        };
        TargetView::open(content, &recipe).map_err(qcow2_error)
    })?;
    Ok(view.map(|view| RecipeTarget { view }))
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(qcow2_patch_create, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_patch_info, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_patch_apply, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_patch_verify, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_content_id, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_manifest_create, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_to_raw, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_probe, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_data_size, m)?)?;
    m.add_function(wrap_pyfunction!(qcow2_open, m)?)?;
    m.add_class::<RecipeTarget>()?;
    Ok(())
}
