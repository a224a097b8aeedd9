//! Compressing and decompressing clusters exactly as QEMU does.
//!
//! A published image's compressed clusters can be reproduced from the guest's bytes if the same compressor is used with the same
//! parameters. For deflate that is zlib itself (other implementations of deflate produce other streams), which has given the same bytes
//! through all its versions of the last decade; it is linked into this library. zstd changes its output between versions, so the
//! version is one of the parameters: the one linked here, or the system's.

mod pool;
mod zlib;
mod zstd;

pub(crate) use pool::Pool;

use crate::error::Qcow2Error;
use crate::header::Compression;

/// A compressor and its parameters: what reproduces the clusters of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// zlib's deflate.
    Zlib {
        /// Compression level, 1 to 9.
        level: u8,
        /// Memory level, 1 to 9.
        memory: u8,
    },
    /// zstd at a level, by one version of the library.
    Zstd {
        /// Compression level.
        level: u8,
        /// Version as the library numbers it: major * 10000 + minor * 100 + release.
        version: u32,
    },
}

impl Settings {
    /// Returns the settings that writers of the format use, the usual first.
    pub fn candidates(compression: Compression) -> Vec<Self> {
        match compression {
            // QEMU's own, then what other writers of the format use.
            Compression::Zlib => [(6, 9), (6, 8), (9, 9), (9, 8), (1, 9), (1, 8)]
                .map(|(level, memory)| Self::Zlib { level, memory })
                .to_vec(),
            Compression::Zstd => {
                let versions = zstd::versions();
                let levels = [3, 1, 19];
                levels
                    .iter()
                    .flat_map(|&level| {
                        versions
                            .iter()
                            .map(move |&version| Self::Zstd { level, version })
                    })
                    .collect()
            }
        }
    }

    /// Creates a compressor with these settings.
    ///
    /// # Errors
    /// `Compressor` if this machine does not have it; `Memory`.
    pub fn compressor(self) -> Result<Box<dyn Compress>, Qcow2Error> {
        match self {
            Self::Zlib { level, memory } => Ok(Box::new(zlib::Deflate::new(level, memory)?)),
            Self::Zstd { level, version } => zstd::compressor(level, version),
        }
    }
}

/// Compresses clusters; the same bytes always give the same stream.
pub trait Compress: Send {
    /// Replaces `out` by the compressed stream of `cluster`. Returns false if it is not shorter than the cluster, which QEMU then stores
    /// plain.
    ///
    /// # Errors
    /// `Memory`.
    fn compress(&mut self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error>;
}

/// Decompresses `stream` into `cluster`, filling it; returns the length of the stream proper, at most that of the slice.
///
/// # Errors
/// `Damaged`, `Memory`.
pub fn decompress(
    compression: Compression,
    stream: &[u8],
    cluster: &mut [u8],
) -> Result<usize, Qcow2Error> {
    let used = match compression {
        Compression::Zlib => zlib::inflate(stream, cluster)?,
        Compression::Zstd => zstd::decompress(stream, cluster),
    };
    used.ok_or_else(|| Qcow2Error::damaged("a compressed cluster does not decompress"))
}
