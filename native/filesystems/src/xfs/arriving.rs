//! The files of XFS of version 5 whose inodes are here ("XFS Algorithms & Data Structures", chapters "On-disk Inode" and "Data Extents").
//!
//! Inodes are allocated where there is room, and trees say where: trees that guests do not read to open files. But an inode of version 5 has its own
//! number, so that those that a guest reads are recognised. Checksums are not compared: a forger computes them as well, and a wrong answer
//! costs no more than chunks that were fetched in vain.

use diffcache_base::words::Words;

use super::super::blocks::{Blocks, FilePiece, Files, Keeper};
use super::super::{refuse, Range, Refusal, Volume};
use super::Layout;

const INODE_MAGIC: &[u8] = b"IN";
const NODE_MAGIC: &[u8] = b"BMA3";
/// Bytes of an inode before its list or tree of extents.
const CORE_LEN: usize = 176;
/// Bytes of a node before its records.
const NODE_HEADER: usize = 72;
/// Most levels of a tree of extents.
const MAX_LEVELS: u16 = 9;
/// Bytes of an extent, and of a key and a pointer to a node.
const RECORD: usize = 16;
const EXTENTS: u8 = 2;
const TREE: u8 = 3;

/// A node of a tree of extents.
#[derive(Clone, Copy)]
struct Place {
    inode: u64,
    /// Above the leaves.
    level: u16,
}

/// What is known of a filesystem.
pub struct Arriving {
    layout: Layout,
    blocks: Blocks<Place>,
}

impl Arriving {
    /// Takes a filesystem whose superblock is here. `Refusal::Source` if it is not.
    pub fn open(volume: &Volume<'_>) -> Result<Arriving, Refusal> {
        let layout = Layout::read(volume)?;
        let sane = layout.inode_len.is_power_of_two()
            && (256..=2048).contains(&layout.inode_len)
            && layout.inode_len << layout.inode_bits.min(16) == layout.block;
        if !layout.has_checksums {
            return refuse("it is of version 4, whose inodes do not tell their numbers");
        }
        match sane {
            true => Ok(Arriving {
                blocks: Blocks::new(layout.block),
                layout,
            }),
            false => refuse("its inodes are of an impossible size"),
        }
    }

    /// Returns the number of the first inode that a block would have.
    fn first_inode(&self, block: u64) -> u64 {
        let (group, within) = (
            block / self.layout.group_blocks,
            block % self.layout.group_blocks,
        );
        (group << self.layout.group_bits | within) << self.layout.inode_bits
    }

    /// Returns which block a number stands for, which has its group in the upper bits.
    fn block_of(&self, number: u64) -> Option<u64> {
        let group = number >> self.layout.group_bits;
        let within = number & ((1 << self.layout.group_bits) - 1);
        let block = group
            .checked_mul(self.layout.group_blocks)?
            .checked_add(within)?;
        (within < self.layout.group_blocks && block < self.layout.blocks).then_some(block)
    }

    /// Adds what the inodes of a block say, if it has some.
    fn inodes(&mut self, volume: &Volume<'_>, number: u64, keeper: &mut Keeper<'_>) {
        let first = self.first_inode(number);
        let is_first = |bytes: &[u8]| is_inode(bytes, first);
        let Some(bytes) = self.blocks.read(volume, number, is_first, keeper) else {
            return;
        };
        let inodes = bytes.chunks_exact(self.layout.inode_len as usize);
        for (number, inode) in (first..).zip(inodes) {
            if is_inode(inode, number) && is_file(inode) {
                self.inode(volume, inode, number, keeper);
            }
        }
    }

    /// Adds the extents of an inode, or of the tree below it.
    fn inode(&mut self, volume: &Volume<'_>, inode: &[u8], number: u64, keeper: &mut Keeper<'_>) {
        // In units of 8 bytes; behind them are attributes.
        let len = match usize::from(inode[82]) * 8 {
            0 => inode.len() - CORE_LEN,
            len => len.min(inode.len() - CORE_LEN),
        };
        let fork = &inode[CORE_LEN..CORE_LEN + len];
        match inode[5] {
            EXTENTS => {
                let count = extent_count(inode).min((len / RECORD) as u64) as usize;
                self.extents(&fork[..count * RECORD], number, keeper);
            }
            TREE => {
                let level = Words(fork).be16(0);
                let children = children(fork, 4, Words(fork).be16(2));
                self.nodes(
                    volume,
                    &children,
                    Place {
                        inode: number,
                        level,
                    },
                    keeper,
                );
            }
            _ => {}
        }
    }

