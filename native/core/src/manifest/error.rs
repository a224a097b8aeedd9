//! Errors of manifests.

use std::io;

use super::file::VERSION;
use crate::retry::ErrorKind;
use crate::source::SourceError;
use crate::task::Cancelled;

/// Why a manifest could not be created, read or written.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Reading or writing the manifest itself failed.
    #[error("manifest: {0}")]
    Io(#[from] io::Error),
    /// The file is no manifest, or is damaged.
    #[error("manifest: {0}")]
    Format(String),
    /// The file is a manifest of a version that this program does not know.
    #[error("{name}: version {version} of the manifest format is unknown here; this program reads version {VERSION}")]
    Version {
        /// The manifest.
        name: String,
        /// Its version.
        version: u64,
    },
    /// The manifest's leaves do not merge to the content id it claims.
    #[error("manifest: the leaves do not merge to content id {claimed}; fetch it again")]
    Root {
        /// The content id that the file claims.
        claimed: String,
    },
    /// The image differs from the manifest.
    #[error("leaf {leaf} (byte {offset}) differs from what the manifest of {content_id} promises")]
    Leaf {
        /// Index of the first leaf that differs.
        leaf: u64,
        /// Where it starts in the image, in bytes.
        offset: u64,
        /// Content id of the manifest.
        content_id: String,
    },
    /// The image is not as long as the manifest says.
    #[error("the image has {actual} bytes where the manifest of {content_id} says {expected}")]
    Size {
        /// Bytes of the image.
        actual: u64,
        /// Bytes that the manifest promises.
        expected: u64,
        /// Content id of the manifest.
        content_id: String,
    },
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl ManifestError {
    /// Returns the kind of the error, by which callers decide.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ManifestError::Source(error) => error.kind(),
            ManifestError::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                ErrorKind::NoSpace
            }
            ManifestError::Io(_) => ErrorKind::System,
            ManifestError::Format(_) | ManifestError::Version { .. } => ErrorKind::Format,
            ManifestError::Root { .. }
            | ManifestError::Leaf { .. }
            | ManifestError::Size { .. } => ErrorKind::Integrity,
            ManifestError::Cancelled(_) => ErrorKind::Cancelled,
        }
    }

    /// Returns whether the same call may succeed later, or with another source.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }
}
