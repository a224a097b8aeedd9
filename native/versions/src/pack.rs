//! Packs: blocks, compressed in frames, and the index of their offsets.
//!
//! A pack is written once. Its blocks are numbered by *slots*, which are never given twice: when dead blocks are dropped, a later
//! *generation* of the pack takes its place, in which the blocks that are left keep their slots. So references to a block are never
//! rewritten. The formats are described in the reference, "Format of the version store".

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;
use diffcache_core::task::{for_each_piece, Task};
use zstd::bulk::Compressor;

use crate::codec::{Cursor, VERSION};
use crate::crypt::{Cipher, Name, NAME_LEN, SEAL_LEN};
use crate::error::{Result, VersionsError};

/// First bytes of a pack.
pub const PACK_MAGIC: &[u8; 8] = b"DCVPACK1";
/// First bytes of an index.
pub const INDEX_MAGIC: &[u8; 8] = b"DCVINDX1";
/// Bytes before a pack's first frame.
pub const PACK_HEADER: u64 = 32;
/// Blocks of a frame, at most.
pub const FRAME_BLOCKS: usize = 256;
/// Bytes of a pack's blocks before compression, at most: some tens of MiB once compressed.
pub const PACK_RAW: u64 = 64 << 20;
const MAX_BLOCKS: u32 = 1 << 24;
const SEALED: u32 = 1;
const DENSE: u32 = 2;
/// Bytes of a frame's checksum.
pub const CHECK_LEN: usize = 16;
/// Frames compressed together, by all threads.
const BATCH: usize = 8;

/// What an index says of one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The rank of its first block: how many blocks of the pack come before.
    pub first: u32,
    /// Its blocks.
    pub count: u32,
    /// Its offset in the pack.
    pub offset: u64,
    /// Bytes it takes there.
    pub len: u32,
    /// It is kept as it is, because compression gained nothing.
    pub raw: bool,
    /// The first bytes of the BLAKE3 of what is kept.
    pub check: [u8; CHECK_LEN],
}

/// The index of one pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackIndex {
    /// The pack's number.
    pub id: u32,
    /// How many times dead blocks were dropped from it.
    pub generation: u32,
    /// Bytes of a block.
    pub block_size: u32,
    /// Frames are sealed with the project's key.
    pub sealed: bool,
    /// Slots that were ever given.
    pub slots_total: u32,
    /// The slots of the blocks that are left, ascending; `None` if all are.
    pub slots: Option<Vec<u32>>,
    /// Their names, in the same order.
    pub names: Vec<Name>,
    /// The frames, in the order of the pack.
    pub frames: Vec<Frame>,
    /// Bytes of the pack.
    pub data_len: u64,
}

impl PackIndex {
    /// The index of a pack without blocks.
    pub fn new(id: u32, generation: u32, block_size: u32, sealed: bool) -> Self {
        Self {
            id,
            generation,
            block_size,
            sealed,
            slots_total: 0,
            slots: None,
            names: Vec::new(),
            frames: Vec::new(),
            data_len: PACK_HEADER,
        }
    }

    /// What errors call the pack.
    pub fn object(&self) -> String {
        format!("pack {}", self.id)
    }

    /// The rank of a slot; `None` if the block was dropped or never was.
    pub fn rank(&self, slot: u32) -> Option<u32> {
        match &self.slots {
            None => (slot < self.slots_total).then_some(slot),
            Some(slots) => slots.binary_search(&slot).ok().map(|rank| rank as u32),
        }
    }

    /// The slot of a rank.
    pub fn slot(&self, rank: u32) -> u32 {
        match &self.slots {
            None => rank,
            Some(slots) => slots.get(rank as usize).copied().unwrap_or(u32::MAX),
        }
    }

