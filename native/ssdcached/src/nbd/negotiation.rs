//! The handshake: a client names an export.
//!
//! The names are secrets, so they are not listed.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use super::protocol::{
    be16, be32, be64, info, option, reply, EXPORT_FLAGS, FIXED_NEWSTYLE, IHAVEOPT, MAX_DATA,
    NBDMAGIC, NO_ZEROES, OPTION_REPLY, PREFERRED,
};
use super::{Export, Exports};

/// Bytes of an option: a name of 4096 bytes, and what surrounds it.
const MAX_OPTION: u32 = 8192;
/// Options of one client, so that it does not stay for ever.
const MAX_OPTIONS: usize = 64;

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, text)
}

/// An option and its data.
struct Asked {
    option: u32,
    data: Vec<u8>,
}

/// Agrees with a client on an export. `None`: it left without one.
///
/// # Errors
/// The client broke the protocol, or the connection failed.
pub fn negotiate<S: Read + Write, E: Exports>(
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
    let flags = be32(&flags, 0);
    if flags & !(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
        return Err(invalid("the client has unknown handshake flags"));
    }
    for _ in 0..MAX_OPTIONS {
        let asked = receive(stream)?;
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

fn receive(stream: &mut impl Read) -> io::Result<Asked> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    if be64(&head, 0) != IHAVEOPT {
        return Err(invalid("what the client sent is not an option"));
    }
    let length = be32(&head, 12);
    if length > MAX_OPTION {
        return Err(invalid("the client sent an option that is too long"));
    }
    let mut data = vec![0; length as usize];
    stream.read_exact(&mut data)?;
    Ok(Asked {
        option: be32(&head, 8),
        data,
    })
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

fn find<E: Exports>(exports: &E, name: &[u8]) -> io::Result<Option<Arc<E::Export>>> {
    std::str::from_utf8(name).map_or(Ok(None), |name| exports.find(name))
}

/// The name, and the kinds of information, that an option asks for; `None`: it is malformed.
fn parse(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let length = be32(data.get(..4)?, 0) as usize;
    let name = data.get(4..4 + length)?;
    let rest = &data[4 + length..];
    let count = usize::from(be16(rest.get(..2)?, 0));
    let kinds = &rest[2..];
    let wanted = kinds.chunks_exact(2).map(|kind| be16(kind, 0)).collect();
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
