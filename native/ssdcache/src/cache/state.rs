//! Who may put which data into which slot: the part of a cache that its lock protects.
//! Blocks that the origin lacks are in [`dirty`], and what is written of it all in [`entries`].
//!
//! What is put into the cache by a read must not be older than a write that began meanwhile, and
//! data must not be taken for those of another block that got the slot meanwhile. The data of a
//! slot are written by one *owner* at a time. A read that misses takes a slot, and owns it, before
//! it reads the origin; a write to the block takes the ownership over. Who finds after writing data
//! that the slot has another owner, or none, does not know what the slot has: its block is removed.

pub mod dirty;
pub mod entries;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use diffcache_partitions::{Block, Evicted, PartitionId, Partitioner, Slot, VolumeId};

use dirty::Versions;
use entries::Change;

/// Number of an operation.
pub type Token = u64;

/// Writes to a block that are under way.
#[derive(Debug, Clone, Copy, Default)]
struct Writes {
    running: u32,
    /// There were several at the same time: which one the origin has, is not known.
    contended: bool,
}

/// See the module.
#[derive(Debug)]
pub struct State {
    /// Which block has which slot.
    pub blocks: Partitioner,
    owners: HashMap<Slot, Token>,
    writes: HashMap<(VolumeId, Block), Writes>,
    /// Ranges that are being replaced by zeroes: nothing of them is cached meanwhile.
    zeroing: Vec<(VolumeId, Range<Block>, Token)>,
    tokens: Token,
    /// Slots whose data are being written, and by how many.
    writers: HashMap<Slot, u32>,
    /// Slots that become unused when the writes of their data and of their entries end.
    withheld: HashSet<Slot>,
    /// Entries that are to be written, and how many there have been.
    changing: HashMap<Slot, Change>,
    changes: u64,
    /// Entries whose write has not begun.
    fresh: Vec<Slot>,
    /// Threads that wait until entries are written.
    pub waiting: usize,
    versions: Versions,
}

impl State {
    /// A state without any operation.
    #[must_use]
    pub fn new(blocks: Partitioner) -> Self {
        Self {
            blocks,
            owners: HashMap::new(),
            writes: HashMap::new(),
            zeroing: Vec::new(),
            tokens: 0,
            writers: HashMap::new(),
            withheld: HashSet::new(),
            changing: HashMap::new(),
            changes: 0,
            fresh: Vec::new(),
            waiting: 0,
            versions: Versions::default(),
        }
    }

    /// Returns a new number.
    pub fn token(&mut self) -> Token {
        self.tokens += 1;
        self.tokens
    }

    /// Notes a reference by a read, and takes a slot for the block if it is to be cached: not if
    /// the request passes the cache by.
    pub fn read(&mut self, volume: VolumeId, block: Block, token: Token, passes: bool) -> Source {
        if let Some(slot) = self.blocks.reference(volume, block) {
            let checksum = self.blocks.checksum(slot);
            return checksum.map_or(Source::Origin, |checksum| Source::Cached(slot, checksum));
        }
        if passes || self.is_written(volume, block) {
            return Source::Origin;
        }
        self.take(volume, block, token)
            .map_or(Source::Origin, Source::Fill)
    }

    /// Takes a slot for a block without a request, unless it is cached or being written.
    pub fn take_unrequested(
        &mut self,
        volume: VolumeId,
        block: Block,
        token: Token,
    ) -> Option<Taken> {
        let known = self.blocks.find(volume, block).is_some();
        if known || self.is_written(volume, block) {
            return None;
        }
        self.own_new(volume, block, token)
    }

    fn take(&mut self, volume: VolumeId, block: Block, token: Token) -> Option<Taken> {
        if !self.blocks.admit(volume, block) {
            return None;
        }
        self.own_new(volume, block, token)
    }

    fn own_new(&mut self, volume: VolumeId, block: Block, token: Token) -> Option<Taken> {
        let (slot, evicted) = self.blocks.insert(volume, block).ok()?;
        self.owners.insert(slot, token);
        if let Some(evicted) = evicted {
            self.want(slot, (volume, evicted.block), None);
        }
        Some(Taken { slot, evicted })
    }

    /// Begins a write to a block. What is cached of it is no longer valid: its entry is erased
    /// before the origin is written. Returns its slot.
    pub fn begin_write(&mut self, volume: VolumeId, block: Block, token: Token) -> Option<Slot> {
        let is_zeroed = self.is_zeroed(volume, block);
        let writes = self.writes.entry((volume, block)).or_default();
        writes.running += 1;
        writes.contended |= writes.running > 1 || is_zeroed;
        let slot = self.blocks.reference(volume, block)?;
        self.blocks.set_checksum(slot, None);
        self.owners.insert(slot, token);
        self.want(slot, (volume, block), None);
        Some(slot)
    }

    /// Begins to replace a range by zeroes. What is cached of it must be removed before the origin
    /// is written.
    pub fn begin_zero(&mut self, volume: VolumeId, range: Range<Block>, token: Token) {
        for ((of, block), writes) in &mut self.writes {
            writes.contended |= *of == volume && range.contains(block);
        }
        self.zeroing.push((volume, range, token));
    }

    /// Ends what [`begin_zero`](Self::begin_zero) began.
    pub fn end_zero(&mut self, token: Token) {
        self.zeroing.retain(|(_, _, of)| *of != token);
    }

