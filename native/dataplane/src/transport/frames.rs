//! Bytes of an image in frames, for hosts of a site on a slow network.
//!
//! A reader that takes frames says so with `X-DiffCache-Accept: zstd`, an answer in frames with `X-DiffCache-Coding: zstd`. The body is then chunked
//! (RFC 9112, 7.1). Each chunk is a frame as the compressed form has them: the next [`FRAME_LEN`] bytes of the range, or those up to its end,
//! compressed or, where that is not shorter, as they are. So a reader knows for each chunk what it becomes, and that it is not longer than that.

use std::sync::atomic::{AtomicUsize, Ordering};

use diffcache_core::compressed::GROUP_LEN;
use diffcache_core::manifest::LEAF_SIZE;

/// The coding's name in both fields.
pub const CODING: &str = "zstd";
/// Bytes of the range that a frame holds.
pub const FRAME_LEN: u64 = GROUP_LEN as u64;
/// Ranges that are shorter are sent as they are, in bytes.
pub const SHORTEST: u64 = LEAF_SIZE;
/// What ends a chunked body.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Longest line that says a chunk's length.
const LONGEST_LINE: usize = 16;

/// Returns where the frame ends that begins at a byte of a range.
pub fn frame_end(position: u64, end: u64) -> u64 {
    end.min(position.saturating_add(FRAME_LEN))
}

/// The line before a chunk of `length` bytes.
pub fn chunk_line(length: usize) -> String {
    format!("{length:x}\r\n")
}

/// Reads the line before a chunk, byte by byte.
#[derive(Default)]
pub struct ChunkLine {
    bytes: Vec<u8>,
}

impl ChunkLine {
    /// Takes the next byte; returns the length once the line is complete.
    ///
    /// # Errors
    /// It is not a line of a chunk without extensions.
    pub fn push(&mut self, byte: u8) -> Result<Option<usize>, &'static str> {
        self.bytes.push(byte);
        match self.bytes.strip_suffix(b"\r\n") {
            Some(digits) => parse_length(digits).map(Some),
            None if self.bytes.len() == LONGEST_LINE => Err("the length of a chunk is too long"),
            None => Ok(None),
        }
    }
}

fn parse_length(digits: &[u8]) -> Result<usize, &'static str> {
    let wrong = "the length of a chunk is not a number";
    let text = std::str::from_utf8(digits).map_err(|_| wrong)?;
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(wrong);
    }
    usize::from_str_radix(text, 16).map_err(|_| wrong)
}

/// A limit on responses that are compressed at the same time, and so on the memory and processors that it takes.
pub struct Slots {
    most: usize,
    taken: AtomicUsize,
}

/// One of the slots, until it is dropped.
pub struct Slot<'a>(&'a Slots);

impl Slots {
    /// So many slots.
    pub fn new(most: usize) -> Slots {
        Slots {
            most,
            taken: AtomicUsize::new(0),
        }
    }

    /// Takes a slot, if one is free.
    pub fn take(&self) -> Option<Slot<'_>> {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.ok().map(|_| Slot(self))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &[u8]) -> Result<Option<usize>, &'static str> {
        let mut reader = ChunkLine::default();
        for byte in line {
            if let Some(length) = reader.push(*byte)? {
                return Ok(Some(length));
            }
        }
        Ok(None)
    }

    #[test]
    fn lines_of_chunks_are_read_strictly() {
        for length in [0, 1, 0xabc, 1 << 20] {
            assert_eq!(read(chunk_line(length).as_bytes()), Ok(Some(length)));
        }
        assert_eq!(read(b"1f"), Ok(None));
        for bad in [
            &b"\r\n"[..],
            b"+1\r\n",
            b"1 \r\n",
            b"1;x=y\r\n",
            b"0x1\r\n",
            b"\xff\r\n",
            b"ffffffffffffffffff\r\n",
            b"00000000000000000000\r\n",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn slots_are_given_back() {
        let slots = Slots::new(2);
        let (first, second) = (slots.take(), slots.take());
        assert!(first.is_some() && second.is_some() && slots.take().is_none());
        drop(first);
        assert!(slots.take().is_some());
    }
}
