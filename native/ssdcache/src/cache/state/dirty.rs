//! Blocks that their origins lack.
//!
//! Each write of such a block gets a slot of its own, and the slot of the version before it is kept
//! until the new one is durable: a power cut leaves one of them, whole. Versions of a block are
//! numbered. The numbers wrap, because at most three versions of a block are on the device at the
//! same time.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::Instant;

use diffcache_partitions::{Block, Evicted, PartitionId, Slot, VolumeId};

use super::State;
use crate::device::format::VERSIONS;

/// What is known of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It survives the end of the process.
    Written,
    /// It is being made durable.
    Committing,
    /// It survives a power cut.
    Committed,
}

#[derive(Debug)]
struct Version {
    number: u8,
    phase: Phase,
    /// When the block became dirty.
    since: Instant,
    /// The slot of the version that this one replaces once it is durable.
    replaced: Option<Slot>,
}

/// Versions of blocks that their origins lack.
#[derive(Debug, Default)]
pub struct Versions {
    of: HashMap<Slot, Version>,
    written: BTreeSet<Slot>,
    /// Slots that are taken and not published, by volume.
    reserved: HashMap<VolumeId, u32>,
}

impl Versions {
    #[cfg(test)]
    pub fn is_reserving(&self) -> bool {
        self.reserved.values().any(|&count| count > 0)
    }
}

/// A slot for a new version of a block.
#[derive(Debug)]
pub struct Reserved {
    /// The slot.
    pub slot: Slot,
    /// What had to leave; the entries must be erased before data are written.
    pub evicted: Vec<Evicted>,
}

/// What becomes of a published version.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// Its number.
    pub number: u8,
    /// The slot of an older version that is no longer needed: its entry must be erased.
    pub erased: Option<Slot>,
}

/// A version of a block in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyBlock {
    /// Its volume.
    pub volume: VolumeId,
    /// Its number within the volume.
    pub block: Block,
    /// Its slot.
    pub slot: Slot,
    /// Checksum of its data.
    pub checksum: u32,
    /// Number of the version.
    pub number: u8,
}

/// Which dirty blocks are written back.
#[derive(Debug, Clone)]
pub enum Selection {
    /// All.
    All,
    /// Those that have been dirty for the longest time, as many as given.
    Oldest(usize),
    /// Those that became dirty at this time, or before.
    Since(Instant),
    /// Those of a range, each of whose blocks is looked up.
    Range(Range<Block>),
}

impl State {
    /// Takes a slot for a new version of a block, if its volume has less than `most` dirty blocks
    /// and room.
    pub fn reserve(
        &mut self,
        (volume, partition): (VolumeId, PartitionId),
        block: Block,
        most: u32,
    ) -> Option<Reserved> {
        let reserved = self.versions.reserved.get(&volume).copied().unwrap_or(0);
        if self.blocks.dirty(partition).saturating_add(reserved) >= most {
            return None;
        }
        let mut evicted = Vec::new();
        loop {
            let (slot, left) = self.blocks.reserve(volume, block).ok()?;
            self.owners.remove(&slot);
            evicted.extend(left);
            if !self.writers.contains_key(&slot) {
                *self.versions.reserved.entry(volume).or_default() += 1;
                return Some(Reserved { slot, evicted });
            }
            // A read that lost the slot may still write to it.
            self.withheld.insert(slot);
        }
    }

    /// Returns a reserved slot that was not published.
    pub fn unreserve(&mut self, slot: Slot) {
        let (volume, _) = self.blocks.block_of(slot);
        self.end_reservation(volume);
        self.blocks.give_back(slot);
    }

    fn end_reservation(&mut self, volume: VolumeId) {
        if let Some(count) = self.versions.reserved.get_mut(&volume) {
            *count = count.saturating_sub(1);
        }
    }

    /// Makes a reserved slot, which has its data, the one of its block. The entry must be written
    /// before that of an older version is erased.
    pub fn publish(&mut self, slot: Slot, checksum: u32, now: Instant) -> Published {
        let (volume, _) = self.blocks.block_of(slot);
        self.end_reservation(volume);
        let old = self.blocks.publish(slot);
        self.blocks.set_checksum(slot, Some(checksum));
        let mut version = Version {
            number: 0,
            phase: Phase::Written,
            since: now,
            replaced: None,
        };
        let mut erased = old;
        if let Some(old) = old {
            self.owners.remove(&old);
            match self.versions.of.remove(&old) {
                None => self.give_back(old),
                Some(before) if before.phase == Phase::Written => {
                    version = before;
                    self.versions.written.remove(&old);
                    self.give_back(old);
                }
                Some(before) => {
                    version.number = (before.number + 1) % VERSIONS;
                    version.since = before.since;
                    version.replaced = Some(old);
                    erased = None;
                    self.versions.of.insert(old, before);
                }
            }
        }
        let number = version.number;
        self.versions.of.insert(slot, version);
        self.versions.written.insert(slot);
        Published { number, erased }
    }

    /// Notes a durable version that the device had at a restart; its block is dirty.
    pub fn restore_version(&mut self, slot: Slot, number: u8, now: Instant) {
        let version = Version {
            number,
            phase: Phase::Committed,
            since: now,
            replaced: None,
        };
        self.versions.of.insert(slot, version);
    }

