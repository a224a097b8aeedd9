//! The asking side: peers, pooled connections, signed requests and their responses.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use crate::auth::{self, Destination, Keys, OldSignatures, Signed};
use crate::counters::Counters;
use crate::error::TransferError;
use crate::gate::{lock, Cancel, Gate};
use crate::ids::{Kind, ObjectKey};
use crate::pace::{Floors, Pace, TooSlow};
use crate::server::{self, ErrorBody};
use crate::session::SessionError;
use crate::standing::Offence;
use crate::tls::{self, Tls};
use crate::wire::Wire;

const LONGEST_HEAD: usize = 16 << 10;
const LONGEST_ERROR: u64 = 64 << 10;
const MOST_HEADERS: usize = 64;
/// Idle connections kept per peer, and for how long: less than servers keep them.
const MOST_IDLE: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How soon a blocked read notices that it is to stop.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

const PLAIN: &str = "http://";
const SECURE: &str = "https://";

/// A peer's data plane: `http://host:port`, or `https://host:port` if it speaks TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    secure: bool,
    authority: String,
}

impl Peer {
    /// Parses a base URL; a trailing slash is taken, a path is not.
    pub fn parse(url: &str) -> Result<Peer, TransferError> {
        let invalid = || {
            TransferError::Invalid(format!(
                "'{url}' is not the URL of a data plane; it is http://host:port or https://host:port"
            ))
        };
        let secure = url.starts_with(SECURE);
        let scheme = if secure { SECURE } else { PLAIN };
        let authority = url.strip_prefix(scheme).ok_or_else(invalid)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = authority.rsplit_once(':').ok_or_else(invalid)?;
        let bracketed = host.starts_with('[') && host.ends_with(']');
        let plain = host
            .bytes()
            .all(|c| c.is_ascii_alphanumeric() || b".-_".contains(&c));
        let port_given = port.parse::<u16>().is_ok_and(|port| port > 0);
        if host.is_empty() || !(plain || bracketed) || !port_given {
            return Err(invalid());
        }
        Ok(Peer {
            secure,
            authority: authority.to_owned(),
        })
    }

    /// Whether the peer announces that it speaks TLS.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// Host and port, as they stand in the URL.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The name or address under which it is reached.
    fn host(&self) -> &str {
        self.authority
            .rsplit_once(':')
            .map_or(&self.authority, |(host, _)| host)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { SECURE } else { PLAIN };
        write!(f, "{scheme}{}", self.authority)
    }
}

/// What may end an operation before its time.
#[derive(Clone)]
pub struct Stop {
    handles: Vec<Cancel>,
    gate: Arc<Gate>,
}

impl Stop {
    /// Stops with the caller's handle and with the plane.
    pub fn new(cancel: Cancel, gate: Arc<Gate>) -> Stop {
        let handles = vec![cancel];
        Stop { handles, gate }
    }

    /// Stops with another handle too.
    pub fn or(mut self, cancel: Cancel) -> Stop {
        self.handles.push(cancel);
        self
    }

