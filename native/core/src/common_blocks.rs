//! Where the blocks of some chunks of an image occur in another image.
//!
//! The next build of an image has most of the blocks of the one before, at other places. Chunks of the base are indexed by the hashes of their
//! blocks, and the target is read once, without its holes. Hashes alone are compared: the outcome says what may be worth fetching, and a
//! block that is equal by chance costs no more than that.

use std::collections::{BTreeMap, HashMap};

use crate::manifest::is_zero;
use crate::patch::block_hash;
use crate::source::{data_pieces, read_padded, ReadAt, SourceError};
use crate::task::{for_each_piece, Cancelled, Task};

/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Largest chunk, in bytes.
const MAX_CHUNK: u64 = 16 << 20;
/// Bytes of the target that are read as one piece of work, at least.
const PIECE: u64 = 4 << 20;
/// Chunks that are known of one block: the first of those that have it. Content that more of them have says little of any.
const MOST_CHUNKS: usize = 4;

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum CommonBlocksError {
    /// An image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// chunks are of a multiple of 4096 bytes, at most 16 MiB
    #[error("chunks are of a multiple of 4096 bytes, at most 16 MiB")]
    Chunk,
}

/// Blocks of a chunk of the base that a chunk of the target has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Common {
    /// Number of the chunk of the target.
    pub target: u64,
    /// Number of the chunk of the base.
    pub base: u64,
    /// Blocks of the target's chunk that occur in the base's.
    pub blocks: u64,
}

/// What two images have in common.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommonBlocks {
    /// For each chunk of the base that was asked for, its number and how many of its blocks are not zero; those without are left out.
    pub base: Vec<(u64, u64)>,
    /// What was found, by target, then base.
    pub found: Vec<Common>,
}

/// Looks for the blocks of some chunks of `base` in `target`.
///
/// A block that several of these chunks have counts for the one at the target's place if that is among the first four, else for the first. Chunks past the base's end have no blocks.
///
/// # Errors
/// `Source`, `Cancelled`; `Chunk` for a size of chunks that is not possible.
pub fn find(
    base: &dyn ReadAt,
    target: &dyn ReadAt,
    chunks: &[u64],
    chunk_bytes: u64,
    task: &Task<'_>,
) -> Result<CommonBlocks, CommonBlocksError> {
    if chunk_bytes == 0 || chunk_bytes > MAX_CHUNK || chunk_bytes % BLOCK != 0 {
        return Err(CommonBlocksError::Chunk);
    }
    let index = Index::of(base, chunks, chunk_bytes, task)?;
    let found = if index.base.is_empty() {
        Vec::new()
    } else {
        index.search(target, chunk_bytes, task)?
    };
    Ok(CommonBlocks {
        base: index.base,
        found,
    })
}

struct Index {
    base: Vec<(u64, u64)>,
    /// Chunks that have a block, by its hash.
    chunks: HashMap<u64, Vec<u64>>,
}

/// The hashes of the blocks of `data` that are not zero.
fn hashes(data: &[u8]) -> impl Iterator<Item = u64> + '_ {
    data.chunks(BLOCK as usize)
        .filter(|block| !is_zero(block))
        .map(block_hash)
}

impl Index {
    fn of(
        base: &dyn ReadAt,
        chunks: &[u64],
        chunk_bytes: u64,
        task: &Task<'_>,
    ) -> Result<Index, CommonBlocksError> {
        let mut wanted: Vec<u64> = chunks.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        wanted.retain(|chunk| *chunk < base.len().div_ceil(chunk_bytes));
        let read = |at: u64| -> Result<Vec<u64>, CommonBlocksError> {
            // In bounds: there is a piece for each of them.
            let start = wanted[at as usize] * chunk_bytes;
            let mut data = vec![0; chunk_bytes as usize];
            read_padded(base, start, &mut data)?;
            Ok(hashes(&data).collect())
        };
        let found = for_each_piece(&task.silent(), wanted.len() as u64, read)?;
        let mut index = Index {
            base: Vec::new(),
            chunks: HashMap::new(),
        };
        for (&chunk, hashes) in wanted.iter().zip(&found) {
            if !hashes.is_empty() {
                index.base.push((chunk, hashes.len() as u64));
            }
            for &hash in hashes {
                let known = index.chunks.entry(hash).or_default();
                if known.len() < MOST_CHUNKS && known.last() != Some(&chunk) {
                    known.push(chunk);
                }
            }
        }
        Ok(index)
    }

