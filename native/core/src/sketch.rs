//! Sketches of images: small samples from which the size of a patch between any two can be estimated.
//!
//! A sketch holds the hashes of those 4 KiB blocks of an image whose hash falls below a threshold (FracMinHash: the same contents are
//! sampled in every image, so that two sketches can be compared), for some of these how many bytes compressing the block in its place
//! takes, likewise a sample of the image's leaves with their places, and the image's [signature](crate::signature). The estimate of a patch is then: blocks of the target that the
//! base lacks, times what such a block compresses to, plus what the patch says of each changed leaf.

mod scale;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::manifest::{is_zero, LEAF_LEN};
use crate::signature::{Bins, Signature, SIGNATURE_LEN};
use crate::source::{data_after, ReadAt, SourceError};
use crate::task::{for_each_piece, Cancelled, Task};
use scale::cost;

/// Bytes of a block.
pub const BLOCK: usize = 4096;

/// Blocks kept for each image at most: a sketch takes ten bytes for each, and the error of a count of n is about the root of n.
const MAX_BLOCKS: u64 = 1 << 16;

/// Blocks of each image that are compressed to learn what they cost, about.
const COSTED: u64 = 1024;

/// Leaves kept for each image at most.
const MAX_LEAVES: u64 = 1 << 14;

/// Bytes before a block that compressing it may refer to: what the block codec gives on the average.
const CONTEXT: usize = 96 << 10;

/// Bytes of an image hashed as one piece of work.
const PIECE: u64 = 4 << 20;

/// Level of zstd for rough estimates: fast.
const ROUGH_LEVEL: i32 = 1;

/// A patch's header.
const HEADER_BYTES: f64 = 288.0;

/// The block codec's frames reach further back than `CONTEXT`; measured on Debian images, what compresses takes this share of what it does here.
const FRAME_GAIN: f64 = 0.925;

/// What a patch holds for each changed leaf: its hash, and its share of the map and of the frames' records.
const LEAF_BYTES: f64 = 36.0;

const MAGIC: &[u8; 8] = b"DCSKTCH1";

/// Bytes of an encoded sketch before its lists, and of its checksum after them.
const HEADER_LEN: usize = 48;

const CHECK_LEN: usize = 8;

const BLOCK_LEN: usize = 10;

const LEAF_LEN_ENCODED: usize = 8;

const SEED: u64 = 0x5ee7;

/// Why there is no sketch.
#[derive(Debug, thiserror::Error)]
pub enum SketchError {
    /// The image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The bytes are not a sketch, or a damaged one.
    #[error("not a sketch, or a damaged one; create it again")]
    Format,
    /// The compression library failed.
    #[error("the compressor ran out of memory")]
    Memory,
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// A sampled block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Block {
    hash: u64,
    /// Bytes that it compresses to, after the bytes before it.
    cost: u16,
}

/// The sketch of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sketch {
    /// Bytes of the image.
    pub size: u64,
    /// Blocks that are not all zero.
    pub data_blocks: u64,
    /// One block in `1 << shift` is kept.
    shift: u32,
    leaf_shift: u32,
    /// By hash.
    blocks: Vec<Block>,
    /// Hashes of leaves and their places, sorted.
    leaves: Vec<u64>,
    /// What similar images are found by.
    pub signature: Signature,
}

/// Returns whether a hash is in the sample of one in `1 << shift`.
fn sampled(hash: u64, shift: u32) -> bool {
    hash.leading_zeros() >= shift
}

/// Returns the shift that keeps at most `room` of `count`.
fn shift_for(count: u64, room: u64) -> u32 {
    count.div_ceil(room).next_power_of_two().trailing_zeros()
}

/// A sampled block and its place.
type Placed = (u64, u64);

/// What hashing a piece of an image gives.
#[derive(Default)]
struct Hashed {
    data_blocks: u64,
    blocks: Vec<Placed>,
    leaves: Vec<u64>,
    bins: Bins,
}

impl Sketch {
    /// Reads an image once and sketches it. Holes are not read; memory is a few megabytes.
    ///
    /// # Errors
    /// `Source`, `Memory`, `Cancelled`.
    pub fn of(image: &dyn ReadAt, task: &Task<'_>) -> Result<Self, SketchError> {
        let ranges = data_ranges(image)?;
        let most: u64 = ranges.iter().map(|range| range.1 - range.0).sum();
        let shift = shift_for(most / BLOCK as u64, MAX_BLOCKS);
        let leaf_shift = shift_for(most / LEAF_LEN as u64, MAX_LEAVES);
        let meter = task.meter(most);
        let pieces = for_each_piece(task, ranges.len() as u64, |piece| {
            let (start, end) = ranges[piece as usize];
            let hashed = hash_range(image, start, end, (shift, leaf_shift))?;
            meter.add(end - start);
            Ok::<_, SketchError>(hashed)
        })?;
        let data_blocks = pieces.iter().map(|piece| piece.data_blocks).sum();
        let mut leaves: Vec<u64> = pieces
            .iter()
            .flat_map(|piece| &piece.leaves)
            .copied()
            .collect();
        leaves.sort_unstable();
        let mut bins = Bins::default();
        pieces.iter().for_each(|piece| bins.merge(&piece.bins));
        let placed: Vec<Placed> = pieces.into_iter().flat_map(|piece| piece.blocks).collect();
        let mut blocks = cost(image, &placed, shift, data_blocks, task)?;
        blocks.sort_unstable();
        Ok(Self {
            size: image.len(),
            data_blocks,
            shift,
            leaf_shift,
            blocks,
            leaves,
            signature: bins.signature(),
        })
    }

