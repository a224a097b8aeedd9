//! Writing to a disk through an NBD server, such as qemu-nbd, which knows the disk's format.
//!
//! One thread writes, with several requests in flight.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use diffcache_nbd::negotiation::choose;
use diffcache_nbd::protocol::{Command, Reply, Request};

use crate::error::{Result, VersionsError};
use crate::restore::in_place::Writer;

const MAX_ZEROES: u64 = 1 << 30;
/// Requests without a reply; what a server answers to them fits into the socket's buffer.
const IN_FLIGHT: usize = 16;
const TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to an NBD server.
pub struct NbdDisk {
    stream: UnixStream,
    next: u64,
    /// What the requests without a reply are, by their cookies.
    in_flight: HashMap<u64, (Command, u64)>,
}

fn failed(error: io::Error) -> VersionsError {
    let reason = match error.kind() {
        // This is no server, or it refuses the export.
        io::ErrorKind::InvalidData | io::ErrorKind::NotFound => return refused(&error.to_string()),
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
    VersionsError::Invalid(format!("the NBD server: {reason}"))
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
        choose(&mut &stream, "").map_err(failed)?;
        Ok(Self {
            stream,
            next: 0,
            in_flight: HashMap::new(),
        })
    }

    fn send(&mut self, command: Command, offset: u64, length: u32, data: &[u8]) -> Result<()> {
        self.next += 1;
        let request = Request {
            command,
            is_durable: false,
            cookie: self.next,
            offset,
            length,
        };
        self.stream
            .write_all(&request.encode())
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
        let reply = Reply::receive(&self.stream).map_err(failed)?;
        let Some((command, offset)) = self.in_flight.remove(&reply.cookie) else {
            return Err(refused("sent a reply to no request"));
        };
        let Err(source) = reply.result() else {
            return Ok(());
        };
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
    use std::io::Read;
    use std::thread::{self, JoinHandle};

    use diffcache_nbd::protocol::{option, reply, IHAVEOPT, NBDMAGIC, OPTION_REPLY, REQUEST_BYTES};

    use super::*;

    fn greeting() -> Vec<u8> {
        [
            NBDMAGIC.to_be_bytes().as_slice(),
            &IHAVEOPT.to_be_bytes(),
            &3u16.to_be_bytes(),
        ]
        .concat()
    }

    fn option_reply(kind: u32, info: &[u8]) -> Vec<u8> {
        [
            OPTION_REPLY.to_be_bytes().as_slice(),
            &option::GO.to_be_bytes(),
            &kind.to_be_bytes(),
            &(info.len() as u32).to_be_bytes(),
            info,
        ]
        .concat()
    }

    /// A server that answers the n-th request with the n-th error; returns the commands.
    fn serve(answer: Vec<u8>, errors: Vec<u32>) -> (UnixStream, JoinHandle<Vec<Command>>) {
        let (client, mut server) = UnixStream::pair().unwrap();
        let job = thread::spawn(move || {
            server.write_all(&answer).unwrap();
            let mut hello = [0; 4 + 8 + 4 + 10];
            if server.read_exact(&mut hello).is_err() {
                return Vec::new();
            }
            let mut seen = Vec::new();
            for error in errors {
                let mut header = [0; REQUEST_BYTES];
                server.read_exact(&mut header).unwrap();
                let request = Request::decode(&header).unwrap();
                if request.command == Command::Write {
                    let mut data = vec![0; request.length as usize];
                    server.read_exact(&mut data).unwrap();
                }
                server.write_all(&request.reply(error).encode()).unwrap();
                seen.push(request.command);
            }
            seen
        });
        (client, job)
    }

    fn accepted() -> Vec<u8> {
        let info = option_reply(reply::INFO, &[0; 12]);
        [greeting(), info, option_reply(reply::ACK, &[])].concat()
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
        let mut expected = vec![Command::Write; 37];
        expected.extend([Command::WriteZeroes, Command::WriteZeroes, Command::Flush]);
        assert_eq!(server.join().unwrap(), expected);
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
            [
                greeting(),
                option_reply(reply::ERR_UNKNOWN, b"unknown export"),
            ]
            .concat(),
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
