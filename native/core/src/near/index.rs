//! Where a base has the anchors of a target.
//!
//! The table is keyed by what the target needs, and then filled from the base: so it is as large as the part of the target that is new, and takes
//! note of all of the base, however large that is.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::anchors::{Anchor, Spacing};

/// Most slots of a table: 128 MiB.
const MAX_SLOTS: u64 = 1 << 24;
/// A slot is the tag of a hash, and the offset in the base.
const OFFSET_BITS: u32 = 44;
const NO_OFFSET: u64 = (1 << OFFSET_BITS) - 1;
const EMPTY: u64 = u64::MAX;
const MAX_TAG: u64 = (1 << (64 - OFFSET_BITS)) - 1;

/// A table from anchors to offsets in the base, filled by any number of threads. What it holds does not depend on their order.
pub struct AnchorIndex {
    slots: Vec<AtomicU64>,
    taken: AtomicUsize,
    spacing: Spacing,
}

impl AnchorIndex {
    /// Returns a table for the anchors of `bytes` of target.
    pub fn for_target(bytes: u64) -> AnchorIndex {
        let spacing = Spacing::for_data(bytes, MAX_SLOTS / 8 * 7);
        let slots = (spacing.expected(bytes) * 5 / 4)
            .next_power_of_two()
            .clamp(1 << 12, MAX_SLOTS);
        AnchorIndex {
            slots: std::iter::repeat_with(|| AtomicU64::new(EMPTY))
                .take(slots as usize)
                .collect(),
            taken: AtomicUsize::new(0),
            spacing,
        }
    }

    /// Returns the spacing of the anchors that the table holds.
    pub fn spacing(&self) -> Spacing {
        self.spacing
    }

    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn tag(hash: u64) -> u64 {
        // All ones would look like an empty slot.
        (hash >> OFFSET_BITS).min(MAX_TAG - 1)
    }

    /// Takes note that the target has these anchors.
    pub fn add_wanted(&self, anchors: &[Anchor]) {
        if self.taken.load(Ordering::Relaxed) + anchors.len() > self.slots.len() / 16 * 15 {
            return;
        }
        let new = anchors
            .iter()
            .filter(|anchor| self.insert(anchor.hash))
            .count();
        self.taken.fetch_add(new, Ordering::Relaxed);
    }

    /// Adds a hash; false if it is in the table already.
    fn insert(&self, hash: u64) -> bool {
        let entry = Self::tag(hash) << OFFSET_BITS | NO_OFFSET;
        let mut at = self.home(hash);
        for _ in 0..self.slots.len() {
            match self.slots[at].compare_exchange(
                EMPTY,
                entry,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(other) if other == entry => return false,
                Err(_) => at = (at + 1) & (self.slots.len() - 1),
            }
        }
        false
    }

    fn slot(&self, hash: u64) -> Option<&AtomicU64> {
        let tag = Self::tag(hash);
        let mut at = self.home(hash);
        for _ in 0..self.slots.len() {
            let slot = &self.slots[at];
            let entry = slot.load(Ordering::Relaxed);
            if entry == EMPTY {
                return None;
            }
            if entry >> OFFSET_BITS == tag {
                return Some(slot);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        None
    }

    /// Takes note of the base's anchors; `offset` is that of the data in which they were found. Of several places of an anchor, the first one in
    /// the base is kept.
    pub fn add_base(&self, offset: u64, anchors: &[Anchor]) {
        for group in anchors.chunks(64) {
            // The processor fetches the slots of a group at once, where one by one each would be waited for.
            let loaded = group.iter().fold(0, |all, anchor| {
                all ^ self.slots[self.home(anchor.hash)].load(Ordering::Relaxed)
            });
            std::hint::black_box(loaded);
            for anchor in group {
                let at = offset + u64::from(anchor.at);
                if let Some(slot) = self.slot(anchor.hash).filter(|_| at < NO_OFFSET) {
                    slot.fetch_min(
                        Self::tag(anchor.hash) << OFFSET_BITS | at,
                        Ordering::Relaxed,
                    );
                }
            }
        }
    }

    /// Returns where the base has an anchor.
    pub fn find(&self, anchor: &Anchor) -> Option<u64> {
        let entry = self.slot(anchor.hash)?.load(Ordering::Relaxed);
        Some(entry & NO_OFFSET).filter(|offset| *offset != NO_OFFSET)
    }

    /// Finds the anchors that the base has, as (offset in the target, offset in the base).
    pub fn find_all(&self, anchors: &[Anchor], out: &mut Vec<(u32, u64)>) {
        for group in anchors.chunks(64) {
            let loaded = group.iter().fold(0, |all, anchor| {
                all ^ self.slots[self.home(anchor.hash)].load(Ordering::Relaxed)
            });
            std::hint::black_box(loaded);
            out.extend(
                group
                    .iter()
                    .filter_map(|anchor| Some((anchor.at, self.find(anchor)?))),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;
    use crate::near::anchors::find_anchors;

    fn anchors(data: &[u8], index: &AnchorIndex) -> Vec<Anchor> {
        let mut out = Vec::new();
        find_anchors(data, index.spacing(), &mut out);
        out
    }

    #[test]
    fn what_the_target_needs_is_found_where_the_base_has_it_first() {
        let index = AnchorIndex::for_target(100_000);
        let (wanted, other) = (noise(1, 50_000), noise(2, 50_000));
        let of_target = anchors(&wanted, &index);
        index.add_wanted(&of_target);
        index.add_base(1 << 40, &of_target);
        index.add_base(7000, &of_target);
        index.add_base(2 << 40, &of_target);
        index.add_base(0, &anchors(&other, &index));
        for anchor in &of_target {
            assert_eq!(index.find(anchor), Some(7000 + u64::from(anchor.at)));
        }
        assert_eq!(index.find(&anchors(&other, &index)[0]), None);
    }

    #[test]
    fn wanted_anchors_that_the_base_lacks_are_not_found() {
        let index = AnchorIndex::for_target(1000);
        let wanted = anchors(&noise(3, 1000), &index);
        index.add_wanted(&wanted);
        assert!(wanted.iter().all(|anchor| index.find(anchor).is_none()));
    }

    #[test]
    fn a_table_is_never_larger_than_promised() {
        for bytes in [0, 1 << 30, 1 << 36, 1 << 44] {
            let slots = AnchorIndex::for_target(bytes).slots.len() as u64;
            assert!(slots <= MAX_SLOTS);
        }
    }
}
