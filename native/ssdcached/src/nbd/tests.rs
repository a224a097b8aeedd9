//! Clients of all kinds, against an export in memory.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use proptest::prelude::*;

use super::protocol::{option, reply, EXPORT_FLAGS, IHAVEOPT, MAX_DATA, NBDMAGIC, OPTION_REPLY};
use super::{negotiate, transmit, Export, Exports};

const SIZE: usize = 1 << 20;
const NAME: &str = "secret";
/// Tests fail instead of waiting for ever.
const PATIENCE: Duration = Duration::from_secs(60);

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

    /// Waits until so many slow reads have begun.
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

struct One(Arc<Memory>);

impl Exports for One {
    type Export = Memory;

    fn find(&self, name: &str) -> io::Result<Option<Arc<Memory>>> {
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
    fn new(memory: &Arc<Memory>) -> Self {
        let (stream, other) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let exports = One(memory.clone());
        let served = std::thread::spawn(move || match negotiate(&mut &other, &exports)? {
            Some(export) => transmit(other, export),
            None => Ok(()),
        });
        Self { stream, served }
    }

    /// A client that has chosen the export.
    fn chosen(memory: &Arc<Memory>) -> Self {
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

#[test]
fn an_export_is_described_with_sizes_of_requests() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    client.ask(option::INFO, &export_data(NAME, &[3]));
    assert_eq!((reply::INFO, described()), client.answer(option::INFO));
    let sizes = vec![0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0];
    assert_eq!((reply::INFO, sizes), client.answer(option::INFO));
    assert_eq!((reply::ACK, vec![]), client.answer(option::INFO));
    client.ask(option::ABORT, &[]);
    assert_eq!((reply::ACK, vec![]), client.answer(option::ABORT));
    client.leave().unwrap();
}

#[test]
fn an_old_client_chooses_an_export_by_name() {
    for (flags, zeroes) in [(1_u32, 124), (3, 0)] {
        let mut client = Client::new(&Memory::new());
        client.receive(18);
        client.send(&flags.to_be_bytes());
        client.ask(option::EXPORT_NAME, NAME.as_bytes());
        assert_eq!(described()[2..], client.receive(10));
        assert_eq!(vec![0; zeroes], client.receive(zeroes));
        client.request(READ, 1, 0, 4);
        assert_eq!((0, 1), client.reply());
        assert_eq!(vec![0, 1, 2, 3], client.receive(4));
        client.leave().unwrap();
    }
}

#[test]
fn names_are_neither_listed_nor_guessed() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    client.ask(option::LIST, &[]);
    assert_eq!(reply::ERR_POLICY, client.answer(option::LIST).0);
    client.ask(option::GO, &export_data("other", &[]));
    assert_eq!(reply::ERR_UNKNOWN, client.answer(option::GO).0);
    client.ask(option::EXPORT_NAME, b"other");
    assert!(client.is_ended());
    assert!(client.leave().is_err());
}

#[test]
fn an_unknown_option_is_answered() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    for option in [5, 8, 9, 10, 77] {
        client.ask(option, b"data");
        assert_eq!((reply::ERR_UNSUP, vec![]), client.answer(option));
    }
    client.leave().unwrap_err();
}

#[test]
fn a_malformed_option_is_refused() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    for data in [
        &b""[..],
        b"\0\0\0\x7fsecret\0\0",
        b"\0\0\0\x06secret",
        b"\0\0\0\x06secret\0\x02\0\x03",
    ] {
        client.ask(option::GO, data);
        assert_eq!(reply::ERR_INVALID, client.answer(option::GO).0);
    }
    client.leave().unwrap_err();
}

#[test]
fn a_client_that_breaks_the_handshake_is_disconnected() {
    let long = [&IHAVEOPT.to_be_bytes()[..], &[0, 0, 0, 7, 0x7f, 0, 0, 0]].concat();
    for bytes in [
        &[0xff; 4][..],
        &[[0, 0, 0, 3], [1; 4], [1; 4], [1; 4], [1; 4]].concat(),
        &[&[0, 0, 0, 3][..], &long].concat(),
    ] {
        let mut client = Client::new(&Memory::new());
        client.receive(18);
        client.send(bytes);
        assert!(client.is_ended());
        assert!(client.leave().is_err());
    }
}

#[test]
fn a_client_with_options_without_end_is_disconnected() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    for _ in 0..64 {
        client.ask(option::LIST, &[]);
        client.answer(option::LIST);
    }
    assert!(client.is_ended());
    client.leave().unwrap_err();
}

