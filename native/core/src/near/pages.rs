//! The base as an aligner looks at it: here and there, mostly where it just looked.

use crate::source::{ReadAt, SourceError};

/// Bytes of a page.
const PAGE: u64 = 8 << 10;
/// Pages that are kept: 4 MiB.
const PAGES: usize = 512;
const NONE: u64 = u64::MAX;

/// A source with the pages that were read last, each in the only place where it may be kept.
pub struct Pages<'a> {
    source: &'a dyn ReadAt,
    bytes: Vec<u8>,
    kept: Vec<u64>,
}

impl<'a> Pages<'a> {
    /// Starts with no pages.
    pub fn new(source: &'a dyn ReadAt) -> Pages<'a> {
        Pages {
            source,
            bytes: vec![0; PAGES * PAGE as usize],
            kept: vec![NONE; PAGES],
        }
    }

    /// Returns bytes from `offset` on: up to the end of their page or of the source. None at the source's end.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub fn after(&mut self, offset: u64) -> Result<&[u8], SourceError> {
        if offset >= self.source.len() {
            return Ok(&[]);
        }
        let page = self.page(offset / PAGE)?;
        Ok(&page[(offset % PAGE) as usize..])
    }

    /// Returns bytes that end before `offset`: from the start of their page on. None at the source's start, and past its end.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub fn before(&mut self, offset: u64) -> Result<&[u8], SourceError> {
        if offset == 0 || offset > self.source.len() {
            return Ok(&[]);
        }
        let number = (offset - 1) / PAGE;
        let page = self.page(number)?;
        Ok(&page[..(offset - number * PAGE) as usize])
    }

    /// Fills `buf` from `offset` on; zeroes past the source's end.
    ///
    /// # Errors
    /// As [`ReadAt::read_exact_at`].
    pub fn copy(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), SourceError> {
        let mut done = 0;
        while done < buf.len() {
            let bytes = self.after(offset + done as u64)?;
            let len = bytes.len().min(buf.len() - done);
            if len == 0 {
                buf[done..].fill(0);
                break;
            }
            buf[done..done + len].copy_from_slice(&bytes[..len]);
            done += len;
        }
        Ok(())
    }

    fn page(&mut self, number: u64) -> Result<&[u8], SourceError> {
        let slot = (number % PAGES as u64) as usize;
        let start = number * PAGE;
        let len = PAGE.min(self.source.len() - start) as usize;
        let page = &mut self.bytes[slot * PAGE as usize..][..len];
        if self.kept[slot] != number {
            self.kept[slot] = NONE;
            self.source.read_exact_at(page, start)?;
            self.kept[slot] = number;
        }
        Ok(page)
    }
}
