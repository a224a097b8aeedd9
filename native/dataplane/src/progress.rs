//! Progress reports, a few per second at most.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::gate::Cancel;

const INTERVAL: Duration = Duration::from_millis(200);

/// Called with the bytes done and the bytes in all; false asks the operation to stop.
pub type Report<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// Counts one operation's bytes and reports them.
pub struct Meter<'a> {
    report: Option<Report<'a>>,
    refused: Cancel,
    state: Mutex<State>,
}

struct State {
    done: u64,
    total: u64,
    reported: Option<Instant>,
}

impl<'a> Meter<'a> {
    /// A meter of `total` bytes; `refused` is set when the report asks to stop.
    pub fn new(report: Option<Report<'a>>, total: u64, refused: Cancel) -> Meter<'a> {
        Meter {
            report,
            refused,
            state: Mutex::new(State {
                done: 0,
                total,
                reported: None,
            }),
        }
    }

    /// Says how many bytes there are in all, once that is known.
    pub fn set_total(&self, total: u64) {
        self.state.lock().unpoisoned().total = total;
    }

    /// This many bytes of this many are done.
    pub fn reach(&self, done: u64, total: u64) {
        let mut state = self.state.lock().unpoisoned();
        (state.done, state.total) = (done, total);
        self.tell(state);
    }

    /// So many bytes more are done.
    pub fn add(&self, bytes: u64) {
        let mut state = self.state.lock().unpoisoned();
        state.done += bytes;
        self.tell(state);
    }

    /// Reports the first, the last and, in between, at most five a second.
    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let due = state.reported.is_none_or(|time| time.elapsed() >= INTERVAL);
        let Some(report) = self.report.filter(|_| due || state.done == state.total) else {
            return;
        };
        state.reported = Some(Instant::now());
        let (done, total) = (state.done, state.total);
        drop(state);
        if !report(done, total) {
            self.refused.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_are_reported_and_few_between() {
        let seen = Mutex::new(Vec::new());
        let report = |done, total| {
            seen.lock().unpoisoned().push((done, total));
            done < 1000
        };
        let refused = Cancel::default();
        let meter = Meter::new(Some(&report), 0, refused.clone());
        meter.set_total(1000);
        for _ in 0..1000 {
            assert!(!refused.is_cancelled());
            meter.add(1);
        }
        let seen = seen.lock().unpoisoned().clone();
        assert_eq!(seen.first(), Some(&(1, 1000)));
        assert_eq!(seen.last(), Some(&(1000, 1000)));
        assert!(seen.len() < 100);
        assert!(refused.is_cancelled());
    }
}
