//! The serving side: accepts connections, checks requests, sends objects.
//!
//! One thread per connection, and a bounded number of them: see [`crate::serving::admission`]. Reading a request and sending a response have time limits, so
//! a peer that dawdles loses its connection, not others theirs. Bodies go from the page cache to the socket by sendfile(2), or are encrypted on the way.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::io::retry_on_intr;
use rustix::net::RecvFlags;
use serde::{Deserialize, Serialize};

use crate::complaints::Complaints;
use crate::counters::{Counters, Event};
use crate::flight::FlightError;
use crate::gate::{lock, Gate};
use crate::ids::ObjectKey;
use crate::serving::admission::{Connections, Place, Room};
use crate::serving::claims::{Claims, Holder};
use crate::serving::objects::Objects;
use crate::serving::partial::PartialError;
use crate::serving::referrals::HostName;
use crate::serving::request::{self, Request, RequestError, Route};
use crate::serving::sigpipe;
use crate::shaper::Shaper;
use crate::traces::Traces;
use crate::transport::auth::{self, Accepted, Signed, Verifier};
use crate::transport::frames::Slots;
use crate::transport::session::SessionError;
use crate::transport::tls::{self, Tls};
use crate::transport::wire::Wire;

const THREAD_STACK: usize = 256 << 10;
/// How long, and for how many bytes, a closing connection listens for its peer.
const LINGER: Duration = Duration::from_secs(1);
const MOST_LINGERING: usize = 64 << 10;
const LONGEST_NAME: usize = 255;
const LONGEST_URL: usize = 1024;
/// What a requester in the clear learns.
pub const ASK_BY_TLS: &str =
    "this host answers by TLS alone; set tls_ca_file, tls_cert_file and tls_key_file where you ask";
const BUSY: &str =
    "this host serves as many connections as it may, of all hosts or of this address; try again later";
const JSON: &str = "Content-Type: application/json\r\n";

/// Time limits and bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at the same time, and beside them.
    pub room: Room,
    /// How long a connection may wait for its next request.
    pub idle: Duration,
    /// How long a request may take to arrive after its first byte, and a handshake.
    pub head: Duration,
    /// How long a peer may take no byte of a response.
    pub send: Duration,
    /// How long an arriving object may not move before its readers are sent away.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            room: Room {
                proven: 256,
                per_address: 128,
                unproven: 128,
            },
            idle: Duration::from_secs(60),
            head: Duration::from_secs(10),
            send: Duration::from_secs(30),
            stall: Duration::from_secs(20),
        }
    }
}

/// What a server serves and by which rules.
pub struct Service {
    /// This host's name, returned by the health route.
    pub name: String,
    /// The objects.
    pub objects: Arc<Objects>,
    /// The link's speed.
    pub shaper: Shaper,
    /// The link's delay, added to every request that had to be waited for.
    pub latency: Duration,
    /// The hosts that are answered; `None`: all.
    pub verifier: Option<Verifier>,
    /// This host's identity; without it everything goes in the clear.
    pub tls: Option<Arc<Tls>>,
    /// The present start of this plane, which signatures name.
    pub boot: String,
    /// What was wrong with connections.
    pub complaints: Arc<Complaints>,
    /// The claims this host coordinates.
    pub claims: Mutex<Claims>,
    /// What was done.
    pub counters: Arc<Counters>,
    /// The plane's end.
    pub gate: Arc<Gate>,
    /// Bounds.
    pub limits: Limits,
    /// Responses that may be compressed at the same time.
    pub coders: Slots,
    /// What was sent for traces; `None` keeps nothing of it.
    pub traces: Option<Traces>,
}

/// What a host asks a coordinator for.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// The applicant's name.
    pub holder: String,
    /// The base URL of the applicant's data plane.
    #[serde(default)]
    pub url: String,
    /// A holder that the applicant found dead.
    #[serde(default)]
    pub suspect: Option<String>,
}

/// The answer on a claim that no host holds.
const UNCLAIMED: &str = "null";

