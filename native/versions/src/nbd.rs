//! Writing to a disk through an NBD server, such as qemu-nbd, which knows the disk's format.
//!
//! A client of the protocol (NBD's `doc/proto.md`) as far as that takes: fixed newstyle handshake without TLS on a unix socket, simple
//! replies, several requests in flight.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{Result, VersionsError};
use crate::in_place::Writer;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const FLAGS: u16 = 0b11;
const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
/// More than any information about an export that is not asked for.
const MAX_INFO: u32 = 64 << 10;
const MAX_ZEROES: u64 = 1 << 30;
/// Requests without a reply; what a server answers to them fits into the socket's buffer.
const IN_FLIGHT: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy)]
enum Command {
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    WriteZeroes = 6,
}

/// A connection to an NBD server.
pub struct NbdDisk {
    stream: UnixStream,
    next: u64,
    /// What the requests without a reply are, by their cookies.
    in_flight: HashMap<u64, (Command, u64)>,
}

fn failed(error: io::Error) -> VersionsError {
    let reason = match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("no answer within {} seconds", TIMEOUT.as_secs())
        }
        io::ErrorKind::UnexpectedEof => "it closed the connection".to_owned(),
        _ => error.to_string(),
    };
    VersionsError::Unavailable {
        name: "the NBD server".to_owned(),
        reason,
    }
}

fn refused(reason: &str) -> VersionsError {
    VersionsError::Invalid(format!("the NBD server {reason}"))
}

impl NbdDisk {
    /// Opens the default export of the server on a connected socket.
    ///
    /// # Errors
    /// `Unavailable` if the server does not answer; `Invalid` if it is not an NBD server, or refuses the export.
    pub fn open(stream: UnixStream) -> Result<Self> {
        stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(TIMEOUT)))
            .and_then(|()| stream.set_write_timeout(Some(TIMEOUT)))
            .map_err(failed)?;
        let mut disk = Self {
            stream,
            next: 0,
            in_flight: HashMap::new(),
        };
        disk.handshake()?;
        Ok(disk)
    }

    fn receive<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    fn receive_u32(&mut self) -> Result<u32> {
        self.receive().map(u32::from_be_bytes)
    }

    fn receive_u64(&mut self) -> Result<u64> {
        self.receive().map(u64::from_be_bytes)
    }

    fn handshake(&mut self) -> Result<()> {
        if (self.receive_u64()?, self.receive_u64()?) != (MAGIC, OPTION_MAGIC) {
            return Err(refused("does not speak the fixed newstyle protocol"));
        }
        let flags = u16::from_be_bytes(self.receive()?) & FLAGS;
        let mut hello = u32::from(flags).to_be_bytes().to_vec();
        hello.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
        hello.extend_from_slice(&OPT_GO.to_be_bytes());
        // An empty name and no information requests.
        hello.extend_from_slice(&[0, 0, 0, 6, 0, 0, 0, 0, 0, 0]);
        self.stream.write_all(&hello).map_err(failed)?;
        loop {
            let (magic, _option) = (self.receive_u64()?, self.receive_u32()?);
            let (kind, len) = (self.receive_u32()?, self.receive_u32()?);
            if magic != REPLY_MAGIC || len > MAX_INFO {
                return Err(refused("sent an invalid answer"));
            }
            let mut info = vec![0; len as usize];
            self.stream.read_exact(&mut info).map_err(failed)?;
            match kind {
                REP_ACK => return Ok(()),
                REP_INFO => {}
                _ => {
                    return Err(refused(&format!(
                        "refused the export with {kind:#x}: {}",
                        String::from_utf8_lossy(&info)
                    )))
                }
            }
        }
    }

    fn send(&mut self, command: Command, offset: u64, len: u32, data: &[u8]) -> Result<()> {
        self.next += 1;
        let mut header = Vec::with_capacity(28);
        header.extend_from_slice(&REQUEST.to_be_bytes());
        header.extend_from_slice(&0u16.to_be_bytes());
        header.extend_from_slice(&(command as u16).to_be_bytes());
        header.extend_from_slice(&self.next.to_be_bytes());
        header.extend_from_slice(&offset.to_be_bytes());
        header.extend_from_slice(&len.to_be_bytes());
        self.stream
            .write_all(&header)
            .and_then(|()| self.stream.write_all(data))
            .map_err(failed)
    }

    fn request(&mut self, command: Command, offset: u64, len: u32, data: &[u8]) -> Result<()> {
        while self.in_flight.len() >= IN_FLIGHT {
            self.receive_reply()?;
        }
        self.send(command, offset, len, data)?;
        self.in_flight.insert(self.next, (command, offset));
        Ok(())
    }

    fn receive_reply(&mut self) -> Result<()> {
        let (magic, error) = (self.receive_u32()?, self.receive_u32()?);
        let request = self
            .receive_u64()
            .map(|cookie| self.in_flight.remove(&cookie))?;
        let (SIMPLE_REPLY, Some((command, offset))) = (magic, request) else {
            return Err(refused("sent a reply to no request"));
        };
        if error == 0 {
            return Ok(());
        }
        // The protocol's numbers are those of Linux.
        let source = io::Error::from_raw_os_error(error as i32);
        match source.kind() {
            io::ErrorKind::StorageFull => Err(VersionsError::Io {
                name: format!("the NBD server, {command:?} at byte {offset}"),
                source,
            }),
            _ => Err(refused(&format!(
                "could not do {command:?} at byte {offset}: {source}"
            ))),
        }
    }

    fn receive_all(&mut self) -> Result<()> {
        while !self.in_flight.is_empty() {
            self.receive_reply()?;
        }
        Ok(())
    }

    /// Ends the session; the server may close the disk then.
    ///
    /// # Errors
    /// As `write`.
    pub fn disconnect(mut self) -> Result<()> {
        self.receive_all()?;
        self.send(Command::Disconnect, 0, 0, &[])
    }
}

