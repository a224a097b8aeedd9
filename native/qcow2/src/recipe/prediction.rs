//! What follows from the places of an image's clusters: second-level tables and refcount blocks; and how a file differs from that.

use diffcache_core::source::ReadAt;

use super::{Difference, Layout, Run, Stream};
use crate::cluster::{compressed_entry, plain_entry, SECTOR};
use crate::error::Qcow2Error;
use crate::refcounts;
use crate::tables;

/// Bytes of a file that are accepted as differences.
const MAX_DIFFERENCE: usize = 64 << 20;
/// Differences closer than this are joined: a separate one costs about as much.
const MERGE: usize = 8;
const READ: u64 = 64 << 10;

/// The tables that follow from the places of the clusters.
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
    /// Predicts the tables; `placed` is offset and length of each stream, in the order of `streams`.
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

    /// Returns the bytes of a table.
    pub fn size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the offset of the first predicted table at or after `offset`.
    pub fn next_place(&self, offset: u64) -> Option<u64> {
        self.places
            .get(self.places.partition_point(|place| place.0 < offset))
            .map(|place| place.0)
    }

    /// Returns the predicted table that starts at `offset`, if there is one.
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

/// Compares `file` with the prediction, outside of the `covered` ranges (sorted, disjoint, inside the file).
///
/// # Errors
/// `Refused` if too much differs; `Source`.
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
