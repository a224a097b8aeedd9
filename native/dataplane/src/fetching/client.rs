//! The asking side: peers, pooled connections, signed requests and their responses.

mod ask;

use std::collections::HashMap;
use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::counters::Counters;
use crate::error::TransferError;
pub use crate::fetching::client::ask::Ask;
use crate::fetching::client::ask::HEALTH;
pub use crate::fetching::connection::{Connection, Fault, Head, Referral, Stop};
use crate::fetching::minimum_rate::Floors;
use crate::fetching::peer::{Peer, Remote};
use crate::ids::Kind;
use crate::serving::response::{ErrorBody, ASK_BY_TLS};
use crate::traces::Trace;
use crate::transport::auth::{self, Destination, Keys, Signed};
use crate::transport::tls::Tls;

const LONGEST_ERROR: u64 = 64 << 10;
/// Idle connections kept per peer, and for how long: less than servers keep them.
const MOST_IDLE: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Makes signed requests over pooled connections.
pub struct Client {
    keys: RwLock<Option<Keys>>,
    tls: Option<Arc<Tls>>,
    timeout: Duration,
    floors: RwLock<Floors>,
    counters: Arc<Counters>,
    /// The present boots of peers, which signatures name.
    boots: Mutex<HashMap<Peer, String>>,
    pool: Mutex<HashMap<Peer, Vec<(Connection, Instant)>>>,
}

impl Client {
    /// A client that signs with the first of `keys` and gives a peer `timeout` to send anything at all.
    pub fn new(keys: Option<Keys>, timeout: Duration, counters: Arc<Counters>) -> Client {
        Client {
            keys: RwLock::new(keys),
            tls: None,
            timeout,
            floors: RwLock::default(),
            counters,
            boots: Mutex::default(),
            pool: Mutex::default(),
        }
    }

    /// Replaces the keys, for the requests to come.
    pub fn set_keys(&self, keys: Keys) {
        *self.keys.write().unpoisoned() = Some(keys);
    }

    /// Replaces the slowest rates that are accepted.
    pub fn set_floors(&self, floors: Floors) {
        *self.floors.write().unpoisoned() = floors;
    }

    /// Slowest rates that are accepted.
    pub fn floors(&self) -> Floors {
        *self.floors.read().unpoisoned()
    }

    /// Asks by TLS: always, or those who announce it if `tls` tolerates others.
    pub fn with_tls(mut self, tls: Option<Arc<Tls>>) -> Client {
        self.tls = tls;
        self
    }

    /// A connection that was used before and is still open, else a fresh one.
    pub fn connection(&self, peer: &Peer, stop: &Stop) -> Result<Connection, Fault> {
        while let Some((mut connection, since)) = self
            .pool
            .lock()
            .unpoisoned()
            .get_mut(peer)
            .and_then(Vec::pop)
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
        // Nothing on the way can have forgotten it yet.
        connection.expect_first_answer();
        Ok(connection)
    }

    /// A new connection after another one broke, perhaps because the peer was restarted.
    pub fn renewed(&self, peer: &Peer, stop: &Stop) -> Result<Connection, Fault> {
        self.boots.lock().unpoisoned().remove(peer);
        self.fresh(peer, stop)
    }

    /// Fails unless the peer answers now, over a new connection.
    pub fn probe(&self, peer: &Peer, stop: &Stop) -> Result<(), Fault> {
        let mut connection = self.connect(peer)?;
        self.send_to(&mut connection, peer, &HEALTH)?;
        let head = connection.read_head(stop)?;
        match head.status {
            500.. => Err(Fault::Broken(format!("status {}", head.status))),
            _ => Ok(()),
        }
    }