    /// Adds what nodes say that are a level below a node.
    fn nodes(
        &mut self,
        volume: &Volume<'_>,
        children: &[u64],
        above: Place,
        keeper: &mut Keeper<'_>,
    ) {
        let Some(level) = above
            .level
            .checked_sub(1)
            .filter(|level| *level < MAX_LEVELS)
        else {
            return;
        };
        let place = Place { level, ..above };
        for child in children {
            let block = self.block_of(*child);
            let bytes =
                block.and_then(|block| self.blocks.read_or_wait(volume, block, place, keeper));
            if let Some(bytes) = bytes {
                self.node(volume, &bytes, place, keeper);
            }
        }
    }

    /// Adds what a node says. What is no node of the inode at this level says nothing.
    fn node(&mut self, volume: &Volume<'_>, node: &[u8], place: Place, keeper: &mut Keeper<'_>) {
        let words = Words(node);
        let is_node = node.starts_with(NODE_MAGIC)
            && words.be16(4) == place.level
            && words.be64(56) == place.inode;
        if !is_node {
            return;
        }
        if place.level > 0 {
            let children = children(node, NODE_HEADER, words.be16(6));
            self.nodes(volume, &children, place, keeper);
            return;
        }
        let records = &node[NODE_HEADER..];
        let count = usize::from(words.be16(6)).min(records.len() / RECORD);
        self.extents(&records[..count * RECORD], place.inode, keeper);
    }

    /// Adds extents: a flag for those without content, the position, block and count in 54, 52 and 21 bits.
    fn extents(&self, records: &[u8], inode: u64, keeper: &mut Keeper<'_>) {
        for record in records.chunks_exact(RECORD) {
            let (high, low) = (Words(record).be64(0), Words(record).be64(8));
            let (is_unwritten, position) = (high >> 63 == 1, high << 1 >> 10);
            let count = low & ((1 << 21) - 1);
            let start = self.block_of((high & 0x1ff) << 43 | low >> 21);
            let Some(start) = start.filter(|start| start + count <= self.layout.blocks) else {
                continue;
            };
            if count > 0 && !is_unwritten {
                let block = self.layout.block;
                keeper.keep(FilePiece {
                    start: start * block,
                    end: (start + count) * block,
                    file: inode,
                    position: position.saturating_mul(block),
                });
            }
        }
    }
}

impl Files for Arriving {
    fn note(&mut self, volume: &Volume<'_>, range: Range, keeper: &mut Keeper<'_>) {
        for number in self.blocks.of(range) {
            if let Some(place) = self.blocks.arrived(number, keeper) {
                if let Some(bytes) = self.blocks.read_or_wait(volume, number, place, keeper) {
                    self.node(volume, &bytes, place, keeper);
                }
            } else {
                self.inodes(volume, number, keeper);
            }
        }
    }

    /// Nothing: where inodes are is not known.
    fn note_all(&mut self, _: &Volume<'_>, _: &mut Keeper<'_>) {}

    fn tables(&self) -> usize {
        0
    }
}

fn is_inode(bytes: &[u8], number: u64) -> bool {
    bytes.starts_with(INODE_MAGIC) && bytes[4] == 3 && Words(bytes).be64(152) == number
}

fn is_file(inode: &[u8]) -> bool {
    Words(inode).be16(2) & 0xf000 == 0x8000
}

/// Returns how many extents an inode has; inodes with large counts have them elsewhere.
fn extent_count(inode: &[u8]) -> u64 {
    let words = Words(inode);
    match words.be64(120) & 1 << 4 != 0 {
        true => words.be64(24),
        false => words.be32(76).into(),
    }
}

/// Returns the pointers of a node, which are behind as many keys as it has room for.
fn children(node: &[u8], header: usize, count: u16) -> Vec<u64> {
    let most = node.len().saturating_sub(header) / RECORD;
    let first = header + 8 * most;
    let places = (first..).step_by(8).take(usize::from(count).min(most));
    places.map(|at| Words(node).be64(at)).collect()
}
