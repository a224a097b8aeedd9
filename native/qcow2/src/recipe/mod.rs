//! The recipe of a qcow2 file: all that the file is beyond the guest's content, so that both give the file bit for bit.
//!
//! A recipe is *a prediction and the differences from it*. Predicted are the compressed clusters (compressed again from the content, with
//! the recipe's settings), the plain clusters (the content itself), the second-level tables and the refcount blocks (computed from the
//! places of the clusters). Whatever else the file holds (header, first-level table, leaked clusters, unusual entries) is a difference,
//! stored byte by byte. So any file that parses has an exact recipe; a file written by QEMU has a very small one.

mod describe;
mod encoding;
mod layout;
mod prediction;
mod rebuild;
mod sequence;
mod varint;
mod view;

use crate::compress::Settings;

pub use describe::{describe, Description};
pub use layout::Layout;
pub use rebuild::{rebuild, Ingredients};
pub use sequence::{Sequence, PIECE};
pub use view::RecipeView;

/// Compressed clusters of one image that are accepted, and plain ones: 1 TiB of 64 KiB clusters, half a gigabyte of recipe in memory.
pub const MAX_STREAMS: usize = 16 << 20;

/// Where the stream of a compressed cluster is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Compressed again from the guest's bytes.
    Recompress,
    /// Likewise, or from this guest cluster of the base, if the base is available as the file that the patch was created from.
    RecompressOrCopy(u64),
    /// Only from this guest cluster of the base.
    Copy(u64),
    /// From the patch, which has this many bytes of it.
    Stored(u32),
}

/// A compressed cluster of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Guest cluster.
    pub index: u64,
    /// Offset of its stream in the file; in a decoded recipe, the distance from the end of the stream before: see [`Layout::place`].
    pub offset: u64,
    /// Where it is taken from.
    pub origin: Origin,
}

/// Guest clusters that are stored plain and consecutively in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First guest cluster.
    pub index: u64,
    /// File offset of its bytes.
    pub offset: u64,
    /// Clusters.
    pub count: u64,
}

/// Bytes that the prediction does not give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Offset in the file.
    pub offset: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The recipe of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Where the tables are.
    pub layout: Layout,
    /// How compressed clusters are compressed again.
    pub settings: Settings,
    /// Compressed clusters, in the order of the file.
    pub streams: Vec<Stream>,
    /// Plain clusters, in the guest's order.
    pub runs: Vec<Run>,
    /// Where the file differs from the prediction, in the order of the file.
    pub differences: Vec<Difference>,
    /// What it takes to write the file in order, if the recipe has it.
    pub sequence: Option<Sequence>,
}

impl Recipe {
    /// Returns whether the base must be the file that the patch was created from.
    pub fn needs_base_file(&self) -> bool {
        self.streams
            .iter()
            .any(|stream| matches!(stream.origin, Origin::Copy(_)))
    }

    /// Returns the bytes of streams that the patch stores.
    pub fn stored(&self) -> u64 {
        let length = |stream: &Stream| match stream.origin {
            Origin::Stored(length) => u64::from(length),
            _ => 0,
        };
        self.streams.iter().map(length).sum()
    }
}
