//! Sets of bytes of a volume.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that neither overlap nor touch one another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many ranges there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The ranges in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// Adds a range.
    pub(super) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&from, &to)) = self.0.range(..=end).next_back() {
            if to < start {
                break;
            }
            self.0.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        self.0.insert(start, end);
    }

    /// Adds all ranges of another set.
    pub(super) fn extend(&mut self, other: &Self) {
        other.iter().for_each(|range| self.insert(range));
    }

    /// Removes a range.
    pub(super) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&from, &to)) = self.0.range(..range.end).next_back() {
            if to <= range.start {
                break;
            }
            self.0.remove(&from);
            if range.end < to {
                self.0.insert(range.end, to);
            }
            if from < range.start {
                self.0.insert(from, range.start);
                break;
            }
        }
    }

    /// What a range has in common with the set.
    pub(super) fn common(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..=range.start).next_back();
        let inside = self.0.range(range.start..range.end);
        let first = before.filter(|(&from, _)| from < range.start);
        let found = first.into_iter().chain(inside);
        let cut = found.map(|(&from, &to)| from.max(range.start)..to.min(range.end));
        cut.filter(|part| !part.is_empty()).collect()
    }

    /// Extends each range to whole units, up to an end.
    pub(super) fn coarsened(&self, unit: u64, end: u64) -> Self {
        let mut coarse = Self::default();
        for range in self.iter() {
            let to = range.end.next_multiple_of(unit).min(end).max(range.end);
            coarse.insert(range.start - range.start % unit..to);
        }
        coarse
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(ranges: T) -> Self {
        let mut set = Self::default();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn members(ranges: &Ranges) -> BTreeSet<u64> {
        ranges.iter().flatten().collect()
    }

    proptest! {
        #[test]
        fn a_set_has_the_bytes_that_were_added_and_not_removed(
            steps in proptest::collection::vec((any::<bool>(), 0..60_u64, 0..12_u64), 1..40),
            at in 0..60_u64, length in 0..20_u64,
        ) {
            let (mut set, mut expected) = (Ranges::default(), BTreeSet::new());
            for (adds, start, length) in steps {
                let range = start..start + length;
                if adds {
                    set.insert(range.clone());
                    expected.extend(range);
                } else {
                    set.remove(&range);
                    expected.retain(|byte| !range.contains(byte));
                }
                prop_assert_eq!(&expected, &members(&set));
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            let common: BTreeSet<u64> = set.common(&(at..at + length)).into_iter().flatten().collect();
            let inside = expected.into_iter().filter(|byte| (at..at + length).contains(byte));
            prop_assert_eq!(common, inside.collect::<BTreeSet<u64>>());
        }
    }

    #[test]
    fn whole_units_end_with_the_volume() {
        let set: Ranges = [5..6, 17..22].into_iter().collect();
        let expected: Ranges = [0..8, 16..23].into_iter().collect();
        assert_eq!(expected, set.coarsened(8, 23));
    }
}
