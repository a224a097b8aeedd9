//! A trace played to the partitioner: hits, evictions and who holds how much of the cache.
//!
//! In the time of the trace, without data: what the partitions of a host would have done with the
//! same requests, because it is the same code.

mod epochs;
mod report;

use std::collections::HashMap;
use std::io::BufRead;
use std::num::NonZeroU64;

use diffcache_partitions::eviction::Policy;
use diffcache_partitions::{
    Block, PartitionError, PartitionId, Partitioner, Settings, Streams, VolumeId, MAX_BLOCK,
};
use thiserror::Error;

use crate::trace::{Op, Reader, Request, TraceError};
pub use epochs::{Decide, Decider, EpochVolume, Lengths, Served};
use epochs::{Due, Epochs};
pub use report::{Counts, Report, Row};

/// Numbers that the rows of a report may have in all.
pub const MAX_SAMPLES: usize = 1 << 24;

/// Why a simulation ends early.
#[derive(Debug, Error)]
pub enum SimulateError {
    /// The trace cannot be read
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The sizes do not fit, or there are too many volumes
    #[error(transparent)]
    Partition(#[from] PartitionError),
    /// Volume {0} has no size; add it to --sizes
    #[error("volume {0} has no size; add it to --sizes")]
    NoSize(String),
    /// The caller stopped it
    #[error("stopped")]
    Stopped,
    /// The rows of the report are too many
    #[error("the occupancy has more than {MAX_SAMPLES} numbers; choose a longer interval")]
    Samples,
    /// A request is earlier than one before
    #[error("a request at {time_us} us comes after one at {latest} us, and epochs are of time; sort the trace by time")]
    Unsorted {
        /// When the request was.
        time_us: u64,
        /// When the latest was before it.
        latest: u64,
    },
    /// A block is beyond the largest volume
    #[error("volume {volume}: block {block} is beyond the largest volume")]
    Block {
        /// The volume.
        volume: String,
        /// The block.
        block: Block,
    },
}

/// How volumes share the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sharing {
    /// One eviction order over the blocks of all volumes.
    Unified,
    /// Each volume has a partition of this many blocks.
    Partitioned(Vec<(String, u32)>),
    /// Each volume has a partition whose size is decided after each epoch.
    ///
    /// A volume begins with its share of the cache, as large as any other's.
    Dynamic(Lengths),
}

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Blocks of the cache.
    pub capacity: u32,
    /// Bytes of a block.
    pub block: u64,
    /// How volumes share them.
    pub sharing: Sharing,
    /// Which block leaves a full partition.
    pub eviction: Policy,
    /// Blocks are cached at this reference; at least 1.
    pub admission: u8,
    /// Requests bypass the cache after this many bytes in sequence; 0: never.
    pub sequential: u64,
    /// Whether writes are left out.
    pub ignore_writes: bool,
    /// Microseconds between two rows of the occupancy.
    pub occupancy_us: Option<NonZeroU64>,
}

/// A volume of the trace.
#[derive(Debug)]
struct Volume {
    name: String,
    partition: PartitionId,
    streams: Streams,
    counts: Counts,
}

/// A cache that is fed with requests.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    cache: Partitioner,
    /// By their numbers in the cache.
    volumes: Vec<Volume>,
    by_name: HashMap<String, VolumeId>,
    /// By their numbers in the trace.
    by_number: Vec<Option<VolumeId>>,
    /// Microseconds of the first and the latest request.
    times_us: Option<(u64, u64)>,
    occupancy: Vec<Row>,
    samples: usize,
    epochs: Option<Epochs>,
    sizes: Vec<Row>,
}

impl Simulation {
    /// A simulation without any request.
    ///
    /// # Errors
    /// The sizes do not fit, or there are too many.
    pub fn new(scenario: Scenario) -> Result<Self, SimulateError> {
        let cache = Partitioner::new(Settings {
            capacity: scenario.capacity,
            eviction: scenario.eviction,
            admission: scenario.admission,
            seed: 0,
        });
        let mut simulation = Self {
            cache,
            volumes: Vec::new(),
            by_name: HashMap::new(),
            by_number: Vec::new(),
            times_us: None,
            occupancy: Vec::new(),
            samples: 0,
            epochs: None,
            sizes: Vec::new(),
            scenario,
        };
        match &simulation.scenario.sharing {
            Sharing::Unified => {
                let capacity = simulation.scenario.capacity;
                simulation.cache.add_partition(capacity)?;
            }
            Sharing::Partitioned(sizes) => {
                for (name, size) in sizes.clone() {
                    let partition = simulation.cache.add_partition(size)?;
                    simulation.add_volume(name, partition)?;
                }
            }
            Sharing::Dynamic(lengths) => simulation.epochs = Some(Epochs::new(*lengths)),
        }
        Ok(simulation)
    }

