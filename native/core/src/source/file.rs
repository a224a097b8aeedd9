//! Images in local files.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{seek, SeekFrom};
use rustix::io::Errno;

use super::{ReadAt, SourceError};

/// Opens a file for reading. The file of a descriptor of this process, named as `/proc/self/fd/N`, is not opened anew, which would check
/// permissions again that another process had when it opened it: the descriptor is duplicated.
///
/// # Errors
/// What the system says.
pub fn open_file(path: &Path) -> io::Result<File> {
    let Some(number) = descriptor_of(path) else {
        return File::open(path);
    };
    // SAFETY: the descriptor is borrowed for this call only; one that is not open is an error of `dup` and no undefined behaviour.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

/// The number of the descriptor that a path names.
fn descriptor_of(path: &Path) -> Option<i32> {
    let number = path.strip_prefix("/proc/self/fd").ok()?.to_str()?;
    number.parse().ok().filter(|number| *number >= 0)
}

/// Length of a file and time of the last change of its bytes: equal stamps mean that what was read twice, or read and cloned, was the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(found: &Metadata) -> Stamp {
        Stamp {
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// A local file. Holes are found with `SEEK_DATA` and `SEEK_HOLE` and never read.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    name: String,
    len: u64,
    opened: Stamp,
}

impl FileSource {
    /// Opens a regular file or a block device for reading; see [`open_file`].
    ///
    /// # Errors
    /// `Io` if it cannot be opened.
    pub fn open(path: &Path) -> Result<FileSource, SourceError> {
        let shown = match descriptor_of(path) {
            Some(_) => std::fs::read_link(path).unwrap_or_else(|_| path.to_owned()),
            None => path.to_owned(),
        };
        let name = shown.display().to_string();
        let file = open_file(path).map_err(|source| SourceError::Io {
            name: name.clone(),
            source,
        })?;
        FileSource::from_file(file, name)
    }

    /// Wraps an open file; `name` is what errors call it.
    ///
    /// # Errors
    /// `Io` if its length is not known.
    pub fn from_file(file: File, name: String) -> Result<FileSource, SourceError> {
        // The end offset is right for block devices too, whose metadata say 0.
        let len = seek(&file, SeekFrom::End(0)).map_err(|errno| SourceError::Io {
            name: name.clone(),
            source: errno.into(),
        })?;
        let metadata = file.metadata().map_err(|source| SourceError::Io {
            name: name.clone(),
            source,
        })?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            return Err(SourceError::Io {
                name,
                source: io::ErrorKind::IsADirectory.into(),
            });
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(SourceError::Io {
                name,
                source: io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "only regular files and block devices can be read at any place",
                ),
            });
        }
        Ok(FileSource {
            file,
            name,
            len,
            opened: Stamp::of(&metadata),
        })
    }

    /// Returns the open file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns its present stamp.
    ///
    /// # Errors
    /// `Io`.
    pub fn stamp(&self) -> Result<Stamp, SourceError> {
        let found = self.file.metadata().map_err(|source| SourceError::Io {
            name: self.name.clone(),
            source,
        })?;
        Ok(Stamp::of(&found))
    }

    fn seek(&self, to: SeekFrom) -> Result<Option<u64>, SourceError> {
        match seek(&self.file, to) {
            Ok(offset) => Ok(Some(offset)),
            Err(Errno::NXIO) => Ok(None),
            Err(errno) => Err(SourceError::Io {
                name: self.name.clone(),
                source: errno.into(),
            }),
        }
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset.saturating_add(buf.len() as u64);
        let past_end = || SourceError::PastEnd {
            name: self.name.clone(),
            len: self.len,
            end,
        };
        if end > self.len {
            return Err(past_end());
        }
        self.file
            .read_exact_at(buf, offset)
            .map_err(|source| match source.kind() {
                // The file was cut while we held it open.
                io::ErrorKind::UnexpectedEof => past_end(),
                _ => SourceError::Io {
                    name: self.name.clone(),
                    source,
                },
            })
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        if offset >= self.len {
            return Ok(None);
        }
        let start = match self.seek(SeekFrom::Data(offset)) {
            Ok(Some(start)) => start,
            Ok(None) => return Ok(None),
            // A filesystem or device that knows no holes: everything may be data.
            Err(SourceError::Io { source, .. })
                if [Errno::INVAL, Errno::OPNOTSUPP]
                    .iter()
                    .any(|errno| source.raw_os_error() == Some(errno.raw_os_error())) =>
            {
                return Ok(Some((offset, self.len)));
            }
            Err(error) => return Err(error),
        };
        let end = self.seek(SeekFrom::Hole(start))?.unwrap_or(self.len);
        // A hole that was punched meanwhile is data, too.
        let end = end.max(start + 1).min(self.len);
        Ok((start < self.len).then_some((start, end)))
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        match self.stamp()? == self.opened {
            true => Ok(()),
            false => Err(SourceError::Changed {
                name: self.name.clone(),
            }),
        }
    }
}
