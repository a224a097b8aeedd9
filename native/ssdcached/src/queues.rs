//! Writes that wait while the volumes of a group are read, one after the other, at one moment.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

/// The volumes whose writes wait, by the names of their exports.
///
/// A write that began before may still be under way. What depends on it comes after its answer, and
/// waits: so volumes whose writes wait at the same time are as of one moment.
#[derive(Default)]
pub struct Queues {
    /// Until when; those of volumes that were detached stay until they are asked about.
    until: Mutex<HashMap<String, Instant>>,
    /// How many there are, which a write looks at first.
    count: AtomicUsize,
    ended: Condvar,
}

impl Queues {
    /// Has the writes of an export wait for a time at most.
    pub fn begin(&self, export: &str, time: Duration) {
        let mut until = self.until.lock().unpoisoned();
        until.insert(export.to_owned(), Instant::now() + time);
        self.count.store(until.len(), Ordering::SeqCst);
    }

    /// Has the writes of an export go on. Whether they have waited until now.
    pub fn end(&self, export: &str) -> bool {
        let mut until = self.until.lock().unpoisoned();
        let deadline = until.remove(export);
        self.count.store(until.len(), Ordering::SeqCst);
        drop(until);
        self.ended.notify_all();
        deadline.is_some_and(|deadline| Instant::now() < deadline)
    }

    /// Waits until writes of an export may begin.
    pub fn wait(&self, export: &str) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut until = self.until.lock().unpoisoned();
        while let Some(deadline) = until.get(export) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            (until, _) = self.ended.wait_timeout(until, left).unpoisoned();
        }
    }
}
