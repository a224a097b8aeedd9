//! Which parts of an export hold data: block status in structured replies, on a connection of its own.

use std::io::{self, Read, Write};

use diffcache_base::words::Words;

use crate::address::{Address, Socket, TIMEOUT};
use crate::negotiation::{agree_on_allocation, choose_next, greet};
use crate::protocol::{chunk, invalid, Command, Request, REPLY, STRUCTURED_REPLY};

/// Bytes of one answer, which describes up to eight thousand extents.
const MAX_CHUNK: u32 = 64 << 10;
/// Bytes that are asked about at a time: a multiple of all block sizes.
const MOST: u64 = 1 << 30;
/// The extent reads as zeroes.
const ZERO: u32 = 1 << 1;

/// A connection by which a client learns where an export is not zero.
pub struct Allocation {
    socket: Socket,
    size: u64,
    context: u32,
    last: u64,
}

impl Allocation {
    /// Connects to an export.
    ///
    /// # Errors
    /// There is no such export; `Unsupported`: its server does not tell allocation.
    pub fn open(address: &Address) -> io::Result<Self> {
        let socket = Socket::connect(address)?;
        socket.set_timeout(Some(TIMEOUT))?;
        greet(&mut &socket)?;
        let context = agree_on_allocation(&mut &socket, &address.export)?;
        let size = choose_next(&mut &socket, &address.export)?.size;
        Ok(Self {
            socket,
            size,
            context,
            last: 0,
        })
    }

    /// Returns the parts of a range that may hold something else than zeroes, as (start, end), in order.
    ///
    /// # Errors
    /// The server refuses, breaks the protocol, or does not answer in time.
    pub fn data(&mut self, from: u64, to: u64) -> io::Result<Vec<(u64, u64)>> {
        let mut found: Vec<(u64, u64)> = Vec::new();
        let end = to.min(self.size);
        let mut at = from;
        while at < end {
            for (length, is_zero) in self.extents(at, end)? {
                let next = (at + u64::from(length)).min(end);
                match found.last_mut() {
                    _ if is_zero || at == next => {}
                    Some(last) if last.1 == at => last.1 = next,
                    _ => found.push((at, next)),
                }
                at = next;
            }
        }
        Ok(found)
    }

    /// The extents from an offset on: lengths, none of them 0, and whether they are zeroes.
    fn extents(&mut self, offset: u64, end: u64) -> io::Result<Vec<(u32, bool)>> {
        self.last += 1;
        let request = Request {
            command: Command::BlockStatus,
            is_durable: false,
            cookie: self.last,
            offset,
            length: MOST.min(end - offset) as u32,
        };
        (&self.socket).write_all(&request.encode())?;
        let mut found = Vec::new();
        loop {
            let (flags, kind, data) = self.receive()?;
            match kind {
                chunk::NONE => {}
                chunk::BLOCK_STATUS => found = self.decode(&data)?,
                _ => return Err(refused(kind, &data)),
            }
            if flags & chunk::DONE != 0 {
                break;
            }
        }
        if found.is_empty() {
            return Err(invalid("the server sent no extents"));
        }
        Ok(found)
    }

    fn decode(&self, data: &[u8]) -> io::Result<Vec<(u32, bool)>> {
        let words = Words(data);
        if data.len() < 12 || data.len() % 8 != 4 || words.be32(0) != self.context {
            return Err(invalid("the server sent malformed extents"));
        }
        let extents: Vec<_> = (4..data.len())
            .step_by(8)
            .map(|at| (words.be32(at), words.be32(at + 4) & ZERO != 0))
            .collect();
        if extents.iter().any(|(length, _)| *length == 0) {
            return Err(invalid("the server sent an extent of no bytes"));
        }
        Ok(extents)
    }

