//! What a cache refuses, and why.

use std::io;
use std::path::PathBuf;

use diffcache_partitions::{Block, PartitionError, MAX_ADMISSION, NEVER};
use thiserror::Error;

use super::volume::Volume;
use crate::device::format::{MAX_ORIGIN, VOLUMES};
use crate::device::DeviceError;

/// Why a volume cannot be attached, changed or found.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The device
    #[error("device: {0}")]
    Device(#[from] DeviceError),
    /// The limits
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The origin
    #[error("origin of volume {name}: {source}")]
    Origin {
        /// The volume.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The name
    #[error("volume {0}: a name has 1 to 255 bytes and is given once")]
    Name(String),
    /// The volumes
    #[error("a device has at most {VOLUMES} volumes; detach one")]
    Volumes,
    /// The directory for notes
    #[error(
        "volume {name}: it could not be noted whether the device has newer blocks of it: {source}"
    )]
    Note {
        /// The volume.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Entries of dirty blocks
    #[error("volume {name}: {entries} entries of blocks that were not written back are damaged, and their data are on the device; to detach it without them takes --discard-dirty")]
    Damaged {
        /// The volume.
        name: String,
        /// How many.
        entries: usize,
    },
    /// The number of references
    #[error("volume {0}: blocks are cached at their reference number 1 to {MAX_ADMISSION}; 0 is that of all volumes, {NEVER} caches none")]
    Admission(String),
    /// It is not attached
    #[error("volume {0} is not attached; the status names those that are")]
    Unknown(String),
    /// Another origin
    #[error("volume {0} is attached with another origin; detach it first")]
    Attached(String),
    /// Another volume has its origin
    #[error("volume {name}: its origin is that of volume {other}; detach {other} first")]
    SameOrigin {
        /// The volume.
        name: String,
        /// The one that has the origin.
        other: String,
    },
    /// It is being detached
    #[error("volume {0} is being detached; repeat it when that is done")]
    Detaching(String),
    /// Another mode
    #[error("volume {0}: its mode was changed again, before it could have this one")]
    Superseded(String),
    /// It is not held
    #[error("volume {0} is not held: it is served, and needs not be recovered")]
    NotHeld(String),
    /// Its origin is smaller
    #[error("volume {name}: its origin has {now} bytes, fewer than the {before} that were attached; detach it and attach it again")]
    Smaller {
        /// The volume.
        name: String,
        /// Its size.
        before: u64,
        /// The origin's.
        now: u64,
    },
    /// Another device may have newer blocks
    #[error("volume {name}: another cache device ({device}) may have blocks of it that were not written back; start the cache with that device, or remove {note} to lose them")]
    Elsewhere {
        /// The volume.
        name: String,
        /// The number of the other device.
        device: String,
        /// The file that says so.
        note: PathBuf,
    },
    /// The path of the origin
    #[error("volume {0}: the path of an origin is absolute and has at most {MAX_ORIGIN} bytes")]
    Path(String),
}

impl From<io::Error> for CacheError {
    fn from(error: io::Error) -> Self {
        Self::Device(error.into())
    }
}

pub(super) fn origin_error(volume: &Volume, source: io::Error) -> CacheError {
    CacheError::Origin {
        name: volume.name().to_owned(),
        source,
    }
}

/// The error of a block that the origin lacks and the device does not have.
pub(super) fn lost(volume: &Volume, block: Block) -> io::Error {
    io::Error::other(format!(
        "block {block} of volume {} was not written back, and is damaged on the cache device",
        volume.name()
    ))
}
