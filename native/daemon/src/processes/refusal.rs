//! Why a request of the agent failed.

use serde_json::Value;

use crate::error::DaemonError;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The request cannot be carried out as it is.
    #[error("{0}")]
    Invalid(String),
    /// There is no such image.
    #[error("image {0} is not served here")]
    Unknown(String),
    /// It is in use.
    #[error("image {0} is open: shut the servers down that use it, or wait until their base image was replaced")]
    Busy(String),
    /// It may succeed later.
    #[error("{0}")]
    Failed(String),
}

impl From<DaemonError> for Refusal {
    fn from(error: DaemonError) -> Refusal {
        match error {
            DaemonError::Path { .. } | DaemonError::System(..) | DaemonError::Mounter(_) => {
                Refusal::Failed(error.to_string())
            }
            error => Refusal::Invalid(error.to_string()),
        }
    }
}

impl Refusal {
    /// Return the answer to a command that failed.
    pub fn answer(&self) -> Value {
        let kind = match self {
            Refusal::Invalid(_) => "InvalidInput",
            Refusal::Unknown(_) => "NotFound",
            Refusal::Busy(_) => "Conflict",
            Refusal::Failed(_) => "ServiceUnavailable",
        };
        diffcache_control::error(kind, &self.to_string())
    }
}
