//! Frames: blocks of a pack that are compressed, and sealed, together.

use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use zstd::bulk::Compressor;

use super::crypt::Cipher;
use super::pack_index::{Frame, PackIndex, CHECK_LEN};
use crate::error::{Result, VersionsError};

/// The first bytes of the BLAKE3 of what is kept.
pub fn frame_check(bytes: &[u8]) -> [u8; CHECK_LEN] {
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECK_LEN]);
    check
}

/// A frame ready to be kept.
pub struct Encoded {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// They are not compressed.
    pub raw: bool,
    /// Their checksum.
    pub check: [u8; CHECK_LEN],
}

/// Compresses frames. A compressor is set up once and then used again, by one thread at a time: setting one up costs as much as a small frame.
pub struct Encoder {
    level: i32,
    idle: Mutex<Vec<Compressor<'static>>>,
}

impl Encoder {
    /// An encoder of a zstd level.
    pub fn new(level: i32) -> Self {
        Self {
            level,
            idle: Mutex::default(),
        }
    }

    /// Compresses and seals the blocks of a frame.
    ///
    /// # Errors
    /// `Io` if the compressor fails.
    pub fn encode(&self, blocks: &[u8], cipher: &Cipher) -> Result<Encoded> {
        let failed = VersionsError::io("compressing a frame");
        let idle = self.idle().pop();
        let packed = match idle.map_or_else(|| Compressor::new(self.level), Ok) {
            Ok(mut compressor) => {
                let packed = compressor.compress(blocks);
                self.idle().push(compressor);
                packed
            }
            Err(error) => Err(error),
        };
        let packed = packed.map_err(failed)?;
        let raw = packed.len() >= blocks.len();
        let bytes = cipher.seal(if raw { blocks.to_vec() } else { packed })?;
        let check = frame_check(&bytes);
        Ok(Encoded { bytes, raw, check })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Compressor<'static>>> {
        self.idle.lock().unpoisoned()
    }
}

/// The blocks of a frame, from what is kept.
///
/// # Errors
/// `Damaged` if the checksum does not match or the frame does not have the length that the index promises.
pub fn decode_frame(
    index: &PackIndex,
    frame: &Frame,
    kept: Vec<u8>,
    cipher: &Cipher,
) -> Result<Vec<u8>> {
    let damaged = |why: &str| {
        let object = index.object();
        VersionsError::damaged(object, format!("the frame at byte {} {why}", frame.offset))
    };
    if frame_check(&kept) != frame.check {
        return Err(damaged("does not match its checksum"));
    }
    let packed = cipher.open(kept, &index.object())?;
    let len = frame.count as usize * index.block_size as usize;
    let blocks = match frame.raw {
        true => packed,
        false => {
            zstd::bulk::decompress(&packed, len).map_err(|_| damaged("does not decompress"))?
        }
    };
    match blocks.len() == len {
        true => Ok(blocks),
        false => Err(damaged("does not have the promised length")),
    }
}
