//! Map nodes: where each block of a disk is kept.
//!
//! A version is a tree of nodes of fixed height. A leaf describes [`LEAF_BLOCKS`] blocks, an inner node has [`FANOUT`] children; a child that
//! is all zeroes, or all the base image's, is a mark and no node. The nodes that one save makes lie in one file, the save's *map*; the
//! others are its parent's, so that comparing two versions costs what differs.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::error::{Result, VersionsError};
use crate::store::cache::Cache;
use crate::store::codec::{Cursor, VERSION};
use crate::store::files::{Files, Place};
use crate::store::nodes::{decode_inner, decode_leaf, BlockRef, NodeRef, Run, FANOUT, LEAF_BLOCKS};
use crate::store::pack_index::{checked, expect, Check};
use diffcache_base::locks::Unpoisoned;
use diffcache_base::varint;

const MAGIC: &[u8; 8] = b"DCVMAP01";

const LEVEL: i32 = 9;

const MAX_RAW: u64 = 1 << 31;

/// The nodes of one save.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapFile {
    id: u32,
    generation: u32,
    /// Where each node's bytes end; a node without bytes was dropped.
    ends: Vec<u32>,
    body: Vec<u8>,
}

impl MapFile {
    /// A map without nodes.
    pub fn new(id: u32, generation: u32) -> Self {
        Self {
            id,
            generation,
            ends: Vec::new(),
            body: Vec::new(),
        }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Its nodes, with those that were dropped.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether it has no nodes.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn object(&self) -> String {
        format!("map {}", self.id)
    }

    fn memory(&self) -> usize {
        self.body.len() + self.ends.len() * 4
    }

    /// Adds a node.
    pub fn push(&mut self, node: &[u8]) -> NodeRef {
        self.body.extend_from_slice(node);
        self.ends.push(self.body.len() as u32);
        NodeRef::Node {
            map: self.id,
            index: self.ends.len() as u32 - 1,
        }
    }

    /// The bytes of a node.
    ///
    /// # Errors
    /// `Missing` if it was dropped or never was.
    pub fn node(&self, index: u32) -> Result<&[u8]> {
        let at = index as usize;
        let start = match at.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(0) as usize,
            None => 0,
        };
        let end = self.ends.get(at).map(|end| *end as usize);
        end.and_then(|end| self.body.get(start..end))
            .filter(|bytes| !bytes.is_empty())
            .ok_or_else(|| VersionsError::Missing(format!("node {index} of map {}", self.id)))
    }

    /// The same map without the nodes that `keep` does not want.
    pub fn without(&self, keep: impl Fn(u32) -> bool) -> MapFile {
        let mut out = MapFile::new(self.id, self.generation + 1);
        for index in 0..self.len() as u32 {
            match (keep(index), self.node(index)) {
                (true, Ok(node)) => out.push(node),
                _ => out.push(&[]),
            };
        }
        out
    }

    /// The map as a file.
    ///
    /// # Errors
    /// `Io` if the compressor fails; `Invalid` if there are too many nodes.
    pub fn encode(&self) -> Result<Vec<u8>> {
        let mut raw = Vec::with_capacity(self.body.len() + self.ends.len() * 2);
        let mut before = 0;
        for end in &self.ends {
            varint::put(&mut raw, u64::from(end - before));
            before = *end;
        }
        raw.extend_from_slice(&self.body);
        check_len(raw.len() as u64)?;
        let packed = zstd::bulk::compress(&raw, LEVEL).map_err(VersionsError::io(self.object()))?;
        let mut out = MAGIC.to_vec();
        for number in [VERSION, self.id, self.generation, self.len() as u32] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&(raw.len() as u64).to_le_bytes());
        out.extend_from_slice(&packed);
        let check = blake3::hash(&out);
        out.extend_from_slice(check.as_bytes());
        Ok(out)
    }

    /// Reads a map.
    ///
    /// # Errors
    /// `Damaged` if the checksum does not match, or what it says is impossible.
    pub fn decode(bytes: &[u8], object: &str) -> Result<Self> {
        let mut cursor = Cursor::new(checked(bytes, object)?, object);
        cursor.head(MAGIC, "map")?;
        let (id, generation, count) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let raw_len = cursor.u64()?;
        if raw_len > MAX_RAW || u64::from(count) > raw_len {
            return Err(cursor.error("it claims to be absurdly long"));
        }
        let packed = &checked(bytes, object)?[32..];
        let raw = zstd::bulk::decompress(packed, raw_len as usize)
            .map_err(|_| cursor.error("it does not decompress"))?;
        let mut lengths = Cursor::new(&raw, object);
        let mut map = MapFile::new(id, generation);
        let mut end = 0u64;
        for _ in 0..count {
            end = end.saturating_add(lengths.varint()?);
            if end > raw_len {
                return Err(cursor.error("a node is outside of the map"));
            }
            map.ends.push(end as u32);
        }
        map.body = lengths.take(end as usize)?.to_vec();
        match raw.len() as u64 == raw_len && lengths.is_empty() {
            true => Ok(map),
            false => Err(cursor.error("it is not as long as it says")),
        }
    }
}

/// A map that would be refused when it is read is not to be written.
fn check_len(len: u64) -> Result<()> {
    match len <= MAX_RAW {
        true => Ok(()),
        false => Err(VersionsError::Invalid(format!(
            "what changed takes a map of {len} bytes: use a store with larger blocks"
        ))),
    }
}

/// Bytes in memory of maps that were read.
const READ: usize = 48 << 20;

