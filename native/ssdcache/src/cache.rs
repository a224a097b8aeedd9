//! Volumes read and written through a cache device.
//!
//! A request is one reference to each block that it touches. Requests of any number of threads are
//! served at the same time; the lock is held for decisions, and for some of them at a time where there
//! are many, never while the device or an origin is read or written. The data of each cached block are checked when they are read.

mod access;
mod attach;
mod attachment;
mod background;
mod entries;
mod error;
mod fates;
mod flush;
mod latency;
mod lent;
mod live;
mod losses;
pub mod origin;
mod pace;
mod ranges;
mod read;
mod settings;
mod state;
mod status;
pub mod throttle;
mod volume;
mod warm;
mod write;
mod write_back;
mod write_behind;
mod zero;

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use diffcache_base::locks::{begin, ShortGuard, ShortLock, Unpoisoned};
use diffcache_base::sync::atomic::AtomicU64;
use diffcache_base::sync::{Arc, Condvar, Mutex, RwLock};
use diffcache_partitions::eviction::Policy;
use diffcache_partitions::Block;

use crate::device::disk::{Disk, Files};
use crate::device::format::BLOCK;
use crate::device::losses::LossNotes;
use crate::device::unsaved::Notes;
use crate::device::{Device, DeviceError};
pub use access::{Epoch, Requests};
pub use attachment::Attachment;
pub use background::Task;
pub use error::CacheError;
use error::{lost, origin_error};
use live::Detached;
pub use origin::origin_id;
use pace::Pace;
pub use read::PendingRead;
use state::dirty::Selection;
use state::State;
pub use status::{DeviceStatus, Quantiles, Status, VolumeStatus};

pub use volume::{Mode, Volume};
pub use warm::{Run, Warmed};

/// Blocks that are read from an origin at once.
const RUN: usize = 256;

/// How a cache works.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which block leaves a full partition.
    pub eviction: Policy,
    /// Blocks are cached at this reference.
    pub admission: u8,
    /// The most dirty blocks of a volume.
    pub dirty_max: DirtyMax,
    /// Dirty blocks are written back after this time.
    pub dirty_age: Duration,
    /// Whether dirty blocks are lost that cannot be kept.
    pub discard_dirty: bool,
    /// Blocks of each volume that are followed for its curve; 0: none.
    pub samples: usize,
}

/// The most blocks of a volume that its origin lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirtyMax {
    /// As many.
    Blocks(u32),
    /// Of 100 blocks of the volume's limit.
    Percent(u8),
}

impl DirtyMax {
    /// The most of a volume with a limit.
    fn of(self, limit: u32) -> u32 {
        match self {
            Self::Blocks(blocks) => blocks.min(limit),
            Self::Percent(percent) => (u64::from(limit) * u64::from(percent) / 100) as u32,
        }
    }
}

/// Notes durably, and not on the device, that the device failed.
///
/// What is written to volumes afterwards cannot be recorded on the device: a cache that is opened
/// again would have older blocks.
pub type NoteFailure = Box<dyn Fn(&io::Error) -> io::Result<()> + Send + Sync>;

/// A cache device with volumes.
pub struct Cache {
    device: Device,
    state: ShortLock<State>,
    /// Entries were written.
    written: Condvar,
    volumes: RwLock<Vec<Arc<Volume>>>,
    /// Set when the device failed: whether that was noted.
    failed: OnceLock<bool>,
    note_failure: NoteFailure,
    pace: Pace,
    /// Reads of pieces, and those that were not as expected.
    ring_reads: AtomicU64,
    ring_refused: AtomicU64,
    /// Blocks that the device did not return.
    unreadable: AtomicU64,
    /// Tell which origins the device may have newer blocks of.
    unsaved: Option<Notes>,
    /// Tell what origins lost.
    loss_notes: Option<LossNotes>,
    options: Options,
    /// Who changes which volumes there are; has those that clients may still use.
    detached: Mutex<Vec<Detached>>,
}

impl Cache {
    /// Has a failure of the device noted; without it, a device that failed and works again must
    /// not be opened again.
    #[must_use]
    pub fn noting_failure(mut self, note: NoteFailure) -> Self {
        self.note_failure = note;
        self
    }

