//! The exceptions that native code raises, one for each kind of error.

use diffcache_core::retry::ErrorKind;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;

create_exception!(
    _native,
    NativeError,
    PyException,
    "Base of the errors that native code raises on purpose."
);
create_exception!(
    _native,
    IntegrityError,
    NativeError,
    "Bytes differ from what their hash promises; another source may do."
);
create_exception!(
    _native,
    SourceUnavailable,
    NativeError,
    "A source did not answer; the same call may succeed later or from another source."
);
create_exception!(
    _native,
    FormatError,
    NativeError,
    "A file is not what its format promises, or its version is unknown."
);
create_exception!(
    _native,
    BaseMismatch,
    NativeError,
    "A patch was made for another base than the one given."
);
create_exception!(
    _native,
    NoSpace,
    NativeError,
    "The filesystem is full; nothing half-written was left behind."
);
create_exception!(
    _native,
    Interrupted,
    NativeError,
    "The operation was interrupted from outside; repeat the call to resume it."
);
create_exception!(
    _native,
    Cancelled,
    NativeError,
    "The caller cancelled the operation."
);

create_exception!(
    _native,
    PeerUnavailable,
    NativeError,
    "A peer did not answer, or stopped answering; another source may do."
);
create_exception!(
    _native,
    PeerRefused,
    NativeError,
    "A peer refused our credentials; compare the key files."
);
create_exception!(
    _native,
    PeerUntrusted,
    NativeError,
    "A peer and this host do not take each other's certificates, or only one of them speaks TLS."
);
create_exception!(
    _native,
    ObjectMissing,
    NativeError,
    "A peer does not hold the object it was asked for."
);
create_exception!(
    _native,
    AlreadyInFlight,
    NativeError,
    "The object is being fetched or built here already; wait for that to end."
);
create_exception!(
    _native,
    InvalidInput,
    NativeError,
    "The caller's arguments cannot be used; the message says which."
);

/// The exception of a kind, with a message.
pub fn raise(kind: ErrorKind, message: String) -> PyErr {
    match kind {
        ErrorKind::AlreadyInFlight => AlreadyInFlight::new_err(message),
        ErrorKind::BaseMismatch => BaseMismatch::new_err(message),
        ErrorKind::Cancelled => Cancelled::new_err(message),
        ErrorKind::Format => FormatError::new_err(message),
        ErrorKind::Integrity => IntegrityError::new_err(message),
        ErrorKind::Interrupted => Interrupted::new_err(message),
        ErrorKind::InvalidInput => InvalidInput::new_err(message),
        ErrorKind::NoSpace => NoSpace::new_err(message),
        ErrorKind::ObjectMissing => ObjectMissing::new_err(message),
        ErrorKind::PeerRefused => PeerRefused::new_err(message),
        ErrorKind::PeerUnavailable => PeerUnavailable::new_err(message),
        ErrorKind::PeerUntrusted => PeerUntrusted::new_err(message),
        ErrorKind::SourceUnavailable => SourceUnavailable::new_err(message),
        ErrorKind::System => PyOSError::new_err(message),
        ErrorKind::Other => NativeError::new_err(message),
    }
}

/// The name of every kind of error, which is that of its exception, and whether it is retryable.
#[pyfunction]
fn error_kinds() -> Vec<(&'static str, bool)> {
    ErrorKind::ALL
        .into_iter()
        .map(|kind| (kind.name(), kind.is_retryable()))
        .collect()
}

/// Adds this file's names to the extension module.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("NativeError", py.get_type::<NativeError>())?;
    m.add("AlreadyInFlight", py.get_type::<AlreadyInFlight>())?;
    m.add("BaseMismatch", py.get_type::<BaseMismatch>())?;
    m.add("Cancelled", py.get_type::<Cancelled>())?;
    m.add("FormatError", py.get_type::<FormatError>())?;
    m.add("IntegrityError", py.get_type::<IntegrityError>())?;
    m.add("Interrupted", py.get_type::<Interrupted>())?;
    m.add("InvalidInput", py.get_type::<InvalidInput>())?;
    m.add("NoSpace", py.get_type::<NoSpace>())?;
    m.add("ObjectMissing", py.get_type::<ObjectMissing>())?;
    m.add("PeerRefused", py.get_type::<PeerRefused>())?;
    m.add("PeerUnavailable", py.get_type::<PeerUnavailable>())?;
    m.add("PeerUntrusted", py.get_type::<PeerUntrusted>())?;
    m.add("SourceUnavailable", py.get_type::<SourceUnavailable>())?;
    m.add_function(wrap_pyfunction!(error_kinds, m)?)
}
