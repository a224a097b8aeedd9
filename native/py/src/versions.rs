//! Python bindings of `diffcache-versions`: the blocks of a version store, and all work on them.
//!
//! What `blocks` says of the GIL, of progress and of errors holds here too. A tree's root is `(kind, map, index)` with kind 0 for all
//! zeroes, 1 for all the base image's, 2 for a node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
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
use diffcache_versions::store::pack_index::Check;
use diffcache_versions::store::pack_set::Written;
use diffcache_versions::store::tree::Live;
use diffcache_versions::store::Store;
use diffcache_versions::VersionsError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::blocks::{manifest_dict, manifest_error, os_error, run};
use crate::qcow2::qcow2_error;
use crate::version_disks::DiskWriter;
use crate::version_errors::versions_error;
use crate::version_places::{to_pack, Callables, PlaceArgument};
use crate::version_types::{
    to_root, Comparison, Content, DiskSource, Ranges, Reference, Regrouping, Root, SaveTarget,
    SavedDisk, WrittenPack,
};

/// The blocks of a version store: indexes of its packs, maps, and indexes of base images.
#[pyclass(frozen)]
pub struct BlockStore(RwLock<Store>);

/// What versions need of a store.
#[pyclass(frozen)]
struct VersionLive(Live);

impl BlockStore {
    pub(crate) fn store(&self) -> RwLockReadGuard<'_, Store> {
        self.0.read().unpoisoned()
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.0.write().unpoisoned()
    }
}

#[pymethods]
impl VersionLive {
    /// The packs of which something is needed.
    fn packs(&self) -> Vec<u32> {
        self.0.packs().collect()
    }

    /// The maps of which something is needed.
    fn maps(&self) -> Vec<u32> {
        self.0.maps().collect()
    }
}

#[pymethods]
impl BlockStore {
    /// `read(name, offset, length)` returns bytes of a blob, `fetch(name)` a local file that has all of a small one.
    /// Of a store of many packs, `lookup` has the number of the next map, and functions that return what the catalogue says of packs and maps
    /// that are not added: the arguments of `add_pack`, and those of `add_map` without the number, or `None`.
    #[new]
    #[pyo3(signature = (block_size, key, read, fetch, lookup=None))]
    fn new(
        block_size: u32,
        key: Option<[u8; 32]>,
        read: Py<PyAny>,
        fetch: Py<PyAny>,
        lookup: Option<(u32, Py<PyAny>, Py<PyAny>)>,
    ) -> PyResult<Self> {
        let mut store = Store::new(block_size, key.as_ref()).map_err(versions_error)?;
        if let Some((next, ..)) = &lookup {
            store.set_large(*next);
        }
        let lookup = lookup.map(|(_, pack, map)| (pack, map));
        store.set_remote(Box::new(Callables {
            read,
            fetch,
            lookup,
        }));
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

    /// Adds a pack: its number, that of the version that wrote it, and that of the key that it is sealed with; its blocks and bytes;
    /// its index, and the checksum that this ends with. The index is read when it is needed.
    fn add_pack(
        &self,
        numbers: (u32, u64, u32),
        size: (u32, u64),
        place: PlaceArgument,
        index: PlaceArgument,
        check: Check,
    ) -> PyResult<()> {
        let pack = to_pack((numbers, size, place, index, check));
        self.write().add_pack(pack).map_err(versions_error)
    }

    /// Removes a pack, so that trees that need it are found.
    fn remove_pack(&self, id: u32) {
        self.write().remove_pack(id);
    }

    /// Adds a map that ends with a checksum. It is read when it is needed.
    fn add_map(&self, id: u32, place: PlaceArgument, check: Check) {
        self.write().maps.add(id, place.into(), check);
    }

    /// Adds the index of a base image, which ends with a checksum, if that is known. It is read when it is needed.
    #[pyo3(signature = (id, place, check=None))]
    fn add_base(&self, id: String, place: PlaceArgument, check: Option<Check>) {
        self.write().add_base(id, place.into(), check);
    }

    /// What was found to be damaged or missing of indexes and maps so far, by blob, and why.
    fn damage(&self, py: Python<'_>) -> BTreeMap<String, String> {
        py.detach(|| self.store().damage())
    }

    /// Reads all of a pack's index; raises if it is damaged.
    fn verify_index(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        py.detach(|| self.store().check_index(id).map_err(versions_error))
    }

    /// Reads the index of a base image, which ends with a checksum; raises if it is damaged.
    fn verify_base(
        &self,
        py: Python<'_>,
        id: &str,
        place: PlaceArgument,
        check: Check,
    ) -> PyResult<()> {
        let read = || self.store().read_base(id, &place.into(), Some(&check));
        py.detach(|| read().map(|_| ()).map_err(versions_error))
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
            let base = store.base(base_id.as_deref()).map_err(versions_error)?;
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
            let found = roots.into_iter().map(|root| hits.hits(root));
            found.collect::<Result<_, _>>().map_err(versions_error)
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
        py.detach(|| {
            let store = self.store();
            let mut live = Live::default();
            let mut add = |root| check::known(live.add(&store.maps, root));
            let known: Result<Vec<_>, _> = roots.into_iter().map(&mut add).collect();
            let known = known.map_err(versions_error)?;
            let known = known.iter().map(Option::is_some).collect();
            Ok((VersionLive(live), known))
        })
    }

    /// Blocks of a pack that are needed, and that are not; the second is 0 if its index cannot be read.
    fn need(&self, py: Python<'_>, id: u32, live: &VersionLive) -> PyResult<(u64, u64)> {
        let need = py.detach(|| check::need(&self.store(), id, &live.0));
        need.map(|need| (need.live, need.dead))
            .map_err(versions_error)
    }

    /// Nodes of a map that are needed, and that are not; the second is 0 if it cannot be read.
    fn need_map(&self, py: Python<'_>, id: u32, live: &VersionLive) -> PyResult<(u64, u64)> {
        let need = py.detach(|| check::need_nodes(&self.store(), id, &live.0));
        need.map(|need| (need.live, need.dead))
            .map_err(versions_error)
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
