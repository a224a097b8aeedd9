//! Where the base has content that resembles the literals.
//!
//! Coding near copies costs three times the CPU time of compressing, and some per cent of the bytes where there is nothing to copy, because frames
//! are smaller. A sample of both sides shows whether it pays, before the base is searched.

use std::ops::Range;

use super::compare::Images;
use super::error::PatchError;
use super::format::block_count;
use super::literal_frames::parts_between;
use super::literals::Part;
use super::options::CreateOptions;
use super::runs::{Run, Src, BLOCK, BLOCK_LEN};
use crate::near::anchors::{find_anchors, Anchor, Spacing};
use crate::near::index::AnchorIndex;
use crate::source::{data_pieces, read_padded, Pieces, ReadAt, SourceError};
use crate::task::for_each_piece_with;

/// Literal blocks that are looked at together: 1 MiB.
const PIECE_BLOCKS: u32 = 256;
/// Blocks of the base that are searched, or left out, together: 64 KiB.
const PART_BLOCKS: u32 = 16;
const PART_LEN: u64 = PART_BLOCKS as u64 * BLOCK;
/// A target was laid out anew if this many times as much of it comes from other places of the base as from the same: rebuilt images have 6 to 47
/// times as much, images that were upgraded in place a third.
const LAID_OUT_ANEW: u64 = 2;
/// The base is searched if at most this many times as much of it is to be searched as there are literals, or `LITTLE`: beyond, reading that costs
/// more than what is found saves, and literals are compared with what their neighbours come from only.
const WORTHWHILE: u64 = 24;
/// Bytes of a base that are searched however few literals there are: where programs were removed, what the file system has anew is a quarter as
/// large then.
const LITTLE: u64 = 2 << 30;
/// Fewer literal blocks than this (16 MiB) are searched for without a sample.
const MIN_SAMPLED: u32 = 4096;
/// Literal blocks that are sampled together: 64 KiB.
const SAMPLE_BLOCKS: u32 = 16;
/// One in this many pieces is sampled, of the literals and of the base.
const SAMPLED: u32 = 8;
/// Most pieces of literals that are sampled: 64 MiB.
const MAX_SAMPLES: u32 = 1024;
/// Consecutive anchors that are looked at together, and how many of them must come from about the same place of the base.
const GROUP: usize = 4;
const AGREEING: usize = 3;
/// How far apart the shifts of agreeing anchors may be.
const SAME_SHIFT: i64 = 256;
/// Near copies pay from one in this many groups of anchors on. Unrelated software has one in thirty, a server after an upgrade one in two or three, a
/// new build nearly all.
const PAYS: usize = 8;

/// What is known of the base's resemblance to the literals.
pub(super) enum Resemblance {
    /// There is too little to gain.
    None,
    /// Only what is near a literal's own place, or follows its neighbours, is worth comparing.
    Neighbours,
    /// Where the base has the literals' anchors.
    Anywhere(AnchorIndex),
}

impl Resemblance {
    /// Returns whether literals may be near copies.
    pub fn is_possible(&self) -> bool {
        !matches!(self, Resemblance::None)
    }

    /// Returns whether literals have to be coded to find whether near copies pay.
    pub fn is_uncertain(&self) -> bool {
        matches!(self, Resemblance::Neighbours)
    }

    /// Returns where the base has the literals' anchors, if it was searched.
    pub fn index(&self) -> Option<&AnchorIndex> {
        match self {
            Resemblance::Anywhere(index) => Some(index),
            _ => None,
        }
    }
}

/// Searches the base for the anchors of all literals, if that is worthwhile.
pub(super) fn search_base(
    images: &Images<'_>,
    runs: &[Run],
    parts: &[Part],
    literals: u32,
    options: &CreateOptions<'_>,
) -> Result<Resemblance, PatchError> {
    if !options.near {
        return Ok(Resemblance::None);
    }
    let Searched { pieces, len } = Searched::of(images.base, runs)?;
    let new = u64::from(literals) * BLOCK;
    if len == 0 || len > new.saturating_mul(WORTHWHILE).max(LITTLE) {
        return Ok(Resemblance::Neighbours);
    }
    if literals >= MIN_SAMPLED && !sample_resembles(images, &pieces, parts, literals, options)? {
        return Ok(Resemblance::None);
    }
    let index = AnchorIndex::for_target(new);
    let task = options.task.silent();
    let units = u64::from(literals.div_ceil(PIECE_BLOCKS));
    for_each_piece_with(&task, units, Scratch::default, |scratch, unit| {
        let from = unit as u32 * PIECE_BLOCKS;
        let range = from..from.saturating_add(PIECE_BLOCKS);
        scratch.find_in_literals(images, parts, range, index.spacing())?;
        index.add_wanted(&scratch.anchors);
        Ok::<_, PatchError>(())
    })?;
    for_each_piece_with(&task, pieces.count(), Scratch::default, |scratch, i| {
        let offset = pieces.number(i) * PART_LEN;
        scratch.find_in_base(images.base, offset, index.spacing())?;
        index.add_base(offset, &scratch.anchors);
        Ok::<_, PatchError>(())
    })?;
    Ok(Resemblance::Anywhere(index))
}

