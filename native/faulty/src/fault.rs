//! What goes wrong with operations of a disk.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::lock;

/// What a disk is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read bytes.
    Read,
    /// Write bytes or zeroes, durably or not.
    Write,
    /// Make durable what was written.
    Sync,
}

/// How an operation goes wrong.
#[derive(Debug, Clone)]
pub enum Effect {
    /// It fails with this number of the system (`EIO`, `ENOSPC`, ...), and changes nothing.
    Error(i32),
    /// A sync fails with `EIO`, and what was not durable never becomes so, although it is read until
    /// it leaves the memory of the system ([`evict`](crate::Disk::evict)). The next sync succeeds:
    /// the kernel reports an error of its write-back once.
    Lose,
    /// A write fails with this number after as many bytes as given were written.
    Torn(u64, i32),
    /// A write or a sync succeeds, and does nothing.
    Ignored,
    /// A read returns what was durable before.
    Stale,
    /// A read has this bit of its bytes flipped, counted from their beginning.
    Flipped(u64),
    /// It is done after this time.
    Slow(Duration),
    /// It is done once the valve is open.
    Hang(Valve),
}

/// Holds operations up until it is opened.
#[derive(Debug, Clone, Default)]
pub struct Valve(Arc<State>);

#[derive(Debug, Default)]
struct State {
    is_open: Mutex<(bool, u64)>,
    changed: Condvar,
}

impl Valve {
    /// Lets all operations pass that wait or will come.
    pub fn open(&self) {
        lock(&self.0.is_open).0 = true;
        self.0.changed.notify_all();
    }

    /// Waits until this many operations have come.
    pub fn wait_for(&self, operations: u64) {
        let state = lock(&self.0.is_open);
        let waited = self
            .0
            .changed
            .wait_while(state, |found| found.1 < operations);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn pass(&self) {
        let mut state = lock(&self.0.is_open);
        state.1 += 1;
        self.0.changed.notify_all();
        let waited = self.0.changed.wait_while(state, |found| !found.0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Operations of a disk that go wrong.
#[derive(Debug, Clone)]
pub struct Fault {
    operation: Operation,
    effect: Effect,
    range: Range<u64>,
    skipped: u64,
    times: u64,
}

impl Fault {
    /// All operations of a kind.
    #[must_use]
    pub fn new(operation: Operation, effect: Effect) -> Self {
        Self {
            operation,
            effect,
            range: 0..u64::MAX,
            skipped: 0,
            times: u64::MAX,
        }
    }

    /// Those alone that touch a range of bytes; a sync touches all.
    #[must_use]
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range, ..self }
    }

    /// Those alone after so many that succeed.
    #[must_use]
    pub fn after(self, operations: u64) -> Self {
        let skipped = operations;
        Self { skipped, ..self }
    }

    /// So many of them; later ones succeed.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }

    /// What happens to an operation, if it is one of these.
    pub(crate) fn strike(&mut self, operation: Operation, range: &Range<u64>) -> Option<Effect> {
        let touches = self.range.start < range.end && range.start < self.range.end;
        if operation != self.operation || !touches || self.times == 0 {
            return None;
        }
        if self.skipped > 0 {
            self.skipped -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.effect.clone())
    }

    pub(crate) fn is_over(&self) -> bool {
        self.times == 0
    }
}