    /// Takes a slot for a block that is being written, if it is to be cached.
    pub fn take_for_write(
        &mut self,
        volume: VolumeId,
        block: Block,
        token: Token,
    ) -> Option<Taken> {
        if self.is_contended(volume, block) {
            return None;
        }
        self.take(volume, block, token)
    }

    /// The slot of a block whose data this owner may write; `None` if it lost the ownership.
    pub fn owned(&self, volume: VolumeId, block: Block, token: Token) -> Option<Slot> {
        let slot = self.blocks.find(volume, block)?;
        let owned = self.owners.get(&slot) == Some(&token);
        (owned && !self.is_contended(volume, block)).then_some(slot)
    }

    /// Begins the write of data to the slot that [`owned`](Self::owned) returns.
    pub fn begin_data(&mut self, volume: VolumeId, block: Block, token: Token) -> Option<Slot> {
        let slot = self.owned(volume, block, token)?;
        *self.writers.entry(slot).or_default() += 1;
        Some(slot)
    }

    /// Ends the write of data to a slot. `true`: they are valid now, and the entry may be written;
    /// `false`: if the slot has a block, it must be removed.
    pub fn end_data(
        &mut self,
        (volume, block): (VolumeId, Block),
        slot: Slot,
        token: Token,
    ) -> bool {
        self.end_writer(slot);
        let owned = self.owners.get(&slot) == Some(&token);
        self.owners.remove(&slot);
        owned && self.blocks.find(volume, block) == Some(slot)
    }

    /// Ends a write to a block. Returns the slot of a block whose data are not valid: it must be
    /// removed.
    pub fn end_write(&mut self, volume: VolumeId, block: Block, token: Token) -> Option<Slot> {
        if let Some(writes) = self.writes.get_mut(&(volume, block)) {
            writes.running -= 1;
            if writes.running == 0 {
                self.writes.remove(&(volume, block));
            }
        }
        let slot = self.blocks.find(volume, block)?;
        let mine = self.owners.get(&slot).is_none_or(|&owner| owner == token);
        (mine && self.blocks.checksum(slot).is_none()).then_some(slot)
    }

    /// Ends a fill whose origin could not be read. Returns the slot of the block, which must be
    /// removed.
    pub fn cancel_fill(&self, volume: VolumeId, block: Block, token: Token) -> Option<Slot> {
        let slot = self.blocks.find(volume, block)?;
        (self.owners.get(&slot) == Some(&token)).then_some(slot)
    }

    /// Removes the block of a slot with its entry, if it has one.
    pub fn forget(&mut self, slot: Slot) {
        self.owners.remove(&slot);
        if self.blocks.is_used(slot) {
            let left = self.blocks.remove(slot);
            self.leave_evicted(&left);
        }
    }

    /// Evicts a clean block of a partition above its limit, if there is one.
    pub fn shrink(&mut self, partition: PartitionId) -> Option<Evicted> {
        let evicted = self.blocks.shrink(partition)?;
        self.leave_evicted(&evicted);
        Some(evicted)
    }

    /// Removes any block of a volume, dirty or not, with all its versions; `false`: it has no more.
    pub fn pop(&mut self, volume: VolumeId) -> bool {
        let Some(left) = self.blocks.pop(volume) else {
            return false;
        };
        self.blocks.withhold(left.slot);
        self.forget_version(left.volume, left.slot);
        self.leave(left.slot, (left.volume, left.block));
        true
    }

    /// Has the entry erased of a block that left the cache just now.
    fn leave_evicted(&mut self, left: &Evicted) {
        self.blocks.withhold(left.slot);
        self.leave(left.slot, (left.volume, left.block));
    }

    fn end_writer(&mut self, slot: Slot) {
        let Some(count) = self.writers.get_mut(&slot) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            self.writers.remove(&slot);
            self.free(slot);
        }
    }

    /// Makes a slot unused that was left, once neither its data nor its entry are being written.
    fn free(&mut self, slot: Slot) {
        let is_written = self.writers.contains_key(&slot) || self.changing.contains_key(&slot);
        if !is_written && self.withheld.remove(&slot) {
            self.blocks.free(slot);
        }
    }

    /// Whether no operation is under way.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        let data = self.writers.is_empty() && self.withheld.is_empty();
        let written = self.writes.is_empty() && self.zeroing.is_empty();
        let entries = self.changing.is_empty() && self.fresh.is_empty();
        self.owners.is_empty() && written && data && entries && !self.versions.is_reserving()
    }

    fn is_written(&self, volume: VolumeId, block: Block) -> bool {
        self.writes.contains_key(&(volume, block)) || self.is_zeroed(volume, block)
    }

    fn is_zeroed(&self, volume: VolumeId, block: Block) -> bool {
        let has = |(of, range, _): &(VolumeId, Range<Block>, Token)| {
            *of == volume && range.contains(&block)
        };
        self.zeroing.iter().any(has)
    }

    fn is_contended(&self, volume: VolumeId, block: Block) -> bool {
        let writes = self.writes.get(&(volume, block));
        writes.is_some_and(|writes| writes.contended)
    }
}

/// Where a block of a read comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A slot, whose data have this checksum.
    Cached(Slot, u32),
    /// The origin, to be cached.
    Fill(Taken),
    /// The origin.
    Origin,
}

/// A slot whose data are to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The slot.
    pub slot: Slot,
    /// What it had before; its entry is erased before the slot's data are written.
    pub evicted: Option<Evicted>,
}
