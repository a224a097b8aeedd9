//! Why the daemon could not start or continue.

use std::io;
use std::path::{Path, PathBuf};

use diffcache_core::manifest::ManifestError;

use crate::prefetch::profile::ProfileFileError;

/// An error that ends the process.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// A configuration that cannot be used.
    #[error("invalid configuration: {0}")]
    Config(String),
    /// A file or folder, with what was attempted.
    #[error("cannot {action} {}: {error}", path.display())]
    Path {
        /// What was attempted.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A manifest that cannot be used.
    #[error("cannot use manifest {}: {error}", path.display())]
    Manifest {
        /// The manifest's file.
        path: PathBuf,
        /// The reason.
        error: ManifestError,
    },
    /// A profile that cannot be used.
    #[error("cannot use profile {}: {error}", path.display())]
    Profile {
        /// The profile's file.
        path: PathBuf,
        /// The reason.
        error: ProfileFileError,
    },
    /// The mounter, with what was attempted.
    #[error("{0}")]
    Mounter(String),
    /// A call of the system, with what was attempted.
    #[error("cannot {0}: {1}")]
    System(&'static str, io::Error),
}

impl DaemonError {
    /// Return what names an action and a path for an I/O error.
    pub fn at<'a, E: Into<io::Error>>(
        action: &'static str,
        path: &'a Path,
    ) -> impl Fn(E) -> DaemonError + 'a {
        move |error| DaemonError::Path {
            action,
            path: path.to_owned(),
            error: error.into(),
        }
    }

    /// Return what names an action for an I/O error.
    pub fn system<E: Into<io::Error>>(action: &'static str) -> impl Fn(E) -> DaemonError {
        move |error| DaemonError::System(action, error.into())
    }
}
