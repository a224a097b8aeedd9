//! Entries of slots that are to be written to the device.
//!
//! What changes an entry is decided under the lock, and the device is written after it was released,
//! so that no request waits with the lock for the device. Of each slot, entries are written in the
//! order of the changes, by one thread at a time; of changes that were not written yet, the last one
//! is written alone. A slot that is left is unused once its entry is erased: no other block gets it
//! while the device has one of before in it.

use std::ops::Range;

use diffcache_partitions::{Block, Slot, VolumeId};

use super::State;
use crate::device::format::Entry;

/// An entry, with the generation of its volume; none: it is erased.
pub type Wanted = Option<(Entry, u64)>;

/// Changes of a slot's entry that are not written.
#[derive(Debug)]
pub struct Change {
    wanted: Wanted,
    /// The number of the last change, and of the first that is not written.
    last: u64,
    first: u64,
    is_running: bool,
    volume: VolumeId,
    /// Blocks that the entry on the device may be of.
    blocks: Vec<Block>,
}

/// A change that is to be written now.
#[derive(Debug, Clone, Copy)]
pub struct Writing {
    /// Where.
    pub slot: Slot,
    /// What.
    pub wanted: Wanted,
    number: u64,
}

/// How to proceed with a change.
#[derive(Debug)]
pub enum Begun {
    /// Nothing: it is written.
    Written,
    /// To wait: another thread writes the entry of the slot.
    Busy,
    /// To write it.
    Write(Writing),
}

impl State {
    /// Has the entry of a slot written, or erased. `block` is what the entry on the device is of now,
    /// if it is of any.
    pub fn want(&mut self, slot: Slot, (volume, block): (VolumeId, Block), wanted: Wanted) {
        self.changes += 1;
        if self.fresh.last() != Some(&slot) {
            self.fresh.push(slot);
        }
        let number = self.changes;
        let change = self.changing.entry(slot).or_insert_with(|| Change {
            wanted,
            last: number,
            first: number,
            is_running: false,
            volume,
            blocks: Vec::with_capacity(1),
        });
        debug_assert_eq!(
            change.volume, volume,
            "an entry of a slot of another volume"
        );
        change.wanted = wanted;
        change.last = number;
        if !change.blocks.contains(&block) {
            change.blocks.push(block);
        }
    }

    /// Has the entry erased of a slot that is in no list; the slot is unused after that.
    pub fn leave(&mut self, slot: Slot, of: (VolumeId, Block)) {
        self.owners.remove(&slot);
        self.withheld.insert(slot);
        self.want(slot, of, None);
    }

    /// The slots whose entries are to be written since the last call, in this order.
    pub fn take_fresh(&mut self) -> Vec<Slot> {
        std::mem::take(&mut self.fresh)
    }

    /// Whether there are some.
    pub fn has_fresh(&self) -> bool {
        !self.fresh.is_empty()
    }

    /// Begins to write the entry of a slot.
    pub fn begin_entry(&mut self, slot: Slot) -> Begun {
        match self.changing.get_mut(&slot) {
            None => Begun::Written,
            Some(change) if change.is_running => Begun::Busy,
            Some(change) => {
                change.is_running = true;
                Begun::Write(Writing {
                    slot,
                    wanted: change.wanted,
                    number: change.last,
                })
            }
        }
    }

    /// Ends what [`begin_entry`](Self::begin_entry) began. What was changed meanwhile is written by
    /// who changed it.
    pub fn end_entry(&mut self, writing: &Writing) {
        let Some(change) = self.changing.get_mut(&writing.slot) else {
            return;
        };
        change.is_running = false;
        change.first = writing.number + 1;
        if change.last == writing.number {
            self.changing.remove(&writing.slot);
            self.free(writing.slot);
        }
    }

    /// How many changes there were.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Whether one of the first changes is not written, of an entry of a volume.
    pub fn is_any_changing(&self, volume: VolumeId, changes: u64) -> bool {
        let mut changing = self.changing.values();
        changing.any(|change| change.volume == volume && change.first <= changes)
    }

    /// Whether one of the first changes is not written, of an entry of some blocks.
    pub fn is_changing(&self, volume: VolumeId, blocks: &Range<Block>, changes: u64) -> bool {
        self.changing.values().any(|change| {
            let concerns = || change.blocks.iter().any(|block| blocks.contains(block));
            change.volume == volume && change.first <= changes && concerns()
        })
    }

    /// Whether an entry of a slot is not written.
    pub fn is_slot_changing(&self, slot: Slot) -> bool {
        self.changing.contains_key(&slot)
    }
}
