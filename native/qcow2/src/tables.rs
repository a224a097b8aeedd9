//! Entries of first- and second-level tables, and reading tables within the file.

use diffcache_core::source::ReadAt;

use crate::error::Qcow2Error;
use crate::header::Header;

/// Bits of an entry that hold an offset.
pub(crate) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
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

    /// The file range that holds the cluster, `None` without data. The last cluster may reach beyond the end of the file.
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
                "guest cluster {index} lies outside the file"
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

/// Whether a second-level entry is a zero mark, which version 2 lacks.
pub(crate) fn is_zero_mark(entry: u64) -> bool {
    entry & COMPRESSED == 0 && entry & ZERO != 0
}

/// The second-level entry of a compressed stream, as QEMU writes it.
pub(crate) fn compressed_entry(cluster_bits: u32, offset: u64, length: u64) -> u64 {
    let last = (offset + length.max(1) - 1) / SECTOR;
    let sectors = last - offset / SECTOR;
    COMPRESSED | (sectors << sector_shift(cluster_bits)) | offset
}

/// The entry of a plain cluster, or of a table, that has one user.
pub(crate) fn plain_entry(offset: u64) -> u64 {
    COPIED | offset
}

/// The second-level entry of a cluster of zeroes that is not stored.
pub(crate) fn zero_entry() -> u64 {
    ZERO
}

/// Position of the sector count in a compressed cluster's entry.
fn sector_shift(cluster_bits: u32) -> u32 {
    62 - (cluster_bits - 8)
}

/// Encodes a table of `slots` entries, all 0 but for `entries` (slot, entry).
pub(crate) fn encode(slots: usize, entries: impl Iterator<Item = (usize, u64)>) -> Vec<u8> {
    let mut table = vec![0; slots * 8];
    for (slot, entry) in entries {
        table[slot * 8..slot * 8 + 8].copy_from_slice(&entry.to_be_bytes());
    }
    table
}

/// Checks that a table starts at a cluster and ends inside the file.
pub(crate) fn check_place(
    header: &Header,
    what: &str,
    offset: u64,
    bytes: u64,
) -> Result<(), Qcow2Error> {
    let end = offset.checked_add(bytes);
    if offset % header.cluster_size() != 0 || end.is_none_or(|end| end > header.file_size) {
        return Err(Qcow2Error::damaged(format!(
            "the {what} is misplaced: it is not aligned, or lies outside the file"
        )));
    }
    Ok(())
}

/// Reads a table of `entries` numbers.
pub(crate) fn read(
    file: &dyn ReadAt,
    header: &Header,
    what: &str,
    offset: u64,
    entries: usize,
) -> Result<Vec<u64>, Qcow2Error> {
    check_place(header, what, offset, entries as u64 * 8)?;
    let raw = read_bytes(file, what, offset, entries * 8)?;
    Ok(raw.chunks_exact(8).map(|entry| be64(entry, 0)).collect())
}

/// Reads bytes that must be inside the file.
pub(crate) fn read_bytes(
    file: &dyn ReadAt,
    what: &str,
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, Qcow2Error> {
    let end = offset.checked_add(length as u64);
    if end.is_none_or(|end| end > file.len()) {
        return Err(Qcow2Error::damaged(format!(
            "the {what} lies outside the file"
        )));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    let mut raw = [0; 2];
    raw.copy_from_slice(&bytes[at..at + 2]);
    u16::from_be_bytes(raw)
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(raw)
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(raw)
}
