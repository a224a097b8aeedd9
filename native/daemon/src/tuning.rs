//! Numbers that operators set for the images of a host, as JSON.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use diffcache_prefetch::Policy;
use diffcache_prefetch::Threshold;
use serde::{Deserialize, Serialize};

use crate::error::DaemonError;
use crate::sizes::SLOTS;

/// Chunks that are prefetched at the same time at most: each has a thread.
const MAX_IN_FLIGHT: usize = 64;
/// Requests that may be answered at the same time before others are referred at most, and by default.
const MAX_FAN_OUT: usize = 64;
const USUAL_FAN_OUT: usize = 2;
/// Longest pauses that can be configured, in seconds: from the first pause of a worker on.
const RESTART_BACKOFF: RangeInclusive<f64> = 0.01..=300.0;

/// How an image is served. What is absent is as by default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tuning {
    /// Chunks that are prefetched at the same time.
    pub in_flight: usize,
    /// From how many readers on a chunk is a hint.
    #[serde(with = "threshold")]
    pub threshold: Threshold,
    /// Threads of a worker that answer requests. They are the same for all workers of a keeper: each answers what the last one left in its slot.
    pub workers: usize,
    /// Longest pause in seconds before a process that ends again and again is started once more.
    pub restart_backoff: f64,
    /// Answers to peers that are being sent, from which on further requests are referred to other hosts; 0: none is.
    pub fan_out: usize,
}

impl Default for Tuning {
    fn default() -> Tuning {
        let policy = Policy::default();
        Tuning {
            in_flight: policy.in_flight,
            threshold: policy.threshold,
            workers: SLOTS,
            restart_backoff: 5.0,
            fan_out: USUAL_FAN_OUT,
        }
    }
}

/// Thresholds in JSON.
mod threshold {
    use diffcache_prefetch::Threshold;
    use serde::{de::Error, Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(value: &Threshold, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(value.value())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Threshold, D::Error> {
        Threshold::new(f64::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

fn check_range<T: Display + PartialOrd>(
    name: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), DaemonError> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(DaemonError::Config(format!(
            "{name} {value} is out of range ({} to {})",
            range.start(),
            range.end()
        ))),
    }
}

impl Tuning {
    /// Check what its type does not.
    ///
    /// # Errors
    /// `Config`.
    pub fn check(&self) -> Result<(), DaemonError> {
        check_range("in_flight", self.in_flight, 1..=MAX_IN_FLIGHT)?;
        check_range("workers", self.workers, 1..=SLOTS)?;
        check_range("fan_out", self.fan_out, 0..=MAX_FAN_OUT)?;
        check_range("restart_backoff", self.restart_backoff, RESTART_BACKOFF)
    }

    /// Return how chunks are prefetched.
    pub fn policy(&self) -> Policy {
        Policy {
            in_flight: self.in_flight,
            threshold: self.threshold,
            ..Policy::default()
        }
    }

    /// Return the longest pause before a process is started once more.
    pub fn longest_pause(&self) -> Duration {
        Duration::from_secs_f64(self.restart_backoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Tuning, String> {
        let tuning: Tuning = serde_json::from_str(text).map_err(|error| error.to_string())?;
        tuning.check().map_err(|error| error.to_string())?;
        Ok(tuning)
    }

    #[test]
    fn what_is_absent_is_as_by_default() {
        let found = parse("{}").unwrap();
        assert_eq!(found, Tuning::default());
        assert_eq!(
            (3, 64, 5.0),
            (found.in_flight, found.workers, found.restart_backoff)
        );
        assert_eq!(2, found.fan_out);
        assert_eq!(0.1, found.threshold.value());
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text =
            r#"{"in_flight":9,"threshold":2.5,"workers":1,"restart_backoff":0.25,"fan_out":7}"#;
        let found = parse(text).unwrap();
        assert_eq!(text, serde_json::to_string(&found).unwrap());
        assert_eq!(Threshold::new(2.5).unwrap(), found.policy().threshold);
        assert_eq!(9, found.policy().in_flight);
        assert_eq!(Duration::from_millis(250), found.longest_pause());
    }

    #[test]
    fn values_out_of_range_are_refused_by_name() {
        for (name, values) in [
            ("in_flight", ["0", "65"]),
            ("threshold", ["0", "-0.1"]),
            ("workers", ["0", "65"]),
            ("restart_backoff", ["0", "301"]),
            ("fan_out", ["65", "100"]),
        ] {
            for value in values {
                let refused = parse(&format!("{{\"{name}\": {value}}}")).unwrap_err();
                assert!(refused.contains(name), "{refused}");
            }
        }
        let endless = Tuning {
            restart_backoff: f64::NAN,
            ..Tuning::default()
        };
        assert!(endless.check().is_err());
        assert!(parse(r#"{"threads": 4}"#).is_err());
    }
}
