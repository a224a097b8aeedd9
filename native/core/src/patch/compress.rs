//! Literal frames: compressed pieces of the literals, each readable on its own.
//!
//! How large a frame may get follows from one promise: reading any 256 KiB of the target takes at most
//! 512 KiB of base and patch. A window of 256 KiB touches two frames that it does not cover, and those
//! that it covers are at most as long as what they hold. So where literals and base alternate, two frames
//! and 256 KiB must fit in 512 KiB; well inside a long stretch of literals nothing but frames is read,
//! and they may be twice as large.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::error::PatchError;
use super::format::{frame_check, FrameKind, Piece, MAX_FRAME_BLOCKS};
use super::runs::BLOCK_LEN;

/// The window of the promise.
const WINDOW: usize = 256 << 10;
/// Most bytes of the frames that a window touches inside a long stretch of literals; some are left
/// for windows that start inside a block.
const TOUCHED: usize = 2 * WINDOW - (12 << 10);
/// Most bytes of a frame where literals and base alternate.
pub const MIXED: usize = WINDOW / 2 - (2 << 10);
/// Input is given to zstd in steps of its own block size, so that looking at the output in between
/// costs nothing; only before its limit a frame grows by less.
const STEP: usize = 128 << 10;
const MIN_STEP: usize = 32 << 10;
/// A step of noise grows by less than this.
const OVERHEAD: usize = 1 << 10;

/// What surrounds a stretch of literals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surroundings {
    /// Between blocks of the base.
    Mixed,
    /// Among other literals, and long.
    Solid,
}

/// A frame that waits for its place in the file.
pub struct Encoded {
    /// Its literal blocks.
    pub blocks: u32,
    /// How its bytes are coded.
    pub kind: FrameKind,
    /// The pieces of the base that it needs.
    pub pieces: Vec<Piece>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Checksum of the bytes.
    pub check: u32,
}

impl Encoded {
    fn raw_len(&self) -> usize {
        self.blocks as usize * BLOCK_LEN
    }
}

/// Returns the level of zstd for a level of `CreateOptions`, where `new` blocks of the target are literals and
/// `known` ones are the base's.
///
/// Frames are short of context, so that from level 3 on zstd runs one level higher. That makes the
/// default, level 3, the last one that looks for matches in two tables of hashes. Two levels more save 2 % of
/// the bytes and take 2.2 times as long: time that is spent where comparing is most of the work, because less
/// than three eighths of the target are new.
pub fn zstd_level(level: i32, new: u64, known: u64) -> i32 {
    let more = match new.saturating_mul(8) < (new + known).saturating_mul(3) {
        true => 3,
        false => 1,
    };
    match level {
        ..3 => level,
        _ => (level + more).min(MAX_LEVEL),
    }
}

/// The highest level of zstd that is used. Those beyond take hundreds of megabytes for each thread, and save nothing in frames of this size.
pub const MAX_LEVEL: i32 = 19;

/// How far back a frame looks: all of it. What the file system's journal has repeats after megabytes.
const WINDOW_LOG: u32 = 22;
/// The same for what looks like noise, whose frames hold no more.
const NOISE_WINDOW_LOG: u32 = 20;

/// The lowest level of zstd whose tables are larger than frames need.
const SLOW: i32 = 13;

/// Compresses frames; holds compression contexts.
pub struct Compressor {
    /// For what may be compressed.
    normal: CCtx<'static>,
    /// For input that looks like noise: finds few matches, but fast.
    fast: CCtx<'static>,
    /// Most bytes of a frame where literals and base alternate.
    edge: usize,
}

