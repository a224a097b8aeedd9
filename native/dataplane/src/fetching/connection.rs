//! A connection to a peer as its requester sees it: heads and bodies of responses, and why they end.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::TransferError;
use crate::fetching::minimum_rate::{MinimumRate, TooSlow};
use crate::gate::{Cancel, Gate};
use crate::ids::ObjectKey;
use crate::serving::hints;
use crate::serving::referrals::{self, HostName};
use crate::transport::auth;
use crate::transport::frames;
use crate::transport::session::SessionError;
use crate::transport::tls;
use crate::transport::wire::Wire;

const LONGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// How soon a blocked read notices that it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);
/// How long what was sent may stay unacknowledged until the connection counts as lost.
const UNACKED_TIME: Duration = Duration::from_secs(10);

/// What may end an operation before its time.
#[derive(Clone)]
pub struct Stop {
    handles: Vec<Cancel>,
    gate: Arc<Gate>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Stops with the caller's handle and with the plane.
    pub fn new(cancel: Cancel, gate: Arc<Gate>) -> Stop {
        Stop {
            handles: vec![cancel],
            gate,
            deadline: None,
        }
    }

    /// Stops at a time, too.
    pub fn before(mut self, deadline: Instant) -> Stop {
        self.deadline = Some(deadline);
        self
    }

    /// Stops with another handle too.
    pub fn or(mut self, cancel: Cancel) -> Stop {
        self.handles.push(cancel);
        self
    }

    /// Whether the operation is to end.
    pub fn is_set(&self) -> bool {
        self.gate.is_closed()
            || self.handles.iter().any(Cancel::is_cancelled)
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Fails if the operation on `object` is to end.
    pub fn check(&self, object: ObjectKey) -> Result<(), TransferError> {
        if self.is_set() {
            return Err(TransferError::Cancelled {
                object: object.to_string(),
            });
        }
        Ok(())
    }
}

/// Why an exchange over one connection ended.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The connection is of no more use; a fresh one may be.
    #[error("{0}")]
    Broken(String),
    /// The peer sends too little; another connection would not change that.
    #[error("{reason}")]
    Slow {
        /// How slow it is.
        reason: String,
        /// Whether the object is still arriving there.
        arriving: bool,
    },
    /// The peer cannot be connected to at all.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// One side does not take the other's certificate, or only one speaks TLS.
    #[error("{0}")]
    Untrusted(String),
    /// The caller or the plane ended the operation.
    #[error("stopped")]
    Stopped,
    /// The peer is busy, and names another one.
    #[error("it referred a request to another host, and was not asked to")]
    Referred(Box<Referral>),
    /// Anything that another connection would not change.
    #[error(transparent)]
    Final(#[from] TransferError),
}

/// The host that a busy peer names. Nothing of it is checked.
#[derive(Debug, PartialEq, Eq)]
pub struct Referral {
    /// Name of the host.
    pub to: HostName,
    /// What the peer knows of the image, if it was asked for that.
    pub hints: Option<String>,
}

impl Fault {
    /// A connection that failed, or a peer that was not trusted over it.
    pub fn broken(context: &str, error: &io::Error) -> Fault {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(error) => Fault::Untrusted(tls::describe(error)),
            None => Fault::Broken(format!("{context}: {error}")),
        }
    }
}

impl From<SessionError> for Fault {
    fn from(error: SessionError) -> Fault {
        match error {
            SessionError::Tls(error) => Fault::Untrusted(tls::describe(&error)),
            SessionError::TimedOut | SessionError::Lost(_) => Fault::Unreachable(error.to_string()),
        }
    }
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// Length of the body in bytes.
    pub length: u64,
    /// Start, end and the object's whole size, of a partial response.
    pub range: Option<(u64, u64, u64)>,
    /// The peer's boot.
    pub boot: Option<String>,
    /// Whether the object is still arriving there.
    pub arriving: bool,
    /// Whether the body is in frames, one for each chunk; `length` is 0 then.
    pub framed: bool,
    /// What the peer knows of the image, if it was asked for that; not checked.
    pub hints: Option<String>,
    /// Another host that the peer names, if it is busy.
    pub referred: Option<HostName>,
}

/// A connection to a peer and the bytes read ahead on it.
pub struct Connection {
    /// The socket, and its encryption.
    pub(crate) wire: Wire,
    timeout: Duration,
    pace: Option<MinimumRate>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    reusable: bool,
    /// A response was read over it, so that its silence may be that of a forgotten connection.
    proven: bool,
    /// The object of the response is still arriving at the peer.
    arriving: bool,
}

