//! The handshake: a client chooses an export by its name.
//!
//! The names are secrets, so they are not listed.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use diffcache_base::words::Words;

use crate::protocol::{
    export, info, invalid, option, reply, FIXED_NEWSTYLE, IHAVEOPT, MAX_DATA, NBDMAGIC, NO_ZEROES,
    OPTION_REPLY,
};
use crate::server::Export;

/// Bytes of an option: a name of 4096 bytes, and what surrounds it.
const MAX_OPTION: u32 = 8192;
/// Options of one client, so that it does not stay for ever.
const MAX_OPTIONS: usize = 64;
/// Bytes of an answer: more than any that is asked for.
const MAX_ANSWER: u32 = 64 << 10;
/// The size of requests that suits a cache of blocks of 4 KiB.
const PREFERRED: u32 = 4096;
/// What each export of this server can do.
pub(crate) const EXPORT_FLAGS: u16 = export::HAS_FLAGS
    | export::FLUSH
    | export::FUA
    | export::TRIM
    | export::ZEROES
    | export::MULTIPLE;

/// What is served.
pub trait Exports: Send + Sync {
    /// One of them.
    type Export: Export;

    /// The export with a name, if there is one. May wait until it takes another client.
    ///
    /// # Errors
    /// The connection failed.
    fn find(&self, name: &str) -> io::Result<Option<Arc<Self::Export>>>;
}

/// An option and its data.
struct Asked {
    option: u32,
    data: Vec<u8>,
}

