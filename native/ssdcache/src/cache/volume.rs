//! One volume of a cache: its origin, its mode and what it counts.

use std::ops::Range;
use std::time::{Duration, Instant};

use diffcache_base::locks::{begin, Unpoisoned};
use diffcache_base::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use diffcache_base::sync::{
    Arc, Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
};
use diffcache_partitions::{Block, PartitionId, Slot, Streams, VolumeId};
use serde::Serialize;

use super::access::{Access, Epoch};
use super::latency::Latency;
use super::losses::Losses;
use super::origin::held::Held;
use super::throttle::Throttle;
use crate::device::disk::Disk;
use crate::device::format::{DirtyVersion, Entry, Kept, VolumeRecord};
use crate::shared::Lent;

/// What a volume's cache does with reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reads and writes are cached; a write is complete when the origin has it.
    WriteThrough,
    /// Reads and writes are cached; a write is complete when the cache has it, and it is written to
    /// the origin later.
    WriteBack,
    /// Reads are cached; a write makes the cache forget the block.
    WriteAround,
    /// Nothing is read from the cache or cached.
    PassThrough,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [
        Self::WriteThrough,
        Self::WriteBack,
        Self::WriteAround,
        Self::PassThrough,
    ];

    /// The mode of a number that [`as u8`](Self::ALL) gives; write-through for others.
    #[must_use]
    pub fn numbered(number: u8) -> Self {
        Self::ALL
            .into_iter()
            .find(|mode| *mode as u8 == number)
            .unwrap_or(Self::WriteThrough)
    }

    /// The mode of a name as options give it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// Its name in options and documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBack => "write-back",
            Self::WriteAround => "write-around",
            Self::PassThrough => "pass-through",
        }
    }
}

/// After an error, blocks are written back again after this time.
const PAUSE: Duration = Duration::from_secs(5);

/// Counters of a volume.
#[derive(Debug, Default)]
pub struct Counters {
    /// Blocks that were read.
    pub reads: AtomicU64,
    /// Blocks that were written.
    pub writes: AtomicU64,
    /// References to cached blocks.
    pub hits: AtomicU64,
    /// References to other blocks.
    pub misses: AtomicU64,
    /// Blocks of the volume that left the cache for others.
    pub evictions: AtomicU64,
    /// Blocks of requests that did not look at the cache, or did not change it because they
    /// continued a sequence.
    pub bypassed: AtomicU64,
    /// Cached blocks whose data were not what was written.
    pub corrupted: AtomicU64,
    /// Bytes written to the cache.
    pub ssd_bytes_written: AtomicU64,
    /// Bytes read from the origin.
    pub origin_bytes_read: AtomicU64,
    /// Bytes written to the origin.
    pub origin_bytes_written: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// A volume of a cache.
///
/// Its fields are many, as each request, the writing back and the settings lock what they need of it
/// alone.
pub struct Volume {
    pub(super) id: VolumeId,
    pub(super) partition: PartitionId,
    pub(super) record: u16,
    /// Of it, the size and the settings change.
    pub(super) attachment: VolumeRecord,
    size: AtomicU64,
    kept: Mutex<Option<Kept>>,
    /// Whether it is being detached.
    pub(super) ending: AtomicBool,
    origin: Box<dyn Disk>,
    /// The origin, if it is held.
    pub(super) held: Option<Arc<Held>>,
    pub(super) counters: Counters,
    pub(super) hit: Latency,
    pub(super) miss: Latency,
    pub(super) access: Access,
    pub(super) writing: BlockLocks,
    /// Who gives it another size.
    pub(super) resizing: Mutex<()>,
    /// Who writes dirty blocks back.
    pub(super) writing_back: Mutex<()>,
    /// Who makes versions of its blocks durable.
    pub(super) committing: Mutex<()>,
    mode: AtomicU8,
    /// Changes of the mode that began.
    mode_changes: AtomicU64,
    /// The mode that follows write-back once a start has written all dirty blocks back.
    following: Mutex<Option<Mode>>,
    /// Why blocks could not be written back, and when.
    failure: Mutex<Option<(Instant, String)>>,
    /// Whether they are being written back because that is due.
    pub(super) is_due: AtomicBool,
    /// Whether intents are being cleared.
    pub(super) is_settling: AtomicBool,
    /// Slots of dirty blocks whose entries are damaged: it is not known which blocks they are.
    pub(super) damaged: Mutex<Vec<Slot>>,
    /// Requests pass the cache by after this many bytes in sequence; 0: never.
    sequential: AtomicU64,
    streams: Mutex<Streams>,
    /// Writes share it; a change of the mode takes it for itself.
    gate: RwLock<()>,
    pub(super) losses: Losses,
    throttle: Throttle,
    /// What the process of a guest sees of it.
    pub(super) lent: RwLock<Option<Arc<Lent>>>,
}

/// Ranges of blocks that are being written, each by one request.
#[derive(Default)]
pub(super) struct BlockLocks {
    held: Mutex<Vec<Range<Block>>>,
    released: Condvar,
}

impl BlockLocks {
    /// Waits until no other request writes a block of a range.
    pub(super) fn lock(&self, range: Range<Block>) -> BlockLock<'_> {
        let overlaps = |other: &Range<Block>| range.start < other.end && other.start < range.end;
        let held = self.held.lock().unpoisoned();
        let waited = self
            .released
            .wait_while(held, |held| held.iter().any(overlaps));
        let mut held = waited.unpoisoned();
        held.push(range.clone());
        drop(held);
        BlockLock { locks: self, range }
    }
}

