//! The files of an image of which only some parts are here.
//!
//! A guest reads the inode of a file before the file, so that what it has read says where the rest of the file is, and nothing more has to be fetched for
//! that.

use super::blocks::{FilePiece, Files, Keeper, Left, MOST};
use super::{ext4, partitions, signatures, xfs, Range, Refusal, Volume};
use diffcache_core::source::ReadAt;

/// What a range of an image says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Noted {
    /// Pieces of files that were not known.
    pub pieces: Vec<FilePiece>,
    /// Why filesystems that the range is of are left alone; each is named once.
    pub refusals: Vec<String>,
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

/// Takes the filesystem of a volume whose superblock and descriptors are here, and that has this many tables of inodes at most; none if it is of no known
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
