//! The SSD: data of cached blocks, and what is needed to find them again after a restart.
//!
//! An entry is written after its data, and erased before its block may become another in the
//! origin, so that a process that ends at any point leaves no entry of older data. Writes that a
//! power cut loses are recognised by checksums, and by [`intents`]. Entries of dirty blocks, which
//! the origin lacks, say whether they were written after a flush of their data.

pub mod disk;
pub mod failure;
pub mod format;
pub mod intents;
pub mod losses;
pub mod unsaved;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use thiserror::Error;

use diffcache_partitions::Block;
use diffcache_partitions::Slot;
use disk::Disk;
use format::{
    array, looks_dirty, DirtyVersion, Entry, FormatError, RecordCopy, Superblock, VolumeRecord,
    BLOCK, COPIES, ENTRY, INTENTS, VOLUME, VOLUMES,
};
use intents::{Flushing, Intent, Intents};

/// Entries that are read at once.
const BATCH: u32 = 1 << 16;
/// Entries that are looked at before the first of them is used.
const AHEAD: usize = 32;

/// Why a device cannot be opened.
#[derive(Debug, Error)]
pub enum DeviceError {
    /// Its content
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It was formatted for another number of blocks
    #[error("formatted for {found} blocks, not {wanted}; give --capacity {found}")]
    Capacity {
        /// Blocks that it has.
        found: u32,
        /// Blocks that were asked for.
        wanted: u32,
    },
    /// It is a block device that is too small
    #[error("{needed} bytes are needed for the capacity, but there are {size}; lower --capacity")]
    Small {
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that it has.
        size: u64,
    },
    /// It has what would be lost
    #[error("it has {0} blocks that were not written back to their volumes; start it without --format and flush them, or lose them with --discard-dirty")]
    Dirty(u64),
    /// The system refused
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where a cache runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Number of the host.
    pub host: [u8; 16],
    /// Number of its start: what was written since is not lost by the end of a process.
    pub boot: [u8; 16],
}

/// A formatted cache device.
pub struct Device {
    disk: Box<dyn Disk>,
    superblock: Superblock,
    intents: Intents,
    /// Whether the host was started since it was last written.
    rebooted: bool,
    /// Whether another host wrote it last.
    foreign: bool,
    /// The last number of each record's copies.
    sequences: Mutex<Vec<u64>>,
    /// Slots whose entry has a second copy.
    doubled: Mutex<HashSet<Slot>>,
}

/// Blocks of a device that their origins lack.
#[derive(Debug, Default)]
pub struct DirtyEntries {
    /// The newest version of each, by the volume's record and the block.
    pub newest: HashMap<(u16, Block), (Slot, Entry)>,
    /// Slots both copies of whose entry are damaged, by the record that they name.
    pub damaged: HashMap<u16, Vec<Slot>>,
}

impl DirtyEntries {
    fn is_damaged(&self, slot: Slot) -> bool {
        self.damaged.values().any(|slots| slots.contains(&slot))
    }
}

/// What is found of a slot: both copies of its entry.
struct Found {
    slot: Slot,
    copies: [[u8; ENTRY]; COPIES],
}

impl Found {
    /// The entry, which is dirty if one copy says so: where they differ, the process or the power
    /// ended before both were written, or one is damaged.
    fn entry(&self, generation: impl Fn(u16) -> Option<u64>) -> Option<Entry> {
        let [first, second] = self.copies.map(|copy| Entry::decode(&copy, &generation));
        match (first, second) {
            (Some(first), _) if first.dirty.is_some() => Some(first),
            (_, Some(second)) => Some(second),
            (first, None) => first,
        }
    }

    /// The record of a dirty block, whose entry is damaged.
    fn damaged_record(&self) -> Option<u16> {
        self.copies.iter().find_map(looks_dirty)
    }

    /// Whether both copies are those that an entry has.
    fn is_whole(&self, entry: &Entry, generation: u64) -> bool {
        let bytes = entry.encode(generation);
        let second = if entry.is_durable() {
            bytes
        } else {
            [0; ENTRY]
        };
        self.copies == [bytes, second]
    }
}