    /// The slots of the blocks that are left, ascending.
    pub fn all_slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.names.len() as u32).map(|rank| self.slot(rank))
    }

    /// The name of the block in a slot.
    pub fn name(&self, slot: u32) -> Option<&Name> {
        self.names.get(self.rank(slot)? as usize)
    }

    /// Returns the frame that contains a rank, and its position in it.
    pub fn frame_of(&self, rank: u32) -> Option<(usize, u32)> {
        let after = self.frames.partition_point(|frame| frame.first <= rank);
        let at = after.checked_sub(1)?;
        let within = rank - self.frames[at].first;
        (within < self.frames[at].count).then_some((at, within))
    }

    fn flags(&self) -> u32 {
        let sealed = if self.sealed { SEALED } else { 0 };
        sealed | if self.slots.is_none() { DENSE } else { 0 }
    }

    /// The index as a file.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = INDEX_MAGIC.to_vec();
        for number in [
            VERSION,
            self.id,
            self.generation,
            self.block_size,
            self.flags(),
            self.slots_total,
            self.names.len() as u32,
            self.frames.len() as u32,
        ] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.data_len.to_le_bytes());
        for frame in &self.frames {
            out.extend_from_slice(&frame.first.to_le_bytes());
            out.extend_from_slice(&frame.count.to_le_bytes());
            out.extend_from_slice(&frame.offset.to_le_bytes());
            out.extend_from_slice(&frame.len.to_le_bytes());
            out.extend_from_slice(&u32::from(frame.raw).to_le_bytes());
            out.extend_from_slice(&frame.check);
        }
        for slot in self.slots.iter().flatten() {
            out.extend_from_slice(&slot.to_le_bytes());
        }
        for name in &self.names {
            out.extend_from_slice(name);
        }
        let check = blake3::hash(&out);
        out.extend_from_slice(check.as_bytes());
        out
    }

    /// Reads an index. What is allocated is bounded by the file's own size.
    ///
    /// # Errors
    /// `Damaged` if the checksum does not match, or what it says is impossible.
    pub fn decode(bytes: &[u8], object: &str) -> Result<Self> {
        let body = checked(bytes, object)?;
        let mut cursor = Cursor::new(body, object);
        cursor.head(INDEX_MAGIC, "index of a pack")?;
        let (id, generation, block_size) = (cursor.u32()?, cursor.u32()?, cursor.u32()?);
        let (flags, slots_total) = (cursor.u32()?, cursor.u32()?);
        let (blocks, frames) = (cursor.u32()?, cursor.u32()?);
        let data_len = cursor.u64()?;
        let frames = (0..frames)
            .map(|_| read_frame(&mut cursor))
            .collect::<Result<Vec<_>>>()?;
        let slots = match flags & DENSE {
            0 => Some(
                (0..blocks)
                    .map(|_| cursor.u32())
                    .collect::<Result<Vec<_>>>()?,
            ),
            _ => None,
        };
        let names = cursor.take(blocks as usize * NAME_LEN)?;
        let index = Self {
            id,
            generation,
            block_size,
            sealed: flags & SEALED != 0,
            slots_total,
            slots,
            names: names
                .chunks_exact(NAME_LEN)
                .filter_map(|name| name.try_into().ok())
                .collect(),
            frames,
            data_len,
        };
        match cursor.is_empty() && index.is_consistent() {
            true => Ok(index),
            false => Err(cursor.error("what it says is impossible")),
        }
    }

    fn is_consistent(&self) -> bool {
        let (mut rank, mut offset) = (0, PACK_HEADER);
        for frame in &self.frames {
            let fits = frame.first == rank && frame.offset == offset && frame.count > 0;
            if !fits || frame.count as usize > FRAME_BLOCKS {
                return false;
            }
            // Frames that would become longer are kept as they are.
            let longest = u64::from(frame.count) * u64::from(self.block_size) + SEAL_LEN as u64;
            if u64::from(frame.len) > longest {
                return false;
            }
            rank += frame.count;
            offset += u64::from(frame.len);
        }
        let blocks = self.names.len() as u32;
        let slots = match &self.slots {
            None => blocks == self.slots_total,
            Some(slots) => {
                slots.windows(2).all(|pair| pair[0] < pair[1])
                    && slots.last().is_none_or(|last| *last < self.slots_total)
            }
        };
        let sizes = self.block_size.is_power_of_two() && (512..=1 << 20).contains(&self.block_size);
        rank == blocks
            && offset == self.data_len
            && slots
            && sizes
            && self.slots_total <= MAX_BLOCKS
    }
}

/// The bytes of a file without the checksum at its end.
///
/// # Errors
/// `Damaged` if the checksum does not match.
pub fn checked<'a>(bytes: &'a [u8], object: &str) -> Result<&'a [u8]> {
    let cut = bytes.len().checked_sub(32);
    let (body, check) = bytes.split_at(cut.unwrap_or(0));
    if cut.is_none() || blake3::hash(body).as_bytes() != check {
        return Err(VersionsError::damaged(
            object,
            "its bytes do not match its checksum",
        ));
    }
    Ok(body)
}

