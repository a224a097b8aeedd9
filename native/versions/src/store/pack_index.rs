//! Indexes of packs: where their blocks are, and what they are named.
//!
//! An index is read in parts: where blocks are, which is small, and the names of blocks in *sections*, of which a save needs few. Each part is
//! checked when it is read, so that neither has to be in memory whole.
//!
//! A pack is written once. Its blocks are numbered by *slots*, which are never given twice: when dead blocks are dropped, a later
//! *generation* of the pack takes its place, in which the blocks that are left keep their slots. So references to a block are never
//! rewritten. The formats are described in the reference, "Format of the version store".

use std::ops::Range;

use diffcache_core::source::ReadAt;

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

/// Names of a section, which are read and checked together: those of blocks that were written one after the other.
pub const SECTION: u32 = 1024;

/// Bytes before the frames.
const HEADER: usize = 48;

const FRAME_LEN: usize = 40;

/// Bytes of the checksum of a frame, or of a section.
pub const CHECK_LEN: usize = 16;

const SUM_LEN: usize = 32;

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

/// The index of one pack, without the names of its blocks.
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
    /// How many blocks are left.
    pub blocks: u32,
    /// The checksums of the sections of their names.
    pub sections: Vec<[u8; CHECK_LEN]>,
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
            blocks: 0,
            sections: Vec::new(),
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

    /// The rank of a slot, or of a block beside if that one was dropped or never was.
    pub fn rank_near(&self, slot: u32) -> u32 {
        let rank = match &self.slots {
            None => slot,
            Some(slots) => slots.partition_point(|other| *other < slot) as u32,
        };
        rank.min(self.blocks.saturating_sub(1))
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
        (0..self.blocks).map(|rank| self.slot(rank))
    }

    /// The ranks whose names a section has.
    pub fn ranks(&self, section: u32) -> Range<u32> {
        let first = section.saturating_mul(SECTION).min(self.blocks);
        first..first.saturating_add(SECTION).min(self.blocks)
    }

    /// Bytes in memory, about.
    pub fn memory(&self) -> usize {
        let slots = self.slots.as_ref().map_or(0, Vec::len);
        HEADER * 4 + self.frames.len() * FRAME_LEN + slots * 4 + self.sections.len() * CHECK_LEN
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

    /// The index as a file, with the names of all blocks.
    pub fn encode(&mut self, names: &[Name]) -> Vec<u8> {
        self.blocks = names.len() as u32;
        let sections = names.as_flattened().chunks(SECTION as usize * NAME_LEN);
        self.sections = sections.map(section_check).collect();
        let mut out = INDEX_MAGIC.to_vec();
        for number in [
            VERSION,
            self.id,
            self.generation,
            self.block_size,
            self.flags(),
            self.slots_total,
            self.blocks,
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
        out.extend_from_slice(self.sections.as_flattened());
        let check = blake3::hash(&out);
        out.extend_from_slice(names.as_flattened());
        out.extend_from_slice(check.as_bytes());
        out
    }

    /// Reads an index without the names. What is allocated is bounded by the file's own size.
    ///
    /// # Errors
    /// `Damaged` if it does not match its checksum, that is not `check`, or what it says is impossible; `Source`.
    pub fn read(file: &dyn ReadAt, check: &Check, object: &str) -> Result<Self> {
        let short = || VersionsError::damaged(object, "it ends early");
        let mut head = vec![0; HEADER];
        let names_and_sum = file.len().checked_sub(HEADER as u64).ok_or_else(short)?;
        file.read_exact_at(&mut head, 0)?;
        let mut cursor = Cursor::new(&head, object);
        cursor.head(INDEX_MAGIC, "index of a pack")?;
        cursor.take(12)?;
        let (flags, _slots) = (cursor.u32()?, cursor.u32()?);
        let (blocks, frames) = (cursor.u32()? as usize, cursor.u32()? as usize);
        let slots = if flags & DENSE == 0 { blocks * 4 } else { 0 };
        let sections = blocks.div_ceil(SECTION as usize) * CHECK_LEN;
        let rest = frames * FRAME_LEN + slots + sections;
        if (rest + blocks * NAME_LEN + SUM_LEN) as u64 != names_and_sum {
            return Err(VersionsError::damaged(
                object,
                "it has another length than it says",
            ));
        }
        head.resize(HEADER + rest, 0);
        file.read_exact_at(&mut head[HEADER..], HEADER as u64)?;
        let mut sum = [0; SUM_LEN];
        file.read_exact_at(&mut sum, file.len() - SUM_LEN as u64)?;
        expect(&sum, check, object)?;
        if *blake3::hash(&head).as_bytes() != sum {
            return Err(mismatch(object));
        }
        Self::parse(&head, object)
    }

    /// Reads what an index has before the names, whose checksum was compared.
    ///
    /// # Errors
    /// `Damaged` if what it says is impossible.
    pub fn parse(head: &[u8], object: &str) -> Result<Self> {
        let mut cursor = Cursor::new(head, object);
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
        let sections = (0..blocks.div_ceil(SECTION))
            .map(|_| cursor.array())
            .collect::<Result<Vec<_>>>()?;
        let index = Self {
            id,
            generation,
            block_size,
            sealed: flags & SEALED != 0,
            slots_total,
            slots,
            blocks,
            sections,
            frames,
            data_len,
        };
        match cursor.is_empty() && index.is_consistent() {
            true => Ok(index),
            false => Err(cursor.error("what it says is impossible")),
        }
    }

    /// Reads the names of a section from the file of the index.
    ///
    /// # Errors
    /// `Damaged` if they do not match their checksum; `Missing` if there is no such section; `Source`.
    pub fn read_section(&self, file: &dyn ReadAt, section: u32) -> Result<Vec<Name>> {
        let object = format!("the index of {}", self.object());
        let check = self.sections.get(section as usize);
        let check = check.ok_or_else(|| VersionsError::Missing(object.clone()))?;
        let ranks = self.ranks(section);
        let names = (self.blocks as usize * NAME_LEN + SUM_LEN) as u64;
        let start = file.len().checked_sub(names);
        let start = start.ok_or_else(|| VersionsError::damaged(&object, "it ends early"))?;
        let mut bytes = vec![0; ranks.len() * NAME_LEN];
        file.read_exact_at(&mut bytes, start + u64::from(ranks.start) * NAME_LEN as u64)?;
        if section_check(&bytes) != *check {
            return Err(mismatch(&object));
        }
        let names = bytes.chunks_exact(NAME_LEN);
        Ok(names.filter_map(|name| name.try_into().ok()).collect())
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
        let blocks = self.blocks;
        let slots = match &self.slots {
            None => blocks == self.slots_total,
            Some(slots) => {
                slots.len() == blocks as usize
                    && slots.windows(2).all(|pair| pair[0] < pair[1])
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
        return Err(mismatch(object));
    }
    Ok(body)
}

fn mismatch(object: &str) -> VersionsError {
    VersionsError::damaged(object, "its bytes do not match its checksum")
}

fn section_check(names: &[u8]) -> [u8; CHECK_LEN] {
    let mut check = [0; CHECK_LEN];
    let sum = blake3::hash(names);
    check.copy_from_slice(&sum.as_bytes()[..CHECK_LEN]);
    check
}

/// The checksum at the end of an index, a map, or the index of a base image.
pub type Check = [u8; 32];

/// The checksum that a file ends with.
pub fn check_of(bytes: &[u8]) -> Check {
    bytes.last_chunk().copied().unwrap_or_default()
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn an_index() -> (PackIndex, Vec<Name>, Vec<u8>) {
        let mut index = PackIndex::new(3, 1, 4096, false);
        let count = 2500;
        for first in (0..count).step_by(FRAME_BLOCKS) {
            index.frames.push(Frame {
                first,
                count: (count - first).min(FRAME_BLOCKS as u32),
                offset: index.data_len,
                len: 100,
                raw: false,
                check: [first as u8; CHECK_LEN],
            });
            index.data_len += 100;
        }
        index.slots = Some((0..count).map(|slot| slot * 2).collect());
        index.slots_total = count * 2;
        let name = |rank: u32| {
            let mut name = [7; NAME_LEN];
            name[..4].copy_from_slice(&rank.to_le_bytes());
            name
        };
        let names: Vec<Name> = (0..count).map(name).collect();
        let file = index.encode(&names);
        (index, names, file)
    }

    /// Reads all parts; returns the names.
    fn read(file: &dyn ReadAt, check: &Check) -> Result<(PackIndex, Vec<Name>)> {
        let index = PackIndex::read(file, check, "index")?;
        let sections = 0..index.sections.len() as u32;
        let names = sections.map(|section| index.read_section(file, section));
        let names = names.collect::<Result<Vec<_>>>()?.concat();
        Ok((index, names))
    }

    #[test]
    fn an_index_is_read_in_parts() {
        let (index, names, file) = an_index();
        assert_eq!(read(&file, &check_of(&file)).unwrap(), (index, names));
    }

    #[test]
    fn flipped_bits_and_other_lengths_are_found() {
        let (_, _, file) = an_index();
        let check = check_of(&file);
        for bit in (0..file.len() * 8).step_by(61) {
            let mut changed = file.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&changed, &check).is_err(), "bit {bit}");
        }
        for len in [0, 47, 48, 1000, file.len() - 1] {
            assert!(read(&file[..len].to_vec(), &check).is_err(), "{len} bytes");
        }
        let longer = [&file[..], &[0]].concat();
        assert!(read(&longer, &check).is_err());
    }

    #[test]
    fn damaged_names_leave_the_other_sections_and_the_places() {
        let (index, names, mut file) = an_index();
        let check = check_of(&file);
        let first = file.len() - 32 - names.len() * NAME_LEN;
        file[first + 5] ^= 1;
        let found = PackIndex::read(&file, &check, "index").unwrap();
        assert_eq!(found, index);
        assert!(found.read_section(&file, 0).is_err());
        assert_eq!(found.read_section(&file, 2).unwrap(), names[2048..]);
    }
}
