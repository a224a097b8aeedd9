//! The files of ext4 whose inodes are here, while other parts of it are not.

use std::collections::{HashMap, HashSet};

use super::super::arriving::FilePiece;
use super::super::{has_other_signature, refuse, Range, Refusal, Volume};
use super::files::piece;
use super::inodes::{Inode, InodeKind, Node, INODE_LEN};
use super::{recognises, Group, Layout};

/// Most blocks of tables of inodes, each of which is looked at when the filesystem is found: 256 GiB with blocks of 4 KiB, as mke2fs creates it.
const MAX_TABLE_BLOCKS: u64 = 1 << 20;
/// Most nodes of trees of extents that are waited for.
const MAX_NODES: usize = 1 << 16;
/// The first inode that is of no special use.
const FIRST_INODE: u64 = 11;

/// A node of a tree of extents.
#[derive(Clone, Copy)]
struct Place {
    inode: u64,
    /// Above the leaves.
    height: u16,
}

/// What is known of a filesystem.
pub struct Arriving {
    layout: Layout,
    /// The first block of each table of inodes, and the number of the table's first inode; in the order of the blocks.
    tables: Vec<(u64, u64)>,
    /// Blocks of tables, and nodes, that were read: none is twice, whatever points to it.
    read: HashSet<u64>,
    /// Blocks with nodes that were not here yet.
    nodes: HashMap<u64, Place>,
}

impl Arriving {
    /// Takes a filesystem whose superblock and descriptors are here; none if it is another one. `Refusal::Source` if they are not here.
    pub fn open(volume: &Volume<'_>) -> Result<Option<Arriving>, Refusal> {
        if !recognises(volume)? || has_other_signature(volume)? {
            return Ok(None);
        }
        let layout = Layout::read(volume)?;
        layout.check_inodes()?;
        if layout.group_count() * layout.table_blocks > MAX_TABLE_BLOCKS {
            return refuse("it has too many inodes");
        }
        let groups = layout.groups(volume)?;
        let first = |number: u64| number * u64::from(layout.inodes_per_group) + 1;
        let table = |(number, group): (u64, &Group)| (group.inode_table, first(number));
        let mut tables: Vec<_> = (0..).zip(&groups).map(table).collect();
        tables.sort_unstable();
        Ok(Some(Arriving {
            layout,
            tables,
            read: HashSet::new(),
            nodes: HashMap::new(),
        }))
    }

    /// Adds what bytes of the volume say that have arrived: those of inodes, and of nodes that were waited for.
    pub fn note(&mut self, volume: &Volume<'_>, range: Range, mut keep: impl FnMut(FilePiece)) {
        let block = self.layout.block;
        for number in range.0 / block..range.1.div_ceil(block) {
            if let Some(first) = self.first_inode(number) {
                self.inodes(volume, number, first, &mut keep);
            } else if let Some(place) = self.nodes.remove(&number) {
                self.follow(volume, number, place, &mut keep);
            }
        }
    }

    /// Adds what all inodes say that are here.
    pub fn note_all(&mut self, volume: &Volume<'_>, mut keep: impl FnMut(FilePiece)) {
        for (table, first) in self.tables.clone() {
            let per_block = self.layout.block / self.layout.inode_len;
            for at in 0..self.layout.table_blocks {
                self.inodes(volume, table + at, first + at * per_block, &mut keep);
            }
        }
    }

    /// Returns the number of the first inode in a block of a table.
    fn first_inode(&self, block: u64) -> Option<u64> {
        let after = self.tables.partition_point(|(start, _)| *start <= block);
        let (start, first) = self.tables[after.checked_sub(1)?];
        let within = block - start;
        let per_block = self.layout.block / self.layout.inode_len;
        (within < self.layout.table_blocks).then_some(first + within * per_block)
    }

    fn read_block(&self, volume: &Volume<'_>, number: u64) -> Option<Vec<u8>> {
        let place = number.checked_mul(self.layout.block)?;
        volume.read(place, self.layout.block as usize).ok()
    }

    /// Reads the inodes of a block, if it is here and was not read before.
    fn inodes(
        &mut self,
        volume: &Volume<'_>,
        number: u64,
        first: u64,
        keep: &mut impl FnMut(FilePiece),
    ) {
        if self.read.contains(&number) {
            return;
        }
        let Some(bytes) = self.read_block(volume, number) else {
            return;
        };
        self.read.insert(number);
        let inodes = bytes.chunks_exact(self.layout.inode_len as usize);
        for (number, bytes) in (first..).zip(inodes) {
            let inode = Inode::parse(&bytes[..INODE_LEN]);
            if inode.kind != InodeKind::File || number < FIRST_INODE {
                continue;
            }
            if let Some(root) = inode.extents() {
                self.node(volume, root, (number, None), keep);
            }
        }
    }

    /// Reads a node that is here; one that is not is waited for.
    fn follow(
        &mut self,
        volume: &Volume<'_>,
        block: u64,
        place: Place,
        keep: &mut impl FnMut(FilePiece),
    ) {
        if self.read.contains(&block) {
            return;
        }
        if let Some(bytes) = self.read_block(volume, block) {
            self.read.insert(block);
            self.node(volume, &bytes, (place.inode, Some(place.height)), keep);
        } else if self.nodes.len() < MAX_NODES {
            self.nodes.insert(block, place);
        }
    }

    /// Adds the extents of a node of an inode's tree, at this height above the leaves if that is known. What is no node says nothing.
    fn node(
        &mut self,
        volume: &Volume<'_>,
        node: &[u8],
        (inode, height): (u64, Option<u16>),
        keep: &mut impl FnMut(FilePiece),
    ) {
        match Node::parse(node, height) {
            Ok(Node::Leaf(runs)) => {
                for run in runs.into_iter().filter(|run| self.layout.holds(run)) {
                    let piece = piece(run, &self.layout);
                    keep(FilePiece {
                        start: piece.start,
                        end: piece.end,
                        file: inode,
                        position: piece.position,
                    });
                }
            }
            Ok(Node::Inner(children, height)) => {
                for child in children {
                    self.follow(volume, child, Place { inode, height }, keep);
                }
            }
            Err(_) => {}
        }
    }
}
