//! Where each guest cluster lies: the first- and second-level tables, checked as a whole.
//!
//! The tables of an image are input from its author. They are read once, within a bound, and
//! checked for overlapping each other before any cluster is read through them.

use crate::error::Qcow2Error;
use crate::header::{be64, Header};
use diffcache_core::source::ReadAt;

/// Bytes of second-level tables that are accepted: 2 TiB of 64 KiB clusters.
const MAX_L2_BYTES: u64 = 256 << 20;
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const COPIED: u64 = 1 << 63;
const ZERO: u64 = 1;
pub(crate) const SECTOR: u64 = 512;

/// What a guest cluster is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    /// Not allocated, or marked as zeroes: reads as zeroes.
    Zero,
    /// The guest's bytes lie at this file offset.
    Plain(u64),
    /// Compressed; the stream starts at `offset` and ends within `length` bytes of it.
    Compressed {
        /// Offset of the stream in the file.
        offset: u64,
        /// Bytes up to the end of the stream's last sector, cut at the end of the file.
        length: u64,
    },
}

/// The checked map of an image.
#[derive(Debug)]
pub struct Map {
    header: Header,
    /// File offset of each second-level table, 0 if there is none.
    l2_offsets: Vec<u64>,
    /// Raw entries of each second-level table; empty if there is none or it is all zero.
    l2: Vec<Box<[u64]>>,
    /// File offsets of the refcount blocks, in table order; 0 where there is none.
    refcount_blocks: Vec<u64>,
}

impl Map {
    /// Reads and checks all tables of `file`.
    pub fn read(file: &dyn ReadAt) -> Result<Self, Qcow2Error> {
        let header = Header::read(file)?;
        let l2_offsets = read_l1(file, &header)?;
        let refcount_blocks = read_reftable(file, &header)?;
        let metadata = Metadata::new(&header, &l2_offsets, &refcount_blocks)?;
        let mut l2 = Vec::with_capacity(l2_offsets.len());
        for &offset in &l2_offsets {
            l2.push(read_l2(file, &header, offset)?);
        }
        let map = Self {
            header,
            l2_offsets,
            l2,
            refcount_blocks,
        };
        map.check_clusters(&metadata)?;
        Ok(map)
    }

    /// The image's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// File offset of each second-level table the disk's size needs, 0 for none.
    pub fn l2_offsets(&self) -> &[u64] {
        &self.l2_offsets
    }

    /// File offsets of the refcount blocks, 0 for none.
    pub fn refcount_blocks(&self) -> &[u64] {
        &self.refcount_blocks
    }

    /// What guest cluster `index` is; [`Cluster::Zero`] beyond the end.
    pub fn cluster(&self, index: u64) -> Cluster {
        self.header.decode(self.entry(index))
    }

    fn entry(&self, index: u64) -> u64 {
        let per_table = self.header.clusters_per_l2();
        if index >= self.header.clusters() {
            return 0;
        }
        // Both quotients are bounded by what is in memory.
        let (table, slot) = ((index / per_table) as usize, (index % per_table) as usize);
        self.l2
            .get(table)
            .and_then(|entries| entries.get(slot))
            .copied()
            .unwrap_or(0)
    }

    /// First guest cluster at or after `index` that is not [`Cluster::Zero`].
    pub fn next_data(&self, index: u64) -> Option<u64> {
        let per_table = self.header.clusters_per_l2();
        let mut at = index;
        while at < self.header.clusters() {
            let table = (at / per_table) as usize;
            let entries = self.l2.get(table)?;
            let from = (at % per_table) as usize;
            let found = entries.get(from..).and_then(|rest| {
                rest.iter()
                    .position(|&raw| self.header.decode(raw) != Cluster::Zero)
            });
            if let Some(steps) = found {
                let hit = at + steps as u64;
                return (hit < self.header.clusters()).then_some(hit);
            }
            at = (table as u64 + 1) * per_table;
        }
        None
    }

