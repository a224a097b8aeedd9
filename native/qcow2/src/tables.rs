//! Tables of 64-bit numbers within a file.

use diffcache_base::words::Words;
use diffcache_core::source::ReadAt;

use crate::error::Qcow2Error;

/// Bits of an entry that hold an offset.
pub(crate) const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;

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
    file: &dyn ReadAt,
    cluster_size: u64,
    what: &str,
    (offset, bytes): (u64, u64),
) -> Result<(), Qcow2Error> {
    let end = offset.checked_add(bytes);
    if offset % cluster_size != 0 || end.is_none_or(|end| end > file.len()) {
        return Err(Qcow2Error::damaged(format!(
            "the {what} is misplaced: it is not aligned, or outside the file"
        )));
    }
    Ok(())
}

/// Reads a table of this many entries.
pub(crate) fn read(
    file: &dyn ReadAt,
    cluster_size: u64,
    what: &str,
    (offset, entries): (u64, usize),
) -> Result<Vec<u64>, Qcow2Error> {
    check_place(file, cluster_size, what, (offset, entries as u64 * 8))?;
    let raw = read_bytes(file, what, offset, entries * 8)?;
    Ok(raw
        .chunks_exact(8)
        .map(|entry| Words(entry).be64(0))
        .collect())
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
            "the {what} is outside the file"
        )));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
