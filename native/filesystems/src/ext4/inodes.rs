//! Inodes, and the blocks of their content (kernel documentation, filesystems/ext4: "Index Nodes", "The Contents of inode.i_block").
//!
//! Checksums are not compared: a forger computes them as well, and a wrong answer costs no more than chunks that were fetched in vain.

use std::cell::Cell;

use diffcache_base::words::Words;

use super::super::{refuse, Refusal, Volume, MAX_RANGES};
use super::{Group, Layout};

const FLAG_EXTENTS: u32 = 0x8_0000;
const FLAG_INLINE: u32 = 0x1000_0000;
const EXTENT_MAGIC: u16 = 0xf30a;
/// Deepest tree of extents.
const MAX_DEPTH: u16 = 5;
/// Longer extents are those without content, by this many blocks.
const UNWRITTEN: u16 = 1 << 15;
/// Bytes of an inode that every version has.
pub const INODE_LEN: usize = 128;
/// Most blocks of directories and of maps of blocks that are read: 4 GiB with blocks of 4 KiB.
const MAX_BLOCKS: u64 = 1 << 20;

/// What an inode is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InodeKind {
    File,
    Directory,
    /// Links, devices, sockets, and what is not in use.
    Other,
}

/// An inode in use.
pub struct Inode {
    pub kind: InodeKind,
    /// Bytes of the content.
    pub size: u64,
    flags: u32,
    /// The root of its map of blocks.
    map: Vec<u8>,
}

impl Inode {
    /// Reads an inode from its first `INODE_LEN` bytes.
    pub fn parse(bytes: &[u8]) -> Inode {
        let words = Words(bytes);
        let kind = match (words.le16(0) & 0xf000, words.le16(0x1a)) {
            (_, 0) => InodeKind::Other,
            (0x8000, _) => InodeKind::File,
            (0x4000, _) => InodeKind::Directory,
            _ => InodeKind::Other,
        };
        Inode {
            kind,
            size: u64::from(words.le32(0x4)) | u64::from(words.le32(0x6c)) << 32,
            flags: words.le32(0x20),
            map: bytes[0x28..0x64].to_vec(),
        }
    }

    /// Returns whether the content is stored in the inode itself.
    pub fn is_inline(&self) -> bool {
        self.flags & FLAG_INLINE != 0
    }

    /// Returns the root of its tree of extents, if it has one.
    pub fn extents(&self) -> Option<&[u8]> {
        let has_tree = self.flags & (FLAG_EXTENTS | FLAG_INLINE) == FLAG_EXTENTS;
        has_tree.then_some(&self.map)
    }
}

/// Blocks of a content that are stored together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Number of the first one within the content.
    pub first: u64,
    /// Number of the first one within the filesystem.
    pub block: u64,
    pub count: u64,
}

/// A node of a tree of extents.
pub enum Node {
    /// Where parts of the content are.
    Leaf(Vec<Run>),
    /// The blocks of the nodes below, and their height above the leaves.
    Inner(Vec<u64>, u16),
}

impl Node {
    /// Reads a node, which is at this height above the leaves if that is known.
    pub fn parse(bytes: &[u8], height: Option<u16>) -> Result<Node, Refusal> {
        let words = Words(bytes);
        let (count, depth) = (usize::from(words.le16(2)), words.le16(6));
        let sane = words.le16(0) == EXTENT_MAGIC
            && 12 + 12 * count <= bytes.len()
            && height.map_or(depth <= MAX_DEPTH, |height| height == depth && count > 0);
        if !sane {
            return refuse("a node of a tree of extents is none");
        }
        let places = (12..).step_by(12).take(count);
        Ok(match depth.checked_sub(1) {
            None => Node::Leaf(places.map(|at| extent(&words, at)).collect()),
            Some(below) => {
                let child =
                    |at| u64::from(words.le16(at + 8)) << 32 | u64::from(words.le32(at + 4));
                Node::Inner(places.map(child).collect(), below)
            }
        })
    }
}

fn extent(words: &Words<'_>, at: usize) -> Run {
    let length = words.le16(at + 4);
    let count = match length > UNWRITTEN {
        true => length - UNWRITTEN,
        false => length,
    };
    Run {
        first: words.le32(at).into(),
        block: u64::from(words.le16(at + 6)) << 32 | u64::from(words.le32(at + 8)),
        count: count.into(),
    }
}

/// Reads inodes and blocks, as many as a filesystem can have.
pub struct Reader<'a> {
    pub volume: &'a Volume<'a>,
    pub layout: &'a Layout,
    groups: &'a [Group],
    /// Blocks that may still be read: none has to be read twice.
    blocks_left: Cell<u64>,
    runs_left: Cell<usize>,
}

