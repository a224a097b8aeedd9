//! Messages of NBD. Names and numbers are those of its specification, `doc/proto.md`.

use std::io::{self, Read};

use diffcache_base::words::Words;

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
/// Begins each chunk of a reply, where that was agreed on.
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;

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
    /// Has replies come in chunks.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Chooses what block status is of.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub mod reply {
    /// Done.
    pub const ACK: u32 = 1;
    /// A description of the export.
    pub const INFO: u32 = 3;
    /// The number of something that block status is of.
    pub const META_CONTEXT: u32 = 4;
    /// The kinds from here on are refusals.
    pub const ERROR: u32 = 1 << 31;
    /// The option is not supported.
    pub const ERR_UNSUP: u32 = ERROR + 1;
    /// The server does not do it.
    pub const ERR_POLICY: u32 = ERROR + 2;
    /// The option is malformed.
    pub const ERR_INVALID: u32 = ERROR + 3;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = ERROR + 6;
}

/// Descriptions of an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Least, preferred and largest size of requests.
    pub const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub mod export {
    /// The flags are valid.
    pub const HAS_FLAGS: u16 = 1;
    /// It takes no writes.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flushes.
    pub const FLUSH: u16 = 1 << 2;
    /// Writes that are durable when they are answered.
    pub const FUA: u16 = 1 << 3;
    /// Trims.
    pub const TRIM: u16 = 1 << 5;
    /// Zeroes without data.
    pub const ZEROES: u16 = 1 << 6;
    /// Several connections see each other's completed writes, and a flush of one is of all.
    pub const MULTIPLE: u16 = 1 << 8;
}

/// Chunks of a reply.
pub mod chunk {
    /// The flag of the last one.
    pub const DONE: u16 = 1;
    /// Nothing.
    pub const NONE: u16 = 0;
    /// Extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// The kinds from here on are errors.
    pub const ERROR: u16 = 1 << 15;
}

/// Requests have their data in one piece up to this number of bytes.
pub const MAX_DATA: u32 = 32 << 20;
/// Bytes of a request without its data.
pub const REQUEST_BYTES: usize = 28;
/// Bytes of a reply without its data.
pub const REPLY_BYTES: usize = 16;

/// Commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Command {
    /// Reads.
    Read = 0,
    /// Writes the data that follow.
    Write = 1,
    /// The client leaves.
    Disconnect = 2,
    /// Makes completed requests durable.
    Flush = 3,
    /// Gives space back; what is read there afterwards is zeroes.
    Trim = 4,
    /// Writes zeroes.
    WriteZeroes = 6,
    /// Asks which parts hold data.
    BlockStatus = 7,
    /// One that is not known here.
    Other = u16::MAX,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What to do.
    pub command: Command,
    /// Whether it is durable when it is answered.
    pub is_durable: bool,
    /// The client's number of it.
    pub cookie: u64,
    /// Where.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

impl Request {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&u16::from(self.is_durable).to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.command as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a request.
    ///
    /// # Errors
    /// It does not begin like one.
    pub fn decode(bytes: &[u8; REQUEST_BYTES]) -> io::Result<Self> {
        let words = Words(bytes);
        if words.be32(0) != REQUEST {
            return Err(invalid("what the client sent is not a request"));
        }
        let command = match words.be16(6) {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            _ => Command::Other,
        };
        Ok(Self {
            command,
            is_durable: words.be16(4) & 1 != 0,
            cookie: words.be64(8),
            offset: words.be64(16),
            length: words.be32(24),
        })
    }

    /// The reply; `error` is a number of NBD, 0 for none.
    #[must_use]
    pub fn reply(&self, error: u32) -> Reply {
        Reply {
            error,
            cookie: self.cookie,
        }
    }
}

/// A reply, without the data that follow that to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// A number of NBD, 0 for none.
    pub error: u32,
    /// The number of the request.
    pub cookie: u64,
}

impl Reply {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; REPLY_BYTES] {
        let mut bytes = [0; REPLY_BYTES];
        bytes[..4].copy_from_slice(&REPLY.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// Receives a reply.
    ///
    /// # Errors
    /// It does not begin like one, or the connection failed.
    pub fn receive(mut stream: impl Read) -> io::Result<Self> {
        let mut bytes = [0; REPLY_BYTES];
        stream.read_exact(&mut bytes)?;
        let words = Words(&bytes);
        if words.be32(0) != REPLY {
            return Err(invalid("what the server sent is not a reply"));
        }
        Ok(Self {
            error: words.be32(4),
            cookie: words.be64(8),
        })
    }

    /// Returns the error as one of the system.
    ///
    /// # Errors
    /// The request failed.
    pub fn result(&self) -> io::Result<()> {
        match self.error {
            0 => Ok(()),
            // The protocol's numbers are those of Linux.
            number => Err(io::Error::from_raw_os_error(
                i32::try_from(number).unwrap_or(errno::EIO as i32),
            )),
        }
    }
}

pub(crate) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
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
