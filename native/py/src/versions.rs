//! Python bindings of `diffcache-versions`: what a store of versions holds, and everything that touches every block.
//!
//! What is said in `blocks` of the GIL, of progress and of errors holds here too. A tree's root is `(kind, map, index)` with kind 0 for all
//! zeroes, 1 for all the base image's, 2 for a node.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use diffcache_core::source::FileSource;
use diffcache_core::task::Task;
use diffcache_qcow2::header::Backing;
use diffcache_qcow2::snapshots::Disk as Qcow2Disk;
use diffcache_qcow2::Image as Disk;
use diffcache_versions::base::BaseIndex;
use diffcache_versions::check::{self, Hits};
use diffcache_versions::crypt::Name;
use diffcache_versions::disk::{Format, View, Wanted};
use diffcache_versions::journal;
use diffcache_versions::map::{BlockRef, NodeRef};
use diffcache_versions::pack::{PackOptions, Written};
use diffcache_versions::restore::{differences, Image, Sink};
use diffcache_versions::save::{self, SaveOptions};
use diffcache_versions::scan::{Look, Parent, SPOOLED};

use diffcache_versions::store::{Place, Remote, Store};
use diffcache_versions::tree::{self, Live};
use diffcache_versions::VersionsError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::blocks::{
    os_error, run, source_error, Cancelled, FormatError, IntegrityError, SourceUnavailable,
};
use crate::dataplane::ObjectMissing;
use crate::qcow2::{qcow2_error, InvalidInput};

/// A tree's root as Python has it.
type Root = (u8, u32, u32);
/// Ranges of blocks: first, count.
type Ranges = Vec<(u64, u64)>;
/// First block, blocks, origin, pack, slot.
type StoredRun = (u64, u64, u64, u32, u32);
/// Number of the run, pack, frame, bytes of the frame, blocks used of it.
type UsedFrame = (u32, u32, u32, u32, u32);

fn versions_error(error: VersionsError) -> PyErr {
    let message = error.to_string();
    match error {
        VersionsError::Source(error) => source_error(error),
        VersionsError::Qcow2(error) => qcow2_error(error),
        VersionsError::Io { name, source } => os_error(source, &name),
        VersionsError::Damaged { .. } => IntegrityError::new_err(message),
        VersionsError::Missing(_) => ObjectMissing::new_err(message),
        VersionsError::Invalid(_) => InvalidInput::new_err(message),
        VersionsError::Unavailable { .. } => SourceUnavailable::new_err(message),
        VersionsError::Cancelled(_) => Cancelled::new_err(message),
    }
}

fn to_root(root: Root) -> PyResult<NodeRef> {
    match root {
        (0, _, _) => Ok(NodeRef::Zero),
        (1, _, _) => Ok(NodeRef::Base),
        (2, map, index) => Ok(NodeRef::Node { map, index }),
        _ => Err(FormatError::new_err("a version's root is of no known kind")),
    }
}

fn from_root(root: NodeRef) -> Root {
    match root {
        NodeRef::Zero => (0, 0, 0),
        NodeRef::Base => (1, 0, 0),
        NodeRef::Node { map, index } => (2, map, index),
    }
}

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

/// Why a blob was not read.
fn unread(name: &str, error: &PyErr) -> VersionsError {
    match Python::attach(|py| error.is_instance_of::<ObjectMissing>(py)) {
        true => VersionsError::Missing(name.to_owned()),
        false => VersionsError::Unavailable {
            name: name.to_owned(),
            reason: error.to_string(),
        },
    }
}

/// Gives a disk's new content to two Python callables.
struct Callables {
    write: Py<PyAny>,
    zero: Py<PyAny>,
    raised: Option<PyErr>,
}

impl Callables {
    fn keep(&mut self, outcome: PyResult<Py<PyAny>>) -> Result<(), VersionsError> {
        outcome.map(|_| ()).map_err(|error| {
            self.raised = Some(error);
            VersionsError::Cancelled(diffcache_core::task::Cancelled)
        })
    }
}