impl Compressor {
    /// Creates a compressor for one of zstd's levels, whose frames have at most `edge` bytes where literals and base alternate.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn new(zstd_level: i32, edge: usize) -> Result<Compressor, PatchError> {
        Ok(Compressor {
            normal: context(zstd_level, WINDOW_LOG)?,
            fast: context(1, NOISE_WINDOW_LOG)?,
            edge,
        })
    }

    /// Cuts whole blocks into frames and compresses them.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn frames(
        &mut self,
        raw: &[u8],
        surroundings: Surroundings,
        frames: &mut Vec<Encoded>,
    ) -> Result<(), PatchError> {
        let first = frames.len();
        let mut rest = raw;
        while !rest.is_empty() {
            // Windows that reach beyond a long stretch see only its first and its last window's worth.
            let inner = surroundings == Surroundings::Solid
                && raw.len() - rest.len() >= WINDOW
                && rest.len() >= 2 * WINDOW;
            let (budget, reach) = match inner {
                true => (budget(&frames[first..]), rest.len() - WINDOW),
                false => (self.edge.min(budget(&frames[first..])), rest.len()),
            };
            let (taken, bytes) = self.frame(&rest[..reach], budget)?;
            frames.push(finish(&rest[..taken], bytes));
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Compresses a first part of `raw` into at most `budget` bytes; returns how much, and its bytes.
    fn frame(&mut self, raw: &[u8], budget: usize) -> Result<(usize, Vec<u8>), PatchError> {
        let most = raw.len().min(MAX_FRAME_BLOCKS as usize * BLOCK_LEN);
        let mut bytes: Vec<u8> = Vec::with_capacity(zstd_safe::compress_bound(STEP));
        let mut taken = 0;
        let context = match is_noise(&raw[..most.min(STEP)]) {
            true => &mut self.fast,
            false => &mut self.normal,
        };
        context
            .reset(zstd_safe::ResetDirective::SessionOnly)
            .map_err(PatchError::from_zstd)?;
        while taken < most {
            // A frame of less than a window may be covered by one together with both neighbours.
            let limit = if taken < WINDOW {
                budget.min(TOUCHED / 3)
            } else {
                budget
            };
            let room = limit.saturating_sub(bytes.len() + OVERHEAD) / BLOCK_LEN * BLOCK_LEN;
            let step = room.min(STEP);
            if taken > 0 && step < MIN_STEP {
                break;
            }
            let next = (taken + step.max(BLOCK_LEN)).min(most);
            feed(
                context,
                &raw[taken..next],
                &mut bytes,
                ZSTD_EndDirective::ZSTD_e_flush,
            )?;
            taken = next;
        }
        feed(context, &[], &mut bytes, ZSTD_EndDirective::ZSTD_e_end)?;
        Ok((taken, bytes))
    }
}

fn context(level: i32, window_log: u32) -> Result<CCtx<'static>, PatchError> {
    let mut context = CCtx::try_create().ok_or(PatchError::Zstd("out of memory"))?;
    let parameters = [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(window_log),
        CParameter::ContentSizeFlag(false),
    ];
    for parameter in parameters {
        context
            .set_parameter(parameter)
            .map_err(PatchError::from_zstd)?;
    }
    if level >= SLOW {
        // The tables of these levels are for windows of 8 MiB, and are made as large whatever the window is.
        for parameter in [CParameter::HashLog(20), CParameter::ChainLog(20)] {
            context
                .set_parameter(parameter)
                .map_err(PatchError::from_zstd)?;
        }
    }
    if level == 1 {
        // Saves 1 % of the bytes at 4 % more time: the table is still in a core's own cache.
        context
            .set_parameter(CParameter::HashLog(15))
            .map_err(PatchError::from_zstd)?;
    }
    Ok(context)
}

/// Returns how large the next frame of a long stretch may get, given those before: no window may touch more than
/// `TOUCHED` bytes.
fn budget(before: &[Encoded]) -> usize {
    let mut left = TOUCHED;
    let mut between = 0;
    for frame in before.iter().rev() {
        if between >= WINDOW {
            break;
        }
        left = left.saturating_sub(frame.bytes.len());
        between += frame.raw_len();
    }
    // Half for the next one.
    left.min(TOUCHED / 2)
}

/// Returns whether a sample of the bytes is as good as random: compressed data, mostly.
fn is_noise(raw: &[u8]) -> bool {
    const SAMPLE: usize = 1024;
    let mut counts = [0u32; 256];
    let mut total = 0u32;
    for chunk in raw.chunks(16 << 10) {
        for byte in &chunk[..chunk.len().min(SAMPLE)] {
            counts[usize::from(*byte)] += 1;
            total += 1;
        }
    }
    // Sum of squares against that of an even distribution: 1 for noise; text and code are beyond 3.
    let squares: u64 = counts.iter().map(|n| u64::from(*n) * u64::from(*n)).sum();
    let even = u64::from(total) * u64::from(total) / 256;
    total >= 2048 && squares < even + even / 8 + u64::from(total)
}

