//! Indexes of packs: where their blocks are, and what they are named.
//!
//! A pack is written once. Its blocks are numbered by *slots*, which are never given twice: when dead blocks are dropped, a later
//! *generation* of the pack takes its place, in which the blocks that are left keep their slots. So references to a block are never
//! rewritten. The formats are described in the reference, "Format of the version store".

use super::codec::{Cursor, VERSION};
use super::crypt::{Name, NAME_LEN, SEAL_LEN};
use crate::error::{Result, VersionsError};

/// First bytes of an index.
pub const INDEX_MAGIC: &[u8; 8] = b"DCVINDX1";

/// Bytes before a pack's first frame.
pub const PACK_HEADER: u64 = 32;

/// Blocks of a frame, at most.
pub const FRAME_BLOCKS: usize = 256;

const MAX_BLOCKS: u32 = 1 << 24;

const SEALED: u32 = 1;

const DENSE: u32 = 2;

/// Bytes of a frame's checksum.
pub const CHECK_LEN: usize = 16;

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