    fn add_volume(
        &mut self,
        name: String,
        partition: PartitionId,
    ) -> Result<VolumeId, SimulateError> {
        let id = self.cache.add_volume(partition)?;
        self.by_name.insert(name.clone(), id);
        self.volumes.push(Volume {
            name,
            partition,
            streams: Streams::new(self.scenario.sequential),
            counts: Counts::default(),
        });
        Ok(id)
    }

    /// Plays one request. `names` has the trace's volumes by their numbers.
    ///
    /// # Errors
    /// The volume has no size, or the request cannot be simulated.
    pub fn play(
        &mut self,
        request: &Request,
        names: &[String],
        decide: Decide<'_>,
    ) -> Result<(), SimulateError> {
        self.advance(request.time_us)?;
        self.end_epoch(request.time_us, decide)?;
        if self.scenario.ignore_writes && request.op == Op::Write {
            return Ok(());
        }
        let blocks = request.blocks(self.scenario.block);
        let id = self.volume_of(request.volume as usize, names)?;
        let volume = &mut self.volumes[usize::from(id)];
        if blocks.end > MAX_BLOCK {
            return Err(SimulateError::Block {
                volume: volume.name.clone(),
                block: blocks.end,
            });
        }
        let bypass = volume
            .streams
            .bypass(request.offset, u64::from(request.length));
        for block in blocks {
            self.refer(id, block, request.op, bypass)?;
        }
        Ok(())
    }

