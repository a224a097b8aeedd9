//! The SSD: data of cached blocks, and what is needed to find them again after a restart.
//!
//! An entry is written after its data, and erased before its block may become another in the
//! origin, so that a process that ends at any point leaves no entry of older data. Writes that a
//! power cut loses are recognised by checksums, and by [`intents`].

pub mod disk;
pub mod failure;
pub mod format;
pub mod intents;

use std::io;

use thiserror::Error;

use crate::partition::Slot;
use disk::Disk;
use format::{
    array, Entry, FormatError, Superblock, VolumeRecord, BLOCK, ENTRY, INTENTS, VOLUME, VOLUMES,
};
use intents::Intents;

/// Entries that are read at once.
const BATCH: u32 = 1 << 16;

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
        })
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
            disk,
            superblock,
        };
        if superblock.host != place.host {
            // Origins may have changed where it was used elsewhere.
            for record in 0..VOLUMES as u16 {
                device.write_record(record, None)?;
            }
        }
        device.superblock = Superblock {
            host: place.host,
            boot: place.boot,
            ..superblock
        };
        Ok(device)
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

    /// Records a write to a range of a volume before its origin is written.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn begin(&self, record: u16, range: &std::ops::Range<u64>) -> io::Result<()> {
        self.intents.begin(self.disk.as_ref(), record, range)
    }

    /// Clears intents after a flush of the origins: flushes the device before.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, intents: &[usize]) -> io::Result<()> {
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

    /// Calls `restore` with each slot's entry in ascending order; an entry for which it returns
    /// `false` is erased, and so are those of regions whose writes a power cut may have lost.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn load(
        &self,
        generation: impl Fn(u16) -> Option<u64>,
        mut restore: impl FnMut(Slot, Entry) -> bool,
    ) -> io::Result<()> {
        let mut bytes = vec![0; BATCH as usize * ENTRY];
        for first in (0..self.capacity()).step_by(BATCH as usize) {
            let count = (self.capacity() - first).min(BATCH) as usize;
            let batch = &mut bytes[..count * ENTRY];
            self.disk.read_at(batch, Superblock::entry_at(first))?;
            for (slot, entry) in (first..).zip(batch.chunks_exact(ENTRY)) {
                if *entry == [0; ENTRY] {
                    continue;
                }
                let found = Entry::decode(&array(entry), &generation);
                let kept = found.filter(|entry| !self.is_doubtful(entry));
                if !kept.is_some_and(|entry| restore(slot, entry)) {
                    self.write_entry(slot, None)?;
                }
            }
        }
        if self.rebooted {
            self.clear(&self.intents.finished())?;
        }
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
