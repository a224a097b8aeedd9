//! Errors of the block codec.

use std::io;

use super::VERSION;
use crate::manifest::ManifestError;
use crate::retry::ErrorKind;
use crate::sink::SinkError;
use crate::source::SourceError;
use crate::task::Cancelled;

/// Why a patch could not be created, read or applied.
#[derive(Debug, thiserror::Error)]
pub enum PatchError {
    /// Base, target or patch could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A manifest is damaged or does not fit.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The sink did not take a leaf.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// An output could not be written.
    #[error("{name}: cannot write: {source}")]
    Io {
        /// The output.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The filesystem of an output is full; nothing was left behind.
    #[error("{name}: no space left; free some and try again")]
    NoSpace {
        /// The output.
        name: String,
    },
    /// The file is no patch, or contradicts itself.
    #[error("patch: {0}")]
    Format(String),
    /// The file is a patch of a version that this program does not know.
    #[error("{name}: version {version} of the patch format, with blocks of {block} bytes, is unknown here; this program reads version {VERSION}")]
    Version {
        /// The patch.
        name: String,
        /// Its version.
        version: u32,
        /// Bytes of its blocks.
        block: u32,
    },
    /// The patch was damaged or cut after it was created.
    #[error("patch: damaged: {0}; fetch it again")]
    Corrupt(String),
    /// The base is not the image that the patch was created from.
    #[error(
        "the base is not the one that the patch was created from (content id {expected}): {reason}"
    )]
    BaseMismatch {
        /// Content id of the base that the patch needs.
        expected: String,
        /// What shows it.
        reason: String,
    },
    /// The base was written to while it was read.
    #[error("{name}: it changed while it was read; try again when no program writes to it")]
    Changed {
        /// The base.
        name: String,
    },
    /// The base cannot be what was verified when its manifest was written.
    #[error("{name}: it differs from its manifest: {reason}; create the manifest again, or apply without one")]
    Unverified {
        /// The base.
        name: String,
        /// What shows it.
        reason: String,
    },
    /// What base and patch give together is not what the target's manifest promises.
    #[error("leaf {leaf} of target {target} does not match: the base's bytes are not those that the patch was created from; use another source")]
    Leaf {
        /// Index of the leaf.
        leaf: u64,
        /// Content id of the target.
        target: String,
    },
    /// The manifest given for the target is not that of the patch's target.
    #[error("the patch is for target {patch}, not {wanted}")]
    TargetMismatch {
        /// Content id of the patch's target.
        patch: String,
        /// Content id that was requested.
        wanted: String,
    },
    /// An image is larger than what a patch can describe.
    #[error(
        "{name}: {size} bytes are more than a patch can describe, which is 64 MiB less than 16 TiB"
    )]
    TooLarge {
        /// Which image.
        name: &'static str,
        /// Its size in bytes.
        size: u64,
    },
    /// Another program is changing the base.
    #[error("{name}: another program has locked it; try again when that is done")]
    Busy {
        /// The base.
        name: String,
    },
    /// Changing the base in place was interrupted.
    #[error("{name}: partly changed from base to target: {source}; remove the cause and run the same command again: {journal} has what is missing")]
    Interrupted {
        /// The base.
        name: String,
        /// The journal.
        journal: String,
        /// What happened.
        source: io::Error,
    },
    /// The compression library failed.
    #[error("zstd: {0}")]
    Zstd(&'static str),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

impl PatchError {
    /// Returns the kind of the error, by which callers decide.
    pub fn kind(&self) -> ErrorKind {
        match self {
            PatchError::Source(error) => error.kind(),
            PatchError::Manifest(error) => error.kind(),
            PatchError::Sink(SinkError::NoSpace { .. }) | PatchError::NoSpace { .. } => {
                ErrorKind::NoSpace
            }
            PatchError::Sink(SinkError::Io { .. }) | PatchError::Io { .. } => ErrorKind::System,
            PatchError::Sink(SinkError::Closed { .. }) | PatchError::Zstd(_) => ErrorKind::Other,
            PatchError::Format(_) | PatchError::Version { .. } | PatchError::TooLarge { .. } => {
                ErrorKind::Format
            }
            PatchError::Corrupt(_) | PatchError::Leaf { .. } => ErrorKind::Integrity,
            PatchError::Busy { .. }
            | PatchError::Changed { .. }
            | PatchError::Interrupted { .. } => ErrorKind::Interrupted,
            PatchError::BaseMismatch { .. }
            | PatchError::TargetMismatch { .. }
            | PatchError::Unverified { .. } => ErrorKind::BaseMismatch,
            PatchError::Cancelled(_) => ErrorKind::Cancelled,
        }
    }

    /// Returns whether the same call may succeed later, or with another source of base or patch.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Converts the error of a write: `NoSpace` if the filesystem is full.
    pub fn from_write(name: &str, source: io::Error) -> PatchError {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PatchError::NoSpace {
                name: name.to_owned(),
            },
            _ => PatchError::Io {
                name: name.to_owned(),
                source,
            },
        }
    }

    /// Turns an error code of zstd into `Zstd`.
    pub fn from_zstd(code: usize) -> PatchError {
        PatchError::Zstd(zstd_safe::get_error_name(code))
    }
}
