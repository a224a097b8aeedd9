//! A trace played to the partitioner: hits, evictions and who holds how much of the cache.
//!
//! In the time of the trace, without data: what the partitions of a host would have done with the
//! same requests, because it is the same code.

mod report;

use std::collections::HashMap;
use std::io::Read;
use std::num::NonZeroU64;

use thiserror::Error;

use crate::partition::eviction::Policy;
use crate::partition::{
    PartitionError, PartitionId, Partitioner, Settings, Streams, VolumeId, MAX_BLOCK,
};
use crate::trace::{Op, Reader, Request, TraceError};
use crate::Block;

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
    pub fn play(&mut self, request: &Request, names: &[String]) -> Result<(), SimulateError> {
        self.advance(request.time_us)?;
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
        };
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        self.by_number[number] = Some(id);
        Ok(id)
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
        let sizes = self.volumes.iter();
        let sizes = sizes.map(|volume| self.cache.limit(volume.partition));
        Ok(Report {
            sizes: vec![Row {
                time_us: 0,
                blocks: sizes.collect(),
            }],
            occupancy: self.occupancy,
            volumes: self
                .volumes
                .into_iter()
                .map(|volume| (volume.name, volume.counts))
                .collect(),
        })
    }
}

/// Plays a whole trace. `watch` is called every some thousand requests, and stops it with `false`.
///
/// # Errors
/// The trace cannot be read, or not be simulated.
pub fn simulate<R: Read>(
    mut reader: Reader<R>,
    scenario: Scenario,
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
            simulation.play(request, reader.volumes().names())?;
        }
        if !watch() {
            return Err(SimulateError::Stopped);
        }
    }
}

#[cfg(test)]
mod tests;
