//! What can go wrong with a transfer or a build.

use std::path::PathBuf;

use diffcache_core::retry::ErrorKind;

use crate::fetching::standing::Offence;
use crate::ids::ObjectKey;
use crate::transport::tls::TlsError;

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
    /// The peer sends, but more slowly than the floor.
    #[error("{object} from {peer}: {reason}; try another source")]
    PeerSlow {
        /// The peer's base URL.
        peer: String,
        /// What was asked for.
        object: String,
        /// How slow it was.
        reason: String,
        /// Whether the object is still arriving there, so that another host may be the slow one.
        arriving: bool,
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
        /// The base URL of the peer that sent them, if one did, and whether it can be no other's fault.
        blame: Option<(String, Offence)>,
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
    /// A fill is left for later: the object arrives at the site by other means.
    #[error("{object} is arriving at the site by other means; its fill will be tried again later")]
    Deferred {
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
    /// Maps a local file's error; a full file system is an error of its own.
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

    /// What the error is, in the one table of kinds.
    pub fn kind(&self) -> ErrorKind {
        match self {
            TransferError::PeerUnavailable { .. } | TransferError::PeerSlow { .. } => {
                ErrorKind::PeerUnavailable
            }
            TransferError::PeerRefused { .. } => ErrorKind::PeerRefused,
            TransferError::PeerUntrusted { .. } => ErrorKind::PeerUntrusted,
            TransferError::ObjectMissing { .. } => ErrorKind::ObjectMissing,
            TransferError::Integrity { .. } => ErrorKind::Integrity,
            TransferError::BaseMismatch { .. } => ErrorKind::BaseMismatch,
            TransferError::NoSpace { .. } => ErrorKind::NoSpace,
            TransferError::Cancelled { .. } | TransferError::Deferred { .. } => {
                ErrorKind::Cancelled
            }
            TransferError::AlreadyInFlight { .. } => ErrorKind::AlreadyInFlight,
            TransferError::Invalid(_) => ErrorKind::InvalidInput,
            TransferError::File { .. } => ErrorKind::System,
            TransferError::Format { .. } => ErrorKind::Format,
        }
    }

    /// Whether the same call may succeed later or from another source.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }

    /// Whether a host as a whole does not serve this one.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            TransferError::PeerUnavailable { .. }
                | TransferError::PeerSlow { .. }
                | TransferError::PeerRefused { .. }
                | TransferError::PeerUntrusted { .. }
        )
    }

    /// Whether another source may deliver what this one did not.
    pub fn is_of_source(&self) -> bool {
        self.is_unreachable()
            || matches!(
                self,
                TransferError::ObjectMissing { .. } | TransferError::Integrity { .. }
            )
    }

    /// Whether no source is to be tried any more.
    pub fn ends_order(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Whether the peer of this URL is the one that failed.
    pub fn is_about(&self, url: &str) -> bool {
        self.peer() == Some(url.trim_end_matches('/'))
    }

    /// The base URL of the peer that failed.
    fn peer(&self) -> Option<&str> {
        match self {
            TransferError::PeerUnavailable { peer, .. }
            | TransferError::PeerSlow { peer, .. }
            | TransferError::PeerRefused { peer, .. }
            | TransferError::PeerUntrusted { peer, .. }
            | TransferError::ObjectMissing { peer, .. } => Some(peer),
            TransferError::Integrity { blame, .. } => blame.as_ref().map(|(peer, _)| peer.as_str()),
            _ => None,
        }
    }

    /// The base URL of the peer whose offence the error is, and how certain that is.
    pub fn offence(&self) -> Option<(&str, Offence)> {
        let offence = match self {
            TransferError::Integrity { blame, .. } => blame.as_ref()?.1,
            TransferError::PeerSlow { arriving, .. } => match arriving {
                false => Offence::Lie,
                true => Offence::Doubt,
            },
            _ => return None,
        };
        Some((self.peer()?, offence))
    }
}

#[cfg(test)]
mod tests {
    use diffcache_core::patch::PatchError;
    use diffcache_core::task::Cancelled;

    use super::*;

    #[test]
    fn what_is_retryable_is_so_in_every_crate() {
        let object = || "images/0".to_owned();
        let name = || "output".to_owned();
        let full = TransferError::NoSpace {
            object: object(),
            path: name().into(),
        };
        let cancelled = TransferError::Cancelled { object: object() };
        let deferred = TransferError::Deferred { object: object() };
        for (ours, theirs) in [
            (full, PatchError::NoSpace { name: name() }),
            (cancelled, PatchError::Cancelled(Cancelled)),
            (deferred, PatchError::Cancelled(Cancelled)),
        ] {
            assert_eq!(ours.kind(), theirs.kind());
            assert!(ours.is_retryable() && theirs.is_retryable());
        }
    }

    #[test]
    fn a_lost_peer_differs_from_a_lost_object() {
        let url = "http://h1:1";
        let (peer, object) = (url.to_owned(), "images/0".to_owned());
        let missing = TransferError::ObjectMissing { peer, object };
        assert!(missing.is_of_source() && !missing.is_unreachable());
        assert!(missing.is_about("http://h1:1/") && !missing.is_about("http://h2:1"));
        assert!(!missing.ends_order());
    }
}
