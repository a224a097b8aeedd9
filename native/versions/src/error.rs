//! What can go wrong with versions.

use diffcache_core::source::SourceError;
use diffcache_core::task::Cancelled;
use diffcache_qcow2::Qcow2Error;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum VersionsError {
    /// A disk or an image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The disk's qcow2 structures are refused, or break the rules of their format.
    #[error(transparent)]
    Qcow2(#[from] Qcow2Error),
    /// The system refused to read or write a file.
    #[error("{name}: {source}")]
    Io {
        /// The file concerned.
        name: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// An object of the store breaks the rules of its format, or its bytes do not match their checksum.
    #[error("{object} is damaged: {reason}; verify the store")]
    Damaged {
        /// Which object.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A version refers to an object that the store does not have.
    #[error("{0} is not in the store; verify the store")]
    Missing(String),
    /// What was asked for cannot be done with these inputs.
    #[error("{0}")]
    Invalid(String),
    /// A blob of a remote store could not be read; the same call may succeed later.
    #[error("{name}: {reason}")]
    Unavailable {
        /// Which blob.
        name: String,
        /// What the store said.
        reason: String,
    },
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl VersionsError {
    pub(crate) fn io(name: impl Into<String>) -> impl FnOnce(std::io::Error) -> VersionsError {
        let name = name.into();
        move |source| VersionsError::Io { name, source }
    }

    pub(crate) fn damaged(object: impl Into<String>, reason: impl Into<String>) -> VersionsError {
        VersionsError::Damaged {
            object: object.into(),
            reason: reason.into(),
        }
    }
}

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, VersionsError>;