impl<'a> Reader<'a> {
    pub fn new(
        volume: &'a Volume<'a>,
        layout: &'a Layout,
        groups: &'a [Group],
    ) -> Result<Reader<'a>, Refusal> {
        layout.check_inodes()?;
        Ok(Reader {
            volume,
            layout,
            groups,
            blocks_left: Cell::new(layout.blocks.min(MAX_BLOCKS)),
            runs_left: Cell::new(MAX_RANGES),
        })
    }

    pub fn inode(&self, number: u32) -> Result<Inode, Refusal> {
        let Some(index) = number.checked_sub(1) else {
            return refuse("an inode's number is 0");
        };
        let group = self
            .groups
            .get((index / self.layout.inodes_per_group) as usize);
        let Some(group) = group else {
            return refuse("an inode's number is too great");
        };
        let within = u64::from(index % self.layout.inodes_per_group) * self.layout.inode_len;
        let place = group.inode_table * self.layout.block + within;
        Ok(Inode::parse(&self.volume.read(place, INODE_LEN)?))
    }

    /// Reads a block of a directory or of a map of blocks.
    pub fn block(&self, number: u64) -> Result<Vec<u8>, Refusal> {
        let Some(left) = self.blocks_left.get().checked_sub(1) else {
            return refuse("its directories and maps of blocks are too large, or run in circles");
        };
        self.blocks_left.set(left);
        // Past the end of the partition it is refused.
        let place = number.saturating_mul(self.layout.block);
        self.volume.read(place, self.layout.block as usize)
    }

    /// Returns where the content of a file or directory is, in its order.
    pub fn runs(&self, inode: &Inode) -> Result<Vec<Run>, Refusal> {
        let mut runs = Vec::new();
        if inode.is_inline() {
            return Ok(runs);
        }
        if inode.flags & FLAG_EXTENTS != 0 {
            self.extents(&inode.map, None, &mut runs)?;
            return Ok(runs);
        }
        let end = inode.size.div_ceil(self.layout.block);
        let words = Words(&inode.map);
        let mut first = 0;
        for slot in 0..15 {
            let levels = u32::saturating_sub(slot, 11);
            let block = u64::from(words.le32(4 * slot as usize));
            self.mapped(block, levels, first, end, &mut runs)?;
            first += self.span(levels);
        }
        Ok(runs)
    }

    /// Adds the extents of a node, which is at this height above the leaves if that is known.
    fn extents(
        &self,
        node: &[u8],
        height: Option<u16>,
        runs: &mut Vec<Run>,
    ) -> Result<(), Refusal> {
        match Node::parse(node, height)? {
            Node::Leaf(extents) => {
                for run in extents {
                    self.add(run, runs)?;
                }
            }
            Node::Inner(children, below) => {
                for child in children {
                    self.extents(&self.block(child)?, Some(below), runs)?;
                }
            }
        }
        Ok(())
    }

    /// Blocks of the content that a block number stands for, this many levels above it.
    fn span(&self, levels: u32) -> u64 {
        // Three levels of 2^14 at most.
        (self.layout.block / 4).pow(levels)
    }

    /// Adds the blocks below a number of an old map of blocks.
    fn mapped(
        &self,
        block: u64,
        levels: u32,
        first: u64,
        end: u64,
        runs: &mut Vec<Run>,
    ) -> Result<(), Refusal> {
        if block == 0 || first >= end {
            return Ok(());
        }
        if levels == 0 {
            return self.add(
                Run {
                    first,
                    block,
                    count: 1,
                },
                runs,
            );
        }
        let numbers = self.block(block)?;
        for (number, i) in numbers.chunks_exact(4).zip(0u64..) {
            let first = first + i * self.span(levels - 1);
            self.mapped(Words(number).le32(0).into(), levels - 1, first, end, runs)?;
        }
        Ok(())
    }

    /// Adds a run that comes after those before it in the content.
    fn add(&self, run: Run, runs: &mut Vec<Run>) -> Result<(), Refusal> {
        if !self.layout.holds(&run) {
            return refuse("a file is stored outside of the filesystem");
        }
        if let Some(last) = runs.last_mut() {
            let end = last.first + last.count;
            if run.first < end {
                return refuse("the parts of a file are out of order");
            }
            if run.first == end && run.block == last.block + last.count {
                last.count += run.count;
                return Ok(());
            }
        }
        let Some(left) = self.runs_left.get().checked_sub(1) else {
            return refuse("its files are in too many pieces");
        };
        self.runs_left.set(left);
        runs.push(run);
        Ok(())
    }
}
