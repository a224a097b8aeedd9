//! One connection: its requests, and where the answers come from.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use rustix::io::retry_on_intr;
use rustix::net::RecvFlags;

use crate::counters::Event;
use crate::ids::ObjectKey;
use crate::serving::admission::Connections;
use crate::serving::claim_messages::{claim_answer, parse_claim, UNCLAIMED};
use crate::serving::claims::Holder;
use crate::serving::request::{self, Request, RequestError, Route};
use crate::serving::response::{head, After, Length, Refusal, JSON};
use crate::serving::service::Service;
use crate::transport::auth::{self, Accepted, Signed};
use crate::transport::session::SessionError;
use crate::transport::tls::{self, Tls};
use crate::transport::wire::Wire;

/// How long, and for how many bytes, a closing connection listens for its peer.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGERING: usize = 64 << 10;

pub(super) struct Connection<'a> {
    pub(super) service: &'a Service,
    connections: &'a Connections,
    number: u64,
    /// Which certificates the connection was judged by.
    generation: u64,
    pub(super) wire: Wire,
    /// Bytes read and not yet parsed.
    buffer: Vec<u8>,
}

/// A request and when it was there.
struct Incoming {
    request: Request,
    body: Vec<u8>,
    /// The peer had sent it before it had the previous response.
    pipelined: bool,
}

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Agreed,
    Parted,
}