impl Device {
    /// Erases what a disk has, and makes it an empty cache. `random` are random bytes.
    ///
    /// # Errors
    /// The disk is too small or cannot be written.
    pub fn format(
        disk: Box<dyn Disk>,
        capacity: u32,
        place: Place,
        random: [u8; 24],
    ) -> Result<Self, DeviceError> {
        let superblock = Superblock {
            capacity,
            id: Self::id_of(&random),
            host: place.host,
            boot: place.boot,
            seed: u64::from_le_bytes(array(&random[16..])),
        };
        check_size(disk.as_ref(), &superblock)?;
        // Without a superblock until the rest is empty.
        disk.write_durably(&[0; COPIES * BLOCK], 0)?;
        let empty = vec![0; BATCH as usize * ENTRY];
        disk.write_at(&empty[..INTENTS], Superblock::intents_at())?;
        for at in Superblock::volume_at(0) {
            disk.write_at(&empty[..VOLUMES * VOLUME], at)?;
        }
        for first in (0..capacity).step_by(BATCH as usize) {
            let count = (capacity - first).min(BATCH) as usize;
            let empty = &empty[..count * ENTRY];
            disk.write_at(empty, Superblock::entry_at(first))?;
            disk.write_at(empty, superblock.second_entry_at(first))?;
        }
        disk.sync()?;
        write_superblock(disk.as_ref(), &superblock)?;
        Ok(Self {
            intents: Intents::load(disk.as_ref())?,
            disk,
            superblock,
            rebooted: false,
            foreign: false,
            sequences: Mutex::new(vec![0; VOLUMES]),
            doubled: Mutex::default(),
        })
    }

    /// The number of a cache that is [formatted](Self::format) with these random bytes.
    #[must_use]
    pub fn id_of(random: &[u8; 24]) -> [u8; 16] {
        array(&random[..16])
    }

    /// Checks that a disk has no blocks that their origins lack. Returns the number of the cache
    /// that it was; none if it is no cache device.
    ///
    /// # Errors
    /// It has such blocks, or cannot be read: it is damaged, or of another version.
    pub fn check_clean(disk: Box<dyn Disk>, place: Place) -> Result<Option<[u8; 16]>, DeviceError> {
        if disk.size()? < (COPIES * BLOCK) as u64 {
            return Ok(None);
        }
        let superblock = match read_superblock(disk.as_ref()) {
            Err(DeviceError::Format(FormatError::NotOurs)) => return Ok(None),
            found => found?,
        };
        let device = Self::open(disk, superblock.capacity, place)?;
        let dirty = device.dirty(&device.records()?)?;
        let damaged: usize = dirty.damaged.values().map(Vec::len).sum();
        match (dirty.newest.len() + damaged) as u64 {
            0 => Ok(Some(superblock.id)),
            count => Err(DeviceError::Dirty(count)),
        }
    }

    /// Opens a device that was formatted.
    ///
    /// # Errors
    /// It was not, or for another capacity.
    pub fn open(disk: Box<dyn Disk>, capacity: u32, place: Place) -> Result<Self, DeviceError> {
        let superblock = read_superblock(disk.as_ref())?;
        if superblock.capacity != capacity {
            return Err(DeviceError::Capacity {
                found: superblock.capacity,
                wanted: capacity,
            });
        }
        check_size(disk.as_ref(), &superblock)?;
        let mut device = Self {
            intents: Intents::load(disk.as_ref())?,
            rebooted: superblock.boot != place.boot,
            foreign: superblock.host != place.host,
            disk,
            superblock,
            sequences: Mutex::new(vec![0; VOLUMES]),
            doubled: Mutex::default(),
        };
        device.superblock = Superblock {
            host: place.host,
            boot: place.boot,
            ..superblock
        };
        Ok(device)
    }

    /// Whether another host wrote it last: origins may have changed there.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Whether the host was started since it was last written.
    #[must_use]
    pub fn is_after_start(&self) -> bool {
        self.rebooted
    }

