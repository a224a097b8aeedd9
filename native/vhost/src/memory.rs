//! The memory of a guest, and which of its pages were written to while it is migrated.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use vm_memory::bitmap::BS;
use vm_memory::{
    Address, AtomicAccess, Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion,
    GuestRegionMmap, MmapRegion, VolatileMemory, VolatileSlice,
};

use crate::message::{invalid, Message};

/// Bytes of a page of the log.
const PAGE: u64 = 4096;
/// Regions of a guest's memory.
const REGIONS: usize = 8;
/// Bytes of a region in a message.
const REGION: usize = 32;

/// Part of a request's data in a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Where.
    pub address: GuestAddress,
    /// How many bytes.
    pub length: u32,
}

/// A file that is mapped.
pub type Mapped = MmapRegion<()>;

/// Maps a part of a file that another process has.
pub fn map(file: OwnedFd, offset: u64, length: u64) -> io::Result<Mapped> {
    let length = usize::try_from(length).map_err(|_| invalid("a memory is too large"))?;
    let place = FileOffset::new(File::from(file), offset);
    Mapped::from_file(place, length).map_err(io::Error::other)
}

/// All bytes of a mapping.
pub fn bytes_of(mapped: &Mapped) -> VolatileSlice<'_, BS<'_, ()>> {
    mapped.as_volatile_slice()
}

/// The memory of a guest.
#[derive(Default)]
pub struct Memory {
    map: GuestMemoryMmap<()>,
    /// Where QEMU has them, how long they are, and where the guest has them.
    regions: Vec<(u64, u64, u64)>,
    /// A bit for each page that was written to.
    log: Option<Mapped>,
}

impl Memory {
    /// Maps the regions of a message.
    pub fn set(&mut self, message: Message) -> io::Result<()> {
        let count = message.half(0) as usize;
        if count > REGIONS
            || message.files.len() != count
            || message.body.len() < 8 + count * REGION
        {
            return Err(invalid("a table of memory has a wrong size"));
        }
        let field = |number: usize, at: usize| message.word(8 + number * REGION + at);
        let known = (0..count).map(|n| (field(n, 16), field(n, 8), field(n, 0)));
        let known: Vec<_> = known.collect();
        let offsets: Vec<u64> = (0..count).map(|n| field(n, 24)).collect();
        let mut mapped = Vec::new();
        for ((file, offset), (_, size, guest)) in message.files.into_iter().zip(offsets).zip(&known)
        {
            let region = map(file, offset, *size)?;
            let region = GuestRegionMmap::new(region, GuestAddress(*guest));
            mapped.push(region.ok_or_else(|| invalid("a region of memory has no end"))?);
        }
        mapped.sort_by_key(GuestMemoryRegion::start_addr);
        self.map = match mapped.is_empty() {
            true => GuestMemoryMmap::default(),
            false => GuestMemoryMmap::from_regions(mapped).map_err(io::Error::other)?,
        };
        self.regions = known;
        Ok(())
    }

    /// Has pages that are written to noted from now on.
    pub fn set_log(&mut self, log: Option<Mapped>) {
        self.log = log;
    }

    /// Where the guest has what QEMU has at an address.
    pub fn of_user(&self, address: u64) -> io::Result<GuestAddress> {
        let mut places = self.regions.iter().filter_map(|(user, size, guest)| {
            let inside = address.checked_sub(*user)?;
            (inside < *size).then(|| GuestAddress(guest + inside))
        });
        places
            .next()
            .ok_or_else(|| invalid("an address is in no region of memory"))
    }

    /// Copies bytes of the guest.
    pub fn read(&self, into: &mut [u8], address: GuestAddress) -> io::Result<()> {
        self.map.read_slice(into, address).map_err(io::Error::other)
    }

    /// Copies bytes to the guest.
    pub fn write(&self, bytes: &[u8], address: GuestAddress) -> io::Result<()> {
        self.map
            .write_slice(bytes, address)
            .map_err(io::Error::other)?;
        self.mark(address, bytes.len());
        Ok(())
    }

    /// Loads a number of the guest.
    pub fn load<T: AtomicAccess>(&self, address: GuestAddress, order: Ordering) -> io::Result<T> {
        self.map.load(address, order).map_err(io::Error::other)
    }

    /// Stores a number of the guest.
    pub fn store<T: AtomicAccess>(
        &self,
        value: T,
        address: GuestAddress,
        order: Ordering,
    ) -> io::Result<()> {
        self.map
            .store(value, address, order)
            .map_err(io::Error::other)?;
        self.mark(address, size_of::<T>());
        Ok(())
    }

    /// Notes that pages were written to.
    fn mark(&self, address: GuestAddress, length: usize) {
        let Some(log) = &self.log else {
            return;
        };
        let first = address.raw_value() / PAGE;
        let last = address
            .raw_value()
            .saturating_add(length.saturating_sub(1) as u64)
            / PAGE;
        for page in first..=last {
            let bits = bytes_of(log);
            // QEMU's log has a bit for each page that it migrates.
            if let Ok(bits) = bits.get_atomic_ref::<AtomicU8>((page / 8) as usize) {
                bits.fetch_or(1 << (page % 8), Ordering::SeqCst);
            }
        }
    }

    /// Copies bytes of segments, as many as there are.
    pub fn gather(&self, segments: &[Segment], into: &mut Vec<u8>) -> io::Result<()> {
        for segment in segments {
            let start = into.len();
            into.resize(start + segment.length as usize, 0);
            self.read(&mut into[start..], segment.address)?;
        }
        Ok(())
    }

    /// Copies bytes to segments, which have room for all.
    pub fn scatter(&self, mut bytes: &[u8], segments: &[Segment]) -> io::Result<()> {
        for segment in segments {
            let (now, rest) = bytes.split_at(bytes.len().min(segment.length as usize));
            self.write(now, segment.address)?;
            bytes = rest;
        }
        Ok(())
    }
}