    /// Whether the operation is to end.
    pub fn is_set(&self) -> bool {
        self.gate.is_closed() || self.handles.iter().any(Cancel::is_cancelled)
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
    /// Anything that another connection would not change.
    #[error(transparent)]
    Final(#[from] TransferError),
}

impl Fault {
    fn broken(context: &str, error: &io::Error) -> Fault {
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

/// One object at one peer: whom to ask for what, and how errors call it.
#[derive(Clone)]
pub struct Remote {
    /// The peer.
    pub peer: Peer,
    /// The object.
    pub key: ObjectKey,
}

impl Remote {
    /// Turns the end of the last attempt into the caller's error.
    pub fn error(&self, fault: Fault) -> TransferError {
        match fault {
            Fault::Final(error) => error,
            Fault::Stopped => TransferError::Cancelled {
                object: self.key.to_string(),
            },
            Fault::Broken(_) | Fault::Unreachable(_) => self.unavailable(fault.to_string()),
            Fault::Slow { reason, arriving } => TransferError::PeerSlow {
                peer: self.peer.to_string(),
                object: self.key.to_string(),
                reason,
                arriving,
            },
            Fault::Untrusted(reason) => self.untrusted(reason),
        }
    }

    fn untrusted(&self, reason: String) -> TransferError {
        TransferError::PeerUntrusted {
            peer: self.peer.to_string(),
            object: self.key.to_string(),
            reason,
        }
    }

    /// Returns the error that the peer is unavailable, for the given reason.
    pub fn unavailable(&self, reason: String) -> TransferError {
        TransferError::PeerUnavailable {
            peer: self.peer.to_string(),
            object: self.key.to_string(),
            reason,
        }
    }

    /// The peer's copy is not what it ought to be.
    pub fn corrupt(&self, reason: &str) -> TransferError {
        TransferError::Integrity {
            object: format!("{} from {}", self.key, self.peer),
            reason: reason.to_owned(),
            blame: Some((self.peer.to_string(), Offence::Lie)),
        }
    }
}

/// How long a peer is taken for one of an earlier release until it is asked again.
const OLD_TIME: Duration = Duration::from_secs(60);

/// What a peer's signatures have to name.
#[derive(Clone)]
enum Signing {
    /// The peer's present boot.
    Boot(String),
    /// Nothing: it is of an earlier release, or was when it was asked last.
    Old(Instant),
}

/// Makes signed requests over pooled connections.
pub struct Client {
    keys: RwLock<Option<Keys>>,
    old: OldSignatures,
    tls: Option<Arc<Tls>>,
    timeout: Duration,
    floors: RwLock<Floors>,
    counters: Arc<Counters>,
    boots: Mutex<HashMap<Peer, Signing>>,
    pool: Mutex<HashMap<Peer, Vec<(Connection, Instant)>>>,
}

/// A request's variable parts.
pub struct Ask<'a> {
    /// The method.
    pub method: &'a str,
    /// The target.
    pub path: &'a str,
    /// Bytes `start..end`, if not all.
    pub range: Option<(u64, u64)>,
    /// The body, mostly empty.
    pub body: &'a [u8],
    /// For how many seconds the asking side may come back for more.
    pub hold: u64,
}

impl Client {
    /// A client that signs with the first of `keys` and gives a peer `timeout` to send anything at all.
    pub fn new(keys: Option<Keys>, timeout: Duration, counters: Arc<Counters>) -> Client {
        Client {
            keys: RwLock::new(keys),
            old: OldSignatures::Tolerated,
            tls: None,
            timeout,
            floors: RwLock::default(),
            counters,
            boots: Mutex::default(),
            pool: Mutex::default(),
        }
    }

    /// Signs for peers of earlier releases as they do, or not at all.
    pub fn with_old_signatures(mut self, old: OldSignatures) -> Client {
        self.old = old;
        self
    }

    /// Replaces the keys, for the requests to come.
    pub fn set_keys(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Some(keys);
    }

    /// Replaces the slowest rates that are put up with.
    pub fn set_floors(&self, floors: Floors) {
        *self.floors.write().unwrap_or_else(PoisonError::into_inner) = floors;
    }

    /// The slowest rates that are put up with.
    pub fn floors(&self) -> Floors {
        *self.floors.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks by TLS: always, or those who announce it if `tls` tolerates others.
    pub fn with_tls(mut self, tls: Option<Arc<Tls>>) -> Client {
        self.tls = tls;
        self
    }

    /// A connection that was used before and is still open, else a fresh one.
    pub fn connection(&self, peer: &Peer, stop: &Stop) -> Result<Connection, Fault> {
        while let Some((mut connection, since)) = lock(&self.pool).get_mut(peer).and_then(Vec::pop)
        {
            if since.elapsed() < IDLE_TIME && connection.is_quiet() {
                return Ok(connection);
            }
        }
        self.fresh(peer, stop)
    }

    /// A new connection, to a peer whose boot is known.
    pub fn fresh(&self, peer: &Peer, stop: &Stop) -> Result<Connection, Fault> {
        let mut connection = self.connect(peer)?;
        self.introduce(&mut connection, peer, stop)?;
        Ok(connection)
    }

    /// A new connection after another one broke, perhaps because the peer was restarted.
    pub fn renewed(&self, peer: &Peer, stop: &Stop) -> Result<Connection, Fault> {
        lock(&self.boots).remove(peer);
        self.fresh(peer, stop)
    }

    fn connect(&self, peer: &Peer) -> Result<Connection, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.to_string());
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in peer.authority.to_socket_addrs().map_err(unreachable)? {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT.min(self.timeout)) {
                Ok(stream) => return self.begin(peer, stream),
                Err(error) => last = error,
            }
        }
        Err(unreachable(last))
    }

    /// Learns the peer's boot, which signatures have to name, unless it is known.
    fn introduce(
        &self,
        connection: &mut Connection,
        peer: &Peer,
        stop: &Stop,
    ) -> Result<(), Fault> {
        if self.signing(peer).is_some() || self.key_name().is_none() {
            return Ok(());
        }
        let ask = Ask {
            method: "HEAD",
            path: "/v1/health",
            range: None,
            body: b"",
            hold: 0,
        };
        self.send_to(connection, peer, &ask)?;
        let head = connection.read_head(stop)?;
        if head.status == 426 {
            return Err(Fault::Untrusted(server::ASK_BY_TLS.to_owned()));
        }
        if !connection.reusable {
            *connection = self.connect(peer)?;
        }
        let signing = match head.boot {
            Some(boot) => Signing::Boot(boot),
            // What else is wrong the request itself will tell.
            None => Signing::Old(Instant::now()),
        };
        lock(&self.boots).insert(peer.clone(), signing);
        Ok(())
    }

    fn signing(&self, peer: &Peer) -> Option<Signing> {
        let known = lock(&self.boots).get(peer).cloned()?;
        match known {
            Signing::Old(since) if since.elapsed() > OLD_TIME => None,
            known => Some(known),
        }
    }

    fn key_name(&self) -> Option<String> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.as_ref().map(|keys| keys.signing.name().to_owned())
    }

