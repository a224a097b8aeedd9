//! Numbers as they lie in the store's files: little-endian, or seven bits to a byte.

use crate::error::{Result, VersionsError};

/// Appends `value`, seven bits to a byte, lowest first; the last byte has its highest bit clear.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

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

    /// A number as `put_varint` writes it.
    ///
    /// # Errors
    /// `Damaged` if it ends early or does not fit 64 bits.
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.error("a number does not fit 64 bits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(values in proptest::collection::vec(any::<u64>(), 0..20)) {
            let mut bytes = Vec::new();
            for value in &values {
                put_varint(&mut bytes, *value);
            }
            let mut cursor = Cursor::new(&bytes, "numbers");
            for value in values {
                prop_assert_eq!(cursor.varint().unwrap(), value);
            }
            prop_assert!(cursor.is_empty());
        }

        #[test]
        fn any_bytes_are_answered(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut cursor = Cursor::new(&bytes, "noise");
            while !cursor.is_empty() && cursor.varint().is_ok() {}
        }
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        assert!(Cursor::new(&[0xff; 11], "x").varint().is_err());
        let mut largest = vec![0xff; 9];
        largest.push(1);
        assert_eq!(Cursor::new(&largest, "x").varint().unwrap(), u64::MAX);
        largest[9] = 2;
        assert!(Cursor::new(&largest, "x").varint().is_err());
    }
}
