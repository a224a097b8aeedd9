//! Least recently used.

use super::{Eviction, Victim};
use crate::slots::{List, Slot, Slots};

/// Evicts the block whose last reference is the longest ago.
#[derive(Debug, Default)]
pub struct Lru {
    list: List,
}

impl Eviction for Lru {
    fn insert(&mut self, slots: &mut Slots, slot: Slot, _returned: bool) {
        self.list.push(slots, slot);
    }

    fn touch(&mut self, slots: &mut Slots, slot: Slot) {
        self.list.remove(slots, slot);
        self.list.push(slots, slot);
    }

    fn remove(&mut self, slots: &mut Slots, slot: Slot) {
        self.list.remove(slots, slot);
    }

    fn evict(&mut self, slots: &mut Slots) -> Option<Victim> {
        let slot = self.list.pop(slots)?;
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
