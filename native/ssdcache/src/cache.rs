//! Volumes read and written through a cache device.
//!
//! A request is one reference to each block that it touches. Requests of any number of threads are
//! served at the same time; the lock is held for decisions and for entries of 16 bytes, never while
//! data are read or written. The data of each cached block are checked when they are read.

mod access;
mod attach;
mod flush;
mod latency;
mod live;
mod losses;
pub mod origin;
mod pace;
mod ranges;
mod read;
mod state;
mod status;
mod volume;
mod warm;
mod write_back;
mod zero;

#[cfg(test)]
mod tests;

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use thiserror::Error;

use crate::device::disk::Disk;
use crate::device::format::{checksum, Entry, BLOCK, MAX_ORIGIN, VOLUMES};
use crate::device::losses::LossNotes;
use crate::device::unsaved::Notes;
use crate::device::{Device, DeviceError};
pub use access::{Epoch, Requests};
pub use attach::{origin_id, Attachment};
use diffcache_partitions::eviction::Policy;
use diffcache_partitions::Block;
use diffcache_partitions::{PartitionError, Slot, MAX_ADMISSION, NEVER};
use live::Detached;
use pace::Pace;
pub use read::PendingRead;
use state::dirty::Selection;
use state::{State, Taken, Token};
pub use status::{DeviceStatus, Quantiles, Status, VolumeStatus};
use volume::Counters;
pub use volume::{Mode, Volume};
pub use warm::{Run, Warmed};
pub use write_back::Due;

/// Blocks that are evicted at once when a limit is lowered.
const SHRINK: usize = 1024;
/// Blocks that are read from an origin at once.
const RUN: usize = 256;

/// Why a volume cannot be attached, changed or found.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The device
    #[error("device: {0}")]
    Device(#[from] DeviceError),
    /// The limits
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// The origin
    #[error("origin of volume {name}: {source}")]
    Origin {
        /// The volume.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// The name
    #[error("volume {0}: a name has 1 to 255 bytes and is given once")]
    Name(String),
    /// The volumes
    #[error("a device has at most {VOLUMES} volumes; detach one")]
    Volumes,
    /// The directory for notes
    #[error(
        "volume {name}: it could not be noted whether the device has newer blocks of it: {source}"
    )]
    Note {
        /// The volume.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// Entries of dirty blocks
    #[error("volume {name}: {entries} entries of blocks that were not written back are damaged, and their data are on the device; to detach it without them takes --discard-dirty")]
    Damaged {
        /// The volume.
        name: String,
        /// How many.
        entries: usize,
    },
    /// The number of references
    #[error("volume {0}: blocks are cached at their reference number 1 to {MAX_ADMISSION}; 0 is that of all volumes, {NEVER} caches none")]
    Admission(String),
    /// It is not attached
    #[error("volume {0} is not attached; the status names those that are")]
    Unknown(String),
    /// Another origin
    #[error("volume {0} is attached with another origin; detach it first")]
    Attached(String),
    /// Another volume has its origin
    #[error("volume {name}: its origin is that of volume {other}; detach {other} first")]
    SameOrigin {
        /// The volume.
        name: String,
        /// The one that has the origin.
        other: String,
    },
    /// It is being detached
    #[error("volume {0} is being detached; repeat it when that is done")]
    Detaching(String),
    /// It is not held
    #[error("volume {0} is not held: it is served, and needs not be recovered")]
    NotHeld(String),
    /// Its origin is smaller
    #[error("volume {name}: its origin has {now} bytes, fewer than the {before} that were attached; detach it and attach it again")]
    Smaller {
        /// The volume.
        name: String,
        /// Its size.
        before: u64,
        /// The origin's.
        now: u64,
    },
    /// Another device may have newer blocks
    #[error("volume {name}: another cache device ({device}) may have blocks of it that were not written back; start the cache with that device, or remove {note} to lose them")]
    Elsewhere {
        /// The volume.
        name: String,
        /// The number of the other device.
        device: String,
        /// The file that says so.
        note: PathBuf,
    },
    /// The path of the origin
    #[error("volume {0}: the path of an origin is absolute and has at most {MAX_ORIGIN} bytes")]
    Path(String),
}