    fn refer(
        &mut self,
        id: VolumeId,
        block: Block,
        op: Op,
        bypass: bool,
    ) -> Result<(), SimulateError> {
        if let Some(epochs) = &mut self.epochs {
            epochs.refer(id, block);
        }
        let counts = &mut self.volumes[usize::from(id)].counts;
        counts.references += 1;
        if self.cache.reference(id, block).is_some() {
            counts.hits += 1;
            counts.written += u64::from(op == Op::Write);
            return Ok(());
        }
        if bypass || !self.cache.admit(id, block) {
            return Ok(());
        }
        match self.cache.insert(id, block) {
            Ok((_, evicted)) => {
                counts.written += 1;
                if let Some(evicted) = evicted {
                    let owner = &mut self.volumes[usize::from(evicted.volume)];
                    owner.counts.evictions += 1;
                }
                Ok(())
            }
            Err(PartitionError::Full) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The volume with a number of the trace.
    fn volume_of(&mut self, number: usize, names: &[String]) -> Result<VolumeId, SimulateError> {
        if let Some(&Some(id)) = self.by_number.get(number) {
            return Ok(id);
        }
        let name = &names[number];
        let id = match (self.by_name.get(name), &self.scenario.sharing) {
            (Some(&id), _) => id,
            (None, Sharing::Unified) => self.add_volume(name.clone(), 0)?,
            (None, Sharing::Partitioned(_)) => return Err(SimulateError::NoSize(name.clone())),
            (None, Sharing::Dynamic(_)) => self.add_equal_share(name.clone())?,
        };
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        self.by_number[number] = Some(id);
        Ok(id)
    }

    /// Adds a volume with its share of the cache; the others give up their part of it.
    fn add_equal_share(&mut self, name: String) -> Result<VolumeId, SimulateError> {
        let count = self.volumes.len() as u64 + 1;
        let capacity = self.scenario.capacity;
        let kept = |limit: u32| (u64::from(limit) * (count - 1) / count) as u32;
        let sizes = self.volumes.iter();
        let sizes: Vec<u32> = sizes
            .map(|volume| kept(self.cache.limit(volume.partition)))
            .collect();
        self.resize(&sizes)?;
        let partition = self
            .cache
            .add_partition((u64::from(capacity) / count) as u32)?;
        let id = self.add_volume(name, partition)?;
        self.note_sizes();
        Ok(id)
    }

    /// Has new sizes decided if an epoch is over, or ends early.
    fn end_epoch(&mut self, time_us: u64, decide: Decide<'_>) -> Result<(), SimulateError> {
        let Some(epochs) = &mut self.epochs else {
            return Ok(());
        };
        let (first, latest) = self.times_us.unwrap_or((time_us, time_us));
        if time_us < latest {
            return Err(SimulateError::Unsorted { time_us, latest });
        }
        match epochs.due(time_us.saturating_sub(first)) {
            Some(Due::End(ended_us)) => self.decide(ended_us, decide),
            Some(Due::Look(looked_us)) => self.look(looked_us, decide),
            None => Ok(()),
        }
    }

    /// Has it decided whether an epoch ends early.
    fn look(&mut self, time_us: u64, decide: Decide<'_>) -> Result<(), SimulateError> {
        let served = self.volumes.iter().map(|volume| self.served(volume));
        let early = decide.ends_early(time_us, served.collect());
        if !early.ok_or(SimulateError::Stopped)? {
            return Ok(());
        }
        if let Some(epochs) = &mut self.epochs {
            epochs.begin(time_us);
        }
        self.decide(time_us, decide)
    }

    fn served(&self, volume: &Volume) -> Served {
        let partition = volume.partition;
        Served {
            name: volume.name.clone(),
            references: volume.counts.references,
            hits: volume.counts.hits,
            full: self.cache.held(partition) >= self.cache.limit(partition),
        }
    }

    /// Has the sizes decided of the epoch that begins at a time.
    fn decide(&mut self, time_us: u64, decide: Decide<'_>) -> Result<(), SimulateError> {
        let Some(mut epochs) = self.epochs.take() else {
            return Ok(());
        };
        let volumes = self.volumes.iter().enumerate();
        let volumes: Vec<EpochVolume> = volumes
            .map(|(id, volume)| EpochVolume {
                served: self.served(volume),
                size: self.cache.limit(volume.partition),
                curve: epochs.curve(id as VolumeId),
            })
            .collect();
        self.epochs = Some(epochs);
        if volumes.is_empty() {
            return Ok(());
        }
        let sizes = decide.decide(time_us, volumes);
        self.resize(&sizes.ok_or(SimulateError::Stopped)?)?;
        self.note_sizes();
        Ok(())
    }

    /// Changes the sizes of all volumes' partitions, in their order.
    fn resize(&mut self, sizes: &[u32]) -> Result<(), SimulateError> {
        let volumes = self.volumes.iter().zip(sizes);
        let limits: Vec<_> = volumes
            .map(|(volume, &size)| (volume.partition, size))
            .collect();
        self.cache.set_limits(&limits)?;
        for (partition, _) in limits {
            while let Some(evicted) = self.cache.shrink(partition) {
                self.volumes[usize::from(evicted.volume)].counts.evictions += 1;
            }
        }
        Ok(())
    }

    /// Adds a row of the sizes if they changed.
    fn note_sizes(&mut self) {
        let (first, latest) = self.times_us.unwrap_or_default();
        let sizes = self.volumes.iter();
        let blocks: Vec<u32> = sizes
            .map(|volume| self.cache.limit(volume.partition))
            .collect();
        if self.sizes.last().is_none_or(|last| last.blocks != blocks) {
            self.sizes.push(Row {
                time_us: latest - first,
                blocks,
            });
        }
    }

    /// Takes the rows of the occupancy that are due before a request at `time_us`.
    fn advance(&mut self, time_us: u64) -> Result<(), SimulateError> {
        let Some((first, latest)) = self.times_us else {
            self.times_us = Some((time_us, time_us));
            return Ok(());
        };
        if let Some(interval) = self.scenario.occupancy_us {
            let due = |rows: usize| interval.get().saturating_mul(rows as u64 + 1);
            while time_us.saturating_sub(first) >= due(self.occupancy.len()) {
                self.sample(due(self.occupancy.len()))?;
            }
        }
        self.times_us = Some((first, latest.max(time_us)));
        Ok(())
    }

    fn sample(&mut self, time_us: u64) -> Result<(), SimulateError> {
        self.samples += self.volumes.len() + 1;
        if self.samples > MAX_SAMPLES {
            return Err(SimulateError::Samples);
        }
        let blocks = |id: usize| self.cache.blocks(id as VolumeId);
        self.occupancy.push(Row {
            time_us,
            blocks: (0..self.volumes.len()).map(blocks).collect(),
        });
        Ok(())
    }

    /// Ends the simulation.
    ///
    /// # Errors
    /// The rows of the report are too many.
    pub fn finish(mut self) -> Result<Report, SimulateError> {
        if self.scenario.occupancy_us.is_some() {
            let (first, latest) = self.times_us.unwrap_or_default();
            self.sample(latest - first)?;
        }
        if self.epochs.is_none() {
            self.times_us = None;
            self.note_sizes();
        }
        Ok(Report {
            sizes: self.sizes,
            occupancy: self.occupancy,
            volumes: self
                .volumes
                .into_iter()
                .map(|volume| (volume.name, volume.counts))
                .collect(),
        })
    }
}

/// Plays a whole trace. `decide` sizes dynamic partitions. `watch` is called every some thousand requests, and stops it with `false`.
///
/// # Errors
/// The trace cannot be read, or not be simulated.
pub fn simulate<R: BufRead>(
    mut reader: Reader<R>,
    scenario: Scenario,
    decide: Decide<'_>,
    watch: &mut dyn FnMut() -> bool,
) -> Result<Report, SimulateError> {
    let mut simulation = Simulation::new(scenario)?;
    let mut batch = Vec::new();
    loop {
        reader.fill(&mut batch)?;
        if batch.is_empty() {
            return simulation.finish();
        }
        for request in &batch {
            simulation.play(request, reader.volumes().names(), decide)?;
        }
        if !watch() {
            return Err(SimulateError::Stopped);
        }
    }
}

#[cfg(test)]
mod tests;
