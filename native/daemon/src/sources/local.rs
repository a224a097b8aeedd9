//! An image that a process of this host serves over a unix socket: the agent does so for versions, wherever their store is.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::config::LocalPlace;
use crate::sources::source::{Source, SourceError};

const LONGEST_HEAD: usize = 16 << 10;
const MOST_HEADERS: usize = 32;
/// Shortest time that the kernel can be given to wait.
const LEAST_TIME: Duration = Duration::from_millis(1);

/// An HTTP server at a unix socket, which answers Range.
pub struct LocalSource {
    name: String,
    socket: PathBuf,
    path: String,
}

impl LocalSource {
    /// Take a place; nothing is opened before the first read.
    pub fn new(place: &LocalPlace) -> LocalSource {
        LocalSource {
            name: place.name.clone(),
            socket: place.socket.clone(),
            path: place.path.clone(),
        }
    }

    fn ask(&self, offset: u64, len: usize, end: Instant) -> Result<UnixStream, SourceError> {
        let mut stream = UnixStream::connect(&self.socket).map_err(|error| {
            SourceError::Unreachable(format!("{}: {error}", self.socket.display()))
        })?;
        limit(&stream, end)?;
        let last = offset + len as u64 - 1;
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={offset}-{last}\r\nConnection: close\r\n\r\n",
            self.path
        );
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }
}

impl Source for LocalSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], limit: Duration) -> Result<(), SourceError> {
        if buffer.is_empty() {
            return Ok(());
        }
        let end = Instant::now() + limit;
        let mut stream = self.ask(offset, buffer.len(), end)?;
        let mut bytes = Vec::new();
        let (head, status) = receive_head(&mut stream, &mut bytes, end)?;
        match status {
            206 => {}
            200 => return Err(SourceError::NoRange),
            404 => return Err(SourceError::Absent("it does not have the image".to_owned())),
            status => return Err(SourceError::Status(status)),
        }
        let first = bytes.get(head..).unwrap_or_default();
        let mut filled = first.len().min(buffer.len());
        buffer[..filled].copy_from_slice(&first[..filled]);
        while filled < buffer.len() {
            filled += receive(&mut stream, &mut buffer[filled..], end)?;
        }
        Ok(())
    }
}

/// Read the head of an answer, and return its length and the status. What follows it may be in `bytes`, too.
fn receive_head(
    stream: &mut UnixStream,
    bytes: &mut Vec<u8>,
    end: Instant,
) -> Result<(usize, u16), SourceError> {
    let mut part = [0; 4096];
    while bytes.len() < LONGEST_HEAD {
        let count = receive(stream, &mut part, end)?;
        bytes.extend_from_slice(&part[..count]);
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut headers);
        match head.parse(bytes) {
            Ok(httparse::Status::Complete(len)) => return Ok((len, head.code.unwrap_or(0))),
            Ok(httparse::Status::Partial) => {}
            Err(error) => return Err(SourceError::Unreachable(format!("no HTTP: {error}"))),
        }
    }
    Err(SourceError::Unreachable(
        "its answer has a head that is too long".to_owned(),
    ))
}

/// Read some bytes; an end of the connection is an error.
fn receive(stream: &mut UnixStream, buffer: &mut [u8], end: Instant) -> Result<usize, SourceError> {
    limit(stream, end)?;
    match stream.read(buffer)? {
        0 => Err(SourceError::Short("the connection ended".to_owned())),
        count => Ok(count),
    }
}

fn limit(stream: &UnixStream, end: Instant) -> Result<(), SourceError> {
    let left = end.saturating_duration_since(Instant::now());
    stream.set_read_timeout(Some(left.max(LEAST_TIME)))?;
    Ok(stream.set_write_timeout(Some(left.max(LEAST_TIME)))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// Answer one request with some pieces, and return what reading 5 bytes from 7 on came to, and the request.
    fn read(pieces: &'static [&'static [u8]]) -> (Result<Vec<u8>, SourceError>, String) {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let count = stream.read(&mut request).unwrap();
            for piece in pieces {
                stream.write_all(piece).unwrap();
            }
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let source = LocalSource::new(&LocalPlace {
            name: "agent".to_owned(),
            socket,
            path: "/v1/x".to_owned(),
        });
        let mut buffer = vec![0; 5];
        let found = source.read_at(7, &mut buffer, Duration::from_secs(5));
        (found.map(|()| buffer), server.join().unwrap())
    }

    #[test]
    fn a_range_arrives_in_any_pieces() {
        const WHOLE: &[&[u8]] =
            &[b"HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello"];
        const PIECES: &[&[u8]] = &[b"HTTP/1.1 206 Pa", b"rtial Content\r\n\r\n", b"he", b"llo"];
        const LONGER: &[&[u8]] = &[b"HTTP/1.1 206 Partial Content\r\n\r\nhello and more"];
        for pieces in [WHOLE, PIECES, LONGER] {
            let (found, request) = read(pieces);
            assert_eq!(found.unwrap(), b"hello");
            assert!(request.starts_with("GET /v1/x HTTP/1.1\r\n"), "{request}");
            assert!(request.contains("\r\nRange: bytes=7-11\r\n"), "{request}");
        }
    }

    #[test]
    fn other_answers_are_errors() {
        for (answer, expected) in [
            (b"HTTP/1.1 200 OK\r\n\r\nhello".as_slice(), "Range"),
            (b"HTTP/1.1 404 Not Found\r\n\r\n", "does not have"),
            (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "503"),
            (b"HTTP/1.1 206 Partial Content\r\n\r\nhel", "fewer bytes"),
            (b"", "fewer bytes"),
            (b"nonsense\r\n\r\n", "no HTTP"),
        ] {
            let answers: &'static [&'static [u8]] = Box::leak(Box::new([answer]));
            let error = read(answers).0.unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_server_that_is_gone_is_named() {
        let source = LocalSource::new(&LocalPlace {
            name: "agent".to_owned(),
            socket: "/nonexistent/socket".into(),
            path: "/".to_owned(),
        });
        let error = source
            .read_at(0, &mut [0], Duration::from_secs(1))
            .unwrap_err();
        assert!(error.to_string().contains("/nonexistent/socket"), "{error}");
    }
}
