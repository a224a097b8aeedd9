//! Finding the recipe of a qcow2 file.

use std::collections::HashMap;

use diffcache_core::manifest::Manifest;
use diffcache_core::source::ReadAt;
use diffcache_core::task::{for_each_piece, Meter, Task};

use super::prediction::{differences, Tables};
use super::{Layout, Origin, Recipe, Run, Sequence, Stream, MAX_STREAMS};
use crate::cluster::Cluster;
use crate::compress::{Pool, Settings};
use crate::error::Qcow2Error;
use crate::source::Qcow2Source;

/// Clusters that are compressed again to find out how an image was compressed.
const SAMPLES: usize = 16;
/// Clusters per piece of work: enough to hide the cost of claiming one.
const PIECE: usize = 16;
/// A stream is recognised by this many of its bytes, then compared whole.
const PREFIX: usize = 24;
/// Streams of a base that are indexed, which takes about 64 bytes each.
const MAX_INDEXED: usize = 4 << 20;

/// A recipe as it was found, and what a patch needs besides.
pub struct Description {
    /// The file's recipe.
    pub recipe: Recipe,
    /// Offset and length of each of the recipe's streams.
    pub placed: Vec<(u64, u64)>,
    /// Guest clusters whose content the patch need not carry, sorted: their streams are stored or copied.
    pub masked: Vec<u64>,
}

impl Description {
    /// Adds to the recipe what it takes to write the file in order, if it can be; `file` is its manifest.
    pub fn add_sequence(&mut self, file: &Manifest) {
        let bits = self.recipe.layout.cluster_bits;
        self.recipe.sequence = Sequence::of(file, &self.placed, &self.recipe.runs, bits);
    }
}

/// Describes `target`, using streams of `base` where it has the same.
pub fn describe(
    target: &Qcow2Source,
    base: Option<&Qcow2Source>,
    task: &Task<'_>,
) -> Result<Description, Qcow2Error> {
    let (compressed, runs) = collect(target)?;
    let settings = find_settings(target, &compressed)?;
    let twins = match base {
        Some(base) if same_kind(base, target) => Some(Twins::new(base)?),
        _ => None,
    };
    let layout = Layout::of(target.map());
    let examiner = Examiner {
        target,
        twins,
        pool: Pool::new(settings)?,
        meter: task.meter(layout.file_size),
    };
    let (streams, placed) = examiner.examine(&compressed, task)?;
    let covered = covered(&layout, &placed, &runs);
    let tables = Tables::new(&layout, &streams, &placed, &runs);
    let differences = differences(target.file(), &tables, &covered)?;
    let recipe = Recipe {
        layout,
        settings,
        streams,
        runs,
        differences,
        sequence: None,
    };
    let mut masked: Vec<u64> = recipe
        .streams
        .iter()
        .filter(|stream| matches!(stream.origin, Origin::Copy(_) | Origin::Stored(_)))
        .map(|stream| stream.index)
        .collect();
    masked.sort_unstable();
    Ok(Description {
        recipe,
        placed,
        masked,
    })
}

fn same_kind(base: &Qcow2Source, target: &Qcow2Source) -> bool {
    base.compression() == target.compression()
        && base.map().header().cluster_bits == target.map().header().cluster_bits
}

/// A compressed cluster as the map has it.
#[derive(Clone, Copy)]
struct Found {
    index: u64,
    offset: u64,
    length: u64,
}

/// Returns all clusters of an image: compressed ones in the order of the file, plain ones as runs in the guest's order.
fn collect(target: &Qcow2Source) -> Result<(Vec<Found>, Vec<Run>), Qcow2Error> {
    let cluster_size = target.map().header().cluster_size();
    let mut compressed = Vec::new();
    let mut runs: Vec<Run> = Vec::new();
    for (index, cluster) in target.map().iter() {
        match cluster {
            Cluster::Unallocated | Cluster::Zero => {}
            Cluster::Compressed { offset, length } => compressed.push(Found {
                index,
                offset,
                length,
            }),
            Cluster::Plain(offset) => match runs.last_mut() {
                Some(run)
                    if run.index + run.count == index
                        && run.offset + run.count * cluster_size == offset =>
                {
                    run.count += 1
                }
                _ => runs.push(Run {
                    index,
                    offset,
                    count: 1,
                }),
            },
        }
    }
    let plain: u64 = runs.iter().map(|run| run.count).sum();
    if compressed.len() > MAX_STREAMS || plain > MAX_STREAMS as u64 {
        return Err(Qcow2Error::refused(
            "it has more clusters than this codec takes",
        ));
    }
    compressed.sort_unstable_by_key(|found| found.offset);
    Ok((compressed, runs))
}

/// Returns the settings that reproduces most of a sample of the clusters; the usual one if none does.
fn find_settings(target: &Qcow2Source, compressed: &[Found]) -> Result<Settings, Qcow2Error> {
    let candidates = Settings::candidates(target.compression());
    let step = compressed.len().div_ceil(SAMPLES).max(1);
    let (mut stream, mut cluster, mut again) = (Vec::new(), Vec::new(), Vec::new());
    let mut best = (0, candidates[0]);
    for &settings in &candidates {
        let mut compressor = settings.compressor()?;
        let mut hits = 0;
        let mut tried = 0;
        for found in compressed.iter().step_by(step) {
            target.read_compressed(found.offset, found.length, &mut stream, &mut cluster)?;
            hits += usize::from(compressor.compress(&cluster, &mut again)? && again == stream);
            tried += 1;
        }
        if hits > best.0 {
            best = (hits, settings);
        }
        if best.0 == tried {
            break;
        }
    }
    Ok(best.1)
}