impl Writer for NbdDisk {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let len = u32::try_from(bytes.len());
        let len = len.map_err(|_| refused("takes no writes of that length"))?;
        self.request(Command::Write, offset, len, bytes)
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<()> {
        let mut done = 0;
        while done < len {
            let part = MAX_ZEROES.min(len - done);
            self.request(Command::WriteZeroes, offset + done, part as u32, &[])?;
            done += part;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.receive_all()?;
        self.request(Command::Flush, 0, 0, &[])?;
        self.receive_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread::{self, JoinHandle};

    fn greeting() -> Vec<u8> {
        [
            MAGIC.to_be_bytes().as_slice(),
            &OPTION_MAGIC.to_be_bytes(),
            &3u16.to_be_bytes(),
        ]
        .concat()
    }

    fn option_reply(kind: u32, info: &[u8]) -> Vec<u8> {
        [
            REPLY_MAGIC.to_be_bytes().as_slice(),
            &OPT_GO.to_be_bytes(),
            &kind.to_be_bytes(),
            &(info.len() as u32).to_be_bytes(),
            info,
        ]
        .concat()
    }

    /// A server that answers the n-th request with the n-th error; returns the headers of the requests.
    fn serve(answer: Vec<u8>, errors: Vec<u32>) -> (UnixStream, JoinHandle<Vec<Vec<u8>>>) {
        let (client, mut server) = UnixStream::pair().unwrap();
        let job = thread::spawn(move || {
            server.write_all(&answer).unwrap();
            let mut hello = [0; 4 + 8 + 4 + 10];
            if server.read_exact(&mut hello).is_err() {
                return Vec::new();
            }
            let mut seen = Vec::new();
            for error in errors {
                let mut header = vec![0; 28];
                server.read_exact(&mut header).unwrap();
                if header[7] == Command::Write as u8 {
                    let len = u32::from_be_bytes(header[24..].try_into().unwrap());
                    server.read_exact(&mut vec![0; len as usize]).unwrap();
                }
                let mut reply = SIMPLE_REPLY.to_be_bytes().to_vec();
                reply.extend_from_slice(&error.to_be_bytes());
                reply.extend_from_slice(&header[8..16]);
                server.write_all(&reply).unwrap();
                seen.push(header);
            }
            seen
        });
        (client, job)
    }

    fn accepted() -> Vec<u8> {
        let info = option_reply(REP_INFO, &[0; 12]);
        [greeting(), info, option_reply(REP_ACK, &[])].concat()
    }

    #[test]
    fn requests_are_in_flight_until_a_flush() {
        let (client, server) = serve(accepted(), vec![0; 40]);
        let mut disk = NbdDisk::open(client).unwrap();
        for i in 0..37 {
            disk.write(i * 512, &[7; 512]).unwrap();
        }
        disk.zero(1 << 40, (1 << 30) + 512).unwrap();
        disk.flush().unwrap();
        assert!(disk.in_flight.is_empty());
        let commands: Vec<u8> = server.join().unwrap().iter().map(|each| each[7]).collect();
        assert_eq!(commands, [vec![1; 37], vec![6, 6, 3]].concat());
    }

    #[test]
    fn a_full_filesystem_of_the_server_is_an_error_of_the_system() {
        let (client, server) = serve(accepted(), vec![0, 28]);
        let mut disk = NbdDisk::open(client).unwrap();
        disk.write(0, &[1; 512]).unwrap();
        disk.write(4096, &[1; 512]).unwrap();
        match disk.receive_all() {
            Err(VersionsError::Io { name, source }) => {
                assert!(name.contains("Write at byte 4096"));
                assert_eq!(source.raw_os_error(), Some(28));
            }
            other => panic!("{other:?}"),
        }
        server.join().unwrap();
    }

    #[test]
    fn other_errors_of_the_server_name_the_request() {
        let (client, server) = serve(accepted(), vec![5]);
        let mut disk = NbdDisk::open(client).unwrap();
        disk.zero(512, 4096).unwrap();
        match disk.receive_all() {
            Err(VersionsError::Invalid(text)) => assert!(text.contains("WriteZeroes at byte 512")),
            other => panic!("{other:?}"),
        }
        server.join().unwrap();
    }

    #[test]
    fn what_is_not_a_server_is_refused() {
        for answer in [
            vec![0; 18],
            [greeting(), option_reply((1 << 31) + 6, b"unknown export")].concat(),
            [greeting(), vec![9; 20]].concat(),
        ] {
            let (client, server) = serve(answer, Vec::new());
            assert!(matches!(
                NbdDisk::open(client),
                Err(VersionsError::Invalid(_))
            ));
            server.join().unwrap();
        }
    }

    #[test]
    fn a_server_that_is_gone_is_unavailable() {
        let (client, server) = UnixStream::pair().unwrap();
        drop(server);
        assert!(matches!(
            NbdDisk::open(client),
            Err(VersionsError::Unavailable { .. })
        ));
        let (client, server) = serve(accepted(), vec![0]);
        let mut disk = NbdDisk::open(client).unwrap();
        disk.write(0, &[1; 512]).unwrap();
        server.join().unwrap();
        assert!(matches!(
            disk.flush(),
            Err(VersionsError::Unavailable { .. })
        ));
    }
}