    /// Every cluster that is not zero, in guest order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, Cluster)> + '_ {
        let per_table = self.header.clusters_per_l2();
        let clusters = self.header.clusters();
        self.l2
            .iter()
            .enumerate()
            .flat_map(move |(table, entries)| {
                entries
                    .iter()
                    .enumerate()
                    .map(move |(slot, &raw)| {
                        (
                            table as u64 * per_table + slot as u64,
                            self.header.decode(raw),
                        )
                    })
                    .filter(move |&(index, cluster)| index < clusters && cluster != Cluster::Zero)
            })
    }

    /// Each host cluster has one use: no table and no guest cluster lies on another.
    fn check_clusters(&self, metadata: &Metadata) -> Result<(), Qcow2Error> {
        let cluster_size = self.header.cluster_size();
        let file_size = self.header.file_size;
        let mut plain = Vec::new();
        let mut compressed = Vec::new();
        for (table, &raw) in self
            .l2
            .iter()
            .flat_map(|entries| entries.iter())
            .enumerate()
        {
            if raw & COMPRESSED == 0 && raw & ZERO != 0 && self.header.version < 3 {
                return Err(Qcow2Error::damaged(format!(
                    "entry {table} is a zero mark, which version 2 lacks"
                )));
            }
        }
        for (index, cluster) in self.iter() {
            let (offset, end) = match cluster {
                Cluster::Plain(offset) => {
                    plain.push(offset);
                    (offset, offset.saturating_add(cluster_size))
                }
                Cluster::Compressed { offset, length } => {
                    compressed.push(offset);
                    (offset, offset.saturating_add(length))
                }
                Cluster::Zero => continue,
            };
            if offset >= file_size || offset < cluster_size {
                return Err(Qcow2Error::damaged(format!(
                    "guest cluster {index} lies outside the file"
                )));
            }
            if matches!(cluster, Cluster::Plain(_)) && offset % cluster_size != 0 {
                return Err(Qcow2Error::damaged(format!(
                    "guest cluster {index} is not aligned"
                )));
            }
            if metadata.overlaps(offset, end) {
                return Err(Qcow2Error::damaged(format!(
                    "guest cluster {index} lies on a table"
                )));
            }
        }
        plain.sort_unstable();
        compressed.sort_unstable();
        if has_duplicates(&plain) || has_duplicates(&compressed) {
            return Err(Qcow2Error::damaged("two guest clusters share their place"));
        }
        let on_plain = compressed.iter().any(|offset| {
            plain
                .binary_search(&(offset - offset % cluster_size))
                .is_ok()
        });
        if on_plain {
            return Err(Qcow2Error::damaged(
                "a compressed cluster lies on another cluster",
            ));
        }
        Ok(())
    }
}

impl Header {
    /// Reads a second-level entry.
    fn decode(&self, raw: u64) -> Cluster {
        if raw & COMPRESSED != 0 {
            let shift = sector_shift(self.cluster_bits);
            let offset = raw & ((1 << shift) - 1);
            let sectors = (raw & (COMPRESSED - 1)) >> shift;
            let end = (offset - offset % SECTOR)
                .saturating_add((sectors + 1) * SECTOR)
                .min(self.file_size);
            return Cluster::Compressed {
                offset,
                length: end.saturating_sub(offset),
            };
        }
        if self.version >= 3 && raw & ZERO != 0 {
            return Cluster::Zero;
        }
        match raw & OFFSET_MASK {
            0 => Cluster::Zero,
            offset => Cluster::Plain(offset),
        }
    }
}

/// The second-level entry of a compressed stream, as QEMU writes it.
pub(crate) fn compressed_entry(cluster_bits: u32, offset: u64, length: u64) -> u64 {
    let last = (offset + length.max(1) - 1) / SECTOR;
    let sectors = last - offset / SECTOR;
    COMPRESSED | (sectors << sector_shift(cluster_bits)) | offset
}

/// The second-level entry of a plain cluster, as QEMU writes it.
pub(crate) fn plain_entry(offset: u64) -> u64 {
    COPIED | offset
}

