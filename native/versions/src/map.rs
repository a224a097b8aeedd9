//! Map nodes: where each block of a disk is kept.
//!
//! A version is a tree of nodes of fixed height. A leaf describes [`LEAF_BLOCKS`] blocks, an inner node has [`FANOUT`] children; a child that
//! is all zeroes, or all the base image's, is a mark and no node. The nodes that one save makes lie in one file, the save's *map*; the
//! others are its parent's, so that comparing two versions costs what differs.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::codec::{Cursor, VERSION};
use crate::error::{Result, VersionsError};
use crate::pack::{checked, expect, Check};
use diffcache_base::locks::Unpoisoned;
use diffcache_base::varint;

/// Blocks that a leaf describes.
pub const LEAF_BLOCKS: u64 = 512;
/// Children of an inner node.
pub const FANOUT: u64 = 256;
/// Inner nodes from the root to a leaf.
pub const HEIGHT: u32 = 3;
/// Blocks that a tree describes, at most.
pub const MAX_BLOCKS: u64 = LEAF_BLOCKS * FANOUT * FANOUT * FANOUT;
const MAGIC: &[u8; 8] = b"DCVMAP01";
const LEVEL: i32 = 9;
const MAX_RAW: u64 = 1 << 31;

/// Where a block is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BlockRef {
    /// All bytes are zero.
    Zero,
    /// The base image has it, at the same place.
    Base,
    /// A pack has it.
    Stored {
        /// Number of the pack.
        pack: u32,
        /// Slot in the pack.
        slot: u32,
    },
}

impl BlockRef {
    /// The reference of the block `by` places further in a run.
    pub fn plus(self, by: u64) -> BlockRef {
        match self {
            BlockRef::Stored { pack, slot } => BlockRef::Stored {
                pack,
                slot: slot.wrapping_add(by as u32),
            },
            other => other,
        }
    }
}

/// Blocks next to each other: zero, of the base, or in successive slots of one pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First block.
    pub start: u64,
    /// Blocks.
    pub len: u64,
    /// Where the first is kept.
    pub at: BlockRef,
}

impl Run {
    /// The block after the last.
    pub fn end(&self) -> u64 {
        self.start + self.len
    }

    /// The part of the run in `from..to`, if any.
    pub fn clip(&self, from: u64, to: u64) -> Option<Run> {
        let (start, end) = (self.start.max(from), self.end().min(to));
        (start < end).then(|| Run {
            start,
            len: end - start,
            at: self.at.plus(start - self.start),
        })
    }
}

/// Adds a run to others, joined with the last if it continues that.
pub fn push_run(runs: &mut Vec<Run>, run: Run) {
    if let Some(last) = runs.last_mut() {
        if last.end() == run.start && last.at.plus(last.len) == run.at {
            last.len += run.len;
            return;
        }
    }
    runs.push(run);
}

/// A child of an inner node, or a tree's root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NodeRef {
    /// All blocks below are zero.
    Zero,
    /// All blocks below are the base image's.
    Base,
    /// A node.
    Node {
        /// Number of the map that has it.
        map: u32,
        /// Its place there.
        index: u32,
    },
}

impl NodeRef {
    /// What this mark says of each block; `None` for a node.
    pub fn uniform(self) -> Option<BlockRef> {
        match self {
            NodeRef::Zero => Some(BlockRef::Zero),
            NodeRef::Base => Some(BlockRef::Base),
            NodeRef::Node { .. } => None,
        }
    }
}

/// Blocks below a node of a level; leaves have level 0.
pub fn span(level: u32) -> u64 {
    LEAF_BLOCKS * FANOUT.pow(level)
}

/// The bytes of a leaf. `runs` cover its blocks; their starts count from the leaf's first block.
pub fn encode_leaf(runs: &[Run]) -> Vec<u8> {
    let mut out = vec![0];
    for run in runs {
        varint::put(&mut out, run.len);
        match run.at {
            BlockRef::Zero => varint::put(&mut out, 0),
            BlockRef::Base => varint::put(&mut out, 1),
            BlockRef::Stored { pack, slot } => {
                varint::put(&mut out, 2 + u64::from(pack));
                varint::put(&mut out, u64::from(slot));
            }
        }
    }
    out
}

/// The bytes of an inner node.
pub fn encode_inner(level: u32, children: &[NodeRef]) -> Vec<u8> {
    let mut out = vec![level as u8];
    let mut at = 0;
    while at < children.len() {
        let follows = |n: usize| match (children[at], children.get(at + n)) {
            (
                NodeRef::Node { map, index },
                Some(NodeRef::Node {
                    map: other,
                    index: i,
                }),
            ) => map == *other && u64::from(*i) == u64::from(index) + n as u64,
            (mark, Some(other)) => mark == *other,
            (_, None) => false,
        };
        let len = (1..).find(|n| !follows(*n)).unwrap_or(1);
        varint::put(&mut out, len as u64);
        match children[at] {
            NodeRef::Zero => varint::put(&mut out, 0),
            NodeRef::Base => varint::put(&mut out, 1),
            NodeRef::Node { map, index } => {
                varint::put(&mut out, 2 + u64::from(map));
                varint::put(&mut out, u64::from(index));
            }
        }
        at += len;
    }
    out
}

