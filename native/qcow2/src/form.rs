//! The form of a qcow2 image: all that its file is beyond the guest's content.
//!
//! A file is described as *a prediction and what differs from it*. Predicted are the compressed clusters (made again from content by the
//! recipe), the plain clusters (content itself), the second-level tables and the refcount blocks (computed from where the clusters lie).
//! Whatever else the file holds (header, first-level table, leaked clusters, unusual entries) is the difference, stored byte by byte. So
//! any file that parses can be described exactly; a file written by QEMU needs next to nothing.

use crate::compress::Recipe;
use crate::error::Qcow2Error;
use crate::map::Map;
use crate::refcounts;
use crate::tables::{self, compressed_entry, plain_entry, SECTOR};
use crate::varint::{put, put_step, Reader};
use diffcache_core::source::ReadAt;

/// Compressed clusters of one image that this codec takes, and plain ones: 1 TiB of 64 KiB clusters, half a gigabyte of description in memory.
pub const MAX_STREAMS: usize = 16 << 20;
/// Bytes of a file that nothing predicts which this codec takes.
const MAX_DIFFERENCE: usize = 64 << 20;
/// The largest table that the format allows, in bytes.
const MAX_TABLE: u64 = 32 << 20;
/// Files beyond this size are absurd.
const MAX_FILE: u64 = 1 << 56;
/// Differences closer than this become one: a new one costs about as much.
const MERGE: usize = 8;
const READ: u64 = 64 << 10;

/// How a compressed cluster's stream is had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// By compressing the guest's bytes.
    Recompress,
    /// Likewise, or by copying the stream of the base's guest cluster if the base is at hand as the file it was.
    RecompressOrCopy(u64),
    /// Only by copying the stream of the base's guest cluster.
    Copy(u64),
    /// From the patch, this many bytes.
    Stored(u32),
}

/// A compressed cluster of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Guest cluster.
    pub index: u64,
    /// Where its stream starts in the file. In an encoded form, as long as the streams before it have no length yet: see `Form::place`.
    pub offset: u64,
    /// How it is had.
    pub origin: Origin,
}

/// Guest clusters that lie plain and consecutive in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First guest cluster.
    pub index: u64,
    /// File offset of its bytes.
    pub offset: u64,
    /// Clusters.
    pub count: u64,
}

/// Where an image keeps its tables.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Layout {
    /// Bytes of the file.
    pub file_size: u64,
    /// Bytes of the guest's disk.
    pub guest_size: u64,
    /// Cluster size is `1 << cluster_bits`.
    pub cluster_bits: u32,
    /// Tables of more than a cluster: (offset, bytes) of the first-level table and of the refcount table.
    pub tables: [(u64, u64); 2],
    /// Second-level tables that exist: (number, offset).
    pub l2: Vec<(u64, u64)>,
    /// Refcount blocks that exist and hold 16-bit counts: (number, offset).
    pub refcounts: Vec<(u64, u64)>,
}

impl Layout {
    /// The layout of a parsed image.
    pub fn of(map: &Map) -> Self {
        let header = map.header();
        let present = |offsets: &[u64]| -> Vec<(u64, u64)> {
            offsets
                .iter()
                .enumerate()
                .filter(|(_, &offset)| offset != 0)
                .map(|(n, &offset)| (n as u64, offset))
                .collect()
        };
        Self {
            file_size: header.file_size,
            guest_size: header.size,
            cluster_bits: header.cluster_bits,
            tables: [
                (header.l1_offset, u64::from(header.l1_entries) * 8),
                (header.reftable_offset, header.reftable_bytes),
            ],
            l2: present(map.l2_offsets()),
            refcounts: if header.refcount_order == refcounts::ORDER {
                present(map.refcount_blocks())
            } else {
                Vec::new()
            },
        }
    }

