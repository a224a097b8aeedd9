//! What the origin of a volume was written and may lose, and what it lost.
//!
//! An origin reports once that it lost writes: to the flush that happens to come next, also if that
//! is one in the background. So all flushes of an origin go through here. What was written since the
//! last good one is lost at a failure; it stays lost until it was written again, by a write that
//! began after the failure, and flushed, or until it is [forgotten](Losses::begin_forgetting). A write that is
//! under way when a flush begins is not flushed by it.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::{Mutex, MutexGuard};

use super::ranges::Ranges;
use crate::device::intents::REGION;

/// Ranges that are told apart; more of them become whole regions.
const MOST: usize = 1024;

/// A write to the origin that is under way.
#[derive(Debug, PartialEq, Eq, Hash, Clone, Copy, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// Who writes to an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writer {
    /// A client, by a request that passes the cache by.
    Client,
    /// The cache, of dirty blocks.
    WriteBack,
}

/// What an origin was written, and may lose.
#[derive(Default)]
pub(super) struct Unflushed {
    /// By clients. Of a block that became dirty since, the rest may be what the origin had after it
    /// lost this.
    pub(super) by_clients: Ranges,
    /// Of dirty blocks, which stay dirty until they are flushed.
    pub(super) copied: Ranges,
    /// Whether there were any writes: what the cache has since is none of the ranges.
    is_written: bool,
}

impl Unflushed {
    fn is_empty(&self) -> bool {
        !self.is_written
    }

    fn insert(&mut self, range: Range<u64>, writer: Writer) {
        self.is_written = true;
        match writer {
            Writer::Client => self.by_clients.insert(range),
            Writer::WriteBack => self.copied.insert(range),
        }
    }

    fn extend(&mut self, other: &Self) {
        self.by_clients.extend(&other.by_clients);
        self.copied.extend(&other.copied);
        self.is_written |= other.is_written;
    }
}

#[derive(Default)]
struct State {
    /// Writes that are under way.
    running: HashMap<Ticket, (Range<u64>, Writer)>,
    last: u64,
    /// Writes up to this one began before the last failure.
    failed_at: u64,
    /// What is complete, and was not when the last flush began.
    written: Unflushed,
    /// What the flush that is under way makes durable.
    flushing: Unflushed,
    /// What was lost and is complete again, and was not when the last flush began.
    rewritten: Ranges,
    /// What the flush that is under way makes durable of that.
    restoring: Ranges,
    lost: Ranges,
    /// What is being forgotten of that, and was not lost again since.
    forgetting: Ranges,
    failures: u64,
    /// Flushes that began.
    flushes: u64,
    /// The number of the last one that succeeded; 0: none, and an earlier process may have written.
    succeeded: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Losses {
    state: Mutex<State>,
    turn: Mutex<()>,
    /// Whether what is lost could not be noted; locked while it is.
    is_unnoted: Mutex<bool>,
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
    pub(super) fn begin(&self, range: Range<u64>, writer: Writer) -> Ticket {
        let mut state = self.lock();
        state.last += 1;
        let ticket = Ticket(state.last);
        state.running.insert(ticket, (range, writer));
        ticket
    }

    /// Notes its end, and whether it succeeded. `size` is that of the volume.
    ///
    /// A copy of dirty blocks makes no loss good: what they have beside a client's write may be what
    /// the origin had after the loss.
    pub(super) fn end(&self, ticket: Ticket, is_done: bool, size: u64) {
        let mut state = self.lock();
        let Some((range, writer)) = state.running.remove(&ticket) else {
            return;
        };
        if is_done && writer == Writer::Client && ticket.0 > state.failed_at {
            state.rewrite(&range);
        }
        state.written.insert(range, writer);
        bound(&mut state.written.by_clients, size);
        bound(&mut state.written.copied, size);
    }

    /// Notes a client's write that is complete because the cache has it: the origin may lose what it
    /// has there.
    pub(super) fn note_cached(&self, range: &Range<u64>) {
        let mut state = self.lock();
        state.rewrite(range);
        state.written.by_clients.remove(range);
        state.flushing.by_clients.remove(range);
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
        let is_behind =
            !state.written.is_empty() || !state.rewritten.is_empty() || state.succeeded == 0;
        is_behind && state.succeeded <= flushes
    }

    /// Whether the origin has all that is complete. To be called in turn.
    pub(super) fn is_clean(&self) -> bool {
        let state = self.lock();
        state.written.is_empty() && state.succeeded > 0
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
        state.succeeded = state.flushes;
        state.flushing = Unflushed::default();
        let restored = std::mem::take(&mut state.restoring);
        restored.iter().for_each(|range| state.lost.remove(&range));
        !restored.is_empty()
    }

    /// Ends a flush that failed. Returns what the origin may have lost.
    pub(super) fn fail_flush(&self) -> Unflushed {
        let mut state = self.lock();
        state.failures += 1;
        state.failed_at = state.last;
        state.restoring = Ranges::default();
        state.rewritten = Ranges::default();
        let mut lost = std::mem::take(&mut state.flushing);
        lost.extend(&std::mem::take(&mut state.written));
        let running = state.running.values().cloned();
        running.for_each(|(range, writer)| lost.insert(range, writer));
        // A server may still have it in its memory, where reads find it: a flush that is to succeed
        // makes that durable.
        state.written.is_written = true;
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
        let again = ranges.iter();
        again.for_each(|range| state.forgetting.remove(&range));
        bound(&mut state.lost, size);
    }

    /// Notes what an earlier process wrote and did not flush.
    pub(super) fn add_written(&self, ranges: &Ranges) {
        let mut state = self.lock();
        let ranges = ranges.iter();
        ranges.for_each(|range| state.written.insert(range, Writer::Client));
    }

    /// Begins to forget what was lost, and returns that.
    pub(super) fn begin_forgetting(&self) -> Ranges {
        let mut state = self.lock();
        state.forgetting = state.lost.clone();
        state.forgetting.clone()
    }

    /// Forgets it, except for what was lost again meanwhile.
    pub(super) fn end_forgetting(&self) {
        let mut state = self.lock();
        let forgotten = std::mem::take(&mut state.forgetting);
        forgotten.iter().for_each(|range| state.lost.remove(&range));
    }

    /// What was lost.
    pub(super) fn lost(&self) -> Ranges {
        self.lock().lost.clone()
    }

    /// Has it noted what is lost, where a start finds it. A later note is never replaced by an
    /// earlier one.
    pub(super) fn note(
        &self,
        write: impl FnOnce(&[Range<u64>]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut is_unnoted = self.is_unnoted.lock().unpoisoned();
        let lost: Vec<Range<u64>> = self.lost().iter().collect();
        let noted = write(&lost);
        *is_unnoted = noted.is_err();
        noted
    }

    /// Whether a start would find what is lost.
    pub(super) fn is_noted(&self) -> bool {
        !*self.is_unnoted.lock().unpoisoned()
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