    /// Begins to make all versions durable that are not: their data must be flushed, then their
    /// entries be written as committed ones and flushed. Their slots stay until the
    /// [end](Self::end_commit).
    pub fn begin_commit(&mut self) -> Vec<DirtyBlock> {
        let slots = std::mem::take(&mut self.versions.written);
        for slot in &slots {
            if let Some(version) = self.versions.of.get_mut(slot) {
                version.phase = Phase::Committing;
            }
        }
        slots
            .into_iter()
            .filter_map(|slot| self.dirty_block(slot))
            .collect()
    }

    /// Ends what [`begin_commit`](Self::begin_commit) began. Returns slots of older versions, whose
    /// entries must be erased.
    pub fn end_commit(&mut self, committed: &[DirtyBlock]) -> Vec<Slot> {
        let mut erased = Vec::new();
        for DirtyBlock { slot, .. } in committed {
            if let Some(version) = self.versions.of.get_mut(slot) {
                version.phase = Phase::Committed;
                erased.extend(version.replaced.take());
            }
        }
        for &slot in &erased {
            self.versions.of.remove(&slot);
            self.blocks.give_back(slot);
        }
        erased
    }

    /// Durable versions to write back, at most `most`, in ascending order of their blocks.
    pub fn to_write_back(
        &self,
        (volume, partition): (VolumeId, PartitionId),
        selection: &Selection,
        most: usize,
    ) -> Vec<DirtyBlock> {
        let is_committed = |slot: &Slot| {
            let version = self.versions.of.get(slot);
            version.is_some_and(|version| version.phase == Phase::Committed)
        };
        let oldest = || self.blocks.dirty_slots(partition);
        let since = |slot: &Slot| self.versions.of.get(slot).map(|version| version.since);
        let slots: Vec<Slot> = match selection {
            Selection::All => oldest().filter(is_committed).take(most).collect(),
            Selection::Oldest(count) => {
                let most = most.min(*count);
                oldest().filter(is_committed).take(most).collect()
            }
            Selection::Since(time) => {
                let due = oldest().take_while(|slot| since(slot).is_none_or(|at| at <= *time));
                due.filter(is_committed).take(most).collect()
            }
            Selection::Range(range) => {
                let found = range
                    .clone()
                    .filter_map(|block| self.find_dirty(volume, block));
                found.filter(is_committed).take(most).collect()
            }
        };
        let blocks = slots.into_iter().filter_map(|slot| self.dirty_block(slot));
        let mut blocks: Vec<DirtyBlock> = blocks.collect();
        blocks.sort_unstable_by_key(|dirty| dirty.block);
        blocks
    }

    /// When the block of a partition became dirty that has been so for the longest time.
    pub fn dirty_since(&self, partition: PartitionId) -> Option<Instant> {
        let oldest = self.blocks.oldest_dirty(partition)?;
        self.versions.of.get(&oldest).map(|version| version.since)
    }

    /// The first dirty block of a range, if it has one.
    pub fn first_dirty(
        &self,
        (volume, partition): (VolumeId, PartitionId),
        range: &Range<Block>,
    ) -> Option<Block> {
        let dirty = self.blocks.dirty(partition);
        if range.end.saturating_sub(range.start) > u64::from(dirty) {
            let slots = self.blocks.dirty_slots(partition);
            let blocks = slots.map(|slot| self.blocks.block_of(slot).1);
            return blocks.filter(|block| range.contains(block)).min();
        }
        let is_dirty = |block: &Block| self.find_dirty(volume, *block).is_some();
        range.clone().find(is_dirty)
    }

    /// The slot of a block that is dirty.
    pub fn find_dirty(&self, volume: VolumeId, block: Block) -> Option<Slot> {
        let slot = self.blocks.find(volume, block);
        slot.filter(|slot| self.blocks.is_dirty(*slot))
    }

    /// Whether a version is still that of its block.
    pub fn is_current(&self, dirty: &DirtyBlock) -> bool {
        self.blocks.find(dirty.volume, dirty.block) == Some(dirty.slot)
            && self.dirty_block(dirty.slot).as_ref() == Some(dirty)
    }

    /// Notes that a version was written back. What leaves a partition above its limit is returned.
    pub fn end_write_back(&mut self, dirty: &DirtyBlock) -> Option<Evicted> {
        self.versions.of.remove(&dirty.slot);
        self.blocks.mark_clean(dirty.slot)
    }

    /// Forgets the version of a slot whose block was removed, dirty or not. Returns slots of older
    /// versions, whose entries must be erased. Nothing is being committed.
    pub fn forget_version(&mut self, slot: Slot) -> Option<Slot> {
        self.versions.written.remove(&slot);
        let old = self.versions.of.remove(&slot)?.replaced?;
        self.versions.of.remove(&old);
        self.blocks.give_back(old);
        Some(old)
    }

    fn dirty_block(&self, slot: Slot) -> Option<DirtyBlock> {
        let version = self.versions.of.get(&slot)?;
        let (volume, block) = self.blocks.block_of(slot);
        Some(DirtyBlock {
            volume,
            block,
            slot,
            checksum: self.blocks.checksum(slot)?,
            number: version.number,
        })
    }
}
