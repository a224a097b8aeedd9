//! What a recipe has besides for files that are written in order: how long each stream is, so that all places are known before anything is
//! compressed, and hashes of the file's pieces, so that each of them is verified before it is used.
//!
//! It follows the recipe's differences. A release that does not know it reads a recipe no further than that, and rebuilds the file as a whole.

use diffcache_core::hash_tree::{merge_root, Hash};
use diffcache_core::leaf::LEAF_SIZE;
use diffcache_core::manifest::Manifest;

use diffcache_base::varint::put;

use super::varint::Reader;
use super::{Layout, Origin, Run, Stream};
use crate::error::Qcow2Error;

/// Version of its encoding. Others are passed over, as releases before it did with all.
/// Begins the sequence, which a recipe may lack.
const PRESENT: u64 = 1;
/// Leaves of a piece.
const PIECE_LEAVES: u64 = 16;
/// Bytes that are verified at a time.
pub const PIECE: u64 = PIECE_LEAVES * LEAF_SIZE;

/// Lengths of a file's streams, and hashes of its pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Bytes of each compressed cluster's stream.
    pub lengths: Vec<u32>,
    /// BLAKE3 chaining values of the file's pieces, at their places; none of a file of a single piece, whose hash is the file's.
    pub pieces: Vec<Hash>,
}

impl Sequence {
    /// Returns that of a file, given its manifest, and offset and length of each stream; `None` if it cannot be written in order, because
    /// clusters share bytes.
    pub fn of(file: &Manifest, placed: &[(u64, u64)], runs: &[Run], bits: u32) -> Option<Self> {
        let _ = sorted_runs(runs, bits)?;
        let leaves = file.leaf_count();
        let pieces = match file.size() <= PIECE {
            true => Vec::new(),
            false => (0..leaves)
                .step_by(PIECE_LEAVES as usize)
                .map(|first| file.subtree(first, PIECE_LEAVES.min(leaves - first)))
                .collect(),
        };
        let lengths = placed
            .iter()
            .map(|&(_, length)| u32::try_from(length).ok())
            .collect::<Option<_>>()?;
        Some(Self { lengths, pieces })
    }

    /// Returns whether these are the pieces of the file with a hash.
    pub fn is_of(&self, file: &Hash) -> bool {
        self.pieces.is_empty() || merge_root(&self.pieces) == *file
    }

    /// Returns offset and length of each stream.
    ///
    /// # Errors
    /// `BadPatch` if one is outside of the file, or begins before the one in front of it ends.
    pub fn places(
        &self,
        layout: &Layout,
        streams: &[Stream],
    ) -> Result<Vec<(u64, u64)>, Qcow2Error> {
        let mut end = 0;
        let mut placed = Vec::with_capacity(streams.len());
        for (stream, &length) in streams.iter().zip(&self.lengths) {
            let offset = layout.place(end, stream.offset, length.into())?;
            if offset < end {
                return Err(Qcow2Error::bad_patch("two compressed clusters overlap"));
            }
            end = offset + u64::from(length);
            placed.push((offset, length.into()));
        }
        Ok(placed)
    }

    /// Encodes a mark that it is there, the lengths that the streams' origins do not say, then the hashes.
    pub(super) fn encode(&self, streams: &[Stream], out: &mut Vec<u8>) {
        put(out, PRESENT);
        for (stream, &length) in streams.iter().zip(&self.lengths) {
            if !matches!(stream.origin, Origin::Stored(_)) {
                put(out, length.into());
            }
        }
        for piece in &self.pieces {
            out.extend_from_slice(piece);
        }
    }

    /// Decodes what follows a recipe's differences; `None` if that is nothing.
    pub(super) fn decode(
        reader: &mut Reader<'_>,
        layout: &Layout,
        streams: &[Stream],
    ) -> Result<Option<Self>, Qcow2Error> {
        if reader.0.is_empty() {
            return Ok(None);
        }
        if reader.take()? != PRESENT {
            return Err(Qcow2Error::bad_patch(
                "an unknown addition to its description",
            ));
        }
        let mut lengths = Vec::with_capacity(streams.len());
        for stream in streams {
            lengths.push(match stream.origin {
                Origin::Stored(length) => length,
                _ => layout.stream_length(reader.take()?)?,
            });
        }
        let count = match layout.file_size <= PIECE {
            true => 0,
            false => layout.file_size.div_ceil(PIECE),
        };
        let bytes = count.saturating_mul(size_of::<Hash>() as u64);
        let bytes = reader.take_bytes(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let pieces = bytes.chunks_exact(size_of::<Hash>());
        let pieces = pieces.filter_map(|piece| piece.try_into().ok()).collect();
        match reader.0 {
            [] => Ok(Some(Self { lengths, pieces })),
            _ => Err(Qcow2Error::bad_patch("its description is too long")),
        }
    }
}

/// Returns the runs in the order of the file; `None` if two share bytes.
pub(super) fn sorted_runs(runs: &[Run], cluster_bits: u32) -> Option<Vec<Run>> {
    let mut sorted = runs.to_vec();
    sorted.sort_unstable_by_key(|run| run.offset);
    let apart = |pair: &[Run]| pair[0].offset + (pair[0].count << cluster_bits) <= pair[1].offset;
    sorted.windows(2).all(apart).then_some(sorted)
}
