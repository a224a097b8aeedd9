//! Why a cache cannot be served.

use std::io;
use std::path::PathBuf;

use diffcache_ssdcache::cache::CacheError;
use diffcache_ssdcache::device::DeviceError;
use thiserror::Error;

/// Why a cache cannot be served.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A parameter
    #[error("{key}: {value}: {reason}")]
    Parameter {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The device failed while it was served
    #[error("{device}: it failed while volumes were written without it, so that what it has may be older; start it with --format (see {note})")]
    Failed {
        /// The device.
        device: PathBuf,
        /// The file that says so.
        note: PathBuf,
    },
    /// Another device may have newer blocks
    #[error("volume {volume}: another cache device ({device}) may have blocks of it that were not written back; start it with that device, or lose them with --discard-dirty (see {note})")]
    Elsewhere {
        /// The volume.
        volume: String,
        /// The number of the other device.
        device: String,
        /// The file that says so.
        note: PathBuf,
    },
    /// The configuration
    #[error("invalid configuration: {0}")]
    Json(#[from] serde_json::Error),
    /// A file
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device
    #[error("{path}: {source}")]
    Device {
        /// The device.
        path: PathBuf,
        /// What is wrong with it.
        source: DeviceError,
    },
    /// Its file
    #[error("{path}: {reason}")]
    Space {
        /// The file of the device.
        path: PathBuf,
        /// Why the cache has no room in it.
        reason: String,
    },
    /// The cache
    #[error(transparent)]
    Cache(#[from] CacheError),
}

impl ConfigError {
    /// Says which file or device an error of the system is of.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}
