//! The files of an image's local part, as far as [`Leaves`](crate::image::leaves::Leaves) needs them: tests put disks in their place that fail.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};

/// What tells a file from another one, or from what it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the file in its file system.
    pub number: u64,
    /// Bytes of it.
    pub len: u64,
    /// When its content changed, in nanoseconds.
    pub modified_ns: u64,
    /// When anything of it changed, which no program can set back.
    pub changed_ns: u64,
}

impl Stamp {
    /// Return it as it is stored.
    pub fn to_bytes(self) -> [u8; 32] {
        let words = [self.number, self.len, self.modified_ns, self.changed_ns];
        let mut bytes = [0; 32];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// A file that is read and written at offsets.
pub trait Storage {
    /// Fill a buffer from an offset on.
    ///
    /// # Errors
    /// Of the disk, and at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Write all of some bytes at an offset.
    ///
    /// # Errors
    /// Of the disk.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Cut the file, or extend it with zeros.
    ///
    /// # Errors
    /// Of the disk.
    fn resize(&self, len: u64) -> io::Result<()>;

    /// Make all that was written durable.
    ///
    /// # Errors
    /// Of the disk, once, if anything that was written since the last call is lost.
    fn sync(&self) -> io::Result<()>;

    /// Return what tells whether this is the file of before.
    ///
    /// # Errors
    /// Of the disk.
    fn stamp(&self) -> io::Result<Stamp>;

    /// Have what is durable read from the disk again: the kernel's copy may be of what never reached it.
    fn forget_cached(&self);
}

impl Storage for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn resize(&self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let found = self.metadata()?;
        let nanoseconds = |seconds: i64, rest: i64| {
            (seconds as u64)
                .wrapping_mul(1_000_000_000)
                .wrapping_add(rest as u64)
        };
        Ok(Stamp {
            number: found.ino(),
            len: found.len(),
            modified_ns: nanoseconds(found.mtime(), found.mtime_nsec()),
            changed_ns: nanoseconds(found.ctime(), found.ctime_nsec()),
        })
    }

    fn forget_cached(&self) {
        // Advice: where it is not taken, the kernel's copy is verified instead.
        let _ = rustix::fs::fadvise(self, 0, None, rustix::fs::Advice::DontNeed);
    }
}
