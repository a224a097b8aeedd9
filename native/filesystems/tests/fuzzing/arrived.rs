//! An image of which some blocks are here.

use std::collections::BTreeSet;

use diffcache_core::source::{ReadAt, SourceError};

const BLOCK: u64 = 4096;

/// An image whose bytes are refused that have not arrived.
pub struct Arrived<'a> {
    image: &'a [u8],
    here: BTreeSet<u64>,
}

impl<'a> Arrived<'a> {
    /// An image of which nothing is here.
    pub fn new(image: &'a [u8]) -> Arrived<'a> {
        Arrived {
            image,
            here: BTreeSet::new(),
        }
    }

    /// Lets a block arrive, and returns its range; none if the image does not have it.
    pub fn arrive(&mut self, number: u64) -> Option<(u64, u64)> {
        let (start, len) = (number * BLOCK, self.image.len() as u64);
        (start < len).then(|| {
            self.here.insert(number);
            (start, (start + BLOCK).min(len))
        })
    }
}

impl ReadAt for Arrived<'_> {
    fn len(&self) -> u64 {
        self.image.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset + buf.len() as u64;
        assert!(end <= self.len(), "{offset}..{end} of {}", self.len());
        let mut blocks = offset / BLOCK..end.div_ceil(BLOCK);
        if !blocks.all(|block| self.here.contains(&block)) {
            return Err(SourceError::Unavailable {
                name: "image".to_owned(),
                reason: "not here".to_owned(),
            });
        }
        self.image.read_exact_at(buf, offset)
    }
}
