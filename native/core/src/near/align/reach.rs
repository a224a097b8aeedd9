//! How far a copy reaches.

use super::score::{byte_score, word, words, Deltas};
use super::{is_backed, shift, Hint, PATIENCE};
use crate::near::anchors::{nonzero_bytes, ANCHOR_LEN};

/// How far the bytes from two places on resemble each other.
#[derive(Default)]
pub(super) struct Reach {
    /// Bytes that were compared, and their score.
    pub(super) len: usize,
    pub(super) score: i32,
    pub(super) best: i32,
    pub(super) best_len: usize,
    pub(super) deltas: Deltas,
}

/// Why two slices were not compared any further.
pub(super) enum End {
    /// They were compared to their end.
    Slice,
    /// Their score fell too far below the best.
    Different,
    /// The target has an anchor of another shift here.
    Rival(Hint),
}

impl Reach {
    /// Compares slices of the same length; the target's bytes begin at `at`.
    #[inline]
    pub(super) fn advance(
        &mut self,
        ours: &[u8],
        theirs: &[u8],
        at: u32,
        rivals: &mut Rivals<'_>,
    ) -> End {
        let (ours_words, ours_tail) = words(ours);
        let (theirs_words, theirs_tail) = words(theirs);
        for (a, b) in ours_words.zip(theirs_words) {
            self.len += 8;
            let (a, b) = (word(a), word(b));
            if a == b {
                self.score += nonzero_bytes(a) as i32;
                continue;
            }
            self.add_different(a, b);
            if self.score < self.best - PATIENCE {
                return End::Different;
            }
            if let Some(rival) = rivals.next_before(at + self.len as u32) {
                return End::Rival(rival);
            }
        }
        for (a, b) in ours_tail.iter().zip(theirs_tail) {
            self.len += 1;
            self.score += byte_score(*a, *b);
        }
        self.note_best();
        End::Slice
    }

    /// Adds the score of words that differ, the last ones of the bytes that were compared.
    #[inline]
    fn add_different(&mut self, a: u64, b: u64) {
        // The best is looked at only before bytes that differ, and at the end.
        let equal = (a ^ b).trailing_zeros() & !7;
        let first = nonzero_bytes(a & ((1 << equal) - 1)) as i32;
        if self.score + first >= self.best {
            self.best = self.score + first;
            self.best_len = self.len - 8 + equal as usize / 8;
        }
        self.score += self.deltas.score(a, b);
    }

    #[inline]
    pub(super) fn note_best(&mut self) {
        if self.score >= self.best {
            (self.best, self.best_len) = (self.score, self.len);
        }
    }
}

/// Anchors behind a seed, of which some have other shifts.
pub(super) struct Rivals<'a> {
    pub(super) found: &'a [Hint],
    pub(super) next: usize,
    /// The seed's shift.
    pub(super) own: i64,
}

impl Rivals<'_> {
    /// Takes the next anchor if it is before `here`, has another shift and is not alone with it.
    #[inline]
    fn next_before(&mut self, here: u32) -> Option<Hint> {
        while self
            .found
            .get(self.next)
            .is_some_and(|(place, _)| place + ANCHOR_LEN as u32 + 8 <= here)
        {
            self.next += 1;
        }
        let other = *self.found.get(self.next)?;
        let is_rival = other.0 < here
            && shift(other.0, other.1) != self.own
            && is_backed(self.found, self.next);
        is_rival.then(|| {
            self.next += 1;
            other
        })
    }
}
