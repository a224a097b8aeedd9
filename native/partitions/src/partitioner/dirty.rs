//! Blocks that their volumes lack: they are not evicted.

use super::{ghost_key, Evicted, PartitionId, Partitioner};
use crate::slots::{List, Slot};

impl Partitioner {
    /// Makes a reserved slot the one of its block, dirty. Returns the slot that the block had
    /// before: it counts for the partition until it is [retired](Self::retire).
    pub fn publish(&mut self, slot: Slot) -> Option<Slot> {
        let (volume, block) = self.block_of(slot);
        let old = self.find(volume, block);
        let owner = &mut self.volumes[usize::from(volume)];
        let partition = &mut self.partitions[owner.partition];
        let slots = &mut self.slots;
        match old {
            Some(old) if slots.is_dirty(old) => {
                owner.index.remove(slots, old);
                // Its age is that of the first write since the block was clean.
                partition.dirty.replace(slots, old, slot);
            }
            Some(old) => {
                owner.index.remove(slots, old);
                partition.order.remove(slots, old);
                partition.dirty.push(slots, slot);
            }
            None => {
                partition.ghost.take(ghost_key(volume, block));
                partition.dirty.push(slots, slot);
            }
        }
        owner.index.insert(slots, slot);
        slots.set_dirty(slot, true);
        old
    }

    /// Notes that a dirty slot was written back. The block leaves the cache if its partition is
    /// above its limit.
    pub fn mark_clean(&mut self, slot: Slot) -> Option<Evicted> {
        if !self.slots.is_dirty(slot) {
            return None;
        }
        let partition = self.partition_of(slot);
        let partition = &mut self.partitions[partition];
        partition.dirty.remove(&mut self.slots, slot);
        self.slots.set_dirty(slot, false);
        if partition.held > partition.limit {
            return Some(self.release(slot));
        }
        let returned = self.slots.frequency(slot) > 0;
        partition.order.insert(&mut self.slots, slot, returned);
        None
    }

    /// The block of a partition that has been dirty for the longest time.
    #[must_use]
    pub fn oldest_dirty(&self, partition: PartitionId) -> Option<Slot> {
        self.partitions[partition].dirty.tail()
    }

    /// Whether a slot holds what its volume lacks.
    #[must_use]
    pub fn is_dirty(&self, slot: Slot) -> bool {
        self.slots.is_dirty(slot)
    }

    /// The dirty slots of a partition, those first that have been dirty for the longest time.
    pub fn dirty_slots(&self, partition: PartitionId) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.oldest_dirty(partition), |&slot| self.newer_dirty(slot))
    }

    /// The dirty slot of a partition that follows one in the order of
    /// [`dirty_slots`](Self::dirty_slots).
    #[must_use]
    pub fn newer_dirty(&self, slot: Slot) -> Option<Slot> {
        List::newer(&self.slots, slot)
    }

    /// The dirty blocks of a partition.
    #[must_use]
    pub fn dirty(&self, partition: PartitionId) -> u32 {
        self.partitions[partition].dirty.len()
    }
}
