//! Requests with JSON over a unix socket, one for each connection.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{json, Value};

/// How long a client may take to send its request, or to take the answer.
const CLIENT_TIME: Duration = Duration::from_secs(10);
const LONGEST_HEAD: usize = 16 << 10;
const LONGEST_BODY: usize = 1 << 20;
const MOST_HEADERS: usize = 64;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path, as it was sent.
    pub path: String,
    /// The body.
    pub body: Vec<u8>,
}

/// An answer: status and document.
#[derive(Debug, PartialEq)]
pub struct Answer(pub u16, pub Value);

impl Answer {
    /// An error of a type that clients know by its name.
    pub fn error(status: u16, kind: &str, message: &str) -> Answer {
        Answer(status, json!({"error": {"type": kind, "message": message}}))
    }

    fn encode(&self) -> Vec<u8> {
        let (status, reason) = match self.0 {
            200 => (200, "OK"),
            204 => (204, "No Content"),
            400 => (400, "Bad Request"),
            404 => (404, "Not Found"),
            409 => (409, "Conflict"),
            503 => (503, "Service Unavailable"),
            _ => (500, "Internal Server Error"),
        };
        let body = match status {
            204 => String::new(),
            _ => self.1.to_string(),
        };
        format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    }
}

/// Read the request of a connection, answer it, and close the connection.
///
/// # Errors
/// Of the connection.
pub fn serve(stream: UnixStream, handle: impl FnOnce(&Request) -> Answer) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIME))?;
    stream.set_write_timeout(Some(CLIENT_TIME))?;
    let answer = match read(&mut (&stream)) {
        Ok(request) => handle(&request),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            Answer::error(400, "InvalidInput", &error.to_string())
        }
        Err(error) => return Err(error),
    };
    (&stream).write_all(&answer.encode())
}

/// Read a request to the end of its body.
///
/// # Errors
/// `InvalidData` if it is none that is served here; else of the connection.
pub fn read(stream: &mut impl Read) -> io::Result<Request> {
    let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let mut bytes = Vec::new();
    let (head_len, request, body_len) = loop {
        if let Some(found) = parse(&bytes)? {
            break found;
        }
        if bytes.len() >= LONGEST_HEAD {
            return Err(invalid("the head of the request is too long"));
        }
        read_some(stream, &mut bytes)?;
    };
    if body_len > LONGEST_BODY {
        return Err(invalid("the body of the request is too long"));
    }
    while bytes.len() < head_len + body_len {
        read_some(stream, &mut bytes)?;
    }
    Ok(Request {
        body: bytes[head_len..head_len + body_len].to_vec(),
        ..request
    })
}

fn read_some(stream: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let count = stream.read(&mut buffer)?;
    if count == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.extend_from_slice(&buffer[..count]);
    Ok(())
}

/// Return the length of the head, the request without its body, and the length of that; none if the head is not whole.
fn parse(bytes: &[u8]) -> io::Result<Option<(usize, Request, usize)>> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let parsed = head
        .parse(bytes)
        .map_err(|error| invalid(format!("the request is no HTTP: {error}")))?;
    let httparse::Status::Complete(len) = parsed else {
        return Ok(None);
    };
    let mut body_len = 0;
    for header in head.headers.iter() {
        if header.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(invalid(
                "a body without Content-Length is not read".to_owned(),
            ));
        }
        if header.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(header.value).unwrap_or("");
            body_len = text
                .trim()
                .parse()
                .map_err(|_| invalid(format!("Content-Length '{text}' is no number of bytes")))?;
        }
    }
    let request = Request {
        method: head.method.unwrap_or("").to_owned(),
        path: head.path.unwrap_or("").to_owned(),
        body: Vec::new(),
    };
    Ok(Some((len, request, body_len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(text: &str) -> io::Result<Request> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn a_request_has_method_path_and_body() {
        let request = read_all("PUT /v1/x HTTP/1.1\r\ncontent-LENGTH: 2\r\n\r\n{}more").unwrap();
        assert_eq!(
            request,
            Request {
                method: "PUT".to_owned(),
                path: "/v1/x".to_owned(),
                body: b"{}".to_vec(),
            }
        );
        assert_eq!(read_all("GET / HTTP/1.1\r\n\r\n").unwrap().body, b"");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(LONGEST_HEAD));
        for (text, kind) in [
            ("nonsense\r\n\r\n", io::ErrorKind::InvalidData),
            (
                "PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                io::ErrorKind::InvalidData,
            ),
            (
                "PUT / HTTP/1.1\r\nContent-Length: 9999999\r\n\r\n",
                io::ErrorKind::InvalidData,
            ),
            (
                "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
                io::ErrorKind::InvalidData,
            ),
            (long.as_str(), io::ErrorKind::InvalidData),
            (
                "PUT / HTTP/1.1\r\nContent-Length: 5\r\n\r\n{}",
                io::ErrorKind::UnexpectedEof,
            ),
            ("GET / HT", io::ErrorKind::UnexpectedEof),
        ] {
            assert_eq!(read_all(text).unwrap_err().kind(), kind, "{text:.60}");
        }
    }

    #[test]
    fn an_answer_says_how_long_it_is() {
        let answer = Answer(200, json!({"a": 1})).encode();
        let text = String::from_utf8(answer).unwrap();
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("Content-Length: 7\r\n"));
        assert!(text.ends_with("\r\n\r\n{\"a\":1}"));
    }
}
