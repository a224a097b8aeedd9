//! Files of other programs that have the content of a template, such as Nova's base images.
//!
//! Their owner may change them at any moment, so each leaf is verified before it is sent: what was hashed is what leaves this host.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use rustix::fs::{Mode, OFlags};

use crate::serving::objects::{regular_size, ObjectsError};

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

    /// Bytes of the template.
    pub fn size(&self) -> u64 {
        self.manifest.size()
    }

    /// Reads and verifies the leaves that have the bytes from `start` to `end`; returns those bytes, which are in `buffer`.
    pub fn read<'a>(
        &self,
        start: u64,
        end: u64,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], BorrowedError> {
        let first = start / LEAF_SIZE;
        let begin = first * LEAF_SIZE;
        let stop = (end.div_ceil(LEAF_SIZE) * LEAF_SIZE).min(self.size());
        buffer.resize((stop - begin) as usize, 0);
        self.file.read_exact_at(buffer, begin)?;
        for (index, leaf) in (first..).zip(buffer.chunks(LEAF_SIZE as usize)) {
            if !self.manifest.verify_leaf(index, leaf) {
                return Err(BorrowedError::Changed(index));
            }
        }
        Ok(&buffer[(start - begin) as usize..(end - begin) as usize])
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

    fn content() -> Vec<u8> {
        (0..3 * LEAF_SIZE + 100)
            .map(|byte| (byte / 251) as u8)
            .collect()
    }

    #[test]
    fn any_range_is_read_and_a_changed_leaf_is_not() {
        let directory = Directory::new();
        let (path, content) = (directory.path.join("base"), content());
        let borrowed = borrow(&path, &content);
        let mut buffer = Vec::new();
        let size = content.len() as u64;
        for (start, end) in [
            (0, size),
            (1, 2),
            (LEAF_SIZE - 1, LEAF_SIZE + 1),
            (size - 1, size),
        ] {
            let read = borrowed.read(start, end, &mut buffer).unwrap();
            assert_eq!(read, &content[start as usize..end as usize]);
        }
        let writer = File::options().write(true).open(&path).unwrap();
        writer.write_all_at(b"x", 2 * LEAF_SIZE + 5).unwrap();
        assert!(borrowed.read(0, 2 * LEAF_SIZE, &mut buffer).is_ok());
        // The leaf counts, not the bytes of it that were requested.
        let changed = borrowed.read(2 * LEAF_SIZE + 50, 2 * LEAF_SIZE + 60, &mut buffer);
        assert!(matches!(changed, Err(BorrowedError::Changed(2))));
        writer.set_len(10).unwrap();
        let short = borrowed.read(0, 100, &mut buffer);
        assert!(matches!(short, Err(BorrowedError::Unreadable(_))));
    }

    #[test]
    fn a_removed_file_stays_readable_and_one_of_another_size_is_refused() {
        let directory = Directory::new();
        let (path, content) = (directory.path.join("base"), content());
        let borrowed = borrow(&path, &content);
        let manifest = borrowed.manifest.clone();
        std::fs::remove_file(&path).unwrap();
        let mut buffer = Vec::new();
        assert_eq!(borrowed.read(0, 10, &mut buffer).unwrap(), &content[..10]);
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
