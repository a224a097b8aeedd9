//! The cache's blocks ("slots"): the global list of unused ones, and doubly linked lists of the
//! others. 24 bytes each.

use crate::Block;

/// Number of a cache block.
pub type Slot = u32;

/// Ends lists and chains; no slot has this number.
pub const NONE: Slot = u32::MAX;
/// Blocks of the largest volume: 4 PiB in blocks of 4 KiB.
pub const MAX_BLOCK: Block = (1 << BLOCK_BITS) - 1;
/// How often a slot's references are counted.
pub const MAX_FREQUENCY: u8 = 3;

const BLOCK_BITS: u32 = 40;
const VOLUME_SHIFT: u32 = BLOCK_BITS;
const FLAGS_SHIFT: u32 = 56;
const FREQUENCY: u64 = (MAX_FREQUENCY as u64) << FLAGS_SHIFT;
const DIRTY: u64 = 4 << FLAGS_SHIFT;
const MAIN: u64 = 8 << FLAGS_SHIFT;
const VALID: u64 = 16 << FLAGS_SHIFT;
/// Slots by which the table of slots grows at least.
const GROWTH: usize = 4096;

/// A cache block's entry: `key` is the block (40 bits), the volume (16) and flags (8).
#[derive(Debug, Clone, Copy)]
struct Entry {
    key: u64,
    prev: Slot,
    next: Slot,
    chain: Slot,
    checksum: u32,
}

/// All slots of a cache, and the list of unused ones.
#[derive(Debug)]
pub struct Slots {
    entries: Vec<Entry>,
    capacity: u32,
    returned: Slot,
    unused: u32,
}

impl Slots {
    /// Slots that are all unused; memory is taken when they are first used.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            entries: Vec::new(),
            capacity,
            returned: NONE,
            unused: capacity,
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of unused slots.
    #[must_use]
    pub fn unused(&self) -> u32 {
        self.unused
    }

    /// Bytes of memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Takes a slot from the list of unused ones for a block.
    pub fn take(&mut self, volume: u16, block: Block) -> Option<Slot> {
        let slot = if self.returned == NONE {
            self.extend()?
        } else {
            let slot = self.returned;
            self.returned = self.entry(slot).next;
            slot
        };
        self.unused -= 1;
        *self.entry_mut(slot) = Entry {
            key: block | u64::from(volume) << VOLUME_SHIFT,
            prev: NONE,
            next: NONE,
            chain: NONE,
            checksum: 0,
        };
        Some(slot)
    }

    /// Takes a certain slot, above all that were taken before, for a block.
    pub(super) fn take_above(&mut self, slot: Slot, volume: u16, block: Block) {
        while (self.entries.len() as Slot) < slot && self.extend().is_some() {
            let passed = self.entries.len() as Slot - 1;
            self.entry_mut(passed).next = self.returned;
            self.returned = passed;
        }
        let returned = std::mem::replace(&mut self.returned, NONE);
        self.take(volume, block);
        self.returned = returned;
    }

    /// Number of slots that were ever in use.
    pub(super) fn touched(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Returns a slot to the list of unused ones; it is in no other list.
    pub fn give(&mut self, slot: Slot) {
        self.entry_mut(slot).next = self.returned;
        self.returned = slot;
        self.unused += 1;
    }

    /// Takes a slot that was [returned](Self::give) just now out of the unused ones.
    pub(super) fn withhold(&mut self, slot: Slot) {
        debug_assert_eq!(self.returned, slot);
        self.returned = self.entry(slot).next;
        self.unused -= 1;
    }

    fn extend(&mut self) -> Option<Slot> {
        let used = self.entries.len();
        let left = self.capacity as usize - used;
        if left == 0 {
            return None;
        }
        if used == self.entries.capacity() {
            // Steps of an eighth, so that a full table is not larger than the cache.
            self.entries.reserve_exact(left.min(GROWTH.max(used / 8)));
        }
        self.entries.push(Entry {
            key: 0,
            prev: NONE,
            next: NONE,
            chain: NONE,
            checksum: 0,
        });
        Some(used as Slot)
    }

    fn entry(&self, slot: Slot) -> &Entry {
        &self.entries[slot as usize]
    }

    fn entry_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.entries[slot as usize]
    }

    /// The block of a slot, within its volume.
    #[must_use]
    pub fn block(&self, slot: Slot) -> Block {
        self.entry(slot).key & MAX_BLOCK
    }

    /// The number of a slot's volume.
    #[must_use]
    pub fn volume(&self, slot: Slot) -> u16 {
        (self.entry(slot).key >> VOLUME_SHIFT) as u16
    }

    /// Whether a slot holds what the volume lacks.
    #[must_use]
    pub fn is_dirty(&self, slot: Slot) -> bool {
        self.entry(slot).key & DIRTY != 0
    }

