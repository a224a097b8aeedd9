//! What can go wrong with a qcow2 image or a qcow2 patch.

use crate::source::SourceError;

/// Errors of the qcow2 reader and of the qcow2 patch codec.
#[derive(Debug, thiserror::Error)]
pub enum Qcow2Error {
    /// Reading one of the inputs failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The image is one that must not be opened, or is not supported.
    #[error("the qcow2 image is refused: {0}")]
    Refused(String),
    /// The image breaks the rules of its own format.
    #[error("the qcow2 image is damaged: {0}")]
    Damaged(String),
    /// The patch breaks the rules of its own format.
    #[error("the qcow2 patch is damaged: {0}; fetch or make it again")]
    BadPatch(String),
    /// The patch was made for another base.
    #[error("the patch is for another base: {0}")]
    BaseMismatch(String),
    /// The result differs from what the patch promised though the base is the right one.
    #[error("the rebuilt image does not have the promised hash; fetch the patch again")]
    Integrity,
    /// The patch needs a compressor this machine lacks.
    #[error("the patch needs libzstd {wanted}, this machine has {present}; install it or rebuild the image elsewhere")]
    Compressor {
        /// Version the clusters were compressed with.
        wanted: String,
        /// Versions that can be had here.
        present: String,
    },
    /// Compressing or decompressing failed for lack of memory.
    #[error("the compressor ran out of memory")]
    Memory,
    /// The content patch inside failed.
    #[error(transparent)]
    Content(#[from] crate::patch::PatchError),
    /// Writing the output failed.
    #[error("cannot write {path}: {source}")]
    Write {
        /// The file that was being written.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The caller cancelled.
    #[error("cancelled")]
    Cancelled,
}

impl Qcow2Error {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::Damaged(what.into())
    }

    pub(super) fn refused(what: impl Into<String>) -> Self {
        Self::Refused(what.into())
    }

    pub(super) fn bad_patch(what: impl Into<String>) -> Self {
        Self::BadPatch(what.into())
    }
}
