//! A connection to an export, which requests of any number of threads share.
//!
//! Each request waits for its own answer.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;

use crate::address::{Address, Socket, TIMEOUT};
use crate::negotiation::{choose, Description};
use crate::protocol::{export as flag, Command, Reply, Request, MAX_DATA};

/// Bytes of a request's data that every server takes.
const MOST: usize = MAX_DATA as usize;

/// Why a request has no answer, or which.
#[derive(Debug)]
pub enum Failure {
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

/// A connection to an export.
pub struct Connection {
    socket: Arc<Socket>,
    pending: Arc<Mutex<Pending>>,
    sending: Mutex<()>,
    export: Description,
    /// Writes that are under way.
    running: AtomicU64,
    /// Writes that are complete.
    written: AtomicU64,
    /// Of them, those that were complete when a flush began that succeeded.
    flushed: AtomicU64,
}

impl Connection {
    /// Connects to an export to read and write it.
    ///
    /// # Errors
    /// There is no such server or export, or it is read-only.
    pub fn open(address: &Address) -> io::Result<Self> {
        let connection = Self::open_to_read(address)?;
        if connection.export.flags & flag::READ_ONLY != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the server has this export for reading only",
            ));
        }
        Ok(connection)
    }

    /// Connects to an export that may be read-only.
    ///
    /// # Errors
    /// There is no such server or export.
    pub fn open_to_read(address: &Address) -> io::Result<Self> {
        let socket = Socket::connect(address)?;
        socket.set_timeout(Some(TIMEOUT))?;
        let export = choose(&mut &socket, &address.export)?;
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
            export,
            running: AtomicU64::new(0),
            written: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
        })
    }

    /// The size of the export in bytes.
    pub fn size(&self) -> u64 {
        self.export.size
    }

    /// Whether no request can be sent any more.
    pub fn is_broken(&self) -> bool {
        self.pending.lock().unpoisoned().broken.is_some()
    }

    /// Whether there are complete writes that a flush of this connection did not follow.
    pub fn has_unflushed(&self) -> bool {
        self.written.load(Ordering::Acquire) > self.flushed.load(Ordering::Acquire)
    }

    /// Whether writes are under way.
    pub fn is_writing(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// Sends a request, and waits for the data of its answer.
    fn call(&self, mut request: Request, data: &[u8]) -> Result<Vec<u8>, Failure> {
        let (answer, answered) = channel();
        let length = match request.command {
            Command::Read => request.length as usize,
            _ => 0,
        };
        {
            let mut pending = self.pending.lock().unpoisoned();
            if let Some(reason) = &pending.broken {
                return Err(Failure::Broken(reason.clone()));
            }
            pending.last += 1;
            request.cookie = pending.last;
            let waiting = Waiting { answer, length };
            pending.waiting.insert(request.cookie, waiting);
        }
        let sent = {
            let _alone = self.sending.lock().unpoisoned();
            let mut socket = &*self.socket;
            socket
                .write_all(&request.encode())
                .and_then(|()| socket.write_all(data))
        };
        if let Err(error) = sent {
            fail_all(&self.pending, &error.to_string());
            self.socket.close();
        }
        let broken = |_| Err(Failure::Broken("the connection ended".into()));
        answered.recv().unwrap_or_else(broken)
    }

    /// Fills a buffer from an offset.
    ///
    /// # Errors
    /// The connection broke, or the server refuses.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), Failure> {
        for (number, part) in buffer.chunks_mut(MOST).enumerate() {
            let at = offset + (number * MOST) as u64;
            let request = request(Command::Read, at, part.len());
            part.copy_from_slice(&self.call(request, &[])?);
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

    /// Writes bytes at an offset; `durably`: so that they survive a power cut.
    ///
    /// # Errors
    /// The connection broke, or the server refuses.
    pub fn write(&self, bytes: &[u8], offset: u64, durably: bool) -> Result<(), Failure> {
        self.count(|| self.send_write(bytes, offset, durably))?;
        if durably && self.export.flags & flag::FUA == 0 {
            self.flush()?;
        }
        Ok(())
    }

    fn send_write(&self, bytes: &[u8], offset: u64, durably: bool) -> Result<(), Failure> {
        let with_fua = durably && self.export.flags & flag::FUA != 0;
        for (number, part) in bytes.chunks(MOST).enumerate() {
            let at = offset + (number * MOST) as u64;
            let request = Request {
                is_durable: with_fua,
                ..request(Command::Write, at, part.len())
            };
            self.call(request, part)?;
        }
        Ok(())
    }

    /// Replaces a range by zeroes.
    ///
    /// # Errors
    /// The connection broke, or the server refuses.
    pub fn zero(&self, offset: u64, length: u64) -> Result<(), Failure> {
        self.count(|| self.send_zero(offset, length))
    }

    fn send_zero(&self, offset: u64, length: u64) -> Result<(), Failure> {
        let end = offset + length;
        let most = MOST as u64;
        for at in (offset..end).step_by(MOST) {
            let part = most.min(end - at) as usize;
            if self.export.flags & flag::ZEROES != 0 {
                self.call(request(Command::WriteZeroes, at, part), &[])?;
            } else {
                self.send_write(&vec![0; part], at, false)?;
            }
        }
        Ok(())
    }

    /// Makes all complete writes survive a power cut.
    ///
    /// # Errors
    /// The connection broke, or the server refuses: what was written may be lost.
    pub fn flush(&self) -> Result<(), Failure> {
        let written = self.written.load(Ordering::Acquire);
        let flushed = match self.export.flags & flag::FLUSH {
            0 => Ok(()),
            _ => self.call(request(Command::Flush, 0, 0), &[]).map(drop),
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

fn request(command: Command, offset: u64, length: usize) -> Request {
    Request {
        command,
        is_durable: false,
        cookie: 0,
        offset,
        length: length as u32,
    }
}

/// Hands answers to the requests that wait for them; returns if one is for none.
fn receive(mut socket: &Socket, pending: &Mutex<Pending>) -> io::Result<()> {
    loop {
        let reply = Reply::receive(&mut socket)?;
        let waiting = pending.lock().unpoisoned().waiting.remove(&reply.cookie);
        let Some(waiting) = waiting else {
            return Ok(());
        };
        let answer = match reply.result() {
            Ok(()) => {
                let mut data = vec![0; waiting.length];
                socket.read_exact(&mut data).inspect_err(|error| {
                    let broken = Failure::Broken(error.to_string());
                    // A waiter that gave up has its own error.
                    let _ = waiting.answer.send(Err(broken));
                })?;
                Ok(data)
            }
            Err(error) => Err(Failure::Refused(error)),
        };
        let _ = waiting.answer.send(answer);
    }
}

fn fail_all(pending: &Mutex<Pending>, reason: &str) {
    let mut pending = pending.lock().unpoisoned();
    pending.broken.get_or_insert_with(|| reason.to_owned());
    for (_, waiting) in pending.waiting.drain() {
        let _ = waiting.answer.send(Err(Failure::Broken(reason.to_owned())));
    }
}