    fn begin(&self, peer: &Peer, stream: TcpStream) -> Result<Connection, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.to_string());
        let mut connection = Connection::new(stream, self.timeout).map_err(unreachable)?;
        match &self.tls {
            None if peer.secure => Err(Fault::Untrusted(
                "it speaks TLS and this host does not; set tls_ca_file, tls_cert_file and tls_key_file"
                    .to_owned(),
            )),
            Some(tls) if peer.secure || !tls.tolerates_plain() => {
                let deadline = Instant::now() + HANDSHAKE_TIMEOUT.min(self.timeout);
                let stream = connection.wire.stream();
                let session = tls.connect(peer.host(), stream, deadline)?;
                connection.wire.secure(session);
                connection.set_read_timeout().map_err(unreachable)?;
                Ok(connection)
            }
            _ => Ok(connection),
        }
    }

    /// Takes back a connection whose last response was read to its end.
    pub fn keep(&self, peer: &Peer, mut connection: Connection) {
        connection.pace = None;
        if !connection.reusable || connection.start < connection.end {
            return;
        }
        let mut pool = lock(&self.pool);
        pool.retain(|_, idle| {
            idle.retain(|(_, since)| since.elapsed() < IDLE_TIME);
            !idle.is_empty()
        });
        let idle = pool.entry(peer.clone()).or_default();
        if idle.len() < MOST_IDLE {
            idle.push((connection, Instant::now()));
        }
    }

    /// Closes idle connections.
    pub fn close(&self) {
        lock(&self.pool).clear();
    }

    /// Sends a request; its response comes after those of earlier requests on the same connection.
    pub fn send(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        ask: &Ask<'_>,
    ) -> Result<(), Fault> {
        self.send_to(connection, &remote.peer, ask)
    }

    fn send_to(
        &self,
        connection: &mut Connection,
        peer: &Peer,
        ask: &Ask<'_>,
    ) -> Result<(), Fault> {
        let range = ask
            .range
            .map(|(start, end)| format!("bytes={start}-{}", end - 1))
            .unwrap_or_default();
        let mut message = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            ask.method, ask.path, peer.authority
        );
        if ask.hold > 0 {
            message.push_str(&format!("X-DiffCache-Hold: {}\r\n", ask.hold));
        }
        if !range.is_empty() {
            message.push_str(&format!("Range: {range}\r\n"));
        }
        if !ask.body.is_empty() {
            message.push_str(&format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                ask.body.len()
            ));
        }
        if let Some(credentials) = self.credentials(peer, ask, &range)? {
            message.push_str(&format!("Authorization: {credentials}\r\n"));
        }
        message.push_str("\r\n");
        let mut bytes = message.into_bytes();
        bytes.extend_from_slice(ask.body);
        let sent = connection.wire.write_all(&bytes, self.timeout);
        sent.map_err(|error| Fault::broken("cannot send", &error))
    }

    fn credentials(
        &self,
        peer: &Peer,
        ask: &Ask<'_>,
        range: &str,
    ) -> Result<Option<String>, Fault> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        let Some(keys) = &*keys else {
            return Ok(None);
        };
        let signed = Signed {
            method: ask.method,
            path: ask.path,
            range,
            body: ask.body,
        };
        let nonce =
            auth::fresh_nonce().map_err(|error| Fault::broken("no random numbers", &error))?;
        let to = |boot| Destination {
            authority: &peer.authority,
            boot,
        };
        let signing = self.signing(peer);
        let to = match &signing {
            Some(Signing::Boot(boot)) => Some(to(boot)),
            Some(Signing::Old(_)) if self.old == OldSignatures::Tolerated => None,
            Some(Signing::Old(_)) | None => Some(to(auth::NO_BOOT)),
        };
        let now = auth::unix_now();
        Ok(Some(keys.signing.authorization(&signed, to, now, &nonce)))
    }

    /// Reads the head of a response; a peer that was restarted meanwhile is asked again over a new connection.
    fn read_head(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        stop: &Stop,
    ) -> Result<Head, Fault> {
        let head = connection.read_head(stop)?;
        let Some(boot) = head.boot.as_ref().filter(|_| head.status == 401) else {
            return Ok(head);
        };
        let known = self.signing(&remote.peer);
        let current = matches!(&known, Some(Signing::Boot(known)) if known == boot);
        if current || self.key_name().is_none() {
            return Ok(head);
        }
        let signing = Signing::Boot(boot.clone());
        lock(&self.boots).insert(remote.peer.clone(), signing);
        Err(Fault::Broken("it was restarted".to_owned()))
    }

    /// Reads the head of a response and turns every status but success into an error.
    pub fn receive(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        stop: &Stop,
    ) -> Result<Head, Fault> {
        let head = self.read_head(connection, remote, stop)?;
        if (200..300).contains(&head.status) {
            return Ok(head);
        }
        let body = connection.read_whole(head.length.min(LONGEST_ERROR), stop)?;
        let answer: Option<ErrorBody> = serde_json::from_slice(&body).ok();
        let reason = answer.map_or_else(|| "no reason given".to_owned(), |answer| answer.error);
        Err(Fault::Final(self.refusal(remote, head.status, reason)))
    }

    /// Reads the response to a HEAD request, which has no body whatever its head says.
    pub fn receive_bodiless(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        stop: &Stop,
    ) -> Result<Head, Fault> {
        let head = self.read_head(connection, remote, stop)?;
        if (200..300).contains(&head.status) {
            return Ok(head);
        }
        let reason = "it was only asked for the object's size".to_owned();
        Err(Fault::Final(self.refusal(remote, head.status, reason)))
    }

    fn refusal(&self, remote: &Remote, status: u16, reason: String) -> TransferError {
        let (peer, object) = (remote.peer.to_string(), remote.key.to_string());
        match status {
            401 | 403 => TransferError::PeerRefused {
                peer,
                object,
                key_name: self.key_name().unwrap_or_else(|| "(none)".to_owned()),
                reason,
            },
            404 => TransferError::ObjectMissing { peer, object },
            426 => remote.untrusted(reason),
            416 => remote.corrupt("its copy there has another size"),
            _ => remote.unavailable(format!("{reason} (status {status})")),
        }
    }

    /// Asks for bytes of an object and checks that the response is about exactly those.
    pub fn receive_range(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        range: (u64, u64),
        stop: &Stop,
    ) -> Result<Head, Fault> {
        let head = self.receive(connection, remote, stop)?;
        match head.range {
            Some((start, end, _)) if (start, end) == range && head.length == end - start => {
                Ok(head)
            }
            // A range is cut where the object ends.
            Some((_, end, size)) if end == size && end < range.1 => {
                Err(remote.corrupt("its copy there has another size").into())
            }
            _ => Err(remote
                .unavailable("it answered another range than was asked for".to_owned())
                .into()),
        }
    }

    /// Counts body bytes that came.
    pub fn count(&self, kind: Kind, bytes: usize) {
        self.counters.add_received(kind, bytes as u64);
    }

    /// One small exchange whose response fits in memory; tried again on a fresh connection if the first breaks.
    pub fn exchange(
        &self,
        remote: &Remote,
        ask: &Ask<'_>,
        stop: &Stop,
    ) -> Result<(Head, Vec<u8>), TransferError> {
        let once = |connection: &mut Connection| {
            self.send(connection, remote, ask)?;
            if ask.method == "HEAD" {
                let head = self.receive_bodiless(connection, remote, stop)?;
                return Ok((head, Vec::new()));
            }
            let head = self.receive(connection, remote, stop)?;
            if head.length > LONGEST_ERROR {
                return Err(Fault::Broken("the response is too long".to_owned()));
            }
            let body = connection.read_whole(head.length, stop)?;
            Ok((head, body))
        };
        let mut connection = self
            .connection(&remote.peer, stop)
            .map_err(|fault| remote.error(fault))?;
        let mut outcome = once(&mut connection);
        if let Err(Fault::Broken(_)) = outcome {
            connection = self
                .renewed(&remote.peer, stop)
                .map_err(|fault| remote.error(fault))?;
            outcome = once(&mut connection);
        }
        if outcome.is_ok() {
            self.keep(&remote.peer, connection);
        }
        outcome.map_err(|fault| remote.error(fault))
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
}

