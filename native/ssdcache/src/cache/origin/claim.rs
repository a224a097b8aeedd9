//! Block devices that this process alone uses.
//!
//! A device that a file system of the host, another volume or another process has for itself is no
//! volume to be cached. What opens it with `O_EXCL` is refused by the kernel while another holds it;
//! this process holds it once, however often it opens it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustix::fs::OFlags;

use super::single::{Ends, Singles};

/// Those that are held, by the number of the device.
static HELD: LazyLock<Singles<Claim>> = LazyLock::new(Singles::default);

/// Holds a device until it is dropped.
pub(super) struct Claim {
    _file: File,
    _ends: Ends,
}

impl Claim {
    /// Holds the block device at a path, which has this number.
    ///
    /// # Errors
    /// Another program, or the host, uses it.
    pub(super) fn new(path: &Path, number: u64) -> io::Result<Arc<Self>> {
        HELD.get(number, |ends| Self::open(path, ends))
    }

    fn open(path: &Path, ends: Ends) -> io::Result<Self> {
        // Nothing is read through it; past the page cache as all of a device.
        let flags = (OFlags::EXCL | OFlags::DIRECT).bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = opened.map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => io::Error::new(
                ErrorKind::ResourceBusy,
                "the host or another program uses this device: it is mounted, part of another \
                 device, or opened exclusively",
            ),
            _ => error,
        })?;
        Ok(Self {
            _file: file,
            _ends: ends,
        })
    }
}