impl Connection {
    /// A connection over a socket, to a peer that has `timeout` for each answer.
    pub fn new(stream: TcpStream, timeout: Duration) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(timeout))?;
        let unacked = UNACKED_TIME.min(timeout).as_millis() as u32;
        rustix::net::sockopt::set_tcp_user_timeout(&stream, unacked)?;
        let connection = Connection {
            wire: Wire::plain(Arc::new(stream)),
            timeout,
            pace: None,
            buffer: vec![0; LONGEST_HEAD].into_boxed_slice(),
            start: 0,
            end: 0,
            reusable: true,
            proven: false,
            arriving: false,
        };
        connection.set_read_timeout()?;
        Ok(connection)
    }

    /// Has reads return soon, so that a request to stop is noticed.
    pub(crate) fn set_read_timeout(&self) -> io::Result<()> {
        let time = STOP_INTERVAL.min(self.timeout);
        self.wire.stream().set_read_timeout(Some(time))
    }

    /// Limits what the peer can send ahead of the reader, for a transfer that reads slowly on purpose.
    pub fn limit_ahead(&mut self, bytes: usize) -> io::Result<()> {
        self.reusable = false;
        rustix::net::sockopt::set_socket_recv_buffer_size(self.wire.stream(), bytes)?;
        Ok(())
    }

    /// Take silence for the peer's, and not for that of a forgotten connection, until a response was read.
    pub(crate) fn expect_first_answer(&mut self) {
        self.proven = false;
    }

    /// Whether another request may follow.
    pub fn is_reusable(&self) -> bool {
        self.reusable
    }

    /// Have no other request follow.
    pub(crate) fn end_after_this(&mut self) {
        self.reusable = false;
    }

    /// Whether it may be kept for others: its last response was read to the end.
    pub fn is_finished(&self) -> bool {
        self.reusable && self.start == self.end
    }

    /// Expects nothing of the next body yet.
    pub fn rest(&mut self) {
        self.pace = None;
    }

    /// Expects a body to arrive at no less than this rate.
    pub fn expect(&mut self, pace: MinimumRate) {
        self.pace = Some(pace);
    }

    /// Whether it is open and nothing waits on it.
    pub fn is_quiet(&mut self) -> bool {
        self.wire.is_quiet()
    }

    /// Reads some bytes of a body; an early end of the stream is a fault.
    pub fn read(&mut self, target: &mut [u8], stop: &Stop) -> Result<usize, Fault> {
        if self.start < self.end {
            let count = target.len().min(self.end - self.start);
            target[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
            self.start += count;
            return Ok(count);
        }
        let begun = Instant::now();
        let mut pace = self.pace.take();
        let outcome = loop {
            let waited = begun.elapsed();
            if let Some(Err(slow)) = pace.as_ref().map(|pace| pace.judge_wait(waited)) {
                break Err(self.too_slow(slow));
            }
            match self.poll(target, stop) {
                Ok(0) if waited >= self.timeout => break Err(self.silent()),
                Ok(0) => {}
                Ok(count) => {
                    let judged = pace.as_mut().map(|pace| pace.note(count, begun.elapsed()));
                    break match judged {
                        Some(Err(slow)) => Err(self.too_slow(slow)),
                        _ => Ok(count),
                    };
                }
                Err(fault) => break Err(fault),
            }
        };
        self.pace = pace;
        outcome
    }

    /// Reads some bytes after a short wait, so that a request to stop is noticed; 0 if none came.
    fn poll(&mut self, target: &mut [u8], stop: &Stop) -> Result<usize, Fault> {
        if stop.is_set() {
            return Err(Fault::Stopped);
        }
        match self.wire.read(target) {
            Ok(0) => Err(Fault::Broken("it closed the connection".to_owned())),
            Ok(count) => Ok(count),
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted
                | io::ErrorKind::WouldBlock
                | io::ErrorKind::TimedOut => Ok(0),
                _ => Err(Fault::broken("connection lost", &error)),
            },
        }
    }

    /// The fault of a peer that is too slow.
    pub fn too_slow(&self, slow: TooSlow) -> Fault {
        let seconds = slow.waited.as_secs_f64();
        Fault::Slow {
            reason: format!(
                "it sent {} bytes in {seconds:.0} s, less than the {:.0} B/s that are expected",
                slow.bytes, slow.floor
            ),
            arriving: self.arriving,
        }
    }

    /// A peer that sends nothing, or its connection, which may have been forgotten on the way.
    fn silent(&self) -> Fault {
        let reason = format!("no answer came within {} s", self.timeout.as_secs_f64());
        match self.proven {
            true => Fault::Broken(reason),
            false => Fault::Slow {
                reason,
                arriving: true,
            },
        }
    }

    /// Fills `target` from a body; `progress` counts what came even if the rest does not.
    pub fn read_full(
        &mut self,
        target: &mut [u8],
        progress: &mut usize,
        stop: &Stop,
    ) -> Result<(), Fault> {
        while *progress < target.len() {
            *progress += self.read(&mut target[*progress..], stop)?;
        }
        Ok(())
    }

    /// Reads a body of this many bytes.
    pub fn read_whole(&mut self, length: u64, stop: &Stop) -> Result<Vec<u8>, Fault> {
        let mut body = vec![0; length as usize];
        self.read_full(&mut body, &mut 0, stop)?;
        Ok(body)
    }

    /// Reads the head of the next response.
    pub fn read_head(&mut self, stop: &Stop) -> Result<Head, Fault> {
        let begun = Instant::now();
        loop {
            if let Some((head, length)) =
                parse_head(&self.buffer[self.start..self.end], &mut self.reusable)?
            {
                self.start += length;
                self.arriving = head.arriving;
                self.proven = true;
                self.judge_head(length, begun.elapsed())?;
                return Ok(head);
            }
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.end == self.buffer.len() {
                return Err(Fault::Broken(
                    "the head of its response is too long".to_owned(),
                ));
            }
            // All of it has to come in time, not just something.
            if begun.elapsed() >= self.timeout {
                return Err(self.silent());
            }
            self.end += self.poll_head(stop)?;
        }
    }

    fn judge_head(&mut self, length: usize, waited: Duration) -> Result<(), Fault> {
        let Some(pace) = &mut self.pace else {
            return Ok(());
        };
        pace.set_arriving(self.arriving);
        let judged = pace.note(length, waited);
        judged.map_err(|slow| self.too_slow(slow))
    }

    fn poll_head(&mut self, stop: &Stop) -> Result<usize, Fault> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let polled = self.poll(&mut buffer[self.end..], stop);
        self.buffer = buffer;
        polled
    }
}