    /// Returns the size in bytes of the block patch from `base` to this image.
    pub fn patch_size_from(&self, base: &Self) -> u64 {
        let shift = self.shift.max(base.shift);
        let mut missing = 0;
        let mut others = base.blocks.as_slice();
        for block in self
            .blocks
            .iter()
            .take_while(|block| sampled(block.hash, shift))
        {
            let behind = others
                .iter()
                .take_while(|other| other.hash < block.hash)
                .count();
            others = &others[behind..];
            if others.first().is_none_or(|other| other.hash != block.hash) {
                missing += u64::from(block.cost);
            }
        }
        let literals = missing as f64 * (1_u64 << shift) as f64;
        (HEADER_BYTES + literals + self.changed_leaves(base) * LEAF_BYTES) as u64
    }

    /// Encodes the sketch: magic, size, data blocks, both shifts (u32), both counts (u64), the lists, the signature, the XXH3 of all that.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(
            HEADER_LEN
                + self.blocks.len() * BLOCK_LEN
                + self.leaves.len() * LEAF_LEN_ENCODED
                + SIGNATURE_LEN
                + CHECK_LEN,
        );
        out.extend_from_slice(MAGIC);
        out.extend(self.size.to_le_bytes());
        out.extend(self.data_blocks.to_le_bytes());
        out.extend(self.shift.to_le_bytes());
        out.extend(self.leaf_shift.to_le_bytes());
        out.extend((self.blocks.len() as u64).to_le_bytes());
        out.extend((self.leaves.len() as u64).to_le_bytes());
        for block in &self.blocks {
            out.extend(block.hash.to_le_bytes());
            out.extend(block.cost.to_le_bytes());
        }
        out.extend(self.leaves.iter().flat_map(|leaf| leaf.to_le_bytes()));
        out.extend(self.signature);
        out.extend(xxh3_64(&out).to_le_bytes());
        out
    }

    /// Decodes what [`Sketch::encode`] returned.
    ///
    /// # Errors
    /// `Format` if the bytes are not a sketch, or were damaged.
    pub fn decode(bytes: &[u8]) -> Result<Self, SketchError> {
        let body = bytes
            .len()
            .checked_sub(CHECK_LEN)
            .ok_or(SketchError::Format)?;
        let (body, check) = bytes.split_at(body);
        if body.len() < HEADER_LEN
            || body[..8] != *MAGIC
            || xxh3_64(body).to_le_bytes()[..] != *check
        {
            return Err(SketchError::Format);
        }
        let (head, lists) = body.split_at(HEADER_LEN);
        let (blocks, leaves) = (number(&head[32..]), number(&head[40..]));
        let split = blocks
            .checked_mul(BLOCK_LEN as u64)
            .and_then(|length| usize::try_from(length).ok());
        let (blocks, rest) = split
            .and_then(|at| lists.split_at_checked(at))
            .ok_or(SketchError::Format)?;
        let (rest, signature) = rest
            .split_last_chunk::<SIGNATURE_LEN>()
            .ok_or(SketchError::Format)?;
        let (shift, leaf_shift) = (number(&head[24..28]) as u32, number(&head[28..32]) as u32);
        if leaves.checked_mul(LEAF_LEN_ENCODED as u64) != Some(rest.len() as u64)
            || shift.max(leaf_shift) >= 63
        {
            return Err(SketchError::Format);
        }
        let block = |raw: &[u8]| Block {
            hash: number(&raw[..8]),
            cost: number(&raw[8..]) as u16,
        };
        Ok(Self {
            size: number(&head[8..]),
            data_blocks: number(&head[16..]),
            shift,
            leaf_shift,
            blocks: blocks.chunks_exact(BLOCK_LEN).map(block).collect(),
            leaves: rest.chunks_exact(LEAF_LEN_ENCODED).map(number).collect(),
            signature: *signature,
        })
    }

    fn changed_leaves(&self, base: &Self) -> f64 {
        let shift = self.leaf_shift.max(base.leaf_shift);
        let mine = self.leaves.iter().take_while(|hash| sampled(**hash, shift));
        let changed = mine
            .filter(|hash| base.leaves.binary_search(hash).is_err())
            .count();
        changed as f64 * (1_u64 << shift) as f64
    }
}

/// Returns the little-endian number in the first bytes, eight at most.
fn number(bytes: &[u8]) -> u64 {
    let mut raw = [0; 8];
    let count = bytes.len().min(8);
    raw[..count].copy_from_slice(&bytes[..count]);
    u64::from_le_bytes(raw)
}

