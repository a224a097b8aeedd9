//! The files of an image of which only some parts are here.
//!
//! A guest reads the inode of a file before the file, so that what it has read says where the rest of the file is, and nothing more has to be fetched for
//! that.

use std::collections::{HashMap, HashSet};

use super::{ext4, partitions, signatures, xfs, Range, Refusal, Volume};
use crate::source::ReadAt;

/// What is kept of an image at most: some 40 MiB, wherever the pieces are kept.
const MOST: Left = Left {
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

/// What a range of an image says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    /// Pieces of files that were not known.
    pub pieces: Vec<FilePiece>,
    /// Why filesystems that the range is of are left alone; each is named once.
    pub refusals: Vec<String>,
}

/// What may still be kept of an image: all its filesystems count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Left {
    /// Pieces of files.
    pieces: usize,
    /// Blocks that are read.
    blocks: usize,
    /// Blocks that are waited for.
    waiting: usize,
    /// Tables of inodes.
    tables: usize,
}

/// Takes so many of what is left; false, and nothing, if there are not as many.
fn take(left: &mut usize, count: usize) -> bool {
    match left.checked_sub(count) {
        Some(rest) => *left = rest,
        None => return false,
    }
    true
}

/// Collects the pieces of the files of a volume, as long as any may be kept.
pub(super) struct Keeper<'a> {
    left: &'a mut Left,
    pieces: &'a mut Vec<FilePiece>,
    volume: u64,
    start: u64,
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

/// The files of an image, as far as their inodes are here: regular files of ext4 with extents, and of XFS of version 5.
///
/// A filesystem that was not unmounted is followed as it is stored: what its journal has besides is not known. An image is its author's input: what
/// contradicts itself is left alone, and at most 2^18 pieces are found.
pub struct ArrivingFiles {
    is_partitioned: bool,
    /// Partitions whose filesystem is not known yet.
    unknown: Vec<Range>,
    volumes: Vec<(Range, Box<dyn Files>)>,
    left: Left,
}

impl Default for ArrivingFiles {
    fn default() -> ArrivingFiles {
        ArrivingFiles {
            is_partitioned: false,
            unknown: Vec::new(),
            volumes: Vec::new(),
            left: MOST,
        }
    }
}

impl ArrivingFiles {
    /// Returns what a range of the image, which is here, says of the places of files.
    ///
    /// `image` answers with an error for bytes that are not here.
    pub fn note(&mut self, image: &dyn ReadAt, range: Range) -> Noted {
        let mut noted = Noted::default();
        if self.left.pieces == 0 {
            return noted;
        }
        self.open(image, range, &mut noted);
        for (number, (bounds, files)) in (0..).zip(&mut self.volumes) {
            let within = (range.0.max(bounds.0), range.1.min(bounds.1));
            if within.0 < within.1 {
                let volume = volume(image, *bounds);
                let range = (within.0 - bounds.0, within.1 - bounds.0);
                let mut keeper = Keeper {
                    left: &mut self.left,
                    pieces: &mut noted.pieces,
                    volume: number,
                    start: bounds.0,
                };
                files.note(&volume, range, &mut keeper);
            }
        }
        noted
    }

    /// Looks for the filesystems of the partitions that a range is of.
    fn open(&mut self, image: &dyn ReadAt, range: Range, noted: &mut Noted) {
        if !self.is_partitioned {
            let Ok(found) = partitions::find(image) else {
                return;
            };
            (self.is_partitioned, self.unknown) = (true, found);
        }
        let unknown = std::mem::take(&mut self.unknown);
        for bounds in unknown {
            if range.0 >= bounds.1 || range.1 <= bounds.0 {
                self.unknown.push(bounds);
                continue;
            }
            match open(&volume(image, bounds), self.left.tables) {
                Ok(Some(files)) => self.add(image, bounds, files, noted),
                Ok(None) => {}
                Err(Refusal::Source(_)) => self.unknown.push(bounds),
                Err(Refusal::Reason(reason)) => {
                    let refusal = format!("filesystem at byte {}: {reason}", bounds.0);
                    noted.refusals.push(refusal);
                }
            }
        }
    }

    /// Adds a filesystem, with what inodes say that arrived before.
    fn add(
        &mut self,
        image: &dyn ReadAt,
        bounds: Range,
        mut files: Box<dyn Files>,
        noted: &mut Noted,
    ) {
        self.left.tables = self.left.tables.saturating_sub(files.tables());
        let mut keeper = Keeper {
            left: &mut self.left,
            pieces: &mut noted.pieces,
            volume: self.volumes.len() as u64,
            start: bounds.0,
        };
        files.note_all(&volume(image, bounds), &mut keeper);
        self.volumes.push((bounds, files));
    }
}

/// Takes the filesystem of a volume whose superblock and descriptors are here, and that has so many tables of inodes at most; none if it is of no known
/// kind. `Refusal::Source` if they are not here.
fn open(volume: &Volume<'_>, tables: usize) -> Result<Option<Box<dyn Files>>, Refusal> {
    Ok(
        match (ext4::recognises(volume)?, xfs::recognises(volume)?) {
            (true, false) if !signatures::in_head(volume, "ext4")? => {
                Some(Box::new(ext4::Arriving::open(volume, tables)?))
            }
            (false, true) => Some(Box::new(xfs::Arriving::open(volume)?)),
            _ => None,
        },
    )
}

fn volume(image: &dyn ReadAt, (start, end): Range) -> Volume<'_> {
    Volume {
        image,
        start,
        size: end - start,
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