    /// Bytes of a cluster.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    fn check(&self) -> Result<(), Qcow2Error> {
        let inside = |offset: u64, bytes: u64| {
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= self.file_size)
        };
        let clusters = self.l2.iter().chain(&self.refcounts);
        let ok = (9..=21).contains(&self.cluster_bits)
            && self.file_size <= MAX_FILE
            && self.guest_size <= MAX_FILE
            && self
                .tables
                .iter()
                .all(|&(offset, bytes)| bytes <= MAX_TABLE && inside(offset, bytes))
            && clusters.clone().all(|&(number, offset)| {
                number <= MAX_FILE >> 9 && inside(offset, self.cluster_size())
            });
        ok.then_some(())
            .ok_or_else(|| Qcow2Error::bad_patch("a table outside the file"))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        for value in [
            self.file_size,
            self.guest_size,
            u64::from(self.cluster_bits),
        ] {
            put(out, value);
        }
        for (offset, bytes) in self.tables {
            put(out, offset);
            put(out, bytes);
        }
        for list in [&self.l2, &self.refcounts] {
            put(out, list.len() as u64);
            let mut last = (0, 0);
            for &(number, offset) in list {
                put_step(out, last.0, number);
                put_step(out, last.1, offset);
                last = (number + 1, offset);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Qcow2Error> {
        let mut layout = Self {
            file_size: reader.take()?,
            guest_size: reader.take()?,
            ..Self::default()
        };
        layout.cluster_bits = u32::try_from(reader.take()?).unwrap_or(u32::MAX);
        for table in &mut layout.tables {
            *table = (reader.take()?, reader.take()?);
        }
        for list in [&mut layout.l2, &mut layout.refcounts] {
            let count = reader.take_count()?;
            let mut last = (0, 0);
            for _ in 0..count {
                let entry = (reader.take_step(last.0)?, reader.take_step(last.1)?);
                list.push(entry);
                last = (entry.0.wrapping_add(1), entry.1);
            }
        }
        layout.check()?;
        Ok(layout)
    }
}

/// Bytes at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Where in the file.
    pub offset: u64,
    /// What is there.
    pub bytes: Vec<u8>,
}

/// The description of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    /// Where the tables are.
    pub layout: Layout,
    /// How compressed clusters are made again.
    pub recipe: Recipe,
    /// Compressed clusters in the order of the file.
    pub streams: Vec<Stream>,
    /// Plain clusters in the guest's order.
    pub runs: Vec<Run>,
    /// What the prediction gets wrong, in the order of the file.
    pub differences: Vec<Difference>,
}

/// The tables as they follow from where the clusters lie.
pub struct Tables {
    cluster_bits: u32,
    /// Second-level entries, by guest cluster.
    entries: Vec<(u64, u64)>,
    /// Every use of a host cluster, sorted.
    uses: Vec<u64>,
    /// Clusters that are tables, by file offset: which, and its number.
    places: Vec<(u64, Kind, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    L2,
    Refcount,
}

impl Tables {
    /// Computes the tables; `placed` is offset and length of each stream, in the order of `streams`.
    pub fn new(layout: &Layout, streams: &[Stream], placed: &[(u64, u64)], runs: &[Run]) -> Self {
        let bits = layout.cluster_bits;
        let mut entries = Vec::with_capacity(streams.len());
        let mut uses = Vec::with_capacity(streams.len() * 2);
        for (stream, &(offset, length)) in streams.iter().zip(placed) {
            entries.push((stream.index, compressed_entry(bits, offset, length)));
            // A count covers whole sectors.
            let last = (offset + length.max(1) - 1) / SECTOR * SECTOR;
            uses.extend((offset >> bits)..=(last >> bits));
        }
        for run in runs {
            for step in 0..run.count {
                let offset = run.offset + (step << bits);
                entries.push((run.index + step, plain_entry(offset)));
                uses.push(offset >> bits);
            }
        }
        uses.push(0);
        for &(offset, bytes) in layout.tables.iter().filter(|table| table.1 > 0) {
            uses.extend((offset >> bits)..=((offset + bytes - 1) >> bits));
        }
        uses.extend(
            layout
                .l2
                .iter()
                .chain(&layout.refcounts)
                .map(|&(_, offset)| offset >> bits),
        );
        entries.sort_unstable();
        uses.sort_unstable();
        let l2 = layout
            .l2
            .iter()
            .map(|&(number, offset)| (offset, Kind::L2, number));
        let refcounts = layout
            .refcounts
            .iter()
            .map(|&(number, offset)| (offset, Kind::Refcount, number));
        let mut places: Vec<_> = l2.chain(refcounts).collect();
        places.sort_unstable();
        Self {
            cluster_bits: bits,
            entries,
            uses,
            places,
        }
    }

    /// Offset of the first predicted table at or after `offset`.
    pub fn next_place(&self, offset: u64) -> Option<u64> {
        self.places
            .get(self.places.partition_point(|place| place.0 < offset))
            .map(|place| place.0)
    }

