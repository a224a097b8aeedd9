//! An object that is still arriving, and how much of it may already be read.

use std::fs::File;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

/// Which bytes of an arriving object may be read.
enum Ready {
    /// The first this many bytes.
    Prefix(u64),
    /// Leaves of a fixed size, one bit each.
    Leaves { size: u64, bits: Vec<u64> },
}

impl Ready {
    /// The end of the readable bytes that begin at `position`, at most `limit`; `position` itself if there are none.
    fn run_end(&self, position: u64, limit: u64) -> u64 {
        match self {
            Ready::Prefix(end) => limit.min(*end).max(position),
            Ready::Leaves { size, bits } => {
                let mut end = position;
                while end < limit && bit(bits, end / size) {
                    end = (end / size + 1) * size;
                }
                end.min(limit)
            }
        }
    }
}

fn bit(bits: &[u64], index: u64) -> bool {
    bits.get((index / 64) as usize)
        .is_some_and(|word| word >> (index % 64) & 1 == 1)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Arriving,
    Landed,
    Failed,
}

struct Arrival {
    content: Option<(Arc<File>, u64)>,
    ready: Ready,
    stage: Stage,
    progressed: Instant,
    waiting: usize,
    followed: bool,
}

/// Why bytes of an arriving object cannot be had.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FlightError {
    /// Nothing arrived for longer than a reader waits.
    #[error("the object is arriving here, but nothing came for a while")]
    Stalled,
    /// The transfer or build behind it ended without the object.
    #[error("the object was arriving here, but its transfer failed")]
    Failed,
}

/// One arriving object, shared by its writer and by readers that follow it.
pub struct Flight {
    arrival: Mutex<Arrival>,
    changed: Condvar,
}

impl Default for Flight {
    fn default() -> Flight {
        Flight {
            arrival: Mutex::new(Arrival {
                content: None,
                ready: Ready::Prefix(0),
                stage: Stage::Arriving,
                progressed: Instant::now(),
                waiting: 0,
                followed: false,
            }),
            changed: Condvar::new(),
        }
    }
}

impl Flight {
    /// The object's size is known and bytes arrive in `file` from the first to the last.
    pub fn begin_prefix(&self, file: Arc<File>, size: u64) {
        self.update(|arrival| {
            arrival.content = Some((file, size));
            arrival.ready = Ready::Prefix(0);
        });
    }

    /// The object's size is known and leaves of `leaf` bytes arrive in any order.
    pub fn begin_leaves(&self, file: Arc<File>, size: u64, leaf: u64) {
        self.update(|arrival| {
            arrival.content = Some((file, size));
            arrival.ready = Ready::Leaves {
                size: leaf,
                bits: vec![0; size.div_ceil(leaf).div_ceil(64) as usize],
            };
        });
    }

    /// The first `end` bytes may be read.
    pub fn mark_prefix(&self, end: u64) {
        self.update(|arrival| {
            if let Ready::Prefix(ready) = &mut arrival.ready {
                *ready = end.max(*ready);
            }
        });
    }

    /// The leaves `first..end` may be read; they are verified.
    pub fn mark_leaves(&self, first: u64, end: u64) {
        self.update(|arrival| {
            if let Ready::Leaves { bits, .. } = &mut arrival.ready {
                for leaf in first..end {
                    if let Some(word) = bits.get_mut((leaf / 64) as usize) {
                        *word |= 1 << (leaf % 64);
                    }
                }
            }
        });
    }

    /// Whether a leaf may be read.
    pub fn is_leaf_ready(&self, leaf: u64) -> bool {
        match &self.arrival.lock().unpoisoned().ready {
            Ready::Leaves { bits, .. } => bit(bits, leaf),
            Ready::Prefix(_) => false,
        }
    }

    /// Notes that a reader follows.
    pub fn follow(&self) {
        self.arrival.lock().unpoisoned().followed = true;
    }

    /// Returns whether a reader followed.
    pub fn is_followed(&self) -> bool {
        self.arrival.lock().unpoisoned().followed
    }

