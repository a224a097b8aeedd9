//! Clients of all kinds, against an export in memory.

mod direct;
mod handshake;
mod requests;
#[cfg(feature = "schedules")]
mod schedules;

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use proptest::prelude::*;

use super::{transmit, Export};
use crate::negotiation::{offer, Exports, EXPORT_FLAGS};
use crate::protocol::{option, reply, Request, IHAVEOPT, MAX_DATA, NBDMAGIC, OPTION_REPLY};

const SIZE: usize = 1 << 20;
const NAME: &str = "secret";
/// Tests fail instead of waiting for ever.
const PATIENCE: Duration = Duration::from_secs(240);

/// Bytes in memory. Reads at [`SLOW`](Self::SLOW) wait until they are released.
struct Memory {
    bytes: Mutex<Vec<u8>>,
    flushes: AtomicU64,
    at_once: AtomicU64,
    released: Mutex<bool>,
    changed: Condvar,
    slow_begun: AtomicU64,
}

impl Memory {
    const SLOW: u64 = 512 << 10;
    /// Reads of an odd offset are not possible at once.
    const FAILING: u64 = 900_000;

    fn new() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new((0..SIZE).map(|n| (n % 251) as u8).collect()),
            flushes: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            released: Mutex::new(false),
            changed: Condvar::new(),
            slow_begun: AtomicU64::new(0),
        })
    }

    /// Requests there wait until they are released, or their client has left.
    const LIMITED: u64 = 600_000;

    /// Waits until this many slow reads have begun.
    fn wait_for_slow(&self, count: u64) {
        while self.slow_begun.load(Ordering::Relaxed) < count {
            std::thread::yield_now();
        }
    }

    fn release(&self) {
        *self.released.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn copy(&self, offset: u64, buffer: &mut [u8]) {
        let bytes = self.bytes.lock().unwrap();
        let from = offset as usize;
        buffer.copy_from_slice(&bytes[from..from + buffer.len()]);
    }
}

impl Export for Memory {
    type Read = u64;

    fn size(&self) -> u64 {
        SIZE as u64
    }

    fn may_begin(&self, request: &Request) -> bool {
        request.offset != Self::LIMITED
    }

    fn wait(&self, _request: &Request, is_hurried: &dyn Fn() -> bool) {
        let mut released = self.released.lock().unwrap();
        while !*released && !is_hurried() {
            let look = Duration::from_millis(10);
            (released, _) = self.changed.wait_timeout(released, look).unwrap();
        }
    }

    fn begin_read(&self, offset: u64, _length: usize) -> u64 {
        offset
    }

    fn read_now(&self, offset: &u64, buffer: &mut [u8]) -> bool {
        let possible = offset % 2 == 0 && *offset != Self::SLOW && *offset != Self::FAILING;
        if possible {
            self.copy(*offset, buffer);
            self.at_once.fetch_add(1, Ordering::Relaxed);
        } else {
            buffer.fill(0xee);
        }
        possible
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset == Self::FAILING {
            return Err(io::Error::other("made to fail"));
        }
        if offset == Self::SLOW {
            self.slow_begun.fetch_add(1, Ordering::Relaxed);
            let mut released = self.released.lock().unwrap();
            while !*released {
                released = self.changed.wait(released).unwrap();
            }
        }
        self.copy(offset, buffer);
        Ok(())
    }

    fn write(&self, data: &[u8], offset: u64) -> io::Result<()> {
        if offset == Self::FAILING {
            return Err(io::Error::other("made to fail"));
        }
        let from = offset as usize;
        self.bytes.lock().unwrap()[from..from + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        let from = offset as usize;
        self.bytes.lock().unwrap()[from..from + length as usize].fill(0);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct One<E>(Arc<E>);

impl<E: Export> Exports for One<E> {
    type Export = E;

    fn find(&self, name: &str) -> io::Result<Option<Arc<E>>> {
        Ok((name == NAME).then(|| self.0.clone()))
    }
}

/// A client's end, and the server's thread.
struct Client {
    stream: UnixStream,
    served: JoinHandle<io::Result<()>>,
}

impl Client {
    /// A client that has not said anything.
    fn new<E: Export>(memory: &Arc<E>) -> Self {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let exports = One(memory.clone());
        let served = std::thread::spawn(move || match offer(&mut &other, &exports)? {
            Some(export) => transmit(other, export),
            None => Ok(()),
        });
        Self { stream, served }
    }

    /// A client that has chosen the export.
    fn chosen<E: Export>(memory: &Arc<E>) -> Self {
        let mut client = Self::new(memory);
        client.greet();
        client.ask(option::GO, &export_data(NAME, &[]));
        assert_eq!((reply::INFO, described()), client.answer(option::GO));
        assert_eq!((reply::ACK, vec![]), client.answer(option::GO));
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn greet(&mut self) {
        let mut expected = NBDMAGIC.to_be_bytes().to_vec();
        expected.extend(IHAVEOPT.to_be_bytes());
        expected.extend([0, 3]);
        assert_eq!(expected, self.receive(18));
        self.send(&3_u32.to_be_bytes());
    }

    fn ask(&mut self, option: u32, data: &[u8]) {
        let mut bytes = IHAVEOPT.to_be_bytes().to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes);
    }

    fn answer(&mut self, option: u32) -> (u32, Vec<u8>) {
        let head = self.receive(20);
        assert_eq!(OPTION_REPLY.to_be_bytes(), head[..8]);
        assert_eq!(option.to_be_bytes(), head[8..12]);
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
        (number(12), self.receive(number(16) as usize))
    }

    /// Sends a request.
    fn request(&mut self, (flags, command): (u16, u16), cookie: u64, offset: u64, length: u32) {
        self.send(&request((flags, command), cookie, offset, length));
    }

    /// Receives the head of a reply: the error, and the request's number.
    fn reply(&mut self) -> (u32, u64) {
        let head = self.receive(16);
        assert_eq!([0x67, 0x44, 0x66, 0x98], head[..4]);
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    /// Whether the server has ended the connection.
    fn is_ended(&mut self) -> bool {
        self.stream.read(&mut [0]).is_ok_and(|count| count == 0)
    }

    fn leave(self) -> io::Result<()> {
        drop(self.stream);
        self.served.join().unwrap()
    }
}

const READ: (u16, u16) = (0, 0);
const WRITE: (u16, u16) = (0, 1);
const FUA_WRITE: (u16, u16) = (1, 1);
const DISCONNECT: (u16, u16) = (0, 2);
const FLUSH: (u16, u16) = (0, 3);
const TRIM: (u16, u16) = (0, 4);
const CACHE: (u16, u16) = (0, 5);
const ZERO: (u16, u16) = (0, 6);

fn request((flags, command): (u16, u16), cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13];
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

fn export_data(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = (name.len() as u32).to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend((kinds.len() as u16).to_be_bytes());
    data.extend(kinds.iter().flat_map(|kind| kind.to_be_bytes()));
    data
}

/// The export, as it is described.
fn described() -> Vec<u8> {
    let mut data = vec![0, 0];
    data.extend((SIZE as u64).to_be_bytes());
    data.extend(EXPORT_FLAGS.to_be_bytes());
    data
}