#[test]
fn what_was_written_is_read() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    // One at an odd offset, for which a thread is needed.
    for (cookie, offset) in [(1, 4096_u64), (2, 4097)] {
        client.request(WRITE, cookie, offset, 3);
        client.send(b"abc");
        assert_eq!((0, cookie), client.reply());
        client.request(READ, cookie, offset, 3);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(b"abc", &client.receive(3)[..]);
    }
    for command in [TRIM, ZERO] {
        client.request(command, 3, 0, 8192);
        assert_eq!((0, 3), client.reply());
        client.request(READ, 4, 4096, 4);
        assert_eq!((0, 4), client.reply());
        assert_eq!(vec![0; 4], client.receive(4));
    }
    assert_eq!(0, memory.flushes.load(Ordering::Relaxed));
    client.request(FLUSH, 5, 0, 0);
    assert_eq!((0, 5), client.reply());
    client.request(FUA_WRITE, 6, 0, 1);
    client.send(b"x");
    assert_eq!((0, 6), client.reply());
    assert_eq!(2, memory.flushes.load(Ordering::Relaxed));
    client.request(DISCONNECT, 7, 0, 0);
    assert!(client.is_ended());
    client.leave().unwrap();
}

#[test]
fn requests_that_cannot_be_done_are_refused_and_the_next_is_done() {
    let mut client = Client::chosen(&Memory::new());
    let end = SIZE as u64;
    let (invalid, no_space, failed) = (22, 28, 5);
    for (command, offset, length, error) in [
        (READ, end - 1, 2, invalid),
        (READ, u64::MAX, 2, invalid),
        (WRITE, end, 3, no_space),
        (ZERO, 1, SIZE as u32, no_space),
        (TRIM, u64::MAX, 1, no_space),
        (CACHE, 0, 1, invalid),
        ((0, 99), 0, 0, invalid),
        (READ, Memory::FAILING, 1, failed),
    ] {
        client.request(command, 8, offset, length);
        if command == WRITE {
            client.send(b"abc");
        }
        assert_eq!((error, 8), client.reply());
    }
    client.request(READ, 9, 250, 2);
    assert_eq!((0, 9), client.reply());
    assert_eq!(vec![250, 0], client.receive(2));
    client.leave().unwrap();
}

#[test]
fn a_write_that_is_too_long_ends_the_connection() {
    let mut client = Client::chosen(&Memory::new());
    client.request(WRITE, 1, 0, MAX_DATA + 1);
    assert!(client.is_ended());
    client.leave().unwrap_err();
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let mut client = Client::chosen(&Memory::new());
    client.send(&[0x77; 28]);
    assert!(client.is_ended());
    client.leave().unwrap_err();
}

