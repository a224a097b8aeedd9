//! One volume of a cache: its origin, its mode and what it counts.

use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

use serde::Serialize;

use super::latency::Latency;
use crate::device::disk::Disk;
use crate::device::format::VolumeRecord;
use crate::partition::{PartitionId, VolumeId};

/// What a volume's cache does with reads and writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Reads and writes are cached; a write is complete when the origin has it.
    WriteThrough,
    /// Reads are cached; a write makes the cache forget the block.
    WriteAround,
    /// Nothing is read from the cache or cached.
    PassThrough,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::WriteThrough, Self::WriteAround, Self::PassThrough];

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
            Self::WriteAround => "write-around",
            Self::PassThrough => "pass-through",
        }
    }
}

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
    /// Blocks of requests that did not look at the cache.
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
pub struct Volume {
    pub(super) id: VolumeId,
    pub(super) partition: PartitionId,
    pub(super) record: u16,
    pub(super) attachment: VolumeRecord,
    pub(super) origin: Box<dyn Disk>,
    pub(super) counters: Counters,
    pub(super) hit: Latency,
    pub(super) miss: Latency,
    mode: AtomicU8,
}

impl Volume {
    pub(super) fn new(
        (id, partition): (VolumeId, PartitionId),
        record: u16,
        attachment: VolumeRecord,
        origin: Box<dyn Disk>,
        mode: Mode,
    ) -> Self {
        Self {
            id,
            partition,
            record,
            attachment,
            origin,
            counters: Counters::default(),
            hit: Latency::default(),
            miss: Latency::default(),
            mode: AtomicU8::new(mode as u8),
        }
    }

    /// The mode for new requests.
    #[must_use]
    pub fn mode(&self) -> Mode {
        Mode::ALL[usize::from(self.mode.load(Ordering::Acquire)) % Mode::ALL.len()]
    }

    pub(super) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Release);
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attachment.name
    }

    /// Its size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.attachment.size
    }

    /// The name of its export, 32 hexadecimal digits.
    #[must_use]
    pub fn export(&self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.attachment.export))
    }
}
