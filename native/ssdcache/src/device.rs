//! The SSD: data of cached blocks, and what is needed to find them again after a restart.
//!
//! An entry is written after its data, and erased before its block may become another in the
//! origin, so that a process that ends at any point leaves no entry of older data. Writes that a
//! power cut loses are recognised by checksums, and by [`intents`]. Entries of dirty blocks, which
//! the origin lacks, say whether they were written after a flush of their data.

pub mod aligned;
mod copies;
pub mod disk;
mod entries;
pub mod failure;
pub mod format;
pub mod intents;
pub mod losses;
mod notes;
mod records;
mod recovery;
pub mod unsaved;

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::FileExt;

use diffcache_base::locks::{begin, Unpoisoned};
use diffcache_base::sync::Mutex;
use diffcache_base::words::Words;
use diffcache_partitions::Slot;
use thiserror::Error;

use aligned::Aligned;
use disk::{Disk, Files};
use format::{
    Entry, FormatError, RecordCopy, Superblock, VolumeRecord, BLOCK, COPIES, ENTRY, INTENTS,
    VOLUME, VOLUMES,
};
use intents::{Flushing, Intent, Intents};
pub use recovery::DirtyEntries;

/// Entries that are written at once.
const BATCH: u32 = 1 << 16;

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
    /// Its files, if they are used.
    files: Option<Files>,
    superblock: Superblock,
    intents: Intents,
    /// Whether the host was started since it was last written.
    rebooted: bool,
    /// Whether another host wrote it last.
    foreign: bool,
    /// The last number of each record's copies, and a copy that is not damaged.
    newest: Mutex<Vec<(u64, usize)>>,
    /// Slots whose entry has a second copy.
    doubled: Mutex<HashSet<Slot>>,
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
            seed: Words(&random).le64(16),
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
            files: None,
            superblock,
            rebooted: false,
            foreign: false,
            newest: Mutex::new(vec![(0, 0); VOLUMES]),
            doubled: Mutex::default(),
        })
    }

    /// The number of a cache that is [formatted](Self::format) with these random bytes.
    #[must_use]
    pub fn id_of(random: &[u8; 24]) -> [u8; 16] {
        Words(random).array(0)
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
            files: None,
            superblock,
            newest: Mutex::new(vec![(0, 0); VOLUMES]),
            doubled: Mutex::default(),
        };
        device.superblock = Superblock {
            host: place.host,
            boot: place.boot,
            ..superblock
        };
        Ok(device)
    }

    /// Opens the files for reads of data by those who use them.
    ///
    /// # Errors
    /// The device does not take reads past the memory of the system.
    pub fn open_files(&mut self) -> io::Result<()> {
        let files = self.disk().files()?.ok_or(io::ErrorKind::Unsupported)?;
        let mut block = Aligned::new(BLOCK);
        let at = self.superblock.data_at(0);
        files.direct.read_exact_at(block.get_mut(), at)?;
        self.files = Some(files);
        Ok(())
    }

    /// The files for reads of data, if they are open.
    #[must_use]
    pub fn files(&self) -> Option<&Files> {
        self.files.as_ref()
    }

    /// Where the data of a slot are in them.
    #[must_use]
    pub fn data_at(&self, slot: Slot) -> u64 {
        self.superblock.data_at(slot)
    }

    /// Its disk, for what may take long.
    fn disk(&self) -> &dyn Disk {
        begin("use the cache device");
        self.disk.as_ref()
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
        self.disk().sync()
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
        self.intents.begin(self.disk(), record, range)
    }

    /// Notes that an origin was flushed.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn end_flush(&self, record: u16, flushed: &Flushing) -> io::Result<()> {
        self.intents.end_flush(self.disk(), record, flushed)
    }

    /// Forgets the intents of a record that another volume gets.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn forget_intents(&self, record: u16) -> io::Result<()> {
        self.intents.forget(self.disk(), record)
    }

    /// Clears intents after a flush of the origins: flushes the device before.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, intents: &[Intent]) -> io::Result<()> {
        if intents.is_empty() {
            return Ok(());
        }
        self.disk().sync()?;
        self.intents.clear(self.disk(), intents)
    }

    /// The records of volumes; [one that stands for it](VolumeRecord::damaged) where both copies
    /// are damaged.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn records(&self) -> io::Result<Vec<Option<VolumeRecord>>> {
        let mut areas = [(); COPIES].map(|()| vec![0; VOLUMES * VOLUME]);
        let copies = areas.each_mut().map(Vec::as_mut_slice);
        copies::read(self.disk(), copies, Superblock::volume_at(0), true)?;
        let [first, second] = areas.each_ref().map(|area| area.chunks_exact(VOLUME));
        let mut newest = self.newest.lock().unpoisoned();
        let pairs = (0..).zip(first.zip(second)).zip(newest.iter_mut());
        let volumes = pairs.map(|((record, (first, second)), newest)| {
            match RecordCopy::newest([&Words(first).array(0), &Words(second).array(0)]) {
                Some((copy, found)) => {
                    *newest = (found.sequence, copy);
                    found.volume
                }
                None => Some(VolumeRecord::damaged(record)),
            }
        });
        Ok(volumes.collect())
    }

    /// Writes both copies of the record of a volume, one after the other, or erases them; first the
    /// one that an earlier power cut may have damaged.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_record(&self, record: u16, volume: Option<&VolumeRecord>) -> io::Result<()> {
        let mut newest = self.newest.lock().unpoisoned();
        let (sequence, whole) = &mut newest[usize::from(record)];
        *sequence += 1;
        let copy = RecordCopy {
            sequence: *sequence,
            volume: volume.cloned(),
        };
        for n in [COPIES - 1 - *whole, *whole] {
            let at = Superblock::volume_at(record)[n];
            self.disk().write_durably(&copy.encode(), at)?;
            *whole = n;
        }
        Ok(())
    }

    /// Writes the entry of a slot, with the generation of its volume, or erases it.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_entry(&self, slot: Slot, entry: Option<(Entry, u64)>) -> io::Result<()> {
        let bytes = entry.map_or([0; ENTRY], |(entry, generation)| entry.encode(generation));
        self.disk().write_at(&bytes, Superblock::entry_at(slot))?;
        let at = self.superblock.second_entry_at(slot);
        match entry {
            Some((entry, _)) if entry.is_durable() => {
                self.disk().write_at(&bytes, at)?;
                self.doubled.lock().unpoisoned().insert(slot);
            }
            _ if self.doubled.lock().unpoisoned().remove(&slot) => {
                self.disk().write_at(&[0; ENTRY], at)?
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads the data of slots that follow one another.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn read_data(&self, buffer: &mut [u8], slot: Slot) -> io::Result<()> {
        self.disk().read_at(buffer, self.superblock.data_at(slot))
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
        self.disk()
            .read_afresh(buffer, self.superblock.data_at(slot))
    }

    /// Writes the data of a slot.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn write_data(&self, data: &[u8], slot: Slot) -> io::Result<()> {
        self.disk().write_at(data, self.superblock.data_at(slot))
    }
}

fn read_superblock(disk: &dyn Disk) -> Result<Superblock, DeviceError> {
    let mut copies = [[0; BLOCK]; COPIES];
    let mut unreadable = None;
    for (copy, at) in copies.iter_mut().zip(Superblock::copies_at()) {
        match disk.read_at(copy, at) {
            Err(error) if copies::is_unreadable(&error) => {
                copy.fill(0);
                unreadable = Some(error);
            }
            read => read?,
        }
    }
    match (Superblock::decode_any(copies.each_ref()), unreadable) {
        // What cannot be read may be the superblock of a cache.
        (Err(_), Some(error)) => Err(error.into()),
        (found, _) => Ok(found?),
    }
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
