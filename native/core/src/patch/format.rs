//! The patch file format, version 1. All integers are little-endian.
//!
//! ```text
//! header    288 bytes, see `Header`; its last 32 bytes are the BLAKE3 of those before
//! data      the literal frames, one after the other
//! meta      map    zstd: the runs of blocks of the target, in order
//!           frames zstd: one record per literal frame, in order
//!           leaves 32 bytes per changed leaf of the target, in order
//! ```
//!
//! Integers inside the map and the frame records are LEB128 varints; differences are zigzag-coded.
//!
//! * map: per run `length * 4 + kind`; kind 0 zero, 1 base, 2 the next literals, 3 other literals. Base: then the difference of (base block -
//!   target block) to that of the last base run. Other literals: then the index of the first.
//! * frame: blocks; bytes in the file; kind (0 stored, 1 zstd); number of dictionary pieces; per piece the difference of its first base block to
//!   the end of the last piece, and its blocks; and the low 32 bits of the XXH3 of the frame's bytes in the file (4 bytes). The dictionary is the
//!   concatenation of its pieces of the base, padded with zeroes past the base's end.
//! * leaves: a leaf is *changed* unless all its blocks are zero, or all come from the base at the same offset and the base's leaf has the same length.
//!   An image of a single leaf has none.

use std::io::{BufReader, Read};

use blake3::Hasher;

use super::literals::new_part;
use super::runs::{push, Run, Src, BLOCK};
use super::PatchError;
use crate::manifest::{leaf_count, leaf_len, to_hex, Hash, LEAF_SIZE};
use crate::source::ReadAt;

/// First bytes of every patch of this codec.
pub const MAGIC: &[u8; 8] = b"DCBLOCK1";
const VERSION: u32 = 1;
/// Bytes of the header.
pub const HEADER_LEN: u64 = 288;
/// Most runs of a patch: 256 MiB in memory.
pub const MAX_RUNS: usize = 1 << 24;
/// Most frames of a patch: 640 MiB in memory, for 2 TiB of literals at the least.
pub const MAX_FRAMES: usize = 1 << 24;
/// Most blocks in a frame.
pub const MAX_FRAME_BLOCKS: u32 = 256;
/// Most blocks of base in the dictionary of a frame.
pub const MAX_DICT_BLOCKS: u32 = 256;
/// Largest image, 64 MiB less than 16 TiB: block numbers have 32 bits, also those of the blocks after a piece of work that begins inside an image.
pub const MAX_SIZE: u64 = (1 << 44) - (64 << 20);
/// Value of `stale_blocks` where no filesystem told us.
pub const STALE_UNKNOWN: u64 = u64::MAX;
/// Blocks per leaf.
pub const LEAF_BLOCKS: u32 = (LEAF_SIZE / BLOCK) as u32;

/// The fixed part of a patch. Sizes in bytes, times in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Size of the base.
    pub base_size: u64,
    /// Size of the target.
    pub target_size: u64,
    /// Size of the patch file.
    pub patch_size: u64,
    /// Content id of the base.
    pub base_hash: Hash,
    /// Content id of the target.
    pub target_hash: Hash,
    /// Blocks of the target that come from the base.
    pub blocks_copied: u64,
    /// Blocks of the target that come from the patch.
    pub blocks_inserted: u64,
    /// Blocks of the target that are all zeroes.
    pub blocks_zero: u64,
    /// Of the inserted blocks, those that the target's filesystem marks free; `STALE_UNKNOWN` if nobody could tell.
    pub stale_blocks: u64,
    /// Where meta starts.
    pub meta_offset: u64,
    /// Bytes of the map.
    pub map_len: u64,
    /// Bytes of the frame records.
    pub frames_len: u64,
    /// Number of changed leaves.
    pub leaves: u64,
    /// Number of runs in the map.
    pub runs: u64,
    /// Number of frames.
    pub frames: u64,
    /// Level given on creation.
    pub level: u64,
    /// CPU time that making the patch took.
    pub create_cpu_us: u64,
    /// Time that making the patch took.
    pub create_wall_us: u64,
    /// BLAKE3 of meta.
    pub meta_hash: Hash,
}

