//! Python bindings of `diffcache-versions`: the blocks of a version store, and all work on them.
//!
//! What `blocks` says of the GIL, of progress and of errors holds here too. A tree's root is `(kind, map, index)` with kind 0 for all
//! zeroes, 1 for all the base image's, 2 for a node.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::Manifest;
use diffcache_core::source::ReadAt;
use diffcache_core::task::Task;
use diffcache_qcow2::header::Backing;
use diffcache_qcow2::Image as Disk;
use diffcache_versions::restore::manifest::{self, Known};
use diffcache_versions::restore::Image;
use diffcache_versions::save::compare::{compare_disk, differences};
use diffcache_versions::save::{self, SaveRequest};
use diffcache_versions::store::base::BaseIndex;
use diffcache_versions::store::check::{self, Hits};
use diffcache_versions::store::nodes::NodeRef;
use diffcache_versions::store::pack_index::{expect, Check};
use diffcache_versions::store::pack_set::Written;
use diffcache_versions::store::tree::Live;
use diffcache_versions::store::{Place, Remote, Store};
use diffcache_versions::VersionsError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::blocks::{manifest_dict, manifest_error, os_error, run};
use crate::errors::ObjectMissing;
use crate::qcow2::qcow2_error;
use crate::version_disks::DiskWriter;
use crate::version_errors::versions_error;
use crate::version_types::{
    to_root, Comparison, Content, DiskSource, Ranges, Reference, Regrouping, Root, SaveTarget,
    SavedDisk, WrittenPack,
};

/// Reads blobs through a Python callable.
struct Callable(Py<PyAny>);

impl Remote for Callable {
    fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, VersionsError> {
        Python::attach(|py| {
            let bytes = self.0.call1(py, (name, offset, len))?;
            bytes.extract::<Vec<u8>>(py)
        })
        .map_err(|error: PyErr| unread(name, &error))
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

/// The blocks of a version store: indexes of its packs, maps, and indexes of base images.
#[pyclass(frozen)]
struct BlockStore(RwLock<Store>);

/// What versions need of a store.
#[pyclass(frozen)]
struct VersionLive(Live);

impl BlockStore {
    fn store(&self) -> RwLockReadGuard<'_, Store> {
        self.0.read().unpoisoned()
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.0.write().unpoisoned()
    }
}

#[pymethods]
impl BlockStore {
    /// `read(name, offset, length)` returns bytes of packs that are not local files.
    #[new]
    #[pyo3(signature = (block_size, key, read))]
    fn new(block_size: u32, key: Option<[u8; 32]>, read: Py<PyAny>) -> PyResult<Self> {
        let mut store = Store::new(block_size, key.as_ref()).map_err(versions_error)?;
        store.set_remote(Box::new(Callable(read)));
        Ok(Self(RwLock::new(store)))
    }

    /// Sets the number of the store's key, and former keys by their numbers, which packs may still be sealed with.
    fn set_keys(&self, number: u32, former: Vec<(u32, [u8; 32])>) {
        self.write().set_keys(number, &former);
    }

    /// Closes the files of packs, which take space when they are deleted until then.
    fn close(&self) {
        self.write().close_files();
    }

    /// Adds a pack by its index: a local file, the checksum that it ends with, and the number of the key that it is sealed with.
    /// The pack itself is the local file `data`, or the blob `blob`.
    #[pyo3(signature = (id, origin, index, data=None, blob=None))]
    fn add_pack(
        &self,
        py: Python<'_>,
        id: u32,
        origin: u64,
        index: (PathBuf, Check, u32),
        data: Option<PathBuf>,
        blob: Option<String>,
    ) -> PyResult<()> {
        let (index, check, key) = index;
        py.detach(|| {
            let bytes = std::fs::read(&index)
                .map_err(|error| os_error(error, &index.display().to_string()))?;
            expect(&bytes, &check, &format!("the index of pack {id}")).map_err(versions_error)?;
            let place = match data {
                Some(path) => Place::File(path),
                None => Place::Blob(blob.unwrap_or_default()),
            };
            self.write()
                .add_pack(id, origin, &bytes, place, key)
                .map_err(versions_error)
        })
    }

