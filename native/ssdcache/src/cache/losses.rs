//! What the origin of a volume was written and may lose, and what it lost.
//!
//! An origin reports once that it lost writes: to the flush that happens to come next, also if that
//! is one in the background. So all flushes of an origin go through here. What was written since the
//! last good one is lost at a failure; it stays lost until it was written again, by a write that
//! began after the failure, and flushed, or until it is [forgotten](Losses::forget). A write that is
//! under way when a flush begins is not flushed by it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use diffcache_base::locks::Unpoisoned;

use super::ranges::Ranges;
use crate::device::intents::REGION;

/// Ranges that are told apart; more of them become whole regions.
const MOST: usize = 1024;

/// A write to the origin that is under way.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Default)]
struct State {
    /// Writes that are under way.
    running: HashMap<Ticket, Range<u64>>,
    last: u64,
    /// Writes up to this one began before the last failure.
    failed_at: u64,
    /// What is complete, and was not when the last flush began.
    written: Ranges,
    /// What the flush that is under way makes durable.
    flushing: Ranges,
    /// What was lost and is complete again, and was not when the last flush began.
    rewritten: Ranges,
    /// What the flush that is under way makes durable of that.
    restoring: Ranges,
    lost: Ranges,
    failures: u64,
    /// Whether a flush succeeded since the start: an earlier process may have written.
    is_known: bool,
    /// Flushes that began.
    flushes: u64,
    /// The number of the last one that succeeded.
    succeeded: u64,
    /// Whether what is lost could not be noted.
    is_unnoted: bool,
}

/// See the module.
#[derive(Default)]
pub(super) struct Losses {
    state: Mutex<State>,
    turn: Mutex<()>,
}

impl State {
    fn rewrite(&mut self, range: &Range<u64>) {
        let again = self.lost.common(range);
        again
            .into_iter()
            .for_each(|part| self.rewritten.insert(part));
    }
}

impl Losses {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Notes a write to the origin before it begins.
    pub(super) fn begin(&self, range: Range<u64>) -> Ticket {
        let mut state = self.lock();
        state.last += 1;
        let ticket = Ticket(state.last);
        state.running.insert(ticket, range);
        ticket
    }

    /// Notes its end; `is_renewed`: a client wrote all of it, which succeeded. `size` is that of the
    /// volume.
    pub(super) fn end(&self, ticket: Ticket, is_renewed: bool, size: u64) {
        let mut state = self.lock();
        let Some(range) = state.running.remove(&ticket) else {
            return;
        };
        if is_renewed && ticket.0 > state.failed_at {
            let again = state.lost.common(&range);
            again
                .into_iter()
                .for_each(|part| state.rewritten.insert(part));
        }
        state.written.insert(range);
        bound(&mut state.written, size);
    }

    /// Notes a write that is complete because the cache has it.
    pub(super) fn note_rewritten(&self, range: &Range<u64>) {
        self.lock().rewrite(range);
    }

    /// The number of flushes that began: one that begins later has all that is complete now.
    pub(super) fn flushes(&self) -> u64 {
        self.lock().flushes
    }

    /// Excludes other flushes of this origin.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unpoisoned()
    }

    /// Whether a flush is needed for what was complete when `flushes` flushes had begun. To be
    /// called in turn.
    pub(super) fn is_needed(&self, flushes: u64) -> bool {
        let state = self.lock();
        let is_behind = !state.written.is_empty() || !state.rewritten.is_empty() || !state.is_known;
        is_behind && state.succeeded <= flushes
    }

    /// Whether the origin has all that is complete. To be called in turn.
    pub(super) fn is_clean(&self) -> bool {
        let state = self.lock();
        state.written.is_empty() && state.is_known
    }

    /// Begins a flush, in turn.
    pub(super) fn begin_flush(&self) {
        let mut state = self.lock();
        state.flushes += 1;
        state.flushing = std::mem::take(&mut state.written);
        state.restoring = std::mem::take(&mut state.rewritten);
    }

    /// Ends a flush that succeeded. Returns whether what is lost became less.
    pub(super) fn end_flush(&self) -> bool {
        let mut state = self.lock();
        state.is_known = true;
        state.succeeded = state.flushes;
        state.flushing = Ranges::default();
        let restored = std::mem::take(&mut state.restoring);
        restored.iter().for_each(|range| state.lost.remove(&range));
        !restored.is_empty()
    }

    /// Ends a flush that failed. Returns what the origin may have lost.
    pub(super) fn fail_flush(&self) -> Ranges {
        let mut state = self.lock();
        state.failures += 1;
        state.failed_at = state.last;
        state.restoring = Ranges::default();
        state.rewritten = Ranges::default();
        let mut lost = std::mem::take(&mut state.flushing);
        lost.extend(&std::mem::take(&mut state.written));
        let running: Ranges = state.running.values().cloned().collect();
        lost.extend(&running);
        lost
    }

    /// How many flushes failed: one in the meantime may have lost what was written before it.
    pub(super) fn failures(&self) -> u64 {
        self.lock().failures
    }

    /// Notes that the origin lost ranges of a volume with this size.
    pub(super) fn add(&self, ranges: &Ranges, size: u64) {
        let mut state = self.lock();
        state.lost.extend(ranges);
        bound(&mut state.lost, size);
    }

    /// Notes what an earlier process wrote and did not flush.
    pub(super) fn add_written(&self, ranges: &Ranges) {
        self.lock().written.extend(ranges);
    }

    /// Forgets what was lost.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.rewritten = Ranges::default();
        state.restoring = Ranges::default();
        state.lost = Ranges::default();
    }

    /// What was lost.
    pub(super) fn lost(&self) -> Ranges {
        self.lock().lost.clone()
    }

    /// Says whether a start would find what was lost.
    pub(super) fn set_noted(&self, noted: bool) {
        self.lock().is_unnoted = !noted;
    }

    pub(super) fn is_noted(&self) -> bool {
        !self.lock().is_unnoted
    }

    /// The first byte that was lost.
    pub(super) fn first(&self) -> Option<u64> {
        let state = self.lock();
        let first = state.lost.iter().next();
        first.map(|range| range.start)
    }
}

/// Makes ranges coarser, whole regions at least, where there are too many.
fn bound(ranges: &mut Ranges, size: u64) {
    let mut unit = REGION;
    if ranges.len() > MOST {
        // Half of them, so that this is rare.
        while ranges.len() > MOST / 2 {
            *ranges = ranges.coarsened(unit, size);
            unit *= 2;
        }
    }
}
