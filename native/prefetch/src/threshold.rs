//! From how many readers on a chunk is a hint.

use thiserror::Error;

/// A number that is no threshold.
#[derive(Debug, Error, PartialEq)]
pub enum ThresholdError {
    /// threshold: {0} is not a finite number above 0
    #[error("threshold: {0} is not a finite number above 0")]
    Range(f64),
}

/// A number of instances (1 and above), or a share of a deployment's instances (below 1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Threshold(f64);

impl Default for Threshold {
    /// A tenth of the instances, as in section 3.2 of the paper.
    fn default() -> Self {
        Self(0.1)
    }
}

/// A share of a whole number may miss it by rounding: 0.07 of 100 is 7.000000000000001.
const ROUNDING: f64 = 1e-9;

impl Threshold {
    /// Checks the number.
    pub fn new(value: f64) -> Result<Self, ThresholdError> {
        if value.is_finite() && value > 0.0 {
            Ok(Self(value))
        } else {
            Err(ThresholdError::Range(value))
        }
    }

    /// Returns the number.
    #[must_use]
    pub fn value(self) -> f64 {
        self.0
    }

    /// The least number of readers of a hint in a deployment of this many instances; at least 1.
    #[must_use]
    pub fn readers(self, instances: usize) -> u64 {
        let least = if self.0 < 1.0 {
            self.0 * instances as f64 * (1.0 - ROUNDING)
        } else {
            self.0
        };
        (least.ceil() as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readers(value: f64, instances: usize) -> u64 {
        Threshold::new(value).unwrap().readers(instances)
    }

    #[test]
    fn from_one_on_it_counts_instances() {
        assert_eq!(1, readers(1.0, 120));
        assert_eq!(2, readers(2.0, 4));
        assert_eq!(3, readers(2.5, 4));
    }

    #[test]
    fn below_one_it_is_a_share() {
        assert_eq!(12, readers(0.1, 120));
        assert_eq!(2, readers(0.1, 11));
        assert_eq!(1, readers(0.1, 3));
        assert_eq!(7, readers(0.07, 100));
    }

    #[test]
    fn others_are_refused() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Threshold::new(value).is_err());
        }
    }
}
