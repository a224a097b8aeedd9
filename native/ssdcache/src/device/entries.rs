//! Entries of slots: which block is in a slot, and the checksum of its data.

use diffcache_base::words::Words;
use diffcache_partitions::{Block, MAX_BLOCK};
use xxhash_rust::xxh3::xxh3_64_with_seed;

const VOLUME_SHIFT: u32 = 40;

const USED: u64 = 1 << 56;

const DIRTY: u64 = 1 << 57;

const DURABLE: u64 = 1 << 58;

const VERSION_SHIFT: u32 = 59;

/// Numbers of versions of a dirty block.
pub const VERSIONS: u8 = 32;

/// Bytes of an entry.
pub const ENTRY: usize = 16;

/// What a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number of the volume's record.
    pub record: u16,
    /// The block of the volume.
    pub block: Block,
    /// Checksum of its data.
    pub checksum: u32,
    /// Of a block that the origin lacks: its version.
    pub dirty: Option<DirtyVersion>,
}

/// A version of a block that the origin lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirtyVersion {
    /// Its number, less than [`VERSIONS`].
    pub number: u8,
    /// Whether its data were flushed before the entry was written.
    pub is_durable: bool,
}

impl DirtyVersion {
    /// Whether this version is to be used, and not another one of the same block.
    #[must_use]
    pub fn is_newer(&self, other: &Self) -> bool {
        let ahead = self.number.wrapping_sub(other.number) % VERSIONS;
        (1..VERSIONS / 2).contains(&ahead)
    }
}

/// The number of the record that the bytes of an entry name, if they say that it is dirty and
/// durable, whether or not they are damaged.
#[must_use]
pub fn looks_dirty(bytes: &[u8; ENTRY]) -> Option<u16> {
    let key = Words(bytes).le64(0);
    let all = USED | DIRTY | DURABLE;
    (key & all == all).then_some((key >> VOLUME_SHIFT) as u16)
}

impl Entry {
    /// Whether it is of a dirty block whose data were flushed before.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.dirty.is_some_and(|dirty| dirty.is_durable)
    }

    /// The number of the record that the bytes of an entry name, if they are one.
    #[must_use]
    pub fn record_of(bytes: &[u8; ENTRY]) -> Option<u16> {
        let key = Words(bytes).le64(0);
        (key & USED != 0).then_some((key >> VOLUME_SHIFT) as u16)
    }

    /// Its bytes, for an attachment; no entry is all zeroes.
    #[must_use]
    pub fn encode(&self, generation: u64) -> [u8; ENTRY] {
        let mut bytes = [0; ENTRY];
        let state = self.dirty.map_or(0, |dirty| {
            let durable = if dirty.is_durable { DURABLE } else { 0 };
            DIRTY | durable | u64::from(dirty.number % VERSIONS) << VERSION_SHIFT
        });
        let key = self.block | u64::from(self.record) << VOLUME_SHIFT | USED | state;
        bytes[..8].copy_from_slice(&key.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.checksum.to_le_bytes());
        let check = xxh3_64_with_seed(&bytes[..12], generation) as u32;
        bytes[12..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads it; `generation` is that of a record's attachment. `None`: the slot is empty.
    #[must_use]
    pub fn decode(bytes: &[u8; ENTRY], generation: impl Fn(u16) -> Option<u64>) -> Option<Self> {
        let key = Words(bytes).le64(0);
        if key & USED == 0 {
            return None;
        }
        let record = (key >> VOLUME_SHIFT) as u16;
        let check = Words(bytes).le32(12);
        if check != xxh3_64_with_seed(&bytes[..12], generation(record)?) as u32 {
            return None;
        }
        let dirty = (key & DIRTY != 0).then_some(DirtyVersion {
            number: (key >> VERSION_SHIFT) as u8,
            is_durable: key & DURABLE != 0,
        });
        Some(Self {
            record,
            block: key & MAX_BLOCK,
            checksum: Words(bytes).le32(8),
            dirty,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_of_versions_wrap() {
        let version = |number| DirtyVersion {
            number,
            is_durable: true,
        };
        for (old, new) in [(0, 1), (30, 31), (31, 0), (30, 1)] {
            assert!(version(new).is_newer(&version(old)), "{old} {new}");
            assert!(!version(old).is_newer(&version(new)), "{old} {new}");
        }
        assert!(!version(4).is_newer(&version(4)));
    }

    proptest! {
        #[test]
        fn an_entry_belongs_to_one_attachment_only(
            record: u16, block in 0..=MAX_BLOCK, checksum: u32, generation: u64, other: u64,
            flipped in 0..ENTRY * 8, dirty in proptest::option::of((0..VERSIONS, any::<bool>())),
        ) {
            let dirty = dirty.map(|(number, is_durable)| DirtyVersion { number, is_durable });
            let entry = Entry { record, block, checksum, dirty };
            let bytes = entry.encode(generation);
            prop_assert_eq!(Some(entry), Entry::decode(&bytes, |_| Some(generation)));
            prop_assert_eq!(
                dirty.filter(|d| d.is_durable).map(|_| record),
                looks_dirty(&bytes)
            );
            prop_assert_eq!(None, Entry::decode(&bytes, |_| None));
            if other != generation {
                prop_assert_eq!(None, Entry::decode(&bytes, |_| Some(other)));
            }
            let mut torn = bytes;
            torn[flipped / 8] ^= 1 << (flipped % 8);
            prop_assert_eq!(None, Entry::decode(&torn, |_| Some(generation)));
        }
    }
}
