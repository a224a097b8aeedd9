//! How long the last requests took that may wait for a disk, and whether bytes are in memory.

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

/// Whether it is worth to look in the memory of the system for bytes, by what was found before.
pub struct Tries {
    /// An exponentially weighted mean of those found: [`ALL`](Self::ALL) is all.
    found: u32,
    /// Reads until one is looked for in any case.
    left: u32,
}

impl Default for Tries {
    fn default() -> Self {
        Self {
            found: Self::ALL,
            left: Self::FEW,
        }
    }
}

impl Tries {
    const ALL: u32 = 1 << 16;
    /// The weight of the last one is one to this.
    const WEIGHT: u32 = 16;
    /// If fewer are found, few are looked for.
    const LEAST: u32 = Self::ALL / 8;
    /// One of as many is looked for in any case: so memory has what is read often.
    const FEW: u32 = 16;

    /// Whether the next one is to be looked for, and read through memory if it is not there.
    pub fn is_due(&mut self) -> bool {
        self.left = self.left.checked_sub(1).unwrap_or(Self::FEW - 1);
        self.left == 0 || self.found >= Self::LEAST
    }

    /// Counts one that was looked for.
    pub fn count(&mut self, is_found: bool) {
        let one = if is_found { Self::ALL } else { 0 };
        self.found = self.found - self.found / Self::WEIGHT + one / Self::WEIGHT;
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

    /// How many of 160 reads are looked for in memory, after many of which this part was there.
    fn looked_for(percent: u32) -> usize {
        let mut tries = Tries::default();
        let next = |number: u32| {
            let is_due = tries.is_due();
            if is_due {
                tries.count(number * 37 % 100 < percent);
            }
            is_due
        };
        let due = (0..10_160).map(next);
        due.skip(10_000).filter(|is_due| *is_due).count()
    }

    #[test]
    fn bytes_are_looked_for_in_memory_where_they_were() {
        assert_eq!([160, 160, 10], [100, 50, 0].map(looked_for));
    }

    #[test]
    fn bytes_that_come_to_memory_are_soon_found_there() {
        let mut tries = Tries::default();
        (0..1000).for_each(|_| tries.count(false));
        assert_eq!(1, (0..16).filter(|_| tries.is_due()).count());
        (0..3).for_each(|_| tries.count(true));
        assert!((0..100).all(|_| tries.is_due()));
    }
}