    /// Receives one chunk of the answer to the last request: its flags, kind and data.
    fn receive(&self) -> io::Result<(u16, u16, Vec<u8>)> {
        let mut stream = &self.socket;
        let mut head = [0; 16];
        stream.read_exact(&mut head)?;
        let words = Words(&head);
        if words.be64(8) != self.last {
            return Err(invalid("the server sent a reply to another request"));
        }
        match words.be32(0) {
            // Errors may come as simple replies.
            REPLY => return Err(refused(chunk::ERROR, &head[4..8])),
            STRUCTURED_REPLY => {}
            _ => return Err(invalid("what the server sent is not a reply")),
        }
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > MAX_CHUNK {
            return Err(invalid("the server sent a chunk that is too long"));
        }
        let mut data = vec![0; length as usize];
        stream.read_exact(&mut data)?;
        Ok((words.be16(4), words.be16(6), data))
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.socket.close();
    }
}

fn refused(kind: u16, data: &[u8]) -> io::Error {
    if kind & chunk::ERROR == 0 || data.len() < 4 {
        return invalid("the server sent a chunk that was not asked for");
    }
    let number = i32::try_from(Words(data).be32(0)).unwrap_or_default();
    io::Error::from_raw_os_error(number)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    fn chunk_of(kind: u16, flags: u16, cookie: u64, data: &[u8]) -> Vec<u8> {
        [
            STRUCTURED_REPLY.to_be_bytes().as_slice(),
            &flags.to_be_bytes(),
            &kind.to_be_bytes(),
            &cookie.to_be_bytes(),
            &(data.len() as u32).to_be_bytes(),
            data,
        ]
        .concat()
    }

    fn status(cookie: u64, extents: &[(u32, u32)]) -> Vec<u8> {
        let mut data = 7u32.to_be_bytes().to_vec();
        for (length, flags) in extents {
            data.extend(length.to_be_bytes());
            data.extend(flags.to_be_bytes());
        }
        chunk_of(chunk::BLOCK_STATUS, chunk::DONE, cookie, &data)
    }

    /// A connection whose server sends these answers, one to each request.
    fn answered(answers: Vec<Vec<u8>>) -> Allocation {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        thread::spawn(move || {
            for answer in answers {
                let mut request = [0; 28];
                theirs.read_exact(&mut request).unwrap();
                theirs.write_all(&answer).unwrap();
            }
        });
        Allocation {
            socket: Socket::Unix(ours),
            size: 100,
            context: 7,
            last: 0,
        }
    }

    #[test]
    fn data_are_found_in_several_answers() {
        let mut found = answered(vec![
            status(1, &[(10, 3), (10, 2)]),
            status(2, &[(5, 0), (5, 0), (1, 3)]),
            status(3, &[(u32::MAX, 0)]),
        ]);
        let expected = vec![(20, 30), (31, 90)];
        assert_eq!(expected, found.data(0, 90).unwrap());
        assert!(found.data(100, 200).unwrap().is_empty());
    }

    #[test]
    fn what_breaks_the_protocol_is_refused() {
        let simple = [
            REPLY.to_be_bytes().as_slice(),
            &22u32.to_be_bytes(),
            &1u64.to_be_bytes(),
        ]
        .concat();
        let long = [
            &chunk_of(chunk::BLOCK_STATUS, chunk::DONE, 1, &[])[..16],
            &u32::MAX.to_be_bytes(),
        ]
        .concat();
        for answer in [
            status(1, &[(0, 0)]),
            status(2, &[(5, 0)]),
            status(1, &[]),
            chunk_of(chunk::NONE, chunk::DONE, 1, &[]),
            chunk_of(chunk::BLOCK_STATUS, chunk::DONE, 1, &[0; 13]),
            chunk_of(chunk::ERROR + 1, chunk::DONE, 1, &[0, 0, 0, 5, 0, 0]),
            chunk_of(9, chunk::DONE, 1, &[0, 0, 0, 5]),
            vec![0; 16],
            simple,
            long,
        ] {
            assert!(
                answered(vec![answer.clone()]).data(0, 100).is_err(),
                "{answer:?}"
            );
        }
    }
}