/// A range of blocks that others wait for.
pub(super) struct BlockLock<'a> {
    locks: &'a BlockLocks,
    range: Range<Block>,
}

impl Drop for BlockLock<'_> {
    fn drop(&mut self) {
        let held = self.locks.held.lock();
        let mut held = held.unpoisoned();
        if let Some(place) = held.iter().position(|range| *range == self.range) {
            held.swap_remove(place);
        }
        drop(held);
        self.locks.released.notify_all();
    }
}

impl Volume {
    pub(super) fn new(
        (id, partition): (VolumeId, PartitionId),
        record: u16,
        attachment: VolumeRecord,
        (origin, held): (Box<dyn Disk>, Option<Arc<Held>>),
        mode: Mode,
        (sequential, samples): (u64, usize),
    ) -> Self {
        Self {
            id,
            partition,
            record,
            size: AtomicU64::new(attachment.size),
            kept: Mutex::new(attachment.kept.clone()),
            ending: AtomicBool::new(false),
            attachment,
            origin,
            held,
            counters: Counters::default(),
            hit: Latency::default(),
            miss: Latency::default(),
            access: Access::new(samples),
            writing: BlockLocks::default(),
            resizing: Mutex::default(),
            writing_back: Mutex::default(),
            committing: Mutex::default(),
            mode: AtomicU8::new(mode as u8),
            mode_changes: AtomicU64::new(0),
            following: Mutex::default(),
            failure: Mutex::default(),
            is_due: AtomicBool::new(false),
            is_settling: AtomicBool::new(false),
            damaged: Mutex::default(),
            sequential: AtomicU64::new(sequential),
            streams: Mutex::new(Streams::new(sequential)),
            gate: RwLock::default(),
            losses: Losses::default(),
            throttle: Throttle::default(),
            lent: RwLock::default(),
        }
    }

    /// Its origin, for what may take long.
    pub(super) fn origin(&self) -> &dyn Disk {
        begin("use an origin");
        self.origin.as_ref()
    }

    /// The entry of a slot with one of its blocks, with the generation of its attachment.
    pub(super) fn entry(
        &self,
        block: Block,
        checksum: u32,
        dirty: Option<DirtyVersion>,
    ) -> Option<(Entry, u64)> {
        let entry = Entry {
            record: self.record,
            block,
            checksum,
            dirty,
        };
        Some((entry, self.attachment.generation))
    }

    /// Notes a request, and returns whether it continues a sequence that passes the cache by.
    pub(super) fn passes(&self, offset: u64, length: usize) -> bool {
        // Most volumes have none: no lock for them.
        self.sequential.load(Ordering::Relaxed) > 0 && self.streams().bypass(offset, length as u64)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unpoisoned()
    }

    pub(super) fn set_sequential(&self, bytes: u64) {
        self.streams().set_cutoff(bytes);
        self.sequential.store(bytes, Ordering::Relaxed);
    }

