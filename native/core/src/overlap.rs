//! How much of an image occurs in another at any byte offset, estimated.
//!
//! Codecs that compare blocks at their places find nothing once content has moved by a few bytes; librsync finds it, but is slow and does not
//! compress. Whether it is worth a try shows a sample: windows of the target, spread evenly over its data, are first compared with the base at
//! the same offset; the rest is looked for in all of the base with a rolling hash (Karp and Rabin, 1987). The base is read once, its holes never.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::manifest::is_zero;
use crate::source::{data_pieces, ReadAt, SourceError};
use crate::task::{for_each_piece, Cancelled, Task};

/// Bytes at one of whose positions each window begins.
const BLOCK: u64 = 4096;
/// Longest window.
pub const MAX_WINDOW: usize = BLOCK as usize;
/// Bytes of the base searched as one piece of work.
const PIECE: u64 = 4 << 20;
/// Odd, so that every byte of a window counts modulo 2^64.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;
/// Bits of a hash that the filter looks at.
const FILTER_BITS: u32 = 20;

/// Why there is no estimate.
#[derive(Debug, thiserror::Error)]
pub enum OverlapError {
    /// An image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// windows are of 1 to 4096 bytes
    #[error("windows are of 1 to 4096 bytes")]
    Window,
}

/// What became of the windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overlap {
    /// Windows that are not all zero.
    pub windows: u64,
    /// Those that are in the base at the same offset.
    pub same: u64,
    /// Those that are in the base at another offset only.
    pub moved: u64,
    /// Bytes of the target that are not zero, estimated.
    pub data_size: u64,
}

impl Overlap {
    /// Windows that are nowhere in the base.
    #[must_use]
    pub fn missing(&self) -> u64 {
        self.windows - self.same - self.moved
    }
}

/// Looks for about `count` windows of `target` in `base`.
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
    let mut overlap = Overlap::default();
    let mut changed = Vec::new();
    let blocks = data_pieces(target, BLOCK)?;
    let count = count.min(blocks.count());
    let mut here = vec![0; window];
    let mut there = vec![0; window];
    for n in 0..count {
        // One in each stratum, at a place that is the same in each run.
        let jitter = (n + 1).wrapping_mul(MULTIPLIER) >> 16;
        let first = n * blocks.count() / count;
        let stratum = (n + 1) * blocks.count() / count - first;
        let block = blocks.number(first + jitter % stratum);
        let place = block * BLOCK + (jitter >> 24) % (BLOCK - window as u64 + 1);
        if place + window as u64 > target.len() {
            continue;
        }
        target.read_exact_at(&mut here, place)?;
        if is_zero(&here) {
            continue;
        }
        overlap.windows += 1;
        if place + window as u64 <= base.len() {
            base.read_exact_at(&mut there, place)?;
            if here == there {
                overlap.same += 1;
                continue;
            }
        }
        changed.push(here.clone());
    }
    overlap.data_size =
        (blocks.data_len() as f64 * overlap.windows as f64 / count.max(1) as f64) as u64;
    overlap.moved = Search::new(changed, window).count_found(base, task)?;
    Ok(overlap)
}

/// Windows to look for, by hash.
struct Search {
    windows: Vec<Vec<u8>>,
    length: usize,
    by_hash: HashMap<u64, Vec<usize>>,
    filter: Vec<u64>,
    found: Vec<AtomicBool>,
    /// What the oldest byte of a window counts in its hash.
    oldest: u64,
}

impl Search {
    fn new(windows: Vec<Vec<u8>>, length: usize) -> Self {
        let mut search = Self {
            length,
            by_hash: HashMap::with_capacity(windows.len()),
            filter: vec![0; 1 << (FILTER_BITS - 6)],
            found: windows.iter().map(|_| AtomicBool::new(false)).collect(),
            oldest: (1..length).fold(1, |power, _| power.wrapping_mul(MULTIPLIER)),
            windows,
        };
        for (number, window) in search.windows.iter().enumerate() {
            let hash = hash_of(window);
            let (word, bit) = slot(hash);
            search.filter[word] |= bit;
            search.by_hash.entry(hash).or_default().push(number);
        }
        search
    }

    /// Windows that the base has at any offset.
    fn count_found(&self, base: &dyn ReadAt, task: &Task<'_>) -> Result<u64, OverlapError> {
        if self.windows.is_empty() || base.len() < self.length as u64 {
            return Ok(0);
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
        let found = self.found.iter();
        Ok(found.filter(|found| found.load(Ordering::Relaxed)).count() as u64)
    }

    fn scan(&self, data: &[u8]) {
        if data.len() < self.length {
            return;
        }
        let mut hash = hash_of(&data[..self.length]);
        self.look_up(hash, &data[..self.length]);
        for (start, (&gone, &come)) in data.iter().zip(&data[self.length..]).enumerate() {
            hash = hash
                .wrapping_sub(u64::from(gone).wrapping_mul(self.oldest))
                .wrapping_mul(MULTIPLIER)
                .wrapping_add(u64::from(come));
            let (word, bit) = slot(hash);
            if self.filter[word] & bit != 0 {
                self.look_up(hash, &data[start + 1..=start + self.length]);
            }
        }
    }

    fn look_up(&self, hash: u64, content: &[u8]) {
        for &number in self.by_hash.get(&hash).map_or(&[][..], Vec::as_slice) {
            // Many places of the base may hold the same window.
            if !self.found[number].load(Ordering::Relaxed) && self.windows[number] == content {
                self.found[number].store(true, Ordering::Relaxed);
            }
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
    fn the_same_image_is_found_at_its_place() {
        let image = noise(1 << 20, 1);
        let found = overlap(&image, &image);
        assert_eq!((found.windows, found.same, found.missing()), (256, 256, 0));
        assert_eq!(found.data_size, 1 << 20);
    }

    #[test]
    fn shifted_content_is_found_at_other_offsets() {
        let base = noise(9 << 20, 2);
        for shift in [1, 511, 4096, 5 << 20] {
            let found = overlap(&base, &base[shift..]);
            assert_eq!((found.windows, found.same), (1000, 0));
            assert_eq!(found.moved, 1000, "{shift}");
        }
    }

    #[test]
    fn new_content_is_missing_and_zeroes_are_no_content() {
        let base = noise(1 << 20, 3);
        let mut target = base.clone();
        target[..512 << 10].copy_from_slice(&noise(512 << 10, 4));
        target[768 << 10..].fill(0);
        let found = overlap(&base, &target);
        assert_eq!((found.windows, found.same, found.missing()), (192, 64, 128));
        assert_eq!(found.data_size, 768 << 10);
    }

    #[test]
    fn short_images_and_long_windows() {
        assert_eq!(overlap(&[1; 10], &[1; 10]).windows, 0);
        assert_eq!(overlap(&[], &noise(4096, 5)).missing(), 1);
        let long = MAX_WINDOW + 1;
        let image: &[u8] = &noise(1 << 16, 6);
        let failed = estimate(&image, &image, long, 10, &Task::default());
        assert!(matches!(failed, Err(OverlapError::Window)));
    }
}