    /// Makes all that was written before survive a power cut.
    ///
    /// # Errors
    /// The device cannot be flushed.
    pub fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    /// Returns the random number of this cache.
    #[must_use]
    pub fn id(&self) -> [u8; 16] {
        self.superblock.id
    }

    /// Bytes that a device needs for a cache of `capacity` blocks.
    #[must_use]
    pub fn bytes(capacity: u32) -> u64 {
        Superblock::bytes(capacity)
    }

    /// Blocks of the cache.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.superblock.capacity
    }

    /// The secret of the look-ups.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.superblock.seed
    }

    /// Which regions are being written.
    #[must_use]
    pub fn intents(&self) -> &Intents {
        &self.intents
    }

    /// Records a write to a range of a volume before its origin is written. What is returned ends it,
    /// see [`Intents::end`].
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn begin(&self, record: u16, range: &std::ops::Range<u64>) -> io::Result<Vec<Intent>> {
        self.intents.begin(self.disk.as_ref(), record, range)
    }

    /// Notes that an origin was flushed.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn end_flush(&self, record: u16, flushed: &Flushing) -> io::Result<()> {
        self.intents.end_flush(self.disk.as_ref(), record, flushed)
    }

    /// Forgets the intents of a record that another volume gets.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn forget_intents(&self, record: u16) -> io::Result<()> {
        self.intents.forget(self.disk.as_ref(), record)
    }

    /// Clears intents after a flush of the origins: flushes the device before.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, intents: &[Intent]) -> io::Result<()> {
        if intents.is_empty() {
            return Ok(());
        }
        self.disk.sync()?;
        self.intents.clear(self.disk.as_ref(), intents)
    }

    /// The records of volumes; [one that stands for it](VolumeRecord::damaged) where both copies
    /// are damaged.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn records(&self) -> io::Result<Vec<Option<VolumeRecord>>> {
        let mut areas = [const { Vec::new() }; COPIES];
        for (area, at) in areas.iter_mut().zip(Superblock::volume_at(0)) {
            area.resize(VOLUMES * VOLUME, 0);
            self.disk.read_at(area, at)?;
        }
        let [first, second] = areas.each_ref().map(|area| area.chunks_exact(VOLUME));
        let mut sequences = lock(&self.sequences);
        let pairs = (0..).zip(first.zip(second)).zip(sequences.iter_mut());
        let newest = pairs.map(|((record, (first, second)), sequence)| {
            match RecordCopy::newest([&array(first), &array(second)]) {
                Some(newest) => {
                    *sequence = newest.sequence;
                    newest.volume
                }
                None => Some(VolumeRecord::damaged(record)),
            }
        });
        Ok(newest.collect())
    }

    /// Writes both copies of the record of a volume, one after the other, or erases them.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_record(&self, record: u16, volume: Option<&VolumeRecord>) -> io::Result<()> {
        let mut sequences = lock(&self.sequences);
        let sequence = sequences[usize::from(record)] + 1;
        let copy = RecordCopy {
            sequence,
            volume: volume.cloned(),
        };
        sequences[usize::from(record)] = sequence;
        for at in Superblock::volume_at(record) {
            self.disk.write_durably(&copy.encode(), at)?;
        }
        Ok(())
    }

    /// Calls `work` with each slot that has an entry in ascending order, and `ahead` with the
    /// bytes of some slots' entries before that.
    fn visit(
        &self,
        ahead: impl Fn(&[u8]),
        mut work: impl FnMut(Found) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = [const { Vec::new() }; COPIES];
        for first in (0..self.capacity()).step_by(BATCH as usize) {
            let count = (self.capacity() - first).min(BATCH) as usize;
            let at = [
                Superblock::entry_at(first),
                self.superblock.second_entry_at(first),
            ];
            for (copy, at) in bytes.iter_mut().zip(at) {
                copy.resize(count * ENTRY, 0);
                self.disk.read_at(copy, at)?;
            }
            for (next, slot) in (first..first + count as Slot).enumerate() {
                if next % AHEAD == 0 {
                    ahead(&bytes[0][next * ENTRY..count.min(next + AHEAD) * ENTRY]);
                }
                let copies = bytes.each_ref();
                let copies = copies.map(|copy| array(&copy[next * ENTRY..][..ENTRY]));
                if copies != [[0; ENTRY]; COPIES] {
                    work(Found { slot, copies })?;
                }
            }
        }
        Ok(())
    }

    /// The blocks that their origins lack. After a power cut, those that were not durable are none.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn dirty(&self, known: &[Option<VolumeRecord>]) -> io::Result<DirtyEntries> {
        let generation = |record: u16| {
            let record = known.get(usize::from(record))?.as_ref();
            record.map(|record| record.generation)
        };
        let mut dirty = DirtyEntries::default();
        self.visit(
            |_| (),
            |found| {
                let slot = found.slot;
                let Some(entry) = found.entry(generation) else {
                    if let Some(record) = found.damaged_record() {
                        dirty.damaged.entry(record).or_default().push(slot);
                    }
                    return Ok(());
                };
                let Some(version) = self.surviving(&entry) else {
                    return Ok(());
                };
                let found = dirty.newest.entry((entry.record, entry.block));
                let newest = found.or_insert((slot, entry));
                if newest.1.dirty.is_some_and(|other| version.is_newer(&other)) {
                    *newest = (slot, entry);
                }
                Ok(())
            },
        )?;
        Ok(dirty)
    }

    /// Erases all entries of some records whose attachments ended, durably: before another
    /// attachment has the record, whose entries they might be taken for. `generation` is that of the
    /// attachments that stay.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn erase_entries(
        &self,
        ended: &[u16],
        generation: impl Fn(u16) -> Option<u64>,
    ) -> io::Result<()> {
        if ended.is_empty() {
            return Ok(());
        }
        let has_ended =
            |copy: &[u8; ENTRY]| Entry::record_of(copy).is_some_and(|of| ended.contains(&of));
        self.visit(
            |_| (),
            |found| {
                if found.entry(&generation).is_some() || !found.copies.iter().any(has_ended) {
                    return Ok(());
                }
                lock(&self.doubled).insert(found.slot);
                self.write_entry(found.slot, None)
            },
        )?;
        self.disk.sync()
    }

    /// The version of a dirty entry, unless a power cut may have lost its data.
    fn surviving(&self, entry: &Entry) -> Option<DirtyVersion> {
        let version = entry.dirty?;
        (version.is_durable || !self.rebooted).then_some(version)
    }

    /// Makes what the end of a process left of dirty blocks durable: others may be erased then.
    fn commit(
        &self,
        generation: impl Fn(u16) -> Option<u64>,
        dirty: &DirtyEntries,
    ) -> io::Result<()> {
        if dirty.newest.is_empty() {
            return Ok(());
        }
        self.disk.sync()?;
        for (slot, entry) in dirty.newest.values() {
            let version = entry.dirty.filter(|version| !version.is_durable);
            let of = version.zip(generation(entry.record));
            if let Some((DirtyVersion { number, .. }, generation)) = of {
                let is_durable = true;
                let dirty = Some(DirtyVersion { number, is_durable });
                self.write_entry(*slot, Some((Entry { dirty, ..*entry }, generation)))?;
            }
        }
        self.disk.sync()
    }

    /// Calls `restore` with each slot's entry in ascending order, without one where it is that of a
    /// dirty block and damaged; and `expect` with some entries before that. An entry for which `restore` returns `false` is erased, and so are those of
    /// regions whose writes a power cut may have lost, and all but the newest of a block that is
    /// `dirty`.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn load(
        &self,
        generation: impl Fn(u16) -> Option<u64>,
        dirty: &DirtyEntries,
        expect: impl Fn(&[Entry]),
        mut restore: impl FnMut(Slot, Option<Entry>) -> bool,
    ) -> io::Result<()> {
        self.commit(&generation, dirty)?;
        let ahead = |bytes: &[u8]| {
            let decode = |entry| Entry::decode(&array(entry), &generation);
            let entries = bytes.chunks_exact(ENTRY).filter_map(decode);
            expect(&entries.collect::<Vec<_>>());
        };
        self.visit(ahead, |found| {
            let slot = found.slot;
            lock(&self.doubled).insert(slot);
            let newest = |entry: &Entry| dirty.newest.get(&(entry.record, entry.block));
            let kept = found
                .entry(&generation)
                .filter(|entry| match newest(entry) {
                    Some((of, _)) => *of == slot,
                    None => entry.dirty.is_none() && !self.is_doubtful(entry),
                });
            if kept.is_none() && dirty.is_damaged(slot) {
                restore(slot, None);
                return Ok(());
            }
            let restored = kept.filter(|entry| restore(slot, Some(*entry)));
            let of = restored.and_then(|entry| Some((entry, generation(entry.record)?)));
            match of {
                Some((entry, generation)) if found.is_whole(&entry, generation) => {
                    self.note_copies(slot, &entry);
                    Ok(())
                }
                of => self.write_entry(slot, of),
            }
        })?;
        if self.rebooted {
            self.clear(&self.intents.finished())?;
        }
        self.disk.sync()?;
        write_superblock(self.disk.as_ref(), &self.superblock)
    }

    /// Notes whether the entry of a slot, which is whole, has a second copy.
    fn note_copies(&self, slot: Slot, entry: &Entry) {
        if !entry.is_durable() {
            lock(&self.doubled).remove(&slot);
        }
    }

    fn is_doubtful(&self, entry: &Entry) -> bool {
        self.rebooted && self.intents.has(entry.record, entry.block * BLOCK as u64)
    }

    /// Writes the entry of a slot, with the generation of its volume, or erases it.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_entry(&self, slot: Slot, entry: Option<(Entry, u64)>) -> io::Result<()> {
        let bytes = entry.map_or([0; ENTRY], |(entry, generation)| entry.encode(generation));
        self.disk.write_at(&bytes, Superblock::entry_at(slot))?;
        let at = self.superblock.second_entry_at(slot);
        match entry {
            Some((entry, _)) if entry.is_durable() => {
                self.disk.write_at(&bytes, at)?;
                lock(&self.doubled).insert(slot);
            }
            _ if lock(&self.doubled).remove(&slot) => self.disk.write_at(&[0; ENTRY], at)?,
            _ => {}
        }
        Ok(())
    }

    /// Reads the data of slots that follow one another.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read_data(&self, buffer: &mut [u8], slot: Slot) -> io::Result<()> {
        self.disk.read_at(buffer, self.superblock.data_at(slot))
    }

    /// Reads the data of slots that follow one another, if they are in memory. `false`: not all
    /// are, and the buffer may have anything.
    pub fn read_data_now(&self, buffer: &mut [u8], slot: Slot) -> bool {
        self.disk.read_now(buffer, self.superblock.data_at(slot))
    }

    /// Reads the data of a slot from the device, and not from the memory of the system.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read_afresh(&self, buffer: &mut [u8], slot: Slot) -> io::Result<()> {
        self.disk.read_afresh(buffer, self.superblock.data_at(slot))
    }

    /// Writes the data of a slot.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_data(&self, data: &[u8], slot: Slot) -> io::Result<()> {
        self.disk.write_at(data, self.superblock.data_at(slot))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read_superblock(disk: &dyn Disk) -> Result<Superblock, DeviceError> {
    let mut copies = [[0; BLOCK]; COPIES];
    for (copy, at) in copies.iter_mut().zip(Superblock::copies_at()) {
        disk.read_at(copy, at)?;
    }
    Ok(Superblock::decode_any(copies.each_ref())?)
}

/// Writes both copies, one after the other.
fn write_superblock(disk: &dyn Disk, superblock: &Superblock) -> io::Result<()> {
    for at in Superblock::copies_at() {
        disk.write_durably(&superblock.encode(), at)?;
    }
    Ok(())
}

fn check_size(disk: &dyn Disk, superblock: &Superblock) -> Result<(), DeviceError> {
    let (needed, size) = (Superblock::bytes(superblock.capacity), disk.size()?);
    if size < needed {
        return Err(DeviceError::Small { needed, size });
    }
    Ok(())
}
