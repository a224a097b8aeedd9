//! What of a source may hold data.

use std::ops::Range;

use super::{ReadAt, SourceError};

/// The pieces of a source that may hold data: those of `len` bytes each, by number, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pieces {
    /// Ranges of piece numbers, and how many pieces come before.
    ranges: Vec<(Range<u64>, u64)>,
    data_len: u64,
}

impl Pieces {
    /// Collects the pieces of ranges of piece numbers, in the order of their starts.
    pub fn of(ranges: impl Iterator<Item = Range<u64>>) -> Pieces {
        let mut pieces = Pieces::default();
        ranges.for_each(|range| pieces.push(range));
        pieces
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> u64 {
        self.ranges
            .last()
            .map_or(0, |(range, before)| before + (range.end - range.start))
    }

    /// Returns the number of the `index`-th piece; past the last ones, the number after the last.
    pub fn number(&self, index: u64) -> u64 {
        let at = self.ranges.partition_point(|(_, before)| *before <= index);
        match self.ranges[..at].last() {
            Some((range, before)) => (range.start + (index - before)).min(range.end),
            None => 0,
        }
    }

    /// Returns the size of the data in bytes, as far as the source knows of holes.
    pub fn data_len(&self) -> u64 {
        self.data_len
    }

    /// Returns the pieces that are in either.
    pub fn union(self, other: Pieces) -> Pieces {
        let data_len = self.data_len.saturating_add(other.data_len);
        let mut ranges: Vec<Range<u64>> = [self.ranges, other.ranges]
            .into_iter()
            .flatten()
            .map(|(range, _)| range)
            .collect();
        ranges.sort_unstable_by_key(|range| range.start);
        Pieces {
            data_len,
            ..Pieces::of(ranges.into_iter())
        }
    }

    /// Returns the pieces that are in both.
    pub fn intersection(&self, other: &Pieces) -> Pieces {
        let mut both = Pieces::default();
        let mut behind = other.ranges.as_slice();
        for (range, _) in &self.ranges {
            let skip = behind.partition_point(|(other, _)| other.end <= range.start);
            behind = &behind[skip..];
            let near = behind
                .iter()
                .take_while(|(other, _)| other.start < range.end);
            for (other, _) in near {
                both.push(range.start.max(other.start)..range.end.min(other.end));
            }
        }
        both
    }

    /// Adds a range that starts at or after the start of the last one.
    fn push(&mut self, range: Range<u64>) {
        let before = self.count();
        match self.ranges.last_mut() {
            Some((last, _)) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => self.ranges.push((range, before)),
        }
    }
}

/// Returns the next range that may hold data, as [`ReadAt::next_data`] does, and only one that has bytes from `offset` on: a walk along a
/// source makes progress, whatever the source says.
///
/// # Errors
/// `Corrupt` if the source returns a range without such bytes; what `next_data` returns.
pub fn data_after(source: &dyn ReadAt, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
    match source.next_data(offset)? {
        Some((from, to)) if to <= from.max(offset) => Err(SourceError::Corrupt {
            name: source.name().to_owned(),
            reason: format!("it returns bytes {from} to {to} as data after {offset}"),
        }),
        Some((from, to)) => Ok(Some((from.max(offset), to))),
        None => Ok(None),
    }
}

/// Fills `buf` with the bytes from `offset` on. Holes, and what is past the end of the source, are not read: a file system would fill its cache with
/// zeroes.
///
/// # Errors
/// As [`ReadAt::read_exact_at`] and [`ReadAt::next_data`].
pub fn read_data(source: &dyn ReadAt, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
    let end = offset + buf.len() as u64;
    let mut at = offset;
    while let Some((from, to)) = data_after(source, at)?.filter(|(from, _)| *from < end) {
        let to = to.min(end);
        let (data, after) = ((from - offset) as usize, (to - offset) as usize);
        buf[(at - offset) as usize..data].fill(0);
        source.read_exact_at(&mut buf[data..after], from)?;
        at = to;
    }
    buf[(at - offset) as usize..].fill(0);
    Ok(())
}

/// Returns which pieces of `piece` bytes of a source may hold data. Looks up the holes of the source and reads nothing.
///
/// # Errors
/// Whatever kept an answer from arriving.
pub fn data_pieces(source: &dyn ReadAt, piece: u64) -> Result<Pieces, SourceError> {
    let mut pieces = Pieces::default();
    let mut at = 0;
    while let Some((from, to)) = data_after(source, at)? {
        pieces.push(from / piece..to.div_ceil(piece));
        pieces.data_len += to - from;
        at = to;
    }
    Ok(pieces)
}