    fn search(
        &self,
        target: &dyn ReadAt,
        chunk_bytes: u64,
        task: &Task<'_>,
    ) -> Result<Vec<Common>, CommonBlocksError> {
        // Whole chunks, so that no chunk is in two pieces.
        let length = PIECE.next_multiple_of(chunk_bytes);
        let pieces = data_pieces(target, length)?;
        let meter = task.meter(pieces.data_len());
        let search = |index: u64| -> Result<Vec<Common>, CommonBlocksError> {
            let start = pieces.number(index) * length;
            // The last block counts as padded with zeroes.
            let rest = (target.len() - start).next_multiple_of(BLOCK);
            let mut data = vec![0; length.min(rest) as usize];
            read_padded(target, start, &mut data)?;
            meter.add(data.len() as u64);
            let chunks = data.chunks(chunk_bytes as usize);
            Ok(chunks
                .zip(start / chunk_bytes..)
                .flat_map(|(chunk, number)| self.in_chunk(chunk, number))
                .collect())
        };
        Ok(for_each_piece(task, pieces.count(), search)?.concat())
    }

    fn in_chunk(&self, data: &[u8], target: u64) -> Vec<Common> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for hash in hashes(data) {
            let Some(known) = self.chunks.get(&hash) else {
                continue;
            };
            let same_place = known.iter().find(|chunk| **chunk == target);
            if let Some(&base) = same_place.or(known.first()) {
                *counts.entry(base).or_default() += 1;
            }
        }
        let common = |(base, blocks)| Common {
            target,
            base,
            blocks,
        };
        counts.into_iter().map(common).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;

    const CHUNK: u64 = 4 * BLOCK;

    fn common(base: &[u8], target: &[u8], chunks: &[u64]) -> CommonBlocks {
        find(&base, &target, chunks, CHUNK, &Task::default()).unwrap()
    }

    fn triples(found: &CommonBlocks) -> Vec<(u64, u64, u64)> {
        let triple = |each: &Common| (each.target, each.base, each.blocks);
        found.found.iter().map(triple).collect()
    }

    #[test]
    fn blocks_are_found_where_they_were_moved_to() {
        let base = noise(1, 8 * CHUNK as usize);
        // Two blocks further on, with new ones in front.
        let target = [noise(2, 2 * BLOCK as usize), base.clone()].concat();
        let found = common(&base, &target, &[3, 5, 5]);
        assert_eq!(vec![(3, 4), (5, 4)], found.base);
        assert_eq!(
            vec![(3, 3, 2), (4, 3, 2), (5, 5, 2), (6, 5, 2)],
            triples(&found)
        );
    }

    #[test]
    fn zeroes_are_nowhere_and_chunks_past_the_end_have_nothing() {
        let mut base = noise(3, 4 * CHUNK as usize - 100);
        base[..2 * CHUNK as usize].fill(0);
        let found = common(&base, &vec![0; 64 << 10], &[0, 1, 3, 4, u64::MAX]);
        // The last block is short.
        assert_eq!((vec![(3, 4)], vec![]), (found.base, found.found));
        let found = common(&base, &base, &[0, 3, 9]);
        assert_eq!(vec![(3, 3, 4)], triples(&found));
    }

    #[test]
    fn a_block_that_many_chunks_have_counts_at_its_place() {
        let pattern = vec![0x5a; 12 * CHUNK as usize];
        let found = common(&pattern, &pattern, &[0, 1, 2, 3, 4, 5]);
        let places = vec![(0, 0, 4), (1, 1, 4), (2, 2, 4), (3, 3, 4)];
        let elsewhere = (4..12).map(|target| (target, 0, 4));
        let expected: Vec<_> = places.into_iter().chain(elsewhere).collect();
        assert_eq!(expected, triples(&found));
    }

    #[test]
    fn no_chunks_and_no_images() {
        let image = noise(4, 64 << 10);
        assert_eq!(CommonBlocks::default(), common(&image, &image, &[]));
        assert_eq!(CommonBlocks::default(), common(&[], &image, &[0]));
        assert!(triples(&common(&image, &[], &[0])).is_empty());
        for chunk in [0, 100, MAX_CHUNK + BLOCK] {
            let refused = find(
                &image.as_slice(),
                &image.as_slice(),
                &[0],
                chunk,
                &Task::default(),
            );
            assert!(matches!(refused, Err(CommonBlocksError::Chunk)));
        }
    }
}
