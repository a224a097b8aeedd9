//! A link's speed: a token bucket that several connections share fairly.
//!
//! Every slice of bytes reserves its place on an imaginary line that moves `rate` bytes a second and is sent when the line has
//! carried it. Reservations are first come, first served and small, so connections that all have something to send get equal shares.
//! Places are computed from the clock, not from the lengths of sleeps, so waking up late costs nothing on average; but time without
//! anything to send is lost, as on a real link.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

/// A sender that was delayed catches up with at most this much time's worth of bytes.
const CATCH_UP: Duration = Duration::from_millis(100);
/// A slice lasts at most about this long on the line.
const SLICES_PER_SECOND: f64 = 50.0;
const SMALLEST_SLICE: f64 = 256.0;
/// Largest slice, and the slice of a line without a limit.
const LARGEST_SLICE: u64 = 1 << 20;

struct Line {
    rate: Option<f64>,
    free_at: Instant,
    /// Changes whenever waiting reservations no longer hold.
    generation: u64,
    closed: bool,
}

impl Line {
    /// Reserves a place for `bytes`; returns when the line has carried them, none if it has no limit.
    fn book(&mut self, bytes: u64, place: Place, now: Instant) -> Option<Instant> {
        let rate = self.rate?;
        let earliest = match place {
            Place::First => now,
            Place::Next => now.checked_sub(CATCH_UP).unwrap_or(now),
        };
        let due = self.free_at.max(earliest) + Duration::from_secs_f64(bytes as f64 / rate);
        self.free_at = due;
        Some(due)
    }
}

/// Position of a slice in the data of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It begins something new; the line was not waiting for it.
    First,
    /// It follows another; if it is late, its sender woke up late.
    Next,
}

/// A shared limit on bytes per second, or none.
pub struct Shaper {
    line: Mutex<Line>,
    changed: Condvar,
}

impl Shaper {
    /// A line of `rate` bytes per second; `None` is no limit.
    pub fn new(rate: Option<f64>) -> Shaper {
        Shaper {
            line: Mutex::new(Line {
                rate,
                free_at: Instant::now(),
                generation: 0,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Changes the rate, for what waits now too.
    pub fn set_rate(&self, rate: Option<f64>) {
        let mut line = self.line.lock().unpoisoned();
        line.rate = rate;
        line.free_at = Instant::now();
        line.generation += 1;
        drop(line);
        self.changed.notify_all();
    }

    /// Bytes per second, or no limit.
    pub fn rate(&self) -> Option<f64> {
        self.line.lock().unpoisoned().rate
    }

    /// Lets every waiting and future [`Shaper::take`] return false.
    pub fn close(&self) {
        self.line.lock().unpoisoned().closed = true;
        self.changed.notify_all();
    }

    /// How many bytes to take at a time, so that others get their turn.
    pub fn slice(&self) -> u64 {
        match self.rate() {
            None => LARGEST_SLICE,
            Some(rate) => {
                ((rate / SLICES_PER_SECOND).max(SMALLEST_SLICE) as u64).min(LARGEST_SLICE)
            }
        }
    }

    /// Waits until the line has carried `bytes`; false if it was closed.
    pub fn take(&self, bytes: u64, place: Place) -> bool {
        let mut line = self.line.lock().unpoisoned();
        let Some(due) = line.book(bytes, place, Instant::now()) else {
            return !line.closed;
        };
        let generation = line.generation;
        loop {
            if line.closed {
                return false;
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() || line.generation != generation {
                return true;
            }
            line = self.changed.wait_timeout(line, left).unpoisoned().0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const LONG: Duration = Duration::from_secs(600);

    /// A line of a megabyte a second.
    fn line(free_at: Instant) -> Line {
        Line {
            rate: Some(1e6),
            free_at,
            generation: 0,
            closed: false,
        }
    }

    #[test]
    fn the_line_carries_its_rate_and_no_more() {
        let shaper = Shaper::new(Some(1_000_000.0));
        let start = Instant::now();
        assert!(shaper.take(10_000, Place::First));
        for _ in 0..19 {
            assert!(shaper.take(10_000, Place::Next));
        }
        assert!(start.elapsed() >= Duration::from_millis(200));
        assert!(shaper.line.lock().unpoisoned().free_at >= start + Duration::from_millis(200));
    }

    #[test]
    fn who_was_delayed_catches_up_but_idle_time_is_gone() {
        let now = Instant::now() + LONG;
        let after = |idle, place| {
            let mut line = line(now - idle);
            line.book(20_000, place, now).unwrap()
        };
        let (short, slice) = (Duration::from_millis(10), Duration::from_millis(20));
        assert_eq!(after(short, Place::First), now + slice);
        assert_eq!(after(short, Place::Next), now + slice - short);
        assert_eq!(after(LONG, Place::Next), now + slice - CATCH_UP);
    }

    #[test]
    fn who_asks_first_is_first_and_all_have_the_same() {
        let now = Instant::now();
        let mut line = line(now);
        for round in 0..10 {
            for sender in 1..=4 {
                let due = line.book(1000, Place::Next, now).unwrap();
                assert_eq!(due, now + Duration::from_millis(4 * round + sender));
            }
        }
    }

    #[test]
    fn slices_keep_other_connections_from_waiting() {
        assert_eq!(Shaper::new(Some(2_500_000.0)).slice(), 50_000);
        assert_eq!(Shaper::new(Some(1.0)).slice(), 256);
        assert_eq!(Shaper::new(Some(1e12)).slice(), LARGEST_SLICE);
        assert_eq!(Shaper::new(None).slice(), LARGEST_SLICE);
    }

    #[test]
    fn waiting_ends_when_the_rate_changes_or_the_line_closes() {
        let shaper = Arc::new(Shaper::new(Some(1.0)));
        let waiter = {
            let shaper = shaper.clone();
            std::thread::spawn(move || shaper.take(1_000_000, Place::First))
        };
        while shaper.line.lock().unpoisoned().free_at < Instant::now() + Duration::from_secs(60) {
            std::thread::yield_now();
        }
        shaper.set_rate(None);
        assert!(waiter.join().unwrap());
        shaper.close();
        assert!(!shaper.take(1, Place::Next));
    }
}
