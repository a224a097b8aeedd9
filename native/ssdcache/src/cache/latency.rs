//! How long requests take: counts by duration, four steps for each doubling.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const STEPS: u32 = 4;
const BUCKETS: usize = 40 * STEPS as usize;

/// Durations of requests.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Latency {
    /// Notes a duration.
    pub fn note(&self, duration: Duration) {
        let ns = duration.as_nanos().max(1) as f64;
        let bucket = (ns.log2() * f64::from(STEPS)) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
    }

    /// The microseconds that a share of the requests took at most; 0 without requests.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let counts = self.buckets.each_ref().map(|n| n.load(Ordering::Relaxed));
        let wanted = counts.iter().sum::<u64>() as f64 * share;
        let mut sum = 0;
        for (bucket, count) in counts.iter().enumerate() {
            sum += count;
            if *count > 0 && sum as f64 >= wanted {
                let ns = ((bucket + 1) as f64 / f64::from(STEPS)).exp2();
                return (ns / 10.0).round() / 100.0;
            }
        }
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_fifth() {
        let latency = Latency::default();
        assert_eq!(0.0, latency.quantile_us(0.5));
        for us in 1..=1000 {
            latency.note(Duration::from_micros(us));
        }
        for (share, exact) in [(0.5, 500.0), (0.99, 990.0)] {
            let found = latency.quantile_us(share);
            assert!((exact..exact * 1.2).contains(&found), "{found}");
        }
    }
}
