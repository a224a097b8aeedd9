//! Random access to images, wherever they are stored.

mod file;
mod paced;
mod pieces;

use std::io;

use crate::retry::ErrorKind;

pub use file::{open_file, FileSource, Stamp};
pub use paced::{use_idle_io, PacedFile};
pub use pieces::{data_after, data_pieces, read_data, Pieces};

/// Why bytes could not be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The system refused to open or read a local file.
    #[error("{name}: {source}")]
    Io {
        /// What was being read.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The source is shorter than the requested range.
    #[error("{name}: ends at byte {len}, but bytes up to {end} were requested")]
    PastEnd {
        /// What was being read.
        name: String,
        /// Its length in bytes.
        len: u64,
        /// End of the requested range, in bytes.
        end: u64,
    },
    /// A local file was written to since it was opened, so that what was read of it is of no single state.
    #[error("{name}: it changed while it was read; try again when no program writes to it")]
    Changed {
        /// What was being read.
        name: String,
    },
    /// A remote source did not answer, or stopped answering; another source, or a later try, may do.
    #[error("{name}: unavailable: {reason}")]
    Unavailable {
        /// What was being read, and from where.
        name: String,
        /// What happened.
        reason: String,
    },
    /// A remote source refused to serve this host; another attempt will be refused too.
    #[error("{name}: refused: {reason}")]
    Refused {
        /// What was being read, and from where.
        name: String,
        /// What it said.
        reason: String,
    },
    /// A source handed out bytes that its hash does not vouch for; another source may do.
    #[error("{name}: {reason}")]
    Corrupt {
        /// What was being read.
        name: String,
        /// Which bytes, and what vouched for them.
        reason: String,
    },
}

impl SourceError {
    /// Returns the kind of the error, by which callers decide.
    pub fn kind(&self) -> ErrorKind {
        match self {
            SourceError::Io { .. } => ErrorKind::System,
            SourceError::PastEnd { .. } | SourceError::Corrupt { .. } => ErrorKind::Integrity,
            SourceError::Changed { .. } => ErrorKind::Interrupted,
            SourceError::Unavailable { .. } => ErrorKind::SourceUnavailable,
            SourceError::Refused { .. } => ErrorKind::Other,
        }
    }

    /// Returns whether the same read may succeed later, or from another source.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }
}

/// An immutable sequence of bytes with random access.
///
/// An implementation guarantees: the length never changes; equal reads give equal bytes (where that cannot be guaranteed, as for another host's
/// file, a manifest above verifies them); all methods may be called from several threads at a time.
pub trait ReadAt: Send + Sync {
    /// Returns the length in bytes.
    fn len(&self) -> u64;

    /// Returns what errors call the source.
    fn name(&self) -> &str {
        "the source"
    }

    /// Returns whether the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `offset` on. Large reads are cheap per byte; a caller that can wait coalesces.
    ///
    /// # Errors
    /// `PastEnd` if the range is not wholly inside the source; otherwise whatever kept the bytes from arriving. `buf` is undefined after an error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError>;

    /// Returns the next range at or after `offset` that may hold something else than zeroes, as (start, end); `None` if only zeroes follow. A source
    /// without that knowledge returns all that follows.
    ///
    /// # Errors
    /// Whatever kept the answer from arriving.
    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        let len = self.len();
        Ok((offset < len).then_some((offset, len)))
    }

    /// Fails if the source is known to have changed since it was opened. A caller that reads it more than once, or needs
    /// all of it to be of one state, checks before it uses the outcome.
    ///
    /// # Errors
    /// `Changed`, or whatever kept the answer from arriving.
    fn check_unchanged(&self) -> Result<(), SourceError> {
        Ok(())
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        (**self).read_exact_at(buf, offset)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        (**self).next_data(offset)
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        (**self).check_unchanged()
    }
}

impl<T: ReadAt + ?Sized> ReadAt for std::sync::Arc<T> {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn name(&self) -> &str {
        (**self).name()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        (**self).read_exact_at(buf, offset)
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        (**self).next_data(offset)
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        (**self).check_unchanged()
    }
}

/// Bytes in memory, mostly for tests and for small remote objects that were fetched whole.
impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        let range = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..)?.get(..buf.len()));
        match range {
            Some(bytes) => {
                buf.copy_from_slice(bytes);
                Ok(())
            }
            None => Err(SourceError::PastEnd {
                name: "bytes in memory".to_owned(),
                len: <[u8]>::len(self) as u64,
                end,
            }),
        }
    }
}

/// See `[u8]`.
impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.as_slice().read_exact_at(buf, offset)
    }
}