/// Returns the ranges that may hold data, cut into pieces at multiples of `PIECE`, grown to whole leaves.
fn data_ranges(image: &dyn ReadAt) -> Result<Vec<(u64, u64)>, SourceError> {
    let leaf = LEAF_LEN as u64;
    let mut ranges = Vec::new();
    let mut at = 0;
    while let Some((from, to)) = data_after(image, at)? {
        let mut start = (from / leaf * leaf).max(at);
        at = to.next_multiple_of(leaf).min(image.len());
        while start < at {
            let end = at.min((start / PIECE + 1) * PIECE);
            ranges.push((start, end));
            start = end;
        }
        if at == image.len() {
            break;
        }
    }
    Ok(ranges)
}

fn hash_range(
    image: &dyn ReadAt,
    start: u64,
    end: u64,
    shifts: (u32, u32),
) -> Result<Hashed, SourceError> {
    let mut data = vec![0; (end - start) as usize];
    image.read_exact_at(&mut data, start)?;
    let mut hashed = Hashed::default();
    for leaf in data.chunks(LEAF_LEN).filter(|leaf| !is_zero(leaf)) {
        hashed.bins.add(leaf);
    }
    for (number, leaf) in data.chunks(LEAF_LEN).enumerate() {
        let at = start + (number * LEAF_LEN) as u64;
        let mut state = at;
        let mut any = false;
        for (number, block) in leaf.chunks(BLOCK).enumerate() {
            if is_zero(block) {
                continue;
            }
            any = true;
            hashed.data_blocks += 1;
            let hash = xxh3_64(block);
            let place = at + (number * BLOCK) as u64;
            state = xxh3_64_with_seed(&hash.to_le_bytes(), state ^ place);
            if sampled(hash, shifts.0) {
                hashed.blocks.push((hash, place));
            }
        }
        let hash = xxh3_64_with_seed(&state.to_le_bytes(), SEED);
        if any && sampled(hash, shifts.1) {
            hashed.leaves.push(hash);
        }
    }
    Ok(hashed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks that compress to about half, different for each seed.
    fn content(seed: u64, blocks: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            (state >> 60) as u8
        };
        (0..blocks * BLOCK).map(|_| next()).collect()
    }

    fn sketch(bytes: &[u8]) -> Sketch {
        Sketch::of(&bytes, &Task::default()).unwrap()
    }

    fn close(estimate: u64, expected: f64, tolerance: f64) {
        let off = (estimate as f64 / expected - 1.0).abs();
        assert!(off < tolerance, "{estimate} instead of {expected}");
    }

    #[test]
    fn nothing_is_needed_for_what_is_there() {
        let image = content(1, 120);
        let sketch = sketch(&image);
        assert!(sketch.patch_size_from(&sketch) < 1000);
        let moved = [&image[20 * BLOCK..], &image[..20 * BLOCK]].concat();
        let moved = super::tests::sketch(&moved);
        assert!(moved.patch_size_from(&sketch) < 4000);
    }

    #[test]
    fn estimates_are_near_the_true_sizes() {
        let base = content(1, 240);
        let mut target = base.clone();
        target[100 * BLOCK..140 * BLOCK].copy_from_slice(&content(2, 40));
        target.extend(vec![0; 30 * BLOCK]);
        target.extend(content(3, 20));
        let dir = tempfile::tempdir().unwrap();
        let options = crate::patch::CreateOptions::default();
        let made =
            crate::patch::create(&base, &target, &dir.path().join("patch"), &options).unwrap();
        close(
            sketch(&target).patch_size_from(&sketch(&base)),
            made.header.patch_size as f64,
            0.1,
        );
    }

    #[test]
    fn samples_of_different_density_can_be_compared() {
        let small = content(1, 100);
        let large = [&small[..], &content(2, 300)[..]].concat();
        let [exact, mut coarse] = [&small, &large].map(|bytes| sketch(bytes));
        let expected = coarse.patch_size_from(&exact);
        coarse.shift = 2;
        coarse.blocks.retain(|block| sampled(block.hash, 2));
        close(coarse.patch_size_from(&exact), expected as f64, 0.3);
        assert!(exact.patch_size_from(&coarse) < 10 * BLOCK as u64);
    }

    #[test]
    fn sketches_survive_keeping_and_damage_is_noticed() {
        let sketch = sketch(&content(1, 40));
        let bytes = sketch.encode();
        assert_eq!(Sketch::decode(&bytes).unwrap(), sketch);
        for at in (0..bytes.len()).step_by(7) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 16;
            assert!(Sketch::decode(&damaged).is_err());
            assert!(Sketch::decode(&bytes[..at]).is_err());
        }
    }

    #[test]
    fn empty_and_zero_images_have_sketches() {
        for image in [vec![], vec![0; 10 * BLOCK], vec![0; 5]] {
            let empty = sketch(&image);
            assert_eq!(empty.data_blocks, 0);
            assert!(empty.patch_size_from(&sketch(&content(1, 10))) < 1000);
        }
    }

    #[test]
    fn an_image_that_ends_inside_a_block_is_read_to_its_end() {
        let mut image = content(1, 30);
        image.truncate(29 * BLOCK + 77);
        assert_eq!(sketch(&image).data_blocks, 30);
    }
}
