//! Literal frames: compressed pieces of the literals, each readable on its own.

use zstd_safe::zstd_sys::ZSTD_EndDirective;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::format::{frame_check, FrameKind, MAX_FRAME_BLOCKS};
use super::reader::zstd_error;
use super::runs::BLOCK_LEN;
use super::PatchError;

/// Input is given to zstd in steps of its own block size, so that looking at the output in between costs nothing.
const STEP: usize = 128 << 10;
/// A frame ends after the step that brings it here. With at most `STEP` more, two frames are less than 512 KiB, twice of any 256 KiB window.
const FULL: usize = 96 << 10;

/// A frame that waits for its place in the file.
pub struct Encoded {
    /// Its literal blocks.
    pub blocks: u32,
    /// How its bytes are coded.
    pub kind: FrameKind,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Checksum of the bytes.
    pub check: u32,
}

/// Makes frames; holds a compression context.
pub struct Compressor {
    context: CCtx<'static>,
}

impl Compressor {
    /// For a zstd level.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn new(level: i32) -> Result<Compressor, PatchError> {
        let mut context = CCtx::try_create().ok_or(PatchError::Zstd("out of memory"))?;
        let parameters = [
            CParameter::CompressionLevel(level),
            CParameter::WindowLog(20),
            CParameter::ContentSizeFlag(false),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).map_err(zstd_error)?;
        }
        Ok(Compressor { context })
    }

    /// Cuts whole blocks into frames and compresses them.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn frames(&mut self, raw: &[u8]) -> Result<Vec<Encoded>, PatchError> {
        let mut frames = Vec::new();
        let mut rest = raw;
        while !rest.is_empty() {
            let (taken, bytes) = self.frame(rest)?;
            frames.push(finish(&rest[..taken], bytes));
            rest = &rest[taken..];
        }
        Ok(frames)
    }

    /// Compresses a first part of `raw`; returns how much, and its bytes.
    fn frame(&mut self, raw: &[u8]) -> Result<(usize, Vec<u8>), PatchError> {
        let most = raw.len().min(MAX_FRAME_BLOCKS as usize * BLOCK_LEN);
        let mut bytes: Vec<u8> = Vec::with_capacity(zstd_safe::compress_bound(FULL + 2 * STEP));
        let mut taken = 0;
        self.context
            .reset(zstd_safe::ResetDirective::SessionOnly)
            .map_err(zstd_error)?;
        while taken < most && bytes.len() < FULL {
            let next = (taken + STEP).min(most);
            self.feed(
                &raw[taken..next],
                &mut bytes,
                ZSTD_EndDirective::ZSTD_e_flush,
            )?;
            taken = next;
        }
        self.feed(&[], &mut bytes, ZSTD_EndDirective::ZSTD_e_end)?;
        Ok((taken, bytes))
    }

    fn feed(
        &mut self,
        raw: &[u8],
        bytes: &mut Vec<u8>,
        end: ZSTD_EndDirective,
    ) -> Result<(), PatchError> {
        bytes.reserve(zstd_safe::compress_bound(raw.len()) + 64);
        let mut input = InBuffer::around(raw);
        loop {
            let at = bytes.len();
            let mut output = OutBuffer::around_pos(bytes, at);
            let left = self
                .context
                .compress_stream2(&mut output, &mut input, end)
                .map_err(zstd_error)?;
            if left == 0 && input.pos() == raw.len() {
                return Ok(());
            }
            bytes.reserve(left + 64);
        }
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
        check: frame_check(&bytes),
        bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_decode_to_what_they_hold() {
        let mut raw = vec![0u8; 700 * BLOCK_LEN];
        // Half noise, half text.
        let mut seed = 1u64;
        for (i, byte) in raw.iter_mut().enumerate() {
            seed = seed
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            *byte = if i < 300 * BLOCK_LEN {
                (seed >> 56) as u8
            } else {
                b"the same again "[i % 15]
            };
        }
        let frames = Compressor::new(3).unwrap().frames(&raw).unwrap();
        let mut at = 0;
        for frame in &frames {
            let end = at + frame.blocks as usize * BLOCK_LEN;
            let got = match frame.kind {
                FrameKind::Stored => frame.bytes.clone(),
                FrameKind::Zstd => zstd::bulk::decompress(&frame.bytes, end - at).unwrap(),
            };
            assert_eq!(got, raw[at..end]);
            assert!(frame.bytes.len() <= FULL + STEP + 64);
            at = end;
        }
        assert_eq!(at, raw.len());
    }
}
