//! The map of an image: its first- and second-level tables, checked as a whole.
//!
//! The tables of an image are input from its author. They are read once, within a bound, and
//! checked for overlapping each other before any cluster is read through them.

use diffcache_core::patch::format::MAX_SIZE;
use diffcache_core::source::ReadAt;

use crate::cluster::{self, Cluster};
use crate::error::Qcow2Error;
use crate::header::Header;
use crate::refcounts;
use crate::tables;

/// Bytes of second-level tables that are accepted: 2 TiB of 64 KiB clusters.
const MAX_L2_BYTES: u64 = 256 << 20;

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
        check_image(file, &header)?;
        let l2_offsets = read_l1(file, &header)?;
        let refcount_blocks = refcounts::read_table(file, &header)?;
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

    /// Returns the image's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the file offset of each second-level table the disk's size needs, 0 for none.
    pub fn l2_offsets(&self) -> &[u64] {
        &self.l2_offsets
    }

    /// Returns the file offsets of the refcount blocks, 0 for none.
    pub fn refcount_blocks(&self) -> &[u64] {
        &self.refcount_blocks
    }

    /// Returns where guest cluster `index` is stored; [`Cluster::Unallocated`] beyond the end.
    pub fn cluster(&self, index: u64) -> Cluster {
        Cluster::decode(&self.header, self.entry(index))
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

    /// Returns the first guest cluster at or after `index` that has data.
    pub fn next_data(&self, index: u64) -> Option<u64> {
        let per_table = self.header.clusters_per_l2();
        let mut at = index;
        while at < self.header.clusters() {
            let table = (at / per_table) as usize;
            let entries = self.l2.get(table)?;
            let from = (at % per_table) as usize;
            let found = entries.get(from..).and_then(|rest| {
                rest.iter()
                    .position(|&raw| Cluster::decode(&self.header, raw).has_data())
            });
            if let Some(steps) = found {
                let hit = at + steps as u64;
                return (hit < self.header.clusters()).then_some(hit);
            }
            at = (table as u64 + 1) * per_table;
        }
        None
    }

    /// Returns every cluster that has data, in guest order.
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
                            Cluster::decode(&self.header, raw),
                        )
                    })
                    .filter(move |&(index, cluster)| index < clusters && cluster.has_data())
            })
    }

    /// Checks that each host cluster has one use: no table and no guest cluster overlaps another.
    fn check_clusters(&self, metadata: &Metadata) -> Result<(), Qcow2Error> {
        self.check_zero_marks()?;
        let mut plain = Vec::new();
        let mut compressed = Vec::new();
        for (index, cluster) in self.iter() {
            cluster.check(&self.header, index)?;
            let range = cluster.range(&self.header);
            if range.is_some_and(|(start, end)| metadata.overlaps(start, end)) {
                return Err(Qcow2Error::damaged(format!(
                    "guest cluster {index} overlaps a table"
                )));
            }
            match cluster {
                Cluster::Plain(offset) => plain.push(offset),
                Cluster::Compressed { offset, .. } => compressed.push(offset),
                Cluster::Unallocated | Cluster::Zero => {}
            }
        }
        plain.sort_unstable();
        compressed.sort_unstable();
        if has_duplicates(&plain) || has_duplicates(&compressed) {
            return Err(Qcow2Error::damaged(
                "two guest clusters have the same place",
            ));
        }
        let cluster_size = self.header.cluster_size();
        let on_plain = compressed.iter().any(|offset| {
            plain
                .binary_search(&(offset - offset % cluster_size))
                .is_ok()
        });
        if on_plain {
            return Err(Qcow2Error::damaged(
                "a compressed cluster overlaps another cluster",
            ));
        }
        Ok(())
    }

    fn check_zero_marks(&self) -> Result<(), Qcow2Error> {
        let mut entries = self.l2.iter().flat_map(|entries| entries.iter());
        if self.header.version >= 3 || !entries.any(|&entry| cluster::is_zero_mark(entry)) {
            return Ok(());
        }
        Err(Qcow2Error::damaged(
            "an entry is a zero mark, which version 2 lacks",
        ))
    }
}

/// Checks what an image must be to be read as a whole: on its own, with tables of the present state that fit its disk.
fn check_image(file: &dyn ReadAt, header: &Header) -> Result<(), Qcow2Error> {
    header.check_standalone()?;
    header.check(file)?;
    if header.size > MAX_SIZE {
        return Err(Qcow2Error::refused(
            "its disk is larger than a patch can describe, which is 64 MiB less than 16 TiB",
        ));
    }
    header.check_tables(file)?;
    if u64::from(header.l1_entries) < header.l1_needed(header.size) {
        return Err(Qcow2Error::damaged(
            "the first-level table is too short for the disk's size",
        ));
    }
    Ok(())
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

fn read_l1(file: &dyn ReadAt, header: &Header) -> Result<Vec<u64>, Qcow2Error> {
    let needed = header.l1_needed(header.size) as u32;
    let offsets = header.read_l1(file, header.l1_offset, needed)?;
    let present = offsets.iter().filter(|&&offset| offset != 0).count() as u64;
    if present * header.cluster_size() > MAX_L2_BYTES {
        return Err(Qcow2Error::refused(
            "it maps more than this codec takes in memory",
        ));
    }
    Ok(offsets)
}

fn read_l2(file: &dyn ReadAt, header: &Header, offset: u64) -> Result<Box<[u64]>, Qcow2Error> {
    if offset == 0 {
        return Ok(Box::default());
    }
    let per_table = header.clusters_per_l2() as usize;
    let entries = tables::read(
        file,
        header.cluster_size(),
        "second-level table",
        (offset, per_table),
    )?;
    if entries.iter().all(|&raw| raw == 0) {
        return Ok(Box::default());
    }
    Ok(entries.into_boxed_slice())
}
