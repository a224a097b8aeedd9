//! Disks that fail as disks do, for tests.
//!
//! A [`Disk`] is in memory. It loses what was not flushed in a power cut, sector by sector, and does
//! what its [`Fault`]s say. Disks that share a [`Fuse`] stop together between any two operations, or
//! in the middle of one, as when a process is killed. [`campaign`] repeats a test with seeds, and
//! prints the seed of a run that fails.
//!
//! The crate knows none of the others: a test implements the trait of the code under test for a disk,
//! or for a type that has one.

mod campaign;
mod disk;
mod fault;
mod fuse;
mod random;

pub use campaign::campaign;
pub use disk::{Disk, SECTOR};
pub use fault::{Effect, Fault, Operation, Valve};
pub use fuse::Fuse;
pub use libc::{EIO, ENOSPC, EROFS};
pub use random::Random;

use std::sync::{Mutex, MutexGuard, PoisonError};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
