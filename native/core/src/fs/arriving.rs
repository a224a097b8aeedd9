//! The files of an image of which only some parts are here.
//!
//! A guest reads the inode of a file before the file, so that what it has read says where the rest of the file is, and nothing more has to be fetched for
//! that.

use super::{ext4, partitions, Range, Refusal, Volume};
use crate::source::ReadAt;

/// Most pieces of files that are found in an image: some 10 MiB where they are kept.
const MAX_PIECES: usize = 1 << 18;

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

/// The files of an image, as far as their inodes are here: regular files of ext4 with extents.
///
/// An image is its author's input: what contradicts itself is left alone, and at most 2^18 pieces are found.
#[derive(Default)]
pub struct ArrivingFiles {
    is_partitioned: bool,
    /// Partitions whose filesystem is not known yet.
    unknown: Vec<Range>,
    volumes: Vec<(Range, ext4::Arriving)>,
    found: usize,
}

impl ArrivingFiles {
    /// Returns what a range of the image, which is here, says of the places of files.
    ///
    /// `image` answers with an error for bytes that are not here.
    pub fn note(&mut self, image: &dyn ReadAt, range: Range) -> Noted {
        let mut noted = Noted::default();
        if self.found >= MAX_PIECES {
            return noted;
        }
        self.open(image, range, &mut noted);
        for (number, (bounds, files)) in (0..).zip(&mut self.volumes) {
            let within = (range.0.max(bounds.0), range.1.min(bounds.1));
            if within.0 < within.1 {
                let volume = volume(image, *bounds);
                let range = (within.0 - bounds.0, within.1 - bounds.0);
                let keep = |piece| noted.pieces.push(in_image(piece, number, bounds.0));
                files.note(&volume, range, keep);
            }
        }
        noted.pieces.truncate(MAX_PIECES - self.found);
        self.found += noted.pieces.len();
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
            match ext4::Arriving::open(&volume(image, bounds)) {
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
        mut files: ext4::Arriving,
        noted: &mut Noted,
    ) {
        let number = self.volumes.len() as u64;
        let keep = |piece| noted.pieces.push(in_image(piece, number, bounds.0));
        files.note_all(&volume(image, bounds), keep);
        self.volumes.push((bounds, files));
    }
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