/// A connection to a peer and the bytes read ahead on it.
pub struct Connection {
    wire: Wire,
    timeout: Duration,
    pace: Option<Pace>,
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
    fn new(stream: TcpStream, timeout: Duration) -> io::Result<Connection> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(timeout))?;
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
    fn set_read_timeout(&self) -> io::Result<()> {
        let time = STOP_INTERVAL.min(self.timeout);
        self.wire.stream().set_read_timeout(Some(time))
    }

    /// Limits what the peer can send ahead of the reader, for a transfer that reads slowly on purpose.
    pub fn limit_ahead(&mut self, bytes: usize) -> io::Result<()> {
        self.reusable = false;
        rustix::net::sockopt::set_socket_recv_buffer_size(self.wire.stream(), bytes)?;
        Ok(())
    }

    /// Expects a body to come at this pace.
    pub fn expect(&mut self, pace: Pace) {
        self.pace = Some(pace);
    }

    fn is_quiet(&mut self) -> bool {
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

    fn read_whole(&mut self, length: u64, stop: &Stop) -> Result<Vec<u8>, Fault> {
        let mut body = vec![0; length as usize];
        self.read_full(&mut body, &mut 0, stop)?;
        Ok(body)
    }

    fn read_head(&mut self, stop: &Stop) -> Result<Head, Fault> {
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

/// Parses the head at the start of `bytes`; `None` if more is needed.
fn parse_head(bytes: &[u8], reusable: &mut bool) -> Result<Option<(Head, usize)>, Fault> {
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
    };
    let mut length_given = false;
    for header in response.headers.iter() {
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
            "transfer-encoding" => return Err(broken("a transfer coding was not asked for")),
            "connection" => *reusable &= !text.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if !length_given {
        return Err(broken("no Content-Length"));
    }
    Ok(Some((head, length)))
}

/// `bytes a-b/size` as (a, b + 1, size).
fn parse_content_range(text: &str) -> Option<(u64, u64, u64)> {
    let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let end = last.parse::<u64>().ok()?.checked_add(1)?;
    Some((first.parse().ok()?, end, size.parse().ok()?))
        .filter(|(start, end, size)| start < end && end <= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_urls_of_a_host_and_a_port() {
        for good in [
            "http://host:1",
            "http://10.0.0.1:8080/",
            "http://[::1]:9",
            "https://host:1",
            "https://[::1]:9/",
        ] {
            assert_eq!(
                Peer::parse(good).unwrap().to_string(),
                good.trim_end_matches('/')
            );
        }
        for bad in [
            "",
            "host:1",
            "ftp://host:1",
            "https://http://host:1",
            "https://host",
            "http://host",
            "http://host:0",
            "http://host:99999",
            "http://:1",
            "http://a/b:1",
            "http://a b:1",
            "http://a:1/x",
            "http://user@host:1",
            "http://a\r\n:1",
        ] {
            assert!(
                matches!(Peer::parse(bad), Err(TransferError::Invalid(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn heads_of_responses_are_read_strictly() {
        let mut reusable = true;
        let text =
            b"HTTP/1.1 206 OK\r\nContent-Length: 3\r\nContent-Range: bytes 2-4/10\r\n\r\nabc";
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
        let close = b"HTTP/1.1 404 X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        assert!(parse_head(close, &mut reusable).unwrap().is_some());
        assert!(!reusable);
    }
}
