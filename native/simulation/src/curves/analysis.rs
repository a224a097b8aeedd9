//! The curves of all volumes of a trace.

use std::hash::{BuildHasher, RandomState};
use std::io::BufRead;
use std::iter;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::thread;

use diffcache_core::task::{Cancelled, Task};
use diffcache_partitions::curve::sampled::{Sample, Sampler};
use diffcache_partitions::curve::Curve;
use diffcache_partitions::Block;

use super::exact::{Counter, Finder};
use crate::trace::{Op, Reader, Request, TraceError};

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
pub fn analyse<R: BufRead>(
    mut reader: Reader<R>,
    references: References,
    method: Method,
    total: u64,
    task: &Task<'_>,
) -> Result<Vec<Volume>, AnalysisError> {
    let mut source = Source {
        reader: &mut reader,
        references,
        total,
        task,
    };
    let found = match method {
        Method::Exact => exact(&mut source)?,
        Method::Shards(sample) => sampled(&mut source, sample)?,
    };
    // The last volumes have no curve if nothing of them counts.
    let found = found
        .into_iter()
        .map(Some)
        .chain(iter::repeat_with(|| None));
    let names = reader.volumes().names().iter();
    let volume = |(name, found): (&String, Option<(Curve, f64)>)| {
        let (curve, rate) = found.unwrap_or((Curve::default(), 1.0));
        let name = name.clone();
        Volume { name, curve, rate }
    };
    Ok(names.zip(found).map(volume).collect())
}

/// A trace, of which some requests are references.
struct Source<'a, R> {
    reader: &'a mut Reader<R>,
    references: References,
    total: u64,
    task: &'a Task<'a>,
}

impl<R: BufRead> Source<'_, R> {
    /// Calls `take` with each request that counts; it may stop before the end, with `false`.
    fn read(&mut self, mut take: impl FnMut(&Request) -> bool) -> Result<(), AnalysisError> {
        let writes = self.references.writes;
        let mut goes_on = true;
        while goes_on {
            self.task.check()?;
            let count = self.reader.each(|request| {
                if writes || request.op == Op::Read {
                    goes_on &= take(request);
                }
            })?;
            if count == 0 {
                break;
            }
            if let Some(progress) = self.task.progress {
                progress(self.reader.bytes(), self.total);
            }
        }
        Ok(())
    }
}

/// Finds distances with a pipeline of threads: to read, to find the references before, to count.
fn exact<R: BufRead>(source: &mut Source<'_, R>) -> Result<Vec<(Curve, f64)>, AnalysisError> {
    thread::scope(|scope| {
        let (to_finder, from_reader) = sync_channel(WAITING);
        let (to_counter, from_finder) = sync_channel(WAITING);
        let finder = scope.spawn(move || find_all(&from_reader, &to_counter));
        let counter = scope.spawn(move || count_all(&from_finder));
        let block = source.references.block;
        let mut portions = Portions::default();
        let result = source.read(|request| {
            portions.add(request, block);
            // A thread that has ended is found when it is joined.
            portions.size < PORTION || to_finder.send(portions.take()).is_ok()
        });
        let _ = to_finder.send(portions.take());
        drop(to_finder);
        let joined = finder.join().and_then(|()| counter.join());
        result?;
        joined.map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Follows a sample. It is small: reading the trace is most of the work.
fn sampled<R: BufRead>(
    source: &mut Source<'_, R>,
    sample: Sample,
) -> Result<Vec<(Curve, f64)>, AnalysisError> {
    let block = source.references.block;
    let mut samplers: Vec<Sampler> = Vec::new();
    source.read(|request| {
        let volume = request.volume as usize;
        if samplers.len() <= volume {
            samplers.resize_with(volume + 1, || Sampler::new(sample));
        }
        samplers[volume].take(request.blocks(block));
        true
    })?;
    let found = samplers.iter().map(|each| (each.curve(), each.rate()));
    Ok(found.collect())
}

/// References of one volume, one after the other.
struct Portion {
    volume: u32,
    references: Vec<Block>,
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
