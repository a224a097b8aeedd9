//! Numbers in as few bytes as they need: LEB128, seven bits a byte, least first.

/// Appends a number.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes the number at the start of `bytes`; none if it is cut, or has more than 63 bits.
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..63).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Maps numbers near zero, of either sign, to small ones.
pub fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Returns the number that [`zigzag`] mapped.
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut rest = out.as_slice();
        let taken = [(); 4].map(|()| take(&mut rest));
        assert_eq!(taken, [0, 127, 128, 300].map(Some));
        assert_eq!(take(&mut rest), None);
        out.clear();
        put(&mut out, u64::MAX);
        assert_eq!(out.len(), 10);
        assert_eq!(take(&mut out.as_slice()), None);
    }
}
