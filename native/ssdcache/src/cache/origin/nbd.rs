//! Origins that a server of NBD has, as its protocol is documented in
//! <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.
//!
//! All requests share a connection, and wait for their own answers. If it breaks, each request is
//! sent once more over another.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt;

use crate::device::disk::Disk;

const MAGIC: u64 = 0x4e42_444d_4147_4943;
const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const REQUEST_MAGIC: u32 = 0x2560_9513;
const REPLY_MAGIC: u32 = 0x6744_6698;
/// Fixed newstyle, without zeroes at the end of the handshake.
const HANDSHAKE_FLAGS: u16 = 3;
const OPTION_GO: u32 = 7;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_ERROR: u32 = 1 << 31;
const INFO_EXPORT: u16 = 0;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const IS_READ_ONLY: u16 = 1 << 1;
const CAN_FLUSH: u16 = 1 << 2;
const CAN_FUA: u16 = 1 << 3;
const CAN_ZERO: u16 = 1 << 6;
/// Bytes of an answer during the handshake.
const MAX_OPTION_REPLY: u32 = 64 << 10;
/// Bytes of a request's data that every server takes.
const MAX_DATA: usize = 32 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
/// After a failure, requests fail for this time without another attempt to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// Where a server is, and which of its exports is the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    server: Server,
    export: String,
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

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    fn connect(server: &Server) -> io::Result<Self> {
        match server {
            Server::Unix(path) => UnixStream::connect(path).map(Self::Unix),
            Server::Tcp(host, port) => connect_tcp(host, *port).map(Self::Tcp),
        }
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
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
    fn close(&self) {
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

/// Why a request has no answer, or which.
#[derive(Debug)]
enum Failure {
    /// The connection broke: the request may or may not have been done.
    Broken(String),
    /// The server's answer is an error.
    Refused(io::Error),
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Broken(reason) => Self::new(io::ErrorKind::ConnectionReset, reason),
            Failure::Refused(error) => error,
        }
    }
}

struct Waiting {
    answer: Sender<Result<Vec<u8>, Failure>>,
    /// Bytes of data behind the answer.
    length: usize,
}