impl<'a> Connection<'a> {
    /// Begins to answer what comes over a stream, which has this number among the connections.
    pub(super) fn new(
        service: &'a Service,
        connections: &'a Connections,
        number: u64,
        stream: Arc<TcpStream>,
    ) -> Connection<'a> {
        Connection {
            service,
            connections,
            number,
            generation: service.tls.as_ref().map_or(0, |tls| tls.generation()),
            wire: Wire::plain(stream),
            buffer: Vec::with_capacity(1024),
        }
    }

    /// Agrees with the peer on TLS, or on going on without.
    fn greet(&mut self, tls: &Tls) -> io::Result<Greeting> {
        let deadline = Instant::now() + self.service.limits.head;
        let Some(first) = self.first_byte()? else {
            return Ok(Greeting::Parted);
        };
        // A method begins with a capital letter, a handshake with 22.
        if first.is_ascii_uppercase() {
            if tls.tolerates_plain() {
                return Ok(Greeting::Agreed);
            }
            self.complain(
                Event::PlainRefused,
                "it asks in the clear, and tls_plain_peers is off here; set its tls_cert_file"
                    .to_owned(),
            );
            self.refuse("GET", &Refusal::Plain, After::Close)?;
            return Ok(Greeting::Parted);
        }
        match tls.accept(self.wire.stream(), deadline) {
            Ok(session) => {
                self.service.counters.count(Event::Handshake);
                self.wire.secure(session);
                Ok(Greeting::Agreed)
            }
            Err(error) => {
                let reason = match &error {
                    SessionError::Tls(error) => tls::describe(error),
                    SessionError::TimedOut | SessionError::Lost(_) => error.to_string(),
                };
                self.complain(Event::HandshakeFailed, reason);
                Ok(Greeting::Parted)
            }
        }
    }

    /// What the peer sends first, left to be read; `None` if it is gone.
    fn first_byte(&self) -> io::Result<Option<u8>> {
        let mut byte = [0; 1];
        let stream = self.wire.stream();
        stream.set_read_timeout(Some(self.service.limits.head))?;
        let (count, _) =
            retry_on_intr(|| rustix::net::recv(stream, &mut byte[..], RecvFlags::PEEK))?;
        Ok((count > 0).then_some(byte[0]))
    }

    fn complain(&self, event: Event, reason: String) {
        self.service.counters.count(event);
        if let Ok(address) = self.wire.stream().peer_addr() {
            self.service
                .complaints
                .note(&address.ip().to_string(), reason);
        }
    }

    pub(super) fn serve(&mut self) -> io::Result<()> {
        self.wire.stream().set_nodelay(true)?;
        self.wire
            .stream()
            .set_write_timeout(Some(self.service.limits.send))?;
        if let Some(tls) = &self.service.tls {
            if self.greet(tls)? == Greeting::Parted {
                return self.linger();
            }
        }
        let mut first = true;
        loop {
            let incoming = match self.next_request(first)? {
                Ok(Some(incoming)) => incoming,
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.service.counters.count(Event::Request);
                    self.refuse("GET", &Refusal::Request(error), After::Close)?;
                    return self.linger();
                }
            };
            first = false;
            self.service.counters.count(Event::Request);
            if !incoming.pipelined && !self.service.gate.sleep(self.service.latency) {
                return Ok(());
            }
            if self.respond(&incoming)? == After::Close {
                return self.linger();
            }
        }
    }

    /// Reads away what the peer still sends, for a moment: closing over unread bytes would take the response from it.
    fn linger(&mut self) -> io::Result<()> {
        self.wire.finish(LINGER)?;
        let deadline = Instant::now() + LINGER;
        while self.buffer.len() < MOST_LINGERING && self.fill(deadline)? {}
        Ok(())
    }

    /// Reads one request; `None` if the peer or the plane ended the connection.
    fn next_request(&mut self, first: bool) -> io::Result<Result<Option<Incoming>, RequestError>> {
        let pipelined = !first && (!self.buffer.is_empty() || self.wire.has_input());
        if self.buffer.is_empty() {
            self.connections.rest(self.number);
            let patience = match self.connections.is_proven(self.number) {
                true => self.service.limits.idle,
                false => self.service.limits.head,
            };
            if !self.fill(Instant::now() + patience)? {
                return Ok(Ok(None));
            }
        }
        let deadline = Instant::now() + self.service.limits.head;
        let (request, length) = loop {
            match request::parse(&self.buffer) {
                Ok(Some(found)) => break found,
                Ok(None) => {}
                Err(error) => return Ok(Err(error)),
            }
            if !self.fill(deadline)? {
                return Ok(Ok(None));
            }
        };
        let end = length + request.body_length;
        while self.buffer.len() < end {
            if !self.fill(deadline)? {
                return Ok(Ok(None));
            }
        }
        let body = self.buffer[length..end].to_vec();
        self.buffer.drain(..end);
        Ok(Ok(Some(Incoming {
            request,
            body,
            pipelined,
        })))
    }

    /// Reads some bytes before `deadline`; false at the end of the stream.
    fn fill(&mut self, deadline: Instant) -> io::Result<bool> {
        let mut chunk = [0; 2048];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.service.gate.is_closed() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wire.stream().set_read_timeout(Some(left))?;
            match self.wire.read(&mut chunk) {
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return Ok(count > 0);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => {}
                    _ => return Err(error),
                },
            }
        }
    }

    fn respond(&mut self, incoming: &Incoming) -> io::Result<After> {
        let request = &incoming.request;
        let after = match request.keep_alive && self.is_current() {
            true => After::Keep,
            false => After::Close,
        };
        if let Err(error) = self.verify(incoming) {
            return self.refuse(&request.method, &Refusal::Auth(error), after);
        }
        if !self
            .connections
            .prove(self.number, self.service.limits.head)
        {
            return self.refuse(&request.method, &Refusal::Busy, After::Close);
        }
        let outcome = match (request::route(&request.path), request.method.as_str()) {
            (Err(error), _) => Err(Refusal::Request(error)),
            (Ok(Route::Object(key)), "GET" | "HEAD") => {
                return self.send_object(key, request, after)
            }
            (Ok(Route::Claim(key)), "GET" | "HEAD") => self.show_claim(key),
            (Ok(Route::Claim(key)), "POST") => self.claim(key, &incoming.body),
            (Ok(Route::Claim(key)), "DELETE") => self.release(key, &incoming.body),
            (Ok(Route::Health), "GET" | "HEAD") => Ok(self.health()),
            (Ok(_), _) => Err(Refusal::Request(RequestError::Method)),
        };
        match outcome {
            Ok(body) => {
                let message = self.head(200, Length::Known(body.len() as u64), after, JSON);
                self.send_small(&request.method, message, &body)?;
                Ok(after)
            }
            Err(refusal) => self.refuse(&request.method, &refusal, after),
        }
    }

    /// Whether the certificates that the connection was judged by are still those in use.
    fn is_current(&self) -> bool {
        let tls = self.service.tls.as_ref();
        tls.is_none_or(|tls| tls.generation() == self.generation)
    }

    fn verify(&self, incoming: &Incoming) -> Result<(), auth::AuthError> {
        let Some(verifier) = &self.service.verifier else {
            return Ok(());
        };
        let request = &incoming.request;
        let signed = Signed {
            method: &request.method,
            path: &request.path,
            range: &request.range,
            body: &incoming.body,
        };
        let local = self.wire.stream().local_addr();
        let local = local.map_or_else(|_| String::new(), |address| address.to_string());
        let accepted = verifier.verify(
            request.authorization.as_deref(),
            &signed,
            (&request.host, &local),
            auth::unix_now(),
        )?;
        match accepted {
            Accepted::Bound => Ok(()),
            Accepted::Introduction if request.path == request::HEALTH => Ok(()),
            Accepted::Introduction => Err(auth::AuthError::StaleBoot),
        }
    }

    pub(super) fn refuse(
        &mut self,
        method: &str,
        refusal: &Refusal,
        after: After,
    ) -> io::Result<After> {
        let status = refusal.status();
        let event = if status == 401 {
            Event::Refused
        } else {
            Event::Failed
        };
        self.service.counters.count(event);
        let fields = match status {
            401 => "WWW-Authenticate: DiffCache\r\n",
            _ => "",
        };
        self.decline(method, refusal, after, fields)
    }

    /// Sends why the object is not sent, with further fields.
    pub(super) fn decline(
        &mut self,
        method: &str,
        refusal: &Refusal,
        after: After,
        fields: &str,
    ) -> io::Result<After> {
        let body = serde_json::to_string(&refusal.body())?;
        let length = Length::Known(body.len() as u64);
        let message = self.head(refusal.status(), length, after, &format!("{JSON}{fields}"));
        self.send_small(method, message, &body)?;
        Ok(after)
    }

    fn send_small(&mut self, method: &str, mut message: String, body: &str) -> io::Result<()> {
        if method != "HEAD" {
            message.push_str(body);
        }
        self.wire
            .write_all(message.as_bytes(), self.service.limits.send)
    }

    /// The head of a response, with the present boot.
    pub(super) fn head(&self, status: u16, length: Length, after: After, fields: &str) -> String {
        let boot = &self.service.boot;
        head(
            status,
            length,
            after,
            &format!("X-DiffCache-Boot: {boot}\r\n{fields}"),
        )
    }

    pub(super) fn health(&self) -> String {
        serde_json::json!({"status": "ok", "name": self.service.name, "protocol": 1}).to_string()
    }

    pub(super) fn claim(&self, key: ObjectKey, body: &[u8]) -> Result<String, Refusal> {
        let asked = parse_claim(body)?;
        let applicant = Holder {
            name: asked.holder,
            url: asked.url,
        };
        let mut claims = self.service.claims.lock().unpoisoned();
        let holder = claims
            .claim(key, applicant, asked.suspect.as_deref(), Instant::now())
            .map_err(|error| Refusal::Full(error.to_string()))?;
        claim_answer(holder)
    }

    fn show_claim(&self, key: ObjectKey) -> Result<String, Refusal> {
        match self
            .service
            .claims
            .lock()
            .unpoisoned()
            .holder(key, Instant::now())
        {
            Some(holder) => claim_answer(holder),
            None => Ok(UNCLAIMED.to_owned()),
        }
    }

    fn release(&self, key: ObjectKey, body: &[u8]) -> Result<String, Refusal> {
        let asked = parse_claim(body)?;
        let released =
            self.service
                .claims
                .lock()
                .unpoisoned()
                .release(key, &asked.holder, Instant::now());
        Ok(serde_json::json!({"released": released}).to_string())
    }
}
