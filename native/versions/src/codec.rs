//! Reading numbers in the store's files: little-endian, or seven bits to a byte.

use diffcache_base::varint;

use crate::error::{Result, VersionsError};

/// Reads numbers out of untrusted bytes.
pub struct Cursor<'a> {
    bytes: &'a [u8],
    /// What errors call the bytes.
    name: &'a str,
}

impl<'a> Cursor<'a> {
    /// Reads `bytes` from their start; errors call them `name`.
    pub fn new(bytes: &'a [u8], name: &'a str) -> Self {
        Self { bytes, name }
    }

    /// An error that names these bytes.
    pub fn error(&self, reason: impl Into<String>) -> VersionsError {
        VersionsError::damaged(self.name, reason)
    }

    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// `Damaged` if there are fewer.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.bytes.len() {
            return Err(self.error("it ends early"));
        }
        let (head, tail) = self.bytes.split_at(len);
        self.bytes = tail;
        Ok(head)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// `Damaged` if there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// A little-endian number of 32 bits.
    ///
    /// # Errors
    /// `Damaged` at the end.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A little-endian number of 64 bits.
    ///
    /// # Errors
    /// `Damaged` at the end.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number as `varint::put` writes it.
    ///
    /// # Errors
    /// `Damaged` if it ends early or does not fit 64 bits.
    pub fn varint(&mut self) -> Result<u64> {
        let number = varint::read(|| self.array().map(|[byte]| byte))?;
        number.ok_or_else(|| self.error("a number does not fit 64 bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_or_too_large_is_damaged() {
        assert!(Cursor::new(&[0xff; 11], "x").varint().is_err());
        assert!(Cursor::new(&[0xff; 3], "x").varint().is_err());
        assert!(Cursor::new(&[0xff; 3], "x").u32().is_err());
    }
}
