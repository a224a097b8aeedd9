//! The files of ext4 whose inodes are here, while other parts of it are not.

use super::super::blocks::{Blocks, FilePiece, Files, Keeper};
use super::super::{refuse, Range, Refusal, Volume};
use super::files::piece;
use super::inodes::{Inode, InodeKind, Node, INODE_LEN};
use super::Layout;

/// Most blocks of tables of inodes, each of which is looked at when the filesystem is found: 256 GiB with blocks of 4 KiB, as mke2fs creates it.
const MAX_TABLE_BLOCKS: u64 = 1 << 20;
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
    blocks: Blocks<Place>,
}

impl Arriving {
    /// Takes a filesystem whose superblock and descriptors are here. `Refusal::Source` if they are not.
    pub fn open(volume: &Volume<'_>, most_tables: usize) -> Result<Arriving, Refusal> {
        let layout = Layout::read_any(volume)?;
        layout.check_inodes()?;
        if layout.group_count() * layout.table_blocks > MAX_TABLE_BLOCKS
            || layout.group_count() > most_tables as u64
        {
            return refuse("it has too many inodes, or groups");
        }
        let mut tables = Vec::with_capacity(layout.group_count() as usize);
        let first = |number: u32| u64::from(number) * u64::from(layout.inodes_per_group) + 1;
        layout.each_group(volume, |number, group| {
            tables.push((group.inode_table, first(number)));
        })?;
        tables.sort_unstable();
        Ok(Arriving {
            blocks: Blocks::new(layout.block),
            layout,
            tables,
        })
    }

    fn inodes_per_block(&self) -> u64 {
        self.layout.block / self.layout.inode_len
    }

    /// Returns the number of the first inode in a block of a table.
    fn first_inode(&self, block: u64) -> Option<u64> {
        let after = self.tables.partition_point(|(start, _)| *start <= block);
        let (start, first) = self.tables[after.checked_sub(1)?];
        let within = block - start;
        (within < self.layout.table_blocks).then_some(first + within * self.inodes_per_block())
    }

    /// Adds what the inodes of a block say, of which the first has this number.
    fn inodes(&mut self, volume: &Volume<'_>, number: u64, first: u64, keeper: &mut Keeper<'_>) {
        let Some(bytes) = self.blocks.read(volume, number, |_| true, keeper) else {
            return;
        };
        let inodes = bytes.chunks_exact(self.layout.inode_len as usize);
        for (number, bytes) in (first..).zip(inodes) {
            let inode = Inode::parse(&bytes[..INODE_LEN]);
            if inode.kind != InodeKind::File || number < FIRST_INODE {
                continue;
            }
            if let Some(root) = inode.extents() {
                self.node(volume, root, (number, None), keeper);
            }
        }
    }

    /// Adds the extents of a node of an inode's tree, at this height above the leaves if that is known. What is no node says nothing.
    fn node(
        &mut self,
        volume: &Volume<'_>,
        node: &[u8],
        (inode, height): (u64, Option<u16>),
        keeper: &mut Keeper<'_>,
    ) {
        match Node::parse(node, height) {
            Ok(Node::Leaf(runs)) => {
                for run in runs.into_iter().filter(|run| self.layout.holds(run)) {
                    let piece = piece(run, &self.layout);
                    keeper.keep(FilePiece {
                        start: piece.start,
                        end: piece.end,
                        file: inode,
                        position: piece.position,
                    });
                }
            }
            Ok(Node::Inner(children, height)) => {
                for child in children {
                    let place = Place { inode, height };
                    if let Some(bytes) = self.blocks.read_or_wait(volume, child, place, keeper) {
                        self.node(volume, &bytes, (inode, Some(height)), keeper);
                    }
                }
            }
            Err(_) => {}
        }
    }
}

impl Files for Arriving {
    fn note(&mut self, volume: &Volume<'_>, range: Range, keeper: &mut Keeper<'_>) {
        for number in self.blocks.of(range) {
            if let Some(first) = self.first_inode(number) {
                self.inodes(volume, number, first, keeper);
            } else if let Some(place) = self.blocks.arrived(number, keeper) {
                if let Some(bytes) = self.blocks.read_or_wait(volume, number, place, keeper) {
                    self.node(volume, &bytes, (place.inode, Some(place.height)), keeper);
                }
            }
        }
    }

    fn note_all(&mut self, volume: &Volume<'_>, keeper: &mut Keeper<'_>) {
        for (table, first) in self.tables.clone() {
            for at in 0..self.layout.table_blocks {
                if keeper.is_full() {
                    return;
                }
                let inode = first + at * self.inodes_per_block();
                self.inodes(volume, table + at, inode, keeper);
            }
        }
    }

    fn tables(&self) -> usize {
        self.tables.len()
    }
}
