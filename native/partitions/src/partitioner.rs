//! The decisions of a cache: what is in it, and what has to leave.

mod dirty;
mod limits;
#[cfg(test)]
mod models;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::eviction::{Eviction, Policy};
use crate::ghost::{Ghost, MAX_COUNT};
use crate::index::{Cursor, Index};
use crate::slots::{List, Slot, Slots, MAX_BLOCK};
use crate::Block;

/// Number of a partition.
pub type PartitionId = usize;
/// Number of a volume.
pub type VolumeId = u16;

/// A cache has fewer blocks than this.
pub const MAX_CAPACITY: u32 = u32::MAX;
/// A block is cached at this reference to it at the latest.
pub const MAX_ADMISSION: u8 = MAX_COUNT as u8;
/// In place of such a reference: no block is cached any more.
pub const NEVER: u8 = MAX_ADMISSION + 1;
/// Volumes of one cache.
const MAX_VOLUMES: usize = 1 << 16;

/// Why the partitioner refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PartitionError {
    /// Limits add up to {sum} blocks, but the cache has {capacity}; lower some
    #[error("limits add up to {sum} blocks, but the cache has {capacity}; lower some")]
    Limits {
        /// The sum of all limits.
        sum: u64,
        /// Blocks of the cache.
        capacity: u32,
    },
    /// A cache has at most 65536 volumes; detach one
    #[error("a cache has at most 65536 volumes; detach one")]
    Volumes,
    /// The partition has no room: its limit is 0, or blocks above it must be evicted or written back
    #[error(
        "the partition has no room: its limit is 0, or blocks above it must be evicted or written back"
    )]
    Full,
    /// Block {0} is beyond the largest volume
    #[error("block {0} is beyond the largest volume")]
    Block(Block),
}

/// A block that left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evicted {
    /// Its volume.
    pub volume: VolumeId,
    /// Its number within the volume.
    pub block: Block,
    /// The slot that held it.
    pub slot: Slot,
}

/// How a cache works.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Blocks of the cache.
    pub capacity: u32,
    /// Which block leaves a full partition.
    pub eviction: Policy,
    /// A block is cached at this reference to it, if it is remembered until then; at least 1. For
    /// partitions that do not have [one of their own](Partitioner::set_admission).
    pub admission: u8,
    /// Secret number, against guests that choose block numbers to slow look-ups down.
    pub seed: u64,
}

/// Blocks with a common limit and eviction order.
#[derive(Debug)]
struct Partition {
    order: Box<dyn Eviction>,
    dirty: List,
    ghost: Ghost,
    admission: u8,
    limit: u32,
    held: u32,
}

impl Partition {
    /// Ends the membership of a slot; its block leaves the cache.
    fn forget(&mut self, slots: &mut Slots, slot: Slot) {
        if slots.is_dirty(slot) {
            self.dirty.remove(slots, slot);
        } else {
            self.order.remove(slots, slot);
        }
    }
}

/// Follows where the valid blocks of a volume are, for readers elsewhere.
///
/// It may forget some. What is removed must not be found any more when the call returns.
pub trait Mirror: std::fmt::Debug + Send {
    /// The block is in this slot now, with data of this checksum.
    fn put(&mut self, block: Block, slot: Slot, checksum: u32);

    /// The block is in no slot any more, or its data are being written.
    fn remove(&mut self, block: Block);
}

#[derive(Debug)]
struct Volume {
    partition: PartitionId,
    index: Index,
    mirror: Option<Box<dyn Mirror>>,
}

/// Which block is in which slot of the cache.
///
/// Partitions, volumes and slots are those that it returned itself: with others, it panics.
#[derive(Debug)]
pub struct Partitioner {
    settings: Settings,
    slots: Slots,
    partitions: Vec<Partition>,
    volumes: Vec<Volume>,
    removed: Vec<VolumeId>,
    removed_partitions: Vec<PartitionId>,
}

