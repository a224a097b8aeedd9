//! Lists of numbers that are nearly all zero once they are written as differences.

use diffcache_base::varint::{self, put, unzigzag, zigzag};

use crate::error::Qcow2Error;

/// Appends the difference `to - from`, small in either direction.
pub fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    put(out, zigzag(to.wrapping_sub(from) as i64));
}

/// Reads what `put` and [`put_step`] appended.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Reads the next number.
    pub fn take(&mut self) -> Result<u64, Qcow2Error> {
        let number = varint::read(|| self.take_bytes(1).map(|byte| byte[0]))?;
        number.ok_or_else(|| Qcow2Error::bad_patch("a number too long"))
    }

    /// Reads a difference and adds it to `from`.
    pub fn take_step(&mut self, from: u64) -> Result<u64, Qcow2Error> {
        let step = unzigzag(self.take()?);
        Ok(from.wrapping_add(step as u64))
    }

    /// Reads a count of items that take at least one byte each, so that it cannot exceed the bytes left.
    pub fn take_count(&mut self) -> Result<usize, Qcow2Error> {
        let count = self.take()?;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.0.len())
            .ok_or_else(cut_off)
    }

    /// Reads the next `count` bytes.
    pub fn take_bytes(&mut self, count: usize) -> Result<&'a [u8], Qcow2Error> {
        if count > self.0.len() {
            return Err(cut_off());
        }
        let (now, later) = self.0.split_at(count);
        self.0 = later;
        Ok(now)
    }
}

fn cut_off() -> Qcow2Error {
    Qcow2Error::bad_patch("its description is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put(&mut out, value);
            put_step(&mut out, value, 5);
            put_step(&mut out, 5, value);
            let mut reader = Reader(&out);
            assert_eq!(reader.take().unwrap(), value);
            assert_eq!(reader.take_step(value).unwrap(), 5);
            assert_eq!(reader.take_step(5).unwrap(), value);
            assert!(reader.take().is_err());
        }
    }

    #[test]
    fn endless_numbers_are_refused() {
        assert!(Reader(&[0xff; 32]).take().is_err());
    }
}
