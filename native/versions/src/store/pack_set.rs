//! Writing packs.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use diffcache_core::task::{for_each_piece, Task};

use super::codec::VERSION;
use super::crypt::{Cipher, Name};
use super::frames::{frame_check, Encoder};
use super::pack_index::{check_of, Check, Frame, PackIndex, CHECK_LEN, FRAME_BLOCKS, PACK_HEADER};
use crate::error::{Result, VersionsError};

/// First bytes of a pack.
pub const PACK_MAGIC: &[u8; 8] = b"DCVPACK1";

/// Bytes of a pack's blocks before compression, at most: some tens of MiB once compressed.
pub const PACK_RAW: u64 = 64 << 20;

/// Frames compressed together, by all threads.
const BATCH: usize = 8;

/// The bytes before a pack's first frame.
pub fn pack_header(index: &PackIndex) -> [u8; PACK_HEADER as usize] {
    let mut out = [0; PACK_HEADER as usize];
    out[..8].copy_from_slice(PACK_MAGIC);
    let sealed = u32::from(index.sealed);
    for (slot, number) in
        out[8..24]
            .chunks_exact_mut(4)
            .zip([VERSION, index.id, index.generation, sealed])
    {
        slot.copy_from_slice(&number.to_le_bytes());
    }
    out
}

/// A pack that was written, with its index, to a directory that is not the store yet.
#[derive(Debug, Clone)]
pub struct Written {
    /// The pack's number.
    pub id: u32,
    /// Its blocks.
    pub blocks: u32,
    /// Bytes of the pack.
    pub data_len: u64,
    /// Bytes of the index.
    pub index_len: u64,
    /// The checksum that the index ends with.
    pub check: Check,
    /// The pack's file.
    pub data: PathBuf,
    /// The index's file.
    pub index: PathBuf,
}

/// Writes one pack.
pub struct PackWriter {
    index: PackIndex,
    names: Vec<Name>,
    file: File,
    data: PathBuf,
    index_path: PathBuf,
}

impl PackWriter {
    /// Starts a pack in `dir`.
    ///
    /// # Errors
    /// `Io`.
    pub fn create(dir: &Path, index: PackIndex) -> Result<Self> {
        let data = dir.join(format!("pack-{}-{}", index.id, index.generation));
        let index_path = dir.join(format!("index-{}-{}", index.id, index.generation));
        let name = data.display().to_string();
        let mut file = File::create(&data).map_err(VersionsError::io(&name))?;
        file.write_all(&pack_header(&index))
            .map_err(VersionsError::io(name))?;
        Ok(Self {
            index,
            names: Vec::new(),
            file,
            data,
            index_path,
        })
    }

    /// Resumes a pack of which some frames were written, and checks that it has them; `None` if it has not.
    ///
    /// # Errors
    /// `Io`.
    fn resume(dir: &Path, index: PackIndex, frames: &[Packed]) -> Result<Option<Self>> {
        let data = dir.join(format!("pack-{}-{}", index.id, index.generation));
        let index_path = dir.join(format!("index-{}-{}", index.id, index.generation));
        let name = data.display().to_string();
        let mut file = match File::options().read(true).write(true).open(&data) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(VersionsError::io(&name))?,
        };
        let mut header = [0; PACK_HEADER as usize];
        if file.read_exact(&mut header).is_err() || header != pack_header(&index) {
            return Ok(None);
        }
        let mut writer = Self {
            index,
            names: Vec::new(),
            file,
            data,
            index_path,
        };
        for frame in frames {
            let mut bytes = vec![0; frame.len as usize];
            if writer.file.read_exact(&mut bytes).is_err() || frame_check(&bytes) != frame.check {
                return Ok(None);
            }
            writer.count(&frame.names, frame.len, frame.raw, frame.check);
        }
        let end = writer.index.data_len;
        writer
            .file
            .set_len(end)
            .and_then(|()| writer.file.seek(SeekFrom::Start(end)))
            .map_err(VersionsError::io(name))?;
        Ok(Some(writer))
    }

    /// Adds a frame as it is kept, and the names of its blocks.
    ///
    /// # Errors
    /// `Io`.
    pub fn append(&mut self, names: &[Name], bytes: &[u8], raw: bool) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(VersionsError::io(self.data.display().to_string()))?;
        self.count(names, bytes.len() as u32, raw, frame_check(bytes));
        Ok(())
    }

    fn count(&mut self, names: &[Name], len: u32, raw: bool, check: [u8; CHECK_LEN]) {
        self.index.frames.push(Frame {
            first: self.names.len() as u32,
            count: names.len() as u32,
            offset: self.index.data_len,
            len,
            raw,
            check,
        });
        self.names.extend_from_slice(names);
        self.index.data_len += u64::from(len);
    }

    /// Writes the index beside the pack.
    ///
    /// # Errors
    /// `Io`.
    pub fn finish(mut self, slots: Option<(Vec<u32>, u32)>) -> Result<Written> {
        match slots {
            Some((slots, total)) => {
                self.index.slots_total = total;
                self.index.slots = Some(slots);
            }
            None => self.index.slots_total = self.names.len() as u32,
        }
        let index = self.index.encode(&self.names);
        std::fs::write(&self.index_path, &index)
            .map_err(VersionsError::io(self.index_path.display().to_string()))?;
        Ok(Written {
            id: self.index.id,
            blocks: self.index.blocks,
            data_len: self.index.data_len,
            index_len: index.len() as u64,
            check: check_of(&index),
            data: self.data,
            index: self.index_path,
        })
    }
}

/// How packs are made.
#[derive(Debug, Clone)]
pub struct PackOptions {
    /// Where packs and indexes are written.
    pub dir: PathBuf,
    /// Bytes of a block.
    pub block_size: u32,
    /// zstd level.
    pub level: i32,
}