impl Partitioner {
    /// An empty cache without partitions.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            slots: Slots::new(settings.capacity),
            partitions: Vec::new(),
            volumes: Vec::new(),
            removed: Vec::new(),
            removed_partitions: Vec::new(),
        }
    }

    /// Adds a partition of at most `limit` blocks.
    ///
    /// # Errors
    /// The limits add up to more than the cache has.
    pub fn add_partition(&mut self, limit: u32) -> Result<PartitionId, PartitionError> {
        let id = self.removed_partitions.last().copied();
        let id = id.unwrap_or(self.partitions.len());
        self.check_limits(&[(id, limit)])?;
        let order = self.settings.eviction.create(limit);
        let admission = self.settings.admission;
        let window = window(order.as_ref(), limit, admission);
        let partition = Partition {
            order,
            dirty: List::default(),
            ghost: Ghost::new(window, self.settings.seed),
            admission,
            limit,
            held: 0,
        };
        match self.removed_partitions.pop() {
            Some(id) => self.partitions[id] = partition,
            None => self.partitions.push(partition),
        }
        Ok(id)
    }

    /// Removes a partition whose volumes were removed. Its number is used again.
    pub fn remove_partition(&mut self, id: PartitionId) {
        debug_assert_eq!(0, self.partitions[id].held);
        self.partitions[id].limit = 0;
        self.removed_partitions.push(id);
    }

    /// Adds a volume without cached blocks to a partition.
    ///
    /// # Errors
    /// There are too many volumes.
    pub fn add_volume(&mut self, partition: PartitionId) -> Result<VolumeId, PartitionError> {
        let volume = Volume {
            partition,
            index: Index::new(self.settings.seed),
            mirror: None,
        };
        if let Some(id) = self.removed.pop() {
            self.volumes[usize::from(id)] = volume;
            return Ok(id);
        }
        if self.volumes.len() == MAX_VOLUMES {
            return Err(PartitionError::Volumes);
        }
        self.volumes.push(volume);
        Ok((self.volumes.len() - 1) as VolumeId)
    }

    /// Removes a volume with its blocks, dirty ones included. Its number is used again.
    pub fn remove_volume(&mut self, volume: VolumeId) {
        while self.pop(volume).is_some() {}
        self.removed.push(volume);
    }

    /// Removes any block of a volume; `None` if it has no more.
    pub fn pop(&mut self, volume: VolumeId) -> Option<Evicted> {
        let index = &mut self.volumes[usize::from(volume)].index;
        let slot = index.last(&mut self.slots)?;
        Some(self.remove(slot))
    }

    /// Some more slots of a volume's blocks; none: there are no more. To be called with the same
    /// cursor, while others change what is cached in between: a block that is cached all the time
    /// is returned at least once.
    #[must_use]
    pub fn visit(&self, volume: VolumeId, cursor: &mut Cursor, buckets: u32) -> Option<Vec<Slot>> {
        self.volume(volume)
            .index
            .visit(&self.slots, cursor, buckets)
    }

    /// The slot of a block; no reference to it is noted.
    #[must_use]
    pub fn find(&self, volume: VolumeId, block: Block) -> Option<Slot> {
        self.volume(volume).index.find(&self.slots, block)
    }

    /// Notes a reference to a block, and returns its slot if it is cached.
    pub fn reference(&mut self, volume: VolumeId, block: Block) -> Option<Slot> {
        let slot = self.find(volume, block)?;
        if self.slots.is_dirty(slot) {
            self.slots.raise_frequency(slot);
        } else {
            let partition = self.volume(volume).partition;
            let order = &mut self.partitions[partition].order;
            order.touch(&mut self.slots, slot);
        }
        Some(slot)
    }

    /// Notes a reference to a block that is not cached, and returns whether to cache it now.
    pub fn admit(&mut self, volume: VolumeId, block: Block) -> bool {
        let partition = self.volume(volume).partition;
        let partition = &mut self.partitions[partition];
        let wanted = u32::from(partition.admission);
        if wanted <= 1 {
            return true;
        }
        partition.ghost.count(ghost_key(volume, block)) >= wanted
    }

    /// Caches a block that is not cached, and evicts another one where the partition is full.
    ///
    /// # Errors
    /// No block of the partition can be evicted, or the block's number is too large.
    pub fn insert(
        &mut self,
        volume: VolumeId,
        block: Block,
    ) -> Result<(Slot, Option<Evicted>), PartitionError> {
        debug_assert!(self.find(volume, block).is_none());
        let (slot, evicted) = self.reserve(volume, block)?;
        let slots = &mut self.slots;
        self.volumes[usize::from(volume)].index.insert(slots, slot);
        let partition = self.volumes[usize::from(volume)].partition;
        let partition = &mut self.partitions[partition];
        let returned = partition.ghost.take(ghost_key(volume, block)).is_some();
        partition.order.insert(slots, slot, returned);
        Ok((slot, evicted))
    }

    /// Takes a slot for new content of a block, which may be cached. It is found when it is
    /// [published](Self::publish).
    ///
    /// # Errors
    /// No block of the partition can be evicted, or the block's number is too large.
    pub fn reserve(
        &mut self,
        volume: VolumeId,
        block: Block,
    ) -> Result<(Slot, Option<Evicted>), PartitionError> {
        if block > MAX_BLOCK {
            return Err(PartitionError::Block(block));
        }
        let id = self.volume(volume).partition;
        let evicted = self.make_room(id)?;
        let slot = self.slots.take(volume, block).ok_or(PartitionError::Full)?;
        self.partitions[id].held += 1;
        Ok((slot, evicted))
    }

    /// Has a slot that is reserved, or was replaced, count for its partition no longer; to be
    /// [made unused](Self::free).
    pub fn retire(&mut self, slot: Slot) {
        let partition = self.partition_of(slot);
        self.partitions[partition].held -= 1;
    }

    /// Withholds the slot of a block that left the cache just now: nothing gets it before it is
    /// [made unused](Self::free).
    pub fn withhold(&mut self, slot: Slot) {
        self.slots.withhold(slot);
    }

    /// Makes a slot unused that is [retired](Self::retire) or [withheld](Self::withhold).
    pub fn free(&mut self, slot: Slot) {
        self.slots.give(slot);
    }

    /// The volume and the block of a slot that is not unused.
    #[must_use]
    pub fn block_of(&self, slot: Slot) -> (VolumeId, Block) {
        (self.slots.volume(slot), self.slots.block(slot))
    }

    /// Prepares to [`restore`](Self::restore) some blocks of a volume, so that it takes less time.
    pub fn expect(&self, volume: VolumeId, blocks: &[Block]) {
        self.volume(volume).index.prefetch(&self.slots, blocks);
    }

    /// Caches a block in a certain slot, as it was before a restart. Slots are restored in
    /// ascending order, before any other block is cached; `false`: there is no room for it. A dirty
    /// block is restored above the limit, too.
    pub fn restore(&mut self, volume: VolumeId, block: Block, slot: Slot, dirty: bool) -> bool {
        let id = self.volume(volume).partition;
        let full = !dirty && self.partitions[id].held >= self.partitions[id].limit;
        let out_of_place = slot < self.slots.touched() || slot >= self.capacity();
        if full || out_of_place || block > MAX_BLOCK || self.find(volume, block).is_some() {
            return false;
        }
        let slots = &mut self.slots;
        slots.take_above(slot, volume, block);
        self.volumes[usize::from(volume)].index.insert(slots, slot);
        let partition = &mut self.partitions[id];
        if dirty {
            partition.dirty.push(slots, slot);
            slots.set_dirty(slot, true);
        } else {
            partition.order.insert(slots, slot, false);
        }
        partition.held += 1;
        true
    }

    /// The checksum of a slot's data; `None` while they are being written.
    #[must_use]
    pub fn checksum(&self, slot: Slot) -> Option<u32> {
        self.slots.checksum(slot)
    }

    /// Notes the checksum of a slot's data, or that they are being written.
    pub fn set_checksum(&mut self, slot: Slot, checksum: Option<u32>) {
        self.slots.set_checksum(slot, checksum);
        let (volume, block) = self.block_of(slot);
        if let Some(mirror) = &mut self.volumes[usize::from(volume)].mirror {
            match checksum {
                Some(checksum) => mirror.put(block, slot, checksum),
                None => mirror.remove(block),
            }
        }
    }

    /// Has what is cached of a volume from now on followed, in place of another mirror.
    pub fn set_mirror(&mut self, volume: VolumeId, mirror: Option<Box<dyn Mirror>>) {
        self.volumes[usize::from(volume)].mirror = mirror;
    }

    /// Has the mirror of a volume follow blocks that are cached already.
    pub fn reflect(&mut self, slots: &[Slot]) {
        for &slot in slots {
            self.set_checksum(slot, self.checksum(slot));
        }
    }

    /// Whether a slot has a block.
    #[must_use]
    pub fn is_used(&self, slot: Slot) -> bool {
        if slot >= self.slots.touched() {
            return false;
        }
        let (volume, block) = (self.slots.volume(slot), self.slots.block(slot));
        usize::from(volume) < self.volumes.len() && self.find(volume, block) == Some(slot)
    }

    /// Removes a block that is no longer valid, dirty or not.
    pub fn remove(&mut self, slot: Slot) -> Evicted {
        let partition = self.partition_of(slot);
        self.partitions[partition].forget(&mut self.slots, slot);
        self.release(slot)
    }

    /// The clean blocks of a volume that would stay the longest, these first; at most this many.
    #[must_use]
    pub fn hottest(&self, volume: VolumeId, most: usize) -> Vec<Block> {
        let lists = self.partitions[self.volume(volume).partition].order.lists();
        let slots = lists.into_iter().flat_map(|list| list.newest(&self.slots));
        let own = slots.filter(|&slot| self.slots.volume(slot) == volume);
        own.take(most).map(|slot| self.slots.block(slot)).collect()
    }

    /// The cached blocks of a volume.
    #[must_use]
    pub fn blocks(&self, volume: VolumeId) -> u32 {
        self.volume(volume).index.len()
    }

    /// Blocks of the cache.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.slots.capacity()
    }

    /// Number of slots that ever had a block: the lowest ones.
    #[must_use]
    pub fn touched(&self) -> u32 {
        self.slots.touched()
    }

    /// Unused blocks of the cache.
    #[must_use]
    pub fn unused(&self) -> u32 {
        self.slots.unused()
    }

    /// Bytes of memory for slots, indexes and ghosts.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let indexes = self.volumes.iter().map(|v| v.index.memory_bytes());
        let ghosts = self.partitions.iter().map(|p| p.ghost.memory_bytes());
        self.slots.memory_bytes() + indexes.chain(ghosts).sum::<usize>()
    }

    fn volume(&self, volume: VolumeId) -> &Volume {
        &self.volumes[usize::from(volume)]
    }

    fn partition_of(&self, slot: Slot) -> PartitionId {
        self.volume(self.slots.volume(slot)).partition
    }

    /// Returns a slot that is in no list to the unused ones.
    fn release(&mut self, slot: Slot) -> Evicted {
        let volume = self.slots.volume(slot);
        let block = self.slots.block(slot);
        let owner = &mut self.volumes[usize::from(volume)];
        owner.index.remove(&mut self.slots, slot);
        if let Some(mirror) = &mut owner.mirror {
            mirror.remove(block);
        }
        self.partitions[owner.partition].held -= 1;
        self.slots.give(slot);
        Evicted {
            volume,
            block,
            slot,
        }
    }
}

/// Blocks that a partition remembers without data.
fn window(order: &dyn Eviction, limit: u32, admission: u8) -> u32 {
    let refused = if admission > 1 { limit } else { 0 };
    refused.max(order.remembered(limit))
}

fn ghost_key(volume: VolumeId, block: Block) -> u64 {
    block | u64::from(volume) << 48
}
