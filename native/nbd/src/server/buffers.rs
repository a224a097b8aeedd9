//! What was received from a client and what it is to be sent.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;

use crate::protocol::{Request, REPLY_BYTES, REQUEST_BYTES};

/// Bytes that are taken from the socket at once.
const INPUT: usize = 64 << 10;
/// Answers that have more bytes together are sent before the next request is looked at.
const TOGETHER: usize = 64 << 10;
/// As many answers are sent before the next request is looked at.
const MOST_TOGETHER: usize = 16;
/// Bytes of answers that are sent together.
const OUTPUT: usize = 512 << 10;

/// What was received and is not used yet, and answers that are not sent yet.
pub struct Buffers {
    input: Box<[u8]>,
    from: usize,
    to: usize,
    output: Box<[u8]>,
    answered: usize,
    answers: usize,
    /// Bytes of the answer that is being made.
    room: usize,
}

impl Buffers {
    pub fn new() -> Self {
        Self {
            input: vec![0; INPUT].into(),
            from: 0,
            to: 0,
            output: vec![0; OUTPUT].into(),
            answered: 0,
            answers: 0,
            room: 0,
        }
    }

    /// Whether this many bytes were received.
    pub fn has(&self, bytes: usize) -> bool {
        self.to - self.from >= bytes
    }

    pub fn has_request(&self) -> bool {
        self.has(REQUEST_BYTES)
    }

    /// Waits for more bytes. `false`: the client left, and not within a request.
    pub fn fill(&mut self, mut stream: &UnixStream) -> io::Result<bool> {
        self.make_room();
        let count = loop {
            match stream.read(&mut self.input[self.to..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.count(count)
    }

    /// Adds bytes that were received, of which half as many as there is room for may come, while there is no request.
    /// Returns what [`fill`](Self::fill) does.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.make_room();
        self.input[self.to..][..bytes.len()].copy_from_slice(bytes);
        self.count(bytes.len())
    }

    fn make_room(&mut self) {
        self.input.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
    }

    fn count(&mut self, count: usize) -> io::Result<bool> {
        self.to += count;
        match (count, self.to) {
            (0, 0) => Ok(false),
            (0, _) => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(true),
        }
    }

    /// Takes a request that was received.
    pub fn request(&mut self) -> io::Result<Request> {
        let mut bytes = [0; REQUEST_BYTES];
        bytes.copy_from_slice(&self.input[self.from..self.from + REQUEST_BYTES]);
        self.from += REQUEST_BYTES;
        Request::decode(&bytes)
    }

    /// Takes the data that follow a request, and waits for those that are missing.
    pub fn data(&mut self, mut stream: &UnixStream, length: usize) -> io::Result<Vec<u8>> {
        let mut data = vec![0; length];
        let received = length.min(self.to - self.from);
        data[..received].copy_from_slice(&self.input[self.from..self.from + received]);
        self.from += received;
        stream.read_exact(&mut data[received..])?;
        Ok(data)
    }

    /// Where the data of the next answer go; none if it has to be sent on its own.
    pub fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let begin = self.answered + REPLY_BYTES;
        self.room = length;
        self.output.get_mut(begin..begin + length)
    }

    /// Adds the answer whose data are in the room.
    pub fn answer(&mut self, request: &Request) {
        let head = self.answered..self.answered + REPLY_BYTES;
        self.output[head].copy_from_slice(&request.reply(0).encode());
        self.answered += REPLY_BYTES + self.room;
        self.answers += 1;
    }

    /// Adds an answer. `false`: there is no room for it.
    pub fn add(&mut self, answer: &[u8]) -> bool {
        let end = self.answered + answer.len();
        let Some(room) = self.output.get_mut(self.answered..end) else {
            return false;
        };
        room.copy_from_slice(answer);
        self.answered = end;
        self.answers += 1;
        true
    }

    /// Whether the answers should be sent.
    pub fn is_full(&self) -> bool {
        self.answered > TOGETHER || self.answers >= MOST_TOGETHER
    }

    pub fn answers(&self) -> &[u8] {
        &self.output[..self.answered]
    }

    pub fn clear_answers(&mut self) {
        (self.answered, self.answers) = (0, 0);
    }
}