/// Fills `buf` with the bytes from `offset` on, and with zeroes past the end of the source.
///
/// # Errors
/// As [`ReadAt::read_exact_at`].
pub fn read_padded(source: &dyn ReadAt, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
    let have = source.len().saturating_sub(offset).min(buf.len() as u64) as usize;
    let (inside, outside) = buf.split_at_mut(have);
    outside.fill(0);
    if inside.is_empty() {
        return Ok(());
    }
    source.read_exact_at(inside, offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{seek, SeekFrom};
    use std::io::{Seek, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::FileExt;
    use std::path::Path;

    #[test]
    fn memory_answers_ranges_and_refuses_what_it_lacks() {
        let bytes = b"0123456789".to_vec();
        let mut buf = [0u8; 4];
        bytes.read_exact_at(&mut buf, 3).unwrap();
        assert_eq!(&buf, b"3456");
        assert!(matches!(
            bytes.read_exact_at(&mut buf, 7),
            Err(SourceError::PastEnd {
                len: 10,
                end: 11,
                ..
            })
        ));
        assert!(matches!(
            bytes.read_exact_at(&mut buf, u64::MAX),
            Err(SourceError::PastEnd { .. })
        ));
    }

    #[test]
    fn holes_of_a_file_are_skipped() {
        let mut file = tempfile::tempfile().unwrap();
        file.set_len(4 << 20).unwrap();
        file.seek(io::SeekFrom::Start(2 << 20)).unwrap();
        file.write_all(&[7u8; 4096]).unwrap();
        let source = FileSource::from_file(file, "sparse".to_owned()).unwrap();
        assert_eq!(
            source.next_data(0).unwrap(),
            Some((2 << 20, (2 << 20) + 4096))
        );
        assert_eq!(source.next_data((2 << 20) + 4096).unwrap(), None);
        assert_eq!(source.next_data(u64::MAX).unwrap(), None);
    }

    #[test]
    fn pieces_with_data_are_counted_through() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 20).unwrap();
        for at in [0, 1, 5, 6, 40] {
            file.write_all_at(&[1; 100], (at << 20) + 5000).unwrap();
        }
        let source = FileSource::from_file(file, "sparse".to_owned()).unwrap();
        let pieces = data_pieces(&source, 1 << 20).unwrap();
        let numbers: Vec<u64> = (0..pieces.count()).map(|i| pieces.number(i)).collect();
        assert_eq!(numbers, [0, 1, 5, 6, 40]);
        assert_eq!(pieces.data_len(), 5 * 4096);
        let some = Pieces::of([1..3, 4..6, 6..7, 39..50].into_iter());
        let both = pieces.intersection(&some);
        let numbers: Vec<u64> = (0..both.count()).map(|i| both.number(i)).collect();
        assert_eq!(numbers, [1, 5, 6, 40]);
        let whole = data_pieces(&vec![0u8; (7 << 20) + 1], 1 << 20).unwrap();
        let both = whole.clone().union(pieces);
        let numbers: Vec<u64> = (0..both.count()).map(|i| both.number(i)).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6, 7, 40]);
        assert_eq!(data_pieces(&Vec::new(), 1 << 20).unwrap().count(), 0);
    }

    #[test]
    fn a_walk_makes_progress_whatever_the_source_says() {
        struct Stuck;
        impl ReadAt for Stuck {
            fn len(&self) -> u64 {
                100
            }
            fn read_exact_at(&self, _: &mut [u8], _: u64) -> Result<(), SourceError> {
                Ok(())
            }
            fn next_data(&self, _: u64) -> Result<Option<(u64, u64)>, SourceError> {
                Ok(Some((0, 50)))
            }
        }
        assert_eq!(data_after(&Stuck, 10).unwrap(), Some((10, 50)));
        assert!(data_after(&Stuck, 50).is_err());
        assert!(data_pieces(&Stuck, 10).is_err());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = FileSource::open(Path::new("/nonexistent/image")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/image"));
        assert!(!error.is_retryable());
    }

    #[test]
    fn a_file_that_is_written_to_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = FileSource::open(file.path()).unwrap();
        source.check_unchanged().unwrap();
        file.as_file().set_len(1).unwrap();
        let error = source.check_unchanged().unwrap_err();
        assert!(matches!(error, SourceError::Changed { .. }));
        assert!(error.is_retryable());
    }

    #[test]
    fn an_open_descriptor_is_read_whatever_the_permissions_are_now() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "content").unwrap();
        let path = format!("/proc/self/fd/{}", file.as_file().as_raw_fd());
        let shown = file.path().display().to_string();
        let source = FileSource::open(Path::new(&path)).unwrap();
        // The same open file, and not another of the same path.
        let (ours, theirs) = (source.file().as_raw_fd(), file.as_file().as_raw_fd());
        seek(file.as_file(), SeekFrom::Start(3)).unwrap();
        assert_ne!(ours, theirs);
        assert_eq!(seek(source.file(), SeekFrom::Current(0)).unwrap(), 3);
        assert_eq!(source.name(), shown);
        let closed = FileSource::open(Path::new("/proc/self/fd/1000000"));
        assert!(matches!(closed, Err(SourceError::Io { .. })));
    }

    #[test]
    fn what_has_no_places_is_refused() {
        let error = FileSource::open(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("/dev/zero"));
    }

    #[test]
    fn a_directory_is_refused() {
        assert!(matches!(
            FileSource::open(Path::new("/")),
            Err(SourceError::Io { .. })
        ));
    }
}
