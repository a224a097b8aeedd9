//! The moment at which all disks of a test stop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

const NEVER: u64 = u64::MAX;

/// Counts the operations of the disks that share it. Once it has burnt, operations fail and change
/// nothing; the one that burns it may be done in part.
#[derive(Debug, Clone)]
pub struct Fuse(Arc<AtomicU64>);

/// What becomes of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spark {
    /// It is done.
    Whole,
    /// It burns the fuse: it is done in part.
    Last,
    /// It is not done.
    Burnt,
}

impl Default for Fuse {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(NEVER)))
    }
}

impl Fuse {
    /// Lets this many operations be done whole from now on.
    pub fn burn_after(&self, operations: u64) {
        self.0
            .store(operations.saturating_add(1), Ordering::Release);
    }

    /// Lets all operations be done whole from now on.
    pub fn replace(&self) {
        self.0.store(NEVER, Ordering::Release);
    }

    /// Whether operations fail.
    #[must_use]
    pub fn has_burnt(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }

    pub(crate) fn count(&self) -> Spark {
        let burn = |left: u64| match left {
            NEVER => None,
            left => left.checked_sub(1),
        };
        let before = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, burn);
        match before {
            Err(NEVER) => Spark::Whole,
            Ok(1) => Spark::Last,
            Ok(_) => Spark::Whole,
            Err(_) => Spark::Burnt,
        }
    }
}