/// All maps of a store, each read when a node of it is first asked for.
pub struct Maps {
    places: BTreeMap<u32, (Place, Check)>,
    /// Those that are nowhere else.
    inserted: Mutex<HashMap<u32, Arc<MapFile>>>,
    read: Cache<u32, MapFile>,
    files: Arc<Files>,
    /// Maps from this number on are not asked for.
    next: u32,
}

impl Default for Maps {
    fn default() -> Maps {
        Maps {
            places: BTreeMap::new(),
            inserted: Mutex::default(),
            read: Cache::new(READ),
            files: Arc::default(),
            next: 0,
        }
    }
}

impl Maps {
    /// Has maps below a number asked for that were not added.
    pub(super) fn set_next(&mut self, next: u32) {
        self.next = next;
    }

    pub(super) fn set_files(&mut self, files: Arc<Files>) {
        self.files = files;
    }

    /// Adds a map by its file, and the checksum that the file has to end with.
    pub fn add(&mut self, id: u32, place: Place, check: Check) {
        self.places.insert(id, (place, check));
    }

    /// A number that no map has.
    pub fn unused_id(&self) -> u32 {
        let inserted = self.inserted().keys().max().copied().unwrap_or(0);
        let known = self.places.keys().max().copied().unwrap_or(0);
        inserted.max(known).saturating_add(1).max(self.next)
    }

    /// Adds a map that is in memory.
    pub fn insert(&self, map: Arc<MapFile>) {
        self.inserted().insert(map.id(), map);
    }

    fn inserted(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<MapFile>>> {
        self.inserted.lock().unpoisoned()
    }

    /// A map.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `Io`, `Unavailable`.
    pub fn get(&self, id: u32) -> Result<Arc<MapFile>> {
        if let Some(map) = self.inserted().get(&id) {
            return Ok(Arc::clone(map));
        }
        self.read.get_or(id, || {
            let place = match self.places.get(&id) {
                None if id < self.next => self.files.map(id)?,
                added => added.cloned(),
            };
            let (place, check) =
                place.ok_or_else(|| VersionsError::Missing(format!("map {id}")))?;
            let map = self
                .files
                .noted(&place, self.read_map(id, &place, &check))?;
            let memory = map.memory();
            Ok((map, memory))
        })
    }

    fn read_map(&self, id: u32, place: &Place, check: &Check) -> Result<MapFile> {
        let object = format!("map {id}");
        let bytes = self.files.read(place)?;
        expect(&bytes, check, &object)?;
        let map = MapFile::decode(&bytes, &object)?;
        match map.id() == id {
            true => Ok(map),
            false => Err(VersionsError::damaged(object, "it is another map")),
        }
    }

    /// The runs of a leaf that starts at block `start`.
    ///
    /// # Errors
    /// As `get`.
    pub fn leaf(&self, node: NodeRef, start: u64) -> Result<Vec<Run>> {
        match (node, node.uniform()) {
            (NodeRef::Node { map, index }, _) => {
                let file = self.get(map)?;
                decode_leaf(file.node(index)?, &file.object(), start)
            }
            (_, mark) => Ok(vec![Run {
                start,
                len: LEAF_BLOCKS,
                at: mark.unwrap_or(BlockRef::Zero),
            }]),
        }
    }

    /// The children of an inner node.
    ///
    /// # Errors
    /// As `get`.
    pub fn children(&self, node: NodeRef, level: u32) -> Result<Vec<NodeRef>> {
        match node {
            NodeRef::Node { map, index } => {
                let file = self.get(map)?;
                decode_inner(file.node(index)?, &file.object(), level)
            }
            mark => Ok(vec![mark; FANOUT as usize]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::nodes::{encode_inner, encode_leaf};
    use crate::store::pack_index::{check_of, PackIndex};
    use proptest::prelude::*;

    #[test]
    fn no_map_is_written_that_would_be_refused() {
        assert!(check_len(MAX_RAW).is_ok());
        assert!(check_len(MAX_RAW + 1).is_err());
    }

    #[test]
    fn a_map_round_trips_and_forgets_what_is_dropped() {
        let mut map = MapFile::new(7, 0);
        let leaf = encode_leaf(&[Run {
            start: 0,
            len: LEAF_BLOCKS,
            at: BlockRef::Stored { pack: 3, slot: 9 },
        }]);
        map.push(&leaf);
        map.push(&encode_inner(1, &[NodeRef::Base; FANOUT as usize]));
        let again = MapFile::decode(&map.encode().unwrap(), "map 7").unwrap();
        assert_eq!(again, map);
        let less = again.without(|index| index == 1);
        assert!(less.node(0).is_err());
        assert_eq!(less.node(1).unwrap(), map.node(1).unwrap());
        assert_eq!(
            decode_leaf(&leaf, "x", 512).unwrap()[0].clip(600, 610),
            Some(Run {
                start: 600,
                len: 10,
                at: BlockRef::Stored { pack: 3, slot: 97 }
            })
        );
    }

    #[test]
    fn every_flipped_bit_of_a_map_is_found() {
        let mut map = MapFile::new(1, 0);
        map.push(&encode_inner(2, &[NodeRef::Zero; FANOUT as usize]));
        let bytes = map.encode().unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(MapFile::decode(&changed, "map 1").is_err());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_leaf(&bytes, "noise", 0);
            let _ = decode_inner(&bytes, "noise", 1);
            let mut sealed = bytes.clone();
            sealed.extend_from_slice(blake3::hash(&bytes).as_bytes());
            let _ = MapFile::decode(&sealed, "noise");
            let _ = PackIndex::parse(&bytes, "noise");
            let _ = PackIndex::read(&sealed, &check_of(&sealed), "noise");
        }
    }
}
