//! How many instances read each chunk of an image, and when after their start.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use thiserror::Error;

use crate::chunks::Chunk;

const NS_PER_US: f64 = 1000.0;
/// Sums of times stay below 2^128 when they are compared with each other.
const MAX_COUNT: u64 = u32::MAX as u64;
const MAX_MEAN_US: f64 = 1e15;

/// Why rows do not make a profile.
#[derive(Debug, Error, PartialEq)]
pub enum ProfileError {
    /// chunk {0} is listed twice
    #[error("chunk {0} is listed twice")]
    Twice(Chunk),
    /// chunk {0}: the count has to be from 1 to {MAX_COUNT}
    #[error("chunk {0}: the count has to be from 1 to {MAX_COUNT}")]
    Count(Chunk),
    /// chunk {0}: the mean time has to be from 0 to {MAX_MEAN_US} microseconds
    #[error("chunk {0}: the mean time has to be from 0 to {MAX_MEAN_US:e} microseconds")]
    Mean(Chunk),
}

/// What is known of one chunk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Record {
    /// Number of instances that read it.
    pub count: u64,
    /// Sum of the times from the start of each of these instances to its first read.
    total_ns: u128,
}

impl Record {
    /// Mean time from an instance's start to its first read, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.total_ns as f64 / self.count.max(1) as f64 / NS_PER_US
    }

    /// A record of this many instances, at most those that a profile holds, with their mean time in microseconds.
    #[must_use]
    pub fn new(count: u64, mean_us: f64) -> Self {
        let count = count.min(MAX_COUNT);
        // The conversion saturates, and takes no number for 0.
        let total_ns = (mean_us.min(MAX_MEAN_US) * NS_PER_US * count as f64).round() as u128;
        Self { count, total_ns }
    }

    fn add(&mut self, other: &Record) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        if self.count > MAX_COUNT {
            // Forgets half of the instances, evenly: the mean remains.
            self.count /= 2;
            self.total_ns /= 2;
        }
    }

    /// Orders by count, most first, then by mean time, earliest first.
    #[must_use]
    pub fn urgency(&self, other: &Record) -> Ordering {
        let ours = self.total_ns.saturating_mul(u128::from(other.count));
        let theirs = other.total_ns.saturating_mul(u128::from(self.count));
        other.count.cmp(&self.count).then(ours.cmp(&theirs))
    }
}

/// The records of an image's chunks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    records: BTreeMap<Chunk, Record>,
}

impl Profile {
    /// A profile of (chunk, count, mean time in microseconds) rows.
    pub fn from_rows(
        rows: impl IntoIterator<Item = (Chunk, u64, f64)>,
    ) -> Result<Self, ProfileError> {
        let mut records = BTreeMap::new();
        for (chunk, count, mean_us) in rows {
            if !(1..=MAX_COUNT).contains(&count) {
                return Err(ProfileError::Count(chunk));
            }
            if !(0.0..=MAX_MEAN_US).contains(&mean_us) {
                return Err(ProfileError::Mean(chunk));
            }
            let total_ns = (mean_us * NS_PER_US * count as f64).round() as u128;
            if records.insert(chunk, Record { count, total_ns }).is_some() {
                return Err(ProfileError::Twice(chunk));
            }
        }
        Ok(Self { records })
    }