/// What a coordinator answers.
#[derive(Serialize, Deserialize)]
pub struct ClaimAnswer {
    /// Who holds the claim now.
    pub holder: String,
    /// Where the object can be read while it arrives there.
    pub url: String,
}

/// The body of every error response.
#[derive(Serialize, Deserialize)]
pub struct ErrorBody {
    /// One sentence.
    pub error: String,
    /// One word.
    pub reason: String,
}

/// A running server.
pub struct Server {
    /// The address it listens on.
    pub address: SocketAddr,
    service: Arc<Service>,
    listener: Arc<TcpListener>,
    connections: Arc<Connections>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Starts to serve on a bound listener.
    pub fn start(service: Arc<Service>, listener: TcpListener) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let listener = Arc::new(listener);
        let connections = Arc::new(Connections::new(service.limits.room));
        let acceptor = {
            let (service, listener, connections) =
                (service.clone(), listener.clone(), connections.clone());
            std::thread::Builder::new()
                .name("dataplane-accept".to_owned())
                .spawn(move || accept_all(&service, &listener, &connections))?
        };
        Ok(Server {
            address,
            service,
            listener,
            connections,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Ends the connections that wait for a request, so that others are judged anew.
    pub fn end_idle(&self) {
        self.connections.end_all_idle();
    }

    /// Ends every connection and waits for the threads; the gate must be closed before.
    pub fn stop(&self) {
        self.service.shaper.close();
        self.service.objects.fail_flights();
        // On Linux this ends a blocked accept.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = lock(&self.acceptor).take() {
            let _ = acceptor.join();
        }
        self.connections.end_all();
    }
}

fn accept_all(service: &Arc<Service>, listener: &TcpListener, connections: &Arc<Connections>) {
    while !service.gate.is_closed() {
        connections.settle();
        match listener.accept() {
            Ok((stream, _)) if !service.gate.is_closed() => {
                start_connection(service, connections, stream)
            }
            Ok(_) => return,
            // Out of descriptors or memory, or the peer went away already: others may have better luck in a moment.
            Err(_) => drop(service.gate.sleep(Duration::from_millis(20))),
        }
    }
}

fn start_connection(service: &Arc<Service>, connections: &Arc<Connections>, stream: TcpStream) {
    service.counters.count(Event::Connection);
    let stream = Arc::new(stream);
    let number = connections.add(stream.clone());
    let place = Place::of(connections.clone(), number);
    let service = service.clone();
    // Without a thread the place is free again at once.
    let _ = std::thread::Builder::new()
        .name("dataplane-serve".to_owned())
        .stack_size(THREAD_STACK)
        .spawn(move || {
            sigpipe::block();
            let mut connection = Connection {
                service: &service,
                connections: place.connections(),
                number,
                generation: service.tls.as_ref().map_or(0, |tls| tls.generation()),
                wire: Wire::plain(stream),
                buffer: Vec::with_capacity(1024),
            };
            // An error here means that the peer has gone; it cannot get an answer any more.
            let _ = connection.serve();
        });
}

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

pub(super) enum Refusal {
    Request(RequestError),
    Auth(auth::AuthError),
    Missing,
    NotServable(String),
    Stalled(FlightError),
    Unfetched(PartialError),
    Full(String),
    Busy,
    Plain,
    Referred(HostName),
}

impl Refusal {
    fn status(&self) -> u16 {
        match self {
            Refusal::Request(error) => error.status(),
            Refusal::Auth(_) => 401,
            Refusal::Missing => 404,
            Refusal::NotServable(_) => 500,
            Refusal::Stalled(_) | Refusal::Unfetched(_) | Refusal::Full(_) | Refusal::Busy => 503,
            Refusal::Plain => 426,
            Refusal::Referred(_) => 307,
        }
    }