#[derive(Default)]
struct Pending {
    waiting: HashMap<u64, Waiting>,
    last: u64,
    broken: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection to an export.
pub struct Connection {
    socket: Arc<Socket>,
    pending: Arc<Mutex<Pending>>,
    sending: Mutex<()>,
    size: u64,
    flags: u16,
    /// Writes that are under way.
    running: AtomicU64,
    /// Writes that are complete.
    written: AtomicU64,
    /// Of them, those that were complete when a flush began that succeeded.
    flushed: AtomicU64,
}

impl Connection {
    /// Connects to an export.
    ///
    /// # Errors
    /// There is no such server or export, or it is read-only.
    pub fn open(address: &Address) -> io::Result<Self> {
        let socket = Socket::connect(&address.server)?;
        socket.set_timeout(Some(TIMEOUT))?;
        let (size, flags) = shake_hands(&socket, &address.export)?;
        if flags & IS_READ_ONLY != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the server has this export for reading only",
            ));
        }
        // A disk that takes long is waited for.
        socket.set_timeout(None)?;
        let socket = Arc::new(socket);
        let pending = Arc::new(Mutex::new(Pending::default()));
        let (reader, shared) = (socket.clone(), pending.clone());
        std::thread::Builder::new().spawn(move || {
            let reason = match receive(&reader, &shared) {
                Ok(()) => "the server sent an answer to no request".to_owned(),
                Err(error) => error.to_string(),
            };
            fail_all(&shared, &reason);
            reader.close();
        })?;
        Ok(Self {
            socket,
            pending,
            sending: Mutex::default(),
            size,
            flags,
            running: AtomicU64::new(0),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        })
    }

    fn is_broken(&self) -> bool {
        lock(&self.pending).broken.is_some()
    }

    /// Whether there are complete writes that a flush of this connection did not follow.
    fn has_unflushed(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.flushed.load(Ordering::Acquire)
    }

    fn is_written(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    fn call(&self, request: &Request<'_>) -> Result<Vec<u8>, Failure> {
        let (answer, answered) = channel();
        let length = if request.kind == READ {
            request.length as usize
        } else {
            0
        };
        let handle = {
            let mut pending = lock(&self.pending);
            if let Some(reason) = &pending.broken {
                return Err(Failure::Broken(reason.clone()));
            }
            pending.last += 1;
            let handle = pending.last;
            pending.waiting.insert(handle, Waiting { answer, length });
            handle
        };
        let sent = {
            let _alone = lock(&self.sending);
            let mut socket = &*self.socket;
            let header = request.header(handle);
            socket
                .write_all(&header)
                .and_then(|()| socket.write_all(request.data))
        };
        if let Err(error) = sent {
            fail_all(&self.pending, &error.to_string());
            self.socket.close();
        }
        let broken = |_| Err(Failure::Broken("the connection ended".into()));
        answered.recv().unwrap_or_else(broken)
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
        for (number, part) in buffer.chunks_mut(MAX_DATA).enumerate() {
            let at = offset + (number * MAX_DATA) as u64;
            part.copy_from_slice(&self.call(&Request::of(READ, at, part.len()))?);
        }
        Ok(())
    }

    /// Counts a write: what is complete before a flush begins is flushed by it. One that is sent
    /// again is counted over there.
    fn count(&self, write: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
        self.running.fetch_add(1, Ordering::AcqRel);
        let result = write();
        if !matches!(result, Err(Failure::Broken(_))) {
            self.written.fetch_add(1, Ordering::AcqRel);
        }
        self.running.fetch_sub(1, Ordering::AcqRel);
        result
    }

    fn write(&self, bytes: &[u8], offset: u64, durably: bool) -> Result<(), Failure> {
        self.count(|| self.send_write(bytes, offset, durably))?;
        if durably && self.flags & CAN_FUA == 0 {
            self.flush()?;
        }
        Ok(())
    }

    fn send_write(&self, bytes: &[u8], offset: u64, durably: bool) -> Result<(), Failure> {
        let with_fua = durably && self.flags & CAN_FUA != 0;
        for (number, part) in bytes.chunks(MAX_DATA).enumerate() {
            let at = offset + (number * MAX_DATA) as u64;
            self.call(&Request {
                flags: if with_fua { FUA } else { 0 },
                data: part,
                ..Request::of(WRITE, at, part.len())
            })?;
        }
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), Failure> {
        self.count(|| self.send_zero(offset, length))
    }

    fn send_zero(&self, offset: u64, length: u64) -> Result<(), Failure> {
        let end = offset + length;
        let most = MAX_DATA as u64;
        for at in (offset..end).step_by(MAX_DATA) {
            let part = most.min(end - at) as usize;
            if self.flags & CAN_ZERO != 0 {
                self.call(&Request::of(WRITE_ZEROES, at, part))?;
            } else {
                self.send_write(&vec![0; part], at, false)?;
            }
        }
        Ok(())
    }

    fn flush(&self) -> Result<(), Failure> {
        let written = self.written.load(Ordering::Acquire);
        let flushed = match self.flags & CAN_FLUSH {
            0 => Ok(()),
            _ => self.call(&Request::of(FLUSH, 0, 0)).map(drop),
        };
        if !matches!(flushed, Err(Failure::Broken(_))) {
            // An error of the server reports what it lost.
            self.flushed.fetch_max(written, Ordering::AcqRel);
        }
        flushed
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.socket.close();
    }
}

struct Request<'a> {
    kind: u16,
    flags: u16,
    offset: u64,
    length: u32,
    data: &'a [u8],
}

impl Request<'_> {
    fn of(kind: u16, offset: u64, length: usize) -> Self {
        Self {
            kind,
            flags: 0,
            offset,
            length: length as u32,
            data: &[],
        }
    }

    fn header(&self, handle: u64) -> [u8; 28] {
        let mut header = [0; 28];
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4..6].copy_from_slice(&self.flags.to_be_bytes());
        header[6..8].copy_from_slice(&self.kind.to_be_bytes());
        header[8..16].copy_from_slice(&handle.to_be_bytes());
        header[16..24].copy_from_slice(&self.offset.to_be_bytes());
        header[24..].copy_from_slice(&self.length.to_be_bytes());
        header
    }
}

