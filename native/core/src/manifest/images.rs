//! Reading images: their manifests, and whether they match one.

use super::{Builder, LeafHash, Manifest, ManifestError};
use crate::hash_tree::leaf_hash;
use crate::leaf::{is_zero, leaf_count, leaf_len, LEAF_LEN, LEAF_SIZE};
use crate::source::{data_after, data_pieces, Pieces, ReadAt, SourceError};
use crate::task::{for_each_piece, Task};

/// Leaves per piece of work: a power of two, so that pieces are subtrees.
const PIECE_LEAVES: u64 = 16;
/// Pieces whose leaves wait for being gathered.
const ROUND: u64 = 1 << 14;

impl Manifest {
    /// Reads an image once, holes not at all, and hashes it.
    ///
    /// # Errors
    /// `Source` if it cannot be read or was written to meanwhile, `Cancelled`.
    pub fn from_source(source: &dyn ReadAt, task: &Task<'_>) -> Result<Manifest, ManifestError> {
        let size = source.len();
        let meter = task.meter(size);
        if leaf_count(size) == 1 {
            let mut data = vec![0; leaf_len(size, 0)];
            source.read_exact_at(&mut data, 0)?;
            meter.add(size);
            return Ok(Manifest::of_single_leaf(&data));
        }
        let pieces = data_pieces(source, PIECE_LEAVES * LEAF_SIZE)?;
        let mut builder = Builder::new(size);
        for first in (0..pieces.count()).step_by(ROUND as usize) {
            let round = ROUND.min(pieces.count() - first);
            let parts = for_each_piece(task, round, |i| {
                let piece = pieces.number(first + i);
                let leaves = hash_piece(source, piece)?;
                meter.add(piece_len(size, piece) as u64);
                Ok::<_, ManifestError>((piece, leaves))
            })?;
            for (piece, leaves) in parts {
                builder.add(piece * PIECE_LEAVES, &leaves);
            }
        }
        source.check_unchanged()?;
        builder.finish(&task.silent())
    }

    /// Compares an image with this manifest, leaf by leaf; holes are not read.
    ///
    /// # Errors
    /// `Size` or `Leaf` if the image differs, `Source` if it cannot be read, `Cancelled`.
    pub fn verify_source(&self, source: &dyn ReadAt, task: &Task<'_>) -> Result<(), ManifestError> {
        if source.len() != self.size {
            return Err(ManifestError::Size {
                actual: source.len(),
                expected: self.size,
                content_id: self.content_id_hex(),
            });
        }
        let meter = task.meter(self.size);
        // Elsewhere both have zeroes.
        let pieces = data_pieces(source, PIECE_LEAVES * LEAF_SIZE)?.union(self.data_pieces());
        for_each_piece(task, pieces.count(), |i| {
            let piece = pieces.number(i);
            self.verify_piece(source, piece)?;
            meter.add(piece_len(self.size, piece) as u64);
            Ok::<_, ManifestError>(())
        })?;
        Ok(())
    }

    /// Returns the pieces with leaves that are not zero.
    fn data_pieces(&self) -> Pieces {
        let piece_after = |at: u64| Some(self.next_data_leaf(at * PIECE_LEAVES)? / PIECE_LEAVES);
        let numbers = std::iter::successors(piece_after(0), |piece| piece_after(piece + 1));
        Pieces::of(numbers.map(|piece| piece..piece + 1))
    }

    fn verify_piece(&self, source: &dyn ReadAt, piece: u64) -> Result<(), ManifestError> {
        let first = piece * PIECE_LEAVES;
        let data = read_piece(source, piece)?;
        for leaf in first..(first + PIECE_LEAVES).min(self.leaf_count()) {
            let fits = match &data {
                None => self.is_zero_leaf(leaf),
                Some(data) => {
                    let start = ((leaf - first) * LEAF_SIZE) as usize;
                    self.verify_leaf(leaf, &data[start..start + leaf_len(self.size, leaf)])
                }
            };
            if !fits {
                return Err(ManifestError::Leaf {
                    leaf,
                    offset: leaf * LEAF_SIZE,
                    content_id: self.content_id_hex(),
                });
            }
        }
        Ok(())
    }
}

/// Returns the bytes of piece `piece` of an image of `size` bytes.
fn piece_len(size: u64, piece: u64) -> usize {
    (size - piece * PIECE_LEAVES * LEAF_SIZE).min(PIECE_LEAVES * LEAF_SIZE) as usize
}

/// Returns the bytes of a piece, or `None` if the source knows that it is a hole.
fn read_piece(source: &dyn ReadAt, piece: u64) -> Result<Option<Vec<u8>>, SourceError> {
    let start = piece * PIECE_LEAVES * LEAF_SIZE;
    let len = piece_len(source.len(), piece);
    let end = start + len as u64;
    let mut data = Vec::new();
    let mut at = start;
    while let Some((from, to)) = data_after(source, at)? {
        if from >= end {
            break;
        }
        let to = to.min(end);
        data.resize(len, 0);
        source.read_exact_at(
            &mut data[(from - start) as usize..(to - start) as usize],
            from,
        )?;
        at = to;
        if at >= end {
            break;
        }
    }
    Ok((!data.is_empty()).then_some(data))
}

/// Returns the leaves of a piece; none at all for a hole.
fn hash_piece(source: &dyn ReadAt, piece: u64) -> Result<Vec<LeafHash>, SourceError> {
    let Some(data) = read_piece(source, piece)? else {
        return Ok(Vec::new());
    };
    let first = piece * PIECE_LEAVES;
    let hash = |(i, leaf): (usize, &[u8])| match is_zero(leaf) {
        true => LeafHash::Zero,
        false => LeafHash::Data(leaf_hash(first + i as u64, leaf)),
    };
    Ok(data.chunks(LEAF_LEN).enumerate().map(hash).collect())
}
