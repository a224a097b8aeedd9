//! Getting an object from a peer.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use diffcache_base::hex;
use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::{Manifest, LEAF_LEN, LEAF_SIZE};

use crate::complaints::Complaints;
use crate::error::TransferError;
use crate::fetching::blob::{Blob, BATCH};
use crate::fetching::client::{Ask, Client, Connection, Fault, Head, Stop};
use crate::fetching::frames::FrameReader;
use crate::fetching::leaves::{Leaves, StoreError};
use crate::fetching::minimum_rate::MinimumRate;
use crate::fetching::origins::Origins;
use crate::fetching::part::Part;
use crate::fetching::peer::Remote;
use crate::fetching::standing::Offence;
use crate::flight::Flight;
use crate::ids::{Kind, ObjectKey};
use crate::progress::Meter;
use crate::serving::ranges::Want;
use crate::shaper::{Place, Shaper};
use crate::transport::frames;

/// Requests under way on one connection, so that the link is not idle for a round trip between two extents.
pub(super) const DEPTH: usize = 4;
/// Largest extent of one request, in leaves: 64 MiB.
const MOST_LEAVES: u64 = 1024;
/// Receive buffer of a limited transfer, in seconds of its rate.
const AHEAD_SECONDS: f64 = 0.25;

/// What a transfer moves and under which conditions.
pub struct Transfer<'a> {
    /// The means.
    pub client: &'a Client,
    /// From where.
    pub remote: &'a Remote,
    /// To where.
    pub part: &'a Part,
    /// Who reads behind.
    pub flight: &'a Arc<Flight>,
    /// What may end it.
    pub stop: &'a Stop,
    /// Its own limit.
    pub shaper: &'a Shaper,
    /// Whether it crosses the WAN, and may be slow.
    pub over_wan: bool,
    /// Whether the peer may send an image in frames.
    pub frames: bool,
    /// The most bytes that a patch, a manifest or a form can have; `None` if that is not known.
    pub max_size: Option<u64>,
    /// Which bytes of parts came from whom.
    pub origins: &'a Origins,
    /// Base URLs of peers that turned out to have sent wrong bytes before.
    pub liars: &'a Mutex<Vec<String>>,
    /// Takes what was wrong with a peer's copy and did not end the transfer.
    pub complaints: &'a Complaints,
    /// Counts the bytes that came, also of a transfer that fails.
    pub received: Option<&'a AtomicU64>,
}

