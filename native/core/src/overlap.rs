//! How much of an image occurs in another at any byte offset, estimated.
//!
//! Codecs that compare blocks at their places find nothing once content has moved by a few bytes; librsync finds it, but is slow and does not
//! compress. Whether it is worth a try shows a sample of the target's bytes: those that no match can cover that is at least two windows long.
//! Such a match has a whole window at the left of each of its bytes, or one at the right, so that a byte is certainly not covered if neither of
//! the windows that end and begin with it occurs in the base. Only blocks that differ from the base at the same offset are sampled, so that a
//! few changes are estimated as well as many. The windows are looked for at each offset of the base with a rolling hash (Karp and Rabin, 1987),
//! in one pass that reads no holes. Hashes alone are compared: one that is equal by chance counts as found.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::manifest::is_zero;
use crate::source::{data_pieces, read_padded, ReadAt, SourceError};
use crate::task::{for_each_piece, Cancelled, Task};

/// Bytes of a block that is compared at the same offset.
const BLOCK: u64 = 4096;
/// Longest window.
pub const MAX_WINDOW: usize = 2 * BLOCK as usize;
/// Bytes searched or compared as one piece of work.
const PIECE: u64 = 4 << 20;
/// Odd, so that every byte of a window counts modulo 2^64.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bits of a hash that the filter looks at.
const FILTER_BITS: u32 = 21;

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub enum OverlapError {
    /// An image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// windows are of 1 to 8192 bytes
    #[error("windows are of 1 to 8192 bytes")]
    Window,
}

/// What became of the sampled bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overlap {
    /// Bytes in blocks of the target that are not zero and differ from the base at the same offset.
    pub changed_size: u64,
    /// Bytes sampled, spread evenly over those blocks.
    pub sampled: u64,
    /// Sampled bytes that no match of at least two windows covers.
    pub missing: u64,
}

/// Looks for the windows around at most `count` bytes of `target` in `base`.
///
/// Those in the last two windows' lengths of the target do not count as missing: a shorter match may end there.
///
/// # Errors
/// `Source`, `Cancelled`; `Window` for a length that is out of range.
pub fn estimate(
    base: &dyn ReadAt,
    target: &dyn ReadAt,
    window: usize,
    count: u64,
    task: &Task<'_>,
) -> Result<Overlap, OverlapError> {
    if window == 0 || window > MAX_WINDOW {
        return Err(OverlapError::Window);
    }
    let changed = changed_blocks(base, target, task)?;
    let mut overlap = Overlap {
        changed_size: changed.len() as u64 * BLOCK,
        ..Overlap::default()
    };
    let windows = sample(target, &changed, window, count)?;
    overlap.sampled = windows.len() as u64;
    let search = Search::new(&windows, window);
    search.run(base, task)?;
    overlap.missing = windows.iter().filter(|pair| search.lacks(pair)).count() as u64;
    Ok(overlap)
}

/// Returns the numbers of the target's blocks that are not zero and differ from the base at the same offset.
fn changed_blocks(
    base: &dyn ReadAt,
    target: &dyn ReadAt,
    task: &Task<'_>,
) -> Result<Vec<u64>, OverlapError> {
    let pieces = data_pieces(target, PIECE)?;
    let changed = for_each_piece(
        &task.silent(),
        pieces.count(),
        |index| -> Result<Vec<u64>, OverlapError> {
            let start = pieces.number(index) * PIECE;
            let length = PIECE.min(target.len() - start) as usize;
            let mut here = vec![0; length];
            let mut there = vec![0; length];
            target.read_exact_at(&mut here, start)?;
            read_padded(base, start, &mut there)?;
            Ok(here
                .chunks(BLOCK as usize)
                .zip(there.chunks(BLOCK as usize))
                .zip(start / BLOCK..)
                .filter(|((new, old), _)| new != old && !is_zero(new))
                .map(|(_, number)| number)
                .collect())
        },
    )?;
    Ok(changed.concat())
}