impl Asked {
    fn receive(stream: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let head = Words(&head);
        if head.be64(0) != IHAVEOPT {
            return Err(invalid("what the client sent is not an option"));
        }
        let length = head.be32(12);
        if length > MAX_OPTION {
            return Err(invalid("the client sent an option that is too long"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        let option = head.be32(8);
        Ok(Self { option, data })
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16 + self.data.len());
        bytes.extend(IHAVEOPT.to_be_bytes());
        bytes.extend(self.option.to_be_bytes());
        bytes.extend((self.data.len() as u32).to_be_bytes());
        bytes.extend(&self.data);
        bytes
    }
}

fn answer(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend(OPTION_REPLY.to_be_bytes());
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    stream.write_all(&bytes)
}

/// Receives an answer to the only option that was sent: its kind and its data.
fn receive_answer(stream: &mut impl Read) -> io::Result<(u32, Vec<u8>)> {
    let mut head = [0; 20];
    stream.read_exact(&mut head)?;
    let head = Words(&head);
    let length = head.be32(16);
    if head.be64(0) != OPTION_REPLY || length > MAX_ANSWER {
        return Err(no_server());
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok((head.be32(12), data))
}

fn no_server() -> io::Error {
    invalid("this is not a server of NBD")
}

/// Agrees with a client on an export. `None`: it left without one.
///
/// # Errors
/// The client broke the protocol, or the connection failed.
pub fn offer<S: Read + Write, E: Exports>(
    stream: &mut S,
    exports: &E,
) -> io::Result<Option<Arc<E::Export>>> {
    let mut greeting = [0; 18];
    greeting[..8].copy_from_slice(&NBDMAGIC.to_be_bytes());
    greeting[8..16].copy_from_slice(&IHAVEOPT.to_be_bytes());
    greeting[16..].copy_from_slice(&((FIXED_NEWSTYLE | NO_ZEROES) as u16).to_be_bytes());
    stream.write_all(&greeting)?;
    let mut flags = [0; 4];
    stream.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags & !(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(invalid("the client has unknown handshake flags"));
    }
    for _ in 0..MAX_OPTIONS {
        let asked = Asked::receive(stream)?;
        match asked.option {
            option::EXPORT_NAME => {
                let found = find(exports, &asked.data)?;
                // There is no reply that says so.
                let export = found.ok_or_else(|| invalid("there is no such export"))?;
                let mut described = [0; 134];
                described[..8].copy_from_slice(&export.size().to_be_bytes());
                described[8..10].copy_from_slice(&EXPORT_FLAGS.to_be_bytes());
                let length = if flags & NO_ZEROES == 0 { 134 } else { 10 };
                stream.write_all(&described[..length])?;
                return Ok(Some(export));
            }
            option::GO | option::INFO => {
                let chosen = describe(stream, &asked, exports)?;
                if chosen.is_some() && asked.option == option::GO {
                    return Ok(chosen);
                }
            }
            option::ABORT => {
                // It need not wait for the answer.
                let _ = answer(stream, asked.option, reply::ACK, &[]);
                return Ok(None);
            }
            option::LIST => answer(stream, asked.option, reply::ERR_POLICY, b"not listed")?,
            _ => answer(stream, asked.option, reply::ERR_UNSUP, &[])?,
        }
    }
    Err(invalid("the client sent too many options"))
}

fn find<E: Exports>(exports: &E, name: &[u8]) -> io::Result<Option<Arc<E::Export>>> {
    std::str::from_utf8(name).map_or(Ok(None), |name| exports.find(name))
}

/// The name, and the kinds of information, that an option asks for; `None`: it is malformed.
fn parse(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let length = Words(data.get(..4)?).be32(0) as usize;
    let name = data.get(4..4 + length)?;
    let rest = &data[4 + length..];
    let count = usize::from(Words(rest.get(..2)?).be16(0));
    let kinds = &rest[2..];
    let wanted = kinds
        .chunks_exact(2)
        .map(|kind| Words(kind).be16(0))
        .collect();
    (kinds.len() == 2 * count).then_some((name, wanted))
}

/// Answers what is asked about an export, and returns it, if there is one.
fn describe<E: Exports>(
    stream: &mut impl Write,
    asked: &Asked,
    exports: &E,
) -> io::Result<Option<Arc<E::Export>>> {
    let Some((wanted, kinds)) = parse(&asked.data) else {
        answer(stream, asked.option, reply::ERR_INVALID, b"malformed")?;
        return Ok(None);
    };
    let Some(export) = find(exports, wanted)? else {
        answer(stream, asked.option, reply::ERR_UNKNOWN, b"no such export")?;
        return Ok(None);
    };
    let mut described = Vec::with_capacity(12);
    described.extend(info::EXPORT.to_be_bytes());
    described.extend(export.size().to_be_bytes());
    described.extend(EXPORT_FLAGS.to_be_bytes());
    answer(stream, asked.option, reply::INFO, &described)?;
    if kinds.contains(&info::BLOCK_SIZE) {
        let mut sizes = Vec::with_capacity(14);
        sizes.extend(info::BLOCK_SIZE.to_be_bytes());
        for size in [1, PREFERRED, MAX_DATA] {
            sizes.extend(size.to_be_bytes());
        }
        answer(stream, asked.option, reply::INFO, &sizes)?;
    }
    answer(stream, asked.option, reply::ACK, &[])?;
    Ok(Some(export))
}

/// An export as its server describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// Its size in bytes.
    pub size: u64,
    /// What it can do: see [`export`].
    pub flags: u16,
}

/// Reads a server's greeting, and answers it.
///
/// # Errors
/// `InvalidData`: this is not a server of NBD; others: the connection failed.
pub(crate) fn greet<S: Read + Write>(stream: &mut S) -> io::Result<()> {
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    let greeting = Words(&greeting);
    if (greeting.be64(0), greeting.be64(8)) != (NBDMAGIC, IHAVEOPT) {
        return Err(no_server());
    }
    let flags = u32::from(greeting.be16(16)) & (FIXED_NEWSTYLE | NO_ZEROES);
    stream.write_all(&flags.to_be_bytes())
}

/// Asks a server for an export, without waiting for its answer.
///
/// # Errors
/// `InvalidData`: this is not a server of NBD; others: the connection failed.
pub fn ask<S: Read + Write>(stream: &mut S, name: &str) -> io::Result<()> {
    greet(stream)?;
    ask_next(stream, name)
}

fn ask_next(stream: &mut impl Write, name: &str) -> io::Result<()> {
    let mut data = with_length(name);
    // No further information is asked for.
    data.extend([0; 2]);
    let option = option::GO;
    stream.write_all(&Asked { option, data }.encode())
}

fn with_length(text: &str) -> Vec<u8> {
    let mut bytes = (text.len() as u32).to_be_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes
}

/// Agrees on structured replies, and on block status that tells allocation; returns the number of that context.
///
/// # Errors
/// `Unsupported`: the server does not do it; others as [`choose`].
pub(crate) fn agree_on_allocation<S: Read + Write>(stream: &mut S, name: &str) -> io::Result<u32> {
    let mut data = with_length(name);
    data.extend(1u32.to_be_bytes());
    data.extend(with_length("base:allocation"));
    let structured = Asked {
        option: option::STRUCTURED_REPLY,
        data: Vec::new(),
    };
    let context = Asked {
        option: option::SET_META_CONTEXT,
        data,
    };
    let unsupported = || io::Error::from(ErrorKind::Unsupported);
    stream.write_all(&structured.encode())?;
    if receive_answer(stream)?.0 != reply::ACK {
        return Err(unsupported());
    }
    stream.write_all(&context.encode())?;
    let mut found = None;
    loop {
        let (kind, data) = receive_answer(stream)?;
        match kind {
            reply::META_CONTEXT if data.len() >= 4 && found.is_none() => {
                found = Some(Words(&data).be32(0));
            }
            reply::ACK => return found.ok_or_else(unsupported),
            _ => return Err(unsupported()),
        }
    }
}

/// Chooses an export of a server.
///
/// # Errors
/// `InvalidData`: this is not a server of NBD; `NotFound`: it refuses the export; others: the
/// connection failed.
pub fn choose<S: Read + Write>(stream: &mut S, name: &str) -> io::Result<Description> {
    greet(stream)?;
    choose_next(stream, name)
}

/// Chooses an export of a server that was greeted, as [`choose`].
pub(crate) fn choose_next<S: Read + Write>(stream: &mut S, name: &str) -> io::Result<Description> {
    ask_next(stream, name)?;
    let mut found = None;
    loop {
        let (kind, data) = receive_answer(stream)?;
        let words = Words(&data);
        match kind {
            reply::INFO if data.len() >= 12 && words.be16(0) == info::EXPORT => {
                let (size, flags) = (words.be64(2), words.be16(10));
                found = Some(Description { size, flags });
            }
            reply::INFO => {}
            reply::ACK => return found.ok_or_else(no_server),
            _ if kind & reply::ERROR != 0 => {
                let reason = String::from_utf8_lossy(&data);
                let text = format!("the server refuses the export {name:?} ({kind:#x}): {reason}");
                return Err(io::Error::new(ErrorKind::NotFound, text));
            }
            _ => return Err(no_server()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_is_no_server_of_nbd_is_refused() {
        let (mut theirs, mut ours) = UnixStream::pair().unwrap();
        theirs.write_all(&[7; 64]).unwrap();
        let error = choose(&mut ours, "x").unwrap_err();
        assert_eq!(ErrorKind::InvalidData, error.kind());
    }
}
