//! The second pass: what the first left open is looked up at any block of the base.

use super::compare::{push_unknown, Compared, Images, MAX_HASHES, UNKNOWN};
use super::error::PatchError;
use super::format::{block_count, MAX_RUNS};
use super::index::{block_hash, BlockIndex, Sampling};
use super::options::CreateOptions;
use super::runs::{push, Run, Src, BLOCK, BLOCK_LEN};
use crate::source::read_padded;
use crate::task::for_each_piece_with;

/// Most blocks looked up in one piece of work: 1 MiB.
const GROUP_BLOCKS: u32 = 256;

/// Settles what the first pass left open. Returns the runs, and the hashes of the blocks that are literals, in order.
pub(super) fn match_moved(
    images: &Images<'_>,
    compared: &mut Compared,
    options: &CreateOptions<'_>,
) -> Result<(Vec<Run>, Vec<u64>), PatchError> {
    let known = std::mem::take(&mut compared.hashes);
    // Not needed after this: its memory is the next step's.
    let index = std::mem::replace(
        &mut compared.index,
        BlockIndex::with_room(Sampling::for_blocks(0), 0),
    );
    let groups = split_unknown(&compared.runs);
    let matcher = Matcher {
        images,
        index: &index,
    };
    let parts = for_each_piece_with(
        &options.task.silent(),
        groups.len() as u64,
        Buffers::default,
        |buffers, i| {
            let mut found = Found::default();
            for open in &groups[i as usize] {
                matcher.settle(*open, &known, buffers, &mut found)?;
            }
            Ok::<_, PatchError>(found)
        },
    )?;
    drop(known);
    let hashes = parts
        .iter()
        .flat_map(|found| found.hashes.iter().copied())
        .collect();
    let mut found = parts.into_iter().flat_map(|found| found.runs);
    let mut runs = Vec::new();
    for run in &compared.runs {
        if run.src != UNKNOWN {
            push(&mut runs, *run);
            continue;
        }
        let mut left = run.len;
        while left > 0 {
            let Some(part) = found.next() else { break };
            left = left.saturating_sub(part.len);
            push_unknown(&mut runs, part);
        }
    }
    match runs.len() > MAX_RUNS {
        // Then the hashes fit no longer, and are done without.
        true => Ok((coarsen(runs), Vec::new())),
        false => Ok((runs, hashes)),
    }
}

/// An unknown run, and the number of unknown blocks before it.
#[derive(Debug, Clone, Copy)]
struct Open {
    run: Run,
    before: usize,
}

/// Returns the unknown runs in groups of about a piece of work, none longer than one.
fn split_unknown(runs: &[Run]) -> Vec<Vec<Open>> {
    let mut groups: Vec<Vec<Open>> = Vec::new();
    let mut size = GROUP_BLOCKS;
    let mut before = 0;
    for run in runs.iter().filter(|run| run.src == UNKNOWN) {
        let mut at = run.start;
        while at < run.end() {
            let len = (run.end() - at).min(GROUP_BLOCKS);
            let part = Run {
                start: at,
                len,
                src: UNKNOWN,
            };
            let part = Open { run: part, before };
            match groups.last_mut() {
                Some(group) if size < GROUP_BLOCKS => group.push(part),
                _ => {
                    groups.push(vec![part]);
                    size = 0;
                }
            }
            size += len;
            at += len;
            before += len as usize;
        }
    }
    groups
}

/// Keeps the map within its limit: where copying alternates with literals that often, the shortest copies become literals.
fn coarsen(mut runs: Vec<Run>) -> Vec<Run> {
    let mut shortest = 1;
    while runs.len() > MAX_RUNS {
        let mut coarse = Vec::new();
        for mut run in runs {
            if run.len <= shortest {
                run.src = UNKNOWN;
            }
            push_unknown(&mut coarse, run);
        }
        runs = coarse;
        shortest *= 2;
    }
    runs
}

/// A thread's buffers: a stretch of the target, and one of the base.
#[derive(Default)]
struct Buffers {
    target: Vec<u8>,
    base: Vec<u8>,
}

/// What became of unknown runs.
#[derive(Default)]
struct Found {
    runs: Vec<Run>,
    /// Hashes of the blocks that stay unknown, in order; of the first ones only if there are very many.
    hashes: Vec<u64>,
}

/// Looks blocks of the target up in the base.
struct Matcher<'a> {
    images: &'a Images<'a>,
    index: &'a BlockIndex,
}

