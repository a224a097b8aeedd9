//! Which bytes of a base a target's bytes resemble.

mod reach;
mod score;

use super::anchors::{find_anchors, Anchor};
use super::index::AnchorIndex;
use super::pages::Pages;
use crate::source::{ReadAt, SourceError};
use reach::{End, Reach, Rivals};
use score::{byte_score, score, shares_number};

/// Bytes of the target that resemble bytes of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Offset in the target.
    pub at: u32,
    /// Number of bytes.
    pub len: u32,
    /// Offset in the base.
    pub from: u64,
}

impl Copy {
    /// Returns the offset after the last byte in the target.
    pub fn end(&self) -> u32 {
        self.at + self.len
    }

    fn shift(&self) -> i64 {
        shift(self.at, self.from)
    }
}

/// A place of the target, and the place of the base that it may resemble.
pub type Hint = (u32, u64);

/// Anchors that vote on a shift together.
const VOTERS: usize = 8;

/// They are this close to each other.
const VOTE_SPAN: u32 = 2048;

/// How far the score of a copy may fall below its best before it is given up: an insertion, or a change that long, ends a copy.
const PATIENCE: i32 = 120;

/// Least score of a copy. The score is the number of equal bytes less that of different ones; bytes that are zero on both sides do not count, since
/// tables of small numbers have them at any shift.
pub const MIN_SCORE: i32 = 24;

/// Bytes over which two shifts are compared.
const CONTEST: usize = 96;

/// By how much the score of another shift must be better.
const MARGIN: i32 = 12;

/// How far from a copy's shift the next one's is searched for first: this many bytes, and this many words of eight bytes.
const NEAR_BYTES: i64 = 32;

const NEAR_WORDS: i64 = 30;

const REACH: usize = 8 * NEAR_WORDS as usize;

/// Bytes over which shifts near the last one are compared, and the score that one must have there.
const PROBE: usize = 64;

const MIN_PROBE: i32 = 8;

/// Copies of the same shift that are closer than this are one.
const JOIN: u32 = 64;

/// Finds copies. Holds the buffers of one thread: 4 MiB of the base, and the anchors of one target.
pub struct Aligner<'a> {
    index: Option<&'a AnchorIndex>,
    pages: Pages<'a>,
    anchors: Vec<Anchor>,
    found: Vec<Hint>,
}

impl<'a> Aligner<'a> {
    /// Creates an aligner for a base. Without an index it depends on hints.
    pub fn new(base: &'a dyn ReadAt, index: Option<&'a AnchorIndex>) -> Aligner<'a> {
        Aligner {
            index,
            pages: Pages::new(base),
            anchors: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Appends copies that `target` can be made from, in order and without overlap. `hints` are in order of the target.
    ///
    /// Takes time linear in the target's length: each byte is compared a bounded number of times.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub fn align(
        &mut self,
        target: &[u8],
        hints: &[Hint],
        copies: &mut Vec<Copy>,
    ) -> Result<(), SourceError> {
        self.look_up(target);
        let found = std::mem::take(&mut self.found);
        let outcome = self.follow(target, &found, hints, copies);
        self.found = found;
        outcome
    }

    fn look_up(&mut self, target: &[u8]) {
        self.anchors.clear();
        self.found.clear();
        if let Some(index) = self.index {
            find_anchors(target, index.spacing(), &mut self.anchors);
            index.find_all(&self.anchors, &mut self.found);
        }
    }

    fn follow(
        &mut self,
        target: &[u8],
        found: &[Hint],
        hints: &[Hint],
        copies: &mut Vec<Copy>,
    ) -> Result<(), SourceError> {
        let (mut at, mut next, mut next_hint) = (0u32, 0, 0);
        let (mut last, mut resumable) = (None, false);
        loop {
            next += found[next..]
                .iter()
                .take_while(|(place, _)| *place < at)
                .count();
            next_hint += hints[next_hint..]
                .iter()
                .take_while(|(place, _)| *place < at)
                .count();
            if let Some(shift) = last.filter(|_| resumable) {
                resumable = false;
                if let Some(seed) = self.resume(target, at, shift)? {
                    if let Some(copy) = self.extend(target, at, seed, found)? {
                        at = copy.end();
                        last = Some(copy.shift());
                        resumable = true;
                        push(copies, copy);
                        continue;
                    }
                }
            }
            let hint = hints.get(next_hint);
            let by_hint =
                hint.filter(|(place, _)| found.get(next).is_none_or(|(anchor, _)| place <= anchor));
            let seed = match by_hint {
                Some(hint) => {
                    next_hint += 1;
                    *hint
                }
                None if next < found.len() => match elect(&found[next..], last) {
                    Some(seed) => seed,
                    None => {
                        next += 1;
                        continue;
                    }
                },
                None => return Ok(()),
            };
            match self.extend(target, at, seed, found)? {
                Some(copy) => {
                    at = copy.end();
                    last = Some(copy.shift());
                    resumable = true;
                    push(copies, copy);
                }
                None if by_hint.is_none() => next += 1,
                None => {}
            }
        }
    }