impl Transfer<'_> {
    /// Gets the leaves that `leaves` lacks, over the WAN in the compressed form if the peer has it; returns the bytes that came.
    pub fn leaves(&self, leaves: &Leaves<'_>) -> Result<u64, TransferError> {
        let mut received = 0;
        let complete = || leaves.next_missing(0, 1).is_none();
        if self.over_wan && !complete() {
            self.compressed_leaves(leaves, &mut received)?;
        }
        if !complete() {
            self.attempt_twice(|connection| self.stream_leaves(connection, leaves, &mut received))?;
        }
        Ok(received)
    }

    /// Gets a patch or a manifest whole and verifies it; returns the bytes that came.
    pub fn blob(&self, meter: &Meter<'_>) -> Result<u64, TransferError> {
        let mut blob = Blob::open(self.part, self.origins)?;
        let outcome = self.blob_verified(&mut blob, meter);
        if outcome.is_err() {
            self.origins.keep(self.part.path(), blob.segments);
        }
        outcome.map(|()| blob.received)
    }

    fn blob_verified(&self, blob: &mut Blob, meter: &Meter<'_>) -> Result<(), TransferError> {
        self.attempt_twice(|connection| self.stream_blob(connection, blob, meter))?;
        if self.is_right(blob) {
            return Ok(());
        }
        let inherited = blob.segments.inherited(&self.remote.peer.to_string());
        if inherited > 0 {
            // Not all of it came from this peer: what another sent is asked of this one too before either is blamed.
            let mut wrong = Vec::new();
            self.attempt_twice(|connection| {
                self.replace_prefix(connection, blob, inherited, &mut wrong)
            })?;
            if self.is_right(blob) {
                self.liars.lock().unpoisoned().extend(wrong);
                return Ok(());
            }
        }
        let found = hex::encode(blob.hasher.finalize().as_bytes());
        let reason = format!("what came is something else (hash {found})");
        let offence = match blob.behind {
            true => Offence::Doubt,
            false => Offence::Lie,
        };
        Err(TransferError::Integrity {
            object: format!("{} from {}", self.remote.key, self.remote.peer),
            reason,
            blame: Some((self.remote.peer.to_string(), offence)),
        })
    }

    /// Reads the bytes before `end` again, from this peer; notes who sent those that differ.
    fn replace_prefix(
        &self,
        connection: &mut Connection,
        blob: &mut Blob,
        end: u64,
        wrong: &mut Vec<String>,
    ) -> Result<(), Fault> {
        self.ask(connection, "GET", Some((0, end)))?;
        let head = self
            .client
            .receive_range(connection, self.remote, (0, end), self.stop)?;
        blob.behind |= head.arriving;
        let mut buffer = vec![0; BATCH];
        let mut position = 0;
        while position < end {
            let room = (end - position).min(BATCH as u64) as usize;
            let count = self.read(connection, &mut buffer[..room])?;
            blob.received += count as u64;
            let differs = blob.replace(self.part, position, &buffer[..count])?;
            if let Some(at) = differs {
                wrong.extend(blob.segments.peers(at, at + 1));
            }
            position += count as u64;
        }
        Ok(blob.hash_again(self.part)?)
    }

    /// Runs over a pooled connection, and once more over a fresh one if that breaks.
    pub(super) fn attempt_twice(
        &self,
        mut run: impl FnMut(&mut Connection) -> Result<(), Fault>,
    ) -> Result<(), TransferError> {
        let fail = |fault| self.remote.error(fault);
        let peer = &self.remote.peer;
        let limited = self.shaper.rate();
        let mut connection = match limited {
            None => self.client.connection(peer, self.stop),
            Some(_) => self.client.fresh(peer, self.stop),
        }
        .map_err(fail)?;
        let mut outcome = self
            .limit(&mut connection)
            .and_then(|()| run(&mut connection));
        if let Err(Fault::Broken(_)) = outcome {
            connection = self.client.renewed(peer, self.stop).map_err(fail)?;
            outcome = self
                .limit(&mut connection)
                .and_then(|()| run(&mut connection));
        }
        outcome.map_err(fail)?;
        self.client.keep(peer, connection);
        Ok(())
    }

    fn limit(&self, connection: &mut Connection) -> Result<(), Fault> {
        connection.expect(MinimumRate::new(self.client.floors(), self.over_wan));
        let Some(rate) = self.shaper.rate() else {
            return Ok(());
        };
        let ahead = (rate * AHEAD_SECONDS).clamp(16384.0, 4e6) as usize;
        connection
            .limit_ahead(ahead)
            .map_err(|error| Fault::Broken(error.to_string()))
    }

    pub(super) fn ask(
        &self,
        connection: &mut Connection,
        method: &str,
        range: Option<(u64, u64)>,
    ) -> Result<(), Fault> {
        let path = self.remote.key.object_path();
        let ask = Ask {
            method,
            path: &path,
            range,
            body: b"",
            hold: 0,
            want: Want::Fetched,
            takes_frames: self.frames && self.remote.key.kind == Kind::Images,
            known: None,
            requester: None,
        };
        self.client.send(connection, self.remote, &ask)
    }

    /// Reads some bytes of a body, no faster than allowed.
    pub(super) fn read(
        &self,
        connection: &mut Connection,
        target: &mut [u8],
    ) -> Result<usize, Fault> {
        // What is buffered already is not asked of the connection, which would notice.
        if self.stop.is_set() {
            return Err(Fault::Stopped);
        }
        let room = target.len().min(self.shaper.slice() as usize);
        let count = connection.read(&mut target[..room], self.stop)?;
        self.client.count(self.remote.key.kind, count);
        if let Some(received) = self.received {
            received.fetch_add(count as u64, Ordering::Relaxed);
        }
        self.shaper.take(count as u64, Place::Next);
        Ok(count)
    }

    /// Fills `target` from a body.
    pub(super) fn read_exactly(
        &self,
        connection: &mut Connection,
        target: &mut [u8],
        received: &mut u64,
    ) -> Result<(), Fault> {
        let mut filled = 0;
        while filled < target.len() {
            let count = self.read(connection, &mut target[filled..])?;
            *received += count as u64;
            filled += count;
        }
        match self.stop.is_set() {
            true => Err(Fault::Stopped),
            false => Ok(()),
        }
    }

    fn stream_leaves(
        &self,
        connection: &mut Connection,
        leaves: &Leaves<'_>,
        received: &mut u64,
    ) -> Result<(), Fault> {
        let mut asked = VecDeque::new();
        let mut from = 0;
        let mut buffer = vec![0; BATCH];
        let mut reader = FrameReader::new(self.remote);
        loop {
            while asked.len() < DEPTH {
                let Some((first, end)) = leaves.next_missing(from, MOST_LEAVES) else {
                    break;
                };
                self.ask(connection, "GET", Some(leaves.byte_range(first, end)))?;
                asked.push_back((first, end));
                from = end;
            }
            let Some((first, end)) = asked.pop_front() else {
                return Ok(());
            };
            let (start, end) = leaves.byte_range(first, end);
            let head = self.receive_leaves(connection, (start, end))?;
            if head
                .range
                .is_none_or(|range| range.2 != leaves.manifest.size())
            {
                return Err(self
                    .remote
                    .corrupt("its copy there has another size")
                    .into());
            }
            match head.framed {
                true => {
                    self.stream_frames(connection, leaves, (start, end), &mut reader, received)?
                }
                false => {
                    self.stream_extent(connection, leaves, (start, end), &mut buffer, received)?
                }
            }
        }
    }

    fn receive_leaves(
        &self,
        connection: &mut Connection,
        range: (u64, u64),
    ) -> Result<Head, Fault> {
        let (client, remote, stop) = (self.client, self.remote, self.stop);
        match self.frames {
            true => client.receive_range_or_frames(connection, remote, range, stop),
            false => client.receive_range(connection, remote, range, stop),
        }
    }

    fn stream_frames(
        &self,
        connection: &mut Connection,
        leaves: &Leaves<'_>,
        (start, end): (u64, u64),
        reader: &mut FrameReader<'_>,
        received: &mut u64,
    ) -> Result<(), Fault> {
        let mut read = |target: &mut [u8]| {
            let count = self.read(connection, target)?;
            *received += count as u64;
            Ok(count)
        };
        let mut position = start;
        while position < end {
            let next = frames::frame_end(position, end);
            let raw = reader.next(position, next, &mut read)?;
            self.store(leaves, position / LEAF_SIZE, raw)?;
            position = next;
        }
        reader.finish(&mut read)
    }

    /// Verifies and writes leaves from number `first` on.
    pub(super) fn store(&self, leaves: &Leaves<'_>, first: u64, bytes: &[u8]) -> Result<(), Fault> {
        leaves
            .store(first, bytes)
            .map_err(|error| match error {
                StoreError::Transfer(error) => error,
                wrong => self.remote.corrupt(&wrong.to_string()),
            })
            .map_err(Fault::Final)
    }

    fn stream_extent(
        &self,
        connection: &mut Connection,
        leaves: &Leaves<'_>,
        (start, end): (u64, u64),
        buffer: &mut [u8],
        received: &mut u64,
    ) -> Result<(), Fault> {
        let (mut position, mut filled) = (start, 0);
        while position < end {
            let room = (end - position).min(buffer.len() as u64) as usize;
            let count = self.read(connection, &mut buffer[filled..room])?;
            *received += count as u64;
            filled += count;
            let whole = if position + filled as u64 == end {
                filled
            } else {
                filled / LEAF_LEN * LEAF_LEN
            };
            if whole == 0 {
                continue;
            }
            self.store(leaves, position / LEAF_SIZE, &buffer[..whole])?;
            if self.stop.is_set() {
                return Err(Fault::Stopped);
            }
            buffer.copy_within(whole..filled, 0);
            position += whole as u64;
            filled -= whole;
        }
        Ok(())
    }

    fn stream_blob(
        &self,
        connection: &mut Connection,
        blob: &mut Blob,
        meter: &Meter<'_>,
    ) -> Result<(), Fault> {
        let size = self.ask_blob(connection, blob)?;
        check_size(self.remote, size, self.max_size)?;
        // Without a bound, the length is the peer's claim; the file system finds that the disk is full.
        if blob.position == 0 && self.max_size.is_some() {
            self.part.check_space(size)?;
        }
        meter.reach(blob.position, size);
        self.flight.begin_prefix(self.part.file().clone(), size);
        self.flight.mark_prefix(blob.position);
        let mut buffer = vec![0; BATCH];
        while blob.position < size {
            let room = (size - blob.position).min(BATCH as u64) as usize;
            let count = self.read(connection, &mut buffer[..room])?;
            blob.append(self.part, &buffer[..count])?;
            blob.segments
                .extend(blob.position, &self.remote.peer.to_string());
            self.flight.mark_prefix(blob.position);
            meter.reach(blob.position, size);
            if self.stop.is_set() {
                return Err(Fault::Stopped);
            }
        }
        Ok(())
    }

    /// Asks for what is missing of a blob and reads the response's head; returns the blob's size.
    fn ask_blob(&self, connection: &mut Connection, blob: &mut Blob) -> Result<u64, Fault> {
        if blob.position > 0 {
            self.ask(connection, "HEAD", None)?;
            let size = self
                .client
                .receive_bodiless(connection, self.remote, self.stop)?
                .length;
            if blob.position == size {
                return Ok(size);
            }
            if blob.position < size {
                let range = (blob.position, size);
                self.ask(connection, "GET", Some(range))?;
                let head = self
                    .client
                    .receive_range(connection, self.remote, range, self.stop)?;
                blob.behind |= head.arriving;
                return Ok(size);
            }
            blob.restart(self.part)?;
        }
        self.ask(connection, "GET", None)?;
        let head = self.client.receive(connection, self.remote, self.stop)?;
        blob.behind |= head.arriving;
        Ok(head.length)
    }

    fn is_right(&self, blob: &Blob) -> bool {
        let key = self.remote.key;
        match key.kind {
            Kind::Manifests => Manifest::load(self.part.path())
                .is_ok_and(|manifest| manifest.content_id() == key.id),
            Kind::Patches | Kind::Recipes | Kind::Images => {
                *blob.hasher.finalize().as_bytes() == key.id
            }
            // Its name is the hash of what it decompresses to.
            Kind::Compressed => false,
        }
    }
}

/// Fails if a peer announces more bytes than an object can have.
pub fn check_size(remote: &Remote, size: u64, max_size: Option<u64>) -> Result<(), TransferError> {
    match max_size {
        Some(most) if size > most => Err(remote.corrupt(&format!(
            "its copy there has {size} bytes, but the catalogue knows of at most {most}"
        ))),
        _ => Ok(()),
    }
}

/// Reads a manifest's file.
pub fn open_manifest(path: &Path) -> Result<Arc<Manifest>, TransferError> {
    match Manifest::load(path) {
        Ok(manifest) => Ok(Arc::new(manifest)),
        Err(error) => Err(TransferError::Format {
            object: path.display().to_string(),
            reason: format!("cannot be used as a manifest: {error}"),
        }),
    }
}

/// Reads the manifest that an image is verified against, and makes sure that it is that image's.
pub fn load_manifest(key: ObjectKey, path: &Path) -> Result<Arc<Manifest>, TransferError> {
    let manifest = open_manifest(path)?;
    if manifest.content_id() != key.id {
        return Err(TransferError::Format {
            object: key.to_string(),
            reason: format!(
                "{} is the manifest of {}",
                path.display(),
                manifest.content_id_hex()
            ),
        });
    }
    Ok(manifest)
}