fn feed(
    context: &mut CCtx<'static>,
    raw: &[u8],
    bytes: &mut Vec<u8>,
    end: ZSTD_EndDirective,
) -> Result<(), PatchError> {
    bytes.reserve(zstd_safe::compress_bound(raw.len()) + 64);
    let mut input = InBuffer::around(raw);
    loop {
        let at = bytes.len();
        let mut output = OutBuffer::around_pos(bytes, at);
        let left = context
            .compress_stream2(&mut output, &mut input, end)
            .map_err(PatchError::from_zstd)?;
        if left == 0 && input.pos() == raw.len() {
            return Ok(());
        }
        bytes.reserve(left + 64);
    }
}

fn finish(raw: &[u8], bytes: Vec<u8>) -> Encoded {
    let blocks = (raw.len() / BLOCK_LEN) as u32;
    let (kind, bytes) = match bytes.len() < raw.len() {
        true => (FrameKind::Zstd, bytes),
        false => (FrameKind::Stored, raw.to_vec()),
    };
    Encoded {
        blocks,
        kind,
        pieces: Vec::new(),
        check: frame_check(&bytes),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise, then text, then both in turns.
    fn sample() -> Vec<u8> {
        let mut raw = vec![0u8; 1500 * BLOCK_LEN];
        let mut seed = 1u64;
        for (i, byte) in raw.iter_mut().enumerate() {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let noise = match i / BLOCK_LEN {
                0..400 => true,
                400..900 => i % 3 == 0,
                block => block % 70 < 35,
            };
            *byte = match noise {
                true => (seed >> 56) as u8,
                false => b"the same again "[i % 15],
            };
        }
        raw
    }

    fn frames_of(raw: &[u8], surroundings: Surroundings) -> Vec<Encoded> {
        let mut frames = Vec::new();
        let mut compressor = Compressor::new(3, MIXED).unwrap();
        compressor.frames(raw, surroundings, &mut frames).unwrap();
        frames
    }

    #[test]
    fn frames_decode_to_what_they_hold() {
        let raw = sample();
        for surroundings in [Surroundings::Mixed, Surroundings::Solid] {
            let mut at = 0;
            for frame in frames_of(&raw, surroundings) {
                let end = at + frame.raw_len();
                let got = match frame.kind {
                    FrameKind::Stored => frame.bytes.clone(),
                    _ => zstd::bulk::decompress(&frame.bytes, end - at).unwrap(),
                };
                assert_eq!(got, raw[at..end]);
                at = end;
            }
            assert_eq!(at, raw.len());
        }
    }

    #[test]
    fn what_repeats_after_a_mebibyte_is_in_one_frame() {
        let (period, len) = (1_200_007, 4 << 20);
        let mut raw = vec![0u8; len];
        for (at, byte) in crate::images::noise(1, 40_000).iter().enumerate() {
            for place in (at..len).step_by(period) {
                raw[place] = *byte;
            }
        }
        let frames = frames_of(&raw, Surroundings::Solid);
        assert_eq!(frames.len(), 1);
        assert!(frames[0].bytes.len() < 50_000, "{}", frames[0].bytes.len());
    }

    #[test]
    fn mixed_frames_are_less_than_half_a_window() {
        let frames = frames_of(&sample(), Surroundings::Mixed);
        assert!(frames.iter().all(|frame| frame.bytes.len() <= WINDOW / 2));
    }

    #[test]
    fn no_window_inside_a_stretch_costs_more_than_twice_its_size() {
        let frames = frames_of(&sample(), Surroundings::Solid);
        for first in 0..frames.len() {
            // From the last byte of the first frame on.
            let mut reach = 1;
            let mut cost = frames[first].bytes.len();
            for frame in &frames[first + 1..] {
                if reach >= WINDOW {
                    break;
                }
                cost += frame.bytes.len();
                reach += frame.raw_len();
            }
            assert!(cost <= 2 * WINDOW, "{cost}");
        }
    }

    #[test]
    fn where_little_is_new_it_is_compressed_harder() {
        let of_default = |new| zstd_level(3, new, 800 - new);
        assert_eq!([0, 299, 300, 800].map(of_default), [6, 6, 4, 4]);
        assert_eq!([1, 2].map(|level| zstd_level(level, 10, 890)), [1, 2]);
        assert_eq!(zstd_level(22, 10, 890), MAX_LEVEL);
        assert_eq!(zstd_level(3, 0, 0), 4);
    }

    #[test]
    fn noise_is_told_from_text() {
        let raw = sample();
        assert!(is_noise(&raw[..STEP]));
        assert!(!is_noise(&raw[500 * BLOCK_LEN..500 * BLOCK_LEN + STEP]));
    }
}
