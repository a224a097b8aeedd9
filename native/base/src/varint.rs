//! Numbers in as few bytes as they need: LEB128, seven bits a byte, least first.

/// Appends a number.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the number of bytes that [`put`] appends.
#[must_use]
pub fn len(value: u64) -> usize {
    let bits = (u64::BITS - value.leading_zeros()).max(1);
    bits.div_ceil(7) as usize
}

/// Reads a number from bytes that `next` returns one by one; none if it has more than 64 bits.
///
/// # Errors
/// Those of `next`.
#[inline]
pub fn read<E>(mut next: impl FnMut() -> Result<u8, E>) -> Result<Option<u64>, E> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = next()?;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        value |= bits << shift;
        if byte < 0x80 {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Takes the number at the start of `bytes`; none if it is cut, or has more than 64 bits.
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let next = || {
        let (byte, rest) = bytes.split_first().ok_or(())?;
        *bytes = rest;
        Ok::<_, ()>(*byte)
    };
    read(next).ok().flatten()
}

/// Maps numbers near zero, of either sign, to small ones.
#[inline]
#[must_use]
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Returns the number that [`zigzag`] mapped.
#[inline]
#[must_use]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_are_read_as_they_were_written(values in prop::collection::vec(any::<u64>(), 0..20)) {
            let mut out = Vec::new();
            for value in &values {
                let before = out.len();
                put(&mut out, *value);
                prop_assert_eq!(out.len() - before, len(*value));
            }
            let mut rest = out.as_slice();
            for value in values {
                prop_assert_eq!(take(&mut rest), Some(value));
            }
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn any_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut rest = bytes.as_slice();
            while !rest.is_empty() && take(&mut rest).is_some() {}
        }
    }

    #[test]
    fn small_numbers_of_either_sign_stay_small() {
        for (value, coded) in [(0, 0), (-1, 1), (1, 2), (-2, 3), (i64::MIN, u64::MAX)] {
            assert_eq!(zigzag(value), coded);
            assert_eq!(unzigzag(coded), value);
        }
        assert_eq!(unzigzag(zigzag(i64::MAX)), i64::MAX);
    }

    #[test]
    fn seven_bits_go_into_a_byte() {
        let mut out = Vec::new();
        for value in [0, 127, 128, 300] {
            put(&mut out, value);
        }
        assert_eq!(out, [0, 127, 0x80, 1, 0xac, 2]);
        assert_eq!(take(&mut &[0x80][..]), None);
    }

    #[test]
    fn numbers_of_more_than_64_bits_are_refused() {
        assert_eq!(take(&mut &[0xff; 11][..]), None);
        let mut largest = [0xff; 10];
        largest[9] = 1;
        assert_eq!(take(&mut &largest[..]), Some(u64::MAX));
        largest[9] = 2;
        assert_eq!(take(&mut &largest[..]), None);
    }
}
