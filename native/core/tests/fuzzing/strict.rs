//! A source that checks the ranges that are read.

use diffcache_core::source::{ReadAt, SourceError};

/// A source that panics when it is read beyond its end.
pub struct Strict<B>(pub B);

impl<B: AsRef<[u8]> + Send + Sync> ReadAt for Strict<B> {
    fn len(&self) -> u64 {
        self.0.as_ref().len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset.checked_add(buf.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{} bytes from {offset} on were read of {}",
            buf.len(),
            self.len()
        );
        self.0.as_ref().read_exact_at(buf, offset)
    }
}
