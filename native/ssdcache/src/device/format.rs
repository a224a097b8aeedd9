//! The bytes of a cache device; `doc/source/reference/ssd-cache-format.rst` describes them.
//!
//! All numbers are little-endian. Superblock, volumes and entries end with a checksum of their
//! other bytes, and each is there twice, entries of dirty blocks among them: damage of one copy, or
//! a write that a power cut interrupts, leaves the other.

use diffcache_base::words::Words;
use diffcache_partitions::Slot;
use thiserror::Error;
use xxhash_rust::xxh3::xxh3_64;

pub use super::entries::{looks_dirty, DirtyVersion, Entry, ENTRY, VERSIONS};
pub use super::records::COPIES;
pub use super::records::{
    Kept, Leaving, RecordCopy, VolumeRecord, MAX_NAME, MAX_ORIGIN, UNKNOWN_ORIGIN, VOLUME,
};

/// Bytes of a block, of the cache and of volumes.
pub const BLOCK: usize = 4096;
/// Volumes of a device.
pub const VOLUMES: usize = 1024;
/// Bytes of the intents: a bit for each of a million groups of regions.
pub const INTENTS: usize = 1 << 17;

const MAGIC: &[u8; 8] = b"DCSSDDEV";
const FORMAT: u32 = 1;
/// Bytes of the superblock that its checksum is of: a sector, which is written whole or not.
const HEAD: usize = 512;
const INTENTS_AT: u64 = 2 * BLOCK as u64;
const VOLUMES_AT: u64 = INTENTS_AT + INTENTS as u64;
const ENTRIES_AT: u64 = VOLUMES_AT + (COPIES * VOLUMES * VOLUME) as u64;

/// Why a device cannot be used as it is.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// It is no cache device
    #[error("not a cache device; --format makes it one, and erases what is on it")]
    NotOurs,
    /// Its format has another number
    #[error("it has format {0}, and this program knows format {FORMAT} alone; use the program that wrote it")]
    Unknown(u32),
    /// Its superblock is damaged
    #[error(
        "both copies of the superblock are damaged, and blocks that were not written back to their \
         volumes may be on it; copy the device before anything else. --format with \
         --discard-dirty empties the cache, and loses them"
    )]
    Damaged,
}

/// Checksum of a block's data.
#[must_use]
pub fn checksum(data: &[u8]) -> u32 {
    xxh3_64(data) as u32
}

/// The head of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Superblock {
    /// Blocks of the cache.
    pub capacity: u32,
    /// Random number of this cache.
    pub id: [u8; 16],
    /// The host that wrote it last.
    pub host: [u8; 16],
    /// Which start of that host it was.
    pub boot: [u8; 16],
    /// The secret of the look-ups.
    pub seed: u64,
}

impl Superblock {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&(BLOCK as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&self.capacity.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.id);
        bytes[40..56].copy_from_slice(&self.boot);
        bytes[56..64].copy_from_slice(&self.seed.to_le_bytes());
        bytes[64..80].copy_from_slice(&self.host);
        let check = xxh3_64(&bytes[..HEAD - 8]);
        bytes[HEAD - 8..HEAD].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is not one, or of an unknown format, or damaged.
    pub fn decode(bytes: &[u8; BLOCK]) -> Result<Self, FormatError> {
        if &bytes[..8] != MAGIC {
            return Err(FormatError::NotOurs);
        }
        if Words(bytes).le64(HEAD - 8) != xxh3_64(&bytes[..HEAD - 8]) {
            return Err(FormatError::Damaged);
        }
        let words = Words(bytes);
        let format = words.le32(8);
        if format != FORMAT {
            return Err(FormatError::Unknown(format));
        }
        if words.le32(12) as usize != BLOCK {
            return Err(FormatError::Damaged);
        }
        Ok(Self {
            capacity: words.le32(16),
            id: words.array(24),
            boot: words.array(40),
            seed: words.le64(56),
            host: words.array(64),
        })
    }

    /// Where its copies are.
    #[must_use]
    pub fn copies_at() -> [u64; COPIES] {
        [0, BLOCK as u64]
    }

    /// Reads the first of its copies that is not damaged.
    ///
    /// # Errors
    /// There is none; the error is that of a copy that is one of ours.
    pub fn decode_any(copies: [&[u8; BLOCK]; COPIES]) -> Result<Self, FormatError> {
        let [first, second] = copies.map(Self::decode);
        match (first, second) {
            (Ok(found), _) | (_, Ok(found)) => Ok(found),
            (Err(FormatError::NotOurs), Err(error)) | (Err(error), _) => Err(error),
        }
    }

