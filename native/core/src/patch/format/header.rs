//! The header of a patch, and the limits of the format.

use blake3::Hasher;
use diffcache_base::hex;
use diffcache_base::words::Words;

use crate::hash_tree::Hash;
use crate::leaf::{leaf_count, LEAF_SIZE};
use crate::patch::error::PatchError;
use crate::patch::runs::BLOCK;
use crate::patch::VERSION;
use crate::source::ReadAt;

/// First bytes of every patch of this codec.
pub const MAGIC: &[u8; 8] = b"DCBLOCK1";
/// Bytes of the header.
pub const HEADER_LEN: u64 = 288;
/// Most runs of a patch: 256 MiB in memory.
pub const MAX_RUNS: usize = 1 << 24;
/// Most frames of a patch: 640 MiB in memory, for 2 TiB of literals at the least.
pub const MAX_FRAMES: usize = 1 << 24;
/// Most blocks in a frame.
pub const MAX_FRAME_BLOCKS: u32 = 1024;
/// Most blocks of base in the dictionary of a frame.
pub const MAX_DICT_BLOCKS: u32 = 256;
/// Largest image, 64 MiB less than 16 TiB: block numbers have 32 bits, also those of the blocks after a piece of work that begins inside an image.
pub const MAX_SIZE: u64 = (1 << 44) - (64 << 20);
/// Value of `stale_blocks` if the target has no filesystem that says it.
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
    /// Of the inserted blocks, those that the target's filesystem marks free; `STALE_UNKNOWN` if that is not known.
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
    /// CPU time that creating the patch took.
    pub create_cpu_us: u64,
    /// Time that creating the patch took.
    pub create_wall_us: u64,
    /// BLAKE3 of meta.
    pub meta_hash: Hash,
}

impl Header {
    /// Encodes the header.
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
    /// `Format` if the file is no patch, `Version` if it is one of another version, `Corrupt` if it is damaged or cut.
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
        let (version, block) = (Words(body).le32(8), Words(body).le32(12));
        if version != VERSION || u64::from(block) != BLOCK {
            return Err(PatchError::Version {
                name: patch.name().to_owned(),
                version,
                block,
            });
        }
        let header = Header::decode(body);
        header.check(patch.len())?;
        Ok(header)
    }

    fn decode(body: &[u8]) -> Header {
        let words = Words(body);
        let count = |i: usize| words.le64(104 + 8 * i);
        Header {
            base_size: words.le64(16),
            target_size: words.le64(24),
            patch_size: words.le64(32),
            base_hash: words.array(40),
            target_hash: words.array(72),
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
            meta_hash: words.array(224),
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

/// Returns the number of blocks of an image of `size` bytes; `size` is at most `MAX_SIZE`.
pub fn block_count(size: u64) -> u32 {
    size.div_ceil(BLOCK) as u32
}

/// Reads map, frame records and leaves, and checks them against the hash in the header.
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

/// What a patch says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchInfo {
    /// The header's numbers.
    pub header: Header,
}

impl PatchInfo {
    /// Returns the content id of the base, 64 hex digits.
    pub fn base_hash(&self) -> String {
        hex::encode(&self.header.base_hash)
    }

    /// Returns the content id of the target, 64 hex digits.
    pub fn target_hash(&self) -> String {
        hex::encode(&self.header.target_hash)
    }
}

/// Reads what a patch says of itself. Its header is verified, its data are not.
///
/// # Errors
/// `Format`, `Corrupt`, `Source`.
pub fn info(patch: &dyn ReadAt) -> Result<PatchInfo, PatchError> {
    Ok(PatchInfo {
        header: Header::read(patch)?,
    })
}
