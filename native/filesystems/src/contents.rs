//! What a filesystem says of its files.

use super::{refuse, Refusal};

/// What bytes of an image are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The content of a regular file.
    File,
    /// The entries of a directory.
    Directory,
    /// A filesystem's tables of inodes.
    Inodes,
    /// A filesystem's journal.
    Journal,
    /// What else a filesystem stores: superblocks, descriptors, bitmaps, maps of blocks, attributes.
    Metadata,
    /// What a filesystem marks free.
    Free,
    /// What is in no partition: boot loader, tables of partitions, gaps.
    Unpartitioned,
    /// A partition, or the part of it, whose files cannot be read.
    Unknown,
}

impl Kind {
    /// Returns the kind's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Inodes => "inodes",
            Kind::Journal => "journal",
            Kind::Metadata => "metadata",
            Kind::Free => "free",
            Kind::Unpartitioned => "unpartitioned",
            Kind::Unknown => "unknown",
        }
    }
}

/// A file, or another use of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Where the partition starts, in bytes; 0 for what is in none.
    pub partition: u64,
    /// A file's path in its filesystem, of several the first in the order of their bytes; control characters are escaped. Else empty.
    pub path: String,
    /// Bytes of a file's content; of a sparse one more than is stored. Else 0.
    pub size: u64,
    /// Why the use of bytes is unknown. Else empty.
    pub reason: String,
}

/// Bytes of an image that belong to one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first byte in the image.
    pub start: u64,
    /// The byte behind the last one; a file's last block counts wholly.
    pub end: u64,
    /// Which entry.
    pub entry: u32,
    /// Where in the entry's content the first byte is; of what has no content, where in the partition, or in the image if it is in none.
    pub position: u64,
}

/// The extents of a volume, all of its bytes in order.
pub(super) struct Laid {
    pub(super) entries: Vec<Entry>,
    pub(super) extents: Vec<Extent>,
}

impl Laid {
    /// Adds what nothing was found for: metadata, the entry `rest`, up to the end of the filesystem, and behind it the next entry.
    pub(super) fn gap(
        &mut self,
        range: std::ops::Range<u64>,
        end: u64,
        volume_start: u64,
        rest: u32,
    ) {
        let parts = [
            (range.start, range.end.min(end), rest),
            (range.start.max(end), range.end, rest + 1),
        ];
        for (start, end, entry) in parts.into_iter().filter(|(start, end, _)| start < end) {
            self.extents.push(Extent {
                start,
                end,
                entry,
                position: start - volume_start,
            });
        }
    }
}

/// What may still be kept of an image: all its filesystems count together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Budget {
    /// Files, directories, and other uses.
    pub entries: usize,
    /// Bytes of their paths.
    pub path_bytes: usize,
    /// Extents.
    pub extents: usize,
}

/// Of an image: some 32 MiB of extents, and 256 MiB of paths.
pub(super) const BUDGET: Budget = Budget {
    entries: 1 << 20,
    path_bytes: 256 << 20,
    extents: 1 << 20,
};

impl Budget {
    /// Takes what a filesystem has, or refuses the filesystem.
    pub(super) fn take(&mut self, laid: &Laid) -> Result<(), Refusal> {
        let path_bytes: usize = laid.entries.iter().map(|entry| entry.path.len()).sum();
        let entries = self.entries.checked_sub(laid.entries.len());
        let path_bytes = self.path_bytes.checked_sub(path_bytes);
        let extents = self.extents.checked_sub(laid.extents.len());
        let (Some(entries), Some(path_bytes), Some(extents)) = (entries, path_bytes, extents)
        else {
            return refuse(TOO_MUCH);
        };
        *self = Budget {
            entries,
            path_bytes,
            extents,
        };
        Ok(())
    }
}

pub(super) const TOO_MUCH: &str =
    "the image has too many files, or files and free space in too many pieces";

/// Bytes of a volume that hold a content from a position on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub start: u64,
    pub end: u64,
    pub position: u64,
}

/// What a filesystem has.
pub(super) struct Found {
    pub kind: Kind,
    pub path: String,
    pub size: u64,
    pub pieces: Vec<Piece>,
}

/// What a filesystem has, and where in its volume it ends.
pub(super) struct Contents {
    pub found: Vec<Found>,
    pub end: u64,
}
