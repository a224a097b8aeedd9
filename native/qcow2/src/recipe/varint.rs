//! Numbers in as few bytes as they need, for lists that are nearly all zero once they are written as differences.

use crate::error::Qcow2Error;

/// Appends `value`, seven bits a byte, least first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the difference `to - from`, small in either direction.
pub fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Reads what [`put`] and [`put_step`] wrote.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next number.
    pub fn take(&mut self) -> Result<u64, Qcow2Error> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or_else(cut_off)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Qcow2Error::bad_patch("a number too long"))
    }

    /// The number that lies the next difference from `from`.
    pub fn take_step(&mut self, from: u64) -> Result<u64, Qcow2Error> {
        let coded = self.take()?;
        let step = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Ok(from.wrapping_add(step as u64))
    }

    /// A count of things that take at least one byte each, so that it cannot exceed what is left.
    pub fn take_count(&mut self) -> Result<usize, Qcow2Error> {
        let count = self.take()?;
        usize::try_from(count)
            .ok()
            .filter(|&count| count <= self.0.len())
            .ok_or_else(cut_off)
    }

    /// The next `count` bytes.
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
