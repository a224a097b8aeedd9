//! The map and the frame records as they are stored: varints, compressed by zstd.

use std::io::{BufReader, Read};

use super::frames::{Frame, FrameKind, Piece};
use super::header::{
    block_count, Header, HEADER_LEN, MAX_DICT_BLOCKS, MAX_FRAMES, MAX_FRAME_BLOCKS,
};
use crate::patch::error::PatchError;
use crate::patch::runs::{push, Run, Src, BLOCK};
use diffcache_base::varint;

/// Encodes the runs of a map.
pub fn encode_map(runs: &[Run]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut shift = 0i64;
    let mut next = 0u32;
    for run in runs {
        let len = u64::from(run.len) << 2;
        match run.src {
            Src::Zero => varint::put(&mut out, len),
            Src::Base(at) => {
                varint::put(&mut out, len | 1);
                let here = i64::from(at) - i64::from(run.start);
                varint::put(&mut out, varint::zigzag(here - shift));
                shift = here;
            }
            Src::Literal(at) => {
                // References to earlier literals and new literals are separate records, even where one continues the other.
                let new = run.new_literals(next).map_or(0, |part| part.len);
                if new < run.len {
                    varint::put(&mut out, u64::from(run.len - new) << 2 | 3);
                    varint::put(&mut out, u64::from(at));
                }
                if new > 0 {
                    varint::put(&mut out, u64::from(new) << 2 | 2);
                    next += new;
                }
            }
        }
    }
    out
}

/// Encodes the records of all frames.
pub fn encode_frames(frames: &[Frame], pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0i64;
    for frame in frames {
        varint::put(&mut out, u64::from(frame.blocks));
        varint::put(&mut out, u64::from(frame.len));
        let kind = match frame.kind {
            FrameKind::Stored => 0,
            FrameKind::Zstd => 1,
            FrameKind::Near => 2,
        };
        varint::put(&mut out, kind);
        varint::put(&mut out, u64::from(frame.dict.1 - frame.dict.0));
        for (start, len) in &pieces[frame.dict.0 as usize..frame.dict.1 as usize] {
            varint::put(&mut out, varint::zigzag(i64::from(*start) - at));
            varint::put(&mut out, u64::from(*len));
            at = i64::from(start + len);
        }
        out.extend_from_slice(&frame.check.to_le_bytes());
    }
    out
}

/// Reads varints from a zstd stream without ever holding more of it than a buffer.
struct Records<'a> {
    input: BufReader<zstd::stream::read::Decoder<'static, BufReader<&'a [u8]>>>,
    what: &'static str,
}

impl<'a> Records<'a> {
    fn new(bytes: &'a [u8], what: &'static str) -> Result<Self, PatchError> {
        let decoder = zstd::stream::read::Decoder::new(bytes)
            .map_err(|_| PatchError::Corrupt(format!("the {what} cannot be read")))?;
        Ok(Records {
            input: BufReader::with_capacity(1 << 16, decoder),
            what,
        })
    }

    fn byte(&mut self) -> Result<u8, PatchError> {
        let mut byte = [0];
        self.input
            .read_exact(&mut byte)
            .map_err(|_| PatchError::Corrupt(format!("the {} ends early", self.what)))?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64, PatchError> {
        varint::read(|| self.byte())?.ok_or_else(|| self.contradiction())
    }

    /// Reads a number that must be in 1..=max.
    fn count(&mut self, max: u32) -> Result<u32, PatchError> {
        match self.varint()? {
            0 => Err(self.contradiction()),
            n if n > u64::from(max) => Err(self.contradiction()),
            n => Ok(n as u32),
        }
    }

    fn contradiction(&self) -> PatchError {
        PatchError::Format(format!("the {} contradicts itself", self.what))
    }

    /// Fails unless everything was read.
    fn finish(mut self) -> Result<(), PatchError> {
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            _ => Err(self.contradiction()),
        }
    }
}