impl Sink for Callables {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), VersionsError> {
        let outcome = Python::attach(|py| self.write.call1(py, (offset, PyBytes::new(py, bytes))));
        self.keep(outcome)
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<(), VersionsError> {
        let outcome = Python::attach(|py| self.zero.call1(py, (offset, len)));
        self.keep(outcome)
    }
}

/// What a store holds, and the blocks that disks saved together brought to it.
#[pyclass(frozen)]
struct VersionStore {
    store: RwLock<Store>,
    session: RwLock<HashMap<Name, BlockRef>>,
}

/// What changed on a disk, found but not yet a version.
#[pyclass(frozen)]
struct VersionDraft {
    draft: save::Draft,
    parent: NodeRef,
    /// Only what the tables of two snapshots tell was looked at.
    #[pyo3(get)]
    delta: bool,
}

/// What versions need of a store.
#[pyclass(frozen)]
struct VersionLive(Live);

fn written_dict<'py>(py: Python<'py>, pack: &Written) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("id", pack.id)?;
    dict.set_item("blocks", pack.blocks)?;
    dict.set_item("data_bytes", pack.data_len)?;
    dict.set_item("index_bytes", pack.index_len)?;
    dict.set_item("data", &pack.data)?;
    dict.set_item("index", &pack.index)?;
    Ok(dict)
}

fn save_options(
    store: &Store,
    dir: &Path,
    next_pack: u32,
    level: i32,
    journal: Option<(PathBuf, String)>,
) -> SaveOptions {
    SaveOptions {
        packs: PackOptions {
            dir: dir.to_owned(),
            block_size: store.block_size,
            level,
        },
        next_pack,
        journal: journal.map(|(path, tag)| journal::Place { path, tag }),
    }
}

