//! Near frames: literals as copies from pieces of the base, differences and what is left.
//!
//! To read a near frame is to read its pieces of the base as well. The promise that any 256 KiB of the target are read with at most 512 KiB of base
//! and patch holds since no frame between blocks of the base costs more than `EDGE`, and no near frame more than 7/5 of what it holds:
//! a window touches two frames that it does not cover, and 2 * 72 + 256 * 7/5 is less than 512.
//!
//! So there is a choice between few large frames whose copies are from nearly as few blocks of the base as they have, and small ones whose copies may
//! come from more places. Small ones win: the copies that larger ones must give up outweigh what they save by their context.

use super::compress::{Encoded, MAX_LEVEL};
use super::error::PatchError;
use super::format::{frame_check, FrameKind, Piece};
use super::runs::{BLOCK, BLOCK_LEN};
use crate::near::align::{Aligner, Copy, Hint};
use crate::near::index::AnchorIndex;
use crate::near::pack::{PackError, Packer};
use crate::source::{read_padded, ReadAt};

/// Most bytes of base and patch that a frame takes where literals and base alternate.
pub const EDGE: usize = 72 << 10;
/// Most bytes of base and patch that a near frame takes, in fifths of what it holds.
const MOST_FIFTHS: usize = 7;
/// Most blocks of a near frame: it may take `MOST_FIFTHS` then, and be within `EDGE`.
const MAX_BLOCKS: usize = 12;
/// Fewest blocks of a near frame: below, one block of base more is too many.
const MIN_BLOCKS: usize = 4;
/// The highest level of zstd for differences: mostly zeroes, which higher ones search for long and code a few per cent shorter.
const MAX_DIFFERENCES: i32 = 16;
/// A near frame of less than this part of what it holds is not compared with others.
const LITTLE: usize = 16;
/// A block is near if at least this much of it is copied.
const NEAR_BYTES: u32 = 256;
/// Stretches of fewer blocks that are not near are part of the near frames around them.
const MIN_PLAIN: usize = 6;

/// Blocks of a group of literals that are coded the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// First block.
    pub first: usize,
    /// Block after the last.
    pub end: usize,
    /// Whether much of it resembles the base.
    pub is_near: bool,
}

/// Makes near frames. Holds the buffers of one thread.
pub struct NearCoder<'a> {
    base: &'a dyn ReadAt,
    aligner: Aligner<'a>,
    packer: Packer,
    copies: Vec<Copy>,
    reference: Vec<u8>,
}