/// Reads a map and checks it: it covers the target exactly, and stays inside the base. Returns the runs and the number of literals that they use.
///
/// # Errors
/// `Corrupt`, `Format`.
pub fn decode_map(bytes: &[u8], header: &Header) -> Result<(Vec<Run>, u32), PatchError> {
    let mut records = Records::new(bytes, "map")?;
    let total = block_count(header.target_size);
    let base_blocks = block_count(header.base_size);
    let mut runs = Vec::new();
    let (mut start, mut next, mut literals, mut shift) = (0u32, 0u32, 0u32, 0i64);
    while start < total {
        let code = records.varint()?;
        let len = u32::try_from(code >> 2)
            .ok()
            .filter(|len| *len > 0 && *len <= total - start);
        let len = len.ok_or_else(|| records.contradiction())?;
        let src = match code & 3 {
            0 => Src::Zero,
            1 => {
                shift = shift
                    .checked_add(varint::unzigzag(records.varint()?))
                    .ok_or_else(|| records.contradiction())?;
                let at = shift
                    .checked_add(i64::from(start))
                    .and_then(|at| u32::try_from(at).ok());
                let fits =
                    at.filter(|at| at.checked_add(len).is_some_and(|end| end <= base_blocks));
                Src::Base(fits.ok_or_else(|| records.contradiction())?)
            }
            2 => {
                next = u32::checked_add(next, len).ok_or_else(|| records.contradiction())?;
                literals = literals.max(next);
                Src::Literal(next - len)
            }
            _ => {
                let at = u32::try_from(records.varint()?).ok();
                let at_end = at.and_then(|at| Some((at, at.checked_add(len)?)));
                let (at, end) = at_end.ok_or_else(|| records.contradiction())?;
                literals = literals.max(end);
                Src::Literal(at)
            }
        };
        push(&mut runs, Run { start, len, src });
        // After joining: what refers back and the new literals that follow it are two records of one run.
        if runs.len() as u64 > header.runs {
            return Err(records.contradiction());
        }
        start += len;
    }
    records.finish()?;
    Ok((runs, literals))
}

/// Reads the pieces of one frame's dictionary; returns where the last one ends in the base, from where the first one of the next frame counts.
///
/// # Errors
/// `Corrupt`, `Format`.
fn decode_dictionary(
    records: &mut Records<'_>,
    mut at: i64,
    base_blocks: u32,
    pieces: &mut Vec<Piece>,
) -> Result<i64, PatchError> {
    let mut dict_blocks = 0;
    for _ in 0..records.varint()? {
        at = at
            .checked_add(varint::unzigzag(records.varint()?))
            .ok_or_else(|| records.contradiction())?;
        let start = u32::try_from(at).map_err(|_| records.contradiction())?;
        let len = records.count(MAX_DICT_BLOCKS - dict_blocks)?;
        let end = start
            .checked_add(len)
            .filter(|end| *end <= base_blocks)
            .ok_or_else(|| records.contradiction())?;
        dict_blocks += len;
        pieces.push((start, len));
        at = i64::from(end);
        if pieces.len() > 2 * MAX_FRAMES {
            return Err(records.contradiction());
        }
    }
    Ok(at)
}

/// Reads the records of all frames and checks them: they hold exactly `literals` blocks, fill the data exactly, and their dictionaries stay inside
/// the base.
///
/// # Errors
/// `Corrupt`, `Format`.
pub fn decode_frames(
    bytes: &[u8],
    header: &Header,
    literals: u32,
) -> Result<(Vec<Frame>, Vec<Piece>), PatchError> {
    let mut records = Records::new(bytes, "list of frames")?;
    let base_blocks = block_count(header.base_size);
    let (mut frames, mut pieces): (Vec<Frame>, Vec<Piece>) = (Vec::new(), Vec::new());
    let (mut first, mut offset, mut at) = (0u32, HEADER_LEN, 0i64);
    for _ in 0..header.frames {
        let blocks = records.count(MAX_FRAME_BLOCKS.min(literals - first))?;
        let len = records.count(blocks * BLOCK as u32)?;
        let kind = match records.varint()? {
            0 if u64::from(len) == u64::from(blocks) * BLOCK => FrameKind::Stored,
            1 => FrameKind::Zstd,
            2 => FrameKind::Near,
            _ => return Err(records.contradiction()),
        };
        let dict_from = pieces.len() as u32;
        at = decode_dictionary(&mut records, at, base_blocks, &mut pieces)?;
        let check = u32::from_le_bytes([
            records.byte()?,
            records.byte()?,
            records.byte()?,
            records.byte()?,
        ]);
        frames.push(Frame {
            offset,
            first,
            blocks,
            len,
            kind,
            dict: (dict_from, pieces.len() as u32),
            check,
        });
        first += blocks;
        offset += u64::from(len);
    }
    if first != literals || offset != header.meta_offset {
        return Err(records.contradiction());
    }
    records.finish()?;
    Ok((frames, pieces))
}
