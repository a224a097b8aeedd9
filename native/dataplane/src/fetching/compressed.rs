//! Getting an image's leaves in the compressed form, over a WAN.
//!
//! A repository has the form beside the image. A peer without it, or of a release that knows none, answers 404; then the leaves cross as they are.
//! So they do if the form there is damaged: the image itself may be sound.

use std::collections::VecDeque;
use std::ops::Range;

use diffcache_core::compressed::{data_leaves, Decoder, Index, GROUP_LEAVES, GROUP_LEN};

use crate::error::TransferError;
use crate::fetching::client::{Connection, Fault};
use crate::fetching::fetch::{Transfer, DEPTH};
use crate::fetching::leaves::Leaves;
use crate::fetching::peer::Remote;
use crate::ids::{Kind, ObjectKey};

/// Most bytes of one request, unless a single frame has more.
const MOST_BYTES: u64 = 8 << 20;

impl Transfer<'_> {
    /// Gets what `leaves` lacks in the compressed form, as far as the peer has it and it is sound.
    pub(super) fn compressed_leaves(
        &self,
        leaves: &Leaves<'_>,
        received: &mut u64,
    ) -> Result<(), TransferError> {
        let remote = Remote {
            key: ObjectKey {
                kind: Kind::Compressed,
                ..self.remote.key
            },
            ..self.remote.clone()
        };
        let form = Form {
            transfer: Transfer {
                remote: &remote,
                ..*self
            },
            leaves,
        };
        match form.get(received) {
            Ok(()) | Err(TransferError::ObjectMissing { .. }) => Ok(()),
            Err(error @ TransferError::Integrity { .. }) => {
                let reason = format!("{error}; read uncompressed instead");
                self.complaints.note(&self.remote.peer.to_string(), reason);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// A compressed form at a peer, and the leaves that it is read for.
struct Form<'a> {
    /// Of the form, not of the image.
    transfer: Transfer<'a>,
    leaves: &'a Leaves<'a>,
}

/// What one connection reads into.
struct Buffers {
    decoder: Decoder,
    bytes: Vec<u8>,
    raw: Vec<u8>,
}

impl Form<'_> {
    fn get(&self, received: &mut u64) -> Result<(), TransferError> {
        let mut buffers = Buffers {
            decoder: Decoder::new(),
            bytes: Vec::with_capacity(GROUP_LEN),
            raw: Vec::with_capacity(GROUP_LEN),
        };
        let mut index = None;
        self.transfer.attempt_twice(|connection| {
            let index = match &index {
                Some(index) => index,
                None => index.insert(self.read_index(connection, received)?),
            };
            self.stream(connection, index, &mut buffers, received)
        })
    }

    fn read_index(&self, connection: &mut Connection, received: &mut u64) -> Result<Index, Fault> {
        let manifest = &self.leaves.manifest;
        let range = (0, Index::length(manifest));
        let mut bytes = Vec::new();
        let total = self.ask_and_receive(connection, range)?;
        bytes.resize(range.1 as usize, 0);
        self.transfer
            .read_exactly(connection, &mut bytes, received)?;
        Index::parse(&bytes, total, manifest).map_err(|error| self.corrupt(&error.to_string()))
    }

    fn stream(
        &self,
        connection: &mut Connection,
        index: &Index,
        buffers: &mut Buffers,
        received: &mut u64,
    ) -> Result<(), Fault> {
        let mut asked = VecDeque::new();
        let mut from = 0;
        loop {
            while asked.len() < DEPTH {
                let Some(run) = self.next_run(index, from) else {
                    break;
                };
                let range = bytes_of(index, &run);
                self.transfer.ask(connection, "GET", Some(range))?;
                from = run.end;
                asked.push_back((run, range));
            }
            let Some((run, range)) = asked.pop_front() else {
                return Ok(());
            };
            let transfer = &self.transfer;
            transfer
                .client
                .receive_range(connection, transfer.remote, range, transfer.stop)?;
            for frame in &index.frames()[run] {
                buffers.bytes.resize(frame.length, 0);
                transfer.read_exactly(connection, &mut buffers.bytes, received)?;
                buffers
                    .decoder
                    .decode(frame, &buffers.bytes, &mut buffers.raw)
                    .map_err(|error| self.corrupt(&error.to_string()))?;
                self.store(frame.group, &buffers.raw)?;
            }
        }
    }

    /// The next adjacent frames, from number `from` on, that hold leaves which are missing.
    fn next_run(&self, index: &Index, from: usize) -> Option<Range<usize>> {
        let frames = index.frames();
        let lacks = |number: &usize| self.lacks(frames[*number].group);
        let first = (from..frames.len()).find(lacks)?;
        let most = frames[first].offset + MOST_BYTES;
        let end = (first + 1..frames.len())
            .find(|number| {
                let frame = &frames[*number];
                frame.offset + frame.length as u64 > most || !lacks(number)
            })
            .unwrap_or(frames.len());
        Some(first..end)
    }

    fn lacks(&self, group: u64) -> bool {
        let first = group * GROUP_LEAVES;
        let missing = self.leaves.next_missing(first, 1);
        missing.is_some_and(|(leaf, _)| leaf < first + GROUP_LEAVES)
    }

    fn ask_and_receive(
        &self,
        connection: &mut Connection,
        range: (u64, u64),
    ) -> Result<u64, Fault> {
        let transfer = &self.transfer;
        transfer.ask(connection, "GET", Some(range))?;
        let head =
            transfer
                .client
                .receive_range(connection, transfer.remote, range, transfer.stop)?;
        Ok(head.range.map_or(head.length, |(_, _, size)| size))
    }

    /// Verifies and writes the leaves of a group; those that are side by side in one go.
    fn store(&self, group: u64, raw: &[u8]) -> Result<(), Fault> {
        let (mut rest, mut run, mut next) = (raw, 0..0, None);
        let mut from = 0;
        for (leaf, length) in data_leaves(&self.leaves.manifest, group) {
            if next != Some(leaf) {
                rest = self.store_run(from, rest, run.len())?;
                (from, run) = (leaf, 0..0);
            }
            run.end += length;
            next = Some(leaf + 1);
        }
        self.store_run(from, rest, run.len()).map(drop)
    }

    /// Writes `length` bytes from leaf `first` on; returns those after them.
    fn store_run<'b>(&self, first: u64, raw: &'b [u8], length: usize) -> Result<&'b [u8], Fault> {
        let (run, rest) = raw.split_at(length);
        self.transfer.store(self.leaves, first, run).map(|()| rest)
    }

    fn corrupt(&self, reason: &str) -> Fault {
        self.transfer.remote.corrupt(reason).into()
    }
}

fn bytes_of(index: &Index, run: &Range<usize>) -> (u64, u64) {
    let frames = &index.frames()[run.clone()];
    let start = frames.first().map_or(0, |frame| frame.offset);
    let end = frames
        .last()
        .map_or(0, |frame| frame.offset + frame.length as u64);
    (start, end)
}