    /// (chunk, count, mean time in microseconds) rows, by chunk.
    pub fn rows(&self) -> impl Iterator<Item = (Chunk, u64, f64)> + '_ {
        self.records
            .iter()
            .map(|(&chunk, record)| (chunk, record.count, record.mean_us()))
    }

    /// Counts one more instance that read the chunk, this long after its start.
    pub fn record(&mut self, chunk: Chunk, since_start_ns: u64) {
        let read = Record {
            count: 1,
            total_ns: u128::from(since_start_ns),
        };
        self.records.entry(chunk).or_default().add(&read);
    }

    /// Adds the instances that another profile counts.
    pub fn merge(&mut self, other: &Profile) {
        for (&chunk, record) in &other.records {
            self.records.entry(chunk).or_default().add(record);
        }
    }

    /// Keeps the record with more instances of a chunk: of two counts of the same instances, the one that is ahead.
    pub fn raise(&mut self, chunk: Chunk, record: Record) {
        let known = self.records.entry(chunk).or_default();
        if record.count > known.count {
            *known = record;
        }
    }

    /// What is known of a chunk; a count of 0 if nothing is.
    #[must_use]
    pub fn get(&self, chunk: Chunk) -> Record {
        self.records.get(&chunk).copied().unwrap_or_default()
    }

    /// The greatest count of a chunk; 0 without one.
    #[must_use]
    pub fn most(&self) -> u64 {
        let counts = self.records.values().map(|record| record.count);
        counts.max().unwrap_or(0)
    }

    /// The chunks that were counted at least `least` times.
    #[must_use]
    pub fn at_least(&self, least: u64) -> Self {
        let mut chosen = self.clone();
        chosen.records.retain(|_, record| record.count >= least);
        chosen
    }

    /// The number of chunks that were read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no chunk was read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reads() -> impl Strategy<Value = Vec<(Chunk, u64)>> {
        prop::collection::vec((0u32..20, 0u64..1_000_000_000_000), 0..60)
    }

    fn of(reads: &[(Chunk, u64)]) -> Profile {
        let mut profile = Profile::default();
        for &(chunk, ns) in reads {
            profile.record(chunk, ns);
        }
        profile
    }

    proptest! {
        #[test]
        fn counts_and_means(reads in reads()) {
            for (chunk, count, mean_us) in of(&reads).rows() {
                let times: Vec<_> = reads.iter().filter(|r| r.0 == chunk).map(|r| r.1).collect();
                let mean = times.iter().sum::<u64>() as f64 / times.len() as f64 / 1000.0;
                prop_assert_eq!(count, times.len() as u64);
                prop_assert!((mean_us - mean).abs() <= mean * 1e-12);
            }
        }

        /// Counts that both have are not counted twice.
        #[test]
        fn raised_is_the_greater_of_each_count(one in reads(), other in reads()) {
            let raise = |one: &Profile, other: &Profile| {
                let mut raised = one.clone();
                other.records.iter().for_each(|(&chunk, &record)| raised.raise(chunk, record));
                raised
            };
            let (one, other) = (of(&one), of(&other));
            let raised = raise(&one, &other);
            prop_assert_eq!(&raise(&raised, &one), &raised);
            for chunk in 0..20 {
                let counts = (one.get(chunk).count, other.get(chunk).count);
                prop_assert_eq!(raised.get(chunk).count, counts.0.max(counts.1));
                prop_assert_eq!(raise(&other, &one).get(chunk).count, raised.get(chunk).count);
            }
        }

        #[test]
        fn merged_is_as_if_all_reads_were_counted(one in reads(), other in reads()) {
            let mut merged = of(&one);
            merged.merge(&of(&other));
            prop_assert_eq!(merged, of(&[one, other].concat()));
        }

        #[test]
        fn rows_are_the_profile(reads in reads()) {
            let profile = of(&reads);
            let again = Profile::from_rows(profile.rows()).unwrap();
            for ((a, m, x), (b, n, y)) in profile.rows().zip(again.rows()) {
                prop_assert_eq!((a, m), (b, n));
                prop_assert!((x - y).abs() <= 0.001);
            }
            prop_assert_eq!(profile.len(), again.len());
        }
    }

    #[test]
    fn wrong_rows_are_refused() {
        let refused = |rows: &[_]| Profile::from_rows(rows.iter().copied()).unwrap_err();
        assert_eq!(ProfileError::Twice(3), refused(&[(3, 1, 0.0), (3, 2, 0.0)]));
        assert_eq!(ProfileError::Count(3), refused(&[(3, 0, 0.0)]));
        assert_eq!(ProfileError::Count(3), refused(&[(3, 1 << 32, 0.0)]));
        for mean in [-1.0, 1e16, f64::NAN] {
            assert_eq!(ProfileError::Mean(3), refused(&[(3, 1, mean)]));
        }
    }

    #[test]
    fn more_readers_then_earlier_ones_come_first() {
        let order = |one: (u64, f64), other: (u64, f64)| {
            let profile = Profile::from_rows([(0, one.0, one.1), (1, other.0, other.1)]).unwrap();
            profile.get(0).urgency(&profile.get(1))
        };
        assert_eq!(Ordering::Less, order((2, 9.0), (1, 1.0)));
        assert_eq!(Ordering::Less, order((3, 5.0), (3, 6.0)));
        assert_eq!(Ordering::Equal, order((3, 5.0), (3, 5.0)));
    }

    #[test]
    fn rarely_read_chunks_can_be_left_out() {
        let profile = Profile::from_rows([(0, 1, 0.0), (1, 2, 0.0), (2, 3, 0.0)]).unwrap();
        let chosen = profile.at_least(2);
        assert_eq!(
            vec![1, 2],
            chosen.rows().map(|row| row.0).collect::<Vec<_>>()
        );
        assert_eq!((3, 0), (profile.most(), Profile::default().most()));
    }

    #[test]
    fn counts_stay_in_their_range() {
        let most = Profile::from_rows([(0, MAX_COUNT, MAX_MEAN_US)]).unwrap();
        let mut merged = most.clone();
        for _ in 0..40 {
            merged.merge(&most);
            assert!(merged.get(0).count <= MAX_COUNT);
            let mean = merged.get(0).mean_us();
            assert!((mean / MAX_MEAN_US - 1.0).abs() < 1e-6, "{mean}");
        }
    }
}
