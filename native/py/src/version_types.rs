//! What Python hands over to a version store's blocks, and gets from it.

use std::path::PathBuf;

use diffcache_versions::save::compare;
use diffcache_versions::save::disk::{self, Format, SnapshotId};
use diffcache_versions::save::groups::{self, Alpha};
use diffcache_versions::save::{self, JournalPlace};
use diffcache_versions::store::nodes::NodeRef;
use diffcache_versions::store::pack_set::Written;
use pyo3::prelude::*;

use crate::errors::{FormatError, InvalidInput};

/// A tree's root in Python.
pub type Root = (u8, u32, u32);
/// Ranges of blocks: first, count.
pub type Ranges = Vec<(u64, u64)>;

/// The root of a tree.
pub fn to_root(root: Root) -> PyResult<NodeRef> {
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

/// The format of a disk, if one is given.
pub fn to_format(name: Option<&str>) -> PyResult<Option<Format>> {
    match name {
        None => Ok(None),
        Some("raw") => Ok(Some(Format::Raw)),
        Some("qcow2") => Ok(Some(Format::Qcow2)),
        Some(other) => Err(InvalidInput::new_err(format!(
            "disks are raw or qcow2, not {other}"
        ))),
    }
}

/// Which state of a disk is read, and how.
#[pyclass(frozen)]
pub struct DiskSource(pub disk::DiskSource);

/// A file, or a moment that QEMU exports: the path of the socket, the export's name, and that of its scratch file.
#[derive(FromPyObject)]
enum Place {
    Export((PathBuf, String, String)),
    File(PathBuf),
}

impl From<Place> for disk::Place {
    fn from(place: Place) -> Self {
        match place {
            Place::Export((socket, name, scratch)) => Self::Export {
                socket,
                name,
                scratch,
            },
            Place::File(path) => Self::File(path),
        }
    }
}

#[pymethods]
impl DiskSource {
    #[new]
    #[pyo3(signature = (place, format=None, snapshot=None, has_base=false, base_id=None, rate=None))]
    fn new(
        place: Place,
        format: Option<&str>,
        snapshot: Option<String>,
        has_base: bool,
        base_id: Option<String>,
        rate: Option<f64>,
    ) -> PyResult<Self> {
        Ok(Self(disk::DiskSource {
            place: place.into(),
            format: to_format(format)?,
            snapshot,
            has_base,
            base_id,
            rate,
        }))
    }
}

/// A version that a disk is compared with.
#[pyclass(frozen)]
pub struct Reference(pub compare::Reference);

#[pymethods]
impl Reference {
    /// `snapshot` is the name and the fingerprint of a snapshot of the disk that has the version's state.
    #[new]
    #[pyo3(signature = (root, size, snapshot=None))]
    fn new(root: Root, size: u64, snapshot: Option<(String, String)>) -> PyResult<Self> {
        Ok(Self(compare::Reference {
            root: to_root(root)?,
            size,
            snapshot: snapshot.map(|(name, fingerprint)| SnapshotId { name, fingerprint }),
        }))
    }
}

/// Which blocks that the store already has are stored again.
#[pyclass(frozen)]
pub struct Regrouping(pub groups::Regrouping);

#[pymethods]
impl Regrouping {
    /// `share` is that of the groups to store as differential; without it as few are as keep a restore below `factor` times the cost of a
    /// differential version.
    #[new]
    fn new(
        share: Option<f64>,
        factor: f64,
        group_blocks: u64,
        reference: Root,
        empty: Root,
    ) -> PyResult<Self> {
        Ok(Self(groups::Regrouping {
            alpha: share.map_or(Alpha::Automatic(factor), Alpha::Share),
            group_blocks,
            reference: to_root(reference)?,
            empty: to_root(empty)?,
        }))
    }
}

/// Where a save writes its files, and the numbers that they get.
#[pyclass(frozen)]
pub struct SaveTarget(pub save::SaveTarget);

#[pymethods]
impl SaveTarget {
    /// `journal` is a file, and a text that identifies the save, so that it is resumed after an interruption.
    #[new]
    #[pyo3(signature = (directory, version, next_pack, next_map, level, journal=None))]
    fn new(
        directory: PathBuf,
        version: u64,
        next_pack: u32,
        next_map: u32,
        level: i32,
        journal: Option<(PathBuf, String)>,
    ) -> Self {
        Self(save::SaveTarget {
            directory,
            version,
            next_pack,
            next_map,
            level,
            journal: journal.map(|(path, tag)| JournalPlace { path, tag }),
        })
    }
}

/// A pack that was written, and its index.
#[pyclass(frozen, get_all)]
#[derive(Clone)]
pub struct WrittenPack {
    id: u32,
    blocks: u64,
    data_bytes: u64,
    index_bytes: u64,
    data: PathBuf,
    index: PathBuf,
}

impl From<&Written> for WrittenPack {
    fn from(pack: &Written) -> Self {
        Self {
            id: pack.id,
            blocks: u64::from(pack.blocks),
            data_bytes: pack.data_len,
            index_bytes: pack.index_len,
            data: pack.data.clone(),
            index: pack.index.clone(),
        }
    }
}

/// What a save adds to the store.
#[pyclass(frozen, get_all)]
pub struct SavedDisk {
    size: u64,
    root: Root,
    packs: Vec<WrittenPack>,
    map: Option<PathBuf>,
    map_bytes: u64,
    blocks_changed: u64,
    bytes_read: u64,
    bytes_resumed: u64,
    is_delta: bool,
}

impl From<save::SavedDisk> for SavedDisk {
    fn from(saved: save::SavedDisk) -> Self {
        Self {
            size: saved.size,
            root: from_root(saved.root),
            packs: saved.packs.iter().map(WrittenPack::from).collect(),
            map: saved.map,
            map_bytes: saved.map_len,
            blocks_changed: saved.blocks_changed,
            bytes_read: saved.bytes_read,
            bytes_resumed: saved.bytes_resumed,
            is_delta: saved.is_delta,
        }
    }
}

/// In what a disk differs from a version.
#[pyclass(frozen, get_all)]
pub struct Comparison {
    ranges: Ranges,
    bytes_read: u64,
    blocks_stored: u64,
}

impl From<compare::Comparison> for Comparison {
    fn from(found: compare::Comparison) -> Self {
        Self {
            ranges: found.ranges,
            bytes_read: found.bytes_read,
            blocks_stored: found.blocks_stored,
        }
    }
}

/// A version's content: its tree, its bytes, and the base image's file if it has one.
#[pyclass(frozen)]
pub struct Content {
    /// The tree.
    pub root: Root,
    /// Bytes of the disk.
    pub size: u64,
    /// The base image.
    pub base: Option<PathBuf>,
}

#[pymethods]
impl Content {
    #[new]
    #[pyo3(signature = (root, size, base=None))]
    fn new(root: Root, size: u64, base: Option<PathBuf>) -> Self {
        Self { root, size, base }
    }
}

/// Adds this module's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<DiskSource>()?;
    m.add_class::<Reference>()?;
    m.add_class::<Regrouping>()?;
    m.add_class::<SaveTarget>()?;
    m.add_class::<WrittenPack>()?;
    m.add_class::<SavedDisk>()?;
    m.add_class::<Comparison>()?;
    m.add_class::<Content>()?;
    Ok(())
}