impl<'a> NearCoder<'a> {
    /// Creates a coder for one of zstd's levels.
    pub fn new(
        base: &'a dyn ReadAt,
        index: Option<&'a AnchorIndex>,
        zstd_level: i32,
    ) -> Result<NearCoder<'a>, PatchError> {
        // What is left of an upgrade is little, and worth more time.
        let level = match zstd_level {
            ..4 => zstd_level,
            _ => (zstd_level + 2).min(MAX_LEVEL),
        };
        Ok(NearCoder {
            base,
            aligner: Aligner::new(base, index),
            packer: Packer::new(level, level.min(MAX_DIFFERENCES)).map_err(from_pack)?,
            copies: Vec::new(),
            reference: Vec::new(),
        })
    }

    /// Finds out what of a group of literals resembles the base, and divides it into zones.
    pub fn plan(&mut self, raw: &[u8], hints: &[Hint]) -> Result<Vec<Zone>, PatchError> {
        self.copies.clear();
        self.aligner.align(raw, hints, &mut self.copies)?;
        Ok(zones(raw.len() / BLOCK_LEN, &self.copies))
    }

    /// Codes a near zone of the group that was planned last. Frames that are not worthwhile are left out: their blocks are returned as zones.
    pub fn frames(
        &mut self,
        raw: &[u8],
        zone: Zone,
        mut put: impl FnMut(Zone, Option<Encoded>) -> Result<(), PatchError>,
    ) -> Result<(), PatchError> {
        let mut first = zone.first;
        while first < zone.end {
            let left = zone.end - first;
            let frames = left.div_ceil(MAX_BLOCKS);
            let end = first + left.div_ceil(frames);
            let part = Zone {
                first,
                end,
                is_near: false,
            };
            put(part, self.frame(raw, first, end)?)?;
            first = end;
        }
        Ok(())
    }

    fn frame(
        &mut self,
        raw: &[u8],
        first: usize,
        end: usize,
    ) -> Result<Option<Encoded>, PatchError> {
        let raw = &raw[first * BLOCK_LEN..end * BLOCK_LEN];
        let most = EDGE.min(raw.len() * MOST_FIFTHS / 5);
        let mut copies = clip(&self.copies, first, end);
        // The patch's bytes come on top; if they are more than expected, some copies are given up.
        let mut room = most / BLOCK_LEN;
        for _ in 0..3 {
            prune(&mut copies, room);
            if copies.is_empty() {
                return Ok(None);
            }
            let pieces = pieces_of(&copies);
            self.read(&pieces)?;
            let placed = place(&copies, &pieces);
            let (kind, bytes) = self.code(raw, &placed)?;
            if bytes.len() >= raw.len() {
                return Ok(None);
            }
            if bytes.len() + self.reference.len() <= most {
                return Ok(Some(Encoded {
                    blocks: (end - first) as u32,
                    kind,
                    pieces,
                    check: frame_check(&bytes),
                    bytes,
                }));
            }
            let over = bytes.len() + self.reference.len() - most;
            room = (self.reference.len() / BLOCK_LEN).saturating_sub(over.div_ceil(BLOCK_LEN) + 1);
        }
        Ok(None)
    }

    /// Codes bytes as copies from the reference; where that leaves much, also as they are with the reference as dictionary, and returns the shorter.
    fn code(&mut self, raw: &[u8], copies: &[Copy]) -> Result<(FrameKind, Vec<u8>), PatchError> {
        let packed = self
            .packer
            .pack(raw, copies, &self.reference)
            .map_err(from_pack)?;
        if packed.len() < raw.len() / LITTLE {
            return Ok((FrameKind::Near, packed));
        }
        let whole = self
            .packer
            .compress(raw, &self.reference)
            .map_err(from_pack)?;
        Ok(match whole.len() < packed.len() {
            true => (FrameKind::Zstd, whole),
            false => (FrameKind::Near, packed),
        })
    }

    fn read(&mut self, pieces: &[Piece]) -> Result<(), PatchError> {
        let blocks: usize = pieces.iter().map(|(_, len)| *len as usize).sum();
        self.reference.resize(blocks * BLOCK_LEN, 0);
        let mut at = 0;
        for (start, len) in pieces {
            let end = at + *len as usize * BLOCK_LEN;
            read_padded(
                self.base,
                u64::from(*start) * BLOCK,
                &mut self.reference[at..end],
            )?;
            at = end;
        }
        Ok(())
    }
}

fn from_pack(error: PackError) -> PatchError {
    match error {
        PackError::Zstd(reason) => PatchError::Zstd(reason),
        PackError::Contradiction(error) => PatchError::Format(error.to_string()),
    }
}

/// Divides blocks into zones by how much of them is copied.
fn zones(blocks: usize, copies: &[Copy]) -> Vec<Zone> {
    let mut covered = vec![0u32; blocks];
    for copy in copies {
        let (mut at, end) = (copy.at, copy.end());
        while at < end {
            let block = at as usize / BLOCK_LEN;
            let next = end.min((block as u32 + 1) * BLOCK as u32);
            covered[block] += next - at;
            at = next;
        }
    }
    let near: Vec<bool> = covered.iter().map(|bytes| *bytes >= NEAR_BYTES).collect();
    let mut zones: Vec<Zone> = Vec::new();
    let mut first = 0;
    for same in near.chunk_by(|a, b| a == b) {
        let end = first + same.len();
        let is_near = same[0] || (same.len() < MIN_PLAIN && (first > 0 || end < blocks));
        match zones.last_mut() {
            Some(last) if last.is_near == is_near => last.end = end,
            _ => zones.push(Zone {
                first,
                end,
                is_near,
            }),
        }
        first = end;
    }
    widen(zones)
}

