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

use std::collections::HashMap;
use std::io;

use thiserror::Error;

use crate::partition::Slot;
use crate::Block;
use disk::Disk;
use format::{
    array, looks_dirty, DirtyVersion, Entry, FormatError, Superblock, VolumeRecord, BLOCK, ENTRY,
    INTENTS, VOLUME, VOLUMES,
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
    #[error("formatted for {found} blocks, not {wanted}; give --capacity {found}, or --format")]
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
}

/// Blocks of a device that their origins lack.
#[derive(Debug, Default)]
pub struct DirtyEntries {
    /// The newest version of each, by the volume's record and the block.
    pub newest: HashMap<(u16, Block), (Slot, Entry)>,
    /// Entries that are of no volume: damaged ones.
    pub damaged: u64,
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
        let (mut id, mut seed) = ([0; 16], [0; 8]);
        id.copy_from_slice(&random[..16]);
        seed.copy_from_slice(&random[16..]);
        let superblock = Superblock {
            capacity,
            id,
            host: place.host,
            boot: place.boot,
            seed: u64::from_le_bytes(seed),
        };
        check_size(disk.as_ref(), &superblock)?;
        // Without a superblock until the rest is empty.
        disk.write_durably(&[0; BLOCK], 0)?;
        let empty = vec![0; BATCH as usize * ENTRY];
        disk.write_at(&empty[..INTENTS], Superblock::intents_at())?;
        disk.write_at(&empty[..VOLUMES * VOLUME], Superblock::volume_at(0))?;
        for first in (0..capacity).step_by(BATCH as usize) {
            let count = (capacity - first).min(BATCH) as usize;
            disk.write_at(&empty[..count * ENTRY], Superblock::entry_at(first))?;
        }
        disk.sync()?;
        disk.write_durably(&superblock.encode(), 0)?;
        Ok(Self {
            intents: Intents::load(disk.as_ref())?,
            disk,
            superblock,
            rebooted: false,
            foreign: false,
        })
    }

    /// Checks that a disk has no blocks that their origins lack. Returns the number of the cache
    /// that it was; none if it is no cache device.
    ///
    /// # Errors
    /// It has such blocks, or cannot be read.
    pub fn check_clean(disk: Box<dyn Disk>, place: Place) -> Result<Option<[u8; 16]>, DeviceError> {
        let mut head = [0; BLOCK];
        let read = disk.size()? >= BLOCK as u64;
        if read {
            disk.read_at(&mut head, 0)?;
        }
        let Ok(superblock) = Superblock::decode(&head) else {
            return Ok(None);
        };
        let device = Self::open(disk, superblock.capacity, place)?;
        let dirty = device.dirty(&device.records()?)?;
        match dirty.newest.len() as u64 + dirty.damaged {
            0 => Ok(Some(superblock.id)),
            count => Err(DeviceError::Dirty(count)),
        }
    }

    /// Opens a device that was formatted.
    ///
    /// # Errors
    /// It was not, or for another capacity.
    pub fn open(disk: Box<dyn Disk>, capacity: u32, place: Place) -> Result<Self, DeviceError> {
        let mut head = [0; BLOCK];
        disk.read_at(&mut head, 0)?;
        let superblock = Superblock::decode(&head)?;
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

    /// The records of volumes.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn records(&self) -> io::Result<Vec<Option<VolumeRecord>>> {
        let mut bytes = vec![0; VOLUMES * VOLUME];
        self.disk.read_at(&mut bytes, Superblock::volume_at(0))?;
        let records = bytes.chunks_exact(VOLUME);
        Ok(records
            .map(|bytes| VolumeRecord::decode(&array(bytes)))
            .collect())
    }

    /// Writes the record of a volume, or erases it.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_record(&self, record: u16, volume: Option<&VolumeRecord>) -> io::Result<()> {
        let bytes = volume.map_or([0; VOLUME], VolumeRecord::encode);
        self.disk
            .write_durably(&bytes, Superblock::volume_at(record))
    }

    /// Calls `work` with each slot that has an entry, and its bytes, in ascending order, and `ahead`
    /// with the bytes of some slots' entries before that.
    fn visit(
        &self,
        ahead: impl Fn(&[u8]),
        mut work: impl FnMut(Slot, &[u8; ENTRY]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = vec![0; BATCH as usize * ENTRY];
        for first in (0..self.capacity()).step_by(BATCH as usize) {
            let count = (self.capacity() - first).min(BATCH) as usize;
            let batch = &mut bytes[..count * ENTRY];
            self.disk.read_at(batch, Superblock::entry_at(first))?;
            for (slot, entry) in (first..).zip(batch.chunks_exact(ENTRY)) {
                let next = (slot - first) as usize;
                if next % AHEAD == 0 {
                    ahead(&batch[next * ENTRY..count.min(next + AHEAD) * ENTRY]);
                }
                if *entry != [0; ENTRY] {
                    work(slot, &array(entry))?;
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
            |slot, bytes| {
                let Some(entry) = Entry::decode(bytes, generation) else {
                    dirty.damaged += u64::from(looks_dirty(bytes));
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

    /// Calls `restore` with each slot's entry in ascending order, and `expect` with some entries
    /// before that. An entry for which `restore` returns `false` is erased, and so are those of
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
        mut restore: impl FnMut(Slot, Entry) -> bool,
    ) -> io::Result<()> {
        self.commit(&generation, dirty)?;
        let ahead = |bytes: &[u8]| {
            let decode = |entry| Entry::decode(&array(entry), &generation);
            let entries = bytes.chunks_exact(ENTRY).filter_map(decode);
            expect(&entries.collect::<Vec<_>>());
        };
        self.visit(ahead, |slot, bytes| {
            let found = Entry::decode(bytes, &generation);
            let newest = |entry: &Entry| dirty.newest.get(&(entry.record, entry.block));
            let kept = found.filter(|entry| match newest(entry) {
                Some((of, _)) => *of == slot,
                None => entry.dirty.is_none() && !self.is_doubtful(entry),
            });
            if kept.is_some_and(|entry| restore(slot, entry)) {
                return Ok(());
            }
            self.write_entry(slot, None)
        })?;
        if self.rebooted {
            self.clear(&self.intents.finished())?;
        }
        self.disk.sync()?;
        self.disk.write_durably(&self.superblock.encode(), 0)
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
        self.disk.write_at(&bytes, Superblock::entry_at(slot))
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

fn check_size(disk: &dyn Disk, superblock: &Superblock) -> Result<(), DeviceError> {
    let (needed, size) = (Superblock::bytes(superblock.capacity), disk.size()?);
    if size < needed {
        return Err(DeviceError::Small { needed, size });
    }
    Ok(())
}