impl VersionStore {
    fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl VersionStore {
    #[new]
    #[pyo3(signature = (block_size, key=None))]
    fn new(block_size: u32, key: Option<[u8; 32]>) -> PyResult<Self> {
        let store = Store::new(block_size, key.as_ref()).map_err(versions_error)?;
        Ok(Self {
            store: RwLock::new(store),
            session: RwLock::default(),
        })
    }

    /// Sets who reads packs that are no local files: `read(name, offset, length)` returns bytes.
    fn set_reader(&self, read: Py<PyAny>) {
        self.write().set_remote(Box::new(Callable(read)));
    }

    /// Adds a pack by its index, which is a local file. `data` is a local file's path, `blob` the name that the reader is given.
    #[pyo3(signature = (id, origin, index, data=None, blob=None))]
    fn add_pack(
        &self,
        py: Python<'_>,
        id: u32,
        origin: u64,
        index: PathBuf,
        data: Option<PathBuf>,
        blob: Option<String>,
    ) -> PyResult<()> {
        py.detach(|| {
            let bytes = std::fs::read(&index)
                .map_err(|error| os_error(error, &index.display().to_string()))?;
            let place = match data {
                Some(path) => Place::File(path),
                None => Place::Blob(blob.unwrap_or_default()),
            };
            self.write()
                .add_pack(id, origin, &bytes, place)
                .map_err(versions_error)
        })
    }

    /// Adds a map, a local file; it is read when it is needed.
    fn add_map(&self, id: u32, path: PathBuf) {
        self.write().maps.add(id, path);
    }

    /// Adds the index of a base image, a local file.
    fn add_base(&self, py: Python<'_>, id: String, path: PathBuf) -> PyResult<()> {
        py.detach(|| {
            let name = path.display().to_string();
            let bytes = std::fs::read(&path).map_err(|error| os_error(error, &name))?;
            let mut store = self.write();
            let base = BaseIndex::decode(&bytes, store.block_size, &format!("base {id}"))
                .map_err(versions_error)?;
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
            let store = self.read();
            let index = BaseIndex::create(image.content(), store.block_size, &store.cipher, task)
                .map_err(versions_error)?;
            std::fs::write(&out_path, index.encode())
                .map_err(|error| os_error(error, &out_path.display().to_string()))
        })
    }

    /// Finds what changed on a disk since its parent. `target` says what becomes of new blocks: 'packs' (stored at once), 'spool' (stored
    /// by `store` with others), 'names' (nothing is stored). `parent_snapshot` is the name and the fingerprint of the snapshot that keeps
    /// the parent's state. `rate` is in bytes per second. `journal` is a file in which a long scan, of which new blocks are
    /// stored or spooled, writes down how far it is, and what tells the save from others: the same scan, made again after it was
    /// interrupted, goes on there.
    #[pyo3(signature = (disk, parent, parent_size, target, staging, next_pack, level, *,
                        disk_format=None, snapshot=None, parent_snapshot=None, has_base=false, base_id=None, rate=None,
                        journal=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn scan(
        &self,
        py: Python<'_>,
        disk: PathBuf,
        parent: Root,
        parent_size: u64,
        target: &str,
        staging: PathBuf,
        next_pack: u32,
        level: i32,
        disk_format: Option<&str>,
        snapshot: Option<String>,
        parent_snapshot: Option<(String, String)>,
        has_base: bool,
        base_id: Option<String>,
        rate: Option<f64>,
        journal: Option<(PathBuf, String)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<VersionDraft> {
        let (root, format) = (to_root(parent)?, to_format(disk_format)?);
        run(py, progress, |task| {
            let store = self.read();
            let wanted = Wanted {
                format,
                snapshot: snapshot.as_deref(),
                parent: parent_snapshot
                    .as_ref()
                    .map(|(name, print)| (name.as_str(), print.as_str())),
                has_base,
            };
            let file = FileSource::open(&disk).map_err(source_error)?;
            let (view, delta) =
                View::open(file, &wanted, store.block_size).map_err(versions_error)?;
            let look = Look {
                store: &store,
                view: &view,
                parent: Parent {
                    root,
                    size: parent_size,
                    base: base_id.as_deref().and_then(|id| store.base(id)),
                    has_base,
                },
                rate,
                task,
            };
            let options = save_options(&store, &staging, next_pack, level, journal);
            let mut session = self.session.write().unwrap_or_else(PoisonError::into_inner);
            let draft = match target {
                "packs" => save::incremental(&look, &options, &mut session),
                "spool" => save::spooled(&look, &options, &mut session),
                _ => save::compare(&look),
            };
            Ok(VersionDraft {
                draft: draft.map_err(versions_error)?,
                parent: root,
                delta,
            })
        })
    }

    /// Writes what makes a draft a version to `staging`. `again` are ranges of blocks (first, count) to be stored with the new ones.
    #[pyo3(signature = (draft, map_id, again, staging, next_pack, level, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn store<'py>(
        &self,
        py: Python<'py>,
        draft: &VersionDraft,
        map_id: u32,
        again: Ranges,
        staging: PathBuf,
        next_pack: u32,
        level: i32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let saved = run(py, progress, |task| {
            let store = self.read();
            let options = save_options(&store, &staging, next_pack, level, None);
            draft
                .draft
                .store(&store, draft.parent, map_id, &again, &options, task)
                .map_err(versions_error)
        })?;
        let dict = PyDict::new(py);
        let packs: PyResult<Vec<_>> = saved
            .packs
            .iter()
            .map(|pack| written_dict(py, pack))
            .collect();
        dict.set_item("root", from_root(saved.root))?;
        dict.set_item("packs", packs?)?;
        dict.set_item("map", saved.map)?;
        dict.set_item("map_bytes", saved.map_len)?;
        dict.set_item("blocks_rewritten", saved.rewritten)?;
        Ok(dict)
    }

    /// The draft's tree, in memory only, under a map's number that is not taken.
    fn preview(&self, draft: &VersionDraft, map_id: u32) -> PyResult<Root> {
        let store = self.read();
        let root = draft.draft.preview(&store, draft.parent, map_id);
        root.map(from_root).map_err(versions_error)
    }

    /// What a tree keeps that another does not: runs (first block, blocks, origin, pack, slot), ascending; zeroes and the base's blocks are
    /// left out. The origin of blocks that are in no pack yet is `own`.
    fn differential(
        &self,
        py: Python<'_>,
        base: Root,
        root: Root,
        own: u64,
    ) -> PyResult<Vec<StoredRun>> {
        let (base, root) = (to_root(base)?, to_root(root)?);
        py.detach(|| {
            let store = self.read();
            let mut out: Vec<StoredRun> = Vec::new();
            tree::diff(&store.maps, base, root, &mut |part| {
                let BlockRef::Stored { pack, slot } = part.new else {
                    return Ok(());
                };
                let origin = match pack {
                    SPOOLED => own,
                    _ => store.pack(pack)?.origin,
                };
                match out.last_mut() {
                    Some((start, len, _, last, first))
                        if *start + *len == part.start
                            && *last == pack
                            && u64::from(*first) + *len == u64::from(slot) =>
                    {
                        *len += part.len;
                    }
                    _ => out.push((part.start, part.len, origin, pack, slot)),
                }
                Ok(())
            })
            .map_err(versions_error)?;
            Ok(out)
        })
    }

    /// The frames that runs of `differential` lie in: for each run, (pack, frame, bytes of the frame, blocks of the run in it).
    fn frames(&self, py: Python<'_>, runs: Vec<(u32, u32, u64)>) -> PyResult<Vec<UsedFrame>> {
        py.detach(|| {
            let store = self.read();
            let mut out = Vec::new();
            for (number, (pack, slot, len)) in (0u32..).zip(runs) {
                if pack == SPOOLED {
                    continue;
                }
                let index = &store.pack(pack).map_err(versions_error)?.index;
                let mut at = 0;
                while at < len {
                    let (frame, within) = store
                        .locate(pack, slot + at as u32)
                        .map_err(versions_error)?;
                    let what = &index.frames[frame];
                    let count = u64::from(what.count - within).min(len - at);
                    out.push((number, pack, frame as u32, what.len, count as u32));
                    at += count;
                }
            }
            Ok(out)
        })
    }

    /// The ranges of blocks (first, count) in which two versions differ, up to a size in bytes. `old` may be a draft's preview.
    #[pyo3(signature = (old, new, size, base_id=None, draft=None))]
    fn differences(
        &self,
        py: Python<'_>,
        old: Root,
        new: Root,
        size: u64,
        base_id: Option<String>,
        draft: Option<&VersionDraft>,
    ) -> PyResult<Ranges> {
        let (old, new) = (to_root(old)?, to_root(new)?);
        py.detach(|| {
            let store = self.read();
            let base = base_id.as_deref().and_then(|id| store.base(id));
            let end = size.div_ceil(u64::from(store.block_size));
            let draft = draft.map(|draft| &draft.draft);
            differences(&store, (old, draft), new, base, end).map_err(versions_error)
        })
    }

    /// Writes a version to a raw file; returns the bytes written.
    #[pyo3(signature = (root, size, output, base=None, progress=None))]
    fn restore_raw(
        &self,
        py: Python<'_>,
        root: Root,
        size: u64,
        output: PathBuf,
        base: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let root = to_root(root)?;
        self.with_image(py, root, size, base, progress, |image, task| {
            image.to_raw(&output, task)
        })
    }

    /// Writes a version to a qcow2 file; returns the bytes written. With `backing` (name, format) the file lies on that image, whose content
    /// `base` has.
    #[pyo3(signature = (root, size, output, base=None, backing=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn restore_qcow2(
        &self,
        py: Python<'_>,
        root: Root,
        size: u64,
        output: PathBuf,
        base: Option<PathBuf>,
        backing: Option<(String, String)>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<u64> {
        let root = to_root(root)?;
        self.with_image(py, root, size, base, progress, |image, task| {
            let backing = backing
                .as_ref()
                .map(|(name, format)| Backing { name, format });
            image.to_qcow2(&output, backing, task)
        })
    }

    /// Gives what ranges of a version's blocks hold to `write(offset, bytes)` and `zero(offset, length)`, in order.
    #[pyo3(signature = (root, size, ranges, write, zero, base=None, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn give(
        &self,
        py: Python<'_>,
        root: Root,
        size: u64,
        ranges: Ranges,
        write: Py<PyAny>,
        zero: Py<PyAny>,
        base: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let root = to_root(root)?;
        let mut sink = Callables {
            write,
            zero,
            raised: None,
        };
        let outcome = self.with_image(py, root, size, base, progress, |image, task| {
            image.give(&ranges, &mut sink, task)
        });
        sink.raised.map_or(outcome, Err)
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
            check::verify_pack(&self.read(), id, length, task).map_err(versions_error)
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
            let store = self.read();
            let mut hits = Hits::new(&store, &damaged);
            Ok(roots.into_iter().map(|root| hits.hits(root)).collect())
        })
    }

    /// Checks a map's file; raises if it is damaged.
    fn verify_map(&self, py: Python<'_>, id: u32) -> PyResult<()> {
        py.detach(|| self.read().maps.get(id).map(|_| ()).map_err(versions_error))
    }

    /// What some trees need.
    fn live(&self, py: Python<'_>, roots: Vec<Root>) -> PyResult<VersionLive> {
        let roots: Vec<NodeRef> = roots.into_iter().map(to_root).collect::<PyResult<_>>()?;
        py.detach(|| {
            let store = self.read();
            let mut live = Live::default();
            for root in roots {
                live.add(&store.maps, root).map_err(versions_error)?;
            }
            Ok(VersionLive(live))
        })
    }

    /// Blocks of a pack that are needed, and that are not.
    fn need(&self, id: u32, live: &VersionLive) -> PyResult<(u64, u64)> {
        let need = check::need(&self.read(), id, &live.0).map_err(versions_error)?;
        Ok((need.live, need.dead))
    }

    /// Nodes of a map that are needed, and that are not.
    fn need_map(&self, id: u32, live: &VersionLive) -> PyResult<(u64, u64)> {
        let map = self.read().maps.get(id).map_err(versions_error)?;
        let all = (0..map.len() as u32).filter(|i| map.node(*i).is_ok());
        let needed = live.0.nodes_of(id);
        Ok((needed, all.count() as u64 - needed))
    }

    /// Writes the next generation of a pack to `staging`.
    #[pyo3(signature = (id, live, staging, level, progress=None))]
    fn compact<'py>(
        &self,
        py: Python<'py>,
        id: u32,
        live: &VersionLive,
        staging: PathBuf,
        level: i32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        self.rewrite(py, progress, |store, task| {
            check::compact(store, id, &live.0, &staging, level, task)
        })
    }

    /// The same, with all frames compressed again.
    #[pyo3(signature = (id, live, staging, level, progress=None))]
    fn repack<'py>(
        &self,
        py: Python<'py>,
        id: u32,
        live: &VersionLive,
        staging: PathBuf,
        level: i32,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
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
            check::compact_map(&self.read(), id, &live.0, &staging).map_err(versions_error)
        })
    }
}