/// Hands answers to the requests that wait for them; returns if one is for none.
fn receive(mut socket: &Socket, pending: &Mutex<Pending>) -> io::Result<()> {
    loop {
        if read_u32(&mut socket)? != REPLY_MAGIC {
            return Err(not_nbd());
        }
        let error = read_u32(&mut socket)?;
        let handle = read_u64(&mut socket)?;
        let Some(waiting) = lock(pending).waiting.remove(&handle) else {
            return Ok(());
        };
        let answer = if error == 0 {
            let mut data = vec![0; waiting.length];
            socket.read_exact(&mut data).inspect_err(|error| {
                let broken = Failure::Broken(error.to_string());
                // A waiter that gave up has its own error.
                let _ = waiting.answer.send(Err(broken));
            })?;
            Ok(data)
        } else {
            // The protocol's numbers are those of Linux.
            let number = i32::try_from(error).unwrap_or(5);
            Err(Failure::Refused(io::Error::from_raw_os_error(number)))
        };
        let _ = waiting.answer.send(answer);
    }
}

fn fail_all(pending: &Mutex<Pending>, reason: &str) {
    let mut pending = lock(pending);
    pending.broken.get_or_insert_with(|| reason.to_owned());
    for (_, waiting) in pending.waiting.drain() {
        let _ = waiting.answer.send(Err(Failure::Broken(reason.to_owned())));
    }
}

fn not_nbd() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is not a server of NBD")
}

fn read_u16(mut socket: impl Read) -> io::Result<u16> {
    let mut bytes = [0; 2];
    socket.read_exact(&mut bytes)?;
    Ok(u16::from_be_bytes(bytes))
}

fn read_u32(mut socket: impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    socket.read_exact(&mut bytes)?;
    Ok(u32::from_be_bytes(bytes))
}

fn read_u64(mut socket: impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    socket.read_exact(&mut bytes)?;
    Ok(u64::from_be_bytes(bytes))
}

/// Returns the size of an export, and what the server can do with it.
fn shake_hands(mut socket: &Socket, export: &str) -> io::Result<(u64, u16)> {
    if read_u64(&mut socket)? != MAGIC || read_u64(&mut socket)? != OPTION_MAGIC {
        return Err(not_nbd());
    }
    let offered = read_u16(&mut socket)?;
    let flags = u32::from(offered & HANDSHAKE_FLAGS);
    let length = export.len() as u32;
    let mut sent = Vec::new();
    sent.extend(flags.to_be_bytes());
    sent.extend(OPTION_MAGIC.to_be_bytes());
    sent.extend(OPTION_GO.to_be_bytes());
    sent.extend((length + 6).to_be_bytes());
    sent.extend(length.to_be_bytes());
    sent.extend(export.as_bytes());
    // No further information is asked for.
    sent.extend([0; 2]);
    socket.write_all(&sent)?;
    let mut found = None;
    loop {
        if read_u64(&mut socket)? != OPTION_REPLY_MAGIC {
            return Err(not_nbd());
        }
        let _option = read_u32(&mut socket)?;
        let kind = read_u32(&mut socket)?;
        let length = read_u32(&mut socket)?;
        if length > MAX_OPTION_REPLY {
            return Err(not_nbd());
        }
        let mut data = vec![0; length as usize];
        socket.read_exact(&mut data)?;
        match kind {
            REPLY_INFO if data.len() >= 12 && read_u16(&data[..])? == INFO_EXPORT => {
                found = Some((read_u64(&data[2..])?, read_u16(&data[10..])?));
            }
            REPLY_INFO => {}
            REPLY_ACK => return found.ok_or_else(not_nbd),
            _ if kind & REPLY_ERROR != 0 => {
                return Err(io::Error::new(
                    io::ErrorKind::NotFound,
                    format!("the server refuses the export {export:?}"),
                ));
            }
            _ => return Err(not_nbd()),
        }
    }
}

/// Connects to the server that has an origin.
pub trait Source: Send + Sync {
    /// Connects.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    fn connect(&self) -> io::Result<Connection>;

    /// What the origin is, whatever it is named.
    fn identity(&self) -> String;

    /// Has the server look for the size that the origin has now.
    ///
    /// # Errors
    /// The server cannot do so.
    fn look_again(&self) -> io::Result<()>;
}

impl Source for Address {
    fn connect(&self) -> io::Result<Connection> {
        Connection::open(self)
    }

    fn identity(&self) -> String {
        let server = match &self.server {
            Server::Unix(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                path.display().to_string()
            }
            Server::Tcp(host, port) => format!("{}:{port}", host.to_lowercase()),
        };
        format!("nbd {server} {}", self.export)
    }

    fn look_again(&self) -> io::Result<()> {
        Ok(())
    }
}

#[derive(Default)]
struct Link {
    connection: Option<Arc<Connection>>,
    /// When it failed the last time, and why.
    failed: Option<(Instant, String)>,
    /// Whether writes that were not flushed went over a connection that broke.
    lost: bool,
}

