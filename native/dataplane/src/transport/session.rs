//! One TLS connection over a blocking socket whose time limits are its user's.

use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags};

/// Bytes taken from the socket at a time: some records at once.
const AHEAD: usize = 128 << 10;
/// Bytes that are encrypted before they are sent.
const CHUNK: usize = 128 << 10;

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The handshake did not end in time.
    #[error("no TLS handshake in time")]
    TimedOut,
    /// The connection ended before the handshake did.
    #[error("the connection ended within the TLS handshake: {0}")]
    Lost(io::Error),
    /// One side does not take the other.
    #[error(transparent)]
    Tls(rustls::Error),
}

impl From<io::Error> for SessionError {
    fn from(error: io::Error) -> SessionError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => SessionError::TimedOut,
            _ => SessionError::Lost(error),
        }
    }
}

/// Both directions of a connection, encrypted.
pub struct Session {
    tls: rustls::Connection,
    ahead: Ahead,
    /// What is read of a file on its way.
    chunk: Vec<u8>,
}

impl Session {
    /// Exchanges identities until both sides have agreed or `deadline` has passed; leaves its own read time-out on the stream.
    pub fn shake_hands(
        tls: rustls::Connection,
        stream: &TcpStream,
        deadline: Instant,
    ) -> Result<Session, SessionError> {
        let mut session = Session {
            tls,
            ahead: Ahead::new(),
            chunk: Vec::new(),
        };
        session.tls.set_buffer_limit(None);
        while session.tls.is_handshaking() {
            session.flush(stream, deadline)?;
            if !session.tls.is_handshaking() {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(SessionError::TimedOut);
            }
            stream.set_read_timeout(Some(left))?;
            if session.ahead.fill(stream)? == 0 {
                return Err(SessionError::Lost(io::ErrorKind::UnexpectedEof.into()));
            }
            if let Err(error) = session.digest() {
                // The peer may want to know why.
                let _ = session.flush(stream, deadline);
                return Err(SessionError::Tls(error));
            }
        }
        session.flush(stream, deadline)?;
        Ok(session)
    }

    /// Reads some bytes after at most one wait for the socket; `WouldBlock` if that brought none for the user. 0 is the end.
    pub fn read(&mut self, stream: &TcpStream, target: &mut [u8]) -> io::Result<usize> {
        match self.tls.reader().read(target) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
            known => return known,
        }
        if self.ahead.is_empty() && self.ahead.fill(stream)? == 0 {
            return Ok(0);
        }
        let digested = self.digest();
        let _ = self.flush(stream, Instant::now() + Duration::from_secs(1));
        digested.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        match self.tls.reader().read(target) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            known => known,
        }
    }

    /// Sends all of `bytes` before `deadline`.
    pub fn write_all(
        &mut self,
        stream: &TcpStream,
        bytes: &[u8],
        deadline: Instant,
    ) -> io::Result<()> {
        for chunk in bytes.chunks(CHUNK) {
            self.tls.writer().write_all(chunk)?;
            self.flush(stream, deadline)?;
        }
        Ok(())
    }

    /// Sends up to `most` bytes of a file from `position` on, before `deadline`; returns how many, 0 at the file's end.
    pub fn send_file(
        &mut self,
        stream: &TcpStream,
        (file, position): (&std::fs::File, u64),
        most: usize,
        deadline: Instant,
    ) -> io::Result<usize> {
        self.chunk.resize(CHUNK, 0);
        let room = most.min(CHUNK);
        let count = retry_on_intr(|| rustix::io::pread(file, &mut self.chunk[..room], position))?;
        self.tls.writer().write_all(&self.chunk[..count])?;
        self.flush(stream, deadline)?;
        Ok(count)
    }

    /// Signals the end of data to the peer.
    pub fn finish(&mut self, stream: &TcpStream, deadline: Instant) -> io::Result<()> {
        self.tls.send_close_notify();
        self.flush(stream, deadline)
    }

    /// Whether bytes were read from the socket that the user has not had.
    pub fn has_input(&mut self) -> bool {
        let pending = self.tls.process_new_packets();
        !self.ahead.is_empty() || pending.is_ok_and(|state| state.plaintext_bytes_to_read() > 0)
    }

    /// Decrypts what was read ahead, as far as the user's reading allows.
    fn digest(&mut self) -> Result<(), rustls::Error> {
        while !self.ahead.is_empty() {
            let taken = self.tls.read_tls(&mut self.ahead);
            let state = self.tls.process_new_packets()?;
            if taken.is_err() || matches!(taken, Ok(0)) || state.plaintext_bytes_to_read() > 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    fn flush(&mut self, stream: &TcpStream, deadline: Instant) -> io::Result<()> {
        while self.tls.wants_write() {
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.tls.write_tls(&mut Outlet(stream))?;
        }
        Ok(())
    }
}

/// Bytes read from the socket and not yet decrypted.
struct Ahead {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Ahead {
    fn new() -> Ahead {
        Ahead {
            bytes: vec![0; AHEAD].into_boxed_slice(),
            start: 0,
            end: 0,
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    fn fill(&mut self, stream: &TcpStream) -> io::Result<usize> {
        let (count, _) =
            retry_on_intr(|| rustix::net::recv(stream, &mut self.bytes[..], RecvFlags::empty()))?;
        (self.start, self.end) = (0, count);
        Ok(count)
    }
}

impl Read for Ahead {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = target.len().min(self.end - self.start);
        target[..count].copy_from_slice(&self.bytes[self.start..self.start + count]);
        self.start += count;
        Ok(count)
    }
}

/// The socket, without the signal that a vanished peer raises.
struct Outlet<'a>(&'a TcpStream);

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = retry_on_intr(|| {
            rustix::net::sendmsg(
                self.0,
                slices,
                &mut SendAncillaryBuffer::default(),
                SendFlags::NOSIGNAL,
            )
        })?;
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
