//! Reference counts of host clusters: the refcount table, and blocks of 16-bit counts.

use diffcache_core::source::ReadAt;

use crate::error::Qcow2Error;
use crate::header::Header;
use crate::tables;

/// Width of a count, as `refcount_order` of the header has it: 16 bits, the only width that is written.
pub(crate) const ORDER: u32 = 4;

/// Returns the number of host clusters that one block counts.
pub(crate) fn per_block(cluster_bits: u32) -> u64 {
    1 << (cluster_bits - 1)
}

/// Encodes a block of counts, all 0 but for `counts` (slot, count).
pub(crate) fn encode_block(
    cluster_bits: u32,
    counts: impl Iterator<Item = (usize, u16)>,
) -> Vec<u8> {
    let mut block = vec![0; 1 << cluster_bits];
    for (slot, count) in counts {
        block[slot * 2..slot * 2 + 2].copy_from_slice(&count.to_be_bytes());
    }
    block
}

/// Reads the refcount table; returns the offsets of the blocks, 0 for none. Empty entries at its end are dropped.
pub(crate) fn read_table(file: &dyn ReadAt, header: &Header) -> Result<Vec<u64>, Qcow2Error> {
    let entries = (header.reftable_bytes / 8) as usize;
    let place = (header.reftable_offset, entries);
    let cluster_size = header.cluster_size();
    let mut blocks = tables::read(file, cluster_size, "refcount table", place)?;
    let used = blocks
        .iter()
        .rposition(|&offset| offset != 0)
        .map_or(0, |last| last + 1);
    blocks.truncate(used);
    for &offset in blocks.iter().filter(|&&offset| offset != 0) {
        tables::check_place(file, cluster_size, "refcount block", (offset, cluster_size))?;
    }
    Ok(blocks)
}