    fn connect(&self, peer: &Peer) -> Result<Connection, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.to_string());
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in peer.authority().to_socket_addrs().map_err(unreachable)? {
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
        if self.boot(peer).is_some() || self.key_name().is_none() {
            return Ok(());
        }
        self.send_to(connection, peer, &HEALTH)?;
        let head = connection.read_head(stop)?;
        if head.status == 426 {
            return Err(Fault::Untrusted(ASK_BY_TLS.to_owned()));
        }
        if !connection.is_reusable() {
            *connection = self.connect(peer)?;
        }
        // Without a boot the request itself will tell what is wrong.
        if let Some(boot) = head.boot {
            self.boots.lock().unpoisoned().insert(peer.clone(), boot);
        }
        Ok(())
    }

    fn boot(&self, peer: &Peer) -> Option<String> {
        self.boots.lock().unpoisoned().get(peer).cloned()
    }

    fn key_name(&self) -> Option<String> {
        let keys = self.keys.read().unpoisoned();
        keys.as_ref().map(|keys| keys.signing.name().to_owned())
    }

    fn begin(&self, peer: &Peer, stream: TcpStream) -> Result<Connection, Fault> {
        let unreachable = |error: io::Error| Fault::Unreachable(error.to_string());
        let mut connection = Connection::new(stream, self.timeout).map_err(unreachable)?;
        match &self.tls {
            None if peer.is_secure() => Err(Fault::Untrusted(
                "it speaks TLS and this host does not; set tls_ca_file, tls_cert_file and tls_key_file"
                    .to_owned(),
            )),
            Some(tls) if peer.is_secure() || !tls.tolerates_plain() => {
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
        connection.rest();
        if !connection.is_finished() {
            return;
        }
        let mut pool = self.pool.lock().unpoisoned();
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
        self.pool.lock().unpoisoned().clear();
    }

    /// Sends a request; its response comes after those of earlier requests on the same connection.
    pub fn send(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        ask: &Ask<'_>,
    ) -> Result<(), Fault> {
        self.write(connection, &remote.peer, ask, remote.trace.as_ref())
    }

    fn send_to(
        &self,
        connection: &mut Connection,
        peer: &Peer,
        ask: &Ask<'_>,
    ) -> Result<(), Fault> {
        self.write(connection, peer, ask, None)
    }

    pub(super) fn write(
        &self,
        connection: &mut Connection,
        peer: &Peer,
        ask: &Ask<'_>,
        trace: Option<&Trace>,
    ) -> Result<(), Fault> {
        let range = ask.range_header();
        let mut message = ask.head(peer, &range, trace);
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
        let keys = self.keys.read().unpoisoned();
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
        let boot = self.boot(peer);
        let to = Destination {
            authority: peer.authority(),
            boot: boot.as_deref().unwrap_or(auth::NO_BOOT),
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
        if self.boot(&remote.peer).as_ref() == Some(boot) || self.key_name().is_none() {
            return Ok(head);
        }
        self.boots
            .lock()
            .unpoisoned()
            .insert(remote.peer.clone(), boot.clone());
        Err(Fault::Broken("it was restarted".to_owned()))
    }

    /// Reads the head of a response and turns every status but success into an error.
    pub fn receive(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        stop: &Stop,
    ) -> Result<Head, Fault> {
        let head = self.receive_any(connection, remote, stop)?;
        match head.framed {
            true => Err(Fault::Broken("frames were not asked for".to_owned())),
            false => Ok(head),
        }
    }

    /// Likewise; the body may be in frames.
    fn receive_any(
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
        if head.length > LONGEST_ERROR {
            connection.end_after_this();
        }
        if let (307, Some(to)) = (head.status, head.referred) {
            let hints = head.hints;
            return Err(Fault::Referred(Box::new(Referral { to, hints })));
        }
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
            // Or a release without this method for the object's path.
            404 | 405 => TransferError::ObjectMissing { peer, object },
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
        check_range(head, remote, range)
    }

    /// Likewise, if frames were offered to the peer; the response may be in frames.
    pub fn receive_range_or_frames(
        &self,
        connection: &mut Connection,
        remote: &Remote,
        range: (u64, u64),
        stop: &Stop,
    ) -> Result<Head, Fault> {
        let head = self.receive_any(connection, remote, stop)?;
        check_range(head, remote, range)
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

/// Checks that a response is about exactly the bytes that were asked for.
fn check_range(head: Head, remote: &Remote, range: (u64, u64)) -> Result<Head, Fault> {
    match head.range {
        Some((start, end, _))
            if (start, end) == range && (head.framed || head.length == end - start) =>
        {
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
