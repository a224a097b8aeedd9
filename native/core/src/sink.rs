//! Receivers of verified leaves.

/// Why a sink did not take a leaf.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// The filesystem that takes the leaves is full.
    #[error("{name}: no space left; free some and try again")]
    NoSpace {
        /// What was being written.
        name: String,
    },
    /// Writing failed for another reason.
    #[error("{name}: cannot write: {source}")]
    Io {
        /// What was being written.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The receiver takes no more leaves.
    #[error("{name}: the receiver gave up: {reason}")]
    Closed {
        /// What was being written.
        name: String,
        /// Why.
        reason: String,
    },
}

impl SinkError {
    /// Converts the error of a write: `NoSpace` if the filesystem is full.
    pub fn from_io(name: &str, source: std::io::Error) -> SinkError {
        match source.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                SinkError::NoSpace {
                    name: name.to_owned(),
                }
            }
            _ => SinkError::Io {
                name: name.to_owned(),
                source,
            },
        }
    }
}

/// Takes the leaves of one image.
///
/// The caller guarantees: every leaf was verified before `put`; each leaf is put at most once; a leaf that is all zeroes is never put (its place
/// is known from the manifest), nor one that is not wanted; calls may come in any order and from several threads at a time. All other leaves were put once the
/// call that was given the sink returns `Ok`; after an error any subset may have been.
pub trait LeafSink: Send + Sync {
    /// Takes leaf `index`, whose bytes start at `index * LEAF_SIZE`; only the last leaf may be shorter than `LEAF_SIZE`.
    ///
    /// # Errors
    /// The first error ends the whole operation.
    fn put(&self, index: u64, data: &[u8]) -> Result<(), SinkError>;

    /// Returns whether leaf `index` is still to be put; one that is not need not be built.
    fn wants(&self, _index: u64) -> bool {
        true
    }
}