    /// The bytes in sequence after which requests pass the cache by; 0: never.
    #[must_use]
    pub fn sequential(&self) -> u64 {
        self.sequential.load(Ordering::Relaxed)
    }

    /// Begins a write; the mode stays until it ends.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, ()> {
        self.gate.read().unpoisoned()
    }

    /// Waits for the end of all writes; others wait for the caller.
    pub(super) fn close_gate(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unpoisoned()
    }

    /// The mode for new requests.
    #[must_use]
    pub fn mode(&self) -> Mode {
        Mode::ALL[usize::from(self.mode.load(Ordering::Acquire)) % Mode::ALL.len()]
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        *self.following.lock().unpoisoned() = None;
        self.mode.store(mode as u8, Ordering::Release);
    }

    /// Begins a change of the mode, and returns its number. It may wait for the origin, and what began
    /// since counts.
    pub(super) fn begin_mode(&self) -> u64 {
        self.mode_changes.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The number of the change of the mode that began last.
    pub(super) fn last_mode_change(&self) -> u64 {
        self.mode_changes.load(Ordering::Acquire)
    }

    /// Has the mode be write-back until all dirty blocks were written back, and then the one that it
    /// is now.
    pub(super) fn postpone_mode(&self) {
        let mode = self.mode();
        self.set_mode(Mode::WriteBack);
        *self.following.lock().unpoisoned() = Some(mode);
    }

    /// The mode that is postponed.
    pub(super) fn following_mode(&self) -> Option<Mode> {
        *self.following.lock().unpoisoned()
    }

    /// Dirty blocks whose entries are damaged.
    pub(super) fn damaged_entries(&self) -> usize {
        self.damaged.lock().unpoisoned().len()
    }

    /// What was requested in the epoch that ended last, if one did.
    #[must_use]
    pub fn epoch(&self) -> Option<Arc<Epoch>> {
        self.access.last()
    }

    /// Why it is held, or why its dirty blocks could not be written back the last time.
    pub(super) fn trouble(&self) -> Option<String> {
        let held = self.held.as_ref().map(|held| held.reason().to_owned());
        let failed = || {
            self.failure
                .lock()
                .unpoisoned()
                .as_ref()
                .map(|(_, why)| why.clone())
        };
        held.or_else(failed)
    }

    /// Notes why dirty blocks could not be written back, or that they were. Returns whether this is
    /// another reason than before.
    pub(super) fn note_failure(&self, reason: Option<String>) -> bool {
        let mut failure = self.failure.lock().unpoisoned();
        let before = failure.as_ref().map(|(_, why)| why);
        let is_new = before != reason.as_ref();
        *failure = reason.map(|why| (Instant::now(), why));
        is_new
    }

    /// Whether blocks are written back that are due: not for a while after that failed.
    pub(super) fn may_retry(&self) -> bool {
        let failure = self.failure.lock().unpoisoned();
        failure
            .as_ref()
            .is_none_or(|(when, _)| when.elapsed() > PAUSE)
    }

    /// What its requests wait for before they begin.
    #[must_use]
    pub fn throttle(&self) -> &Throttle {
        &self.throttle
    }

    /// Whether nothing is written to its origin until it is recovered.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Bytes that were written to its origin.
    #[must_use]
    pub fn origin_bytes_written(&self) -> u64 {
        self.counters.origin_bytes_written.load(Ordering::Relaxed)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attachment.name
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(super) fn set_size(&self, size: u64) {
        self.size.store(size, Ordering::Release);
    }

    /// The settings that a start finds, of an attachment that stays until it is detached.
    pub(super) fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unpoisoned()
    }

    /// Its record as it is to be now.
    pub(super) fn record_now(&self) -> VolumeRecord {
        self.record_with(self.kept().clone())
    }

    /// Its record with settings.
    pub(super) fn record_with(&self, kept: Option<Kept>) -> VolumeRecord {
        VolumeRecord {
            size: self.size(),
            kept,
            ..self.attachment.clone()
        }
    }

    /// The name of its export, 32 hexadecimal digits.
    #[must_use]
    pub fn export(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.attachment.export))
    }
}
