//! Referrals: a host that is busy sending an image names another one, which got the same bytes from it or is getting them.
//!
//! A requester that follows referrals names itself in the header `X-DiffCache-Refer`. The data plane then asks diffcached on the socket `referrals`
//! beside the file of the image, in place of the socket `peers`: as there, and with the requester's name, which is its length, u8, and the text. The
//! answers are those of the socket `peers`, and 4 with the name of another host in the same form. After an answer with which the range is sent, the
//! data plane sends one byte, 0, once that is done; the end of the connection means the same. diffcached so knows what it is sending.

use std::io::{self, Read, Write};

use crate::serving::ranges::{RangeAnswer, RangeRequest};

/// Name of the socket in the folder of an image.
pub const SOCKET: &str = "referrals";
/// The header of a request with the requester's name, and of a response with that of another host.
pub const HEADER: &str = "X-DiffCache-Refer";
/// The answer that names another host.
const REFER: u8 = 4;
/// Sent when a range is on its way.
const SENT: u8 = 0;

/// A name of a host that fits in a header: 1 to 255 printable ASCII characters without spaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostName(String);

impl HostName {
    /// Take a name; none if it cannot be one.
    pub fn parse(text: &str) -> Option<HostName> {
        let fits = (1..=usize::from(u8::MAX)).contains(&text.len());
        (fits && text.bytes().all(|c| c.is_ascii_graphic())).then(|| HostName(text.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn read(stream: &mut impl Read) -> io::Result<HostName> {
        let mut length = [0];
        stream.read_exact(&mut length)?;
        let mut text = vec![0; usize::from(length[0])];
        stream.read_exact(&mut text)?;
        let text = String::from_utf8(text).ok();
        let name = text.as_deref().and_then(HostName::parse);
        name.ok_or(io::ErrorKind::InvalidData.into())
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.0.len() as u8);
        bytes.extend(self.0.bytes());
    }
}

/// A range that the data plane is about to send to a host that follows referrals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferableRequest {
    /// The range.
    pub range: RangeRequest,
    /// Name of the host.
    pub requester: HostName,
}

impl ReferableRequest {
    /// Write a request.
    ///
    /// # Errors
    /// Of the connection.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        let mut bytes = self.range.encode().to_vec();
        self.requester.encode(&mut bytes);
        stream.write_all(&bytes)
    }

    /// Read the next request of a connection; none at its end.
    ///
    /// # Errors
    /// `InvalidData` if it is none; else of the connection.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<ReferableRequest>> {
        let Some(range) = RangeRequest::read(stream)? else {
            return Ok(None);
        };
        let requester = HostName::read(stream)?;
        Ok(Some(ReferableRequest { range, requester }))
    }
}

/// What diffcached answers to a referable request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Turn {
    /// As to any other.
    Here(RangeAnswer),
    /// Another host has the range, or is getting it.
    At(HostName),
}

impl Turn {
    /// Write an answer.
    ///
    /// # Errors
    /// Of the connection.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        match self {
            Turn::Here(answer) => answer.write(stream),
            Turn::At(name) => {
                let mut bytes = vec![REFER];
                name.encode(&mut bytes);
                stream.write_all(&bytes)
            }
        }
    }

    /// Read the answer to a request of this many bytes.
    ///
    /// # Errors
    /// `InvalidData` if it is none; else of the connection.
    pub fn read(stream: &mut impl Read, len: u64) -> io::Result<Turn> {
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        match kind[0] {
            REFER => Ok(Turn::At(HostName::read(stream)?)),
            kind => Ok(Turn::Here(RangeAnswer::read_rest(kind, stream, len)?)),
        }
    }

    /// Whether the range is sent after this answer.
    pub fn is_sent(&self) -> bool {
        matches!(
            self,
            Turn::Here(RangeAnswer::InFile | RangeAnswer::Bytes(_))
        )
    }
}

/// Write that a range was sent.
///
/// # Errors
/// Of the connection.
pub fn write_sent(stream: &mut impl Write) -> io::Result<()> {
    stream.write_all(&[SENT])
}

/// Wait until a range was sent; an error, too, is the end of that.
///
/// # Errors
/// `InvalidData` if something else comes; else of the connection.
pub fn wait_until_sent(stream: &mut impl Read) -> io::Result<()> {
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    match byte[0] {
        SENT => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    use crate::serving::ranges::LONGEST_RANGE;

    proptest! {
        #[test]
        fn whatever_is_read_is_written_as_it_was(
            bytes in prop::collection::vec(prop_oneof![0u8..5, any::<u8>()], 0..300),
            len in 1..1000u64,
        ) {
            let mut written = Vec::new();
            if let Ok(Some(found)) = ReferableRequest::read(&mut &bytes[..]) {
                prop_assert!((1..=LONGEST_RANGE).contains(&found.range.len));
                found.write(&mut written).unwrap();
                prop_assert_eq!(&written[..], &bytes[..written.len()]);
            }
            written.clear();
            if let Ok(found) = Turn::read(&mut &bytes[..], len) {
                found.write(&mut written).unwrap();
                prop_assert_eq!(&written[..], &bytes[..written.len()]);
            }
        }
    }
    use crate::serving::ranges::Want;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn requests_and_answers_are_read_as_they_were_written() {
        let longest = "x".repeat(255);
        for requester in ["h", &longest] {
            let request = ReferableRequest {
                range: RangeRequest {
                    want: Want::Fetched,
                    offset: 7,
                    len: 9,
                },
                requester: name(requester),
            };
            let mut bytes = Vec::new();
            request.write(&mut bytes).unwrap();
            let read = ReferableRequest::read(&mut &bytes[..]).unwrap();
            assert_eq!(read, Some(request));
            assert!(ReferableRequest::read(&mut &bytes[..bytes.len() - 1]).is_err());
        }
        assert_eq!(ReferableRequest::read(&mut &b""[..]).unwrap(), None);
        for turn in [
            Turn::Here(RangeAnswer::InFile),
            Turn::Here(RangeAnswer::Absent),
            Turn::Here(RangeAnswer::Failed),
            Turn::Here(RangeAnswer::Bytes(vec![7; 5])),
            Turn::At(name("host-3")),
        ] {
            let mut bytes = Vec::new();
            turn.write(&mut bytes).unwrap();
            assert_eq!(Turn::read(&mut &bytes[..], 5).unwrap(), turn);
            assert!(Turn::read(&mut &bytes[..bytes.len() - 1], 5).is_err());
        }
        let mut sent = Vec::new();
        write_sent(&mut sent).unwrap();
        wait_until_sent(&mut &sent[..]).unwrap();
        assert!(wait_until_sent(&mut &b""[..]).is_err());
        assert!(wait_until_sent(&mut &b"\x01"[..]).is_err());
    }

    #[test]
    fn what_would_break_a_header_is_no_name() {
        for text in ["", "a b", "a\r\nb: c", "\u{e9}", &"x".repeat(256)] {
            assert_eq!(HostName::parse(text), None, "{text:?}");
        }
        for bytes in [&b"\x04\x00"[..], b"\x04\x02a\n", b"\x04\x01\xff", b"\x05"] {
            assert!(Turn::read(&mut &bytes[..], 5).is_err(), "{bytes:?}");
        }
    }
}