impl Header {
    /// The bytes of the header.
    pub fn encode(&self) -> [u8; HEADER_LEN as usize] {
        let mut out = Vec::with_capacity(HEADER_LEN as usize);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(BLOCK as u32).to_le_bytes());
        for value in [self.base_size, self.target_size, self.patch_size] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.base_hash);
        out.extend_from_slice(&self.target_hash);
        for value in self.counts() {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&self.meta_hash);
        let check = *blake3::hash(&out).as_bytes();
        out.extend_from_slice(&check);
        let mut bytes = [0; HEADER_LEN as usize];
        bytes.copy_from_slice(&out);
        bytes
    }

    fn counts(&self) -> [u64; 13] {
        [
            self.blocks_copied,
            self.blocks_inserted,
            self.blocks_zero,
            self.stale_blocks,
            self.meta_offset,
            self.map_len,
            self.frames_len,
            self.leaves,
            self.runs,
            self.frames,
            self.level,
            self.create_cpu_us,
            self.create_wall_us,
        ]
    }

    /// Reads a header and checks it against its own hash, and its numbers against each other and against the length of the file.
    ///
    /// # Errors
    /// `Format` if this is no patch that we know, `Corrupt` if it is a damaged or a cut one.
    pub fn read(patch: &dyn ReadAt) -> Result<Header, PatchError> {
        if patch.len() < HEADER_LEN {
            return Err(short(patch.len()));
        }
        let mut bytes = [0u8; HEADER_LEN as usize];
        patch.read_exact_at(&mut bytes, 0)?;
        if &bytes[..8] != MAGIC {
            return Err(PatchError::Format(
                "the file does not start like a patch of the block codec".to_owned(),
            ));
        }
        let (body, check) = bytes.split_at(HEADER_LEN as usize - 32);
        if blake3::hash(body).as_bytes() != check {
            return Err(PatchError::Corrupt(
                "the header does not match its hash".to_owned(),
            ));
        }
        let version = u32::from_le_bytes([body[8], body[9], body[10], body[11]]);
        let block = u32::from_le_bytes([body[12], body[13], body[14], body[15]]);
        if version != VERSION || u64::from(block) != BLOCK {
            return Err(PatchError::Format(format!(
                "version {version} with blocks of {block} bytes is unknown here"
            )));
        }
        let header = Header::decode(body);
        header.check(patch.len())?;
        Ok(header)
    }

    fn decode(body: &[u8]) -> Header {
        let word = |at: usize| u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|i| body[at + i]));
        let hash = |at: usize| {
            let mut hash = [0; 32];
            hash.copy_from_slice(&body[at..at + 32]);
            hash
        };
        let count = |i: usize| word(104 + 8 * i);
        Header {
            base_size: word(16),
            target_size: word(24),
            patch_size: word(32),
            base_hash: hash(40),
            target_hash: hash(72),
            blocks_copied: count(0),
            blocks_inserted: count(1),
            blocks_zero: count(2),
            stale_blocks: count(3),
            meta_offset: count(4),
            map_len: count(5),
            frames_len: count(6),
            leaves: count(7),
            runs: count(8),
            frames: count(9),
            level: count(10),
            create_cpu_us: count(11),
            create_wall_us: count(12),
            meta_hash: hash(224),
        }
    }

    fn check(&self, file_len: u64) -> Result<(), PatchError> {
        if file_len != self.patch_size {
            return Err(PatchError::Corrupt(format!(
                "it has {file_len} bytes where its header says {}",
                self.patch_size
            )));
        }
        let sane = self.base_size <= MAX_SIZE
            && self.target_size <= MAX_SIZE
            && self.meta_offset >= HEADER_LEN
            && self.meta_offset <= file_len
            && self.map_len <= file_len
            && self.frames_len <= file_len
            && self.leaves <= leaf_count(self.target_size)
            && self.meta_offset + self.map_len + self.frames_len + self.leaves * 32 == file_len
            && self.runs <= MAX_RUNS as u64
            && self.frames <= MAX_FRAMES as u64
            && self.frames <= file_len;
        if sane {
            Ok(())
        } else {
            Err(PatchError::Format(
                "the header contradicts itself".to_owned(),
            ))
        }
    }
}

