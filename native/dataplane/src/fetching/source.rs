//! A peer's object as a source that core's readers can read at any place.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::source::{ReadAt, SourceError};

use crate::error::TransferError;
use crate::fetching::client::{Ask, Client, Connection, Fault, Stop};
use crate::fetching::fetch::check_size;
use crate::fetching::frames::FrameReader;
use crate::fetching::minimum_rate::MinimumRate;
use crate::fetching::peer::Remote;
use crate::fetching::window::Window;
use crate::ids::Kind;
use crate::serving::ranges::Want;
use crate::shaper::{Place, Shaper};
use crate::transport::frames;

/// What is remembered of a patch.
const WINDOW_BYTES: u64 = 16 << 20;
/// How long a peer keeps an object for a reader between its ranges.
const HOLD_SECONDS: u64 = 15;

/// An object of a peer, read by ranges over pooled connections.
pub struct HttpSource {
    client: Arc<Client>,
    remote: Remote,
    size: u64,
    stop: Stop,
    shaper: Arc<Shaper>,
    window: Option<Window>,
    frames: bool,
    received: AtomicU64,
    /// That of all its ranges together.
    pace: Mutex<MinimumRate>,
    failure: Mutex<Option<TransferError>>,
}

impl HttpSource {
    /// Asks the peer for the object's size; the object may still be arriving there.
    pub fn open(
        client: Arc<Client>,
        remote: Remote,
        stop: Stop,
    ) -> Result<HttpSource, TransferError> {
        let path = remote.key.object_path();
        let ask = Ask {
            method: "HEAD",
            path: &path,
            range: None,
            body: b"",
            hold: HOLD_SECONDS,
            want: Want::Fetched,
            takes_frames: false,
            known: None,
            requester: None,
        };
        let (head, _) = client.exchange(&remote, &ask, &stop)?;
        let window = (remote.key.kind == Kind::Patches).then(|| Window::new(WINDOW_BYTES));
        let pace = Mutex::new(MinimumRate::new(client.floors(), false));
        Ok(HttpSource {
            client,
            remote,
            size: head.length,
            stop,
            shaper: Arc::new(Shaper::new(None)),
            window,
            frames: false,
            received: AtomicU64::new(0),
            pace,
            failure: Mutex::new(None),
        })
    }

    /// Fails if the peer announces more bytes than the object can have.
    pub fn check_size(&self, max_size: Option<u64>) -> Result<(), TransferError> {
        check_size(&self.remote, self.size, max_size)
    }

    /// Reads no faster than `shaper` allows, together with its other users.
    pub fn with_shaper(mut self, shaper: Arc<Shaper>) -> HttpSource {
        self.shaper = shaper;
        self
    }

    /// Lets the peer send an image in frames.
    pub fn with_frames(mut self) -> HttpSource {
        self.frames = self.remote.key.kind == Kind::Images;
        self
    }

    /// Body bytes that came from the peer so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Takes the error that ended a read; core returns it without its type.
    pub fn take_failure(&self) -> Option<TransferError> {
        self.failure.lock().unpoisoned().take()
    }

    fn read_range(&self, buf: &mut [u8], offset: u64) -> Result<(), TransferError> {
        let mut progress = 0;
        let fail = |fault| self.remote.error(fault);
        let mut connection = self
            .client
            .connection(&self.remote.peer, &self.stop)
            .map_err(fail)?;
        let mut outcome = self.continue_range(&mut connection, buf, offset, &mut progress);
        if let Err(Fault::Broken(_)) = outcome {
            connection = self
                .client
                .renewed(&self.remote.peer, &self.stop)
                .map_err(fail)?;
            outcome = self.continue_range(&mut connection, buf, offset, &mut progress);
        }
        outcome.map_err(fail)?;
        self.client.keep(&self.remote.peer, connection);
        Ok(())
    }

    fn continue_range(
        &self,
        connection: &mut Connection,
        buf: &mut [u8],
        offset: u64,
        progress: &mut usize,
    ) -> Result<(), Fault> {
        let range = (offset + *progress as u64, offset + buf.len() as u64);
        let path = self.remote.key.object_path();
        let ask = Ask {
            method: "GET",
            path: &path,
            range: Some(range),
            body: b"",
            hold: HOLD_SECONDS,
            want: Want::Fetched,
            takes_frames: self.frames,
            known: None,
            requester: None,
        };
        connection.expect(MinimumRate::new(self.client.floors(), false));
        self.client.send(connection, &self.remote, &ask)?;
        let begun = Instant::now();
        let (client, remote, stop) = (&self.client, &self.remote, &self.stop);
        let head = match self.frames {
            true => client.receive_range_or_frames(connection, remote, range, stop)?,
            false => client.receive_range(connection, remote, range, stop)?,
        };
        self.pace.lock().unpoisoned().set_arriving(head.arriving);
        self.judge(connection, 0, begun.elapsed())?;
        if head.framed {
            return self.read_frames(connection, range, &mut buf[*progress..], progress);
        }
        while *progress < buf.len() {
            *progress += self.read_some(connection, &mut buf[*progress..])?;
        }
        Ok(())
    }

    /// Fills `buf` with a range from its frames.
    fn read_frames(
        &self,
        connection: &mut Connection,
        (start, end): (u64, u64),
        buf: &mut [u8],
        progress: &mut usize,
    ) -> Result<(), Fault> {
        let mut reader = FrameReader::new(&self.remote);
        let mut read = |target: &mut [u8]| self.read_some(connection, target);
        let mut position = start;
        while position < end {
            let next = frames::frame_end(position, end);
            let raw = reader.next(position, next, &mut read)?;
            buf[(position - start) as usize..][..raw.len()].copy_from_slice(raw);
            *progress += raw.len();
            position = next;
        }
        reader.finish(&mut read)
    }

    /// Reads some bytes of a body, no faster than allowed.
    fn read_some(&self, connection: &mut Connection, target: &mut [u8]) -> Result<usize, Fault> {
        let room = target.len().min(self.shaper.slice() as usize);
        let begun = Instant::now();
        let count = connection.read(&mut target[..room], &self.stop)?;
        self.judge(connection, count, begun.elapsed())?;
        self.client.count(self.remote.key.kind, count);
        self.received.fetch_add(count as u64, Ordering::Relaxed);
        self.shaper.take(count as u64, Place::Next);
        Ok(count)
    }

    /// Fails if the ranges together come too slowly, however fast each of them is.
    fn judge(&self, connection: &Connection, bytes: usize, waited: Duration) -> Result<(), Fault> {
        let judged = self.pace.lock().unpoisoned().note(bytes, waited);
        judged.map_err(|slow| connection.too_slow(slow))
    }
}

impl ReadAt for HttpSource {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let name = || format!("{} at {}", self.remote.key, self.remote.peer);
        let end = offset.saturating_add(buf.len() as u64);
        if end > self.size {
            let len = self.size;
            return Err(SourceError::PastEnd {
                name: name(),
                len,
                end,
            });
        }
        if buf.is_empty() {
            return Ok(());
        }
        let read = match &self.window {
            Some(window) => window.read(buf, offset, |buf, at| self.read_range(buf, at)),
            None => self.read_range(buf, offset),
        };
        read.map_err(|error| {
            let (name, reason) = (name(), error.to_string());
            let refused = !error.is_retryable();
            self.failure.lock().unpoisoned().get_or_insert(error);
            if refused {
                SourceError::Refused { name, reason }
            } else {
                SourceError::Unavailable { name, reason }
            }
        })
    }
}
