//! Where a version store's objects are: local files, and blobs that Python reads.

use std::path::PathBuf;

use diffcache_versions::store::pack_index::Check;
use diffcache_versions::store::{Pack, Place, Remote};
use diffcache_versions::VersionsError;
use pyo3::prelude::*;

use crate::errors::ObjectMissing;

/// Reads blobs through Python callables.
pub struct Callables {
    /// Returns bytes of a blob.
    pub read: Py<PyAny>,
    /// Returns a local file that has all of a blob.
    pub fetch: Py<PyAny>,
    /// Return what the catalogue says of a pack, and of a map, that were not added; `None` if there is none.
    pub lookup: Option<(Py<PyAny>, Py<PyAny>)>,
}

/// What a catalogue says of a pack: its number, that of the version that wrote it, and that of the key that it is sealed with; its blocks and
/// bytes; its place; its index, and the checksum that this ends with.
pub type PackArguments = (
    (u32, u64, u32),
    (u32, u64),
    PlaceArgument,
    PlaceArgument,
    Check,
);

/// A pack from what the catalogue says of it.
pub fn to_pack((numbers, size, place, index, check): PackArguments) -> Pack {
    let ((id, origin, key), (blocks, data_len)) = (numbers, size);
    Pack {
        id,
        origin,
        key,
        blocks,
        data_len,
        place: place.into(),
        index: index.into(),
        check,
    }
}

impl Remote for Callables {
    fn read(&self, name: &str, offset: u64, len: usize) -> Result<Vec<u8>, VersionsError> {
        Python::attach(|py| {
            let bytes = self.read.call1(py, (name, offset, len))?;
            bytes.extract::<Vec<u8>>(py)
        })
        .map_err(|error: PyErr| unread(name, &error))
    }

    fn fetch(&self, name: &str) -> Result<PathBuf, VersionsError> {
        Python::attach(|py| self.fetch.call1(py, (name,))?.extract::<PathBuf>(py))
            .map_err(|error: PyErr| unread(name, &error))
    }

    fn pack(&self, id: u32) -> Result<Option<Pack>, VersionsError> {
        let Some((lookup, _)) = &self.lookup else {
            return Ok(None);
        };
        Python::attach(|py| {
            lookup
                .call1(py, (id,))?
                .extract::<Option<PackArguments>>(py)
        })
        .map(|found| found.map(to_pack))
        .map_err(|error: PyErr| unread(&format!("record of pack {id}"), &error))
    }

    fn map(&self, id: u32) -> Result<Option<(Place, Check)>, VersionsError> {
        let Some((_, lookup)) = &self.lookup else {
            return Ok(None);
        };
        Python::attach(|py| {
            lookup
                .call1(py, (id,))?
                .extract::<Option<(PlaceArgument, Check)>>(py)
        })
        .map(|found| found.map(|(place, check)| (place.into(), check)))
        .map_err(|error: PyErr| unread(&format!("record of map {id}"), &error))
    }
}

/// A local file, or the name of a blob.
#[derive(FromPyObject)]
pub enum PlaceArgument {
    /// A blob.
    Blob(String),
    /// A file.
    File(PathBuf),
}

impl From<PlaceArgument> for Place {
    fn from(place: PlaceArgument) -> Place {
        match place {
            PlaceArgument::Blob(name) => Place::Blob(name),
            PlaceArgument::File(path) => Place::File(path),
        }
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