    /// The predicted table that starts at `offset`, if there is one.
    pub fn at(&self, offset: u64) -> Option<Vec<u8>> {
        let found = self
            .places
            .binary_search_by_key(&offset, |place| place.0)
            .ok()?;
        let (_, kind, number) = self.places[found];
        Some(match kind {
            Kind::L2 => self.l2(number),
            Kind::Refcount => self.refcounts(number),
        })
    }

    fn l2(&self, number: u64) -> Vec<u8> {
        let per_table = 1_u64 << (self.cluster_bits - 3);
        let first = number.saturating_mul(per_table);
        let from = self.entries.partition_point(|entry| entry.0 < first);
        let entries = self.entries[from..]
            .iter()
            .map(|&(index, entry)| ((index - first) as usize, entry))
            .take_while(|&(slot, _)| (slot as u64) < per_table);
        tables::encode(per_table as usize, entries)
    }

    fn refcounts(&self, number: u64) -> Vec<u8> {
        let per_block = refcounts::per_block(self.cluster_bits);
        let first = number.saturating_mul(per_block);
        let from = self.uses.partition_point(|&used| used < first);
        let counts = self.uses[from..]
            .chunk_by(|a, b| a == b)
            .map(|uses| {
                let slot = (uses[0] - first) as usize;
                (slot, u16::try_from(uses.len()).unwrap_or(u16::MAX))
            })
            .take_while(|&(slot, _)| (slot as u64) < per_block);
        refcounts::encode_block(self.cluster_bits, counts)
    }
}

/// Finds what `file` holds beyond the prediction, outside the `covered` ranges (sorted, disjoint, inside the file).
pub fn differences(
    file: &dyn ReadAt,
    tables: &Tables,
    covered: &[(u64, u64)],
) -> Result<Vec<Difference>, Qcow2Error> {
    let mut found = Differences {
        list: Vec::new(),
        bytes: 0,
    };
    let mut at = 0;
    let end = (file.len(), file.len());
    for &(start, stop) in covered.iter().chain(std::iter::once(&end)) {
        while at < start {
            let table = tables
                .next_place(at - at % (1 << tables.cluster_bits))
                .unwrap_or(u64::MAX);
            let data = file.next_data(at)?.map_or(u64::MAX, |range| range.0);
            at = at.max(data.min(table));
            if at >= start {
                break;
            }
            let cluster = at >> tables.cluster_bits << tables.cluster_bits;
            let until = start
                .min(cluster + (1 << tables.cluster_bits))
                .min(at + READ);
            found.compare(file, tables, cluster, at, until)?;
            at = until;
        }
        at = at.max(stop);
    }
    Ok(found.list)
}

struct Differences {
    list: Vec<Difference>,
    bytes: usize,
}

impl Differences {
    /// Compares the file's range `from..to`, inside the host cluster at `cluster`, with its prediction.
    fn compare(
        &mut self,
        file: &dyn ReadAt,
        tables: &Tables,
        cluster: u64,
        from: u64,
        to: u64,
    ) -> Result<(), Qcow2Error> {
        let mut actual = vec![0; (to - from) as usize];
        file.read_exact_at(&mut actual, from)?;
        let predicted = match tables.at(cluster) {
            Some(table) => table[(from - cluster) as usize..(to - cluster) as usize].to_vec(),
            None => vec![0; actual.len()],
        };
        let mut at = 0;
        while let Some(start) = (at..actual.len()).find(|&i| actual[i] != predicted[i]) {
            let mut stop = start + 1;
            while let Some(next) =
                (stop..actual.len().min(stop + MERGE)).find(|&i| actual[i] != predicted[i])
            {
                stop = next + 1;
            }
            self.bytes += stop - start;
            if self.bytes > MAX_DIFFERENCE {
                return Err(Qcow2Error::refused(
                    "it holds too much that its own map does not explain (internal snapshots, leaked clusters); convert it first",
                ));
            }
            self.list.push(Difference {
                offset: from + start as u64,
                bytes: actual[start..stop].to_vec(),
            });
            at = stop;
        }
        Ok(())
    }
}

const ORIGIN_RECOMPRESS: u8 = 0;
const ORIGIN_EITHER: u8 = 1;
const ORIGIN_COPY: u8 = 2;
const ORIGIN_STORED: u8 = 3;
const RECIPE_ZLIB: u64 = 0;
const RECIPE_ZSTD: u64 = 1;

impl Form {
    /// Whether the base must be the very file the patch was made from.
    pub fn needs_base_file(&self) -> bool {
        self.streams
            .iter()
            .any(|stream| matches!(stream.origin, Origin::Copy(_)))
    }

