//! Finding long stretches of literals that the target holds twice.

use super::compare::Images;
use super::error::PatchError;
use super::index::{BlockIndex, Sampling};
use super::runs::{Run, Src, BLOCK, BLOCK_LEN};
use crate::source::read_padded;

/// A stretch of literals that the target holds twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    /// First block of the second occurrence.
    pub start: u32,
    /// Its blocks.
    pub len: u32,
    /// First block of the first occurrence, which ends before the second begins.
    pub first: u32,
}

/// Shorter repeats are left to zstd.
const MIN_REPEAT: u32 = 8;

/// Finds long stretches of literals that the target holds twice, among the first ones: `hashes` are those of the literal blocks of `runs`, in order,
/// of which as many are kept as fit in 112 MiB with the table of them.
pub(super) fn find_repeats(
    images: &Images<'_>,
    runs: &[Run],
    hashes: &[u64],
) -> Result<Vec<Repeat>, PatchError> {
    let open = runs.iter().filter(|run| matches!(run.src, Src::Literal(_)));
    let blocks: Vec<u32> = open
        .flat_map(|run| run.start..run.end())
        .take(hashes.len())
        .collect();
    let hashes = &hashes[..blocks.len()];
    let entries = hashes.iter().copied().zip(0u32..);
    let index = BlockIndex::new(Sampling::for_blocks(0), hashes.len(), entries);
    let mut repeats = Vec::new();
    let mut at = 0;
    while at < hashes.len() {
        // The longest candidate; first copies come first, so the stretch is found at its first occurrence.
        let length = |first: usize| {
            let same = |n: &usize| {
                first + n < at
                    && hashes[first + n] == hashes[at + n]
                    && blocks[first + n] - blocks[first] == *n as u32
            };
            (0..hashes.len() - at)
                .take_while(|n| same(n) && blocks[at + n] - blocks[at] == *n as u32)
                .count()
        };
        let best = index
            .candidates(hashes[at])
            .map(|first| first as usize)
            .filter(|first| *first < at)
            .map(|first| (length(first), first))
            .max();
        match best {
            Some((len, first)) if len >= MIN_REPEAT as usize => {
                let repeat = Repeat {
                    start: blocks[at],
                    len: len as u32,
                    first: blocks[first],
                };
                let len = verified(images, repeat)?;
                if len >= MIN_REPEAT {
                    repeats.push(Repeat { len, ..repeat });
                }
                at += (len as usize).max(1);
            }
            _ => at += 1,
        }
    }
    Ok(repeats)
}

/// Compares the blocks of a repeat byte by byte; returns how many are equal.
fn verified(images: &Images<'_>, repeat: Repeat) -> Result<u32, PatchError> {
    let (mut a, mut b) = ([0; BLOCK_LEN], [0; BLOCK_LEN]);
    for n in 0..repeat.len {
        read_padded(images.target, u64::from(repeat.first + n) * BLOCK, &mut a)?;
        read_padded(images.target, u64::from(repeat.start + n) * BLOCK, &mut b)?;
        if a != b {
            return Ok(n);
        }
    }
    Ok(repeat.len)
}
