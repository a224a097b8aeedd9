//! When the rest of an image is fetched, and whether a deadline can be kept.
//!
//! Pure: times are seconds since the daemon started, and come from the caller.

use serde_json::{json, Value};

use crate::config::{Config, Hydrate};

/// Part of the time until a deadline that hydration plans with: reads go first, and sources fail at times.
const PLANNED_SHARE: f64 = 0.9;

/// What one hydration may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    mode: Hydrate,
    rate: Option<f64>,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Seconds since the daemon started.
    pub elapsed: f64,
    /// Bytes of the chunks that are absent.
    pub absent: u64,
    /// Bytes per second that hydration's requests brought, if there were any.
    pub measured: Option<f64>,
    /// Seconds until all was there, if it is.
    pub completed: Option<f64>,
}

impl Plan {
    /// Take the plan of a configuration.
    pub fn new(config: &Config) -> Plan {
        Plan {
            mode: config.hydrate,
            rate: config.rate.map(|rate| rate as f64),
        }
    }

    /// Return the seconds after which another request may follow by the rate alone.
    pub fn rest(&self, len: u64) -> f64 {
        self.rate.map_or(0.0, |rate| len as f64 / rate)
    }

    /// Return the seconds between the beginnings of this request and the next, so that all is there at the deadline and the rate is kept.
    pub fn interval(&self, len: u64, absent: u64, elapsed: f64) -> f64 {
        let Hydrate::Seconds(deadline) = self.mode else {
            return self.rest(len);
        };
        let left = (deadline * PLANNED_SHARE - elapsed).max(0.0);
        let share = len as f64 / absent.max(len).max(1) as f64;
        self.rest(len).max(left * share)
    }

    /// Return when all can be there at the earliest; none if nothing is known of the source's rate, or all is not to be fetched.
    pub fn earliest(&self, progress: &Progress) -> Option<f64> {
        if progress.completed.is_some() {
            return progress.completed;
        }
        if matches!(self.mode, Hydrate::None | Hydrate::Profile) {
            return None;
        }
        let rates = [self.rate, progress.measured];
        let rate = rates.into_iter().flatten().reduce(f64::min)?;
        Some(progress.elapsed + progress.absent as f64 / rate.max(f64::MIN_POSITIVE))
    }

    /// Return whether the deadline can be kept, as far as is known; none without one.
    pub fn is_kept(&self, progress: &Progress) -> Option<bool> {
        let Hydrate::Seconds(deadline) = self.mode else {
            return None;
        };
        let unfinished = progress.completed.is_none() && progress.elapsed > deadline;
        let earliest = self.earliest(progress);
        Some(!unfinished && earliest.is_none_or(|earliest| earliest <= deadline))
    }

    /// Return plan and progress as JSON.
    pub fn describe(&self, progress: &Progress) -> Value {
        let (mode, deadline) = match self.mode {
            Hydrate::None => ("none", None),
            Hydrate::Profile => ("profile", None),
            Hydrate::Idle => ("idle", None),
            Hydrate::Seconds(seconds) => ("deadline", Some(seconds)),
        };
        json!({
            "mode": mode,
            "rate": self.rate,
            "measured_rate": progress.measured,
            "remaining_bytes": progress.absent,
            "elapsed_s": progress.elapsed,
            "deadline_s": deadline,
            "earliest_s": self.earliest(progress),
            "kept": self.is_kept(progress),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Hydrate = Hydrate::Seconds(100.0);

    fn plan(mode: Hydrate, rate: Option<f64>) -> Plan {
        Plan { mode, rate }
    }

    fn progress(elapsed: f64, absent: u64) -> Progress {
        Progress {
            elapsed,
            absent,
            ..Progress::default()
        }
    }

    #[test]
    fn a_deadline_spreads_the_requests_and_catches_up() {
        let plan = plan(DEADLINE, None);
        assert!((plan.interval(10, 100, 0.0) - 9.0).abs() < 1e-9);
        assert!((plan.interval(10, 100, 45.0) - 4.5).abs() < 1e-9);
        assert_eq!(0.0, plan.interval(10, 100, 95.0));
        assert_eq!(0.0, plan.interval(0, 0, 95.0));
    }

    #[test]
    fn all_is_there_before_the_deadline() {
        let plan = plan(DEADLINE, None);
        let (mut now, mut absent) = (0.0, 1000);
        while absent > 0 {
            now += plan.interval(10, absent, now);
            absent -= 10;
        }
        assert!((89.0..=90.1).contains(&now), "{now}");
    }

    #[test]
    fn the_rate_is_an_upper_bound() {
        assert_eq!(5.0, plan(Hydrate::Idle, Some(2.0)).interval(10, 100, 0.0));
        assert_eq!(0.0, plan(Hydrate::Idle, None).interval(10, 100, 0.0));
        assert_eq!(20.0, plan(DEADLINE, Some(0.5)).interval(10, 100, 0.0));
        assert!((plan(DEADLINE, Some(5.0)).interval(10, 100, 0.0) - 9.0).abs() < 1e-9);
    }

    #[test]
    fn a_rate_or_a_measurement_tells_the_earliest_time() {
        let known = |rate, measured| {
            let progress = Progress {
                measured,
                ..progress(10.0, 1000)
            };
            let plan = plan(DEADLINE, rate);
            (plan.earliest(&progress), plan.is_kept(&progress))
        };
        assert_eq!((None, Some(true)), known(None, None));
        assert_eq!((Some(110.0), Some(false)), known(Some(10.0), None));
        assert_eq!((Some(60.0), Some(true)), known(Some(20.0), None));
        assert_eq!((Some(110.0), Some(false)), known(Some(20.0), Some(10.0)));
        assert_eq!((Some(60.0), Some(true)), known(None, Some(20.0)));
    }

    #[test]
    fn what_is_over_is_not_kept_and_what_is_complete_stays_so() {
        let plan_ = plan(DEADLINE, None);
        assert_eq!(Some(false), plan_.is_kept(&progress(101.0, 1)));
        let done = |completed| Progress {
            completed: Some(completed),
            ..progress(200.0, 0)
        };
        assert_eq!(Some(true), plan_.is_kept(&done(90.0)));
        assert_eq!(Some(false), plan_.is_kept(&done(101.0)));
        assert_eq!(Some(101.0), plan_.earliest(&done(101.0)));
    }

    #[test]
    fn times_are_told_with_the_one_that_they_are_compared_with() {
        let described = plan(DEADLINE, Some(10.0)).describe(&progress(10.0, 1000));
        assert_eq!(json!(10.0), described["elapsed_s"]);
        assert_eq!(json!(100.0), described["deadline_s"]);
        assert_eq!(json!(110.0), described["earliest_s"]);
    }

    #[test]
    fn without_a_deadline_none_is_kept() {
        let slow = progress(0.0, 1000);
        assert_eq!(None, plan(Hydrate::None, Some(1.0)).earliest(&slow));
        assert_eq!(None, plan(Hydrate::Profile, Some(1.0)).earliest(&slow));
        assert_eq!(Some(1000.0), plan(Hydrate::Idle, Some(1.0)).earliest(&slow));
        assert_eq!(None, plan(Hydrate::Idle, Some(1.0)).is_kept(&slow));
    }
}
