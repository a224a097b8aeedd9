//! Where an image keeps its tables.

use diffcache_base::varint::put;

use super::varint::{put_step, Reader};
use super::Run;
use crate::error::Qcow2Error;
use crate::map::Map;
use crate::refcounts;

/// The largest table that the format allows, in bytes.
const MAX_TABLE: u64 = 32 << 20;
/// Larger files are refused.
const MAX_FILE: u64 = 1 << 56;

/// Sizes of an image and places of its tables.
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
    /// Returns the layout of an image.
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

    /// Returns the size of a cluster in bytes.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the offset of a decoded stream, given the end of the one before, the distance from there, and its own length.
    ///
    /// # Errors
    /// `BadPatch` if it is not inside the file.
    pub fn place(&self, end: u64, distance: u64, length: u64) -> Result<u64, Qcow2Error> {
        let offset = end.wrapping_add(distance);
        let inside = offset
            .checked_add(length)
            .is_some_and(|stop| stop <= self.file_size);
        inside
            .then_some(offset)
            .ok_or_else(|| Qcow2Error::bad_patch("a cluster outside the file"))
    }

    /// Returns the bytes of a run of plain clusters that are both the guest's and in the file.
    pub(super) fn visible(&self, run: &Run) -> u64 {
        (run.count << self.cluster_bits)
            .min(self.guest_size - (run.index << self.cluster_bits))
            .min(self.file_size - run.offset)
    }

    /// Returns the length of a stream that a recipe says.
    ///
    /// # Errors
    /// `BadPatch` if no stream can be that long.
    pub(super) fn stream_length(&self, length: u64) -> Result<u32, Qcow2Error> {
        let fits = length > 0 && length <= 2 * self.cluster_size();
        u32::try_from(length)
            .ok()
            .filter(|_| fits)
            .ok_or_else(|| Qcow2Error::bad_patch("a compressed cluster of impossible length"))
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

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
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

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, Qcow2Error> {
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
