//! Requests to the daemon, as a client of the volume's NBD export, and their answers in any order.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use diffcache_nbd::negotiation::choose;
use diffcache_nbd::protocol::{Reply, Request, REPLY_BYTES};

use crate::message::invalid;

/// Bytes that are received at once.
const INPUT: usize = 64 << 10;

/// An answer, with the data of a read.
#[derive(Debug)]
pub struct Answer {
    /// The request's number.
    pub number: usize,
    /// Whether it was done.
    pub is_done: bool,
    pub data: Vec<u8>,
}

/// A connection to the daemon.
pub struct Forward {
    stream: UnixStream,
    /// What was not sent yet, and how much of it was.
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    /// Of requests that wait, how many bytes their answers have; none: no such waits.
    waiting: Vec<Option<u32>>,
    /// An answer whose data are not all here.
    partial: Option<(Answer, usize)>,
}

impl Forward {
    /// Chooses an export of the daemon.
    pub fn new(mut stream: UnixStream, export: &str) -> io::Result<Self> {
        choose(&mut stream, export)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            output: Vec::new(),
            sent: 0,
            input: Vec::with_capacity(INPUT),
            waiting: Vec::new(),
            partial: None,
        })
    }

    pub fn file(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Whether something is to be sent that the daemon does not take yet.
    pub fn has_output(&self) -> bool {
        self.sent < self.output.len()
    }

    /// Adds a request with a number of its own. `data` adds what is written; if that fails, nothing is
    /// sent.
    pub fn add(
        &mut self,
        number: usize,
        (request, answered): (&Request, u32),
        data: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> io::Result<()> {
        let before = self.output.len();
        let request = Request {
            cookie: number as u64,
            ..*request
        };
        self.output.extend(request.encode());
        data(&mut self.output).inspect_err(|_| self.output.truncate(before))?;
        if self.waiting.len() <= number {
            self.waiting.resize(number + 1, None);
        }
        self.waiting[number] = Some(answered);
        Ok(())
    }

    /// Sends as much as the daemon takes.
    pub fn send(&mut self) -> io::Result<()> {
        while self.has_output() {
            match (&self.stream).write(&self.output[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    // It may never be empty, and what is moved is no more than what was sent.
                    if self.sent >= self.output.len() / 2 {
                        self.output.drain(..self.sent);
                        self.sent = 0;
                    }
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives what has come, and returns the answers.
    pub fn receive(&mut self) -> io::Result<Vec<Answer>> {
        let mut answers = Vec::new();
        loop {
            if let Some((answer, filled)) = &mut self.partial {
                match (&self.stream).read(&mut answer.data[*filled..]) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => *filled += count,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(answers),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
                if *filled == answer.data.len() {
                    answers.extend(self.partial.take().map(|(answer, _)| answer));
                }
                continue;
            }
            let before = self.input.len();
            self.input.resize(INPUT, 0);
            let got = (&self.stream).read(&mut self.input[before..]);
            self.input.truncate(before + *got.as_ref().unwrap_or(&0));
            match got {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => self.split(&mut answers)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(answers),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes answers from what was received.
    fn split(&mut self, answers: &mut Vec<Answer>) -> io::Result<()> {
        let mut rest = &self.input[..];
        while rest.len() >= REPLY_BYTES {
            let reply = Reply::receive(&mut rest)?;
            let number = usize::try_from(reply.cookie).unwrap_or(usize::MAX);
            let waiting = self.waiting.get_mut(number).and_then(Option::take);
            let length = waiting.ok_or_else(|| invalid("an answer is to no request"))?;
            let is_done = reply.error == 0;
            let length = if is_done { length as usize } else { 0 };
            let here = length.min(rest.len());
            let mut data = rest[..here].to_vec();
            rest = &rest[here..];
            data.resize(length, 0);
            let answer = Answer {
                number,
                is_done,
                data,
            };
            match here == length {
                true => answers.push(answer),
                false => self.partial = Some((answer, here)),
            }
        }
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use diffcache_nbd::protocol::Command;

    use super::*;

    #[test]
    fn output_that_is_never_empty_takes_no_more_memory() {
        const PART: usize = 64 << 10;
        let (stream, mut daemon) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut forward = Forward {
            stream,
            output: Vec::new(),
            sent: 0,
            input: Vec::new(),
            waiting: Vec::new(),
            partial: None,
        };
        let request = Request {
            command: Command::Write,
            is_durable: false,
            cookie: 0,
            offset: 0,
            length: PART as u32,
        };
        let part = vec![0; PART];
        let mut taken = vec![0; PART + request.encode().len()];
        for step in 0..(512 << 20) / PART {
            let put = |output: &mut Vec<u8>| io::copy(&mut &part[..], output).map(drop);
            forward.add(0, (&request, 0), put).unwrap();
            forward.send().unwrap();
            if step >= 16 {
                assert!(forward.has_output());
                daemon.read_exact(&mut taken).unwrap();
            }
            assert!(forward.output.capacity() < 8 << 20, "step {step}");
        }
    }
}
