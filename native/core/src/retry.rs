//! What can go wrong, by kind, and whether trying again may help: the one table for native code and its bindings.
//!
//! An error is *retryable* if the same call may succeed later or from another source, and *permanent* if it fails again until a person
//! changes something. The bindings raise one exception type for each kind, by the name given here; the Python package asserts that its own types agree.

/// The kind of an error; the set is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The object is being transferred or built already.
    AlreadyInFlight,
    /// A patch was made for another base.
    BaseMismatch,
    /// The caller ended the operation.
    Cancelled,
    /// A file is not what its format promises.
    Format,
    /// Bytes differ from what their hash promises.
    Integrity,
    /// Something outside stopped the operation, which resumes when called again.
    Interrupted,
    /// The caller's arguments cannot be used.
    InvalidInput,
    /// The file system is full.
    NoSpace,
    /// A source does not hold the object any more.
    ObjectMissing,
    /// A peer refused the credentials.
    PeerRefused,
    /// A peer did not answer, or stopped answering.
    PeerUnavailable,
    /// A peer and this host do not accept each other's certificates.
    PeerUntrusted,
    /// A source did not answer.
    SourceUnavailable,
    /// The operating system's own error, which says itself what it is.
    System,
    /// Any other permanent error.
    Other,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [ErrorKind; 15] = [
        ErrorKind::AlreadyInFlight,
        ErrorKind::BaseMismatch,
        ErrorKind::Cancelled,
        ErrorKind::Format,
        ErrorKind::Integrity,
        ErrorKind::Interrupted,
        ErrorKind::InvalidInput,
        ErrorKind::NoSpace,
        ErrorKind::ObjectMissing,
        ErrorKind::PeerRefused,
        ErrorKind::PeerUnavailable,
        ErrorKind::PeerUntrusted,
        ErrorKind::SourceUnavailable,
        ErrorKind::System,
        ErrorKind::Other,
    ];

    /// Returns the name of the exception that the bindings raise.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::AlreadyInFlight => "AlreadyInFlight",
            ErrorKind::BaseMismatch => "BaseMismatch",
            ErrorKind::Cancelled => "Cancelled",
            ErrorKind::Format => "FormatError",
            ErrorKind::Integrity => "IntegrityError",
            ErrorKind::Interrupted => "Interrupted",
            ErrorKind::InvalidInput => "InvalidInput",
            ErrorKind::NoSpace => "NoSpace",
            ErrorKind::ObjectMissing => "ObjectMissing",
            ErrorKind::PeerRefused => "PeerRefused",
            ErrorKind::PeerUnavailable => "PeerUnavailable",
            ErrorKind::PeerUntrusted => "PeerUntrusted",
            ErrorKind::SourceUnavailable => "SourceUnavailable",
            ErrorKind::System => "OSError",
            ErrorKind::Other => "NativeError",
        }
    }

    /// Returns whether the same call may succeed later or from another source.
    pub fn is_retryable(self) -> bool {
        match self {
            ErrorKind::AlreadyInFlight
            | ErrorKind::Cancelled
            | ErrorKind::Integrity
            | ErrorKind::Interrupted
            | ErrorKind::NoSpace
            | ErrorKind::ObjectMissing
            | ErrorKind::PeerUnavailable
            | ErrorKind::SourceUnavailable => true,
            ErrorKind::BaseMismatch
            | ErrorKind::Format
            | ErrorKind::InvalidInput
            | ErrorKind::PeerRefused
            | ErrorKind::PeerUntrusted
            | ErrorKind::System
            | ErrorKind::Other => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_kinds_apart() {
        let mut names: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ErrorKind::ALL.len());
    }

    #[test]
    fn what_the_caller_or_the_disk_ends_may_be_repeated() {
        assert!(ErrorKind::NoSpace.is_retryable());
        assert!(ErrorKind::Cancelled.is_retryable());
        assert!(!ErrorKind::PeerUntrusted.is_retryable());
    }
}