/// An origin that a server of NBD has.
pub struct NbdOrigin<S> {
    source: S,
    size: AtomicU64,
    link: Mutex<Link>,
}

impl<S: Source> NbdOrigin<S> {
    /// Connects to an origin.
    ///
    /// # Errors
    /// The server is not there, or refuses.
    pub fn open(source: S) -> io::Result<Self> {
        let connection = source.connect()?;
        let origin = Self::missing(source, connection.size);
        lock(&origin.link).connection = Some(Arc::new(connection));
        Ok(origin)
    }

    /// An origin that cannot be reached now. Each request looks for it.
    pub fn missing(source: S, size: u64) -> Self {
        Self {
            source,
            size: AtomicU64::new(size),
            link: Mutex::default(),
        }
    }

    fn connection(&self) -> io::Result<Arc<Connection>> {
        let mut link = lock(&self.link);
        if let Some(connection) = &link.connection {
            if !connection.is_broken() {
                return Ok(connection.clone());
            }
            link.lost |= connection.has_unflushed();
            link.connection = None;
        }
        if let Some((when, reason)) = &link.failed {
            if when.elapsed() < PAUSE {
                return Err(io::Error::new(io::ErrorKind::NotConnected, reason.clone()));
            }
        }
        let connected = self.source.connect().and_then(|found| self.check(found));
        match connected {
            Ok(connection) => {
                link.failed = None;
                Ok(link.connection.insert(Arc::new(connection)).clone())
            }
            Err(error) => {
                link.failed = Some((Instant::now(), error.to_string()));
                Err(error)
            }
        }
    }

    /// Refuses an origin that was replaced, as far as its size shows it.
    fn check(&self, connection: Connection) -> io::Result<Connection> {
        let size = self.size.load(Ordering::Acquire);
        if connection.size == size {
            return Ok(connection);
        }
        Err(io::Error::other(format!(
            "the origin has {} bytes, and had {size} when it was attached; detach the volume and \
             attach it again",
            connection.size
        )))
    }

    /// Sends a request, and once more if the connection breaks.
    fn send<T>(&self, mut request: impl FnMut(&Connection) -> Result<T, Failure>) -> io::Result<T> {
        match request(&*self.connection()?) {
            Err(Failure::Broken(_)) => Ok(request(&*self.connection()?)?),
            other => Ok(other?),
        }
    }
}

impl<S: Source> NbdOrigin<S> {
    /// Sends a write. A connection that broke meanwhile was perhaps replaced before it was counted.
    fn put(&self, mut write: impl FnMut(&Connection) -> Result<(), Failure>) -> io::Result<()> {
        self.send(|connection| {
            write(connection)?;
            if connection.is_broken() {
                lock(&self.link).lost = true;
            }
            Ok(())
        })
    }

    fn check_lost(&self) -> io::Result<()> {
        if std::mem::take(&mut lock(&self.link).lost) {
            return Err(io::Error::other(
                "the connection to the origin broke before all writes were flushed",
            ));
        }
        Ok(())
    }
}

impl<S: Source> Disk for NbdOrigin<S> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.send(|connection| connection.read(buffer, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(|connection| connection.write(bytes, offset, false))
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.put(|connection| connection.write(bytes, offset, true))
    }

    /// Fails once after writes were complete over a connection that broke before a flush: the
    /// server may have lost them.
    fn sync(&self) -> io::Result<()> {
        if lock(&self.link).connection.is_none() {
            // Nothing was written since the last connection, about which see below.
            return self.check_lost();
        }
        self.send(Connection::flush)?;
        self.check_lost()
    }

    fn identity(&self) -> Option<String> {
        Some(self.source.identity())
    }

    fn outlives_processes(&self) -> bool {
        false
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.put(|connection| connection.zero(offset, length))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size.load(Ordering::Acquire))
    }

    fn size_now(&self) -> io::Result<u64> {
        let mut link = lock(&self.link);
        let before = self.size.load(Ordering::Acquire);
        if let Some(connection) = &link.connection {
            if connection.is_written() || connection.has_unflushed() {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    "there are writes to the origin that were not flushed",
                ));
            }
        }
        self.source.look_again()?;
        let connection = self.source.connect()?;
        let now = connection.size;
        if now >= before {
            self.size.store(now, Ordering::Release);
            link.connection = Some(Arc::new(connection));
        }
        Ok(now)
    }
}

#[cfg(test)]
mod tests;