/// A frame that was written to a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The pack's number.
    pub pack: u32,
    /// Bytes of the frame.
    pub len: u32,
    /// It is kept as it is.
    pub raw: bool,
    /// The first bytes of the BLAKE3 of what is kept.
    pub check: [u8; CHECK_LEN],
    /// The names of its blocks.
    pub names: Vec<Name>,
}

/// Blocks that are not written yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Their names.
    pub names: Vec<Name>,
    /// What they are, one after the other.
    pub blocks: Vec<u8>,
}

/// Writes as many packs as it takes.
pub struct PackSet<'a> {
    options: PackOptions,
    encoder: Encoder,
    cipher: &'a Cipher,
    next: u32,
    writer: Option<PackWriter>,
    /// Blocks that were given to the pack being written.
    given: u32,
    rest: Unpacked,
    /// Frames that were written since the last call of `fresh`.
    fresh: Vec<Packed>,
    done: Vec<Written>,
}

impl<'a> PackSet<'a> {
    /// Packs get the numbers from `next` on.
    pub fn new(options: PackOptions, cipher: &'a Cipher, next: u32) -> Self {
        Self {
            encoder: Encoder::new(options.level),
            options,
            cipher,
            next,
            writer: None,
            given: 0,
            rest: Unpacked::default(),
            fresh: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Resumes the packs that an interrupted save began from `next` on. Returns `false` if they do not have what was recorded: then the save
    /// has to start again.
    ///
    /// # Errors
    /// `Io`.
    pub fn resume(&mut self, frames: &[Packed], rest: Unpacked) -> Result<bool> {
        for frames in frames.chunk_by(|one, other| one.pack == other.pack) {
            if let Some(writer) = self.writer.take() {
                self.done.push(writer.finish(None)?);
                self.next += 1;
            }
            let index = self.new_index();
            if frames.first().is_none_or(|frame| frame.pack != self.next) {
                return Ok(false);
            }
            self.writer = PackWriter::resume(&self.options.dir, index, frames)?;
            let Some(writer) = &self.writer else {
                return Ok(false);
            };
            self.given = writer.names.len() as u32;
        }
        if self.given == self.limit() {
            // Full, and what is left belongs to the next one.
            self.close_writer()?;
        }
        self.given += rest.names.len() as u32;
        self.rest = rest;
        Ok(true)
    }

    /// The frames that were written since the last call, and what is not written yet.
    pub fn fresh(&mut self) -> (Vec<Packed>, &Unpacked) {
        (std::mem::take(&mut self.fresh), &self.rest)
    }

    /// The names of all blocks that were given, with their places.
    pub fn places(&self, frames: &[Packed]) -> Vec<(Name, (u32, u32))> {
        let mut slots = std::collections::HashMap::new();
        let written = frames
            .iter()
            .flat_map(|frame| frame.names.iter().map(|name| (name, frame.pack)));
        let rest = self.rest.names.iter().map(|name| (name, self.next));
        written
            .chain(rest)
            .map(|(name, pack)| {
                let slot = slots.entry(pack).or_insert(0);
                *slot += 1;
                (*name, (pack, *slot - 1))
            })
            .collect()
    }

    fn new_index(&self) -> PackIndex {
        PackIndex::new(self.next, 0, self.options.block_size, self.cipher.seals())
    }

    fn limit(&self) -> u32 {
        (PACK_RAW / u64::from(self.options.block_size)) as u32
    }

    /// Adds a block; returns the pack and the slot it has.
    ///
    /// # Errors
    /// `Io`, `Cancelled`.
    pub fn push(&mut self, name: Name, block: &[u8], task: &Task<'_>) -> Result<(u32, u32)> {
        if self.given == self.limit() {
            self.close(task)?;
        }
        self.rest.names.push(name);
        self.rest.blocks.extend_from_slice(block);
        let at = (self.next, self.given);
        self.given += 1;
        if self.rest.names.len() == BATCH * FRAME_BLOCKS {
            self.flush(task)?;
        }
        Ok(at)
    }

    fn flush(&mut self, task: &Task<'_>) -> Result<()> {
        let frame_len = FRAME_BLOCKS * self.options.block_size as usize;
        let frames: Vec<&[u8]> = self.rest.blocks.chunks(frame_len).collect();
        let silent = task.silent();
        let encoded = for_each_piece(&silent, frames.len() as u64, |piece| {
            self.encoder.encode(frames[piece as usize], self.cipher)
        })?;
        let index = self.new_index();
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(PackWriter::create(&self.options.dir, index)?),
        };
        for (names, frame) in self.rest.names.chunks(FRAME_BLOCKS).zip(encoded) {
            writer.append(names, &frame.bytes, frame.raw)?;
            self.fresh.push(Packed {
                pack: self.next,
                len: frame.bytes.len() as u32,
                raw: frame.raw,
                check: frame_check(&frame.bytes),
                names: names.to_vec(),
            });
        }
        self.rest.names.clear();
        self.rest.blocks.clear();
        Ok(())
    }

    fn close(&mut self, task: &Task<'_>) -> Result<()> {
        if !self.rest.names.is_empty() {
            self.flush(task)?;
        }
        self.close_writer()
    }

    fn close_writer(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.done.push(writer.finish(None)?);
            self.next += 1;
        }
        self.given = 0;
        Ok(())
    }

    /// Writes what is left; returns the packs.
    ///
    /// # Errors
    /// `Io`, `Cancelled`.
    pub fn finish(mut self, task: &Task<'_>) -> Result<Vec<Written>> {
        self.close(task)?;
        Ok(self.done)
    }
}
