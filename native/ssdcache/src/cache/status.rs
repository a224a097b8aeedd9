//! What a cache does, as a document.

use std::collections::BTreeMap;

use diffcache_base::sync::atomic::{AtomicU64, Ordering};
use serde::Serialize;

use super::latency::Latency;
use super::volume::Mode;
use super::Cache;
use crate::rates::Rates;

/// The state of a cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Its device.
    pub device: DeviceStatus,
    /// Its volumes by name.
    pub volumes: BTreeMap<String, VolumeStatus>,
}

/// The state of a cache's device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceStatus {
    /// `ok`, `slow` or `failed`.
    pub state: &'static str,
    /// Blocks.
    pub blocks: u32,
    /// Unused blocks.
    pub free: u32,
    /// Blocks that their volumes lack.
    pub dirty: u32,
    /// How cached data are read that are not in memory: `io_uring` or `threads`.
    pub reads: &'static str,
    /// Reads by io_uring.
    pub ring_reads: u64,
    /// Those of them whose data were not as expected, and that were done again by a thread.
    pub ring_refused: u64,
}

/// Microseconds that requests took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Quantiles {
    /// Of half of them at most.
    pub p50: f64,
    /// Of 99 of 100 at most.
    pub p99: f64,
    /// The mean.
    pub mean: f64,
}

/// The state of a volume, with the fields of the document that the daemon returns; see
/// [`Counters`](super::volume::Counters).
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct VolumeStatus {
    pub mode: Mode,
    pub state: &'static str,
    /// Why it is held, or why its dirty blocks could not be written back the last time.
    pub reason: Option<String>,
    pub export: String,
    pub limit: u32,
    pub sequential: u64,
    pub admission: u8,
    pub rates: Rates,
    pub blocks: u32,
    pub dirty: u32,
    pub reads: u64,
    pub writes: u64,
    pub hits: u64,
    pub misses: u64,
    pub evictions: u64,
    pub bypassed: u64,
    pub corrupted: u64,
    pub ssd_bytes_written: u64,
    pub origin_bytes_read: u64,
    pub origin_bytes_written: u64,
    /// What its origin lost, for which flushes fail: offsets and lengths in bytes.
    pub losses: Vec<(u64, u64)>,
    pub latency_us: BTreeMap<&'static str, Quantiles>,
}

impl Cache {
    fn device_state(&self) -> &'static str {
        match (self.has_failed(), self.pace.is_slow()) {
            (true, _) => "failed",
            (false, true) => "slow",
            (false, false) => "ok",
        }
    }

    /// Returns the state of the device and of all volumes.
    #[must_use]
    pub fn status(&self) -> Status {
        let volumes = self.volumes();
        let state = self.lock();
        let of = |volume: &super::Volume| {
            let counters = &volume.counters;
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let latencies = [("hit", &volume.hit), ("miss", &volume.miss)];
            VolumeStatus {
                mode: volume.mode(),
                state: match (volume.is_held(), self.is_left_aside(volume)) {
                    (true, _) => "held",
                    (false, true) => "pass-through",
                    (false, false) => "ok",
                },
                reason: volume.trouble(),
                export: volume.export(),
                limit: state.blocks.limit(volume.partition),
                sequential: volume.sequential(),
                admission: state.blocks.admission(volume.partition),
                rates: volume.throttle().rates(),
                blocks: state.blocks.held(volume.partition),
                dirty: state.blocks.dirty(volume.partition),
                reads: get(&counters.reads),
                writes: get(&counters.writes),
                hits: get(&counters.hits),
                misses: get(&counters.misses),
                evictions: get(&counters.evictions),
                bypassed: get(&counters.bypassed),
                corrupted: get(&counters.corrupted),
                ssd_bytes_written: get(&counters.ssd_bytes_written),
                origin_bytes_read: get(&counters.origin_bytes_read),
                origin_bytes_written: get(&counters.origin_bytes_written),
                losses: volume.lost(),
                latency_us: latencies
                    .map(|(name, latency)| (name, quantiles(latency)))
                    .into(),
            }
        };
        let dirty = volumes
            .iter()
            .map(|v| state.blocks.dirty(v.partition))
            .sum();
        Status {
            device: DeviceStatus {
                state: self.device_state(),
                blocks: state.blocks.capacity(),
                free: state.blocks.unused(),
                dirty,
                reads: match self.files() {
                    Some(_) => "io_uring",
                    None => "threads",
                },
                ring_reads: self.ring_reads.load(Ordering::Relaxed),
                ring_refused: self.ring_refused.load(Ordering::Relaxed),
            },
            volumes: volumes
                .iter()
                .map(|v| (v.name().to_owned(), of(v)))
                .collect(),
        }
    }
}

fn quantiles(latency: &Latency) -> Quantiles {
    Quantiles {
        p50: latency.quantile_us(0.5),
        p99: latency.quantile_us(0.99),
        mean: latency.total().mean_us(),
    }
}
