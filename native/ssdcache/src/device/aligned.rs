//! Memory for reads and writes past that of the system.

use std::ops::Range;

/// Addresses in memory are multiples of it.
const ALIGNMENT: usize = 4096;

/// Bytes whose address is a multiple of [`ALIGNMENT`].
pub struct Aligned {
    bytes: Vec<u8>,
    range: Range<usize>,
}

impl Aligned {
    /// As many zeroes.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT];
        let start = bytes.as_ptr().align_offset(ALIGNMENT);
        Self {
            range: start..start + length,
            bytes,
        }
    }

    /// Them.
    #[must_use]
    pub fn get(&self) -> &[u8] {
        &self.bytes[self.range.clone()]
    }

    /// Them, to be changed.
    pub fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.range.clone()]
    }
}