fn short(len: u64) -> PatchError {
    PatchError::Corrupt(format!("{len} bytes are less than its header"))
}

/// Number of blocks of an image of `size` bytes; `size` is at most `MAX_SIZE`.
pub fn block_count(size: u64) -> u32 {
    size.div_ceil(BLOCK) as u32
}

/// One literal frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Where its bytes start in the patch file.
    pub offset: u64,
    /// Index of its first literal block.
    pub first: u32,
    /// Its literal blocks.
    pub blocks: u32,
    /// Its bytes in the patch file.
    pub len: u32,
    /// How they are coded.
    pub kind: FrameKind,
    /// Its pieces of dictionary, as a range of the list of all pieces.
    pub dict: (u32, u32),
    /// Low 32 bits of the XXH3 of its bytes in the patch file.
    pub check: u32,
}

/// How the bytes of a frame are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// As they are.
    Stored,
    /// By zstd, with the dictionary as prefix if there is one.
    Zstd,
}

/// A piece of the base used as dictionary: first block and number of blocks.
pub type Piece = (u32, u32);

/// The frames of a patch, in order, and the pieces of their dictionaries.
#[derive(Debug, Clone, Default)]
pub struct Coded {
    /// All frames; together they hold all literals.
    pub frames: Vec<Frame>,
    /// All pieces of dictionary.
    pub pieces: Vec<Piece>,
}

impl Coded {
    /// The frames that hold `len` literals from `at` on, by index.
    pub fn frames_of(&self, at: u32, len: u32) -> std::ops::Range<u32> {
        let start = self
            .frames
            .partition_point(|frame| frame.first + frame.blocks <= at);
        let end = self.frames.partition_point(|frame| frame.first < at + len);
        start as u32..end as u32
    }

    /// The pieces of a frame's dictionary.
    pub fn dict(&self, frame: &Frame) -> &[Piece] {
        &self.pieces[frame.dict.0 as usize..frame.dict.1 as usize]
    }
}

/// The checksum of a frame.
pub fn frame_check(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// Codes the runs of a map.
pub fn encode_map(runs: &[Run]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut shift = 0i64;
    let mut next = 0u32;
    for run in runs {
        let len = u64::from(run.len) << 2;
        match run.src {
            Src::Zero => put_varint(&mut out, len),
            Src::Base(at) => {
                put_varint(&mut out, len | 1);
                let here = i64::from(at) - i64::from(run.start);
                put_varint(&mut out, zigzag(here - shift));
                shift = here;
            }
            Src::Literal(at) => {
                // What refers back and what is new are told apart, even where one goes on as the other.
                let new = new_part(run, next).map_or(0, |part| part.len);
                if new < run.len {
                    put_varint(&mut out, u64::from(run.len - new) << 2 | 3);
                    put_varint(&mut out, u64::from(at));
                }
                if new > 0 {
                    put_varint(&mut out, u64::from(new) << 2 | 2);
                    next += new;
                }
            }
        }
    }
    out
}

/// Codes the records of all frames.
pub fn encode_frames(frames: &[Frame], pieces: &[Piece]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0i64;
    for frame in frames {
        put_varint(&mut out, u64::from(frame.blocks));
        put_varint(&mut out, u64::from(frame.len));
        put_varint(&mut out, matches!(frame.kind, FrameKind::Zstd).into());
        put_varint(&mut out, u64::from(frame.dict.1 - frame.dict.0));
        for (start, len) in &pieces[frame.dict.0 as usize..frame.dict.1 as usize] {
            put_varint(&mut out, zigzag(i64::from(*start) - at));
            put_varint(&mut out, u64::from(*len));
            at = i64::from(start + len);
        }
        out.extend_from_slice(&frame.check.to_le_bytes());
    }
    out
}

/// Reads varints from a zstd stream without ever holding more of it than a buffer.
struct Records<'a> {
    input: BufReader<zstd::stream::read::Decoder<'static, BufReader<&'a [u8]>>>,
    what: &'static str,
}