    pub(super) fn set_dirty(&mut self, slot: Slot, dirty: bool) {
        self.set_flag(slot, DIRTY, dirty);
    }

    /// The checksum of a slot's data; `None` while the data are being written.
    #[must_use]
    pub fn checksum(&self, slot: Slot) -> Option<u32> {
        let entry = self.entry(slot);
        (entry.key & VALID != 0).then_some(entry.checksum)
    }

    pub(super) fn set_checksum(&mut self, slot: Slot, checksum: Option<u32>) {
        self.set_flag(slot, VALID, checksum.is_some());
        self.entry_mut(slot).checksum = checksum.unwrap_or_default();
    }

    /// Whether a slot is in the main one of two queues.
    pub(super) fn is_main(&self, slot: Slot) -> bool {
        self.entry(slot).key & MAIN != 0
    }

    pub(super) fn set_main(&mut self, slot: Slot, main: bool) {
        self.set_flag(slot, MAIN, main);
    }

    fn set_flag(&mut self, slot: Slot, flag: u64, on: bool) {
        let entry = self.entry_mut(slot);
        entry.key = if on {
            entry.key | flag
        } else {
            entry.key & !flag
        };
    }

    /// References of a slot since its frequency was last set, at most [`MAX_FREQUENCY`].
    #[must_use]
    pub fn frequency(&self, slot: Slot) -> u8 {
        (self.entry(slot).key >> FLAGS_SHIFT) as u8 & MAX_FREQUENCY
    }

    pub(super) fn set_frequency(&mut self, slot: Slot, frequency: u8) {
        let entry = self.entry_mut(slot);
        entry.key = entry.key & !FREQUENCY | u64::from(frequency) << FLAGS_SHIFT;
    }

    pub(super) fn raise_frequency(&mut self, slot: Slot) {
        let frequency = self.frequency(slot);
        if frequency < MAX_FREQUENCY {
            self.set_frequency(slot, frequency + 1);
        }
    }

    pub(super) fn chain(&self, slot: Slot) -> Slot {
        self.entry(slot).chain
    }

    pub(super) fn set_chain(&mut self, slot: Slot, next: Slot) {
        self.entry_mut(slot).chain = next;
    }
}

/// A doubly linked list through slots. A slot is in at most one list.
#[derive(Debug, Clone, Copy)]
pub struct List {
    head: Slot,
    tail: Slot,
    len: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

impl List {
    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether it has no slot.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot that was added first.
    #[must_use]
    pub fn tail(&self) -> Option<Slot> {
        some(self.tail)
    }

    /// The neighbour towards the head.
    pub(super) fn newer(slots: &Slots, slot: Slot) -> Option<Slot> {
        some(slots.entry(slot).prev)
    }

    /// The slots from the head to the tail.
    pub(super) fn newest<'a>(&self, slots: &'a Slots) -> impl Iterator<Item = Slot> + 'a {
        let older = |&slot: &Slot| some(slots.entry(slot).next);
        std::iter::successors(some(self.head), older)
    }

    /// Adds a slot at the head.
    pub(super) fn push(&mut self, slots: &mut Slots, slot: Slot) {
        let entry = slots.entry_mut(slot);
        entry.prev = NONE;
        entry.next = self.head;
        match some(self.head) {
            Some(head) => slots.entry_mut(head).prev = slot,
            None => self.tail = slot,
        }
        self.head = slot;
        self.len += 1;
    }

    /// Removes a slot of this list.
    pub(super) fn remove(&mut self, slots: &mut Slots, slot: Slot) {
        let Entry { prev, next, .. } = *slots.entry(slot);
        match some(prev) {
            Some(prev) => slots.entry_mut(prev).next = next,
            None => self.head = next,
        }
        match some(next) {
            Some(next) => slots.entry_mut(next).prev = prev,
            None => self.tail = prev,
        }
        self.len -= 1;
    }

    /// Puts a slot in the place of another, which leaves the list.
    pub(super) fn replace(&mut self, slots: &mut Slots, old: Slot, new: Slot) {
        let Entry { prev, next, .. } = *slots.entry(old);
        let entry = slots.entry_mut(new);
        (entry.prev, entry.next) = (prev, next);
        match some(prev) {
            Some(prev) => slots.entry_mut(prev).next = new,
            None => self.head = new,
        }
        match some(next) {
            Some(next) => slots.entry_mut(next).prev = new,
            None => self.tail = new,
        }
    }

    /// Removes the slot that was added first.
    pub(super) fn pop(&mut self, slots: &mut Slots) -> Option<Slot> {
        let slot = self.tail()?;
        self.remove(slots, slot);
        Some(slot)
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}
