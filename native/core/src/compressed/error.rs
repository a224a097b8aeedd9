//! Errors of compressed forms.

use std::io;

use super::VERSION;
use crate::retry::ErrorKind;
use crate::source::SourceError;
use crate::task::Cancelled;

/// Why a compressed form could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum CompressedError {
    /// The content could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The content differs from its manifest.
    #[error("leaf {leaf} of the content differs from its manifest; register the image again")]
    Leaf {
        /// Index of the leaf.
        leaf: u64,
    },
    /// The form is damaged, or belongs to other content.
    #[error("compressed form: {0}")]
    Format(String),
    /// The form is of a version that this program does not know.
    #[error("{name}: version {version} of the format, with groups of {leaves} leaves, is unknown here; this program reads version {VERSION}")]
    Version {
        /// The form.
        name: String,
        /// Its version.
        version: u32,
        /// Leaves of its groups.
        leaves: u32,
    },
    /// The filesystem is full.
    #[error("{name}: no space left; free some and try again")]
    NoSpace {
        /// What was being written.
        name: String,
    },
    /// Writing failed.
    #[error("{name}: {source}")]
    Io {
        /// What was being written.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The compression library failed.
    #[error("zstd: {0}")]
    Zstd(&'static str),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl CompressedError {
    /// Lets the refusal of a version name a file.
    pub(super) fn of(self, file: &str) -> CompressedError {
        match self {
            CompressedError::Version {
                version, leaves, ..
            } => CompressedError::Version {
                name: file.to_owned(),
                version,
                leaves,
            },
            error => error,
        }
    }

    /// Returns the kind of the error, by which callers decide.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CompressedError::Source(error) => error.kind(),
            CompressedError::Leaf { .. } => ErrorKind::Integrity,
            CompressedError::Format(_) | CompressedError::Version { .. } => ErrorKind::Format,
            CompressedError::NoSpace { .. } => ErrorKind::NoSpace,
            CompressedError::Io { .. } => ErrorKind::System,
            CompressedError::Zstd(_) => ErrorKind::Other,
            CompressedError::Cancelled(_) => ErrorKind::Cancelled,
        }
    }

    /// Converts the error of a write: `NoSpace` if the filesystem is full.
    pub fn from_write(name: &str, source: io::Error) -> CompressedError {
        let name = name.to_owned();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                CompressedError::NoSpace { name }
            }
            _ => CompressedError::Io { name, source },
        }
    }

    /// Turns an error code of zstd into `Zstd`.
    pub fn from_zstd(code: usize) -> CompressedError {
        CompressedError::Zstd(zstd_safe::get_error_name(code))
    }
}