    fn body(&self) -> ErrorBody {
        let (error, reason) = match self {
            Refusal::Request(error) => (error.to_string(), error.reason()),
            Refusal::Auth(error) => (error.to_string(), error.reason()),
            Refusal::Missing => ("this host does not hold the object".to_owned(), "missing"),
            Refusal::NotServable(text) => (
                format!("the object cannot be read here: {text}"),
                "unreadable",
            ),
            Refusal::Stalled(error) => (error.to_string(), "stalled"),
            Refusal::Unfetched(error) => (error.to_string(), "unfetched"),
            Refusal::Full(text) => (text.clone(), "full"),
            Refusal::Busy => (BUSY.to_owned(), "busy"),
            Refusal::Plain => (ASK_BY_TLS.to_owned(), "plain"),
            Refusal::Referred(name) => (
                format!("this host is busy, ask host {}", name.as_str()),
                "referred",
            ),
        };
        ErrorBody {
            error,
            reason: reason.to_owned(),
        }
    }
}

/// Whether a connection stays open after a response.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Keep,
    Close,
}

/// How a response says where its body ends.
pub(super) enum Length {
    /// By the number of bytes.
    Known(u64),
    /// By chunks.
    Chunked,
}

/// How a connection begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeting {
    Agreed,
    Parted,
}

impl Connection<'_> {
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

    fn serve(&mut self) -> io::Result<()> {
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
            Accepted::Unbound => {
                self.service.counters.count(Event::Unbound);
                Ok(())
            }
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

    fn health(&self) -> String {
        serde_json::json!({"status": "ok", "name": self.service.name, "protocol": 1}).to_string()
    }

    fn claim(&self, key: ObjectKey, body: &[u8]) -> Result<String, Refusal> {
        let asked = parse_claim(body)?;
        let applicant = Holder {
            name: asked.holder,
            url: asked.url,
        };
        let mut claims = lock(&self.service.claims);
        let holder = claims
            .claim(key, applicant, asked.suspect.as_deref(), Instant::now())
            .map_err(|error| Refusal::Full(error.to_string()))?;
        claim_answer(holder)
    }

    fn show_claim(&self, key: ObjectKey) -> Result<String, Refusal> {
        match lock(&self.service.claims).holder(key, Instant::now()) {
            Some(holder) => claim_answer(holder),
            None => Ok(UNCLAIMED.to_owned()),
        }
    }

    fn release(&self, key: ObjectKey, body: &[u8]) -> Result<String, Refusal> {
        let asked = parse_claim(body)?;
        let released = lock(&self.service.claims).release(key, &asked.holder, Instant::now());
        Ok(serde_json::json!({"released": released}).to_string())
    }
}

fn head(status: u16, length: Length, after: After, fields: &str) -> String {
    let phrase = match status {
        200 => "OK",
        206 => "Partial Content",
        307 => "Temporary Redirect",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        411 => "Length Required",
        413 => "Content Too Large",
        416 => "Range Not Satisfiable",
        417 => "Expectation Failed",
        426 => "Upgrade Required",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        500 => "Internal Server Error",
        _ => "Bad Request",
    };
    let connection = if after == After::Keep {
        "keep-alive"
    } else {
        "close"
    };
    let length = match length {
        Length::Known(bytes) => format!("Content-Length: {bytes}"),
        Length::Chunked => "Transfer-Encoding: chunked".to_owned(),
    };
    format!("HTTP/1.1 {status} {phrase}\r\n{length}\r\nConnection: {connection}\r\n{fields}\r\n")
}

fn claim_answer(holder: Holder) -> Result<String, Refusal> {
    let answer = ClaimAnswer {
        holder: holder.name,
        url: holder.url,
    };
    serde_json::to_string(&answer).map_err(|error| Refusal::NotServable(error.to_string()))
}

fn parse_claim(body: &[u8]) -> Result<ClaimRequest, Refusal> {
    let malformed = Refusal::Request(RequestError::Malformed(
        "the body of a claim is {\"holder\": name, \"url\": url, \"suspect\": name or null}",
    ));
    let Ok(asked) = serde_json::from_slice::<ClaimRequest>(body) else {
        return Err(malformed);
    };
    if asked.holder.is_empty() || asked.holder.len() > LONGEST_NAME || asked.url.len() > LONGEST_URL
    {
        return Err(malformed);
    }
    Ok(asked)
}
