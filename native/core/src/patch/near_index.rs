//! Where the base has content that resembles the literals.

use super::compare::Images;
use super::error::PatchError;
use super::literal_frames::parts_between;
use super::literals::Part;
use super::options::CreateOptions;
use super::runs::{BLOCK, BLOCK_LEN};
use crate::near::anchors::find_anchors;
use crate::near::index::AnchorIndex;
use crate::source::{data_pieces, read_padded};
use crate::task::for_each_piece_with;

/// Blocks that are looked at together: 1 MiB.
const PIECE_BLOCKS: u32 = 256;
const PIECE_LEN: u64 = PIECE_BLOCKS as u64 * BLOCK;
/// The base is searched if it has at most this many times as much data as there are literals: beyond, reading all of it costs more than what is
/// found saves, and literals are compared with what their neighbours come from only.
const WORTHWHILE: u64 = 24;

/// Finds the anchors of all literals in the base; none if that is not worthwhile.
pub(super) fn index_base(
    images: &Images<'_>,
    parts: &[Part],
    literals: u32,
    options: &CreateOptions<'_>,
) -> Result<Option<AnchorIndex>, PatchError> {
    let pieces = data_pieces(images.base, PIECE_LEN)?;
    let new = u64::from(literals) * BLOCK;
    if pieces.data_len() == 0 || pieces.data_len() > new.saturating_mul(WORTHWHILE) {
        return Ok(None);
    }
    let index = AnchorIndex::for_target(new);
    let task = options.task.silent();
    let units = u64::from(literals.div_ceil(PIECE_BLOCKS));
    for_each_piece_with(&task, units, Scratch::default, |scratch, unit| {
        let from = unit as u32 * PIECE_BLOCKS;
        scratch.anchors.clear();
        for part in parts_between(parts, from, from.saturating_add(PIECE_BLOCKS)) {
            let bytes = &mut scratch.bytes;
            bytes.resize(part.len as usize * BLOCK_LEN, 0);
            read_padded(images.target, u64::from(part.start) * BLOCK, bytes)?;
            find_anchors(bytes, index.spacing(), &mut scratch.anchors);
        }
        index.add_wanted(&scratch.anchors);
        Ok::<_, PatchError>(())
    })?;
    for_each_piece_with(&task, pieces.count(), Scratch::default, |scratch, i| {
        let offset = pieces.number(i) * PIECE_LEN;
        let len = PIECE_LEN.min(images.base.len() - offset);
        scratch.bytes.resize(len as usize, 0);
        images.base.read_exact_at(&mut scratch.bytes, offset)?;
        scratch.anchors.clear();
        find_anchors(&scratch.bytes, index.spacing(), &mut scratch.anchors);
        index.add_base(offset, &scratch.anchors);
        Ok::<_, PatchError>(())
    })?;
    Ok(Some(index))
}

/// A thread's buffers.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    anchors: Vec<crate::near::anchors::Anchor>,
}
