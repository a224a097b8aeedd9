//! Smallest rate of a peer before another source replaces it.
//!
//! Only the time that a reader waits for bytes counts: what it does with them, and its own limit, do not. The waiting is measured in spans; in each
//! of them the bytes that came are compared with the slowest rate, so that a fast beginning does not pay for a slow end.

use std::time::Duration;

/// Slowest rates that are accepted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floors {
    /// Bytes per second of an object that a host of the site holds.
    pub site: f64,
    /// Bytes per second over the WAN, and of an object that is still arriving at the host that sends it.
    pub wan: f64,
    /// How long the waiting may last until the rate is compared.
    pub span: Duration,
}

impl Default for Floors {
    fn default() -> Floors {
        Floors {
            site: 16384.0,
            wan: 1024.0,
            span: Duration::from_secs(10),
        }
    }
}

/// A peer sends more slowly than the floor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TooSlow {
    /// Bytes that came.
    pub bytes: u64,
    /// While this time was waited.
    pub waited: Duration,
    /// Bytes per second that are expected.
    pub floor: f64,
}

/// Spans over the WAN, and behind an arriving object, are longer by this factor: they may stand still for a while.
const SLOW_SPANS: u32 = 3;

/// Measures one transfer.
#[derive(Clone, Debug)]
pub struct MinimumRate {
    floors: Floors,
    over_wan: bool,
    arriving: bool,
    waited: Duration,
    bytes: u64,
}

impl MinimumRate {
    /// Measures a transfer over the WAN, or within the site.
    pub fn new(floors: Floors, over_wan: bool) -> MinimumRate {
        MinimumRate {
            floors,
            over_wan,
            arriving: false,
            waited: Duration::ZERO,
            bytes: 0,
        }
    }

    /// Says whether the object is still arriving at the peer.
    pub fn set_arriving(&mut self, arriving: bool) {
        if self.arriving != arriving {
            self.arriving = arriving;
            (self.bytes, self.waited) = (0, Duration::ZERO);
        }
    }

    fn floor(&self) -> f64 {
        match self.over_wan || self.arriving {
            true => self.floors.wan,
            false => self.floors.site,
        }
    }

    fn span(&self) -> Duration {
        match self.over_wan || self.arriving {
            true => self.floors.span * SLOW_SPANS,
            false => self.floors.span,
        }
    }

    /// Bytes came after a wait; fails if those of a whole span were too few.
    pub fn note(&mut self, bytes: usize, waited: Duration) -> Result<(), TooSlow> {
        self.bytes += bytes as u64;
        self.waited += waited;
        if self.waited < self.span() {
            return Ok(());
        }
        let judged = self.judge(Duration::ZERO);
        (self.bytes, self.waited) = (0, Duration::ZERO);
        judged
    }

    /// Fails if the present wait, which has lasted this long, makes the span's rate too slow.
    pub fn judge_wait(&self, waiting: Duration) -> Result<(), TooSlow> {
        if self.waited + waiting < self.span() {
            return Ok(());
        }
        self.judge(waiting)
    }

    fn judge(&self, waiting: Duration) -> Result<(), TooSlow> {
        let waited = self.waited + waiting;
        if self.bytes as f64 >= self.floor() * waited.as_secs_f64() {
            return Ok(());
        }
        Err(TooSlow {
            bytes: self.bytes,
            waited,
            floor: self.floor(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(over_wan: bool) -> MinimumRate {
        let floors = Floors {
            site: 1000.0,
            wan: 100.0,
            span: 10 * SECOND,
        };
        MinimumRate::new(floors, over_wan)
    }

    #[test]
    fn a_drip_is_too_slow_and_a_thin_link_is_not() {
        let mut drip = pace(false);
        for _ in 0..4 {
            drip.note(1, 2 * SECOND).unwrap();
        }
        let error = drip.note(1, 2 * SECOND).unwrap_err();
        assert_eq!((error.bytes, error.waited), (5, 10 * SECOND));
        let mut thin = pace(false);
        for _ in 0..1000 {
            thin.note(1000, SECOND).unwrap();
        }
    }

    #[test]
    fn a_fast_beginning_does_not_pay_for_a_slow_end() {
        let mut pace = pace(false);
        pace.note(1_000_000_000, 10 * SECOND).unwrap();
        pace.note(1, 9 * SECOND).unwrap();
        pace.judge_wait(SECOND / 2).unwrap();
        assert!(pace.judge_wait(SECOND).is_err());
        assert!(pace.note(1, SECOND).is_err());
    }

    #[test]
    fn time_in_which_the_reader_did_not_wait_does_not_count() {
        let mut pace = pace(false);
        for _ in 0..100_000 {
            pace.note(1, Duration::ZERO).unwrap();
        }
    }

    #[test]
    fn the_wan_and_what_arrives_elsewhere_may_be_slower() {
        let mut behind = pace(false);
        behind.set_arriving(true);
        for mut slow in [pace(true), behind] {
            slow.note(200, 2 * SECOND).unwrap();
            slow.judge_wait(27 * SECOND).unwrap();
            assert!(slow.judge_wait(28 * SECOND).is_err());
            slow.set_arriving(false);
        }
        let mut held = pace(false);
        assert!(held.note(200, 10 * SECOND).is_err());
    }
}
