//! Requests that begin as the rates of a volume allow, in turns.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Rates, BUCKETS};

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It reads.
    Read,
    /// It writes, zeroes too. Flushes and discards are not limited, as by QEMU.
    Write,
}

/// What a request fills buckets with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// What it does.
    pub direction: Direction,
    /// Bytes that it reads or writes.
    pub bytes: u64,
}

impl Cost {
    /// The buckets that it fills.
    fn buckets(self) -> impl Iterator<Item = usize> {
        let own = 1 + self.direction as usize;
        let of_all = (0..BUCKETS).step_by(BUCKETS / 2);
        of_all.flat_map(move |first| [first, first + own])
    }
}

/// What is in a bucket.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    /// What leaks in a second; 0: it is never full.
    rate: f64,
    /// What it holds.
    size: f64,
    level: f64,
}

impl Bucket {
    /// The time until it has no more than it holds.
    fn wait(&self) -> Duration {
        let excess = self.level - self.size;
        if self.rate <= 0.0 || excess <= 0.0 {
            return Duration::ZERO;
        }
        // What is rounded down would still be too early.
        Duration::from_secs_f64(excess / self.rate) + Duration::from_nanos(1)
    }
}

/// A request that waits, in the order of all.
#[derive(Debug)]
struct Waiting<T> {
    number: u64,
    cost: Cost,
    item: T,
}

/// The buckets of a volume, and requests that wait for them: reads and writes in a queue each, so that
/// those which are not limited pass the others.
#[derive(Debug)]
pub struct Limiter<T> {
    rates: Rates,
    buckets: [Bucket; BUCKETS],
    leaked: Instant,
    queues: [VecDeque<Waiting<T>>; 2],
    last: u64,
}

impl<T> Limiter<T> {
    /// Empty buckets.
    #[must_use]
    pub fn new(rates: Rates, now: Instant) -> Self {
        let mut limiter = Self {
            rates,
            buckets: [Bucket::default(); BUCKETS],
            leaked: now,
            queues: [VecDeque::new(), VecDeque::new()],
            last: 0,
        };
        limiter.set_rates(rates, now);
        limiter
    }

    /// The rates.
    #[must_use]
    pub fn rates(&self) -> Rates {
        self.rates
    }

    /// Changes the rates. The buckets are empty then, as QEMU's.
    pub fn set_rates(&mut self, rates: Rates, now: Instant) {
        (self.rates, self.leaked) = (rates, now);
        for (number, bucket) in self.buckets.iter_mut().enumerate() {
            let (rate, size) = rates.bucket(number);
            *bucket = Bucket {
                rate,
                size,
                level: 0.0,
            };
        }
    }

    /// Begins a request, if none is to begin before it and it need not wait. Otherwise it is to be
    /// [queued](Self::queue).
    pub fn begin(&mut self, cost: Cost, now: Instant) -> bool {
        let is_first = self.queues[cost.direction as usize].is_empty();
        let begins = is_first && self.wait(cost, now).is_zero() && !self.is_due(now);
        if begins {
            self.fill(cost);
        }
        begins
    }

    /// Whether one that waits may begin.
    fn is_due(&mut self, now: Instant) -> bool {
        let firsts = self
            .queues
            .each_ref()
            .map(|queue| queue.front().map(|one| one.cost));
        let mut costs = firsts.into_iter().flatten();
        costs.any(|cost| self.wait(cost, now).is_zero())
    }

    /// Has a request wait.
    pub fn queue(&mut self, cost: Cost, item: T) {
        self.last += 1;
        self.queues[cost.direction as usize].push_back(Waiting {
            number: self.last,
            cost,
            item,
        });
    }

    /// Begins the next request that waits. If none may begin yet, the error is the time until one may;
    /// none: none waits.
    ///
    /// # Errors
    /// As above.
    pub fn next(&mut self, now: Instant) -> Result<T, Option<Duration>> {
        let first = |queue: &VecDeque<Waiting<T>>| queue.front().map(|one| (one.number, one.cost));
        let firsts = self.queues.each_ref().map(first);
        let waits = firsts.into_iter().flatten();
        let waits = waits.map(|(number, cost)| (self.wait(cost, now), number, cost));
        let Some((wait, _, cost)) = waits.min_by_key(|(wait, number, _)| (*wait, *number)) else {
            return Err(None);
        };
        if !wait.is_zero() {
            return Err(Some(wait));
        }
        self.fill(cost);
        let next = self.queues[cost.direction as usize].pop_front();
        next.map(|one| one.item).ok_or(None)
    }

    /// Begins requests that wait, in spite of the buckets, which they fill.
    pub fn release(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut released = Vec::new();
        for queue in &mut self.queues {
            let all = std::mem::take(queue);
            let (wanted, others) = all.into_iter().partition(|one| is_wanted(&one.item));
            *queue = others;
            released.extend::<VecDeque<_>>(wanted);
        }
        released.sort_by_key(|one| one.number);
        released.iter().for_each(|one| self.fill(one.cost));
        released.into_iter().map(|one| one.item).collect()
    }