    /// The object is whole and verified; readers continue to its end.
    pub fn land(&self) {
        self.update(|arrival| {
            arrival.stage = Stage::Landed;
            let size = arrival.content.as_ref().map_or(0, |content| content.1);
            arrival.ready = Ready::Prefix(size);
        });
    }

    /// There will be no object; readers are sent away.
    pub fn fail(&self) {
        self.update(|arrival| {
            if arrival.stage == Stage::Arriving {
                arrival.stage = Stage::Failed;
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut Arrival)) {
        let mut arrival = self.arrival.lock().unpoisoned();
        change(&mut arrival);
        arrival.progressed = Instant::now();
        if arrival.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// The file and its size, once they are known.
    pub fn content(&self, patience: Duration) -> Result<(Arc<File>, u64), FlightError> {
        self.wait(patience, |arrival| arrival.content.clone())
    }

    /// Waits until bytes at `position` may be read and returns where they end, at most at `limit`.
    ///
    /// `patience` counts from the last progress of the whole object, so that later readers of a stalled object give up at once.
    pub fn readable(
        &self,
        position: u64,
        limit: u64,
        patience: Duration,
    ) -> Result<u64, FlightError> {
        self.wait(patience, |arrival| {
            let end = arrival.ready.run_end(position, limit);
            (end > position || position >= limit).then_some(end)
        })
    }

    fn wait<T>(
        &self,
        patience: Duration,
        probe: impl Fn(&Arrival) -> Option<T>,
    ) -> Result<T, FlightError> {
        let mut arrival = self.arrival.lock().unpoisoned();
        loop {
            if arrival.stage == Stage::Failed {
                return Err(FlightError::Failed);
            }
            if let Some(found) = probe(&arrival) {
                return Ok(found);
            }
            let left = patience.saturating_sub(arrival.progressed.elapsed());
            if left.is_zero() {
                return Err(FlightError::Stalled);
            }
            arrival.waiting += 1;
            arrival = self.changed.wait_timeout(arrival, left).unpoisoned().0;
            arrival.waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_secs(600);

    fn file() -> Arc<File> {
        Arc::new(File::open("/dev/null").unwrap())
    }

    #[test]
    fn leaves_become_readable_one_by_one() {
        let flight = Flight::default();
        assert_eq!(flight.content(SHORT).unwrap_err(), FlightError::Stalled);
        flight.begin_leaves(file(), 250, 100);
        assert_eq!(flight.content(LONG).unwrap().1, 250);
        assert_eq!(flight.readable(0, 250, SHORT), Err(FlightError::Stalled));
        flight.mark_leaves(1, 2);
        assert_eq!(flight.readable(100, 250, LONG), Ok(200));
        assert_eq!(flight.readable(150, 180, LONG), Ok(180));
        assert!(flight.is_leaf_ready(1) && !flight.is_leaf_ready(2));
        flight.mark_leaves(2, 3);
        assert_eq!(flight.readable(150, 250, LONG), Ok(250));
        flight.land();
        assert_eq!(flight.readable(0, 250, LONG), Ok(250));
        flight.fail();
        assert_eq!(flight.readable(0, 250, LONG), Ok(250));
    }

    #[test]
    fn a_waiting_reader_wakes_with_progress_and_with_failure() {
        let flight = Arc::new(Flight::default());
        flight.begin_prefix(file(), 100);
        for (act, expected) in [
            (Flight::mark_prefix as fn(&Flight, u64), Ok(10)),
            (|flight, _| flight.fail(), Err(FlightError::Failed)),
        ] {
            let start = if expected.is_ok() { 0 } else { 10 };
            let reader = {
                let flight = flight.clone();
                std::thread::spawn(move || flight.readable(start, 100, LONG))
            };
            while flight.arrival.lock().unpoisoned().waiting == 0 {
                std::thread::yield_now();
            }
            act(&flight, 10);
            assert_eq!(reader.join().unwrap(), expected);
        }
    }
}
