//! Heads and small bodies of responses, and why a request gets no object.

use serde::{Deserialize, Serialize};

use crate::flight::FlightError;
use crate::serving::partial::PartialError;
use crate::serving::referrals::HostName;
use crate::serving::request::RequestError;
use crate::transport::auth;

/// What a requester in the clear learns.
pub const ASK_BY_TLS: &str =
    "this host answers by TLS alone; set tls_ca_file, tls_cert_file and tls_key_file where you ask";
const BUSY: &str =
    "this host serves as many connections as it may, of all hosts or of this address; try again later";
pub(super) const JSON: &str = "Content-Type: application/json\r\n";

/// The body of every error response.
#[derive(Serialize, Deserialize)]
pub struct ErrorBody {
    /// One sentence.
    pub error: String,
    /// One word.
    pub reason: String,
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
    pub(super) fn status(&self) -> u16 {
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

    pub(super) fn body(&self) -> ErrorBody {
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

pub(super) fn head(status: u16, length: Length, after: After, fields: &str) -> String {
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
