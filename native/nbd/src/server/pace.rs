//! How long the last requests took that may wait for a disk.

use std::time::Duration;

use diffcache_base::sync::measured;

/// Requests that take less than this in the mean are not worth another thread. An origin in the
/// page cache takes about 10 microseconds, an SSD at least 50.
const QUICK: Duration = Duration::from_micros(20);
/// The weight of the last request is one to this. A disk that takes a millisecond is noticed at its
/// first request, and a quick origin within some hundred.
const WEIGHT: u64 = 64;
/// What a request counts at most: a thread that had to wait for a processor is soon forgotten.
const LONG: Duration = Duration::from_millis(1);

/// An exponentially weighted mean.
pub struct Pace {
    /// Nanoseconds, times [`WEIGHT`].
    sum: u64,
}

impl Default for Pace {
    /// Not quick, until requests show that they are.
    fn default() -> Self {
        Self {
            sum: 2 * QUICK.as_nanos() as u64 * WEIGHT,
        }
    }
}

impl Pace {
    /// Counts a request that took a time.
    pub fn count(&mut self, spent: Duration) {
        self.sum = self.sum - self.sum / WEIGHT + spent.min(LONG).as_nanos() as u64;
    }

    /// Whether the next request will probably be quick.
    #[must_use]
    pub fn is_quick(&self) -> bool {
        measured(self.sum / WEIGHT < QUICK.as_nanos() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// How many requests of a time it takes until a pace is quick; none: it never is.
    fn requests_until_quick(pace: &mut Pace, spent: Duration) -> Option<usize> {
        (0..10_000).find(|_| {
            let is_quick = pace.is_quick();
            pace.count(spent);
            is_quick
        })
    }

    #[test]
    fn a_pace_is_that_of_the_last_requests() {
        let mut pace = Pace::default();
        assert!(!pace.is_quick());
        let quick = requests_until_quick(&mut pace, 8 * US);
        assert!(
            quick.is_some_and(|count| (30..100).contains(&count)),
            "{quick:?}"
        );
        assert!(requests_until_quick(&mut Pace::default(), 25 * US).is_none());
    }

    #[test]
    fn one_request_of_a_disk_ends_a_quick_pace() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|_| pace.count(8 * US));
        pace.count(1000 * US);
        assert!(!pace.is_quick());
    }

    #[test]
    fn few_quick_requests_after_slow_ones_are_no_quick_pace() {
        let mut pace = Pace::default();
        (0..1000).for_each(|_| pace.count(1000 * US));
        let quick = requests_until_quick(&mut pace, 8 * US);
        assert!(
            quick.is_some_and(|count| (200..400).contains(&count)),
            "{quick:?}"
        );
    }

    #[test]
    fn slow_requests_among_quick_ones_are_no_quick_pace() {
        let mut pace = Pace::default();
        for number in 0..100_000 {
            // One in 40 waits for a disk.
            pace.count(if number % 40 == 0 { 1000 * US } else { 8 * US });
            assert!(number % 40 > 0 || !pace.is_quick(), "{number}");
        }
    }

    #[test]
    fn a_pause_without_end_is_forgotten_as_a_request_of_a_disk_is() {
        let mut pace = Pace::default();
        (0..10_000).for_each(|_| pace.count(8 * US));
        pace.count(Duration::MAX);
        assert!(!pace.is_quick());
        let quick = requests_until_quick(&mut pace, 8 * US);
        assert!(quick.is_some_and(|count| count < 30), "{quick:?}");
    }
}
