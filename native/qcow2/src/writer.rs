//! New qcow2 files: all tables in front, then the data, so that a file is written once and in order.
//!
//! ```text
//! header | refcount table | refcount blocks | first-level table | second-level tables | data clusters, in the guest's order
//! ```
//!
//! Version 3, clusters of 64 KiB, 16-bit reference counts; nothing is compressed.

use std::ops::Range;

use crate::cluster::{plain_entry, zero_entry};
use crate::error::Qcow2Error;
use crate::header::{Backing, Compression, Header, V3_LENGTH};
use crate::refcounts;
use crate::tables;

/// Cluster size is `1 << CLUSTER_BITS`.
pub const CLUSTER_BITS: u32 = 16;
/// Bytes of a cluster.
pub const CLUSTER: u64 = 1 << CLUSTER_BITS;
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Entries of a table of one cluster.
const ENTRIES: u64 = CLUSTER / 8;

/// What a new file holds of a guest cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// Nothing: the backing file's bytes, or zeroes without one.
    Unallocated,
    /// A mark that it is zero, over a backing file that may not be.
    Zero,
    /// Its bytes.
    Data,
}

/// Guest clusters that one second-level table describes.
pub const TABLE_CLUSTERS: u64 = ENTRIES;

/// Where the parts of a new file are, in clusters. Takes a bit per second-level table, whatever size the disk is said to have.
#[derive(Debug)]
pub struct Layout {
    /// Bytes of the guest's disk.
    size: u64,
    /// Which of the second-level tables exist.
    tables: Vec<bool>,
    reftable: u64,
    refblocks: u64,
    l1: u64,
    l2: u64,
    data: u64,
}

impl Layout {
    /// Lays out a file for a disk of `size` bytes. `contents` is called for each second-level table in turn with the guest clusters that it
    /// describes, and returns what the file holds of them.
    ///
    /// # Errors
    /// What `contents` returns.
    pub fn new<E>(
        size: u64,
        mut contents: impl FnMut(Range<u64>) -> Result<Vec<Content>, E>,
    ) -> Result<Self, E> {
        let mut tables = Vec::new();
        let mut data = 0;
        for clusters in parts(size) {
            let part = contents(clusters)?;
            data += part.iter().filter(|&&kind| kind == Content::Data).count() as u64;
            tables.push(has_table(&part));
        }
        let mut layout = Self {
            size,
            reftable: 1,
            refblocks: 1,
            l1: (tables.len() as u64 * 8).div_ceil(CLUSTER).max(1),
            l2: tables.iter().filter(|&&exists| exists).count() as u64,
            tables,
            data,
        };
        // Refcounts count themselves; each round can only grow them.
        loop {
            let blocks = layout
                .clusters()
                .div_ceil(refcounts::per_block(CLUSTER_BITS));
            let table = (blocks * 8).div_ceil(CLUSTER);
            if blocks <= layout.refblocks && table <= layout.reftable {
                return Ok(layout);
            }
            layout.refblocks = layout.refblocks.max(blocks);
            layout.reftable = layout.reftable.max(table);
        }
    }

    fn refblocks_at(&self) -> u64 {
        1 + self.reftable
    }

    fn l1_at(&self) -> u64 {
        self.refblocks_at() + self.refblocks
    }

    fn l2_at(&self) -> u64 {
        self.l1_at() + self.l1
    }

    fn data_at(&self) -> u64 {
        self.l2_at() + self.l2
    }

    fn clusters(&self) -> u64 {
        self.data_at() + self.data
    }

    /// Bytes in front of the data.
    pub fn front(&self) -> u64 {
        self.data_at() * CLUSTER
    }

    /// Writes everything in front of the data through `out`, in order. `contents` returns the same as for [`Layout::new`], and is only called for
    /// tables that exist.
    ///
    /// # Errors
    /// `BackingName` if the name of the backing file is too long; what `contents` and `out` return.
    pub fn write<E: From<Qcow2Error>>(
        &self,
        backing: Option<Backing<'_>>,
        contents: impl FnMut(Range<u64>) -> Result<Vec<Content>, E>,
        mut out: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        out(&self.header().encode(backing)?)?;
        let refblocks = offsets(self.refblocks_at()).take(self.refblocks as usize);
        out(&tables::encode(
            (self.reftable * ENTRIES) as usize,
            refblocks.enumerate(),
        ))?;
        for block in 0..self.refblocks {
            out(&self.encode_refcounts(block))?;
        }
        let present = self
            .tables
            .iter()
            .enumerate()
            .filter(|(_, exists)| **exists);
        out(&tables::encode(
            (self.l1 * ENTRIES) as usize,
            present
                .zip(offsets(self.l2_at()))
                .map(|((slot, _), offset)| (slot, plain_entry(offset))),
        ))?;
        self.write_l2(contents, out)
    }