    /// Adds a map, a local file that ends with a checksum. It is read when it is needed.
    fn add_map(&self, id: u32, path: PathBuf, check: Check) {
        self.write().maps.add(id, path, check);
    }

    /// Adds the index of a base image, a local file that ends with a checksum, if that is known.
    #[pyo3(signature = (id, path, check=None))]
    fn add_base(
        &self,
        py: Python<'_>,
        id: String,
        path: PathBuf,
        check: Option<Check>,
    ) -> PyResult<()> {
        py.detach(|| {
            let name = path.display().to_string();
            let bytes = std::fs::read(&path).map_err(|error| os_error(error, &name))?;
            let object = format!("base {id}");
            if let Some(check) = check {
                expect(&bytes, &check, &object).map_err(versions_error)?;
            }
            let mut store = self.write();
            let base =
                BaseIndex::decode(&bytes, store.block_size, &object).map_err(versions_error)?;
            store.add_base(id, base);
            Ok(())
        })
    }

    /// Reads a base image once and writes the index of its blocks' names.
    #[pyo3(signature = (base, out_path, progress=None))]
    fn create_base(
        &self,
        py: Python<'_>,
        base: PathBuf,
        out_path: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        run(py, progress, |task| {
            let image = Disk::open(&base).map_err(qcow2_error)?;
            let store = self.store();
            let index = BaseIndex::create(image.content(), store.block_size, &store.cipher, task)
                .map_err(versions_error)?;
            std::fs::write(&out_path, index.encode())
                .map_err(|error| os_error(error, &out_path.display().to_string()))
        })
    }