/// Lets short near zones have some of the blocks around them.
fn widen(mut zones: Vec<Zone>) -> Vec<Zone> {
    for i in 0..zones.len() {
        let zone = zones[i];
        let wanted = MIN_BLOCKS.saturating_sub(zone.end - zone.first);
        if !zone.is_near || wanted == 0 {
            continue;
        }
        if let Some(next) = zones.get_mut(i + 1) {
            let taken = wanted.min(next.end - next.first);
            next.first += taken;
            zones[i].end += taken;
        }
        let wanted = MIN_BLOCKS.saturating_sub(zones[i].end - zone.first);
        if i > 0 && wanted > 0 {
            let before = &mut zones[i - 1];
            let taken = wanted.min(before.end - before.first);
            before.end -= taken;
            zones[i].first -= taken;
        }
    }
    zones.retain(|zone| zone.first < zone.end);
    zones
}

/// Returns the parts of copies inside the blocks `first..end`, by their place in these.
fn clip(copies: &[Copy], first: usize, end: usize) -> Vec<Copy> {
    let (from, to) = ((first * BLOCK_LEN) as u32, (end * BLOCK_LEN) as u32);
    let skip = copies.partition_point(|copy| copy.end() <= from);
    copies[skip..]
        .iter()
        .take_while(|copy| copy.at < to)
        .map(|copy| {
            let start = copy.at.max(from);
            Copy {
                at: start - from,
                len: copy.end().min(to) - start,
                from: copy.from + u64::from(start - copy.at),
            }
        })
        .collect()
}

/// Returns the blocks that a copy is from.
fn blocks_of(copy: &Copy) -> (u32, u32) {
    let end = (copy.from + u64::from(copy.len)).div_ceil(BLOCK);
    ((copy.from / BLOCK) as u32, end as u32)
}

/// Returns the pieces of the base that copies are from, in order.
fn pieces_of(copies: &[Copy]) -> Vec<Piece> {
    let mut ranges: Vec<(u32, u32)> = copies.iter().map(blocks_of).collect();
    ranges.sort_unstable();
    let mut pieces: Vec<Piece> = Vec::new();
    for (from, to) in ranges {
        match pieces.last_mut() {
            Some((start, len)) if from <= *start + *len => *len = (*len).max(to - *start),
            _ => pieces.push((from, to - from)),
        }
    }
    pieces
}

/// Gives copies up, those first that bring the fewest bytes per block of base, until the rest needs at most this many blocks.
fn prune(copies: &mut Vec<Copy>, room: usize) {
    let count = |pieces: &[Piece]| pieces.iter().map(|(_, len)| *len as usize).sum::<usize>();
    loop {
        let pieces = pieces_of(copies);
        let over = count(&pieces).saturating_sub(room);
        if over == 0 {
            return;
        }
        // All copies of a piece go together.
        let piece_of =
            |copy: &Copy| pieces.partition_point(|(start, _)| *start <= blocks_of(copy).0) - 1;
        let mut bytes = vec![0u64; pieces.len()];
        for copy in copies.iter() {
            bytes[piece_of(copy)] += u64::from(copy.len);
        }
        let worst = (0..pieces.len()).min_by_key(|i| bytes[*i] * 4096 / u64::from(pieces[*i].1));
        let Some(worst) = worst else { return };
        if pieces.len() == 1 {
            copies.clear();
            return;
        }
        copies.retain(|copy| piece_of(copy) != worst);
    }
}

/// Returns the copies by their place in the concatenation of the pieces.
fn place(copies: &[Copy], pieces: &[Piece]) -> Vec<Copy> {
    let starts: Vec<u64> = pieces
        .iter()
        .scan(0u64, |at, (_, len)| {
            let start = *at;
            *at += u64::from(*len) * BLOCK;
            Some(start)
        })
        .collect();
    copies
        .iter()
        .map(|copy| {
            let block = (copy.from / BLOCK) as u32;
            let piece = pieces.partition_point(|(start, _)| *start <= block) - 1;
            let inside = copy.from - u64::from(pieces[piece].0) * BLOCK;
            Copy {
                from: starts[piece] + inside,
                ..*copy
            }
        })
        .collect()
}