    /// Bytes of streams that the patch stores.
    pub fn stored(&self) -> u64 {
        let length = |stream: &Stream| match stream.origin {
            Origin::Stored(length) => u64::from(length),
            _ => 0,
        };
        self.streams.iter().map(length).sum()
    }

    /// Encodes the form. Offsets become distances from the end of the stream before, which `placed` (offset and length of each) gives:
    /// they are nearly all zero.
    pub fn encode(&self, placed: &[(u64, u64)]) -> Vec<u8> {
        let mut out = Vec::new();
        self.layout.encode(&mut out);
        let recipe = match self.recipe {
            Recipe::Zlib { level, memory } => [RECIPE_ZLIB, level.into(), memory.into()],
            Recipe::Zstd { level, version } => [RECIPE_ZSTD, level.into(), version.into()],
        };
        for value in recipe {
            put(&mut out, value);
        }
        put(&mut out, self.streams.len() as u64);
        self.encode_streams(placed, &mut out);
        put(&mut out, self.runs.len() as u64);
        let mut last = (0, 0);
        for run in &self.runs {
            put_step(&mut out, last.0, run.index);
            put_step(&mut out, last.1, run.offset);
            put(&mut out, run.count);
            last = (
                run.index + run.count,
                run.offset + (run.count << self.layout.cluster_bits),
            );
        }
        put(&mut out, self.differences.len() as u64);
        let mut at = 0;
        for difference in &self.differences {
            put_step(&mut out, at, difference.offset);
            put(&mut out, difference.bytes.len() as u64);
            at = difference.offset + difference.bytes.len() as u64;
        }
        for difference in &self.differences {
            out.extend_from_slice(&difference.bytes);
        }
        out
    }

    /// One column after the other: like goes with like.
    fn encode_streams(&self, placed: &[(u64, u64)], out: &mut Vec<u8>) {
        out.extend(self.streams.iter().map(|stream| match stream.origin {
            Origin::Recompress => ORIGIN_RECOMPRESS,
            Origin::RecompressOrCopy(_) => ORIGIN_EITHER,
            Origin::Copy(_) => ORIGIN_COPY,
            Origin::Stored(_) => ORIGIN_STORED,
        }));
        let mut next = 0;
        for stream in &self.streams {
            put_step(out, next, stream.index);
            next = stream.index + 1;
        }
        let mut end = 0;
        for &(offset, length) in placed {
            put_step(out, end, offset);
            end = offset + length;
        }
        for stream in &self.streams {
            match stream.origin {
                Origin::Recompress => {}
                Origin::RecompressOrCopy(twin) | Origin::Copy(twin) => {
                    put_step(out, stream.index, twin)
                }
                Origin::Stored(length) => put(out, length.into()),
            }
        }
    }