/// What of a base is searched: pieces of `PART_LEN` bytes.
struct Searched {
    pieces: Pieces,
    len: u64,
}

impl Searched {
    /// Leaves out what a target with these runs has as it is, if it was laid out anew: new content resembles what it replaced. In a target that grew
    /// in place, what it replaced may be there as well, in free blocks.
    fn of(base: &dyn ReadAt, runs: &[Run]) -> Result<Searched, SourceError> {
        let pieces = data_pieces(base, PART_LEN)?;
        let taken = runs.iter().filter_map(|run| match run.src {
            Src::Base(block) => Some((block, block + run.len, block != run.start)),
            _ => None,
        });
        let mut taken: Vec<(u32, u32, bool)> = taken.collect();
        let count = |moved| -> u64 {
            let runs = taken.iter().filter(|run| run.2 == moved);
            runs.map(|(from, to, _)| u64::from(to - from)).sum()
        };
        if count(true) <= count(false).saturating_mul(LAID_OUT_ANEW) {
            return Ok(Searched {
                len: pieces.data_len(),
                pieces,
            });
        }
        taken.sort_unstable();
        let mut at = 0;
        let mut left = Vec::new();
        let end = block_count(base.len());
        for (from, to, _) in taken.into_iter().chain([(end, end, true)]) {
            if at < from {
                let (first, end) = (at / PART_BLOCKS, from.div_ceil(PART_BLOCKS));
                left.push(u64::from(first)..u64::from(end));
            }
            at = at.max(to);
        }
        let pieces = pieces.intersection(&Pieces::of(left.into_iter()));
        Ok(Searched {
            len: pieces.count() * PART_LEN,
            pieces,
        })
    }
}

/// Returns whether a sample of the literals resembles the base in so many places that near copies pay. Reads an eighth of the pieces.
fn sample_resembles(
    images: &Images<'_>,
    pieces: &Pieces,
    parts: &[Part],
    literals: u32,
    options: &CreateOptions<'_>,
) -> Result<bool, PatchError> {
    let units = literals / SAMPLE_BLOCKS;
    let step = SAMPLED.max(units.div_ceil(MAX_SAMPLES));
    let samples = u64::from(units.div_ceil(step));
    let index = AnchorIndex::for_target(samples * u64::from(SAMPLE_BLOCKS) * BLOCK);
    let task = options.task.silent();
    let wanted = for_each_piece_with(&task, samples, Scratch::default, |scratch, i| {
        let from = i as u32 * step * SAMPLE_BLOCKS;
        scratch.find_in_literals(images, parts, from..from + SAMPLE_BLOCKS, index.spacing())?;
        index.add_wanted(&scratch.anchors);
        Ok::<_, PatchError>(scratch.anchors.clone())
    })?;
    let sampled = pieces.count() / u64::from(SAMPLED);
    for_each_piece_with(&task, sampled, Scratch::default, |scratch, i| {
        let offset = pieces.number(i * u64::from(SAMPLED)) * PART_LEN;
        scratch.find_in_base(images.base, offset, index.spacing())?;
        index.add_base(offset, &scratch.anchors);
        Ok::<_, PatchError>(())
    })?;
    let groups = || wanted.iter().flat_map(|anchors| anchors.windows(GROUP));
    let found = groups().filter(|group| agree(group, &index)).count();
    Ok(found * SAMPLED as usize * PAYS >= groups().count())
}

/// Returns whether most of a group of anchors come from about the same place of the base.
fn agree(group: &[Anchor], index: &AnchorIndex) -> bool {
    let shifts = || {
        group
            .iter()
            .filter_map(|anchor| Some(index.find(anchor)? as i64 - i64::from(anchor.at)))
    };
    let (Some(least), Some(most)) = (shifts().min(), shifts().max()) else {
        return false;
    };
    shifts().count() >= AGREEING && most - least < SAME_SHIFT
}

/// A thread's buffers.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    anchors: Vec<Anchor>,
}

impl Scratch {
    /// Finds the anchors of a range of literals.
    fn find_in_literals(
        &mut self,
        images: &Images<'_>,
        parts: &[Part],
        range: Range<u32>,
        spacing: Spacing,
    ) -> Result<(), PatchError> {
        self.anchors.clear();
        for part in parts_between(parts, range.start, range.end) {
            self.bytes.resize(part.len as usize * BLOCK_LEN, 0);
            let offset = u64::from(part.start) * BLOCK;
            read_padded(images.target, offset, &mut self.bytes)?;
            find_anchors(&self.bytes, spacing, &mut self.anchors);
        }
        Ok(())
    }