    /// Encodes a block of counts: every cluster of the file is used once.
    fn encode_refcounts(&self, block: u64) -> Vec<u8> {
        let per_block = refcounts::per_block(CLUSTER_BITS);
        let used = self
            .clusters()
            .saturating_sub(block * per_block)
            .min(per_block);
        let counts = (0..used as usize).map(|slot| (slot, 1));
        refcounts::encode_block(CLUSTER_BITS, counts)
    }

    fn write_l2<E>(
        &self,
        mut contents: impl FnMut(Range<u64>) -> Result<Vec<Content>, E>,
        mut out: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut data = offsets(self.data_at());
        let existing = parts(self.size)
            .zip(&self.tables)
            .filter(|(_, exists)| **exists);
        for (clusters, _) in existing {
            let part = contents(clusters)?;
            let entries = part
                .iter()
                .enumerate()
                .filter_map(|(slot, content)| match content {
                    Content::Unallocated => None,
                    Content::Zero => Some((slot, zero_entry())),
                    Content::Data => data.next().map(|offset| (slot, plain_entry(offset))),
                });
            out(&tables::encode(ENTRIES as usize, entries))?;
        }
        Ok(())
    }

    fn header(&self) -> Header {
        Header {
            version: 3,
            length: V3_LENGTH as u32,
            cluster_bits: CLUSTER_BITS,
            // Guests see whole sectors, and QEMU drops what is left of one.
            size: self.size.next_multiple_of(SECTOR),
            file_size: self.clusters() * CLUSTER,
            l1_offset: self.l1_at() * CLUSTER,
            // An empty disk has one that is not used: the table takes a cluster.
            l1_entries: self.tables.len().max(1) as u32,
            reftable_offset: CLUSTER,
            reftable_bytes: self.reftable * CLUSTER,
            refcount_order: refcounts::ORDER,
            compression: Compression::Zlib,
            snapshots_offset: 0,
            snapshots: 0,
            backing_offset: 0,
            backing_length: 0,
        }
    }
}

/// The guest clusters of each second-level table.
fn parts(size: u64) -> impl Iterator<Item = Range<u64>> {
    let clusters = size.div_ceil(CLUSTER);
    (0..clusters.div_ceil(ENTRIES))
        .map(move |part| part * ENTRIES..((part + 1) * ENTRIES).min(clusters))
}

fn has_table(contents: &[Content]) -> bool {
    contents
        .iter()
        .any(|&content| content != Content::Unallocated)
}