    /// Decodes what [`Form::encode`] made. The streams' offsets are still distances; [`place`] resolves them one by one.
    pub fn decode(bytes: &[u8]) -> Result<Self, Qcow2Error> {
        let mut reader = Reader(bytes);
        let layout = Layout::decode(&mut reader)?;
        let recipe = decode_recipe(&mut reader)?;
        let streams = decode_streams(&mut reader, &layout)?;
        let runs = decode_runs(&mut reader, &layout)?;
        let differences = decode_differences(&mut reader, &layout)?;
        Ok(Self {
            layout,
            recipe,
            streams,
            runs,
            differences,
        })
    }
}

/// Where a decoded stream lies, given the end of the one before and its own length.
pub fn place(layout: &Layout, end: u64, distance: u64, length: u64) -> Result<u64, Qcow2Error> {
    let offset = end.wrapping_add(distance);
    let inside = offset
        .checked_add(length)
        .is_some_and(|stop| stop <= layout.file_size);
    inside
        .then_some(offset)
        .ok_or_else(|| Qcow2Error::bad_patch("a cluster outside the file"))
}

fn decode_recipe(reader: &mut Reader<'_>) -> Result<Recipe, Qcow2Error> {
    let bad = |_| Qcow2Error::bad_patch("an unknown compressor");
    let (kind, level, extra) = (reader.take()?, reader.take()?, reader.take()?);
    let level = u8::try_from(level).map_err(bad)?;
    match kind {
        RECIPE_ZLIB => Ok(Recipe::Zlib {
            level,
            memory: u8::try_from(extra).map_err(bad)?,
        }),
        RECIPE_ZSTD => Ok(Recipe::Zstd {
            level,
            version: u32::try_from(extra).map_err(bad)?,
        }),
        _ => Err(Qcow2Error::bad_patch("an unknown compressor")),
    }
}

fn decode_streams(reader: &mut Reader<'_>, layout: &Layout) -> Result<Vec<Stream>, Qcow2Error> {
    let count = reader.take_count()?;
    if count > MAX_STREAMS {
        return Err(Qcow2Error::bad_patch("too many clusters"));
    }
    let kinds = reader.take_bytes(count)?;
    let clusters = layout.guest_size.div_ceil(layout.cluster_size());
    let mut streams = Vec::with_capacity(count);
    let mut next = 0;
    for _ in 0..count {
        let index = reader.take_step(next)?;
        if index >= clusters {
            return Err(Qcow2Error::bad_patch("a cluster beyond the disk's end"));
        }
        streams.push(Stream {
            index,
            offset: 0,
            origin: Origin::Recompress,
        });
        next = index + 1;
    }
    for stream in &mut streams {
        stream.offset = reader.take_step(0)?;
    }
    for (stream, &kind) in streams.iter_mut().zip(kinds) {
        stream.origin = match kind {
            ORIGIN_RECOMPRESS => Origin::Recompress,
            ORIGIN_EITHER => Origin::RecompressOrCopy(reader.take_step(stream.index)?),
            ORIGIN_COPY => Origin::Copy(reader.take_step(stream.index)?),
            ORIGIN_STORED => Origin::Stored(stored_length(reader.take()?, layout)?),
            _ => return Err(Qcow2Error::bad_patch("a cluster of unknown origin")),
        };
    }
    Ok(streams)
}

fn stored_length(length: u64, layout: &Layout) -> Result<u32, Qcow2Error> {
    let fits = length > 0 && length <= 2 * layout.cluster_size();
    u32::try_from(length)
        .ok()
        .filter(|_| fits)
        .ok_or_else(|| Qcow2Error::bad_patch("a stored cluster of absurd length"))
}

fn decode_runs(reader: &mut Reader<'_>, layout: &Layout) -> Result<Vec<Run>, Qcow2Error> {
    let bad = || Qcow2Error::bad_patch("a plain cluster outside the file");
    let clusters = layout.guest_size.div_ceil(layout.cluster_size());
    let mut total = 0_u64;
    let mut last = (0_u64, 0_u64);
    let mut runs = Vec::new();
    for _ in 0..reader.take_count()? {
        let run = Run {
            index: reader.take_step(last.0)?,
            offset: reader.take_step(last.1)?,
            count: reader.take()?,
        };
        let guest_end = run
            .index
            .checked_add(run.count)
            .filter(|&end| end <= clusters)
            .ok_or_else(bad)?;
        let bytes = run
            .count
            .checked_mul(layout.cluster_size())
            .ok_or_else(bad)?;
        let file_end = run.offset.checked_add(bytes).ok_or_else(bad)?;
        // Only the last cluster of a file may be cut short.
        if run.count == 0 || file_end - layout.cluster_size() >= layout.file_size {
            return Err(bad());
        }
        total = total.saturating_add(run.count);
        last = (guest_end, file_end);
        runs.push(run);
    }
    if total > MAX_STREAMS as u64 {
        return Err(Qcow2Error::bad_patch("too many clusters"));
    }
    Ok(runs)
}

fn decode_differences(
    reader: &mut Reader<'_>,
    layout: &Layout,
) -> Result<Vec<Difference>, Qcow2Error> {
    let mut places = Vec::new();
    let mut at = 0;
    for _ in 0..reader.take_count()? {
        let offset = reader.take_step(at)?;
        let length = reader.take_count()?;
        let end = offset
            .checked_add(length as u64)
            .filter(|&end| end <= layout.file_size);
        at = end.ok_or_else(|| Qcow2Error::bad_patch("a difference outside the file"))?;
        places.push((offset, length));
    }
    let mut differences = Vec::with_capacity(places.len());
    for (offset, length) in places {
        differences.push(Difference {
            offset,
            bytes: reader.take_bytes(length)?.to_vec(),
        });
    }
    Ok(differences)
}
