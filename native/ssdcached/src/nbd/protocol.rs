//! Messages of NBD. Names and numbers are those of its specification, `doc/proto.md`.

use std::io;

/// The server's first words.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// Begins each option, and the server's first words end with it.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Begins each reply to an option.
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Begins each request.
pub const REQUEST: u32 = 0x2560_9513;
/// Begins each reply to a request.
pub const REPLY: u32 = 0x6744_6698;

/// Handshake flags: newstyle; the client may ask for no zeroes after the export's size.
pub const FIXED_NEWSTYLE: u32 = 1;
/// See [`FIXED_NEWSTYLE`].
pub const NO_ZEROES: u32 = 1 << 1;

/// Options of the handshake.
pub mod option {
    /// Chooses an export.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the connection.
    pub const ABORT: u32 = 2;
    /// Asks which exports there are.
    pub const LIST: u32 = 3;
    /// Describes an export.
    pub const INFO: u32 = 6;
    /// Describes an export, and chooses it.
    pub const GO: u32 = 7;
}

/// Replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// A description of the export.
    pub const INFO: u32 = 3;
    /// The option is not supported.
    pub const ERR_UNSUP: u32 = (1 << 31) + 1;
    /// The server does not do it.
    pub const ERR_POLICY: u32 = (1 << 31) + 2;
    /// The option is malformed.
    pub const ERR_INVALID: u32 = (1 << 31) + 3;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = (1 << 31) + 6;
}

/// Descriptions of an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Least, preferred and largest size of requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What an export can: flushes, writes with FUA, trims, zeroes; several connections see each
/// other's completed writes, and a flush of one is a flush of all.
pub const EXPORT_FLAGS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 6 | 1 << 8;

/// Requests have their data in one piece up to this number of bytes.
pub const MAX_DATA: u32 = 32 << 20;
/// The size of requests that suits a cache of blocks of 4 KiB.
pub const PREFERRED: u32 = 4096;

/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a reply without its data.
pub const REPLY_BYTES: usize = 16;

/// Commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Reads.
    Read,
    /// Writes the data that follow.
    Write,
    /// The client leaves.
    Disconnect,
    /// Makes completed requests durable.
    Flush,
    /// Gives space back; what is read there afterwards is zeroes.
    Trim,
    /// Writes zeroes.
    WriteZeroes,
    /// One that this server does not know.
    Other,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// Whether it is durable when it is answered.
    pub is_durable: bool,
    /// The client's number of it.
    pub cookie: [u8; 8],
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// It does not begin like one.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> io::Result<Self> {
        if be32(bytes, 0) != REQUEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "what the client sent is not a request",
            ));
        }
        let command = match be16(bytes, 6) {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            _ => Command::Other,
        };
        let mut cookie = [0; 8];
        cookie.copy_from_slice(&bytes[8..16]);
        Ok(Self {
            command,
            is_durable: be16(bytes, 4) & 1 != 0,
            cookie,
            offset: be64(bytes, 16),
            length: be32(bytes, 24),
        })
    }

    /// The head of the reply; `error` is a number of NBD, 0 for none.
    #[must_use]
    pub fn reply(&self, error: u32) -> [u8; REPLY_BYTES] {
        let mut head = [0; REPLY_BYTES];
        head[..4].copy_from_slice(&REPLY.to_be_bytes());
        head[4..8].copy_from_slice(&error.to_be_bytes());
        head[8..].copy_from_slice(&self.cookie);
        head
    }
}

/// Errors of requests: the numbers of Linux that NBD knows.
pub mod errno {
    /// Not permitted.
    pub const EPERM: u32 = 1;
    /// The disk failed.
    pub const EIO: u32 = 5;
    /// No memory.
    pub const ENOMEM: u32 = 12;
    /// A request that cannot be done.
    pub const EINVAL: u32 = 22;
    /// No space.
    pub const ENOSPC: u32 = 28;
    /// Too large.
    pub const EOVERFLOW: u32 = 75;
    /// Not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server ends.
    pub const ESHUTDOWN: u32 = 108;
}

/// The number of an error on the wire.
#[must_use]
pub fn number(error: &io::Error) -> u32 {
    use errno::{EINVAL, EIO, ENOMEM, ENOSPC, ENOTSUP, EOVERFLOW, EPERM, ESHUTDOWN};
    const EROFS: u32 = 30;
    const EFBIG: u32 = 27;
    const EDQUOT: u32 = 122;
    match error
        .raw_os_error()
        .and_then(|code| u32::try_from(code).ok())
    {
        Some(code @ (EPERM | ENOMEM | EINVAL | ENOSPC | EOVERFLOW | ENOTSUP | ESHUTDOWN)) => code,
        Some(EROFS) => EPERM,
        Some(EFBIG | EDQUOT) => ENOSPC,
        _ => EIO,
    }
}

/// A number in network byte order.
pub fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// See [`be16`].
pub fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from(be16(bytes, at)) << 16 | u32::from(be16(bytes, at + 2))
}

/// See [`be16`].
pub fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}
