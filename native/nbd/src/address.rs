//! Where exports are, and sockets that lead to their servers.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::sockopt;

/// For connecting, and until a host that is gone is noticed.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Where a server is, and which of its exports is the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    server: Server,
    /// The name of the export.
    pub export: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Server {
    Unix(PathBuf),
    Tcp(String, u16),
}

impl Address {
    /// An export of a server on a unix socket.
    #[must_use]
    pub fn unix(socket: PathBuf, export: &str) -> Self {
        Self {
            server: Server::Unix(socket),
            export: export.to_owned(),
        }
    }

    /// An export of a server that is reached over TCP.
    #[must_use]
    pub fn tcp(host: &str, port: u16, export: &str) -> Self {
        Self {
            server: Server::Tcp(host.to_owned(), port),
            export: export.to_owned(),
        }
    }

    /// Parses `nbd+unix:///EXPORT?socket=PATH` or `nbd://HOST[:PORT]/EXPORT`.
    ///
    /// # Errors
    /// It is of neither form.
    pub fn parse(text: &str) -> io::Result<Self> {
        let wrong = || {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "expected nbd+unix:///EXPORT?socket=PATH or nbd://HOST[:PORT]/EXPORT",
            )
        };
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, socket) = rest.split_once("?socket=").ok_or_else(wrong)?;
            let socket = unescape(socket).filter(|path| path.starts_with('/'));
            return Ok(Self {
                server: Server::Unix(socket.ok_or_else(wrong)?.into()),
                export: unescape(export).ok_or_else(wrong)?,
            });
        }
        let rest = text.strip_prefix("nbd://").ok_or_else(wrong)?;
        let (host, export) = rest.split_once('/').ok_or_else(wrong)?;
        let (host, port) = match host.rsplit_once(':') {
            Some((name, port)) if !port.ends_with(']') => {
                (name, port.parse().map_err(|_| wrong())?)
            }
            _ => (host, 10809),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || export.contains('?') {
            return Err(wrong());
        }
        let export = unescape(export).ok_or_else(wrong)?;
        Ok(Self::tcp(host, port, &export))
    }

    /// What the export is, whatever it is named.
    #[must_use]
    pub fn identity(&self) -> String {
        let server = match &self.server {
            Server::Unix(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                path.display().to_string()
            }
            Server::Tcp(host, port) => format!("{}:{port}", host.to_lowercase()),
        };
        format!("nbd {server} {}", self.export)
    }
}

/// Replaces `%41` by `A`.
fn unescape(text: &str) -> Option<String> {
    let mut found = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            found.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(bytes.next())?, digit(bytes.next())?);
        found.push((high * 16 + low) as u8);
    }
    String::from_utf8(found).ok()
}

/// A socket that is connected to a server.
pub(crate) enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    pub fn connect(address: &Address) -> io::Result<Self> {
        match &address.server {
            Server::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Server::Tcp(host, port) => connect_tcp(host, *port).map(Self::Tcp),
        }
    }

    pub fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream
                .set_read_timeout(timeout)
                .and_then(|()| stream.set_write_timeout(timeout)),
            Self::Tcp(stream) => stream
                .set_read_timeout(timeout)
                .and_then(|()| stream.set_write_timeout(timeout)),
        }
    }

    /// Wakes the thread that waits for answers, and has it end.
    pub fn close(&self) {
        // An error means that it is closed.
        let _ = match self {
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // Finds out about a host that is gone.
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, TIMEOUT)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).read(buffer),
            Socket::Tcp(stream) => (&mut &*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Unix(stream) => (&mut &*stream).write(bytes),
            Socket::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let unix = Address::unix("/run/a b".into(), "x/y");
        assert_eq!(
            unix,
            Address::parse("nbd+unix:///x%2Fy?socket=/run/a%20b").unwrap()
        );
        let tcp = |host: &str, port| Address::tcp(host, port, "v");
        assert_eq!(tcp("h", 10809), Address::parse("nbd://h/v").unwrap());
        assert_eq!(tcp("::1", 7), Address::parse("nbd://[::1]:7/v").unwrap());
        assert_eq!(tcp("::1", 10809), Address::parse("nbd://[::1]/v").unwrap());
        for wrong in [
            "nbd://h",
            "nbd:///v",
            "nbd://h:x/v",
            "nbd+unix:///v",
            "nbd+unix:///v?socket=relative",
            "nbd+unix:///%4?socket=/s",
            "nbds://h/v",
            "/dev/vda",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
