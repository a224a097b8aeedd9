//! What every file of an object has to be.

use std::io;

use rustix::fs::{FileType, Stat};

/// A file below the root that is not what an object's file must be.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The object is already in flight in this plane.
    #[error("the object is already in flight")]
    AlreadyInFlight,
    /// Something other than a regular file was named.
    #[error("not a regular file")]
    NotAFile,
    /// The file cannot have the content of the image.
    #[error("it has {size} bytes, and the image {expected}")]
    OtherSize {
        /// Bytes of the file.
        size: u64,
        /// Bytes of the image.
        expected: u64,
    },
    /// The system's own error.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The size of a regular file, in bytes.
pub(super) fn regular_size(stat: &Stat) -> Result<u64, ObjectsError> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ObjectsError::NotAFile);
    }
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}
