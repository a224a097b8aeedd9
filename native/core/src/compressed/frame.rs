//! Frames: bytes of a group, compressed if that makes them shorter.

use zstd_safe::{CCtx, CParameter, DCtx};

use super::{CompressedError, Frame};

/// Compresses bytes to frames. Memory: about 1 MiB at level 1, more at higher ones.
pub struct Encoder(CCtx<'static>);

impl Encoder {
    /// Creates an encoder of a level of zstd.
    ///
    /// # Errors
    /// `Zstd` if the level cannot be set.
    pub fn new(level: i32) -> Result<Encoder, CompressedError> {
        let mut context = CCtx::create();
        for parameter in [
            CParameter::CompressionLevel(level),
            // Leaves have hashes of their own, and the reader knows a frame's length.
            CParameter::ChecksumFlag(false),
            CParameter::ContentSizeFlag(false),
        ] {
            let set = context.set_parameter(parameter);
            set.map_err(CompressedError::from_zstd)?;
        }
        Ok(Encoder(context))
    }

    /// Compresses `raw` to `frame`; returns false if that has `raw` as it is, since it would not be shorter.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn encode(&mut self, raw: &[u8], frame: &mut Vec<u8>) -> Result<bool, CompressedError> {
        frame.clear();
        frame.reserve(zstd_safe::compress_bound(raw.len()));
        self.0
            .compress2(frame, raw)
            .map_err(CompressedError::from_zstd)?;
        let shorter = frame.len() < raw.len();
        if !shorter {
            frame.clear();
            frame.extend_from_slice(raw);
        }
        Ok(shorter)
    }
}

/// Decompresses frames; what it takes beside their bytes does not depend on them.
pub struct Decoder(DCtx<'static>);

impl Decoder {
    /// Creates a decoder.
    pub fn new() -> Decoder {
        Decoder(DCtx::create())
    }

    /// Decompresses the bytes of a frame to the data leaves of its group, one after the other, in `output`.
    ///
    /// # Errors
    /// `Format` if they are not a frame of `frame.raw` bytes. Whether the leaves are right is for the manifest to say.
    pub fn decode(
        &mut self,
        frame: &Frame,
        bytes: &[u8],
        output: &mut Vec<u8>,
    ) -> Result<(), CompressedError> {
        let wrong = |what: String| {
            CompressedError::Format(format!("the frame of group {}: {what}", frame.group))
        };
        output.resize(frame.raw, 0);
        if frame.length == frame.raw {
            output.copy_from_slice(bytes);
            return Ok(());
        }
        let length = self
            .0
            .decompress(&mut output[..], bytes)
            .map_err(|code| wrong(zstd_safe::get_error_name(code).to_owned()))?;
        match length == frame.raw {
            true => Ok(()),
            false => Err(wrong(format!("{length} bytes instead of {}", frame.raw))),
        }
    }
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}
