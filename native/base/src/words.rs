//! Numbers of fixed length at offsets of a structure.

/// The bytes of a structure. What is past their end reads as zero: a reader for which that differs from a structure of zeroes compares the length
/// first.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a>(pub &'a [u8]);

impl Words<'_> {
    /// Returns the `N` bytes at an offset.
    #[inline]
    #[must_use]
    pub fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        let bytes = self.0.get(at..).and_then(|rest| rest.first_chunk());
        bytes.copied().unwrap_or([0; N])
    }

    /// Returns the little-endian number of 16 bits at an offset.
    #[inline]
    #[must_use]
    pub fn le16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    /// Returns the little-endian number of 32 bits at an offset.
    #[inline]
    #[must_use]
    pub fn le32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    /// Returns the little-endian number of 64 bits at an offset.
    #[inline]
    #[must_use]
    pub fn le64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.array(at))
    }

    /// Returns the big-endian number of 16 bits at an offset.
    #[inline]
    #[must_use]
    pub fn be16(&self, at: usize) -> u16 {
        u16::from_be_bytes(self.array(at))
    }

    /// Returns the big-endian number of 32 bits at an offset.
    #[inline]
    #[must_use]
    pub fn be32(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.array(at))
    }

    /// Returns the big-endian number of 64 bits at an offset.
    #[inline]
    #[must_use]
    pub fn be64(&self, at: usize) -> u64 {
        u64::from_be_bytes(self.array(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_at_offsets_of_both_orders() {
        let words = Words(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((words.le16(1), words.be16(1)), (0x0201, 0x0102));
        assert_eq!((words.le32(1), words.be32(1)), (0x0403_0201, 0x0102_0304));
        assert_eq!(words.le64(1), 0x0807_0605_0403_0201);
        assert_eq!(words.be64(1), 0x0102_0304_0506_0708);
    }

    #[test]
    fn past_the_end_are_zeroes() {
        let words = Words(&[1; 8]);
        assert_eq!(
            (words.le64(1), words.be16(8), words.le32(usize::MAX)),
            (0, 0, 0)
        );
    }
}