impl<'a> Records<'a> {
    fn new(bytes: &'a [u8], what: &'static str) -> Result<Self, PatchError> {
        let decoder = zstd::stream::read::Decoder::new(bytes)
            .map_err(|_| PatchError::Corrupt(format!("the {what} cannot be read")))?;
        Ok(Records {
            input: BufReader::with_capacity(1 << 16, decoder),
            what,
        })
    }

    fn byte(&mut self) -> Result<u8, PatchError> {
        let mut byte = [0];
        self.input
            .read_exact(&mut byte)
            .map_err(|_| PatchError::Corrupt(format!("the {} ends early", self.what)))?;
        Ok(byte[0])
    }

    fn varint(&mut self) -> Result<u64, PatchError> {
        let mut value = 0u64;
        for shift in (0..63).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.contradiction())
    }

    /// A number that must be in 1..=max.
    fn count(&mut self, max: u32) -> Result<u32, PatchError> {
        match self.varint()? {
            0 => Err(self.contradiction()),
            n if n > u64::from(max) => Err(self.contradiction()),
            n => Ok(n as u32),
        }
    }

    fn contradiction(&self) -> PatchError {
        PatchError::Format(format!("the {} contradicts itself", self.what))
    }

    /// Fails unless everything was read.
    fn finish(mut self) -> Result<(), PatchError> {
        match self.input.read(&mut [0]) {
            Ok(0) => Ok(()),
            _ => Err(self.contradiction()),
        }
    }
}

/// Reads a map and checks it: it covers the target exactly, and stays inside the base. Returns the runs and the number of literals that they use.
///
/// # Errors
/// `Corrupt`, `Format`.
pub fn decode_map(bytes: &[u8], header: &Header) -> Result<(Vec<Run>, u32), PatchError> {
    let mut records = Records::new(bytes, "map")?;
    let total = block_count(header.target_size);
    let base_blocks = block_count(header.base_size);
    let mut runs = Vec::new();
    let (mut start, mut next, mut literals, mut shift) = (0u32, 0u32, 0u32, 0i64);
    while start < total {
        let code = records.varint()?;
        let len = u32::try_from(code >> 2)
            .ok()
            .filter(|len| *len > 0 && *len <= total - start);
        let len = len.ok_or_else(|| records.contradiction())?;
        let src = match code & 3 {
            0 => Src::Zero,
            1 => {
                shift = shift
                    .checked_add(unzigzag(records.varint()?))
                    .ok_or_else(|| records.contradiction())?;
                let at = shift
                    .checked_add(i64::from(start))
                    .and_then(|at| u32::try_from(at).ok());
                let fits =
                    at.filter(|at| at.checked_add(len).is_some_and(|end| end <= base_blocks));
                Src::Base(fits.ok_or_else(|| records.contradiction())?)
            }
            2 => {
                next = u32::checked_add(next, len).ok_or_else(|| records.contradiction())?;
                literals = literals.max(next);
                Src::Literal(next - len)
            }
            _ => {
                let at = u32::try_from(records.varint()?).ok();
                let at_end = at.and_then(|at| Some((at, at.checked_add(len)?)));
                let (at, end) = at_end.ok_or_else(|| records.contradiction())?;
                literals = literals.max(end);
                Src::Literal(at)
            }
        };
        push(&mut runs, Run { start, len, src });
        // After joining: what refers back and the new literals that follow it are two records of one run.
        if runs.len() as u64 > header.runs {
            return Err(records.contradiction());
        }
        start += len;
    }
    records.finish()?;
    Ok((runs, literals))
}

