//! Which file a read belongs to, and where the rest of it is.
//!
//! The guest has read the inode of a file before it reads the file, so that nothing is fetched to know that. It is found out when a read has been answered,
//! by one thread at a time, and what was found is lost with its worker: the next one finds files of ext4 again in the part of the image that is here,
//! and those of XFS with the next inodes that are read.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::{ReadAt, SourceError};
use diffcache_filesystems::{ArrivingFiles, FilePiece};
use diffcache_prefetch::{Chunk, FileExtent, Files};

use crate::image::leaves::Leaves;
use crate::sizes::CHUNK;

/// Reads that wait to be followed; later ones are not, which costs no more than chunks that are fetched when they are read.
const MAX_WAITING: usize = 4096;

/// Ranges of bytes that were read, in order; none once they are closed.
pub struct ReadRanges(Mutex<Option<VecDeque<Range<u64>>>>);

impl Default for ReadRanges {
    fn default() -> ReadRanges {
        ReadRanges(Mutex::new(Some(VecDeque::new())))
    }
}

impl ReadRanges {
    /// Add a range, which is not empty, unless too many wait.
    pub fn add(&self, range: Range<u64>) {
        let mut waiting = self.0.lock().unpoisoned();
        let open = waiting.as_mut().filter(|open| open.len() < MAX_WAITING);
        if let Some(open) = open.filter(|_| !range.is_empty()) {
            open.push_back(range);
        }
    }

    /// Take no more ranges, and forget those that wait.
    pub fn close(&self) {
        *self.0.lock().unpoisoned() = None;
    }

    /// Return whether a range waits.
    pub fn is_waiting(&self) -> bool {
        self.0
            .lock()
            .unpoisoned()
            .as_ref()
            .is_some_and(|open| !open.is_empty())
    }

    /// Take the first range that waits.
    pub fn take(&self) -> Option<Range<u64>> {
        self.0.lock().unpoisoned().as_mut()?.pop_front()
    }
}

/// The part of an image that is here.
struct Here<'a>(&'a Leaves);

impl ReadAt for Here<'_> {
    fn len(&self) -> u64 {
        self.0.manifest().size()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.len() {
            return Err(SourceError::PastEnd {
                name: "image".to_owned(),
                len: self.len(),
                end,
            });
        }
        let io = |source| SourceError::Io {
            name: "local part of the image".to_owned(),
            source,
        };
        if !self.0.check_range(&(offset..end)) {
            return Err(SourceError::Unavailable {
                name: "image".to_owned(),
                reason: "the bytes have not arrived".to_owned(),
            });
        }
        std::os::unix::fs::FileExt::read_exact_at(self.0.file(), buf, offset).map_err(io)
    }
}

/// Knows the files whose inodes have been read.
#[derive(Default)]
pub struct FileFollower {
    arriving: ArrivingFiles,
    files: Files,
}

impl FileFollower {
    /// Take what a range that was read says of files, by the local part of the image, and return the chunks of the rest of the file that it ended in: at
    /// most this many.
    pub fn follow(&mut self, leaves: &Leaves, range: Range<u64>, most: usize) -> Vec<Chunk> {
        let noted = self.arriving.note(&Here(leaves), (range.start, range.end));
        for piece in noted.pieces {
            self.files.add(extent(piece));
        }
        for refusal in noted.refusals {
            log::info!("Not prefetching the rest of files of a {refusal}");
        }
        self.files.rest(range.end.saturating_sub(1), CHUNK, most)
    }
}

fn extent(piece: FilePiece) -> FileExtent {
    FileExtent {
        start: piece.start,
        end: piece.end,
        file: piece.file,
        position: piece.position,
    }
}