    /// Saves a disk: stores what differs from the version `against`, adds the new packs, and writes the new map.
    ///
    /// `parent` is given if it is another version, and `regrouping` if stored blocks may be stored again.
    #[pyo3(signature = (source, against, target, parent=None, regrouping=None, progress=None))]
    #[allow(clippy::too_many_arguments)] // With the interpreter's own.
    fn save_disk(
        &self,
        py: Python<'_>,
        source: &DiskSource,
        against: &Reference,
        target: &SaveTarget,
        parent: Option<&Reference>,
        regrouping: Option<&Regrouping>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<SavedDisk> {
        let request = SaveRequest {
            source: source.0.clone(),
            against: against.0.clone(),
            parent: parent.map(|parent| parent.0.clone()),
            regrouping: regrouping.map(|regrouping| regrouping.0),
            target: target.0.clone(),
        };
        let saved = run(py, progress, |task| {
            let mut saved =
                save::save_disk(&self.store(), &request, task).map_err(versions_error)?;
            let origin = request.target.version;
            let added = self.write().add_written(&saved.packs, origin);
            added.map_err(versions_error)?;
            saved.blocks_changed =
                save::blocks_changed(&self.store(), &request, &saved).map_err(versions_error)?;
            Ok(saved)
        })?;
        Ok(SavedDisk::from(saved))
    }

    /// Compares a disk with a version, reading what changed since `against`, which may be the same version.
    #[pyo3(signature = (source, against, version, progress=None))]
    fn compare_disk(
        &self,
        py: Python<'_>,
        source: &DiskSource,
        against: &Reference,
        version: &Reference,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Comparison> {
        let found = run(py, progress, |task| {
            compare_disk(&self.store(), &source.0, &against.0, &version.0, task)
                .map_err(versions_error)
        })?;
        Ok(Comparison::from(found))
    }

    /// The ranges of blocks (first, count) in which two versions differ, up to a size in bytes.
    #[pyo3(signature = (old, new, size, base_id=None))]
    fn differences(
        &self,
        py: Python<'_>,
        old: Root,
        new: Root,
        size: u64,
        base_id: Option<String>,
    ) -> PyResult<Ranges> {
        let (old, new) = (to_root(old)?, to_root(new)?);
        py.detach(|| {
            let store = self.store();
            let base = base_id.as_deref().and_then(|id| store.base(id));
            let end = size.div_ceil(u64::from(store.block_size));
            differences(&store, (old, &[]), new, base, end).map_err(versions_error)
        })
    }

    /// Writes a version to a raw file; returns the bytes written.
    #[pyo3(signature = (content, output, progress=None))]
    fn restore_raw(
        &self,
        py: Python<'_>,
        content: &Content,
        output: PathBuf,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        self.with_image(py, content, progress, |image, task| {
            image.to_raw(&output, task)
        })
    }

    /// Writes a version to a qcow2 file; returns the bytes written. With `backing` (name, format) that is its backing file, whose content is
    /// that of the base image.
    #[pyo3(signature = (content, output, backing=None, progress=None))]
    fn restore_qcow2(
        &self,
        py: Python<'_>,
        content: &Content,
        output: PathBuf,
        backing: Option<(String, String)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        self.with_image(py, content, progress, |image, task| {
            let backing = backing
                .as_ref()
                .map(|(name, format)| Backing { name, format });
            image.to_qcow2(&output, backing, task)
        })
    }

    /// Returns `length` bytes of a version from `offset` on, which are wholly inside.
    fn read<'py>(
        &self,
        py: Python<'py>,
        content: &Content,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.with_image(py, content, None, |image, _| {
            let mut bytes = vec![0; length];
            image.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes the manifest of a version; returns what `blocks.manifest_create` does. What the version shares with the tree `known` (root, manifest's
    /// path) is not read: a version of the same base image, or all the base image's blocks.
    #[pyo3(signature = (content, output, known=None, progress=None))]
    fn create_manifest<'py>(
        &self,
        py: Python<'py>,
        content: &Content,
        output: PathBuf,
        known: Option<(Root, PathBuf)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let known = known
            .map(|(root, path)| {
                let manifest = Manifest::load(&path).map_err(manifest_error)?;
                Ok::<_, PyErr>((to_root(root)?, manifest))
            })
            .transpose()?;
        let manifest = self.with_image(py, content, progress, |image, task| {
            let known = known.as_ref().map(|(root, manifest)| Known {
                root: *root,
                manifest,
            });
            manifest::create(image, known, task)
        })?;
        manifest.save(&output).map_err(manifest_error)?;
        manifest_dict(py, &manifest)
    }

    /// Writes ranges of a version's blocks to a disk; returns the bytes written.
    #[pyo3(signature = (content, ranges, disk, progress=None))]
    fn write_ranges(
        &self,
        py: Python<'_>,
        content: &Content,
        ranges: Ranges,
        disk: &DiskWriter,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        self.with_image(py, content, progress, |image, task| {
            disk.with(|writer| image.write_ranges(&ranges, writer, task))
        })
    }

    /// Reads a whole pack, which has `length` bytes; returns what is wrong with it and the slots that cannot be had.
    #[pyo3(signature = (id, length, progress=None))]
    fn verify_pack(
        &self,
        py: Python<'_>,
        id: u32,
        length: u64,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<(Vec<String>, Vec<u32>)> {
        let damage = run(py, progress, |task| {
            check::verify_pack(&self.store(), id, length, task).map_err(versions_error)
        })?;
        Ok((damage.reasons, damage.slots.into_iter().collect()))
    }

    /// The slots of the blocks that a pack has.
    fn pack_slots(&self, id: u32) -> PyResult<Vec<u32>> {
        let store = self.store();
        let pack = store.pack(id).map_err(versions_error)?;
        Ok(pack.index.all_slots().collect())
    }

    /// For each of some trees, whether it needs what is damaged (slots by pack) or missing.
    fn hits(
        &self,
        py: Python<'_>,
        roots: Vec<Root>,
        damaged: HashMap<u32, BTreeSet<u32>>,
    ) -> PyResult<Vec<bool>> {
        let roots: Vec<NodeRef> = roots.into_iter().map(to_root).collect::<PyResult<_>>()?;
        py.detach(|| {
            let store = self.store();
            let mut hits = Hits::new(&store, &damaged);
            Ok(roots.into_iter().map(|root| hits.hits(root)).collect())
        })
    }

    /// Checks a map's file; raises if it is damaged.
    fn verify_map(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        py.detach(|| {
            self.store()
                .maps
                .get(id)
                .map(|_| ())
                .map_err(versions_error)
        })
    }

    /// What some trees need, and for each of them whether all of it is known: of a tree whose map is damaged or missing only a part is.
    fn live(&self, py: Python<'_>, roots: Vec<Root>) -> PyResult<(VersionLive, Vec<bool>)> {
        let roots: Vec<NodeRef> = roots.into_iter().map(to_root).collect::<PyResult<_>>()?;
        Ok(py.detach(|| {
            let store = self.store();
            let mut live = Live::default();
            let add = |root| live.add(&store.maps, root).is_ok();
            let known = roots.into_iter().map(add).collect();
            (VersionLive(live), known)
        }))
    }

    /// Blocks of a pack that are needed, and that are not; the second is 0 if its index cannot be read.
    fn need(&self, id: u32, live: &VersionLive) -> (u64, u64) {
        let need = check::need(&self.store(), id, &live.0);
        (need.live, need.dead)
    }

    /// Nodes of a map that are needed, and that are not; the second is 0 if it cannot be read.
    fn need_map(&self, id: u32, live: &VersionLive) -> (u64, u64) {
        let need = check::need_nodes(&self.store(), id, &live.0);
        (need.live, need.dead)
    }

    /// Writes the next generation of a pack to `staging`.
    #[pyo3(signature = (id, live, staging, level, progress=None))]
    fn compact(
        &self,
        py: Python<'_>,
        id: u32,
        live: &VersionLive,
        staging: PathBuf,
        level: i32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<WrittenPack> {
        self.rewrite(py, progress, |store, task| {
            check::compact(store, id, &live.0, &staging, level, task)
        })
    }

    /// The same, with all frames compressed again.
    #[pyo3(signature = (id, live, staging, level, progress=None))]
    fn repack(
        &self,
        py: Python<'_>,
        id: u32,
        live: &VersionLive,
        staging: PathBuf,
        level: i32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<WrittenPack> {
        self.rewrite(py, progress, |store, task| {
            check::repack(store, id, &live.0, &staging, level, task)
        })
    }

    /// Writes the next generation of a map to `staging`; returns its path and its bytes.
    fn compact_map(
        &self,
        py: Python<'_>,
        id: u32,
        live: &VersionLive,
        staging: PathBuf,
    ) -> PyResult<(PathBuf, u64)> {
        py.detach(|| {
            check::compact_map(&self.store(), id, &live.0, &staging).map_err(versions_error)
        })
    }
}

impl BlockStore {
    fn rewrite(
        &self,
        py: Python<'_>,
        progress: Option<Py<PyAny>>,
        write: impl FnOnce(&Store, &Task<'_>) -> Result<Written, VersionsError> + Send,
    ) -> PyResult<WrittenPack> {
        let written = run(py, progress, |task| {
            write(&self.store(), task).map_err(versions_error)
        })?;
        Ok(WrittenPack::from(&written))
    }

    fn with_image<T: Send>(
        &self,
        py: Python<'_>,
        content: &Content,
        progress: Option<Py<PyAny>>,
        job: impl FnOnce(&Image<'_>, &Task<'_>) -> Result<T, VersionsError> + Send,
    ) -> PyResult<T> {
        let root = to_root(content.root)?;
        run(py, progress, |task| {
            let store = self.store();
            let base = content.base.as_deref().map(Disk::open).transpose();
            let base = base.map_err(qcow2_error)?;
            let image = Image {
                store: &store,
                root,
                size: content.size,
                base: base.as_ref().map(Disk::content),
            };
            job(&image, task).map_err(versions_error)
        })
    }
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<BlockStore>()?;
    m.add_class::<VersionLive>()?;
    Ok(())
}
