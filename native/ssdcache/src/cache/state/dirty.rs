//! Blocks that their origins lack.
//!
//! Each write of such a block gets a slot of its own, and the slot of the version before it is kept
//! until the new one is durable: a power cut leaves one of them, whole. Versions of a block are
//! numbered. The numbers wrap, because at most three versions of a block are on the device at the
//! same time.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::time::Instant;

use diffcache_partitions::{Block, PartitionId, Slot, VolumeId};

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

/// Slots of a volume with versions that are not durable.
#[derive(Debug, Default)]
struct Uncommitted {
    written: BTreeSet<Slot>,
    /// Those that are about to be made durable.
    chosen: BTreeSet<Slot>,
}

/// Versions of blocks that their origins lack.
#[derive(Debug, Default)]
pub struct Versions {
    of: HashMap<Slot, Version>,
    uncommitted: HashMap<VolumeId, Uncommitted>,
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
    /// How many blocks had to leave; entries are erased before data are written.
    pub evicted: u64,
}

/// What becomes of a published version.
#[derive(Debug, PartialEq, Eq)]
pub struct Published {
    /// Its number.
    pub number: u8,
    /// The slot of an older version that is no longer needed, to be [left](State::leave_version).
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
        let mut evicted = 0;
        loop {
            let (slot, left) = self.blocks.reserve(volume, block).ok()?;
            self.owners.remove(&slot);
            if let Some(left) = left {
                self.want(slot, (volume, left.block), None);
                evicted += 1;
            }
            if !self.writers.contains_key(&slot) {
                *self.versions.reserved.entry(volume).or_default() += 1;
                return Some(Reserved { slot, evicted });
            }
            // A read that lost the slot may still write to it.
            self.leave_version(slot);
        }
    }

    /// Returns a reserved slot that was not published.
    pub fn unreserve(&mut self, slot: Slot) {
        let (volume, _) = self.blocks.block_of(slot);
        self.end_reservation(volume);
        self.blocks.retire(slot);
        self.withheld.insert(slot);
        self.free(slot);
    }

    fn end_reservation(&mut self, volume: VolumeId) {
        if let Some(count) = self.versions.reserved.get_mut(&volume) {
            *count = count.saturating_sub(1);
        }
    }

    /// Leaves the slot of a version that is no longer needed.
    pub fn leave_version(&mut self, slot: Slot) {
        let of = self.blocks.block_of(slot);
        self.blocks.retire(slot);
        self.leave(slot, of);
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
        let uncommitted = self.versions.uncommitted.entry(volume).or_default();
        let mut set = &mut uncommitted.written;
        if let Some(old) = old {
            self.owners.remove(&old);
            match self.versions.of.remove(&old) {
                None => {}
                Some(before) if before.phase == Phase::Written => {
                    version = before;
                    // A flush that has begun to make the older one durable does so with this one.
                    set = match uncommitted.chosen.remove(&old) {
                        true => &mut uncommitted.chosen,
                        false => &mut uncommitted.written,
                    };
                    set.remove(&old);
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
        set.insert(slot);
        self.versions.of.insert(slot, version);
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

    /// Chooses all versions of a volume that are not durable, to be made so.
    pub fn choose_written(&mut self, volume: VolumeId) {
        if let Some(uncommitted) = self.versions.uncommitted.get_mut(&volume) {
            uncommitted.chosen.append(&mut uncommitted.written);
        }
    }

    /// Begins to make some of the [chosen](Self::choose_written) versions of a volume durable, at most
    /// `most`; none: there are no more. Their data must be flushed, then their entries be written as
    /// committed ones and flushed. Their slots stay until the [end](Self::end_commit).
    pub fn begin_commit(&mut self, volume: VolumeId, most: usize) -> Vec<DirtyBlock> {
        let mut begun = Vec::new();
        while begun.len() < most {
            let uncommitted = self.versions.uncommitted.get_mut(&volume);
            let Some(slot) = uncommitted.and_then(|of| of.chosen.pop_first()) else {
                break;
            };
            if let Some(version) = self.versions.of.get_mut(&slot) {
                version.phase = Phase::Committing;
            }
            begun.extend(self.dirty_block(slot));
        }
        begun
    }

    /// Ends what [`begin_commit`](Self::begin_commit) began, and leaves older versions.
    pub fn end_commit(&mut self, committed: &[DirtyBlock]) {
        for DirtyBlock { slot, .. } in committed {
            let Some(version) = self.versions.of.get_mut(slot) else {
                continue;
            };
            version.phase = Phase::Committed;
            if let Some(older) = version.replaced.take() {
                self.versions.of.remove(&older);
                self.leave_version(older);
            }
        }
    }

    /// Looks at some dirty blocks of a volume for durable versions to write back, at most `most`,
    /// which are added to `found`. Returns the last block that was looked at, to go on behind it;
    /// none: there are no more. None of them is written back meanwhile.
    pub fn to_write_back(
        &self,
        (volume, partition): (VolumeId, PartitionId),
        selection: &Selection,
        (after, most): (Option<Block>, usize),
        found: &mut Vec<DirtyBlock>,
    ) -> Option<Block> {
        let version = |slot: &Slot| self.versions.of.get(slot);
        let is_committed =
            |slot: &Slot| version(slot).is_some_and(|version| version.phase == Phase::Committed);
        let dirty = |slots: &mut dyn Iterator<Item = Slot>, found: &mut Vec<DirtyBlock>| {
            let mut last = None;
            for slot in slots.take(most) {
                last = Some(self.blocks.block_of(slot).1);
                found.extend(self.dirty_block(slot).filter(|_| is_committed(&slot)));
            }
            last
        };
        if let Selection::Range(range) = selection {
            let first = after.map_or(range.start, |block| block + 1);
            let end = range.end.min(first + most as Block);
            let mut slots = (first..end).filter_map(|block| self.find_dirty(volume, block));
            dirty(&mut slots, found);
            return (end < range.end).then(|| end - 1);
        }
        let first = match after {
            None => self.blocks.oldest_dirty(partition),
            // A newer version has the place of the one before.
            Some(block) => self
                .find_dirty(volume, block)
                .and_then(|slot| self.blocks.newer_dirty(slot)),
        };
        let is_due = |slot: &Slot| match selection {
            Selection::Since(time) => version(slot).is_none_or(|version| version.since <= *time),
            _ => true,
        };
        let slots = std::iter::successors(first, |slot| self.blocks.newer_dirty(*slot));
        dirty(&mut slots.take_while(is_due), found)
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

    /// Notes that a version was written back. Returns whether the block left a partition above its
    /// limit.
    pub fn end_write_back(&mut self, dirty: &DirtyBlock) -> bool {
        self.versions.of.remove(&dirty.slot);
        let evicted = self.blocks.mark_clean(dirty.slot);
        evicted.inspect(|left| self.leave_evicted(left)).is_some()
    }

    /// Has the entries erased of a dirty block and of the version before, this one first. Their slots
    /// stay until the block is [forgotten](Self::forget_dirty). Nothing of the volume is being
    /// committed.
    pub fn erase_dirty(&mut self, slot: Slot) {
        let version = self.versions.of.get(&slot);
        let older = version.and_then(|version| version.replaced);
        for slot in older.into_iter().chain([slot]) {
            self.want(slot, self.blocks.block_of(slot), None);
        }
    }

    /// Removes a dirty block, its version and the one before. Nothing of its volume is being committed.
    pub fn forget_dirty(&mut self, slot: Slot) {
        let (volume, _) = self.blocks.block_of(slot);
        self.forget_version(volume, slot);
        self.forget(slot);
    }

    /// Forgets the version of a slot whose block is removed, dirty or not; its entry must be erased
    /// after that of the version before. Nothing of the volume is being committed.
    pub(super) fn forget_version(&mut self, volume: VolumeId, slot: Slot) {
        if let Some(uncommitted) = self.versions.uncommitted.get_mut(&volume) {
            uncommitted.written.remove(&slot);
        }
        let version = self.versions.of.remove(&slot);
        if let Some(older) = version.and_then(|version| version.replaced) {
            self.versions.of.remove(&older);
            self.leave_version(older);
        }
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
