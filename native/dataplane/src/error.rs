//! What can go wrong with a transfer or a build.

use std::path::PathBuf;

use crate::ids::ObjectKey;
use crate::tls::TlsError;

/// Why an object did not arrive. Every message names the object and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The peer cannot be reached, or stopped in the middle.
    #[error("{object} from {peer}: {reason}; try another source")]
    PeerUnavailable {
        /// The peer's base URL.
        peer: String,
        /// What was asked for.
        object: String,
        /// What happened.
        reason: String,
    },
    /// The peer does not accept our credentials.
    #[error("{peer} refused {object} asked for with key '{key_name}': {reason}")]
    PeerRefused {
        /// The peer's base URL.
        peer: String,
        /// What was asked for.
        object: String,
        /// The name of the key that was used, never the key.
        key_name: String,
        /// The peer's words.
        reason: String,
    },
    /// There is no connection to the peer that both sides would trust.
    #[error("{object} from {peer}: not over this connection: {reason}")]
    PeerUntrusted {
        /// The peer's base URL.
        peer: String,
        /// What was asked for.
        object: String,
        /// What is missing, and the option that would change it.
        reason: String,
    },
    /// The peer does not hold the object.
    #[error("{peer} does not hold {object}; refresh the site map or try another source")]
    ObjectMissing {
        /// The peer's base URL.
        peer: String,
        /// What was asked for.
        object: String,
    },
    /// Bytes arrived that are not the object's.
    #[error("{object}: {reason}; nothing of it was used, try another source")]
    Integrity {
        /// The object concerned.
        object: String,
        /// What does not match.
        reason: String,
    },
    /// The base is not the one that the patch was made from.
    #[error("{object}: {reason}; use the base that the patch names, or another way")]
    BaseMismatch {
        /// The object concerned.
        object: String,
        /// How we know.
        reason: String,
    },
    /// The file system cannot take the object.
    #[error("{object}: no space for {path}; free space on that file system")]
    NoSpace {
        /// The object concerned.
        object: String,
        /// The file that could not be written.
        path: PathBuf,
    },
    /// The caller cancelled, or the plane was closed.
    #[error("{object}: cancelled")]
    Cancelled {
        /// The object concerned.
        object: String,
    },
    /// This plane, or another process with the same destination, is already getting the object.
    #[error("{object} is already being transferred or built here; wait for that to end")]
    AlreadyInFlight {
        /// The object concerned.
        object: String,
    },
    /// The caller's arguments cannot be used.
    #[error("{0}")]
    Invalid(String),
    /// A local file cannot be used.
    #[error("{path}: {source}")]
    File {
        /// The file concerned.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A manifest or a patch is not what its format promises.
    #[error("{object}: {reason}")]
    Format {
        /// The object concerned.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl From<TlsError> for TransferError {
    fn from(error: TlsError) -> TransferError {
        TransferError::Invalid(error.to_string())
    }
}

impl TransferError {
    /// A local file's error; a full file system is told apart.
    pub fn file(
        object: ObjectKey,
        path: &std::path::Path,
        source: std::io::Error,
    ) -> TransferError {
        use std::io::ErrorKind;
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                TransferError::NoSpace {
                    object: object.to_string(),
                    path: path.to_owned(),
                }
            }
            _ => TransferError::File {
                path: path.to_owned(),
                source,
            },
        }
    }

    /// Whether the same call may succeed later or from another source.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            TransferError::PeerUnavailable { .. }
                | TransferError::ObjectMissing { .. }
                | TransferError::Integrity { .. }
        )
    }
}
