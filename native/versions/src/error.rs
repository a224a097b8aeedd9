//! What can go wrong with versions.

use std::io;

use diffcache_core::retry::ErrorKind;
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
        source: io::Error,
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
    /// Returns the kind of the error, by which callers decide.
    pub fn kind(&self) -> ErrorKind {
        match self {
            VersionsError::Source(error) => error.kind(),
            VersionsError::Qcow2(error) => error.kind(),
            VersionsError::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => ErrorKind::NoSpace,
                _ => ErrorKind::System,
            },
            VersionsError::Damaged { .. } => ErrorKind::Integrity,
            VersionsError::Missing(_) => ErrorKind::ObjectMissing,
            VersionsError::Invalid(_) => ErrorKind::InvalidInput,
            VersionsError::Unavailable { .. } => ErrorKind::SourceUnavailable,
            VersionsError::Cancelled(_) => ErrorKind::Cancelled,
        }
    }

    /// Returns whether the same call may succeed later or from another source.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Returns whether an object of the store cannot be had: others may be.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            VersionsError::Damaged { .. }
                | VersionsError::Missing(_)
                | VersionsError::Io { .. }
                | VersionsError::Source(SourceError::Io { .. } | SourceError::PastEnd { .. })
        )
    }

    pub(crate) fn io(name: impl Into<String>) -> impl FnOnce(io::Error) -> VersionsError {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn io(kind: io::ErrorKind) -> VersionsError {
        VersionsError::io("x")(io::Error::from(kind))
    }

    #[test]
    fn every_error_has_the_kind_by_which_callers_decide() {
        let text = || "x".to_owned();
        let unavailable = VersionsError::Unavailable {
            name: text(),
            reason: text(),
        };
        for (error, kind, retryable) in [
            (
                VersionsError::Qcow2(Qcow2Error::Integrity),
                ErrorKind::Integrity,
                true,
            ),
            (io(io::ErrorKind::StorageFull), ErrorKind::NoSpace, true),
            (io(io::ErrorKind::Other), ErrorKind::System, false),
            (VersionsError::damaged("x", "x"), ErrorKind::Integrity, true),
            (
                VersionsError::Missing(text()),
                ErrorKind::ObjectMissing,
                true,
            ),
            (
                VersionsError::Invalid(text()),
                ErrorKind::InvalidInput,
                false,
            ),
            (unavailable, ErrorKind::SourceUnavailable, true),
            (
                VersionsError::Cancelled(Cancelled),
                ErrorKind::Cancelled,
                true,
            ),
        ] {
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable));
        }
    }
}
