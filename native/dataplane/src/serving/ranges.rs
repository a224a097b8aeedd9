//! Requests of the data plane for ranges of images that diffcached serves, and the answers, on its socket.

use std::io::{self, Read, Write};

/// Longest range of one request, in bytes.
pub const LONGEST_RANGE: u64 = 1 << 20;
const REQUEST_LEN: usize = 17;

/// What becomes of bytes that are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// They are not sent.
    Present,
    /// They are fetched, but not from another host that would fetch them for this one.
    Fetched,
    /// They are waited for if they are on their way, and else not sent.
    Arriving,
}

/// A range that the data plane is about to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeRequest {
    /// What becomes of absent bytes.
    pub want: Want,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl RangeRequest {
    pub(super) fn encode(self) -> [u8; REQUEST_LEN] {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0] = match self.want {
            Want::Present => 0,
            Want::Fetched => 1,
            Want::Arriving => 2,
        };
        bytes[1..9].copy_from_slice(&self.offset.to_le_bytes());
        bytes[9..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Read the next request of a connection; none at its end.
    ///
    /// # Errors
    /// `InvalidData` if it is none; else of the connection.
    pub fn read(stream: &mut impl Read) -> io::Result<Option<RangeRequest>> {
        let mut bytes = [0; REQUEST_LEN];
        if stream.read(&mut bytes[..1])? == 0 {
            return Ok(None);
        }
        stream.read_exact(&mut bytes[1..])?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        let (offset, len) = (number(1), number(9));
        let is_range = (1..=LONGEST_RANGE).contains(&len) && offset.checked_add(len).is_some();
        let want = match bytes[0] {
            0 if is_range => Want::Present,
            1 if is_range => Want::Fetched,
            2 if is_range => Want::Arriving,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        Ok(Some(RangeRequest { want, offset, len }))
    }
}

/// What diffcached answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RangeAnswer {
    /// The range is in the file, verified.
    InFile,
    /// Some of it is not there.
    Absent,
    /// Some of it could not be fetched.
    Failed,
    /// The bytes, which the disk did not take.
    Bytes(Vec<u8>),
}

impl RangeAnswer {
    /// Write an answer.
    ///
    /// # Errors
    /// Of the connection.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        match self {
            RangeAnswer::InFile => stream.write_all(&[0]),
            RangeAnswer::Absent => stream.write_all(&[1]),
            RangeAnswer::Failed => stream.write_all(&[2]),
            RangeAnswer::Bytes(bytes) => {
                stream.write_all(&[3])?;
                stream.write_all(bytes)
            }
        }
    }

    pub(super) fn read(stream: &mut impl Read, len: u64) -> io::Result<RangeAnswer> {
        let mut kind = [0];
        stream.read_exact(&mut kind)?;
        RangeAnswer::read_rest(kind[0], stream, len)
    }

    /// Read what follows the first byte of an answer.
    pub(super) fn read_rest(kind: u8, stream: &mut impl Read, len: u64) -> io::Result<RangeAnswer> {
        match kind {
            0 => Ok(RangeAnswer::InFile),
            1 => Ok(RangeAnswer::Absent),
            2 => Ok(RangeAnswer::Failed),
            3 => {
                let mut bytes = vec![0; len as usize];
                stream.read_exact(&mut bytes)?;
                Ok(RangeAnswer::Bytes(bytes))
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