    /// Has it noted which origins the device may have newer blocks of; without it, nothing shows
    /// that a device with such blocks was lost.
    ///
    /// # Errors
    /// It cannot be noted.
    pub fn noting_unsaved(mut self, notes: Notes) -> Result<Self, CacheError> {
        self.unsaved = Some(notes);
        // Of held ones, there is the note of the device that has their dirty blocks.
        for volume in self.volumes().iter().filter(|volume| !volume.is_held()) {
            match volume.mode() {
                Mode::WriteBack => self.begin_unsaved(volume)?,
                _ => self.end_unsaved(volume)?,
            }
        }
        self.forget_unsaved_others();
        Ok(self)
    }

    /// The device's files for reads of [pieces](Self::pieces), if they are open.
    #[must_use]
    pub fn files(&self) -> Option<&Files> {
        self.device.files()
    }

    /// The attached volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        let volumes = self.volumes.read();
        volumes.unpoisoned().clone()
    }

    /// The volume with a name.
    ///
    /// # Errors
    /// There is none.
    pub fn volume(&self, name: &str) -> Result<Arc<Volume>, CacheError> {
        let volumes = self.volumes();
        let found = volumes.into_iter().find(|volume| volume.name() == name);
        found.ok_or_else(|| CacheError::Unknown(name.to_owned()))
    }

    fn lock(&self) -> ShortGuard<'_, State> {
        let state = self.state.lock();
        debug_assert!(!state.has_fresh(), "entries were changed and not written");
        state
    }

    /// Whether requests look at the cache.
    fn is_active(&self, volume: &Volume) -> bool {
        volume.mode() != Mode::PassThrough && !self.is_left_aside(volume)
    }

    /// Whether a volume is served without the device, whatever its mode is.
    fn is_left_aside(&self, volume: &Volume) -> bool {
        self.has_failed() || volume.mode() != Mode::WriteBack && self.pace.is_slow()
    }

    fn has_failed(&self) -> bool {
        self.failed.get().is_some()
    }

    /// Whether a start refuses the device: what it has does not matter any more.
    fn is_failure_noted(&self) -> bool {
        self.failed.get() == Some(&true)
    }

    /// Notes that the device failed, if an error is one of the device.
    fn fail_by(&self, error: &CacheError) {
        if let CacheError::Device(DeviceError::Io(error)) = error {
            self.fail(error);
        }
    }

    /// Notes that the device failed: from now on nothing is read from it.
    ///
    /// Returns when the note is durable, to each thread, so that nothing is written to a volume
    /// before it.
    fn fail(&self, error: &io::Error) {
        begin("note a failure");
        self.failed.get_or_init(|| {
            log::error!("Cache device failed, volumes are served without it: {error}");
            let noted = (self.note_failure)(error);
            if let Err(error) = &noted {
                log::error!("Could not note that, writes to volumes fail: {error}");
            }
            noted.is_ok()
        });
        self.refresh_lent();
    }

    /// Refuses a write that a cache which is opened again would not know of.
    fn check_noted(&self) -> io::Result<()> {
        match self.failed.get() {
            Some(false) => Err(io::Error::other(
                "the cache device failed, and that could not be noted",
            )),
            _ => Ok(()),
        }
    }

    /// Flushes the origin of a volume, and clears its intents. Without requests since, and after
    /// [`commit`](Self::commit), a power cut loses nothing: blocks that are dirty stay on the device.
    ///
    /// # Errors
    /// The origin or the device cannot be flushed.
    pub fn close(&self, volume: &Volume) -> io::Result<()> {
        let cleared = self.clear(volume, &self.device.intents().finished(volume.record));
        // The device keeps what held ones lack.
        if !volume.is_held() && self.dirty_blocks(volume) == 0 {
            self.end_unsaved(volume).map_err(io::Error::other)?;
        }
        cleared
    }
}

/// The blocks that a range touches.
fn touched(offset: u64, length: usize) -> Range<Block> {
    if length == 0 {
        return 0..0;
    }
    let end = offset + length as u64;
    offset / BLOCK as u64..end.div_ceil(BLOCK as u64)
}
