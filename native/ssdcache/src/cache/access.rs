//! What the requests of a volume refer to, sampled: the curve of each epoch, and its latencies.
//!
//! Requests count their references and compare the hashes of their blocks with the sample's threshold
//! without a lock; only blocks of the sample take it.

use std::ops::Range;
use std::time::Instant;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::atomic::{AtomicU64, Ordering};
use diffcache_base::sync::{Arc, Mutex, MutexGuard};
use diffcache_partitions::curve::sampled::{is_sampled, Sample, Sampler};
use diffcache_partitions::curve::Curve;
use diffcache_partitions::Block;
use serde::Serialize;

use super::latency::{Latency, Total};
use super::Cache;
use crate::shared::hits::MOST;

/// Steps of a curve that is shown, at most.
const STEPS: usize = 1000;

/// Requests of a volume that were answered from the cache, or not, in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Requests {
    /// Reads.
    pub count: u64,
    /// Their mean latency in microseconds; 0 without any.
    pub mean_us: f64,
}

/// What was requested of a volume in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Epoch {
    /// Its length.
    pub seconds: f64,
    /// References to blocks that are cached if there is room.
    pub references: u64,
    /// Different blocks of them: the working set.
    pub distinct: u64,
    /// The part of the blocks that were sampled.
    pub sampled: f64,
    /// Sizes in blocks where the hits become more, and the hits.
    pub hits: Vec<(u64, u64)>,
    /// Reads that were answered from the cache alone.
    pub hit: Requests,
    /// Other reads.
    pub miss: Requests,
}

struct State {
    sampler: Sampler,
    begin: Instant,
    totals: [Total; 2],
    last: Option<Arc<Epoch>>,
}

/// References to the blocks of a volume.
pub(super) struct Access {
    /// Those not yet passed to the sampler.
    references: AtomicU64,
    threshold: AtomicU64,
    state: Mutex<State>,
}

impl Access {
    /// Follows at most this many blocks; none if it is 0.
    pub(super) fn new(samples: usize) -> Self {
        let sampler = Sampler::new(Sample::Blocks(samples));
        Self {
            references: AtomicU64::new(0),
            threshold: AtomicU64::new(if samples == 0 { 0 } else { sampler.threshold() }),
            state: Mutex::new(State {
                sampler,
                begin: Instant::now(),
                totals: [Total::default(); 2],
                last: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Notes references to blocks.
    pub(super) fn note(&self, blocks: Range<Block>) {
        let threshold = self.threshold.load(Ordering::Relaxed);
        if threshold == 0 {
            return;
        }
        self.references
            .fetch_add(blocks.end - blocks.start, Ordering::Relaxed);
        for block in blocks.filter(|block| is_sampled(*block, threshold)) {
            let mut state = self.lock();
            state.sampler.take_sampled(block);
            let now = state.sampler.threshold();
            self.threshold.store(now, Ordering::Relaxed);
        }
    }

    /// Ends an epoch, and begins another.
    fn cut(&self, hit: &Latency, miss: &Latency) {
        let mut state = self.lock();
        let references = self.references.swap(0, Ordering::Relaxed);
        let totals = [hit.total(), miss.total()];
        let since = |kind: usize| {
            let total = totals[kind].since(state.totals[kind]);
            Requests {
                count: total.count,
                mean_us: total.mean_us(),
            }
        };
        let (hit, miss) = (since(0), since(1));
        let sampled = state.sampler.rate();
        let curve: Curve = state.sampler.cut(references);
        let steps = curve.thinned(STEPS).into_iter();
        let now = Instant::now();
        let epoch = Epoch {
            seconds: (now - state.begin).as_secs_f64(),
            references: curve.references,
            distinct: curve.distinct,
            sampled,
            hits: steps.map(|step| (step.size, step.hits)).collect(),
            hit,
            miss,
        };
        state.begin = now;
        state.totals = totals;
        state.last = Some(Arc::new(epoch));
    }

    /// The epoch that ended last, if one did.
    pub(super) fn last(&self) -> Option<Arc<Epoch>> {
        self.lock().last.clone()
    }
}

impl Cache {
    /// Ends an epoch of all volumes: [`epoch`](super::Volume::epoch) returns this one from now on.
    pub fn end_epoch(&self) {
        for volume in self.volumes() {
            self.take_hits(&volume, MOST);
            volume.access.cut(&volume.hit, &volume.miss);
        }
    }
}