/// The checksum at the end of an index, a map, or the index of a base image.
pub type Check = [u8; 32];

/// Checks that a file ends with the checksum that a catalogue has for it. A writer to the store can replace a file by one whose
/// checksum matches its content, but not the catalogue of a store with a key.
///
/// # Errors
/// `Damaged` if it ends with another.
pub fn expect(bytes: &[u8], check: &Check, object: &str) -> Result<()> {
    match bytes.ends_with(check) {
        true => Ok(()),
        false => Err(VersionsError::damaged(
            object,
            "it is not the one that the catalogue names",
        )),
    }
}

fn read_frame(cursor: &mut Cursor<'_>) -> Result<Frame> {
    Ok(Frame {
        first: cursor.u32()?,
        count: cursor.u32()?,
        offset: cursor.u64()?,
        len: cursor.u32()?,
        raw: cursor.u32()? != 0,
        check: cursor.array()?,
    })
}

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

/// The first bytes of the BLAKE3 of what is kept.
pub fn frame_check(bytes: &[u8]) -> [u8; CHECK_LEN] {
    let mut check = [0; CHECK_LEN];
    check.copy_from_slice(&blake3::hash(bytes).as_bytes()[..CHECK_LEN]);
    check
}

/// A frame ready to be kept.
pub struct Encoded {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// They are not compressed.
    pub raw: bool,
}

/// Compresses frames. A compressor is set up once and then used again, by one thread at a time: setting one up costs as much as a small frame.
pub struct Encoder {
    level: i32,
    idle: Mutex<Vec<Compressor<'static>>>,
}

impl Encoder {
    /// An encoder of a zstd level.
    pub fn new(level: i32) -> Self {
        Self {
            level,
            idle: Mutex::default(),
        }
    }

    /// Compresses and seals the blocks of a frame.
    ///
    /// # Errors
    /// `Io` if the compressor fails.
    pub fn encode(&self, blocks: &[u8], cipher: &Cipher) -> Result<Encoded> {
        let failed = VersionsError::io("compressing a frame");
        let idle = self.idle().pop();
        let packed = match idle.map_or_else(|| Compressor::new(self.level), Ok) {
            Ok(mut compressor) => {
                let packed = compressor.compress(blocks);
                self.idle().push(compressor);
                packed
            }
            Err(error) => Err(error),
        };
        let packed = packed.map_err(failed)?;
        let raw = packed.len() >= blocks.len();
        let bytes = cipher.seal(if raw { blocks.to_vec() } else { packed })?;
        Ok(Encoded { bytes, raw })
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Compressor<'static>>> {
        self.idle.lock().unpoisoned()
    }
}

/// The blocks of a frame, from what is kept.
///
/// # Errors
/// `Damaged` if the checksum does not match or the frame does not have the length that the index promises.
pub fn decode_frame(
    index: &PackIndex,
    frame: &Frame,
    kept: Vec<u8>,
    cipher: &Cipher,
) -> Result<Vec<u8>> {
    let damaged = |why: &str| {
        let object = index.object();
        VersionsError::damaged(object, format!("the frame at byte {} {why}", frame.offset))
    };
    if frame_check(&kept) != frame.check {
        return Err(damaged("does not match its checksum"));
    }
    let packed = cipher.open(kept, &index.object())?;
    let len = frame.count as usize * index.block_size as usize;
    let blocks = match frame.raw {
        true => packed,
        false => {
            zstd::bulk::decompress(&packed, len).map_err(|_| damaged("does not decompress"))?
        }
    };
    match blocks.len() == len {
        true => Ok(blocks),
        false => Err(damaged("does not have the promised length")),
    }
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
    /// The pack's file.
    pub data: PathBuf,
    /// The index's file.
    pub index: PathBuf,
}

/// Writes one pack.
pub struct PackWriter {
    index: PackIndex,
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
            first: self.index.names.len() as u32,
            count: names.len() as u32,
            offset: self.index.data_len,
            len,
            raw,
            check,
        });
        self.index.names.extend_from_slice(names);
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
            None => self.index.slots_total = self.index.names.len() as u32,
        }
        let index = self.index.encode();
        std::fs::write(&self.index_path, &index)
            .map_err(VersionsError::io(self.index_path.display().to_string()))?;
        Ok(Written {
            id: self.index.id,
            blocks: self.index.names.len() as u32,
            data_len: self.index.data_len,
            index_len: index.len() as u64,
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
            self.given = writer.index.names.len() as u32;
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