#[test]
fn many_reads_in_one_piece_are_answered_in_few() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    let mut bytes = Vec::new();
    for cookie in 0..1000 {
        bytes.extend(request(READ, cookie, cookie * 2, 700));
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || sender.write_all(&bytes));
    for cookie in 0..1000 {
        assert_eq!((0, cookie), client.reply());
        let data = client.receive(700);
        assert_eq!((cookie * 2 % 251) as u8, data[0]);
        assert_eq!(((cookie * 2 + 699) % 251) as u8, data[699]);
    }
    sent.join().unwrap().unwrap();
    assert_eq!(1000, memory.at_once.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn a_read_longer_than_the_room_for_answers_is_answered() {
    let mut client = Client::chosen(&Memory::new());
    client.request(READ, 1, 0, SIZE as u32);
    assert_eq!((0, 1), client.reply());
    let data = client.receive(SIZE);
    assert!(data
        .iter()
        .enumerate()
        .all(|(n, byte)| *byte == (n % 251) as u8));
    client.leave().unwrap();
}

#[test]
fn slow_requests_do_not_keep_others_from_being_done() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    for cookie in 0..40 {
        client.request(READ, cookie, Memory::SLOW, 1);
    }
    for cookie in 100..110 {
        client.request(READ, cookie, 1, 1);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(vec![1], client.receive(1));
    }
    memory.release();
    let mut cookies: Vec<u64> = (0..40)
        .map(|_| {
            let (error, cookie) = client.reply();
            assert_eq!((0, 1), (error, client.receive(1).len()));
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert_eq!((0..40).collect::<Vec<u64>>(), cookies);
    client.leave().unwrap();
}

/// Has requests served until those that need no disk are quick, wherever this is run.
fn make_quick(client: &mut Client) {
    for cookie in 1000..2000 {
        client.request(READ, cookie, 1, 1);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(vec![1], client.receive(1));
    }
}

#[test]
fn a_slow_read_after_quick_ones_has_others_served_by_threads() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    for round in 1..3 {
        make_quick(&mut client);
        client.request(READ, round, Memory::SLOW, 1);
        memory.wait_for_slow(round);
        // The thread that waits had the socket.
        make_quick(&mut client);
    }
    memory.release();
    let mut cookies = [client.reply(), (client.receive(1), client.reply()).1];
    cookies.sort_unstable();
    assert_eq!([(0, 1), (0, 2)], cookies);
    client.receive(1);
    client.leave().unwrap();
}

#[test]
fn a_write_that_fails_is_answered_among_quick_ones() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    make_quick(&mut client);
    let bytes: Vec<u8> = (0..100)
        .flat_map(|cookie| {
            let offset = if cookie % 7 == 3 {
                Memory::FAILING
            } else {
                cookie * 2
            };
            let command = if cookie % 10 == 0 { FUA_WRITE } else { WRITE };
            let mut bytes = request(command, cookie, offset, 1);
            bytes.push(0xff);
            bytes
        })
        .collect();
    client.send(&bytes);
    let mut replies: Vec<(u64, u32)> = (0..100)
        .map(|_| client.reply())
        .map(|(error, cookie)| (cookie, error))
        .collect();
    replies.sort_unstable();
    let failed = |cookie| if cookie % 7 == 3 { 5 } else { 0 };
    let expected: Vec<_> = (0..100).map(|cookie| (cookie, failed(cookie))).collect();
    assert_eq!(expected, replies);
    // A write that failed is not made durable.
    assert_eq!(8, memory.flushes.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn a_read_that_is_to_be_durable_needs_no_flush() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    client.request((1, 0), 1, 1, 1);
    assert_eq!((0, 1), client.reply());
    assert_eq!(vec![1], client.receive(1));
    assert_eq!(0, memory.flushes.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn more_slow_requests_than_threads_are_all_answered() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    for cookie in 0..100 {
        client.request(READ, cookie, Memory::SLOW, 1);
    }
    memory.wait_for_slow(64);
    memory.release();
    for _ in 0..100 {
        assert_eq!(0, client.reply().0);
        client.receive(1);
    }
    client.leave().unwrap();
}

// nbdkit 1.32 ends its process then, and with it the exports of all others.
#[test]
fn a_client_that_vanishes_with_reads_under_way_ends_its_connection_alone() {
    let memory = Memory::new();
    let mut other = Client::chosen(&memory);
    let mut client = Client::chosen(&memory);
    for cookie in 0..40 {
        client.request(READ, cookie, Memory::SLOW, 100_000);
    }
    memory.wait_for_slow(1);
    client.stream.shutdown(Shutdown::Both).unwrap();
    memory.release();
    // That the client is gone is an error only for those that wanted to answer it.
    let _ = client.leave();
    other.request(READ, 1, 0, 1);
    assert_eq!((0, 1), other.reply());
    assert_eq!(vec![0], other.receive(1));
    other.leave().unwrap();
}

#[test]
fn a_client_that_leaves_within_a_write_writes_nothing() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    client.request(WRITE, 1, 0, 100);
    client.send(&[0xff; 50]);
    assert!(client.leave().is_err());
    assert_eq!([0, 1], memory.bytes.lock().unwrap()[..2]);
}

#[derive(Debug, Clone)]
enum Step {
    Read(u64, u32),
    Write(u64, Vec<u8>),
    Zero(u64, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..1000_u64;
    prop_oneof![
        (offset.clone(), 0..5000_u32).prop_map(|(at, length)| Step::Read(at, length)),
        (offset.clone(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(at, data)| Step::Write(at, data)),
        (offset, 0..300_u32).prop_map(|(at, length)| Step::Zero(at, length)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_one_after_the_other_are_those_of_a_plain_array(steps in prop::collection::vec(step(), 1..40)) {
        let memory = Memory::new();
        let mut model = memory.bytes.lock().unwrap().clone();
        let mut client = Client::chosen(&memory);
        for (cookie, step) in (0..).zip(steps) {
            match step {
                Step::Read(at, length) => {
                    client.request(READ, cookie, at, length);
                    prop_assert_eq!((0, cookie), client.reply());
                    let end = at as usize + length as usize;
                    prop_assert_eq!(&model[at as usize..end], &client.receive(length as usize)[..]);
                }
                Step::Write(at, data) => {
                    client.request(WRITE, cookie, at, data.len() as u32);
                    client.send(&data);
                    prop_assert_eq!((0, cookie), client.reply());
                    model[at as usize..at as usize + data.len()].copy_from_slice(&data);
                }
                Step::Zero(at, length) => {
                    client.request(ZERO, cookie, at, length);
                    prop_assert_eq!((0, cookie), client.reply());
                    model[at as usize..at as usize + length as usize].fill(0);
                }
            }
        }
        prop_assert!(client.leave().is_ok());
    }

    #[test]
    fn no_bytes_of_a_client_stop_the_server(
        chosen in any::<bool>(),
        bytes in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            (0..9_u16, 0..2_u64 << 20, any::<u32>()).prop_map(|(command, offset, length)| {
                request((0, command), 1, offset, length)
            }),
        ], 0..20),
    ) {
        let memory = Memory::new();
        memory.release();
        let mut client = if chosen { Client::chosen(&memory) } else { Client::new(&memory) };
        // What it answers is not read by all clients.
        let _ = client.stream.write_all(&bytes.concat());
        let _ = client.stream.shutdown(Shutdown::Both);
        let _ = client.leave();
    }
}
