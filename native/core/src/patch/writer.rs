//! The patch file while it is written: frames first, then the map, last the header.

use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;

use super::error::PatchError;
use super::format::{encode_frames, encode_map, Coded, Header, HEADER_LEN};
use super::leaves::changed_leaves;
use super::runs::Run;
use crate::manifest::{LeafHash, Manifest};
use diffcache_base::output::Output;

/// A patch file that is being written.
pub(super) struct PatchWriter<'a> {
    out: &'a Output,
    name: &'a str,
    /// Offset of the next bytes.
    pub at: u64,
}

impl<'a> PatchWriter<'a> {
    /// Starts after the header, in an empty output that errors call `name`.
    pub fn new(out: &'a Output, name: &'a str) -> Self {
        PatchWriter {
            out,
            name,
            at: HEADER_LEN,
        }
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), PatchError> {
        self.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), PatchError> {
        self.out
            .file()
            .write_all_at(bytes, offset)
            .map_err(|error| PatchError::from_write(self.name, error))
    }

    /// Appends map, frame records and leaves, and sets their fields of the header.
    pub fn write_meta(
        &mut self,
        header: &mut Header,
        runs: &[Run],
        coded: &Coded,
        target: &Manifest,
    ) -> Result<(), PatchError> {
        let pack = |bytes: Vec<u8>| {
            zstd::bulk::compress(&bytes, 9).map_err(|_| PatchError::Zstd("cannot compress the map"))
        };
        let map = pack(encode_map(runs))?;
        let frames = pack(encode_frames(&coded.frames, &coded.pieces))?;
        let changed = changed_leaves(header, runs);
        header.meta_offset = self.at;
        header.map_len = map.len() as u64;
        header.frames_len = frames.len() as u64;
        header.runs = runs.len() as u64;
        header.frames = coded.frames.len() as u64;
        header.leaves = changed.len() as u64;
        let mut hashes = BufWriter::new(Vec::with_capacity(changed.len() * 32));
        for leaf in changed {
            if let Some(LeafHash::Data(hash)) = target.leaf(u64::from(leaf)) {
                hashes
                    .write_all(&hash)
                    .map_err(|error| PatchError::from_write(self.name, error))?;
            }
        }
        let hashes = hashes.into_inner().map_err(|error| {
            PatchError::from_write(self.name, io::Error::from(error.error().kind()))
        })?;
        let meta = [map, frames, hashes].concat();
        header.meta_hash = *blake3::hash(&meta).as_bytes();
        self.append(&meta)?;
        header.patch_size = self.at;
        Ok(())
    }
}