/// Reads the records of all frames and checks them: they hold exactly `literals` blocks, fill the data exactly, and their dictionaries stay inside
/// the base.
///
/// # Errors
/// `Corrupt`, `Format`.
pub fn decode_frames(
    bytes: &[u8],
    header: &Header,
    literals: u32,
) -> Result<(Vec<Frame>, Vec<Piece>), PatchError> {
    let mut records = Records::new(bytes, "list of frames")?;
    let base_blocks = block_count(header.base_size);
    let (mut frames, mut pieces): (Vec<Frame>, Vec<Piece>) = (Vec::new(), Vec::new());
    let (mut first, mut offset, mut at) = (0u32, HEADER_LEN, 0i64);
    for _ in 0..header.frames {
        let blocks = records.count(MAX_FRAME_BLOCKS.min(literals - first))?;
        let len = records.count(blocks * BLOCK as u32)?;
        let kind = match records.varint()? {
            0 if u64::from(len) == u64::from(blocks) * BLOCK => FrameKind::Stored,
            1 => FrameKind::Zstd,
            _ => return Err(records.contradiction()),
        };
        let dict_from = pieces.len() as u32;
        let mut dict_blocks = 0;
        for _ in 0..records.varint()? {
            at = at
                .checked_add(unzigzag(records.varint()?))
                .ok_or_else(|| records.contradiction())?;
            let start = u32::try_from(at).map_err(|_| records.contradiction())?;
            let len = records.count(MAX_DICT_BLOCKS - dict_blocks)?;
            let end = start
                .checked_add(len)
                .filter(|end| *end <= base_blocks)
                .ok_or_else(|| records.contradiction())?;
            dict_blocks += len;
            pieces.push((start, len));
            at = i64::from(end);
            if pieces.len() > 2 * MAX_FRAMES {
                return Err(records.contradiction());
            }
        }
        let check = u32::from_le_bytes([
            records.byte()?,
            records.byte()?,
            records.byte()?,
            records.byte()?,
        ]);
        frames.push(Frame {
            offset,
            first,
            blocks,
            len,
            kind,
            dict: (dict_from, pieces.len() as u32),
            check,
        });
        first += blocks;
        offset += u64::from(len);
    }
    if first != literals || offset != header.meta_offset {
        return Err(records.contradiction());
    }
    records.finish()?;
    Ok((frames, pieces))
}

/// Reads and checks meta's bytes against the hash in the header.
///
/// # Errors
/// `Corrupt`, `Source`.
pub fn read_meta(patch: &dyn ReadAt, header: &Header) -> Result<Vec<u8>, PatchError> {
    // The header was checked against the file's length, so this is no more than the file.
    let mut meta = vec![0; (header.patch_size - header.meta_offset) as usize];
    patch.read_exact_at(&mut meta, header.meta_offset)?;
    if *Hasher::new().update(&meta).finalize().as_bytes() != header.meta_hash {
        return Err(PatchError::Corrupt(
            "map, frames and leaves do not match their hash".to_owned(),
        ));
    }
    Ok(meta)
}

/// Whether leaf `leaf` of the target is the base's at the same place, judged by the runs that touch it.
pub fn is_inherited(header: &Header, leaf: u64, mut runs: impl Iterator<Item = Run>) -> bool {
    // An image of a single leaf has no chaining values to hand down.
    leaf_count(header.base_size) > 1
        && leaf_len(header.base_size, leaf) == leaf_len(header.target_size, leaf)
        && runs.all(|run| run.src == Src::Base(run.start))
}

/// What `patch show` tells of a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchInfo {
    /// The header's numbers.
    pub header: Header,
}

impl PatchInfo {
    /// Content id of the base, 64 hex digits.
    pub fn base_hash(&self) -> String {
        to_hex(&self.header.base_hash)
    }

    /// Content id of the target, 64 hex digits.
    pub fn target_hash(&self) -> String {
        to_hex(&self.header.target_hash)
    }
}

/// Reads what a patch says of itself; its header is verified, its data are not.
///
/// # Errors
/// `Format`, `Corrupt`, `Source`.
pub fn info(patch: &dyn ReadAt) -> Result<PatchInfo, PatchError> {
    Ok(PatchInfo {
        header: Header::read(patch)?,
    })
}
