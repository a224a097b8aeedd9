//! A saved version as the source of an image: its blocks are read from the packs of their store, and from its base image.
//!
//! A [`Description`] says where these are. Its paths may be descriptors of this process, `/proc/self/fd/N`: packs that are open can be read to the
//! end, whatever is deleted or pruned meanwhile, and by a worker that may open nothing else. Of other paths only packs that were read before can.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diffcache_base::hex;
use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_qcow2::Image;
use diffcache_versions::restore::content::Content;
use diffcache_versions::store::map::MapFile;
use diffcache_versions::store::nodes::NodeRef;
use diffcache_versions::store::pack_index::{expect, Check};
use diffcache_versions::store::{self, Store};
use diffcache_versions::VersionsError;
use serde::Deserialize;

use crate::config::{Place, VersionPlace};
use crate::sources::source::{Source, SourceError};

/// Decompressed frames kept in memory, in bytes.
const CACHE: usize = 16 << 20;
/// Longest description: a million packs.
const MAX_DESCRIPTION: u64 = 256 << 20;

/// What is needed of a store to read one version, as JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// Bytes of the disk.
    size: u64,
    /// The version's tree: its kind (0 all zeroes, 1 all the base image's blocks, 2 a node), and the node's map and place there.
    root: (u8, u32, u32),
    /// Bytes of a block.
    block_size: u32,
    /// The number of the present key.
    key_number: u32,
    /// Keys by their numbers, as hexadecimal digits; none in a store without a key.
    keys: BTreeMap<u32, String>,
    packs: Vec<PackPlace>,
    maps: Vec<MapPlace>,
}

/// A pack that the version needs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PackPlace {
    id: u32,
    /// Number of the key that it is sealed with.
    key: u32,
    index: PathBuf,
    /// The checksum that the index ends with, as hexadecimal digits.
    check: String,
    data: PathBuf,
}

/// A map that the version needs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MapPlace {
    id: u32,
    path: PathBuf,
    /// The checksum that it ends with, as hexadecimal digits.
    check: String,
}

/// A saved version. It is opened by the first read that succeeds in that: its store may be away, or have been pruned.
pub struct VersionSource {
    name: String,
    place: VersionPlace,
    content: Mutex<Option<Arc<Content>>>,
}

impl VersionSource {
    /// Take a place.
    pub fn new(place: &VersionPlace) -> VersionSource {
        VersionSource {
            name: Place::Version(place.clone()).name(),
            place: place.clone(),
            content: Mutex::default(),
        }
    }

    fn content(&self) -> Result<Arc<Content>, VersionsError> {
        let mut content = self.content.lock().unpoisoned();
        if let Some(content) = &*content {
            return Ok(content.clone());
        }
        let opened = Arc::new(open(&self.place)?);
        *content = Some(opened.clone());
        Ok(opened)
    }
}

impl Source for VersionSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], _: Duration) -> Result<(), SourceError> {
        let read = self
            .content()
            .and_then(|content| content.read(buffer, offset));
        read.map_err(|error| match error {
            VersionsError::Damaged { .. } => SourceError::Wrong(error.to_string()),
            error => SourceError::Unreachable(error.to_string()),
        })
    }
}

fn open(place: &VersionPlace) -> Result<Content, VersionsError> {
    let text = read_file(&place.description, MAX_DESCRIPTION)?;
    let found: Description = serde_json::from_slice(&text)
        .map_err(|error| VersionsError::Invalid(format!("its description: {error}")))?;
    let root = match found.root {
        (0, _, _) => NodeRef::Zero,
        (1, _, _) => NodeRef::Base,
        (2, map, index) => NodeRef::Node { map, index },
        (kind, _, _) => return Err(invalid(format!("a root of kind {kind}"))),
    };
    let store = open_store(&found)?;
    let base = place.base.as_deref().map(Image::open).transpose()?;
    Ok(Content {
        store,
        root,
        size: found.size,
        base,
    })
}

fn open_store(found: &Description) -> Result<Store, VersionsError> {
    let mut keys = BTreeMap::new();
    for (number, digits) in &found.keys {
        let key: Option<[u8; 32]> = hex::decode(digits);
        keys.insert(
            *number,
            key.ok_or_else(|| invalid("a key of another length"))?,
        );
    }
    let present = keys.remove(&found.key_number);
    let mut store = Store::new(found.block_size, present.as_ref())?;
    store.set_keys(found.key_number, &Vec::from_iter(keys));
    store.set_cache(CACHE);
    store.keep_indexes();
    for pack in &found.packs {
        store.add_pack(store::Pack {
            id: pack.id,
            // Who wrote it, and how much, counts for saves only.
            origin: 0,
            blocks: 0,
            data_len: 0,
            key: pack.key,
            place: store::Place::File(pack.data.clone()),
            index: store::Place::File(pack.index.clone()),
            check: check_of(&pack.check, &format!("pack {}", pack.id))?,
        })?;
        // Paths may be those of files that are removed later.
        store.index(pack.id)?;
    }
    for map in &found.maps {
        let object = format!("map {}", map.id);
        let bytes = read_file(&map.path, u64::MAX)?;
        expect(&bytes, &check_of(&map.check, &object)?, &object)?;
        let file = MapFile::decode(&bytes, &object)?;
        if file.id() != map.id {
            return Err(invalid(format!("{object} is another map")));
        }
        store.maps.insert(Arc::new(file));
    }
    Ok(store)
}

fn check_of(digits: &str, object: &str) -> Result<Check, VersionsError> {
    let check: Option<Check> = hex::decode(digits);
    check.ok_or_else(|| invalid(format!("no checksum of {object}")))
}

/// Read a whole file. The offset of a descriptor, which other processes may share, is not moved.
fn read_file(path: &Path, longest: u64) -> Result<Vec<u8>, VersionsError> {
    let file = FileSource::open(path)?;
    if file.len() > longest {
        return Err(invalid(format!("{} is too long", path.display())));
    }
    let mut bytes = vec![0; file.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn invalid(reason: impl Into<String>) -> VersionsError {
    VersionsError::Invalid(reason.into())
}