impl VersionStore {
    fn rewrite<'py>(
        &self,
        py: Python<'py>,
        progress: Option<Py<PyAny>>,
        write: impl FnOnce(&Store, &Task<'_>) -> Result<Written, VersionsError> + Send,
    ) -> PyResult<Bound<'py, PyDict>> {
        let written = run(py, progress, |task| {
            write(&self.read(), task).map_err(versions_error)
        })?;
        written_dict(py, &written)
    }

    fn with_image<T: Send>(
        &self,
        py: Python<'_>,
        root: NodeRef,
        size: u64,
        base: Option<PathBuf>,
        progress: Option<Py<PyAny>>,
        job: impl FnOnce(&Image<'_>, &Task<'_>) -> Result<T, VersionsError> + Send,
    ) -> PyResult<T> {
        run(py, progress, |task| {
            let store = self.read();
            let base = base.as_deref().map(Disk::open).transpose();
            let base = base.map_err(qcow2_error)?;
            let image = Image {
                store: &store,
                root,
                size,
                base: base.as_ref().map(Disk::content),
            };
            job(&image, task).map_err(versions_error)
        })
    }
}

#[pymethods]
impl VersionDraft {
    /// Bytes of the disk.
    #[getter]
    fn size(&self) -> u64 {
        self.draft.size
    }

