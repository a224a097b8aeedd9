//! Bytes as lower-case hexadecimal digits.

/// Returns two digits for each byte.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = |byte: &u8| [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
    bytes.iter().flat_map(digits).map(char::from).collect()
}

/// Returns the bytes of exactly `2 * N` lower-case digits; none if `text` is anything else.
#[must_use]
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_were_written() {
        let bytes = [0x00, 0x0f, 0xa9, 0xff];
        assert_eq!(encode(&bytes), "000fa9ff");
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(decode(""), Some([]));
    }

    #[test]
    fn all_else_is_refused() {
        for text in ["0", "000", "0g", "0A", "é", " 0", "+0"] {
            assert_eq!(decode::<1>(text), None, "{text}");
        }
    }
}
