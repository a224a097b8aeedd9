//! Reading numbers in the store's files: little-endian, or seven bits to a byte.

use diffcache_base::varint;

use crate::error::{Result, VersionsError};

/// Version of the formats of packs, indexes, maps and base images' indexes.
pub const VERSION: u32 = 1;

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

    /// Reads the first bytes of a file and its version, which is 1.
    ///
    /// # Errors
    /// `Damaged` if they are others.
    pub fn head(&mut self, magic: &[u8; 8], kind: &str) -> Result<()> {
        if self.take(magic.len())? != magic {
            return Err(self.error(format!("it is no {kind}")));
        }
        match self.u32()? {
            VERSION => Ok(()),
            version => Err(self.error(format!(
                "version {version} of the format is unknown here; this program reads version {VERSION}"
            ))),
        }
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
    fn another_version_is_refused_by_its_number() {
        let mut bytes = b"DCVTEST1".to_vec();
        bytes.extend(2u32.to_le_bytes());
        let head = Cursor::new(&bytes, "map 7").head(b"DCVTEST1", "map");
        let message = head.unwrap_err().to_string();
        assert!(
            message.contains("map 7") && message.contains("version 2"),
            "{message}"
        );
        let other = Cursor::new(&bytes, "map 7").head(b"DCVTEST2", "map");
        assert!(other.unwrap_err().to_string().contains("it is no map"));
    }

    #[test]
    fn what_is_cut_or_too_large_is_damaged() {
        assert!(Cursor::new(&[0xff; 11], "x").varint().is_err());
        assert!(Cursor::new(&[0xff; 3], "x").varint().is_err());
        assert!(Cursor::new(&[0xff; 3], "x").u32().is_err());
    }
}