    /// The request that waits for the longest time.
    #[must_use]
    pub fn first(&self) -> Option<&T> {
        let firsts = self.queues.iter().filter_map(VecDeque::front);
        firsts.min_by_key(|one| one.number).map(|one| &one.item)
    }

    /// The time until a request may begin.
    fn wait(&mut self, cost: Cost, now: Instant) -> Duration {
        let passed = now.saturating_duration_since(self.leaked);
        self.leaked = self.leaked.max(now);
        for bucket in &mut self.buckets {
            bucket.level = (bucket.level - bucket.rate * passed.as_secs_f64()).max(0.0);
        }
        let waits = cost.buckets().map(|number| self.buckets[number].wait());
        waits.max().unwrap_or_default()
    }

    fn fill(&mut self, cost: Cost) {
        let (bytes, size) = (cost.bytes as f64, self.rates.size() as f64);
        let requests = if size > 0.0 {
            (bytes / size).max(1.0)
        } else {
            1.0
        };
        for number in cost.buckets() {
            let is_of_bytes = number < BUCKETS / 2;
            self.buckets[number].level += if is_of_bytes { bytes } else { requests };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::COUNT;
    use proptest::prelude::*;

    const TOTAL_BYTES: usize = 0;
    const READ_IOPS: usize = 4;
    const BURST: usize = BUCKETS;
    const SIZE: usize = 2 * BUCKETS;

    fn rates(named: &[(usize, u64)]) -> Rates {
        let mut values = [0; COUNT];
        named
            .iter()
            .for_each(|(place, value)| values[*place] = *value);
        Rates::new(values)
    }

    fn read(bytes: u64) -> Cost {
        let direction = Direction::Read;
        Cost { direction, bytes }
    }

    fn write(bytes: u64) -> Cost {
        let direction = Direction::Write;
        Cost { direction, bytes }
    }

    /// Has requests come, each some microseconds after the one before, and returns when they begin. Those
    /// that wait are looked at as late as the limiter says.
    fn play(rates: Rates, requests: &[(u64, Cost)]) -> Vec<(Instant, Cost)> {
        let begin = Instant::now();
        let mut limiter = Limiter::new(rates, begin);
        let mut begun = Vec::new();
        let (mut now, mut comes) = (begin, begin);
        for (after, cost) in requests {
            comes += Duration::from_micros(*after);
            while let Some(due) = begin_due(&mut limiter, now, &mut begun) {
                if due > comes {
                    break;
                }
                now = due;
            }
            now = comes;
            match limiter.begin(*cost, now) {
                true => begun.push((now, *cost)),
                false => limiter.queue(*cost, *cost),
            }
        }
        while let Some(due) = begin_due(&mut limiter, now, &mut begun) {
            now = due;
        }
        begun
    }

    /// Begins what may begin, and returns when more may; none: none waits.
    fn begin_due(
        limiter: &mut Limiter<Cost>,
        now: Instant,
        begun: &mut Vec<(Instant, Cost)>,
    ) -> Option<Instant> {
        loop {
            match limiter.next(now) {
                Ok(cost) => begun.push((now, cost)),
                Err(wait) => return wait.map(|wait| now + wait),
            }
        }
    }

    /// What a request fills a bucket with.
    fn units(rates: Rates, bucket: usize, cost: Cost) -> f64 {
        let size = rates.values()[SIZE] as f64;
        match (cost.buckets().any(|number| number == bucket), bucket < 3) {
            (false, _) => 0.0,
            (true, true) => cost.bytes as f64,
            (true, false) if size > 0.0 => (cost.bytes as f64 / size).max(1.0),
            (true, false) => 1.0,
        }
    }

    fn costs() -> impl Strategy<Value = Cost> {
        let bytes = prop_oneof![Just(512), Just(4096), 512..2_000_000_u64];
        let both = (any::<bool>(), bytes);
        both.prop_map(|(is_read, bytes)| if is_read { read(bytes) } else { write(bytes) })
    }

    fn some_rates() -> impl Strategy<Value = Rates> {
        let bytes = prop_oneof![Just(0), 1_000..50_000_000_u64];
        let iops = prop_oneof![Just(0), 1..5_000_u64];
        let burst = prop_oneof![Just(0), 1..20_u64];
        let size = prop_oneof![Just(0), 512..100_000_u64];
        (
            proptest::array::uniform3((bytes, burst.clone())),
            proptest::array::uniform3((iops, burst)),
            size,
        )
            .prop_map(|(bytes, iops, size)| {
                let mut values = [0; COUNT];
                for (place, (rate, burst)) in bytes.into_iter().chain(iops).enumerate() {
                    (values[place], values[BURST + place]) = (rate, rate * burst);
                }
                values[SIZE] = size;
                Rates::new(values)
            })
    }

    proptest! {
        #[test]
        fn in_no_time_more_begins_than_rates_and_bursts_allow(
            rates in some_rates(),
            requests in proptest::collection::vec((0..20_000_u64, costs()), 1..200),
        ) {
            let begun = play(rates, &requests);
            prop_assert_eq!(requests.len(), begun.len());
            for bucket in (0..BUCKETS).filter(|bucket| rates.values()[*bucket] > 0) {
                let (rate, size) = rates.bucket(bucket);
                for (first, (from, _)) in begun.iter().enumerate() {
                    let mut before = 0.0;
                    for (until, cost) in &begun[first..] {
                        let own = units(rates, bucket, *cost);
                        let allowed = size + rate * (*until - *from).as_secs_f64();
                        prop_assert!(own == 0.0 || before <= allowed + 1e-3);
                        before += own;
                    }
                }
            }
        }

        #[test]
        fn while_there_is_demand_no_less_begins_than_the_rate(
            place in 0..BUCKETS,
            rate in 1..1_000_000_u64,
            burst in 0..3_u64,
            requests in proptest::collection::vec(costs(), 1..200),
        ) {
            let rates = rates(&[(place, rate), (BURST + place, rate * burst)]);
            let requests: Vec<_> = requests.into_iter().map(|cost| (0, cost)).collect();
            let begun = play(rates, &requests);
            let (rate, size) = rates.bucket(place);
            let mut before = 0.0;
            let concerned = begun.iter().filter(|(_, cost)| units(rates, place, *cost) > 0.0);
            for (at, cost) in concerned {
                let passed = (*at - begun[0].0).as_secs_f64();
                // Two nanoseconds later at most than the bucket allows, for each request.
                let late = rate * 2e-9 * begun.len() as f64 + 1e-3;
                prop_assert!(passed == 0.0 || before + late >= size + rate * passed);
                before += units(rates, place, *cost);
            }
        }
    }

    #[test]
    fn a_burst_lasts_until_its_bucket_is_full() {
        let limits = rates(&[(READ_IOPS, 100), (BURST + READ_IOPS, 1000)]);
        let begun = play(limits, &[(0, read(4096)); 1211]);
        let at_once = begun.iter().filter(|(at, _)| *at == begun[0].0);
        assert_eq!(1001, at_once.count());
        let passed = begun[1210].0 - begun[0].0;
        let expected = Duration::from_millis(2100);
        assert!(
            passed.abs_diff(expected) < Duration::from_millis(1),
            "{passed:?}"
        );
    }

    #[test]
    fn what_is_not_limited_passes_what_waits() {
        let now = Instant::now();
        let mut limiter = Limiter::new(rates(&[(READ_IOPS, 10)]), now);
        assert!(limiter.begin(read(512), now));
        assert!(limiter.begin(read(512), now));
        assert!(!limiter.begin(read(512), now));
        limiter.queue(read(512), 'a');
        assert!(limiter.begin(write(1 << 30), now));
        assert!(limiter.next(now).is_err());
        limiter.set_rates(Rates::default(), now);
        assert_eq!(Ok('a'), limiter.next(now));
        assert_eq!(Err(None), limiter.next(now));
    }

    #[test]
    fn requests_of_all_kinds_begin_in_their_order_and_none_is_overtaken() {
        let now = Instant::now();
        let mut limiter = Limiter::new(rates(&[(TOTAL_BYTES, 10)]), now);
        assert!(limiter.begin(write(11), now));
        limiter.queue(write(1), 'a');
        limiter.queue(read(1), 'b');
        limiter.queue(write(1), 'c');
        assert_eq!(Some(&'a'), limiter.first());
        let due = now + limiter.next(now).unwrap_err().unwrap();
        // Who comes when another one may begin, waits for it.
        assert!(!limiter.begin(read(1), due));
        assert_eq!(Ok('a'), limiter.next(due));
        assert_eq!(Ok('b'), limiter.next(due + Duration::from_secs(1)));
    }

    #[test]
    fn requests_that_are_released_fill_the_buckets() {
        let now = Instant::now();
        let mut limiter = Limiter::new(rates(&[(READ_IOPS, 10), (SIZE, 4096)]), now);
        assert!(limiter.begin(read(8192), now));
        for name in ['a', 'b', 'c'] {
            limiter.queue(read(512), name);
        }
        assert_eq!(vec!['a', 'c'], limiter.release(|name| *name != 'b'));
        // Four units, of which the bucket holds one.
        let wait = limiter.next(now).unwrap_err().unwrap();
        assert!(wait.abs_diff(Duration::from_millis(300)) < Duration::from_millis(1));
        assert_eq!(Some(&'b'), limiter.first());
    }
}
