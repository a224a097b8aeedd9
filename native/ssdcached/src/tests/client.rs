//! A client of NBD that repeats nothing.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use diffcache_nbd::negotiation;
use diffcache_nbd::protocol::{Command, Reply, Request};

/// A connection to an export.
pub struct Client {
    stream: UnixStream,
    sent: u64,
}

/// Connects, and asks for an export without waiting for the answer.
pub fn ask(socket: &Path, export: &str) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    negotiation::ask(&mut stream, export)?;
    Ok(stream)
}

impl Client {
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        negotiation::choose(&mut stream, export)?;
        Ok(Self { stream, sent: 0 })
    }

    /// Sends a request without waiting for its answer.
    pub fn send(
        &mut self,
        command: Command,
        (offset, length): (u64, usize),
        data: &[u8],
    ) -> io::Result<()> {
        self.sent += 1;
        let request = Request {
            command,
            is_durable: false,
            cookie: self.sent,
            offset,
            length: length as u32,
        };
        self.stream.write_all(&request.encode())?;
        self.stream.write_all(data)
    }

    /// Waits for the answer to the only request that is under way.
    pub fn receive(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let (number, data) = self.receive_any(|_| length)?;
        assert_eq!(self.sent, number);
        Ok(data)
    }

    /// Waits for the answer to any request, of which each has this length of data. Returns its number,
    /// counted from 1.
    pub fn receive_any(&mut self, length: impl Fn(u64) -> usize) -> io::Result<(u64, Vec<u8>)> {
        let reply = Reply::receive(&self.stream)?;
        reply.result()?;
        let mut data = vec![0; length(reply.cookie)];
        self.stream.read_exact(&mut data)?;
        Ok((reply.cookie, data))
    }

    pub fn read(&mut self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        self.send(Command::Read, (offset, length), &[])?;
        self.receive(length)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.send(Command::Write, (offset, data.len()), data)?;
        self.receive(0).map(drop)
    }

    pub fn flush(&mut self) -> io::Result<()> {
        self.send(Command::Flush, (0, 0), &[])?;
        self.receive(0).map(drop)
    }

    pub fn trim(&mut self, offset: u64, length: usize) -> io::Result<()> {
        self.send(Command::Trim, (offset, length), &[])?;
        self.receive(0).map(drop)
    }

    pub fn zero(&mut self, offset: u64, length: usize) -> io::Result<()> {
        self.send(Command::WriteZeroes, (offset, length), &[])?;
        self.receive(0).map(drop)
    }
}