/// Finds in a base the stream that a target has.
struct Twins<'a> {
    base: &'a Qcow2Source,
    by_prefix: HashMap<[u8; PREFIX], u64>,
}

impl<'a> Twins<'a> {
    fn new(base: &'a Qcow2Source) -> Result<Self, Qcow2Error> {
        let mut by_prefix = HashMap::new();
        let mut prefix = [0; PREFIX];
        for (index, cluster) in base.map().iter().take(MAX_INDEXED) {
            if let Cluster::Compressed { offset, length } = cluster {
                if length >= PREFIX as u64 {
                    base.file().read_exact_at(&mut prefix, offset)?;
                    by_prefix.entry(prefix).or_insert(index);
                }
            }
        }
        Ok(Self { base, by_prefix })
    }

    /// Finds the guest cluster of the base whose stream is `stream`; tries `index` first.
    fn find(
        &self,
        index: u64,
        stream: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Option<u64>, Qcow2Error> {
        if self.holds(index, stream, scratch)? {
            return Ok(Some(index));
        }
        let candidate = stream
            .first_chunk()
            .and_then(|prefix| self.by_prefix.get(prefix));
        match candidate {
            Some(&twin) if twin != index && self.holds(twin, stream, scratch)? => Ok(Some(twin)),
            _ => Ok(None),
        }
    }

    fn holds(&self, index: u64, stream: &[u8], scratch: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        let Cluster::Compressed { offset, length } = self.base.map().cluster(index) else {
            return Ok(false);
        };
        if length < stream.len() as u64 {
            return Ok(false);
        }
        scratch.clear();
        scratch.resize(stream.len(), 0);
        self.base.file().read_exact_at(scratch, offset)?;
        Ok(scratch == stream)
    }
}

/// Finds the origin of each compressed cluster.
struct Examiner<'a> {
    target: &'a Qcow2Source,
    twins: Option<Twins<'a>>,
    pool: Pool,
    meter: Meter<'a>,
}

/// A stream and its length.
type Examined = (Stream, u64);
/// Streams, and offset and length of each.
type Placed = (Vec<Stream>, Vec<(u64, u64)>);

impl Examiner<'_> {
    fn examine(&self, compressed: &[Found], task: &Task<'_>) -> Result<Placed, Qcow2Error> {
        let pieces = compressed.len().div_ceil(PIECE) as u64;
        let examined = for_each_piece(task, pieces, |piece| {
            let from = piece as usize * PIECE;
            self.examine_piece(&compressed[from..compressed.len().min(from + PIECE)])
        })?;
        let mut streams = Vec::with_capacity(compressed.len());
        let mut placed = Vec::with_capacity(compressed.len());
        for (stream, length) in examined.into_iter().flatten() {
            // Streams that overlap could not be written back one after the other.
            if placed
                .last()
                .is_some_and(|&(offset, before): &(u64, u64)| offset + before > stream.offset)
            {
                return Err(Qcow2Error::damaged("two compressed clusters overlap"));
            }
            streams.push(stream);
            placed.push((stream.offset, length));
        }
        Ok((streams, placed))
    }

    fn examine_piece(&self, compressed: &[Found]) -> Result<Vec<Examined>, Qcow2Error> {
        let (mut stream, mut cluster, mut scratch) = (Vec::new(), Vec::new(), Vec::new());
        let mut examined = Vec::with_capacity(compressed.len());
        for found in compressed {
            let length = self.target.read_compressed(
                found.offset,
                found.length,
                &mut stream,
                &mut cluster,
            )?;
            let twin = match &self.twins {
                Some(twins) => twins.find(found.index, &stream, &mut scratch)?,
                None => None,
            };
            let reproduces = self.reproduces(found.index, &cluster, &stream, &mut scratch)?;
            let origin = match (reproduces, twin) {
                (true, Some(twin)) => Origin::RecompressOrCopy(twin),
                (true, None) => Origin::Recompress,
                (false, Some(twin)) => Origin::Copy(twin),
                // At most two clusters long, by the width of the map's field.
                (false, None) => Origin::Stored(length as u32),
            };
            examined.push((
                Stream {
                    index: found.index,
                    offset: found.offset,
                    origin,
                },
                length as u64,
            ));
            self.meter.add(length as u64);
        }
        Ok(examined)
    }

    fn reproduces(
        &self,
        index: u64,
        cluster: &[u8],
        stream: &[u8],
        again: &mut Vec<u8>,
    ) -> Result<bool, Qcow2Error> {
        // Beyond the disk's end a rebuild knows only zeroes.
        let visible = self.target.len() - index * cluster.len() as u64;
        let hidden = cluster
            .get(usize::try_from(visible).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        if hidden.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        Ok(self.pool.compress(cluster, again)? && again == stream)
    }
}

/// Returns the ranges of the file that hold content, sorted.
fn covered(layout: &Layout, placed: &[(u64, u64)], runs: &[Run]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<_> = placed
        .iter()
        .map(|&(offset, length)| (offset, offset + length))
        .collect();
    for run in runs {
        let start = run.index << layout.cluster_bits;
        let visible = (run.count << layout.cluster_bits).min(layout.guest_size - start);
        ranges.push((run.offset, (run.offset + visible).min(layout.file_size)));
    }
    ranges.sort_unstable();
    ranges
}