    /// Finds the anchors of a piece of the base.
    fn find_in_base(
        &mut self,
        base: &dyn ReadAt,
        offset: u64,
        spacing: Spacing,
    ) -> Result<(), PatchError> {
        self.anchors.clear();
        let len = PART_LEN.min(base.len() - offset);
        self.bytes.resize(len as usize, 0);
        base.read_exact_at(&mut self.bytes, offset)?;
        find_anchors(&self.bytes, spacing, &mut self.anchors);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;

    const LEN: usize = 20 << 20;

    /// Returns how a target of literals only resembles a base.
    fn searched(base: &dyn ReadAt, target: &Vec<u8>, near: bool) -> Resemblance {
        let blocks = (target.len() / BLOCK_LEN) as u32;
        let parts = [Part {
            start: 0,
            len: blocks,
            literal: 0,
            is_shared: false,
        }];
        let options = CreateOptions {
            near,
            ..CreateOptions::default()
        };
        search_base(&Images { base, target }, &[], &parts, blocks, &options).unwrap()
    }

    #[test]
    fn unrelated_content_is_not_searched_for() {
        let (base, target) = (noise(1, LEN), noise(2, LEN));
        assert!(!searched(&base, &target, true).is_possible());
    }

    #[test]
    fn moved_content_is_searched_for_even_if_most_is_new() {
        let base = noise(1, LEN);
        let mut target = noise(2, LEN);
        target[4321..LEN / 4].copy_from_slice(&base[1234..LEN / 4 - 3087]);
        assert!(searched(&base, &target, true).index().is_some());
        assert!(!searched(&base, &target, false).is_possible());
    }

    #[test]
    fn little_new_content_is_searched_for_without_a_sample() {
        let (base, target) = (noise(1, 8 << 20), noise(2, 4 << 20));
        assert!(searched(&base, &target, true).index().is_some());
    }

    /// A base of so many bytes of data, which nothing reads.
    struct Large(u64);

    impl ReadAt for Large {
        fn len(&self) -> u64 {
            self.0
        }

        fn read_exact_at(&self, _buf: &mut [u8], _offset: u64) -> Result<(), SourceError> {
            panic!("the base is read");
        }
    }

    #[test]
    fn the_rest_of_a_large_base_is_not_searched() {
        let found = searched(&Large(LITTLE + PART_LEN), &noise(2, LEN / 40), true);
        assert!(found.is_uncertain() && found.index().is_none());
    }

    #[test]
    fn a_small_base_is_searched_for_a_little_that_is_new() {
        let base = noise(1, LEN);
        let at = LEN / 2 + 999;
        let target = base[at..at + (64 << 10)].to_vec();
        assert!(searched(&base, &target, true).index().is_some());
    }

    fn run(start: u32, len: u32, from: u32) -> Run {
        let src = Src::Base(from);
        Run { start, len, src }
    }

    /// Returns the numbers of the parts of a base that are searched for a target.
    fn searched_parts(base: &dyn ReadAt, runs: &[Run]) -> Vec<u64> {
        let pieces = Searched::of(base, runs).unwrap().pieces;
        (0..pieces.count()).map(|i| pieces.number(i)).collect()
    }

    #[test]
    fn what_a_target_that_was_laid_out_anew_has_of_the_base_is_not_searched() {
        let base = noise(1, LEN);
        let blocks = (LEN / BLOCK_LEN) as u32;
        // Some of it twice, and a little at its place; all but blocks 100 and 1000 to 1999, and the last one.
        let runs = [
            run(7, blocks - 2001, 2000),
            run(101, 899, 101),
            run(blocks, 100, 0),
            run(blocks + 100, 50, 0),
        ];
        let last = u64::from((blocks - 1) / PART_BLOCKS);
        let expected: Vec<u64> = [6].into_iter().chain(62..125).chain([last]).collect();
        assert_eq!(searched_parts(&base, &runs), expected);
        assert!(searched_parts(&base, &[run(1, blocks, 0)]).is_empty());
        assert!(searched_parts(&Vec::new(), &[]).is_empty());
    }

    #[test]
    fn all_of_the_base_is_searched_if_most_of_the_target_is_where_it_was() {
        let base = noise(1, LEN);
        let blocks = (LEN / BLOCK_LEN) as u32;
        let runs = [run(0, blocks / 2, 0), run(blocks, blocks, 0)];
        let all: Vec<u64> = (0..LEN as u64 / PART_LEN).collect();
        assert_eq!(searched_parts(&base, &runs), all);
        assert_eq!(searched_parts(&base, &[]), all);
    }
}