/// Returns the file offsets of successive clusters.
fn offsets(first: u64) -> impl Iterator<Item = u64> {
    (first..).map(|cluster| cluster * CLUSTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Map;
    use crate::snapshots::Disk;
    use crate::Cluster;
    use diffcache_base::words::Words;
    use proptest::prelude::*;

    fn of(contents: &[Content]) -> impl Fn(Range<u64>) -> Result<Vec<Content>, Qcow2Error> + '_ {
        |part| Ok(contents[part.start as usize..part.end as usize].to_vec())
    }

    fn layout(size: u64, contents: &[Content]) -> Layout {
        Layout::new(size, of(contents)).unwrap()
    }

    fn front(
        layout: &Layout,
        contents: &[Content],
        backing: Option<Backing<'_>>,
    ) -> Result<Vec<u8>, Qcow2Error> {
        let mut out = Vec::new();
        layout.write(backing, of(contents), |bytes| {
            out.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(out)
    }

    /// Returns a file of zeroes in which only the tables are written.
    fn file(size: u64, contents: &[Content], backing: Option<Backing<'_>>) -> Vec<u8> {
        let layout = layout(size, contents);
        let mut file = front(&layout, contents, backing).unwrap();
        assert_eq!(file.len() as u64, layout.front());
        file.resize((layout.clusters() * CLUSTER) as usize, 0);
        file
    }

    fn contents() -> impl Strategy<Value = Vec<Content>> {
        let run = (
            prop::sample::select(vec![Content::Unallocated, Content::Zero, Content::Data]),
            1..40_usize,
        );
        let long = (Just(Content::Unallocated), 1..20_000_usize);
        prop::collection::vec(prop_oneof![4 => run, 1 => long], 0..8).prop_map(|runs| {
            runs.into_iter()
                .flat_map(|(content, count)| std::iter::repeat_n(content, count))
                .collect()
        })
    }

    /// Returns all uses of host clusters by the tables of a file.
    fn uses(map: &Map) -> Vec<u64> {
        let header = map.header();
        let table = |offset: u64, bytes: u64| offset / CLUSTER..(offset + bytes).div_ceil(CLUSTER);
        let mut uses: Vec<u64> = table(0, CLUSTER)
            .chain(table(
                header.l1_offset,
                (u64::from(header.l1_entries) * 8).max(1),
            ))
            .chain(table(header.reftable_offset, header.reftable_bytes))
            .collect();
        let tables = map.l2_offsets().iter().chain(map.refcount_blocks());
        uses.extend(tables.filter(|&&at| at != 0).map(|at| at / CLUSTER));
        uses.extend(map.iter().filter_map(|(_, cluster)| match cluster {
            Cluster::Plain(offset) => Some(offset / CLUSTER),
            _ => None,
        }));
        uses.sort_unstable();
        uses
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_reader_finds_what_was_written(contents in contents(), cut in 0..CLUSTER) {
            let size = (contents.len() as u64 * CLUSTER).saturating_sub(cut);
            let file = file(size, &contents, None);
            let map = Map::read(&file).unwrap();
            prop_assert_eq!(map.header().size, size.next_multiple_of(SECTOR));
            let mut last = 0;
            for (index, &content) in (0..).zip(&contents) {
                let cluster = map.cluster(index);
                match content {
                    Content::Unallocated => prop_assert_eq!(cluster, Cluster::Unallocated),
                    Content::Zero => prop_assert_eq!(cluster, Cluster::Zero),
                    Content::Data => {
                        let Cluster::Plain(offset) = cluster else { panic!("{cluster:?}") };
                        prop_assert!(offset > last, "data in the guest's order");
                        last = offset;
                    }
                }
            }
        }

        #[test]
        fn every_cluster_of_a_new_file_is_counted_once(contents in contents()) {
            let size = contents.len() as u64 * CLUSTER;
            let file = file(size, &contents, None);
            let map = Map::read(&file).unwrap();
            let clusters = file.len() as u64 / CLUSTER;
            prop_assert_eq!(uses(&map), (0..clusters).collect::<Vec<_>>());
            let per_block = refcounts::per_block(CLUSTER_BITS) as usize;
            let counted = map.refcount_blocks().iter().flat_map(|&at| {
                let block = &file[at as usize..(at + CLUSTER) as usize];
                (0..per_block).map(|slot| Words(block).be16(slot * 2)).collect::<Vec<_>>()
            });
            for (cluster, count) in (0..).zip(counted) {
                prop_assert_eq!(count, u16::from(cluster < clusters), "cluster {}", cluster);
            }
        }

        #[test]
        fn a_backing_file_is_named(contents in contents(), name in "[a-z/]{1,1023}", qcow2 in any::<bool>()) {
            let format = if qcow2 { "qcow2" } else { "raw" };
            let backing = Backing { name: &name, format };
            let file = file(contents.len() as u64 * CLUSTER, &contents, Some(backing));
            let disk = Disk::open(&file).unwrap();
            prop_assert_eq!(disk.backing.as_ref(), Some(&name));
            prop_assert!(matches!(Map::read(&file), Err(Qcow2Error::Refused(_))));
        }
    }

    #[test]
    fn a_backing_file_with_too_long_a_name_is_refused() {
        let name = "n".repeat(1024);
        let backing = Backing {
            name: &name,
            format: "raw",
        };
        let contents = [Content::Data];
        let error = front(&layout(CLUSTER, &contents), &contents, Some(backing)).unwrap_err();
        assert!(matches!(error, Qcow2Error::BackingName(_)), "{error}");
    }

    #[test]
    fn many_clusters_take_several_refcount_blocks() {
        let contents = vec![Content::Data; 70_000];
        let layout = layout(70_000 * CLUSTER, &contents);
        assert_eq!(layout.refblocks, 3);
        let front = front(&layout, &contents, None).unwrap();
        assert_eq!(front.len() as u64, layout.front());
    }
}
