//! What can go wrong with a qcow2 image or a qcow2 patch.

use std::io;

use diffcache_core::manifest::ManifestError;
use diffcache_core::retry::ErrorKind;
use diffcache_core::source::SourceError;
use diffcache_core::task::Cancelled;

/// Errors of the qcow2 reader and of the qcow2 patch codec.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// Reading one of the inputs failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The image must not be opened, or is of a kind that is not supported.
    #[error("the qcow2 image is refused: {0}")]
    Refused(String),
    /// The image breaks the rules of its own format.
    #[error("the qcow2 image is damaged: {0}")]
    Damaged(String),
    /// A new image cannot name this backing file.
    #[error("{0}: a backing file's name has at most 1023 bytes")]
    BackingName(String),
    /// The patch breaks the rules of its own format.
    #[error("the qcow2 patch is damaged: {0}; fetch or create it again")]
    BadPatch(String),
    /// The patch was created for another base.
    #[error("the patch is for another base: {0}")]
    BaseMismatch(String),
    /// The result differs from what the patch promised though the base is the right one.
    #[error("the rebuilt image does not have the promised hash; fetch the patch again")]
    Integrity,
    /// The patch needs a compressor this machine lacks.
    #[error("the patch needs libzstd {wanted}, this machine has {present}; apply it where that version is installed")]
    Compressor {
        /// Version the clusters were compressed with.
        wanted: String,
        /// Versions that this machine has.
        present: String,
    },
    /// Compressing or decompressing failed for lack of memory.
    #[error("the compressor ran out of memory")]
    Memory,
    /// Hashing a file failed.
    #[error(transparent)]
    Hash(#[from] ManifestError),
    /// The patch of the guest's content failed.
    #[error(transparent)]
    Content(#[from] diffcache_core::patch::PatchError),
    /// Writing failed.
    #[error("cannot write: {0}")]
    Write(io::Error),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Qcow2Error {
    /// Returns the kind of the error, by which callers decide.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Qcow2Error::Source(error) => error.kind(),
            Qcow2Error::Hash(error) => error.kind(),
            Qcow2Error::Content(error) => error.kind(),
            Qcow2Error::Write(error) => match error.kind() {
                io::ErrorKind::StorageFull
                | io::ErrorKind::QuotaExceeded
                | io::ErrorKind::FileTooLarge => ErrorKind::NoSpace,
                _ => ErrorKind::System,
            },
            Qcow2Error::Refused(_) | Qcow2Error::BackingName(_) => ErrorKind::InvalidInput,
            Qcow2Error::Damaged(_) | Qcow2Error::BadPatch(_) => ErrorKind::Format,
            Qcow2Error::BaseMismatch(_) => ErrorKind::BaseMismatch,
            Qcow2Error::Integrity => ErrorKind::Integrity,
            Qcow2Error::Compressor { .. } | Qcow2Error::Memory => ErrorKind::Other,
            Qcow2Error::Cancelled(_) => ErrorKind::Cancelled,
        }
    }

    /// Returns whether the same call may succeed later or with another source.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    pub(crate) fn refused(what: impl Into<String>) -> Self {
        Self::Refused(what.into())
    }

    pub(crate) fn bad_patch(what: impl Into<String>) -> Self {
        Self::BadPatch(what.into())
    }
}

/// Converts the error of a write to an output.
pub(crate) fn written<T>(result: io::Result<T>) -> Result<T, Qcow2Error> {
    result.map_err(Qcow2Error::Write)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(kind: io::ErrorKind) -> Qcow2Error {
        Qcow2Error::Write(io::Error::from(kind))
    }

    #[test]
    fn every_error_has_the_kind_by_which_callers_decide() {
        let text = || "x".to_owned();
        let compressor = Qcow2Error::Compressor {
            wanted: text(),
            present: text(),
        };
        let full = diffcache_core::patch::PatchError::NoSpace { name: text() };
        for (error, kind, retryable) in [
            (Qcow2Error::refused("x"), ErrorKind::InvalidInput, false),
            (
                Qcow2Error::BackingName(text()),
                ErrorKind::InvalidInput,
                false,
            ),
            (Qcow2Error::damaged("x"), ErrorKind::Format, false),
            (Qcow2Error::bad_patch("x"), ErrorKind::Format, false),
            (
                Qcow2Error::BaseMismatch(text()),
                ErrorKind::BaseMismatch,
                false,
            ),
            (Qcow2Error::Integrity, ErrorKind::Integrity, true),
            (compressor, ErrorKind::Other, false),
            (Qcow2Error::Memory, ErrorKind::Other, false),
            (Qcow2Error::Content(full), ErrorKind::NoSpace, true),
            (write(io::ErrorKind::StorageFull), ErrorKind::NoSpace, true),
            (
                write(io::ErrorKind::QuotaExceeded),
                ErrorKind::NoSpace,
                true,
            ),
            (write(io::ErrorKind::FileTooLarge), ErrorKind::NoSpace, true),
            (write(io::ErrorKind::Other), ErrorKind::System, false),
            (Qcow2Error::Cancelled(Cancelled), ErrorKind::Cancelled, true),
        ] {
            assert_eq!((error.kind(), error.is_retryable()), (kind, retryable));
        }
    }
}