    /// Extends a seed in both directions, back to `start` at most.
    fn extend(
        &mut self,
        target: &[u8],
        start: u32,
        seed: Hint,
        found: &[Hint],
    ) -> Result<Option<Copy>, SourceError> {
        let (ahead, score) = self.forward(target, seed, found)?;
        let (behind, more) = self.backward(&target[start as usize..seed.0 as usize], seed.1)?;
        let copy = Copy {
            at: seed.0 - behind,
            len: ahead + behind,
            from: seed.1 - u64::from(behind),
        };
        Ok((score + more >= MIN_SCORE).then_some(copy))
    }

    /// Returns how many bytes from a seed on resemble each other, and their score.
    fn forward(
        &mut self,
        target: &[u8],
        (at, from): Hint,
        found: &[Hint],
    ) -> Result<(u32, i32), SourceError> {
        let rest = &target[at as usize..];
        let own = shift(at, from);
        let mut reach = Reach::default();
        let mut rivals = Rivals {
            found,
            next: found.partition_point(|(place, _)| *place <= at),
            own,
        };
        while reach.len < rest.len() {
            let page = self.pages.after(from + reach.len as u64)?;
            let len = page.len().min(rest.len() - reach.len);
            if len == 0 {
                break;
            }
            let ours = &rest[reach.len..reach.len + len];
            match reach.advance(ours, &page[..len], at, &mut rivals) {
                End::Slice => (),
                End::Different => break,
                End::Rival(rival) => {
                    reach.note_best();
                    if self.loses(target, own, rival)? {
                        break;
                    }
                }
            }
        }
        Ok((reach.best_len as u32, reach.best))
    }

    /// Returns whether another shift is clearly better than `own` from an anchor on.
    fn loses(&mut self, target: &[u8], own: i64, rival: Hint) -> Result<bool, SourceError> {
        let rest = &target[rival.0 as usize..];
        let here = u64::try_from(i64::from(rival.0) + own).ok();
        let ours = match here {
            Some(from) => self.contest(rest, from)?,
            None => 0,
        };
        Ok(self.contest(rest, rival.1)? >= ours + MARGIN)
    }

    /// Returns the score of the next few bytes.
    fn contest(&mut self, target: &[u8], from: u64) -> Result<i32, SourceError> {
        let mut theirs = [0; CONTEST];
        let ours = &target[..target.len().min(CONTEST)];
        self.pages.copy(from, &mut theirs[..ours.len()])?;
        Ok(score(ours, &theirs[..ours.len()]))
    }

    /// Searches the shifts near the last one for the best match of the target from `at` on. A shift changes where table entries or instructions
    /// were added or removed.
    fn resume(&mut self, target: &[u8], at: u32, last: i64) -> Result<Option<Hint>, SourceError> {
        let rest = &target[at as usize..];
        let start = u64::try_from(i64::from(at) + last - REACH as i64).ok();
        let (Some(ours), Some(start)) = (rest.first_chunk::<PROBE>(), start) else {
            return Ok(None);
        };
        let mut around = [0; PROBE + 2 * REACH];
        self.pages.copy(start, &mut around)?;
        let bytes = (1..=NEAR_BYTES).flat_map(|n| [n, -n]);
        let words = (NEAR_BYTES / 8 + 1..=NEAR_WORDS).flat_map(|n| [8 * n, -8 * n]);
        let mut best = (MIN_PROBE - 1, None);
        for offset in bytes.chain(words) {
            let place = (REACH as i64 + offset) as usize;
            let theirs = &around[place..place + PROBE];
            if !shares_number(ours, theirs) {
                continue;
            }
            let score = score(ours, theirs);
            if score > best.0 {
                best = (score, Some((at, start + place as u64)));
            }
        }
        Ok(best.1)
    }

    /// Returns how many of the last bytes of `target` resemble those of the base before `from`, and their score.
    fn backward(&mut self, target: &[u8], from: u64) -> Result<(u32, i32), SourceError> {
        let (mut n, mut score) = (0usize, 0i32);
        let (mut best, mut best_len) = (0i32, 0usize);
        while n < target.len() && (n as u64) < from {
            let page = self.pages.before(from - n as u64)?;
            let ours = &target[..target.len() - n];
            let pairs = ours.iter().rev().zip(page.iter().rev());
            if pairs.len() == 0 {
                break;
            }
            for (a, b) in pairs {
                n += 1;
                score += byte_score(*a, *b);
                if score >= best {
                    (best, best_len) = (score, n);
                } else if score < best - PATIENCE {
                    return Ok((best_len as u32, best));
                }
            }
        }
        Ok((best_len as u32, best))
    }
}

fn shift(at: u32, from: u64) -> i64 {
    from as i64 - i64::from(at)
}

