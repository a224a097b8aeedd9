//! Frames: bytes of a group, compressed if that makes them shorter.

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer};

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
        if bytes.len() != frame.length {
            return Err(wrong(format!("{} bytes of {}", bytes.len(), frame.length)));
        }
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

/// The most that a frame may refer back to, as a power of two: what a group has. One that says more would have that much memory taken.
const WINDOW_LOG: u32 = 20;

/// A frame that is decompressed while its bytes arrive. Memory: twice its raw bytes.
pub struct Arriving {
    context: DCtx<'static>,
    is_stored: bool,
    raw: Vec<u8>,
    taken: usize,
    filled: usize,
}

impl Arriving {
    /// Expects the bytes of a frame.
    ///
    /// # Errors
    /// `Zstd` if the window cannot be bounded.
    pub fn new(frame: &Frame) -> Result<Arriving, CompressedError> {
        let mut context = DCtx::create();
        let bounded = context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG));
        bounded.map_err(CompressedError::from_zstd)?;
        Ok(Arriving {
            context,
            is_stored: frame.length == frame.raw,
            raw: vec![0; frame.raw],
            taken: 0,
            filled: 0,
        })
    }

    /// Takes all bytes of the frame that have come, from its beginning, and returns what they decompress to: of a damaged frame what comes before the
    /// damage, or anything at all. Whether leaves are right is for the manifest to say.
    pub fn extend(&mut self, bytes: &[u8]) -> &[u8] {
        if bytes.len() > self.taken {
            if self.is_stored {
                self.take_stored(bytes);
            } else {
                self.decompress(bytes);
            }
        }
        &self.raw[..self.filled]
    }

    fn take_stored(&mut self, bytes: &[u8]) {
        let end = bytes.len().min(self.raw.len());
        self.raw[self.taken..end].copy_from_slice(&bytes[self.taken..end]);
        (self.taken, self.filled) = (end, end);
    }

    fn decompress(&mut self, bytes: &[u8]) {
        let mut input = InBuffer::around(&bytes[self.taken..]);
        let mut output = OutBuffer::around_pos(&mut self.raw[..], self.filled);
        while input.pos() < input.src.len() {
            let before = (input.pos(), output.pos());
            let outcome = self.context.decompress_stream(&mut output, &mut input);
            if outcome.is_err() || before == (input.pos(), output.pos()) {
                // Nothing more is taken.
                self.taken = usize::MAX;
                break;
            }
        }
        if self.taken != usize::MAX {
            self.taken = bytes.len();
        }
        self.filled = output.pos();
    }
}
