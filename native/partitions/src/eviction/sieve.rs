//! SIEVE.

use super::{Eviction, Victim};
use crate::slots::{List, Slot, Slots};

/// Evicts in the order of insertion, sparing what was referenced since a hand last passed.
///
/// Zhang et al., "SIEVE is simpler than LRU" (NSDI 2024), algorithm 1.
#[derive(Debug, Default)]
pub struct Sieve {
    list: List,
    hand: Option<Slot>,
}

impl Eviction for Sieve {
    fn insert(&mut self, slots: &mut Slots, slot: Slot, _returned: bool) {
        slots.set_frequency(slot, 0);
        self.list.push(slots, slot);
    }

    fn touch(&mut self, slots: &mut Slots, slot: Slot) {
        slots.set_frequency(slot, 1);
    }

    fn remove(&mut self, slots: &mut Slots, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = List::newer(slots, slot);
        }
        self.list.remove(slots, slot);
    }

    fn evict(&mut self, slots: &mut Slots) -> Option<Victim> {
        let mut slot = self.hand.or(self.list.tail())?;
        while slots.frequency(slot) > 0 {
            slots.set_frequency(slot, 0);
            slot = List::newer(slots, slot).or(self.list.tail())?;
        }
        self.hand = List::newer(slots, slot);
        self.list.remove(slots, slot);
        Some(Victim {
            slot,
            remember: false,
        })
    }

    fn resize(&mut self, _limit: u32) {}

    fn lists(&self) -> Vec<&List> {
        vec![&self.list]
    }

    fn remembered(&self, _limit: u32) -> u32 {
        0
    }
}
