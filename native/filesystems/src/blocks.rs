//! What is kept of a filesystem that is still arriving.

use std::collections::{HashMap, HashSet};

use super::{Range, Volume};

/// What is kept of an image at most: some 40 MiB, wherever the pieces are kept.
pub(super) const MOST: Left = Left {
    pieces: 1 << 18,
    blocks: 1 << 19,
    waiting: 1 << 16,
    tables: 1 << 16,
};

/// Bytes of an image that hold a file's content from a position on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilePiece {
    /// The first byte in the image.
    pub start: u64,
    /// The byte behind the last one; a file's last block counts wholly.
    pub end: u64,
    /// Number of the file within the image.
    pub file: u64,
    /// Where in the file the first byte is.
    pub position: u64,
}

/// What may still be kept of an image: all its filesystems count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Pieces of files.
    pub(super) pieces: usize,
    /// Blocks that are read.
    pub(super) blocks: usize,
    /// Blocks that are waited for.
    pub(super) waiting: usize,
    /// Tables of inodes.
    pub(super) tables: usize,
}

/// Takes this many of what is left; false, and nothing, if there are not as many.
fn take(left: &mut usize, count: usize) -> bool {
    match left.checked_sub(count) {
        Some(rest) => *left = rest,
        None => return false,
    }
    true
}

/// Collects the pieces of the files of a volume, as long as any may be kept.
pub(super) struct Keeper<'a> {
    pub(super) left: &'a mut Left,
    pub(super) pieces: &'a mut Vec<FilePiece>,
    pub(super) volume: u64,
    pub(super) start: u64,
}

impl Keeper<'_> {
    /// Keeps a piece, if another one may be.
    pub fn keep(&mut self, piece: FilePiece) {
        if take(&mut self.left.pieces, 1) {
            self.pieces.push(in_image(piece, self.volume, self.start));
        }
    }

    /// Returns whether nothing more can be found.
    pub fn is_full(&self) -> bool {
        self.left.pieces == 0 || self.left.blocks == 0
    }
}

/// The files of a filesystem whose inodes are here.
pub(super) trait Files: Send {
    /// Adds what bytes of the volume say that have arrived.
    fn note(&mut self, volume: &Volume<'_>, range: Range, keeper: &mut Keeper<'_>);

    /// Adds what is known from before, as far as it can be found without what has not arrived.
    fn note_all(&mut self, volume: &Volume<'_>, keeper: &mut Keeper<'_>);

    /// Returns the number of tables of inodes that are known.
    fn tables(&self) -> usize;
}

/// Blocks of a filesystem that say where files are.
pub(super) struct Blocks<P> {
    /// Bytes of a block.
    len: u64,
    /// Those that were read: none is twice, whatever points to it.
    read: HashSet<u64>,
    /// What those are for that have not arrived.
    waiting: HashMap<u64, P>,
}

impl<P> Blocks<P> {
    pub fn new(len: u64) -> Blocks<P> {
        Blocks {
            len,
            read: HashSet::new(),
            waiting: HashMap::new(),
        }
    }

    /// Returns the numbers of the blocks of a range.
    pub fn of(&self, range: Range) -> std::ops::Range<u64> {
        range.0 / self.len..range.1.div_ceil(self.len)
    }

    /// Returns what a block was waited for, which ends.
    pub fn arrived(&mut self, number: u64, keeper: &mut Keeper<'_>) -> Option<P> {
        let purpose = self.waiting.remove(&number)?;
        keeper.left.waiting += 1;
        Some(purpose)
    }

    /// Reads a block of which `is_wanted` says that it is one, unless it was read before or is not here.
    pub fn read(
        &mut self,
        volume: &Volume<'_>,
        number: u64,
        is_wanted: impl Fn(&[u8]) -> bool,
        keeper: &mut Keeper<'_>,
    ) -> Option<Vec<u8>> {
        if self.read.contains(&number) || keeper.is_full() {
            return None;
        }
        let place = number.checked_mul(self.len)?;
        let bytes = volume.read(place, self.len as usize).ok()?;
        if !is_wanted(&bytes) || !take(&mut keeper.left.blocks, 1) {
            return None;
        }
        self.read.insert(number);
        Some(bytes)
    }

    /// Reads a block as `read` does, or waits for it.
    pub fn read_or_wait(
        &mut self,
        volume: &Volume<'_>,
        number: u64,
        purpose: P,
        keeper: &mut Keeper<'_>,
    ) -> Option<Vec<u8>> {
        let found = self.read(volume, number, |_| true, keeper);
        let is_known = self.read.contains(&number) || self.waiting.contains_key(&number);
        if !is_known && take(&mut keeper.left.waiting, 1) {
            self.waiting.insert(number, purpose);
        }
        found
    }
}

/// Moves a piece from a volume, the numbers of whose files have 32 bits, to its image.
fn in_image(piece: FilePiece, volume: u64, start: u64) -> FilePiece {
    FilePiece {
        start: start + piece.start,
        end: start + piece.end,
        file: volume << 32 | piece.file,
        ..piece
    }
}
