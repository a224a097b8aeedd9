//! Whom to ask: the data plane of a host, and an object there.

#[cfg(test)]
mod tests;

use std::fmt;

use crate::error::TransferError;
use crate::fetching::connection::Fault;
use crate::fetching::standing::Offence;
use crate::ids::ObjectKey;
use crate::traces::Trace;

const PLAIN: &str = "http://";
const SECURE: &str = "https://";

/// A peer's data plane: `http://host:port`, or `https://host:port` if it speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    secure: bool,
    authority: String,
}

impl Peer {
    /// Parses a base URL; a trailing slash is taken, a path is not.
    pub fn parse(url: &str) -> Result<Peer, TransferError> {
        let invalid = || {
            TransferError::Invalid(format!(
                "'{url}' is not the URL of a data plane; it is http://host:port or https://host:port"
            ))
        };
        let secure = url.starts_with(SECURE);
        let scheme = if secure { SECURE } else { PLAIN };
        let authority = url.strip_prefix(scheme).ok_or_else(invalid)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(invalid)?;
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let plain = host
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c));
        let port_given = port.parse::<u16>().is_ok_and(|port| port > 0);
        if host.is_empty() || !(plain || bracketed) || !port_given {
            return Err(invalid());
        }
        Ok(Peer {
            secure,
            authority: authority.to_owned(),
        })
    }

    /// Whether the peer announces that it speaks TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host and port, as they stand in the URL.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The name or address under which it is reached.
    pub(super) fn host(&self) -> &str {
        self.authority
            .rsplit_once(':')
            .map_or(&self.authority, |(host, _)| host)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { SECURE } else { PLAIN };
        write!(f, "{scheme}{}", self.authority)
    }
}

/// One object at one peer: whom to ask for what, and how errors call it.
#[derive(Clone)]
pub struct Remote {
    /// The peer.
    pub peer: Peer,
    /// The object.
    pub key: ObjectKey,
    /// What it is read for, if that is traced.
    pub trace: Option<Trace>,
}

impl Remote {
    /// Turns the end of the last attempt into the caller's error.
    pub fn error(&self, fault: Fault) -> TransferError {
        match fault {
            Fault::Final(error) => error,
            Fault::Stopped => TransferError::Cancelled {
                object: self.key.to_string(),
            },
            Fault::Broken(_) | Fault::Unreachable(_) | Fault::Referred(_) => {
                self.unavailable(fault.to_string())
            }
            Fault::Slow { reason, arriving } => TransferError::PeerSlow {
                peer: self.peer.to_string(),
                object: self.key.to_string(),
                reason,
                arriving,
            },
            Fault::Untrusted(reason) => self.untrusted(reason),
        }
    }

    pub(super) fn untrusted(&self, reason: String) -> TransferError {
        TransferError::PeerUntrusted {
            peer: self.peer.to_string(),
            object: self.key.to_string(),
            reason,
        }
    }

    /// Returns the error that the peer is unavailable, for the given reason.
    pub fn unavailable(&self, reason: String) -> TransferError {
        TransferError::PeerUnavailable {
            peer: self.peer.to_string(),
            object: self.key.to_string(),
            reason,
        }
    }

    /// The peer's copy is not what it ought to be.
    pub fn corrupt(&self, reason: &str) -> TransferError {
        TransferError::Integrity {
            object: format!("{} from {}", self.key, self.peer),
            reason: reason.to_owned(),
            blame: Some((self.peer.to_string(), Offence::Lie)),
        }
    }
}