    /// Where the intents begin.
    #[must_use]
    pub fn intents_at() -> u64 {
        INTENTS_AT
    }

    /// Where the copies of a volume's record are.
    #[must_use]
    pub fn volume_at(record: u16) -> [u64; COPIES] {
        let first = VOLUMES_AT + u64::from(record) * VOLUME as u64;
        [first, first + (VOLUMES * VOLUME) as u64]
    }

    /// Where the entry of a slot is.
    #[must_use]
    pub fn entry_at(slot: Slot) -> u64 {
        ENTRIES_AT + u64::from(slot) * ENTRY as u64
    }

    /// Where the second copy of the entry of a slot is; it has one while its block is dirty and
    /// durable.
    #[must_use]
    pub fn second_entry_at(&self, slot: Slot) -> u64 {
        Self::entry_at(slot) + entries_bytes(self.capacity)
    }

    /// Where the data of a slot are.
    #[must_use]
    pub fn data_at(&self, slot: Slot) -> u64 {
        data_at(self.capacity) + u64::from(slot) * BLOCK as u64
    }

    /// Bytes of the whole device.
    #[must_use]
    pub fn bytes(capacity: u32) -> u64 {
        data_at(capacity) + u64::from(capacity) * BLOCK as u64
    }
}

/// Where the data begin.
fn data_at(capacity: u32) -> u64 {
    ENTRIES_AT + COPIES as u64 * entries_bytes(capacity)
}

/// Bytes of one copy of all entries.
fn entries_bytes(capacity: u32) -> u64 {
    (u64::from(capacity) * ENTRY as u64).next_multiple_of(BLOCK as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUPERBLOCK: Superblock = Superblock {
        capacity: 1000,
        id: [7; 16],
        host: [8; 16],
        boot: [9; 16],
        seed: 3,
    };

    #[test]
    fn a_superblock_is_read_back_and_damage_is_seen() {
        let bytes = SUPERBLOCK.encode();
        assert_eq!(Ok(SUPERBLOCK), Superblock::decode(&bytes));
        for at in 0..HEAD {
            let mut torn = bytes;
            torn[at] ^= 1;
            assert!(Superblock::decode(&torn).is_err(), "byte {at}");
        }
        assert_eq!(Err(FormatError::NotOurs), Superblock::decode(&[0; BLOCK]));
    }

    #[test]
    fn either_copy_of_a_superblock_suffices() {
        let (good, blank) = (SUPERBLOCK.encode(), [0; BLOCK]);
        let mut damaged = good;
        damaged[20] ^= 1;
        for other in [&good, &damaged, &blank] {
            assert_eq!(Ok(SUPERBLOCK), Superblock::decode_any([&good, other]));
            assert_eq!(Ok(SUPERBLOCK), Superblock::decode_any([other, &good]));
        }
        let of = |first, second| Superblock::decode_any([first, second]);
        assert_eq!(Err(FormatError::Damaged), of(&damaged, &blank));
        assert_eq!(Err(FormatError::Damaged), of(&blank, &damaged));
        assert_eq!(Err(FormatError::NotOurs), of(&blank, &blank));
    }

    #[test]
    fn a_superblock_of_another_format_is_refused() {
        let mut bytes = SUPERBLOCK.encode();
        bytes[8] = 2;
        let check = xxh3_64(&bytes[..HEAD - 8]);
        bytes[HEAD - 8..HEAD].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Err(FormatError::Unknown(2)), Superblock::decode(&bytes));
    }

    #[test]
    fn areas_do_not_overlap() {
        let volume_at = Superblock::volume_at;
        assert!(INTENTS_AT + INTENTS as u64 <= volume_at(0)[0]);
        assert!(volume_at(VOLUMES as u16)[0] <= volume_at(0)[1]);
        assert!(volume_at(VOLUMES as u16)[1] <= Superblock::entry_at(0));
        assert!(Superblock::entry_at(1000) <= SUPERBLOCK.second_entry_at(0));
        assert!(SUPERBLOCK.second_entry_at(1000) <= SUPERBLOCK.data_at(0));
        assert_eq!(0, SUPERBLOCK.data_at(0) % BLOCK as u64);
    }
}
