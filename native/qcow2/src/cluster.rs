//! Guest clusters: where their bytes are stored, as the entries of second-level tables say.

use crate::error::Qcow2Error;
use crate::header::Header;
use crate::tables::OFFSET_MASK;

/// The cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// The cluster's reference count is exactly one.
pub(crate) const COPIED: u64 = 1 << 63;
/// The cluster reads as zeroes; since version 3.
const ZERO: u64 = 1;
/// Unit in which the length of a compressed cluster is counted.
pub(crate) const SECTOR: u64 = 512;

/// Where the bytes of a guest cluster are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    /// Not in this file: the backing file's, or zero if there is none.
    Unallocated,
    /// All bytes are zero.
    Zero,
    /// At this file offset.
    Plain(u64),
    /// Compressed; the stream starts at `offset` and ends within `length` bytes of it.
    Compressed {
        /// Offset of the stream in the file.
        offset: u64,
        /// Bytes up to the end of the stream's last sector, cut at the end of the file.
        length: u64,
    },
}

impl Cluster {
    /// Reads a second-level entry.
    pub(crate) fn decode(header: &Header, entry: u64) -> Self {
        if entry & COMPRESSED != 0 {
            let shift = sector_shift(header.cluster_bits);
            let offset = entry & ((1 << shift) - 1);
            let sectors = (entry & (COMPRESSED - 1)) >> shift;
            let end = (offset - offset % SECTOR)
                .saturating_add((sectors + 1) * SECTOR)
                .min(header.file_size);
            return Self::Compressed {
                offset,
                length: end.saturating_sub(offset),
            };
        }
        if header.version >= 3 && entry & ZERO != 0 {
            return Self::Zero;
        }
        match entry & OFFSET_MASK {
            0 => Self::Unallocated,
            offset => Self::Plain(offset),
        }
    }

    /// Returns whether the file has bytes of the cluster.
    pub fn has_data(self) -> bool {
        matches!(self, Self::Plain(_) | Self::Compressed { .. })
    }

    /// Returns the file range that holds the cluster, `None` without data. The last cluster may reach beyond the end of the file.
    pub(crate) fn range(self, header: &Header) -> Option<(u64, u64)> {
        match self {
            Self::Unallocated | Self::Zero => None,
            Self::Plain(offset) => Some((offset, offset.saturating_add(header.cluster_size()))),
            Self::Compressed { offset, length } => Some((offset, offset.saturating_add(length))),
        }
    }

    /// Checks that guest cluster `index` is stored inside the file and, unless compressed, aligned.
    pub(crate) fn check(self, header: &Header, index: u64) -> Result<(), Qcow2Error> {
        let Some((offset, _)) = self.range(header) else {
            return Ok(());
        };
        if offset >= header.file_size || offset < header.cluster_size() {
            return Err(Qcow2Error::damaged(format!(
                "guest cluster {index} is outside the file"
            )));
        }
        if matches!(self, Self::Plain(_)) && offset % header.cluster_size() != 0 {
            return Err(Qcow2Error::damaged(format!(
                "guest cluster {index} is not aligned"
            )));
        }
        Ok(())
    }
}

/// Returns whether a second-level entry is a zero mark, which version 2 lacks.
pub(crate) fn is_zero_mark(entry: u64) -> bool {
    entry & COMPRESSED == 0 && entry & ZERO != 0
}

/// Returns the second-level entry of a compressed stream, as QEMU writes it.
pub(crate) fn compressed_entry(cluster_bits: u32, offset: u64, length: u64) -> u64 {
    let last = (offset + length.max(1) - 1) / SECTOR;
    let sectors = last - offset / SECTOR;
    COMPRESSED | (sectors << sector_shift(cluster_bits)) | offset
}

/// Returns the entry of a plain cluster, or of a table, that has one user.
pub(crate) fn plain_entry(offset: u64) -> u64 {
    COPIED | offset
}

/// Returns the second-level entry of a cluster of zeroes that is not stored.
pub(crate) fn zero_entry() -> u64 {
    ZERO
}

/// Returns the position of the sector count in a compressed cluster's entry.
fn sector_shift(cluster_bits: u32) -> u32 {
    62 - (cluster_bits - 8)
}