/// Chooses the first of the next anchors that has the shift that most of them have; ties go to the last copy's shift, then to the first anchor's.
/// An anchor that stands alone is chosen only if it is the next one.
fn elect(found: &[Hint], last: Option<i64>) -> Option<Hint> {
    let first = found.first()?;
    let voters = &found[..found.len().min(VOTERS)];
    let count = voters
        .iter()
        .take_while(|(place, _)| place - first.0 < VOTE_SPAN)
        .count();
    let voters = &voters[..count];
    let votes = |hint: &Hint| {
        let own = shift(hint.0, hint.1);
        let same = voters.iter().filter(|(at, from)| shift(*at, *from) == own);
        2 * same.count() + usize::from(last == Some(own))
    };
    let mut best: Option<(usize, Hint)> = None;
    for hint in voters {
        let votes = votes(hint);
        if best.is_none_or(|(most, _)| votes > most) {
            best = Some((votes, *hint));
        }
    }
    best.map(|(_, hint)| hint)
}

/// Returns whether one of the next anchors has the same shift.
fn is_backed(found: &[Hint], at: usize) -> bool {
    let own = shift(found[at].0, found[at].1);
    found[at + 1..]
        .iter()
        .take(VOTERS / 2)
        .any(|(place, from)| shift(*place, *from) == own)
}

/// Appends a copy, joining it to the last one where only a few bytes are between.
fn push(copies: &mut Vec<Copy>, copy: Copy) {
    match copies.last_mut() {
        Some(last) if last.shift() == copy.shift() && copy.at - last.end() <= JOIN => {
            last.len = copy.end() - last.at;
        }
        _ => copies.push(copy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;

    fn copies(base: &[u8], target: &[u8], hints: &[Hint]) -> Vec<Copy> {
        let index = AnchorIndex::for_target(target.len() as u64);
        let mut anchors = Vec::new();
        find_anchors(target, index.spacing(), &mut anchors);
        index.add_wanted(&anchors);
        anchors.clear();
        find_anchors(base, index.spacing(), &mut anchors);
        index.add_base(0, &anchors);
        let mut copies = Vec::new();
        let index = hints.is_empty().then_some(&index);
        Aligner::new(&base, index)
            .align(target, hints, &mut copies)
            .unwrap();
        copies
    }

    #[test]
    fn an_insertion_and_a_deletion_are_found_to_the_byte() {
        let base = noise(1, 100_000);
        let target = [
            &base[..30_001],
            &noise(2, 777),
            &base[30_001..60_000],
            &base[61_234..],
        ]
        .concat();
        let expected = [
            (0, 30_001, 0),
            (30_778, 29_999, 30_001),
            (60_777, 38_766, 61_234),
        ];
        let found = copies(&base, &target, &[]);
        assert_eq!(found.len(), 3, "{found:?}");
        for (copy, (at, len, from)) in found.iter().zip(expected) {
            // Bytes that are equal by chance on the other side of an edge may go either way.
            assert!(
                copy.at.abs_diff(at) <= 4 && copy.len.abs_diff(len) <= 8,
                "{copy:?}"
            );
            assert_eq!(copy.shift(), from - i64::from(at));
        }
    }

    #[test]
    fn scattered_changes_are_part_of_a_copy() {
        let base = noise(3, 50_000);
        let mut target = base[1000..].to_vec();
        target.iter_mut().step_by(37).for_each(|byte| *byte ^= 0x40);
        let found = copies(&base, &target, &[]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].len > 48_900);
    }

    #[test]
    fn a_table_whose_numbers_grew_by_a_few_amounts_is_one_copy() {
        // Offset, index and address: few bytes of an entry are equal, and one of three amounts is another one now and then.
        let entry = |n: u32, grown: [u32; 3]| {
            let numbers = [n * 40, 70_000 + n % 7 * 900, 0x40_0000 + n * n];
            numbers
                .into_iter()
                .zip(grown)
                .map(|(number, by)| number + by)
        };
        let table = |grown: fn(u32) -> [u32; 3]| -> Vec<u8> {
            let entries = (0..800).flat_map(|n| entry(n, grown(n)));
            entries.flat_map(u32::to_le_bytes).collect()
        };
        let base = [noise(9, 500), table(|_| [0; 3])].concat();
        let new = table(|n| [0x1234, 3 + n / 90, 0x2_5678]);
        let target = [noise(9, 500), new].concat();
        let found = copies(&base, &target, &[(0, 0)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].len as usize > target.len() - 50 && found[0].shift() == 0);
    }

    #[test]
    fn hints_do_without_an_index() {
        let base = noise(4, 20_000);
        let target = [&noise(5, 100), &base[5000..9000], &noise(6, 100)].concat();
        let found = copies(&base, &target, &[(0, 77), (200, 5100), (4100, 20_000)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].len.abs_diff(4000) < 8 && found[0].shift() == 4900);
    }

    #[test]
    fn nothing_is_found_in_another_image() {
        assert_eq!(copies(&noise(7, 50_000), &noise(8, 50_000), &[]), []);
        assert_eq!(
            copies(&[], &noise(8, 5000), &[(0, 0), (5, u64::MAX >> 20)]),
            []
        );
    }
}
