//! A client of NBD that repeats nothing.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::nbd::protocol::{be32, be64, option, reply, IHAVEOPT, NBDMAGIC};

const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;

/// A connection to an export.
pub struct Client {
    stream: UnixStream,
    sent: u64,
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Connects, and asks for an export without waiting for the answer.
pub fn ask(socket: &Path, export: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    let mut greeting = [0; 18];
    stream.read_exact(&mut greeting)?;
    if be64(&greeting, 0) != NBDMAGIC {
        return Err(invalid());
    }
    let mut asked = Vec::new();
    asked.extend(3_u32.to_be_bytes());
    asked.extend(IHAVEOPT.to_be_bytes());
    asked.extend(option::GO.to_be_bytes());
    asked.extend((export.len() as u32 + 6).to_be_bytes());
    asked.extend((export.len() as u32).to_be_bytes());
    asked.extend(export.as_bytes());
    asked.extend([0; 2]);
    stream.write_all(&asked)?;
    Ok(stream)
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let mut stream = ask(socket, export)?;
        loop {
            let mut head = [0; 20];
            stream.read_exact(&mut head)?;
            let mut data = vec![0; be32(&head, 16) as usize];
            stream.read_exact(&mut data)?;
            match be32(&head, 12) {
                reply::INFO => {}
                reply::ACK => break,
                _ => return Err(invalid()),
            }
        }
        let sent = 0;
        Ok(Self { stream, sent })
    }

    /// Sends a request without waiting for its answer.
    pub fn send(
        &mut self,
        kind: u16,
        (offset, length): (u64, usize),
        data: &[u8],
    ) -> io::Result<()> {
        self.sent += 1;
        let mut request = Vec::new();
        request.extend(REQUEST.to_be_bytes());
        request.extend(0_u16.to_be_bytes());
        request.extend(kind.to_be_bytes());
        request.extend(self.sent.to_be_bytes());
        request.extend(offset.to_be_bytes());
        request.extend((length as u32).to_be_bytes());
        request.extend(data);
        self.stream.write_all(&request)
    }

    /// Waits for the answer to the only request that is under way.
    pub fn receive(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head)?;
        if be32(&head, 0) != REPLY || be64(&head, 8) != self.sent {
            return Err(invalid());
        }
        match be32(&head, 4) {
            0 => {
                let mut data = vec![0; length];
                self.stream.read_exact(&mut data)?;
                Ok(data)
            }
            number => Err(io::Error::from_raw_os_error(number as i32)),
        }
    }

    pub fn read(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.send(0, (offset, length), &[])?;
        self.receive(length)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.send(1, (offset, data.len()), data)?;
        self.receive(0).map(drop)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.send(3, (0, 0), &[])?;
        self.receive(0).map(drop)
    }

    pub fn trim(&mut self, offset: u64, length: usize) -> io::Result<()> {
        self.send(4, (offset, length), &[])?;
        self.receive(0).map(drop)
    }

    pub fn zero(&mut self, offset: u64, length: usize) -> io::Result<()> {
        self.send(6, (offset, length), &[])?;
        self.receive(0).map(drop)
    }
}