    /// Bytes that were read of the disk.
    #[getter]
    fn bytes_read(&self) -> u64 {
        self.draft.bytes_read
    }

    /// Of these, the ones that an interrupted save had read.
    #[getter]
    fn bytes_before(&self) -> u64 {
        self.draft.bytes_before
    }

    /// Blocks that differ from the parent's.
    #[getter]
    fn blocks_changed(&self) -> u64 {
        self.draft.counts.changed
    }

    /// Of these, the ones that the store already had.
    #[getter]
    fn blocks_deduplicated(&self) -> u64 {
        self.draft.counts.deduplicated
    }

    /// Of these, the ones that are new.
    #[getter]
    fn blocks_new(&self) -> u64 {
        self.draft.counts.new
    }
}

fn to_format(told: Option<&str>) -> PyResult<Option<Format>> {
    match told {
        None => Ok(None),
        Some("raw") => Ok(Some(Format::Raw)),
        Some("qcow2") => Ok(Some(Format::Qcow2)),
        Some(other) => Err(InvalidInput::new_err(format!(
            "disks are raw or qcow2, not {other}"
        ))),
    }
}

/// What the tables of a disk say: format, size in bytes, cluster size, backing file's name, snapshots as (number, name, fingerprint).
///
/// A disk that is told to be `raw` is, whatever its guest wrote to its beginning; without `disk_format` that is believed.
#[pyfunction]
#[pyo3(signature = (disk, disk_format=None))]
fn version_disk_info<'py>(
    py: Python<'py>,
    disk: PathBuf,
    disk_format: Option<&str>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    let file = FileSource::open(&disk).map_err(source_error)?;
    let format = Format::of(to_format(disk_format)?, &file).map_err(versions_error)?;
    if format == Format::Raw {
        dict.set_item("format", "raw")?;
        dict.set_item("size", diffcache_core::source::ReadAt::len(&file))?;
        dict.set_item("cluster_size", py.None())?;
        dict.set_item("backing", py.None())?;
        dict.set_item("snapshots", Vec::<(String, String, String)>::new())?;
        return Ok(dict);
    }
    let tables = Qcow2Disk::open(&file).map_err(qcow2_error)?;
    let snapshots: Vec<(String, String, String)> = tables
        .snapshots
        .iter()
        .map(|s| (s.id.clone(), s.name.clone(), s.fingerprint.clone()))
        .collect();
    dict.set_item("format", "qcow2")?;
    dict.set_item("size", tables.header().size)?;
    dict.set_item("cluster_size", tables.header().cluster_size())?;
    dict.set_item("backing", tables.backing.clone())?;
    dict.set_item("snapshots", snapshots)?;
    Ok(dict)
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<VersionStore>()?;
    m.add_class::<VersionDraft>()?;
    m.add_class::<VersionLive>()?;
    m.add_function(wrap_pyfunction!(version_disk_info, m)?)?;
    Ok(())
}
