//! How long requests take: counts by duration, four steps for each doubling.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const STEPS: u32 = 4;
const BUCKETS: usize = 40 * STEPS as usize;

/// Durations of requests.
#[derive(Debug)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum_ns: AtomicU64,
}

/// How many requests there were, and their time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Total {
    /// Requests.
    pub count: u64,
    /// Nanoseconds of all of them.
    pub ns: u64,
}

impl Total {
    /// What came after an earlier total.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.saturating_sub(earlier.count),
            ns: self.ns.saturating_sub(earlier.ns),
        }
    }

    /// The mean in microseconds; 0 without requests.
    #[must_use]
    pub fn mean_us(self) -> f64 {
        let ns = self.ns as f64 / self.count.max(1) as f64;
        (ns / 10.0).round() / 100.0
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
        }
    }
}

impl Latency {
    /// Notes a duration.
    pub fn note(&self, duration: Duration) {
        let ns = duration.as_nanos().max(1) as f64;
        let bucket = (ns.log2() * f64::from(STEPS)) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// All requests so far.
    #[must_use]
    pub fn total(&self) -> Total {
        let counts = self.buckets.iter().map(|n| n.load(Ordering::Relaxed));
        Total {
            count: counts.sum(),
            ns: self.sum_ns.load(Ordering::Relaxed),
        }
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

    #[test]
    fn means_are_of_what_came_since() {
        let latency = Latency::default();
        assert_eq!(0.0, latency.total().mean_us());
        latency.note(Duration::from_micros(1000));
        let before = latency.total();
        latency.note(Duration::from_micros(10));
        latency.note(Duration::from_micros(25));
        let since = latency.total().since(before);
        assert_eq!((2, 17.5), (since.count, since.mean_us()));
        assert_eq!(345.0, latency.total().mean_us());
    }
}
