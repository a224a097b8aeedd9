//! The curves of all volumes of a trace.
//!
//! A pipeline of threads: one reads the trace, one finds the reference before of each reference,
//! one counts distances. A sample is small enough for the second one to do both.

use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;

use diffcache_core::task::{Cancelled, Task};

use super::exact::{Counter, Finder};
use super::sampled::{Sample, Sampler};
use super::Curve;
use crate::trace::{Op, Reader, Request, TraceError};
use crate::Block;

/// References that one thread hands to the next at once, at least.
const PORTION: usize = 1 << 15;
/// Portions between two threads.
const WAITING: usize = 4;

/// How distances are found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Of all references.
    Exact,
    /// Of references to a sample of the blocks.
    Shards(Sample),
}

/// What counts as a reference.
#[derive(Clone, Copy, Debug)]
pub struct References {
    /// Bytes of a block, above 0.
    pub block: u64,
    /// Whether writes are references, as of a cache that keeps what is written.
    pub writes: bool,
}

/// One volume of a trace.
#[derive(Debug)]
pub struct Volume {
    /// As in the trace.
    pub name: String,
    /// Its hits.
    pub curve: Curve,
    /// Part of its blocks that the distances are of.
    pub rate: f64,
}

/// Why there are no curves.
#[derive(Debug, thiserror::Error)]
pub enum AnalysisError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The caller stopped the analysis.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// Returns the curves of all volumes, in the order of their first request.
///
/// `total` is the length of the trace in bytes, for the progress of `task`; 0 if it is unknown.
///
/// # Errors
/// The trace cannot be read, or the caller stopped the task.
pub fn analyse<R: Read + Send>(
    mut reader: Reader<R>,
    references: References,
    method: Method,
    total: u64,
    task: &Task<'_>,
) -> Result<Vec<Volume>, AnalysisError> {
    thread::scope(|scope| {
        let (to_finder, from_reader) = sync_channel(WAITING);
        let (to_counter, from_finder) = sync_channel(WAITING);
        let finder = scope.spawn(move || match method {
            Method::Exact => {
                find_all(&from_reader, &to_counter);
                Vec::new()
            }
            Method::Shards(sample) => sample_all(&from_reader, sample),
        });
        let counter = scope.spawn(move || count_all(&from_finder));
        let result = read_all(&mut reader, references, total, task, &to_finder);
        drop(to_finder);
        let joined = (finder.join(), counter.join());
        result?;
        let (sampled, counted) = match joined {
            (Ok(sampled), Ok(counted)) => (sampled, counted),
            (Err(panic), _) | (_, Err(panic)) => std::panic::resume_unwind(panic),
        };
        let found = match method {
            Method::Exact => counted,
            Method::Shards(_) => sampled,
        };
        let mut found = found.into_iter();
        Ok(reader
            .volumes()
            .names()
            .iter()
            .map(|name| {
                let (curve, rate) = found.next().unwrap_or((Curve::default(), 1.0));
                Volume {
                    name: name.clone(),
                    curve,
                    rate,
                }
            })
            .collect())
    })
}

/// References of one volume, one after the other.
struct Portion {
    volume: u32,
    references: Vec<Block>,
}

fn read_all<R: Read>(
    reader: &mut Reader<R>,
    references: References,
    total: u64,
    task: &Task<'_>,
    output: &SyncSender<Vec<Portion>>,
) -> Result<(), AnalysisError> {
    let mut batch = Vec::new();
    let mut portions = Portions::default();
    loop {
        task.check()?;
        reader.fill(&mut batch)?;
        if batch.is_empty() {
            // A thread that has ended is found when it is joined.
            let _ = output.send(portions.take());
            return Ok(());
        }
        for request in &batch {
            if references.writes || request.op == Op::Read {
                portions.add(request, references.block);
                if portions.size >= PORTION && output.send(portions.take()).is_err() {
                    return Ok(());
                }
            }
        }
        if let Some(progress) = task.progress {
            progress(reader.bytes(), total);
        }
    }
}

/// Collects references; those of a volume stay in their order.
#[derive(Default)]
struct Portions {
    found: Vec<Portion>,
    // By volume, the index of its portion.
    places: Vec<u32>,
    size: usize,
}

const NO_PLACE: u32 = u32::MAX;

impl Portions {
    fn add(&mut self, request: &Request, block: u64) {
        let volume = request.volume as usize;
        if volume >= self.places.len() {
            self.places.resize(volume + 1, NO_PLACE);
        }
        if self.places[volume] == NO_PLACE {
            self.places[volume] = self.found.len() as u32;
            self.found.push(Portion {
                volume: request.volume,
                references: Vec::new(),
            });
        }
        let blocks = request.blocks(block);
        self.size += (blocks.end - blocks.start) as usize;
        self.found[self.places[volume] as usize]
            .references
            .extend(blocks);
    }

    fn take(&mut self) -> Vec<Portion> {
        for portion in &self.found {
            self.places[portion.volume as usize] = NO_PLACE;
        }
        self.size = 0;
        std::mem::take(&mut self.found)
    }
}

fn find_all(input: &Receiver<Vec<Portion>>, output: &SyncSender<Vec<Portion>>) {
    let seeds = RandomState::new();
    let mut finders: Vec<Finder> = Vec::new();
    for mut portions in input {
        for portion in &mut portions {
            let volume = portion.volume as usize;
            while finders.len() <= volume {
                finders.push(Finder::with_seed(seeds.hash_one(finders.len())));
            }
            finders[volume].find(&mut portion.references);
        }
        if output.send(portions).is_err() {
            return;
        }
    }
}

fn count_all(input: &Receiver<Vec<Portion>>) -> Vec<(Curve, f64)> {
    let mut counters: Vec<Counter> = Vec::new();
    for portions in input {
        for portion in portions {
            let volume = portion.volume as usize;
            if counters.len() <= volume {
                counters.resize_with(volume + 1, Counter::default);
            }
            counters[volume].count(&portion.references);
        }
    }
    counters.iter().map(|each| (each.curve(), 1.0)).collect()
}

fn sample_all(input: &Receiver<Vec<Portion>>, sample: Sample) -> Vec<(Curve, f64)> {
    let mut samplers: Vec<Sampler> = Vec::new();
    for portions in input {
        for portion in portions {
            let volume = portion.volume as usize;
            if samplers.len() <= volume {
                samplers.resize_with(volume + 1, || Sampler::new(sample));
            }
            samplers[volume].take(&portion.references);
        }
    }
    samplers
        .iter()
        .map(|each| (each.curve(), each.rate()))
        .collect()
}
