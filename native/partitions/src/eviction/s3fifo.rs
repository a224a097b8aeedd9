//! S3-FIFO.

use super::{Eviction, Victim};
use crate::slots::{List, Slot, Slots};

/// The small queue has this part of the blocks.
const SMALL_SHARE: u32 = 10;
/// Blocks of the small queue with more references move to the main one.
const ONCE: u8 = 1;

/// Filters blocks that are referenced once through a small queue before the main one.
///
/// Yang et al., "FIFO queues are all you need for cache eviction" (SOSP 2023), algorithm 1; the
/// references of a block are forgotten when it moves to the main queue, and as many evicted blocks
/// are remembered as the main queue has.
#[derive(Debug, Default)]
pub struct S3Fifo {
    small: List,
    main: List,
    small_limit: u32,
}

impl S3Fifo {
    fn evict_small(&mut self, slots: &mut Slots) -> Option<Victim> {
        let slot = self.small.pop(slots)?;
        if slots.frequency(slot) <= ONCE {
            return Some(Victim {
                slot,
                remember: true,
            });
        }
        self.push_main(slots, slot);
        None
    }

    fn evict_main(&mut self, slots: &mut Slots) -> Option<Victim> {
        let slot = self.main.pop(slots)?;
        let frequency = slots.frequency(slot);
        if frequency == 0 {
            return Some(Victim {
                slot,
                remember: false,
            });
        }
        slots.set_frequency(slot, frequency - 1);
        self.main.push(slots, slot);
        None
    }

    fn push_main(&mut self, slots: &mut Slots, slot: Slot) {
        slots.set_frequency(slot, 0);
        slots.set_main(slot, true);
        self.main.push(slots, slot);
    }
}

impl Eviction for S3Fifo {
    fn insert(&mut self, slots: &mut Slots, slot: Slot, returned: bool) {
        if returned {
            self.push_main(slots, slot);
        } else {
            slots.set_frequency(slot, 0);
            slots.set_main(slot, false);
            self.small.push(slots, slot);
        }
    }

    fn touch(&mut self, slots: &mut Slots, slot: Slot) {
        slots.raise_frequency(slot);
    }

    fn remove(&mut self, slots: &mut Slots, slot: Slot) {
        if slots.is_main(slot) {
            self.main.remove(slots, slot);
        } else {
            self.small.remove(slots, slot);
        }
    }

    fn evict(&mut self, slots: &mut Slots) -> Option<Victim> {
        while self.small.len() + self.main.len() > 0 {
            let from_small = self.small.len() >= self.small_limit || self.main.is_empty();
            let victim = if from_small {
                self.evict_small(slots)
            } else {
                self.evict_main(slots)
            };
            if victim.is_some() {
                return victim;
            }
        }
        None
    }

    fn resize(&mut self, limit: u32) {
        self.small_limit = (limit / SMALL_SHARE).max(1);
    }

    fn lists(&self) -> Vec<&List> {
        vec![&self.main, &self.small]
    }

    fn remembered(&self, limit: u32) -> u32 {
        limit - limit / SMALL_SHARE
    }
}
