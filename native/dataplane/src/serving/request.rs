//! Requests as they arrive: strict, small, and free of surprises.
//!
//! The parser is a function from bytes to a request so that it can be tested without a network. What it does not understand it refuses; it never
//! guesses where a message ends.

#[cfg(test)]
mod tests;

use crate::ids::ObjectKey;
use crate::serving::hints;
use crate::serving::ranges::Want;
use crate::serving::referrals::{self, HostName};
use crate::traces::{self, Trace};
use crate::transport::frames;

/// Longest request line and headers together, in bytes.
pub const LONGEST_HEAD: usize = 8192;
/// Longest body of a request, in bytes.
pub const LONGEST_BODY: usize = 4096;
const MOST_HEADERS: usize = 32;

/// Why a request is not served. The variants' texts are sent to the peer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RequestError {
    /// Not HTTP/1.x, or not strictly so.
    #[error("malformed request: {0}")]
    Malformed(&'static str),
    /// The head is longer than is accepted.
    #[error("request line and headers are longer than 8192 bytes")]
    HeadTooLong,
    /// The body is longer than any this server takes.
    #[error("request body is longer than 4096 bytes")]
    BodyTooLong,
    /// A body without a length.
    #[error("a body needs a Content-Length; transfer codings are not taken")]
    LengthRequired,
    /// An expectation that is not met.
    #[error("expectations are not met; send the body at once")]
    Expectation,
    /// No such method here.
    #[error("method not allowed here")]
    Method,
    /// No such place.
    #[error("no such route; an object is /v1/objects/<kind>/<64 lower-case hex digits>")]
    Route,
    /// The range is outside of the object, or there are several.
    #[error("the range cannot be satisfied; one range inside of the object is")]
    Range,
}

impl RequestError {
    /// The status that the peer gets.
    pub fn status(&self) -> u16 {
        match self {
            RequestError::Malformed(_) => 400,
            RequestError::HeadTooLong => 431,
            RequestError::BodyTooLong => 413,
            RequestError::LengthRequired => 411,
            RequestError::Expectation => 417,
            RequestError::Method => 405,
            RequestError::Route => 404,
            RequestError::Range => 416,
        }
    }

    /// The reason as one word, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            RequestError::Malformed(_) => "malformed",
            RequestError::HeadTooLong => "head-too-long",
            RequestError::BodyTooLong => "body-too-long",
            RequestError::LengthRequired => "length-required",
            RequestError::Expectation => "expectation",
            RequestError::Method => "method",
            RequestError::Route => "route",
            RequestError::Range => "range",
        }
    }
}

/// A request's head.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// GET, HEAD, POST, DELETE or another token.
    pub method: String,
    /// The target as sent.
    pub path: String,
    /// The `Host` header's value, or nothing.
    pub host: String,
    /// The `Range` header's value, or nothing.
    pub range: String,
    /// The `Authorization` header's value.
    pub authorization: Option<String>,
    /// Length of the body that follows, in bytes.
    pub body_length: usize,
    /// Whether the connection stays open afterwards.
    pub keep_alive: bool,
    /// For how many seconds the peer may come back for more of the object.
    pub hold: u64,
    /// What becomes of bytes that are absent here.
    pub want: Want,
    /// Whether frames are taken in place of an image's bytes.
    pub takes_frames: bool,
    /// What the object is read for, if the peer traces that.
    pub trace: Option<Trace>,
    /// What the peer knows of an image, if it requests hints.
    pub known: Option<String>,
    /// The requester's name, if it follows referrals.
    pub requester: Option<HostName>,
}

/// Longest time that a reader is counted while it is away, in seconds.
const LONGEST_HOLD: u64 = 60;

/// Parses the head at the start of `bytes`; `None` if more bytes are needed, else the request and the head's length.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request, usize)>, RequestError> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let window = &bytes[..bytes.len().min(LONGEST_HEAD)];
    let length = match head.parse(window) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if bytes.len() >= LONGEST_HEAD => {
            return Err(RequestError::HeadTooLong)
        }
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(RequestError::HeadTooLong),
        Err(_) => return Err(RequestError::Malformed("not HTTP/1.1")),
    };
    let (Some(method), Some(path), Some(version)) = (head.method, head.path, head.version) else {
        return Err(RequestError::Malformed("not HTTP/1.1"));
    };
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        host: String::new(),
        range: String::new(),
        authorization: None,
        body_length: 0,
        keep_alive: version == 1,
        hold: 0,
        want: Want::Fetched,
        takes_frames: false,
        trace: None,
        known: None,
        requester: None,
    };
    read_headers(head.headers, &mut request)?;
    Ok(Some((request, length)))
}

/// The texts of headers that are read once all of them are known.
#[derive(Default)]
struct Texts {
    host: Option<String>,
    range: Option<String>,
    length: Option<String>,
    connection: Option<String>,
    hold: Option<String>,
    fetch: Option<String>,
    accept: Option<String>,
    trace: Option<String>,
    refer: Option<String>,
}

