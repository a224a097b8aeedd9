//! Block devices that this process alone uses.
//!
//! A device that a file system of the host, another volume or another process has for itself is no
//! volume to be cached. What opens it with `O_EXCL` is refused by the kernel while another holds it;
//! this process holds it once, however often it opens it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Weak};

use diffcache_base::locks::Unpoisoned;
use rustix::fs::OFlags;

type Held = HashMap<u64, Weak<File>>;

/// Those that are held, by the number of the device.
static HELD: LazyLock<Mutex<Held>> = LazyLock::new(Mutex::default);

fn held() -> MutexGuard<'static, Held> {
    HELD.lock().unpoisoned()
}

/// Holds a device until it is dropped.
pub(super) struct Claim {
    _file: Arc<File>,
}

impl Claim {
    /// Holds the block device at a path, which has this number.
    ///
    /// # Errors
    /// Another program, or the host, uses it.
    pub(super) fn new(path: &Path, number: u64) -> io::Result<Self> {
        if let Some(claim) = Self::held_already(number) {
            return Ok(claim);
        }
        // Nothing is read through it; past the page cache as all of a device.
        let flags = (OFlags::EXCL | OFlags::DIRECT).bits() as i32;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = match opened {
            Ok(file) => Arc::new(file),
            // Another thread may have begun to hold it meanwhile.
            Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                return Self::held_already(number).ok_or_else(|| {
                    let why = "the host or another program uses this device: it is mounted, part \
                               of another device, or opened exclusively";
                    io::Error::new(ErrorKind::ResourceBusy, why)
                });
            }
            Err(error) => return Err(error),
        };
        held().insert(number, Arc::downgrade(&file));
        Ok(Self { _file: file })
    }

    fn held_already(number: u64) -> Option<Self> {
        let mut held = held();
        held.retain(|_, file| file.strong_count() > 0);
        let file = held.get(&number).and_then(Weak::upgrade)?;
        Some(Self { _file: file })
    }
}
