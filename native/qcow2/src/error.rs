//! What can go wrong with a qcow2 image or a qcow2 patch.

use diffcache_core::manifest::ManifestError;
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
    Write(std::io::Error),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl Qcow2Error {
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
pub(crate) fn written<T>(result: std::io::Result<T>) -> Result<T, Qcow2Error> {
    result.map_err(Qcow2Error::Write)
}
