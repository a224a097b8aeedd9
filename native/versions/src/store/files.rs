//! The store's files, as one process sees them: local ones, and blobs of a remote store.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::{open_file, FileSource, ReadAt};

use super::pack_index::Check;
use super::Pack;
use crate::error::{Result, VersionsError};

/// Reads blobs that are not local files.
pub trait Remote: Send + Sync {
    /// `len` bytes of the blob `name` from `offset` on.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>>;

    /// A local file that has the bytes of the blob `name`, which is small.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    fn fetch(&self, name: &str) -> Result<PathBuf>;

    /// A pack that was not added to the store, if there is one of that number.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    fn pack(&self, id: u32) -> Result<Option<Pack>>;

    /// The place of a map that was not added to the store, and the checksum that it ends with, if there is one of that number.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    fn map(&self, id: u32) -> Result<Option<(Place, Check)>>;
}

/// Where an object's bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A local file.
    File(PathBuf),
    /// A blob that `Remote` reads.
    Blob(String),
}

impl Place {
    /// What errors call it.
    pub fn name(&self) -> String {
        match self {
            Place::File(path) => path.display().to_string(),
            Place::Blob(name) => name.clone(),
        }
    }
}

/// Opens files of the store, and remembers which of them are damaged.
#[derive(Default)]
pub(super) struct Files {
    remote: Option<Box<dyn Remote>>,
    damage: Mutex<BTreeMap<String, String>>,
}

impl Files {
    pub(super) fn new(remote: Box<dyn Remote>) -> Files {
        Files {
            remote: Some(remote),
            damage: Mutex::default(),
        }
    }

    /// A pack that was not added to the store, if there is one.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    pub(super) fn pack(&self, id: u32) -> Result<Option<Pack>> {
        self.remote
            .as_deref()
            .map_or(Ok(None), |remote| remote.pack(id))
    }

    /// A map that was not added to the store, if there is one.
    ///
    /// # Errors
    /// `Unavailable`, `Missing`.
    pub(super) fn map(&self, id: u32) -> Result<Option<(Place, Check)>> {
        self.remote
            .as_deref()
            .map_or(Ok(None), |remote| remote.map(id))
    }

    /// Opens a file of which parts are read.
    ///
    /// # Errors
    /// `Missing`, `Unavailable`, `Io`.
    pub(super) fn open(&self, place: &Place) -> Result<FileSource> {
        let path = match place {
            Place::File(path) => path.clone(),
            Place::Blob(name) => self.remote(name)?.fetch(name)?,
        };
        let unread = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => VersionsError::Missing(place.name()),
            _ => VersionsError::io(path.display().to_string())(source),
        };
        let file: File = open_file(&path).map_err(unread)?;
        Ok(FileSource::from_file(file, path.display().to_string())?)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// As `open`.
    pub(super) fn read(&self, place: &Place) -> Result<Vec<u8>> {
        let file = self.open(place)?;
        let mut bytes = vec![0; file.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Returns who reads a blob.
    ///
    /// # Errors
    /// `Missing` if nothing does.
    pub(super) fn remote(&self, name: &str) -> Result<&dyn Remote> {
        let remote = self.remote.as_deref();
        remote.ok_or_else(|| VersionsError::Missing(name.to_owned()))
    }

    /// Returns what reading an object led to; remembers it if it is damage.
    pub(super) fn noted<T>(&self, place: &Place, read: Result<T>) -> Result<T> {
        read.inspect_err(|error| {
            if error.is_damage() {
                let mut damage = self.damage.lock().unpoisoned();
                damage.insert(place.name(), error.to_string());
            }
        })
    }

    /// What was found to be damaged or missing, and why.
    pub(super) fn damage(&self) -> BTreeMap<String, String> {
        self.damage.lock().unpoisoned().clone()
    }
}
