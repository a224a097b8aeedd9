//! Files of other programs that have the content of an image, such as Nova's base images.
//!
//! Their owner may change them at any moment, so each leaf is verified before it is sent: what was hashed is what leaves this host.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use rustix::fs::{Mode, OFlags};

use crate::serving::object_file::{regular_size, ObjectsError};

/// Bytes of leaves that a reader keeps at most.
const MOST_IN_MEMORY: u64 = 1 << 20;

/// A file that has, or had, the content of a manifest.
pub struct Borrowed {
    file: File,
    manifest: Arc<Manifest>,
}

/// Why bytes of a borrowed file cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum BorrowedError {
    /// Its owner changed it.
    #[error("leaf {0} of the borrowed file has changed")]
    Changed(u64),
    /// The system's own error; a file that became shorter is one.
    #[error("the borrowed file cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
}

impl Borrowed {
    /// Opens a file; its content is not read.
    pub fn open(path: &Path, manifest: Arc<Manifest>) -> Result<Borrowed, ObjectsError> {
        // Do not wait for a writer if the path is a FIFO.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file =
            File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(std::io::Error::from)?);
        let size = regular_size(&rustix::fs::fstat(&file).map_err(std::io::Error::from)?)?;
        if size != manifest.size() {
            return Err(ObjectsError::OtherSize {
                size,
                expected: manifest.size(),
            });
        }
        Ok(Borrowed { file, manifest })
    }

    /// The file; what it has may have changed.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// What it has, or had.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Bytes of the image.
    pub fn size(&self) -> u64 {
        self.manifest.size()
    }

    /// Reads and verifies the leaves from the one at `begin` up to the byte at `stop`, both of which are borders of leaves.
    fn read_leaves(
        &self,
        begin: u64,
        stop: u64,
        leaves: &mut Vec<u8>,
    ) -> Result<(), BorrowedError> {
        leaves.resize((stop - begin) as usize, 0);
        self.file.read_exact_at(leaves, begin)?;
        for (index, leaf) in (begin / LEAF_SIZE..).zip(leaves.chunks(LEAF_SIZE as usize)) {
            if !self.manifest.verify_leaf(index, leaf) {
                return Err(BorrowedError::Changed(index));
            }
        }
        Ok(())
    }
}

/// Reads bytes of a borrowed file in their order; each leaf is read and verified once.
pub struct VerifiedReader {
    borrowed: Arc<Borrowed>,
    /// Verified leaves, of which the first is at `begin`.
    leaves: Vec<u8>,
    begin: u64,
}

impl VerifiedReader {
    /// A reader that has read nothing yet.
    pub fn new(borrowed: Arc<Borrowed>) -> VerifiedReader {
        VerifiedReader {
            borrowed,
            leaves: Vec::new(),
            begin: 0,
        }
    }

    /// The file.
    pub fn borrowed(&self) -> &Arc<Borrowed> {
        &self.borrowed
    }

    /// Returns bytes from `start` on, at least one and none at or after `end`.
    pub fn read(&mut self, start: u64, end: u64) -> Result<&[u8], BorrowedError> {
        if !(self.begin..self.stop()).contains(&start) {
            self.load(start, end)?;
        }
        let stop = end.min(self.stop());
        Ok(&self.leaves[(start - self.begin) as usize..(stop - self.begin) as usize])
    }

    /// The end of the leaves that are in memory.
    fn stop(&self) -> u64 {
        self.begin + self.leaves.len() as u64
    }

