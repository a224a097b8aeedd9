//! A file that arrives from its first byte to its last, verified by the hash of the whole.

use std::os::unix::fs::FileExt;

use diffcache_core::leaf::LEAF_LEN;

use crate::error::TransferError;
use crate::fetching::origins::{Origins, Segments};
use crate::fetching::part::Part;

/// Bytes verified and written at a time.
pub(super) const BATCH: usize = 16 * LEAF_LEN;

/// A file that arrives from its first byte to its last, and its hash so far.
pub(super) struct Blob {
    pub(super) position: u64,
    pub(super) received: u64,
    pub(super) hasher: blake3::Hasher,
    pub(super) segments: Segments,
    /// Some of it was still arriving where it came from, and verified by no one yet.
    pub(super) behind: bool,
}

impl Blob {
    /// Takes over what an earlier attempt left; the hash of the whole will tell whether it was right.
    pub(super) fn open(part: &Part, origins: &Origins) -> Result<Blob, TransferError> {
        let mut blob = Blob {
            position: 0,
            received: 0,
            hasher: blake3::Hasher::new(),
            segments: Segments::default(),
            behind: false,
        };
        blob.hash_again(part)?;
        blob.segments = origins.take(part.path(), blob.position);
        Ok(blob)
    }

    /// Hashes what the part has, from its first byte to its last.
    pub(super) fn hash_again(&mut self, part: &Part) -> Result<(), TransferError> {
        self.hasher.reset();
        self.position = 0;
        let mut buffer = vec![0; BATCH];
        loop {
            let count = part
                .file()
                .read_at(&mut buffer, self.position)
                .map_err(|error| part.error(error))?;
            if count == 0 {
                return Ok(());
            }
            self.hasher.update(&buffer[..count]);
            self.position += count as u64;
        }
    }

    /// Writes bytes over others; returns where the first of them differs.
    pub(super) fn replace(
        &self,
        part: &Part,
        position: u64,
        data: &[u8],
    ) -> Result<Option<u64>, TransferError> {
        let fail = |error| part.error(error);
        let mut there = vec![0; data.len()];
        part.file()
            .read_exact_at(&mut there, position)
            .map_err(fail)?;
        let differs = there.iter().zip(data).position(|(old, new)| old != new);
        if differs.is_some() {
            part.file().write_all_at(data, position).map_err(fail)?;
        }
        Ok(differs.map(|at| position + at as u64))
    }

    pub(super) fn restart(&mut self, part: &Part) -> Result<(), TransferError> {
        part.file().set_len(0).map_err(|error| part.error(error))?;
        self.position = 0;
        self.hasher.reset();
        self.segments = Segments::default();
        Ok(())
    }

    pub(super) fn append(&mut self, part: &Part, data: &[u8]) -> Result<(), TransferError> {
        let written = part.file().write_all_at(data, self.position);
        written.map_err(|error| part.error(error))?;
        self.hasher.update(data);
        self.position += data.len() as u64;
        self.received += data.len() as u64;
        Ok(())
    }
}