/// A length, a kind, and the numbers of what it refers to.
type Entry = (u64, u64, Option<(u32, u32)>);

/// The next entry of a node, which covers at most `room` places.
fn read_entry(cursor: &mut Cursor<'_>, room: u64) -> Result<Entry> {
    let len = cursor.varint()?;
    let tag = cursor.varint()?;
    if len == 0 || len > room {
        return Err(cursor.error("a node has a wrong length"));
    }
    if tag < 2 {
        return Ok((len, tag, None));
    }
    let first = cursor.varint()?;
    let last = first.saturating_add(len - 1);
    let numbers = (u32::try_from(tag - 2), u32::try_from(last));
    match numbers {
        (Ok(id), Ok(_)) => Ok((len, tag, Some((id, first as u32)))),
        _ => Err(cursor.error("a node refers to what cannot be")),
    }
}

/// The runs of a leaf; their starts count from `start`.
fn decode_leaf(bytes: &[u8], name: &str, start: u64) -> Result<Vec<Run>> {
    let mut cursor = Cursor::new(bytes, name);
    if cursor.take(1)? != [0] {
        return Err(cursor.error("a node is not of its level"));
    }
    let mut runs = Vec::new();
    let mut at = 0;
    while at < LEAF_BLOCKS {
        let (len, tag, numbers) = read_entry(&mut cursor, LEAF_BLOCKS - at)?;
        let kept = match (tag, numbers) {
            (0, _) => BlockRef::Zero,
            (1, _) => BlockRef::Base,
            (_, Some((pack, slot))) => BlockRef::Stored { pack, slot },
            _ => return Err(cursor.error("a node is of an unknown kind")),
        };
        runs.push(Run {
            start: start + at,
            len,
            at: kept,
        });
        at += len;
    }
    Ok(runs)
}

fn decode_inner(bytes: &[u8], name: &str, level: u32) -> Result<Vec<NodeRef>> {
    let mut cursor = Cursor::new(bytes, name);
    if u32::from(cursor.take(1)?[0]) != level {
        return Err(cursor.error("a node is not of its level"));
    }
    let mut children = Vec::with_capacity(FANOUT as usize);
    while (children.len() as u64) < FANOUT {
        let (len, tag, numbers) = read_entry(&mut cursor, FANOUT - children.len() as u64)?;
        for i in 0..len as u32 {
            children.push(match (tag, numbers) {
                (0, _) => NodeRef::Zero,
                (1, _) => NodeRef::Base,
                (_, Some((map, index))) => NodeRef::Node {
                    map,
                    index: index + i,
                },
                _ => return Err(cursor.error("a node is of an unknown kind")),
            });
        }
    }
    Ok(children)
}

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

/// All maps of a store, each read when a node of it is first asked for.
#[derive(Default)]
pub struct Maps {
    paths: BTreeMap<u32, (PathBuf, Check)>,
    loaded: Mutex<HashMap<u32, Arc<MapFile>>>,
}

impl Maps {
    /// Adds a map by its file, and the checksum that the file has to end with, if that is known.
    pub fn add(&mut self, id: u32, path: PathBuf, check: Check) {
        self.paths.insert(id, (path, check));
    }

    /// A number that no map has.
    pub fn unused_id(&self) -> u32 {
        let loaded = self.loaded().keys().max().copied().unwrap_or(0);
        let known = self.paths.keys().max().copied().unwrap_or(0);
        loaded.max(known).saturating_add(1)
    }

    /// Adds a map that is in memory.
    pub fn insert(&self, map: Arc<MapFile>) {
        self.loaded().insert(map.id(), map);
    }

    fn loaded(&self) -> std::sync::MutexGuard<'_, HashMap<u32, Arc<MapFile>>> {
        self.loaded.lock().unpoisoned()
    }

    /// A map.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `Io`.
    pub fn get(&self, id: u32) -> Result<Arc<MapFile>> {
        if let Some(map) = self.loaded().get(&id) {
            return Ok(Arc::clone(map));
        }
        let object = format!("map {id}");
        let path = self.paths.get(&id);
        let (path, check) = path.ok_or_else(|| VersionsError::Missing(object.clone()))?;
        let bytes = std::fs::read(path).map_err(VersionsError::io(path.display().to_string()))?;
        expect(&bytes, check, &object)?;
        let map = MapFile::decode(&bytes, &object)?;
        if map.id() != id {
            return Err(VersionsError::damaged(object, "it is another map"));
        }
        let map = Arc::new(map);
        self.insert(Arc::clone(&map));
        Ok(map)
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
            let _ = crate::pack::PackIndex::decode(&sealed, "noise");
        }
    }
}
