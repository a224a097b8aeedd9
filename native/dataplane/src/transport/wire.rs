//! A connection between two hosts, in the clear or encrypted.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::retry_on_intr;
use rustix::net::{RecvFlags, SendFlags};

use crate::transport::session::Session;

/// How often the bytes are counted that a peer has not acknowledged.
const TAKEN_STEP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 1_000_000,
};

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

    /// Waits until the peer has all that was sent, sends something itself, is gone or `time` is over.
    pub fn wait_until_taken(&mut self, time: Duration) {
        let deadline = Instant::now() + time;
        while self.unsent() > 0 && self.is_quiet() && Instant::now() < deadline {
            let mut events = [PollFd::new(&self.stream, PollFlags::IN)];
            // It ends early when the peer sends something or is gone, which is noticed above.
            let _ = rustix::event::poll(&mut events, Some(&TAKEN_STEP));
        }
    }

    /// Bytes that were sent and that the peer has not acknowledged.
    fn unsent(&self) -> libc::c_int {
        let mut count = 0;
        // SAFETY: SIOCOUTQ, which is TIOCOUTQ, writes one int to the address that it is given.
        let done = unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::TIOCOUTQ, &mut count) };
        match done {
            0 => count,
            _ => 0,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const HOUR: Duration = Duration::from_secs(3600);

    /// A connection on which as much was sent as its peer's kernel takes, and more.
    fn full() -> (Wire, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        while (&stream).write(&[0; 65536]).is_ok() {}
        stream.set_nonblocking(false).unwrap();
        (Wire::plain(Arc::new(stream)), peer)
    }

    #[test]
    fn what_was_sent_is_waited_for_until_the_peer_has_it() {
        let (mut wire, mut peer) = full();
        assert!(wire.unsent() > 0);
        wire.wait_until_taken(Duration::ZERO);
        assert!(wire.unsent() > 0);
        let reader = std::thread::spawn(move || io::copy(&mut peer, &mut io::sink()));
        wire.wait_until_taken(HOUR);
        assert_eq!(wire.unsent(), 0);
        drop(wire);
        reader.join().unwrap().unwrap();
    }

    #[test]
    fn a_peer_that_sends_something_or_is_gone_is_not_waited_for() {
        let (mut wire, mut peer) = full();
        peer.write_all(b"G").unwrap();
        wire.wait_until_taken(HOUR);
        let (mut wire, peer) = full();
        drop(peer);
        wire.wait_until_taken(HOUR);
    }
}