/// The windows that end and begin with a sampled byte, by their hashes.
#[derive(Default)]
struct Windows {
    /// None if it would begin before the target does.
    left: Option<u64>,
    right: u64,
    /// They are looked for: not at the target's end, and not all zero, which a hole of the base may match.
    wanted: bool,
}

/// Hashes the windows around at most `count` bytes of the target's `blocks`.
fn sample(
    target: &dyn ReadAt,
    blocks: &[u64],
    window: usize,
    count: u64,
) -> Result<Vec<Windows>, OverlapError> {
    let size = blocks.len() as u64 * BLOCK;
    let count = count.min(size);
    let reach = window as u64;
    let mut windows = Vec::new();
    let mut data = vec![0; 2 * window - 1];
    for n in 0..count {
        // One in each stratum, at a place that is the same in each run.
        let first = (u128::from(n) * u128::from(size) / u128::from(count)) as u64;
        let next = (u128::from(n + 1) * u128::from(size) / u128::from(count)) as u64;
        let jitter = (n + 1).wrapping_mul(MULTIPLIER) >> 16;
        let chosen = first + jitter % (next - first);
        let place = blocks[(chosen / BLOCK) as usize] * BLOCK + chosen % BLOCK;
        if place + 2 * reach > target.len() {
            windows.push(Windows::default());
            continue;
        }
        let from = (place + 1).saturating_sub(reach);
        let data = &mut data[..(place + reach - from) as usize];
        target.read_exact_at(data, from)?;
        let right = &data[(place - from) as usize..];
        let left = (place + 1 >= reach).then(|| &data[..window]);
        windows.push(Windows {
            left: left.map(hash_of),
            right: hash_of(right),
            wanted: !is_zero(right) && !left.is_some_and(is_zero),
        });
    }
    Ok(windows)
}

/// Windows to look for, by hash.
struct Search {
    length: usize,
    found: HashMap<u64, AtomicBool>,
    filter: Vec<u64>,
    /// What the oldest byte of a window counts in its hash.
    oldest: u64,
}

impl Search {
    fn new(windows: &[Windows], length: usize) -> Self {
        let mut search = Self {
            length,
            found: HashMap::with_capacity(2 * windows.len()),
            filter: vec![0; 1 << (FILTER_BITS - 6)],
            oldest: (1..length).fold(1, |power, _| power.wrapping_mul(MULTIPLIER)),
        };
        for pair in windows.iter().filter(|pair| pair.wanted) {
            for hash in pair.left.into_iter().chain([pair.right]) {
                let (word, bit) = slot(hash);
                search.filter[word] |= bit;
                search.found.entry(hash).or_default();
            }
        }
        search
    }

    /// Whether the base has neither window.
    fn lacks(&self, pair: &Windows) -> bool {
        pair.wanted && !self.has(pair.right) && !pair.left.is_some_and(|left| self.has(left))
    }

    fn has(&self, hash: u64) -> bool {
        self.found
            .get(&hash)
            .is_some_and(|found| found.load(Ordering::Relaxed))
    }

    /// Marks the windows that the base has at any offset.
    fn run(&self, base: &dyn ReadAt, task: &Task<'_>) -> Result<(), OverlapError> {
        if self.found.is_empty() || base.len() < self.length as u64 {
            return Ok(());
        }
        let pieces = data_pieces(base, PIECE)?;
        let meter = task.meter(pieces.data_len());
        for_each_piece(task, pieces.count(), |index| -> Result<(), OverlapError> {
            let start = pieces.number(index) * PIECE;
            // Windows that begin before the piece but end in it are its too, for what is before may be a hole.
            let from = start.saturating_sub(self.length as u64 - 1);
            let end = (start + PIECE + self.length as u64 - 1).min(base.len());
            let mut data = vec![0; (end - from) as usize];
            base.read_exact_at(&mut data, from)?;
            self.scan(&data);
            meter.add(PIECE);
            Ok(())
        })?;
        Ok(())
    }

