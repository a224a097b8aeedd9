//! Origins of volumes that are held: after a start of the host, another host may have written to
//! the volume, and the name of the origin may be that of another volume's device.

use std::io;
use std::sync::{PoisonError, RwLock};

use crate::device::disk::Disk;

/// Begins the name that the record of a held volume has for its origin.
pub const PREFIX: &str = "held:";

/// An origin that is neither read nor written until it is known where it is.
pub struct Held {
    size: u64,
    origin: RwLock<Option<Box<dyn Disk>>>,
}

impl Held {
    /// Holds an origin of this size in bytes.
    #[must_use]
    pub fn new(size: u64) -> Self {
        Self {
            size,
            origin: RwLock::default(),
        }
    }

    /// Uses an origin. `false`: one is in use already.
    pub fn release(&self, origin: Box<dyn Disk>) -> bool {
        let mut found = self.origin.write().unwrap_or_else(PoisonError::into_inner);
        let is_first = found.is_none();
        if is_first {
            *found = Some(origin);
        }
        is_first
    }

    /// Holds the origin again.
    pub fn hold(&self) {
        *self.origin.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn with<T>(&self, work: impl FnOnce(&dyn Disk) -> io::Result<T>) -> io::Result<T> {
        let found = self.origin.read().unwrap_or_else(PoisonError::into_inner);
        match found.as_ref() {
            Some(origin) => work(origin.as_ref()),
            None => Err(io::Error::other(
                "the volume is held: the host was started since, and another one may have written \
                 to it; recover it, or detach it with --discard-dirty",
            )),
        }
    }
}

impl Disk for Held {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.with(|origin| origin.read_at(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|origin| origin.write_at(bytes, offset))
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.with(|origin| origin.write_durably(bytes, offset))
    }

    fn sync(&self) -> io::Result<()> {
        let found = self.origin.read().unwrap_or_else(PoisonError::into_inner);
        // Without an origin, nothing was written.
        found.as_ref().map_or(Ok(()), |origin| origin.sync())
    }

    fn identity(&self) -> Option<String> {
        let found = self.origin.read().unwrap_or_else(PoisonError::into_inner);
        found.as_ref().and_then(|origin| origin.identity())
    }

    fn outlives_processes(&self) -> bool {
        let found = self.origin.read().unwrap_or_else(PoisonError::into_inner);
        found
            .as_ref()
            .is_none_or(|origin| origin.outlives_processes())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.with(|origin| origin.zero(offset, length))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}