impl Matcher<'_> {
    /// Splits an unknown run into what the base has somewhere and what it has not.
    fn settle(
        &self,
        open: Open,
        known: &[u64],
        buffers: &mut Buffers,
        found: &mut Found,
    ) -> Result<(), PatchError> {
        let run = open.run;
        let hashes = known.get(open.before..open.before + run.len as usize);
        let (parts, hashes) = match hashes {
            Some(hashes) if self.index.sampling().is_complete() => {
                (self.by_hash(run, hashes, buffers)?, hashes.to_vec())
            }
            _ => self.by_content(run, buffers)?,
        };
        for part in parts {
            // Those that were not kept in the first pass are not kept here either: no more than the first ones are searched for repeats.
            if part.src == UNKNOWN && open.before < MAX_HASHES {
                let from = (part.start - run.start) as usize;
                found
                    .hashes
                    .extend_from_slice(&hashes[from..from + part.len as usize]);
            }
            found.runs.push(part);
        }
        Ok(())
    }

    /// Looks a run up by the hashes of its blocks; reads only what seems to be there.
    fn by_hash(
        &self,
        run: Run,
        hashes: &[u64],
        buffers: &mut Buffers,
    ) -> Result<Vec<Run>, PatchError> {
        let mut likely = Vec::new();
        let mut expected = None;
        for (start, hash) in (run.start..).zip(hashes) {
            let mut best = None;
            for at in self.index.candidates(*hash) {
                if best.is_none() || Some(at) == expected {
                    best = Some(at);
                }
            }
            expected = best.map(|at| at + 1);
            let src = best.map_or(UNKNOWN, Src::Base);
            push_unknown(&mut likely, Run { start, len: 1, src });
        }
        let mut parts = Vec::new();
        for part in likely {
            match part.src {
                Src::Base(at) => self.confirm(part, at, buffers, &mut parts)?,
                _ => push_unknown(&mut parts, part),
            }
        }
        Ok(parts)
    }

    /// Compares a run with the base's blocks from `at` on; what differs after all is looked up again.
    fn confirm(
        &self,
        run: Run,
        at: u32,
        buffers: &mut Buffers,
        parts: &mut Vec<Run>,
    ) -> Result<(), PatchError> {
        let len = run.len as usize * BLOCK_LEN;
        let Buffers { target, base } = buffers;
        target.resize(len, 0);
        base.resize(len, 0);
        read_padded(self.images.target, u64::from(run.start) * BLOCK, target)?;
        read_padded(self.images.base, u64::from(at) * BLOCK, base)?;
        let pairs = target.chunks(BLOCK_LEN).zip(base.chunks(BLOCK_LEN));
        let equal: Vec<bool> = pairs.map(|(a, b)| a == b).collect();
        for (i, equal) in (0u32..).zip(equal) {
            let block = &target[i as usize * BLOCK_LEN..(i as usize + 1) * BLOCK_LEN];
            let src = match equal {
                true => Some(at + i),
                false => self.find(block, block_hash(block), None, base)?,
            };
            push_unknown(
                parts,
                Run {
                    start: run.start + i,
                    len: 1,
                    src: src.map_or(UNKNOWN, Src::Base),
                },
            );
        }
        Ok(())
    }

    /// Looks a run up block by block, also where only some of the base's blocks are indexed. Returns the hashes of its blocks as well.
    fn by_content(
        &self,
        run: Run,
        buffers: &mut Buffers,
    ) -> Result<(Vec<Run>, Vec<u64>), PatchError> {
        let Buffers { target, base } = buffers;
        target.resize(run.len as usize * BLOCK_LEN, 0);
        read_padded(self.images.target, u64::from(run.start) * BLOCK, target)?;
        let (mut parts, mut hashes) = (Vec::new(), Vec::with_capacity(run.len as usize));
        let mut expected = None;
        for (start, block) in (run.start..).zip(target.chunks(BLOCK_LEN)) {
            let hash = block_hash(block);
            let at = self.find(block, hash, expected, base)?;
            expected = at.map(|at| at + 1);
            let src = at.map_or(UNKNOWN, Src::Base);
            push_unknown(&mut parts, Run { start, len: 1, src });
            hashes.push(hash);
        }
        if !self.index.sampling().is_complete() {
            self.grow_back(run, target, base, &mut parts)?;
        }
        Ok((parts, hashes))
    }

    /// Finds a block of the base with these bytes, preferably the expected one.
    fn find(
        &self,
        block: &[u8],
        hash: u64,
        expected: Option<u32>,
        scratch: &mut Vec<u8>,
    ) -> Result<Option<u32>, PatchError> {
        if let Some(at) = expected {
            if self.equals(at, block, scratch)? {
                return Ok(Some(at));
            }
        }
        for at in self.index.candidates(hash) {
            if self.equals(at, block, scratch)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn equals(&self, at: u32, block: &[u8], scratch: &mut Vec<u8>) -> Result<bool, PatchError> {
        if at >= block_count(self.images.base.len()) {
            return Ok(false);
        }
        scratch.resize(BLOCK_LEN, 0);
        read_padded(self.images.base, u64::from(at) * BLOCK, scratch)?;
        Ok(scratch == block)
    }

    /// Extends matches to earlier blocks: with a sampled index one may begin before the block by which it was found.
    fn grow_back(
        &self,
        run: Run,
        data: &[u8],
        scratch: &mut Vec<u8>,
        found: &mut [Run],
    ) -> Result<(), PatchError> {
        for i in (1..found.len()).rev() {
            let (before, after) = found.split_at_mut(i);
            let (Some(open), Some(part)) = (before.last_mut(), after.first_mut()) else {
                continue;
            };
            while let (UNKNOWN, Src::Base(at)) = (open.src, part.src) {
                let last =
                    (open.end().wrapping_sub(1).wrapping_sub(run.start)) as usize * BLOCK_LEN;
                if open.len <= 1
                    || at == 0
                    || !self.equals(at - 1, &data[last..last + BLOCK_LEN], scratch)?
                {
                    break;
                }
                open.len -= 1;
                *part = Run {
                    start: part.start - 1,
                    len: part.len + 1,
                    src: Src::Base(at - 1),
                };
            }
        }
        Ok(())
    }
}
