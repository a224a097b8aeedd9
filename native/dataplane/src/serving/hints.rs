//! Hints that ride on replies: texts that diffcached alone understands, passed on with the bytes of an image that it serves while it arrives.
//!
//! A requester says what it knows, and the answer has what diffcached of this host knows besides. The data plane asks it on the socket `hints`
//! beside the file of the image, with the length of the requester's text, u16 little-endian, and the text; the answer is of the same form, with
//! no text if there are no hints. A connection carries any number of them.

use std::io::{self, Read, Write};
use std::time::Duration;

/// Name of the socket in the folder of an image.
pub const SOCKET: &str = "hints";
/// The header of a request with what the requester knows.
pub const KNOWN: &str = "X-DiffCache-Known";
/// The header of a response with hints.
pub const HINTS: &str = "X-DiffCache-Hints";
/// Longest text, in bytes.
pub const LONGEST: usize = 6000;
/// How long diffcached may take: it answers from memory.
pub const ANSWER_TIME: Duration = Duration::from_secs(1);

/// Returns whether a text may be one: some of the alphabet of Base64, and not too much.
pub fn is_text(text: &str) -> bool {
    let is_known = |c: u8| c.is_ascii_alphanumeric() || b"+/=".contains(&c);
    (1..=LONGEST).contains(&text.len()) && text.bytes().all(is_known)
}

/// Reads a text; `None` at the end of the connection.
///
/// # Errors
/// `InvalidData` if it is none; else of the connection.
pub fn read(stream: &mut impl Read) -> io::Result<Option<String>> {
    let mut length = [0; 2];
    loop {
        match stream.read(&mut length[..1]) {
            Ok(0) => return Ok(None),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    stream.read_exact(&mut length[1..])?;
    let mut text = vec![0; usize::from(u16::from_le_bytes(length))];
    stream.read_exact(&mut text)?;
    let text = String::from_utf8(text).ok();
    let text = text.filter(|text| text.is_empty() || is_text(text));
    text.map(Some).ok_or(io::ErrorKind::InvalidData.into())
}

/// Writes a text.
///
/// # Errors
/// `InvalidInput` if it is too long; else of the connection.
pub fn write(stream: &mut impl Write, text: &str) -> io::Result<()> {
    let Some(length) = u16::try_from(text.len())
        .ok()
        .filter(|_| text.len() <= LONGEST)
    else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend(text.bytes());
    stream.write_all(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_as_they_were_written() {
        let long = "x".repeat(LONGEST);
        for text in ["", "YQ==", &long] {
            let mut bytes = Vec::new();
            write(&mut bytes, text).unwrap();
            assert_eq!(read(&mut &bytes[..]).unwrap().as_deref(), Some(text));
            assert!(bytes.is_empty() || read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert_eq!(read(&mut &b""[..]).unwrap(), None);
        assert!(write(&mut Vec::new(), &(long + "x")).is_err());
    }

    /// Is interrupted before each byte.
    struct Interrupted<'a>(&'a [u8], bool);

    impl Read for Interrupted<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let most = buffer.len().min(1);
            self.0.read(&mut buffer[..most])
        }
    }

    #[test]
    fn an_interrupted_read_goes_on() {
        let mut stream = Interrupted(b"\x04\x00YQ==", false);
        assert_eq!(read(&mut stream).unwrap().as_deref(), Some("YQ=="));
        assert_eq!(read(&mut stream).unwrap(), None);
    }

    #[test]
    fn what_would_break_a_header_is_no_text() {
        for text in ["a\r\nb: c", "a b", "\u{e9}", ""] {
            assert!(!is_text(text), "{text:?}");
        }
        assert!(read(&mut &b"\x03\x00a\r\n"[..]).is_err());
        assert!(read(&mut &b"\x01\x00\xff"[..]).is_err());
    }
}