fn read_headers(
    headers: &[httparse::Header<'_>],
    request: &mut Request,
) -> Result<(), RequestError> {
    let mut texts = Texts::default();
    for header in headers {
        if header.name.eq_ignore_ascii_case(hints::KNOWN) {
            // Whatever it is, the object is served.
            request.known = Some(String::from_utf8_lossy(header.value).into_owned());
            continue;
        }
        let slot = match header.name.to_ascii_lowercase().as_str() {
            "host" => &mut texts.host,
            "range" => &mut texts.range,
            "authorization" => &mut request.authorization,
            "content-length" => &mut texts.length,
            "connection" => &mut texts.connection,
            "x-diffcache-hold" => &mut texts.hold,
            "x-diffcache-fetch" => &mut texts.fetch,
            "x-diffcache-accept" => &mut texts.accept,
            name if name.eq_ignore_ascii_case(traces::HEADER) => &mut texts.trace,
            name if name.eq_ignore_ascii_case(referrals::HEADER) => &mut texts.refer,
            "transfer-encoding" => return Err(RequestError::LengthRequired),
            "expect" => return Err(RequestError::Expectation),
            _ => continue,
        };
        let text = std::str::from_utf8(header.value)
            .map_err(|_| RequestError::Malformed("header is not text"))?;
        if slot.replace(text.to_owned()).is_some() {
            return Err(RequestError::Malformed("header given twice"));
        }
    }
    texts.read_into(request)
}

impl Texts {
    fn read_into(self, request: &mut Request) -> Result<(), RequestError> {
        if let Some(text) = self.length {
            request.body_length = parse_length(&text)?;
        }
        if let Some(text) = self.connection {
            request.keep_alive &= !text.eq_ignore_ascii_case("close");
        }
        if let Some(text) = self.hold {
            let seconds = parse_number(&text).ok_or(RequestError::Malformed(
                "X-DiffCache-Hold is not a number of seconds",
            ))?;
            request.hold = seconds.min(LONGEST_HOLD);
        }
        request.want = match self.fetch.as_deref() {
            None => Want::Fetched,
            Some("no") => Want::Present,
            Some("arriving") => Want::Arriving,
            Some(_) => {
                return Err(RequestError::Malformed(
                    "X-DiffCache-Fetch is no or arriving, or not given",
                ))
            }
        };
        // Codings that this server does not know are not used.
        request.takes_frames = self
            .accept
            .is_some_and(|text| text.split(',').any(|each| each.trim() == frames::CODING));
        // A text that cannot be one is no reason not to serve.
        request.trace = self.trace.as_deref().and_then(Trace::parse);
        request.requester = self.refer.as_deref().and_then(HostName::parse);
        request.range = self.range.unwrap_or_default();
        request.host = self.host.unwrap_or_default();
        Ok(())
    }
}

fn parse_length(text: &str) -> Result<usize, RequestError> {
    match parse_number(text) {
        None => Err(RequestError::Malformed("Content-Length is not a number")),
        Some(length) if length > LONGEST_BODY as u64 => Err(RequestError::BodyTooLong),
        Some(length) => Ok(length as usize),
    }
}

/// Digits alone; a number too large to hold is the largest there is.
fn parse_number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_digit()) {
        return None;
    }
    Some(text.parse().unwrap_or(u64::MAX))
}

/// The path of the server's own state.
pub const HEALTH: &str = "/v1/health";

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
pub enum Route {
    /// An object's bytes.
    Object(ObjectKey),
    /// An object's claim.
    Claim(ObjectKey),
    /// The server's own state.
    Health,
}

/// Finds the route of a path, which is matched as it is: nothing is decoded, no query is taken.
pub fn route(path: &str) -> Result<Route, RequestError> {
    let mut parts = path.split('/');
    let head = (parts.next(), parts.next(), parts.next());
    let tail = (parts.next(), parts.next(), parts.next());
    match (head, tail) {
        ((Some(""), Some("v1"), Some("health")), (None, None, None)) => Ok(Route::Health),
        ((Some(""), Some("v1"), Some(space)), (Some(kind), Some(id), None)) => {
            let key = ObjectKey::parse(kind, id).ok_or(RequestError::Route)?;
            match space {
                "objects" => Ok(Route::Object(key)),
                "claims" => Ok(Route::Claim(key)),
                _ => Err(RequestError::Route),
            }
        }
        _ => Err(RequestError::Route),
    }
}

/// The bytes `start..end` that a `Range` header asks of an object of `size` bytes; `None` if it asks for all.
pub fn resolve_range(range: &str, size: u64) -> Result<Option<(u64, u64)>, RequestError> {
    // Names of units are in any case.
    let spec = match range.split_once('=') {
        Some((unit, spec)) if unit.eq_ignore_ascii_case("bytes") => Some(spec),
        _ => None,
    };
    let Some(spec) = spec else {
        // Units this server does not know are ignored, as RFC 9110 (14.2) asks.
        return Ok(None);
    };
    let (first, last) = spec.split_once('-').ok_or(RequestError::Range)?;
    let bounds = match (first, last) {
        ("", last) => {
            let count = parse_number(last).ok_or(RequestError::Range)?.min(size);
            (size - count, size)
        }
        (first, "") => (parse_number(first).ok_or(RequestError::Range)?, size),
        (first, last) => {
            let first = parse_number(first).ok_or(RequestError::Range)?;
            let last = parse_number(last).ok_or(RequestError::Range)?;
            (first, last.saturating_add(1).min(size))
        }
    };
    if bounds.0 >= bounds.1 {
        return Err(RequestError::Range);
    }
    Ok(Some(bounds))
}