/// Position of the sector count in a compressed cluster's entry.
fn sector_shift(cluster_bits: u32) -> u32 {
    62 - (cluster_bits - 8)
}

/// The file ranges that hold tables, sorted.
struct Metadata(Vec<(u64, u64)>);

impl Metadata {
    fn new(
        header: &Header,
        l2_offsets: &[u64],
        refcount_blocks: &[u64],
    ) -> Result<Self, Qcow2Error> {
        let cluster_size = header.cluster_size();
        let mut ranges = vec![(0, cluster_size)];
        for (start, bytes) in [
            (header.l1_offset, u64::from(header.l1_entries) * 8),
            (header.reftable_offset, header.reftable_bytes),
        ] {
            if bytes > 0 {
                ranges.push((start, start + bytes));
            }
        }
        let tables = l2_offsets
            .iter()
            .chain(refcount_blocks)
            .filter(|&&offset| offset != 0);
        ranges.extend(tables.map(|&offset| (offset, offset.saturating_add(cluster_size))));
        ranges.sort_unstable();
        if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(Qcow2Error::damaged("its tables overlap each other"));
        }
        Ok(Self(ranges))
    }

    fn overlaps(&self, start: u64, end: u64) -> bool {
        let after = self.0.partition_point(|range| range.1 <= start);
        self.0.get(after).is_some_and(|range| range.0 < end)
    }
}

fn has_duplicates(sorted: &[u64]) -> bool {
    sorted.windows(2).any(|pair| pair[0] == pair[1])
}

fn read_entries(file: &dyn ReadAt, offset: u64, count: usize) -> Result<Vec<u64>, Qcow2Error> {
    let mut raw = vec![0; count * 8];
    file.read_exact_at(&mut raw, offset)?;
    Ok(raw.chunks_exact(8).map(|entry| be64(entry, 0)).collect())
}

/// A table's place is a cluster inside the file.
fn check_table(header: &Header, offset: u64, what: &str) -> Result<(), Qcow2Error> {
    let end = offset.checked_add(header.cluster_size());
    if offset % header.cluster_size() != 0 || end.is_none_or(|end| end > header.file_size) {
        return Err(Qcow2Error::damaged(format!(
            "a {what} lies outside the file or is not aligned"
        )));
    }
    Ok(())
}

fn read_l1(file: &dyn ReadAt, header: &Header) -> Result<Vec<u64>, Qcow2Error> {
    let needed = header.l1_needed() as usize;
    let entries = read_entries(file, header.l1_offset, needed)?;
    let offsets: Vec<u64> = entries.iter().map(|raw| raw & OFFSET_MASK).collect();
    let present = offsets.iter().filter(|&&offset| offset != 0).count() as u64;
    if present * header.cluster_size() > MAX_L2_BYTES {
        return Err(Qcow2Error::refused(
            "it maps more than this codec takes in memory",
        ));
    }
    for &offset in offsets.iter().filter(|&&offset| offset != 0) {
        check_table(header, offset, "second-level table")?;
    }
    Ok(offsets)
}

fn read_l2(file: &dyn ReadAt, header: &Header, offset: u64) -> Result<Box<[u64]>, Qcow2Error> {
    if offset == 0 {
        return Ok(Box::default());
    }
    let entries = read_entries(file, offset, header.clusters_per_l2() as usize)?;
    if entries.iter().all(|&raw| raw == 0) {
        return Ok(Box::default());
    }
    Ok(entries.into_boxed_slice())
}

/// Offsets of the refcount blocks; trailing empty entries are dropped.
fn read_reftable(file: &dyn ReadAt, header: &Header) -> Result<Vec<u64>, Qcow2Error> {
    let mut blocks = read_entries(
        file,
        header.reftable_offset,
        (header.reftable_bytes / 8) as usize,
    )?;
    let used = blocks
        .iter()
        .rposition(|&offset| offset != 0)
        .map_or(0, |last| last + 1);
    blocks.truncate(used);
    for &offset in blocks.iter().filter(|&&offset| offset != 0) {
        check_table(header, offset, "refcount block")?;
    }
    Ok(blocks)
}
