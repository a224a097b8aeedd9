//! Writing packs.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::Scope;

use diffcache_core::task::{Cancelled, Task};
use diffcache_core::workers::{Submitted, Workers};

use super::codec::VERSION;
use super::crypt::{Cipher, Name};
use super::frames::{frame_check, Encoded, Encoder};
use super::pack_index::{check_of, Check, Frame, PackIndex, CHECK_LEN, FRAME_BLOCKS, PACK_HEADER};
use crate::error::{Result, VersionsError};

/// First bytes of a pack.
pub const PACK_MAGIC: &[u8; 8] = b"DCVPACK1";

/// Bytes of a pack's blocks before compression, at most: some tens of MiB once compressed.
pub const PACK_RAW: u64 = 64 << 20;

/// Bytes of blocks that are compressed, or wait until the frames before them were written, at most; or else four frames.
const WAITING: usize = 16 << 20;

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
    pub fn append(&mut self, names: &[Name], frame: &Encoded) -> Result<()> {
        self.file
            .write_all(&frame.bytes)
            .map_err(VersionsError::io(self.data.display().to_string()))?;
        self.count(names, frame.bytes.len() as u32, frame.raw, frame.check);
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

/// A frame that was given to be compressed.
struct Waiting {
    pack: u32,
    names: Vec<Name>,
    /// The frame, and the buffer of its blocks.
    encoded: Submitted<Result<(Encoded, Vec<u8>)>>,
}

/// Writes as many packs as it takes. Frames are compressed by threads of their own, while the caller's finds the blocks of the next ones, and
/// writes those that are ready, in order.
pub struct PackSet {
    options: PackOptions,
    workers: Workers<Vec<u8>, Result<(Encoded, Vec<u8>)>>,
    /// Frames that are not written yet, at most.
    most: usize,
    waiting: VecDeque<Waiting>,
    /// Buffers of blocks that are used again: the pages of fresh ones cost as much as what is copied into them.
    idle: Vec<Vec<u8>>,
    sealed: bool,
    /// The first pack.
    first: u32,
    /// The pack that blocks are given to.
    next: u32,
    /// Blocks that were given to it.
    given: u32,
    /// The pack that is written.
    writer: Option<PackWriter>,
    rest: Unpacked,
    /// Frames that were written since the last call of `fresh`, if they are recorded.
    fresh: Option<Vec<Packed>>,
    done: Vec<Written>,
}

impl PackSet {
    /// Packs get the numbers from `next` on. Threads are started in `scope`, as many as `task` says.
    pub fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        options: PackOptions,
        cipher: &'scope Cipher,
        next: u32,
        task: &Task<'_>,
    ) -> Self {
        let encoder = Arc::new(Encoder::new(options.level));
        let encode = move |blocks: Vec<u8>| {
            let encoded = encoder.encode(&blocks, cipher)?;
            Ok((encoded, blocks))
        };
        let frame_len = FRAME_BLOCKS * options.block_size as usize;
        let threads = task.threads_for((WAITING / frame_len).max(4) as u64 - 2);
        Self {
            workers: Workers::start(scope, threads, encode),
            most: threads + 2,
            waiting: VecDeque::new(),
            idle: Vec::new(),
            sealed: cipher.seals(),
            options,
            first: next,
            next,
            given: 0,
            writer: None,
            rest: Unpacked::default(),
            fresh: None,
            done: Vec::new(),
        }
    }

    /// Keeps in mind which frames are written, for `fresh`.
    pub fn record(&mut self) {
        self.fresh = Some(Vec::new());
    }

    /// Resumes the packs that an interrupted save began from `next` on. Returns `false` if they do not have what was recorded: then the save
    /// has to start again.
    ///
    /// # Errors
    /// `Io`.
    pub fn resume(&mut self, frames: &[Packed], rest: Unpacked) -> Result<bool> {
        for frames in frames.chunk_by(|one, other| one.pack == other.pack) {
            if self.writer.is_some() {
                self.close()?;
                self.next += 1;
            }
            if frames.first().is_none_or(|frame| frame.pack != self.next) {
                return Ok(false);
            }
            let index = self.index_of(self.next);
            self.writer = PackWriter::resume(&self.options.dir, index, frames)?;
            let Some(writer) = &self.writer else {
                return Ok(false);
            };
            self.given = writer.names.len() as u32;
        }
        if !rest.names.is_empty() {
            self.leave_full();
        }
        self.given += rest.names.len() as u32;
        self.rest = rest;
        Ok(true)
    }

    /// Waits until all whole frames are written. Returns those that were written since the last call, and what is not written yet.
    ///
    /// # Errors
    /// `Io`, `Cancelled`.
    pub fn fresh(&mut self, task: &Task<'_>) -> Result<(Vec<Packed>, &Unpacked)> {
        self.write_all_but(0, task)?;
        let fresh = self.fresh.as_mut().map(std::mem::take);
        Ok((fresh.unwrap_or_default(), &self.rest))
    }

    /// The pack and the slot of the block before which so many others were given.
    pub fn place(&self, position: u32) -> (u32, u32) {
        let limit = self.limit();
        (self.first + position / limit, position % limit)
    }

    fn limit(&self) -> u32 {
        (PACK_RAW / u64::from(self.options.block_size)) as u32
    }

    fn index_of(&self, pack: u32) -> PackIndex {
        PackIndex::new(pack, 0, self.options.block_size, self.sealed)
    }

    /// Gives the next blocks to another pack if this one is full. A full pack ends with a whole frame.
    fn leave_full(&mut self) {
        if self.given == self.limit() {
            self.next += 1;
            self.given = 0;
        }
    }

    /// Adds a block; returns the pack and the slot it has.
    ///
    /// # Errors
    /// `Io`, `Cancelled`.
    pub fn push(&mut self, name: Name, block: &[u8], task: &Task<'_>) -> Result<(u32, u32)> {
        self.leave_full();
        self.rest.names.push(name);
        self.rest.blocks.extend_from_slice(block);
        let at = (self.next, self.given);
        self.given += 1;
        if self.rest.names.len() == FRAME_BLOCKS {
            self.compress();
            self.write_all_but(self.most, task)?;
        }
        Ok(at)
    }

    /// Has the blocks that were given last compressed as a frame.
    fn compress(&mut self) {
        let rest = Unpacked {
            names: Vec::with_capacity(FRAME_BLOCKS),
            blocks: self.idle.pop().unwrap_or_default(),
        };
        let Unpacked { names, blocks } = std::mem::replace(&mut self.rest, rest);
        self.waiting.push_back(Waiting {
            pack: self.next,
            names,
            encoded: self.workers.submit(blocks),
        });
    }

    /// Writes the frames that were given first, until this many are left.
    fn write_all_but(&mut self, left: usize, task: &Task<'_>) -> Result<()> {
        while self.waiting.len() > left {
            task.check()?;
            if let Some(frame) = self.waiting.pop_front() {
                self.write(frame)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, frame: Waiting) -> Result<()> {
        let Waiting {
            pack,
            names,
            encoded,
        } = frame;
        let (encoded, mut blocks) = encoded.wait().ok_or(Cancelled)??;
        if self
            .writer
            .as_ref()
            .is_some_and(|writer| writer.index.id != pack)
        {
            self.close()?;
        }
        let index = self.index_of(pack);
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(PackWriter::create(&self.options.dir, index)?),
        };
        writer.append(&names, &encoded)?;
        blocks.clear();
        self.idle.push(blocks);
        if let Some(fresh) = &mut self.fresh {
            fresh.push(Packed {
                pack,
                len: encoded.bytes.len() as u32,
                raw: encoded.raw,
                check: encoded.check,
                names,
            });
        }
        Ok(())
    }

    /// Ends the pack that is written.
    fn close(&mut self) -> Result<()> {
        if let Some(writer) = self.writer.take() {
            self.done.push(writer.finish(None)?);
        }
        Ok(())
    }

    /// Writes what is left; returns the packs.
    ///
    /// # Errors
    /// `Io`, `Cancelled`.
    pub fn finish(mut self, task: &Task<'_>) -> Result<Vec<Written>> {
        if !self.rest.names.is_empty() {
            self.compress();
        }
        self.write_all_but(0, task)?;
        self.close()?;
        Ok(self.done)
    }
}
