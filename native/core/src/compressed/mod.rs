//! The compressed form of an image: its data leaves in zstd frames, for links on which bytes are dear.
//!
//! A frame holds the leaves of one group of [`GROUP_LEAVES`] that are not zero, so that any leaf is had by reading one frame, and a transfer that
//! was cut off resumes at the next one. Which leaves are zero, how long each is and whether its bytes are right is what the image's manifest
//! says; the form itself is trusted for nothing. A frame that would not get smaller holds the bytes as they are, so that the form is at most
//! 4 bytes per group and a header of 96 bytes longer than the data.
//!
//! ======  =====  ==============================================
//! offset  bytes  meaning (integers are little-endian)
//! ======  =====  ==============================================
//! 0       8      `DCZSTD01`
//! 8       4      version, 1
//! 12      4      leaves of a group
//! 16      8      size of the content in bytes
//! 24      4      number of frames
//! 28      4      0
//! 32      32     content id
//! 64      32     BLAKE3 of the lengths
//! 96      4 x n  bytes of each frame, in order
//! ...            the frames
//! ======  =====  ==============================================

mod create;
mod error;
mod frame;
mod index;
#[cfg(test)]
mod tests;
mod verify;

use crate::leaf::leaf_len;
use crate::manifest::Manifest;

pub use create::{create, Summary};
pub use error::CompressedError;
pub use frame::{Arriving, Decoder, Encoder};
pub use index::{Frame, Index};
pub use verify::{open, verify};

/// Leaves of a group: 1 MiB. Smaller frames cost ratio, larger ones cost bytes where few leaves of a group are missing.
pub const GROUP_LEAVES: u64 = 16;
/// Most bytes that a frame decompresses to.
pub const GROUP_LEN: usize = GROUP_LEAVES as usize * crate::leaf::LEAF_LEN;

const MAGIC: &[u8; 8] = b"DCZSTD01";
const VERSION: u32 = 1;
const HEADER_LEN: usize = 96;

/// Returns the numbers of the groups that have data, in order.
fn data_groups(manifest: &Manifest) -> impl Iterator<Item = u64> + '_ {
    let after = |group: u64| {
        let leaf = manifest.next_data_leaf(group * GROUP_LEAVES)?;
        Some(leaf / GROUP_LEAVES)
    };
    std::iter::successors(after(0), move |group| after(group + 1))
}

/// Returns the leaves of a group that have data, with the length of each in bytes.
pub fn data_leaves(manifest: &Manifest, group: u64) -> impl Iterator<Item = (u64, usize)> + '_ {
    let leaves = group * GROUP_LEAVES..(group + 1) * GROUP_LEAVES;
    leaves
        .filter(|leaf| !manifest.is_zero_leaf(*leaf))
        .map(|leaf| (leaf, leaf_len(manifest.size(), leaf)))
}

/// Returns the bytes that the frame of a group decompresses to.
fn raw_len(manifest: &Manifest, group: u64) -> usize {
    data_leaves(manifest, group).map(|(_, length)| length).sum()
}
