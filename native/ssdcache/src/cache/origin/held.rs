//! Origins of volumes that are held: it is not known whether what the device has of them may be
//! written to the origin that has this name now. After a start of the host, for example, another
//! host may have written to the volume, and the name may be that of another volume's device.

use std::io;
use std::sync::RwLock;

use diffcache_base::locks::Unpoisoned;

use crate::device::disk::Disk;
use crate::device::format::MAX_ORIGIN;

/// Begins the name that the record of a held volume has for its origin.
pub const PREFIX: &str = "held:";

/// The name that the record of a held volume has for an origin: later starts hold it, too. It is for
/// people, and nothing is opened by it.
#[must_use]
pub fn name(origin: &str) -> String {
    let mut name = origin.to_owned();
    if !is_held(origin) {
        name.insert_str(0, PREFIX);
    }
    while name.len() > MAX_ORIGIN {
        name.pop();
    }
    name
}

/// Whether a record with this name for its origin is that of a held volume.
#[must_use]
pub fn is_held(origin: &str) -> bool {
    origin.starts_with(PREFIX)
}

/// An origin that is neither read nor written until it is known where it is.
pub struct Held {
    size: u64,
    reason: String,
    origin: RwLock<Option<Box<dyn Disk>>>,
}

impl Held {
    /// Holds an origin of this size in bytes.
    #[must_use]
    pub fn new(size: u64, reason: impl Into<String>) -> Self {
        Self {
            size,
            reason: reason.into(),
            origin: RwLock::default(),
        }
    }

    /// Why it is held.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Uses an origin. `false`: one is in use already.
    pub fn release(&self, origin: Box<dyn Disk>) -> bool {
        let mut found = self.origin.write().unpoisoned();
        let is_first = found.is_none();
        if is_first {
            *found = Some(origin);
        }
        is_first
    }

    /// Holds the origin again.
    pub fn hold(&self) {
        *self.origin.write().unpoisoned() = None;
    }

    fn with<T>(&self, work: impl FnOnce(&dyn Disk) -> io::Result<T>) -> io::Result<T> {
        let found = self.origin.read().unpoisoned();
        match found.as_ref() {
            Some(origin) => work(origin.as_ref()),
            None => Err(io::Error::other(format!(
                "the volume is held: {}; recover it with the origin that it had",
                self.reason
            ))),
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
        let found = self.origin.read().unpoisoned();
        // Without an origin, nothing was written.
        found.as_ref().map_or(Ok(()), |origin| origin.sync())
    }

    fn identity(&self) -> Option<String> {
        let found = self.origin.read().unpoisoned();
        found.as_ref().and_then(|origin| origin.identity())
    }

    fn outlives_processes(&self) -> bool {
        let found = self.origin.read().unpoisoned();
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