/// Parses the head at the start of `bytes`, and clears `reusable` if the peer closes the connection; `None` if more is needed.
pub fn parse_head(bytes: &[u8], reusable: &mut bool) -> Result<Option<(Head, usize)>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let broken = |what: &str| Fault::Broken(format!("its response is malformed: {what}"));
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(broken(&error.to_string())),
    };
    let mut head = Head {
        status: response.code.unwrap_or(0),
        length: 0,
        range: None,
        boot: None,
        arriving: false,
        framed: false,
        hints: None,
        referred: None,
    };
    let (mut length_given, mut chunked) = (false, false);
    for header in response.headers.iter() {
        if header.name.eq_ignore_ascii_case(hints::HINTS) {
            // Whatever it is, the body is taken.
            head.hints = Some(String::from_utf8_lossy(header.value).into_owned());
            continue;
        }
        let text = std::str::from_utf8(header.value).map_err(|_| broken("a header is not text"))?;
        match header.name.to_ascii_lowercase().as_str() {
            "content-length" => {
                head.length = text.parse().map_err(|_| broken("Content-Length"))?;
                length_given = true;
            }
            "content-range" => {
                head.range = Some(parse_content_range(text).ok_or_else(|| broken("Content-Range"))?)
            }
            "x-diffcache-boot" if auth::is_boot(text) => head.boot = Some(text.to_owned()),
            "x-diffcache-state" => head.arriving = text == "arriving",
            "transfer-encoding" if text == "chunked" => chunked = true,
            "transfer-encoding" => return Err(broken("a transfer coding was not asked for")),
            "x-diffcache-coding" if text == frames::CODING => head.framed = true,
            "x-diffcache-coding" => return Err(broken("a coding was not asked for")),
            name if name.eq_ignore_ascii_case(referrals::HEADER) => {
                head.referred = HostName::parse(text);
            }
            "connection" => *reusable &= !text.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if chunked != head.framed {
        return Err(broken("it is in chunks or in frames, and not in both"));
    }
    if length_given == chunked {
        return Err(broken("not one of Content-Length and chunks"));
    }
    Ok(Some((head, length)))
}

/// `bytes a-b/size` as (a, b + 1, size); units are in any case.
fn parse_content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (unit, span) = text.split_once(' ')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (range, size) = span.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((first.parse().ok()?, end, size.parse().ok()?))
        .filter(|(start, end, size)| start < end && end <= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_responses_are_read_strictly() {
        let mut reusable = true;
        let text =
            b"HTTP/1.1 206 OK\r\nContent-Length: 3\r\nContent-Range: Bytes 2-4/10\r\n\r\nabc";
        let (head, length) = parse_head(text, &mut reusable).unwrap().unwrap();
        assert_eq!(
            (head.status, head.length, head.range),
            (206, 3, Some((2, 5, 10)))
        );
        assert_eq!(&text[length..], b"abc");
        assert!(reusable);
        assert!(parse_head(&text[..20], &mut reusable).unwrap().is_none());
        for bad in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 206 OK\r\nContent-Length: 1\r\nContent-Range: bytes 5-4/10\r\n\r\n",
            "HTTP/1.1 206 OK\r\nContent-Length: 1\r\nContent-Range: bytes 5-10/10\r\n\r\n",
            "nonsense\r\n\r\n",
        ] {
            assert!(parse_head(bad.as_bytes(), &mut reusable).is_err(), "{bad}");
        }
        let hinted = b"HTTP/1.1 200 X\r\nContent-Length: 0\r\nX-DiffCache-Hints: a\xff\r\n\r\n";
        let (head, _) = parse_head(hinted, &mut reusable).unwrap().unwrap();
        assert_eq!(head.hints.as_deref(), Some("a\u{fffd}"));
        let close = b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert!(parse_head(close, &mut reusable).unwrap().is_some());
        assert!(!reusable);
    }
}
