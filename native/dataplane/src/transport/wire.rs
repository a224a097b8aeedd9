//! A connection between two hosts, in the clear or encrypted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};

use crate::transport::session::Session;

/// A socket, and the session on it if there is one.
pub struct Wire {
    stream: Arc<TcpStream>,
    session: Option<Box<Session>>,
}

impl Wire {
    /// A connection in the clear.
    pub fn plain(stream: Arc<TcpStream>) -> Wire {
        Wire {
            stream,
            session: None,
        }
    }

    /// Encrypts the connection from here on.
    pub fn secure(&mut self, session: Session) {
        self.session = Some(Box::new(session));
    }

    /// The socket.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Reads some bytes within the socket's time-out; 0 is the end.
    pub fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match &mut self.session {
            None => (&*self.stream).read(target),
            Some(session) => session.read(&self.stream, target),
        }
    }

    /// Sends all of `bytes`; each part of them within the socket's time-out, encrypted ones all in `time`.
    pub fn write_all(&mut self, bytes: &[u8], time: Duration) -> io::Result<()> {
        match &mut self.session {
            None => (&*self.stream).write_all(bytes),
            Some(session) => session.write_all(&self.stream, bytes, Instant::now() + time),
        }
    }

    /// Sends the head of a response whose body follows.
    pub fn write_head(&mut self, bytes: &[u8], time: Duration) -> io::Result<()> {
        if self.session.is_some() {
            return self.write_all(bytes, time);
        }
        let mut pending = bytes;
        while !pending.is_empty() {
            let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
            let sent = retry_on_intr(|| rustix::net::send(&*self.stream, pending, flags))?;
            pending = &pending[sent..];
        }
        Ok(())
    }

    /// Sends up to `most` bytes of a file from `position` on and moves that; returns how many, 0 at the file's end.
    ///
    /// In the clear they go from the page cache to the socket by sendfile(2).
    pub fn send_file(
        &mut self,
        file: &File,
        position: &mut u64,
        most: usize,
        time: Duration,
    ) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            let stream = self.stream.as_fd();
            return Ok(retry_on_intr(|| {
                rustix::fs::sendfile(stream, file, Some(position), most)
            })?);
        };
        let deadline = Instant::now() + time;
        let sent = session.send_file(&self.stream, (file, *position), most, deadline)?;
        *position += sent as u64;
        Ok(sent)
    }

    /// Signals the end of data to the peer.
    pub fn finish(&mut self, time: Duration) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            session.finish(&self.stream, Instant::now() + time)?;
        }
        self.stream.shutdown(std::net::Shutdown::Write)
    }

    /// Whether the peer has sent something that was not read yet.
    pub fn has_input(&mut self) -> bool {
        let held = self
            .session
            .as_mut()
            .is_some_and(|session| session.has_input());
        held || matches!(self.peek(), Ok(count) if count > 0)
    }

    /// Whether the connection is open and nothing waits on it.
    pub fn is_quiet(&mut self) -> bool {
        let held = self
            .session
            .as_mut()
            .is_some_and(|session| session.has_input());
        !held && matches!(self.peek(), Err(rustix::io::Errno::AGAIN))
    }

    fn peek(&self) -> rustix::io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&*self.stream, &mut [0; 1][..], flags).map(|(count, _)| count)
    }
}
