//! Reads past the page cache: the reader has many under way at the same time, and waits for them and
//! for requests with one system call.
//!
//! It stays the reader meanwhile, as the kernel may complete them only in the thread that began them:
//! requests that may wait are handed to other threads.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::Arc;

use super::super::pace::Tries;
use super::super::ring::{Event, Ring};
use super::super::{Export, Pieces};
use super::{Connection, Reader, Task};
use crate::protocol::Request;

/// The reads of a client that go past the page cache.
pub(super) struct Direct<R> {
    /// None: they cannot.
    ring: Option<Ring<(Request, R)>>,
    tries: Tries,
}

/// What was completed.
pub(super) enum Step<R> {
    Nothing,
    /// A read was answered, or something was received.
    Done,
    /// The client left.
    Left,
    /// A read is to be done in another way.
    Again(Request, R),
}

impl<R> Direct<R> {
    pub fn new<E: Export<Read = R>>(export: &E, stream: &UnixStream) -> Self {
        let ring = export.disk().and_then(|disk| {
            let ring = Ring::new(disk, stream.as_fd());
            let warn = |error: &io::Error| log::warn!("A client is served by threads: {error}");
            ring.inspect_err(warn).ok()
        });
        let tries = Tries::default();
        Self { ring, tries }
    }

    /// Whether something is under way that this thread has to complete.
    pub fn is_busy(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_busy)
    }

    /// Whether something has to be completed before another read begins.
    pub fn is_full(&self) -> bool {
        self.ring.as_ref().is_some_and(Ring::is_full)
    }
}

impl<E: Export> Connection<E> {
    /// Answers a read whose bytes are in memory, or begins to read them past it. Returns one that may
    /// wait otherwise.
    pub(super) fn begin_direct(
        &self,
        reader: &mut Reader<E::Read>,
        request: &Request,
        read: E::Read,
    ) -> Option<E::Read> {
        let Reader { buffers, direct } = reader;
        let pieces = match direct.ring {
            Some(_) => self.export.pieces(&read),
            None => None,
        };
        let is_tried = pieces.is_none() || direct.tries.is_due();
        if let Some(into) = buffers.room(request.length as usize).filter(|_| is_tried) {
            let is_there = self.export.read_now(&read, into);
            if pieces.is_some() {
                direct.tries.count(is_there);
            }
            if is_there {
                buffers.answer(request);
                return None;
            }
        }
        match (&mut direct.ring, pieces) {
            // Looking for bytes has begun to read them into memory.
            (Some(ring), Some(pieces)) => ring
                .begin((&pieces, is_tried), (*request, read))
                .map(|(_, read)| read),
            _ => Some(read),
        }
    }

    /// Waits for bytes of the client, or for reads that are under way. `false`: the client left.
    pub(super) fn wait_for_more(&self, reader: &mut Reader<E::Read>) -> io::Result<bool> {
        let Reader { buffers, direct } = reader;
        let Some(ring) = direct.ring.as_mut().filter(|ring| ring.is_busy()) else {
            return buffers.fill(&self.stream);
        };
        if !buffers.has_request() {
            ring.receive();
        }
        ring.wait()?;
        Ok(true)
    }

    /// Looks at something that has ended.
    pub(super) fn complete(&self, reader: &mut Reader<E::Read>) -> io::Result<Step<E::Read>> {
        let Reader { buffers, direct } = reader;
        let event = direct.ring.as_mut().and_then(Ring::next_event);
        match event {
            None => Ok(Step::Nothing),
            Some(Event::Received(bytes)) => Ok(match buffers.put(bytes?)? {
                true => Step::Done,
                false => Step::Left,
            }),
            Some(Event::Read(ended)) => {
                let (request, read) = ended.item;
                let pieces = Pieces {
                    bytes: ended.bytes,
                    took: ended.took,
                };
                let into = buffers.room(request.length as usize);
                if into.is_some_and(|into| self.export.take_pieces(&read, pieces, into)) {
                    buffers.answer(&request);
                    return Ok(Step::Done);
                }
                Ok(Step::Again(request, read))
            }
        }
    }

    /// Hands a request to another thread. Returns one that has to be served by this thread, if there
    /// are no others.
    pub(super) fn hand_over(
        self: &Arc<Self>,
        task: (Request, Task<E::Read>),
    ) -> Option<(Request, Task<E::Read>)> {
        let mut turns = self.turns.lock().unpoisoned();
        turns.tasks.push_back(task);
        let needed = turns.tasks.len();
        match self.call(turns, needed) {
            true => None,
            false => self.turns.lock().unpoisoned().tasks.pop_back(),
        }
    }

    /// Completes what is under way, once nothing more is received.
    pub(super) fn settle(
        self: &Arc<Self>,
        reader: &mut Reader<E::Read>,
        answer: &mut Vec<u8>,
    ) -> io::Result<()> {
        while let Some(ring) = reader.direct.ring.as_mut().filter(|ring| ring.is_reading()) {
            ring.wait()?;
            while let Step::Again(request, read) = self.complete(reader)? {
                self.perform(&request, Task::Read(read), answer);
                self.send(answer);
            }
            self.send_all(reader);
        }
        Ok(())
    }
}
