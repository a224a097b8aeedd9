//! How alike two pieces of bytes are.

use diffcache_base::words::Words;

use crate::near::anchors::nonzero_bytes;

/// Differences that are remembered, each in the only slot where it may be kept.
const DELTAS: usize = 32;

/// What a number is worth that differs by a remembered amount, beside its equal bytes.
const REPEATED: i32 = 2;

/// Returns the whole words of a slice, and the rest.
#[inline]
pub(super) fn words(bytes: &[u8]) -> (std::slice::ChunksExact<'_, u8>, &[u8]) {
    let chunks = bytes.chunks_exact(8);
    let rest = chunks.remainder();
    (chunks, rest)
}

#[inline]
pub(super) fn word(bytes: &[u8]) -> u64 {
    Words(bytes).le64(0)
}

/// Differences of numbers of four bytes that were seen last.
///
/// Where entries were added to a table or functions to a program, offsets and indexes grow by the same few amounts over and over. Such a number has
/// few equal bytes, but the coded difference repeats and costs next to nothing.
#[derive(Default)]
pub(super) struct Deltas {
    slots: [u32; DELTAS],
}

impl Deltas {
    /// Returns the score of two words: equal bytes other than zero, less different ones, but those of a number that differs by a repeated amount.
    #[inline]
    pub(super) fn score(&mut self, a: u64, b: u64) -> i32 {
        let half = |word: u64| [word as u32, (word >> 32) as u32];
        let halves = half(a).into_iter().zip(half(b));
        let changed = halves.filter(|(a, b)| a != b);
        let cost: i32 = changed.map(|(a, b)| self.cost(a, b)).sum();
        nonzero_bytes(a | b) as i32 - cost
    }

    /// Returns what two different numbers take from the score.
    #[inline]
    fn cost(&mut self, a: u32, b: u32) -> i32 {
        let delta = a.wrapping_sub(b);
        let slot = (delta.wrapping_mul(0x9e37_79b1) >> (32 - DELTAS.ilog2())) as usize;
        let different = nonzero_bytes(u64::from(a ^ b)) as i32;
        if std::mem::replace(&mut self.slots[slot], delta) == delta {
            different - REPEATED
        } else {
            2 * different
        }
    }
}

pub(super) fn byte_score(a: u8, b: u8) -> i32 {
    match a == b {
        true => i32::from(a != 0),
        false => -1,
    }
}

/// Returns whether two pieces have a number of four bytes in common, other than zero, at the same place. Most shifts that are tried are ruled out by
/// that in a fraction of the time that their score takes.
pub(super) fn shares_number(ours: &[u8], theirs: &[u8]) -> bool {
    let pairs = ours.chunks_exact(4).zip(theirs.chunks_exact(4));
    pairs.fold(false, |any, (a, b)| any | (a == b && a != [0; 4]))
}

/// Returns the score of pieces of the same length.
pub(super) fn score(ours: &[u8], theirs: &[u8]) -> i32 {
    let (ours, our_rest) = words(ours);
    let (theirs, their_rest) = words(theirs);
    let mut deltas = Deltas::default();
    let whole = ours
        .zip(theirs)
        .map(|(a, b)| deltas.score(word(a), word(b)));
    let bytes = our_rest.iter().zip(their_rest);
    whole.sum::<i32>() + bytes.map(|(a, b)| byte_score(*a, *b)).sum::<i32>()
}