impl From<io::Error> for CacheError {
    fn from(error: io::Error) -> Self {
        Self::Device(error.into())
    }
}

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
    state: Mutex<State>,
    volumes: RwLock<Vec<Arc<Volume>>>,
    /// Set when the device failed: whether that was noted.
    failed: OnceLock<bool>,
    note_failure: NoteFailure,
    pace: Pace,
    /// Tell which origins the device may have newer blocks of.
    unsaved: Option<Notes>,
    /// Tell what origins lost.
    loss_notes: Option<LossNotes>,
    options: Options,
    /// Who makes versions of blocks durable.
    committing: Mutex<()>,
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
        Ok(self)
    }

    /// The attached volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<Arc<Volume>> {
        let volumes = self.volumes.read();
        volumes.unwrap_or_else(PoisonError::into_inner).clone()
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Notes that the device failed: from now on nothing is read from it.
    ///
    /// Returns when the note is durable, to each thread, so that nothing is written to a volume
    /// before it.
    fn fail(&self, error: &io::Error) {
        self.failed.get_or_init(|| {
            eprintln!(
                "diffcache-ssdcache: cache device failed, volumes are served without it: {error}"
            );
            let noted = (self.note_failure)(error);
            if let Err(error) = &noted {
                eprintln!(
                    "diffcache-ssdcache: could not note that, writes to volumes fail: {error}"
                );
            }
            noted.is_ok()
        });
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

    /// Erases the entry of the block that a slot had before; the lock is held.
    fn note_taken(&self, taken: Taken) {
        if let Some(evicted) = taken.evicted {
            self.note_eviction(evicted.volume);
            self.erase(taken.slot);
        }
    }

    /// Writes the data of a block to its slot, if it is still owned.
    fn store(&self, volume: &Volume, block: Block, data: &[u8], token: Token) {
        let Some(slot) = self.lock().begin_data(volume.id, block, token) else {
            return;
        };
        let written = self.write_device(data, slot);
        let checksum = checksum(data);
        let mut state = self.lock();
        let valid = state.end_data((volume.id, block), slot, token) && written.is_ok();
        if !valid {
            self.forget(&mut state, slot);
        } else {
            state.blocks.set_checksum(slot, Some(checksum));
            let entry = Entry {
                record: volume.record,
                block,
                checksum,
                dirty: None,
            };
            let entry = Some((entry, volume.attachment.generation));
            if let Err(error) = self.device.write_entry(slot, entry) {
                self.fail(&error);
            }
        }
        drop(state);
        if let Err(error) = written {
            self.fail(&error);
        }
        Counters::add(&volume.counters.ssd_bytes_written, BLOCK as u64);
    }

    fn note_eviction(&self, id: diffcache_partitions::VolumeId) {
        let volumes = self.volumes.read().unwrap_or_else(PoisonError::into_inner);
        // They are in the order of their numbers.
        if let Ok(place) = volumes.binary_search_by_key(&id, |volume| volume.id) {
            Counters::add(&volumes[place].counters.evictions, 1);
        }
    }

    /// Removes the block of a slot, if it has one, with its entry.
    fn forget(&self, state: &mut State, slot: Slot) {
        if state.remove(slot).is_some() {
            self.erase(slot);
        }
    }

    fn erase(&self, slot: Slot) {
        if let Err(error) = self.device.write_entry(slot, None) {
            self.fail(&error);
        }
    }

    /// Writes to a volume. Durable after a [`flush`](Self::flush).
    ///
    /// # Errors
    /// The origin cannot be written, or dirty blocks were lost with the device.
    pub fn write(&self, volume: &Volume, data: &[u8], offset: u64) -> io::Result<()> {
        let blocks = touched(offset, data.len());
        Counters::add(&volume.counters.writes, blocks.end - blocks.start);
        let _entered = volume.enter();
        let passes = volume.passes(offset, data.len());
        let caches = matches!(volume.mode(), Mode::WriteThrough | Mode::WriteBack);
        if caches && !passes && self.is_active(volume) {
            volume.access.note(blocks);
        }
        if volume.mode() == Mode::WriteBack {
            return self.write_behind(volume, data, offset, passes);
        }
        self.write_origin(volume, data, offset, passes)
    }

    /// Writes to the origin, and to the cache in the mode write-through.
    fn write_origin(
        &self,
        volume: &Volume,
        data: &[u8],
        offset: u64,
        passes: bool,
    ) -> io::Result<()> {
        let blocks = touched(offset, data.len());
        let end = offset + data.len() as u64;
        self.change(volume, offset..end, passes, |token| {
            self.put(volume, offset..end, |origin| origin.write_at(data, offset))?;
            Counters::add(&volume.counters.origin_bytes_written, data.len() as u64);
            if volume.mode() == Mode::WriteThrough && self.is_active(volume) {
                for block in blocks.clone() {
                    self.cache_written(volume, block, (data, offset), token);
                }
            }
            Ok(())
        })
    }

    /// Changes a range of the origin, while nothing older than that is cached.
    fn change(
        &self,
        volume: &Volume,
        range: Range<u64>,
        passes: bool,
        work: impl FnOnce(Token) -> io::Result<()>,
    ) -> io::Result<()> {
        let recorded = self.device.begin(volume.record, &range);
        let blocks = touched(range.start, (range.end - range.start) as usize);
        let token = self.begin_writes(volume, blocks.clone(), passes);
        if let Err(error) = &recorded {
            self.fail(error);
        }
        let result = self.check_noted().and_then(|()| work(token));
        let mut state = self.lock();
        for block in blocks {
            if let Some(slot) = state.end_write(volume.id, block, token) {
                self.forget(&mut state, slot);
            }
        }
        drop(state);
        if let Ok(intents) = recorded {
            self.device.intents().end(&intents);
        }
        result
    }

    fn begin_writes(&self, volume: &Volume, blocks: Range<Block>, passes: bool) -> Token {
        let mut state = self.lock();
        let open = state.blocks.admission(volume.partition) < NEVER;
        let through = open && volume.mode() == Mode::WriteThrough && self.is_active(volume);
        let token = state.token();
        let (mut hits, mut misses) = (0, 0);
        for block in blocks {
            let slot = state.begin_write(volume.id, block, token);
            hits += u64::from(slot.is_some());
            misses += u64::from(slot.is_none());
            match slot {
                Some(slot) if through => self.erase(slot),
                Some(slot) => self.forget(&mut state, slot),
                None if through && !passes => {
                    let taken = state.take_for_write(volume.id, block, token);
                    taken.into_iter().for_each(|taken| self.note_taken(taken));
                }
                None => {}
            }
        }
        drop(state);
        if through {
            Counters::add(&volume.counters.hits, hits);
            Counters::add(&volume.counters.misses, misses);
        }
        // The mode write-back has counted them.
        let bypassed = match volume.mode() {
            _ if through => misses * u64::from(passes),
            Mode::WriteBack => 0,
            _ => hits + misses,
        };
        Counters::add(&volume.counters.bypassed, bypassed);
        token
    }

    /// Caches a block that was written; what the write does not cover is read from the origin.
    fn cache_written(
        &self,
        volume: &Volume,
        block: Block,
        (data, offset): (&[u8], u64),
        token: Token,
    ) {
        let start = block * BLOCK as u64;
        let covered = offset <= start && start + BLOCK as u64 <= offset + data.len() as u64;
        if covered {
            let from = (start - offset) as usize;
            return self.store(volume, block, &data[from..from + BLOCK], token);
        }
        if self.lock().owned(volume.id, block, token).is_none() {
            return;
        }
        let mut whole = [0; BLOCK];
        let inside = BLOCK.min((volume.size() - start) as usize);
        // Without it the block stays invalid, and is removed.
        if self
            .read_origin(volume, &mut whole[..inside], start)
            .is_ok()
        {
            self.store(volume, block, &whole, token);
        }
    }

    /// Makes dirty blocks durable on the device, flushes all origins, and clears all intents. Without
    /// requests since, a power cut loses nothing: blocks that are dirty stay on the device.
    ///
    /// # Errors
    /// An origin or the device cannot be flushed.
    pub fn close(&self) -> io::Result<()> {
        self.commit()?;
        let cleared = self.clear(&self.device.intents().finished());
        let volumes = self.volumes();
        // The device keeps what held ones lack.
        let mut clean = volumes
            .iter()
            .filter(|v| !v.is_held() && self.dirty_blocks(v) == 0);
        let ended = clean.try_for_each(|v| self.end_unsaved(v));
        cleared.and(ended.map_err(io::Error::other))
    }

    /// Changes what a volume's cache does. What it has stays valid in any mode; dirty blocks are
    /// written back before another mode than write-back begins.
    ///
    /// # Errors
    /// Dirty blocks cannot be written back, and the mode is as before; or a note cannot be written,
    /// or not be removed; or a volume that is to be in write-back is being detached.
    pub fn set_mode(&self, volume: &Volume, mode: Mode) -> Result<(), CacheError> {
        if mode != Mode::WriteBack {
            // Most of it while the volume can be written.
            self.write_back_now(volume)?;
        }
        let _closed = volume.close_gate();
        if mode == Mode::WriteBack {
            // What is written from now on would be lost with the record.
            if volume.ending.load(Ordering::Acquire) {
                return Err(CacheError::Detaching(volume.name().to_owned()));
            }
            self.begin_unsaved(volume)?;
            // Before the first dirty block: a start writes those back of another mode.
            self.keep(volume, |kept| kept.mode = mode as u8)?;
            volume.set_mode(mode);
            return Ok(());
        }
        self.drain(volume)?;
        volume.set_mode(mode);
        self.keep(volume, |kept| kept.mode = mode as u8)?;
        self.end_unsaved(volume)
    }

    /// Changes the most blocks of a volume, and evicts those above. Dirty ones are written back
    /// before.
    ///
    /// # Errors
    /// The limits do not fit, or dirty blocks cannot be written back.
    pub fn set_limit(&self, volume: &Volume, limit: u32) -> Result<(), CacheError> {
        self.lock()
            .blocks
            .set_limits(&[(volume.partition, limit)])?;
        self.keep(volume, |kept| kept.limit = limit)?;
        self.shrink(volume)
    }

    /// Evicts the blocks of a volume above its limits.
    fn shrink(&self, volume: &Volume) -> Result<(), CacheError> {
        loop {
            self.evict_excess(volume);
            let state = self.lock();
            let (held, limit) = (
                state.blocks.held(volume.partition),
                state.blocks.limit(volume.partition),
            );
            let dirty = state.blocks.dirty(volume.partition);
            drop(state);
            let excess = dirty.saturating_sub(self.options.dirty_max.of(limit));
            if excess > 0 || held > limit && dirty > 0 {
                let most = excess.max(held.saturating_sub(limit)) as usize;
                self.write_back(volume, &Selection::Oldest(most))
                    .map_err(|source| origin_error(volume, source))?;
            } else if held <= limit {
                return Ok(());
            }
        }
    }

    /// Evicts the clean blocks of a volume above its limit.
    fn evict_excess(&self, volume: &Volume) {
        loop {
            let mut state = self.lock();
            for _ in 0..SHRINK {
                let Some(evicted) = state.blocks.shrink(volume.partition) else {
                    return;
                };
                Counters::add(&volume.counters.evictions, 1);
                state.disown(evicted.slot);
                self.erase(evicted.slot);
            }
        }
    }

    /// Removes all cached blocks of a volume. Dirty ones are written back before, or lost if they
    /// are to be discarded.
    ///
    /// # Errors
    /// Dirty blocks cannot be written back, or the device cannot be flushed.
    pub fn invalidate(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        let _closed = volume.close_gate();
        self.empty(volume, discard_dirty)
    }

    /// Removes all cached blocks of a volume that is not being written.
    fn empty(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        if !discard_dirty {
            self.drain(volume)?;
        }
        let _writing_back = self.begin_writing_back(volume);
        let _committing = self.begin_committing();
        let had_dirty = self.dirty_blocks(volume) > 0;
        self.drop_blocks(volume, |slot| self.erase(slot));
        let damaged = match discard_dirty {
            true => std::mem::take(&mut *volume::lock(&volume.damaged)),
            false => Vec::new(),
        };
        for slot in &damaged {
            self.forget(&mut self.lock(), *slot);
        }
        if (had_dirty || !damaged.is_empty()) && !self.has_failed() {
            self.device.sync()?;
        }
        Ok(())
    }

    fn drop_blocks(&self, volume: &Volume, dropped: impl Fn(Slot)) {
        loop {
            let mut state = self.lock();
            for _ in 0..SHRINK {
                let Some(evicted) = state.blocks.pop(volume.id) else {
                    return;
                };
                state.disown(evicted.slot);
                let older = state.forget_version(evicted.slot);
                older.into_iter().for_each(&dropped);
                dropped(evicted.slot);
            }
        }
    }
}

fn origin_error(volume: &Volume, source: io::Error) -> CacheError {
    CacheError::Origin {
        name: volume.name().to_owned(),
        source,
    }
}

/// The error of a block that the origin lacks and the device does not have.
fn lost(volume: &Volume, block: Block) -> io::Error {
    io::Error::other(format!(
        "block {block} of volume {} was not written back, and is damaged on the cache device",
        volume.name()
    ))
}

/// The blocks that a range touches.
fn touched(offset: u64, length: usize) -> Range<Block> {
    if length == 0 {
        return 0..0;
    }
    let end = offset + length as u64;
    offset / BLOCK as u64..end.div_ceil(BLOCK as u64)
}