    fn scan(&self, data: &[u8]) {
        if data.len() < self.length {
            return;
        }
        let mut hash = hash_of(&data[..self.length]);
        self.look_up(hash);
        for (&gone, &come) in data.iter().zip(&data[self.length..]) {
            hash = hash
                .wrapping_sub(u64::from(gone).wrapping_mul(self.oldest))
                .wrapping_mul(MULTIPLIER)
                .wrapping_add(u64::from(come));
            let (word, bit) = slot(hash);
            if self.filter[word] & bit != 0 {
                self.look_up(hash);
            }
        }
    }

    fn look_up(&self, hash: u64) {
        if let Some(found) = self.found.get(&hash) {
            found.store(true, Ordering::Relaxed);
        }
    }
}

fn hash_of(window: &[u8]) -> u64 {
    window.iter().fold(0, |hash: u64, &byte| {
        hash.wrapping_mul(MULTIPLIER).wrapping_add(u64::from(byte))
    })
}

/// Word and bit of the filter that a hash is entered at. High bits: low ones depend on few bytes.
fn slot(hash: u64) -> (usize, u64) {
    let number = hash >> (64 - FILTER_BITS);
    ((number >> 6) as usize, 1 << (number & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that look random and are the same each time.
    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(MULTIPLIER) | 1;
        (0..length)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 32) as u8
            })
            .collect()
    }

    fn overlap(base: &[u8], target: &[u8]) -> Overlap {
        estimate(&base, &target, 64, 1000, &Task::default()).unwrap()
    }

    #[test]
    fn the_same_image_has_nothing_to_sample() {
        let image = noise(1 << 20, 1);
        assert_eq!(overlap(&image, &image), Overlap::default());
    }

    #[test]
    fn shifted_content_is_found_at_other_offsets() {
        let base = noise(9 << 20, 2);
        for shift in [1, 511, 4096, 5 << 20] {
            let found = overlap(&base, &base[shift..]);
            assert!(found.changed_size > (base.len() - shift - 4096) as u64);
            assert_eq!((found.sampled, found.missing), (1000, 0), "{shift}");
        }
    }

    #[test]
    fn new_content_is_missing_and_zeroes_are_no_content() {
        let base = noise(1 << 20, 3);
        let mut target = base.clone();
        target[..512 << 10].copy_from_slice(&noise(512 << 10, 4));
        target[768 << 10..].fill(0);
        let found = overlap(&base, &target);
        assert_eq!(found.changed_size, 512 << 10);
        assert_eq!((found.sampled, found.missing), (1000, 1000));
    }

    #[test]
    fn a_few_changes_are_estimated_as_well() {
        let base = noise(8 << 20, 7);
        let mut target = base.clone();
        target[5 << 20..(5 << 20) + 1024].copy_from_slice(&noise(1024, 8));
        let found = overlap(&base, &target);
        assert_eq!((found.changed_size, found.sampled), (4096, 1000));
        // A quarter of the block is new.
        assert!((240..=256).contains(&found.missing), "{found:?}");
    }

    #[test]
    fn bytes_between_matches_are_not_overestimated() {
        // One byte is inserted in front of each two windows of the base.
        let base = noise(1 << 20, 9);
        let target: Vec<u8> = base
            .chunks(128)
            .flat_map(|piece| [&[7], piece].concat())
            .collect();
        let found = overlap(&base, &target);
        assert!(found.missing <= 20, "{found:?}");
    }

    #[test]
    fn zeroes_that_the_base_has_in_holes_are_not_missing() {
        let base = noise(1 << 16, 10);
        let mut target = noise(1 << 16, 11);
        for block in target.chunks_mut(4096) {
            block[..4000].fill(0);
        }
        let found = overlap(&base, &target);
        assert!(found.missing * 10 < found.sampled, "{found:?}");
    }

    #[test]
    fn short_images_and_long_windows() {
        assert_eq!(overlap(&[1; 10], &[2; 10]).missing, 0);
        let found = overlap(&[], &noise(4096, 5));
        assert!((960..=970).contains(&found.missing), "{found:?}");
        let long = MAX_WINDOW + 1;
        let image: &[u8] = &noise(1 << 16, 6);
        let failed = estimate(&image, &image, long, 10, &Task::default());
        assert!(matches!(failed, Err(OverlapError::Window)));
    }
}