    fn load(&mut self, start: u64, end: u64) -> Result<(), BorrowedError> {
        let begin = start / LEAF_SIZE * LEAF_SIZE;
        let stop = end.min(begin + MOST_IN_MEMORY).next_multiple_of(LEAF_SIZE);
        let stop = stop.min(self.borrowed.size());
        let read = self.borrowed.read_leaves(begin, stop, &mut self.leaves);
        if read.is_err() {
            // They are not verified.
            self.leaves.clear();
        }
        self.begin = begin;
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use diffcache_core::source::FileSource;
    use diffcache_core::task::Task;

    fn borrow(path: &Path, content: &[u8]) -> Borrowed {
        std::fs::write(path, content).unwrap();
        let source = FileSource::open(path).unwrap();
        let manifest = Manifest::from_source(&source, &Task::default()).unwrap();
        Borrowed::open(path, Arc::new(manifest)).unwrap()
    }

    fn read_all(borrowed: &Arc<Borrowed>, start: u64, end: u64) -> Result<Vec<u8>, BorrowedError> {
        let mut reader = VerifiedReader::new(borrowed.clone());
        let mut found = Vec::new();
        while start + (found.len() as u64) < end {
            found.extend_from_slice(reader.read(start + found.len() as u64, end)?);
        }
        Ok(found)
    }

    fn content() -> Vec<u8> {
        (0..3 * LEAF_SIZE + 100)
            .map(|byte| (byte / 251) as u8)
            .collect()
    }

    #[test]
    fn any_range_is_read_and_a_changed_leaf_is_not() {
        let directory = Directory::new();
        let (path, content) = (directory.path.join("base"), content());
        let borrowed = Arc::new(borrow(&path, &content));
        let size = content.len() as u64;
        for (start, end) in [
            (0, size),
            (1, 2),
            (LEAF_SIZE - 1, LEAF_SIZE + 1),
            (size - 1, size),
        ] {
            let read = read_all(&borrowed, start, end).unwrap();
            assert_eq!(read, &content[start as usize..end as usize]);
        }
        let writer = File::options().write(true).open(&path).unwrap();
        writer.write_all_at(b"x", 2 * LEAF_SIZE + 5).unwrap();
        assert!(read_all(&borrowed, 0, 2 * LEAF_SIZE).is_ok());
        // The leaf counts, not the bytes of it that were requested.
        let mut reader = VerifiedReader::new(borrowed.clone());
        for _ in 0..2 {
            let changed = reader.read(2 * LEAF_SIZE + 50, 2 * LEAF_SIZE + 60);
            assert!(matches!(changed, Err(BorrowedError::Changed(2))));
        }
        writer.set_len(10).unwrap();
        let short = read_all(&borrowed, 0, 100);
        assert!(matches!(short, Err(BorrowedError::Unreadable(_))));
    }

    #[test]
    fn slices_of_any_size_read_each_leaf_once() {
        let directory = Directory::new();
        let (path, content) = (directory.path.join("base"), content());
        let borrowed = Arc::new(borrow(&path, &content));
        let writer = File::options().write(true).open(&path).unwrap();
        let mut reader = VerifiedReader::new(borrowed);
        let mut position = 0;
        while position < content.len() {
            let end = (position + 10_007).min(content.len());
            let count = reader.read(position as u64, end as u64).unwrap();
            assert_eq!(count, &content[position..position + count.len()]);
            position += count.len();
            // What was verified is not read again, so a change of it is not seen.
            let last = (position - 1) as u64;
            writer
                .write_all_at(&[!content[last as usize]], last)
                .unwrap();
        }
    }

    #[test]
    fn a_removed_file_stays_readable_and_one_of_another_size_is_refused() {
        let directory = Directory::new();
        let (path, content) = (directory.path.join("base"), content());
        let borrowed = Arc::new(borrow(&path, &content));
        let manifest = borrowed.manifest.clone();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_all(&borrowed, 0, 10).unwrap(), &content[..10]);
        std::fs::write(&path, &content[1..]).unwrap();
        assert!(matches!(
            Borrowed::open(&path, manifest.clone()),
            Err(ObjectsError::OtherSize { .. })
        ));
        assert!(matches!(
            Borrowed::open(&directory.path, manifest),
            Err(ObjectsError::NotAFile)
        ));
    }
}
