//! Nodes of the trees of versions: leaves say where blocks are, inner nodes where nodes are.

use diffcache_base::varint;

use super::codec::Cursor;
use crate::error::Result;

/// Blocks that a leaf describes.
pub const LEAF_BLOCKS: u64 = 512;

/// Children of an inner node.
pub const FANOUT: u64 = 256;

/// Inner nodes from the root to a leaf.
pub const HEIGHT: u32 = 3;

/// Blocks that a tree describes, at most.
pub const MAX_BLOCKS: u64 = LEAF_BLOCKS * FANOUT * FANOUT * FANOUT;

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
pub(super) fn decode_leaf(bytes: &[u8], name: &str, start: u64) -> Result<Vec<Run>> {
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

pub(super) fn decode_inner(bytes: &[u8], name: &str, level: u32) -> Result<Vec<NodeRef>> {
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
