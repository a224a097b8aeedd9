//! The bytes of a cache device; `doc/source/reference/ssd-cache-format.rst` describes them.
//!
//! All numbers are little-endian. Superblock, volumes and entries end with a checksum of their
//! other bytes, and each is there twice, entries of dirty blocks among them: damage of one copy, or
//! a write that a power cut interrupts, leaves the other.

use thiserror::Error;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use diffcache_partitions::Block;
use diffcache_partitions::{Slot, MAX_BLOCK};

/// Bytes of a block, of the cache and of volumes.
pub const BLOCK: usize = 4096;
/// Bytes of an entry.
pub const ENTRY: usize = 16;
/// Bytes of one copy of a volume's record.
pub const VOLUME: usize = 1024;
/// Copies of a volume's record.
pub const COPIES: usize = 2;
/// Volumes of a device.
pub const VOLUMES: usize = 1024;
/// Bytes of the intents: a bit for each of a million groups of regions.
pub const INTENTS: usize = 1 << 17;
/// Bytes of a volume's name.
pub const MAX_NAME: usize = 255;
/// Bytes of the path of an origin.
pub const MAX_ORIGIN: usize = 640;

const MAGIC: &[u8; 8] = b"DCSSDDEV";
const VERSION: u32 = 1;
/// Bytes of the superblock that its checksum is of: a sector, which is written whole or not.
const HEAD: usize = 512;
const INTENTS_AT: u64 = 2 * BLOCK as u64;
const VOLUMES_AT: u64 = INTENTS_AT + INTENTS as u64;
const ENTRIES_AT: u64 = VOLUMES_AT + (COPIES * VOLUMES * VOLUME) as u64;
const VOLUME_SHIFT: u32 = 40;
const USED: u64 = 1 << 56;
const DIRTY: u64 = 1 << 57;
const DURABLE: u64 = 1 << 58;
const VERSION_SHIFT: u32 = 59;
/// Numbers of versions of a dirty block.
pub const VERSIONS: u8 = 32;

/// Why a device cannot be used as it is.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum FormatError {
    /// It is no cache device
    #[error("not a cache device; --format makes it one, and erases what is on it")]
    NotOurs,
    /// Its format is another version
    #[error("format version {0} is not known, but 1; use the release that wrote it")]
    Version(u32),
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
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
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
    /// It is not one, or not of a known version, or damaged.
    pub fn decode(bytes: &[u8; BLOCK]) -> Result<Self, FormatError> {
        if &bytes[..8] != MAGIC {
            return Err(FormatError::NotOurs);
        }
        let check = u64::from_le_bytes(array(&bytes[HEAD - 8..HEAD]));
        if check != xxh3_64(&bytes[..HEAD - 8]) {
            return Err(FormatError::Damaged);
        }
        let version = u32::from_le_bytes(array(&bytes[8..12]));
        if version != VERSION {
            return Err(FormatError::Version(version));
        }
        let block = u32::from_le_bytes(array(&bytes[12..16]));
        if block as usize != BLOCK {
            return Err(FormatError::Damaged);
        }
        Ok(Self {
            capacity: u32::from_le_bytes(array(&bytes[16..20])),
            id: array(&bytes[24..40]),
            boot: array(&bytes[40..56]),
            seed: u64::from_le_bytes(array(&bytes[56..64])),
            host: array(&bytes[64..80]),
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

/// Where the settings of an attachment begin in a volume's record, and where the path of its
/// origin does.
const KEPT_AT: usize = 304;
const ORIGIN_AT: usize = KEPT_AT + 16;
const ADMISSION_AT: usize = ORIGIN_AT + MAX_ORIGIN;
const SEQUENCE_AT: usize = VOLUME - 16;
/// Marks settings; records without them have zeroes there.
const KEPT: u8 = 1;

/// Settings of an attachment that stays until it is detached, without being named at a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Path of its origin.
    pub origin: String,
    /// Number of its mode.
    pub mode: u8,
    /// The most blocks that it has.
    pub limit: u32,
    /// Requests pass the cache by after this many bytes in sequence; 0: never.
    pub sequential: u64,
    /// A block is cached at this reference to it; 0: at that of all volumes.
    pub admission: u8,
}

impl Kept {
    fn encode(&self, bytes: &mut [u8; VOLUME]) {
        let origin = &self.origin.as_bytes()[..self.origin.len().min(MAX_ORIGIN)];
        bytes[KEPT_AT] = KEPT;
        bytes[KEPT_AT + 1] = self.mode;
        bytes[KEPT_AT + 2..KEPT_AT + 4].copy_from_slice(&(origin.len() as u16).to_le_bytes());
        bytes[KEPT_AT + 4..KEPT_AT + 8].copy_from_slice(&self.limit.to_le_bytes());
        bytes[KEPT_AT + 8..ORIGIN_AT].copy_from_slice(&self.sequential.to_le_bytes());
        bytes[ORIGIN_AT..ORIGIN_AT + origin.len()].copy_from_slice(origin);
        bytes[ADMISSION_AT] = self.admission;
    }

    fn decode(bytes: &[u8; VOLUME]) -> Option<Self> {
        let at = |from: usize, to: usize| &bytes[KEPT_AT + from..KEPT_AT + to];
        let length = usize::from(u16::from_le_bytes(array(at(2, 4))));
        if bytes[KEPT_AT] != KEPT || length > MAX_ORIGIN {
            return None;
        }
        Some(Self {
            origin: String::from_utf8(bytes[ORIGIN_AT..ORIGIN_AT + length].to_vec()).ok()?,
            mode: bytes[KEPT_AT + 1],
            limit: u32::from_le_bytes(array(at(4, 8))),
            sequential: u64::from_le_bytes(array(at(8, 16))),
            admission: bytes[ADMISSION_AT],
        })
    }
}

/// A volume's record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Random number of this attachment: entries of others are not its.
    pub generation: u64,
    /// Random name of its export.
    pub export: [u8; 16],
    /// Its size in bytes when it was attached.
    pub size: u64,
    /// What its origin was: see [`origin_id`](crate::cache::origin_id).
    pub origin: u64,
    /// Its name.
    pub name: String,
    /// Settings, of an attachment that stays until it is detached.
    pub kept: Option<Kept>,
}

/// One copy of the record of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordCopy {
    /// The copy with the higher number is newer.
    pub sequence: u64,
    /// The record; none if its volume was detached.
    pub volume: Option<VolumeRecord>,
}

impl RecordCopy {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; VOLUME] {
        let mut bytes = [0; VOLUME];
        if let Some(volume) = &self.volume {
            volume.encode(&mut bytes);
        }
        bytes[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&self.sequence.to_le_bytes());
        let check = xxh3_64(&bytes[..VOLUME - 8]);
        bytes[VOLUME - 8..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Reads it; `None` if it is damaged. Zeroes are a record that was never used.
    #[must_use]
    pub fn decode(bytes: &[u8; VOLUME]) -> Option<Self> {
        if *bytes == [0; VOLUME] {
            return Some(Self {
                sequence: 0,
                volume: None,
            });
        }
        let check = u64::from_le_bytes(array(&bytes[VOLUME - 8..]));
        if check != xxh3_64(&bytes[..VOLUME - 8]) {
            return None;
        }
        Some(Self {
            sequence: u64::from_le_bytes(array(&bytes[SEQUENCE_AT..SEQUENCE_AT + 8])),
            volume: VolumeRecord::decode(bytes)?,
        })
    }

    /// The newer one of the copies that are not damaged.
    #[must_use]
    pub fn newest(copies: [&[u8; VOLUME]; COPIES]) -> Option<Self> {
        let copies = copies.into_iter().filter_map(Self::decode);
        copies.max_by_key(|copy| copy.sequence)
    }
}

impl VolumeRecord {
    /// Stands for a record both copies of which are damaged: no entry is of its attachment.
    #[must_use]
    pub fn damaged(record: u16) -> Self {
        Self {
            generation: 0,
            export: [0; 16],
            size: 0,
            origin: 0,
            name: format!("damaged-{record}"),
            kept: None,
        }
    }

    fn encode(&self, bytes: &mut [u8; VOLUME]) {
        let name = &self.name.as_bytes()[..self.name.len().min(MAX_NAME)];
        bytes[..8].copy_from_slice(&self.generation.to_le_bytes());
        bytes[8..24].copy_from_slice(&self.export);
        bytes[24..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.origin.to_le_bytes());
        bytes[40..42].copy_from_slice(&(name.len() as u16).to_le_bytes());
        bytes[42..42 + name.len()].copy_from_slice(name);
        if let Some(kept) = &self.kept {
            kept.encode(bytes);
        }
    }

    /// The record, or none of a volume that was detached; `None` if it cannot be one.
    #[allow(clippy::option_option)]
    fn decode(bytes: &[u8; VOLUME]) -> Option<Option<Self>> {
        let length = usize::from(u16::from_le_bytes(array(&bytes[40..42])));
        if length == 0 {
            return Some(None);
        }
        if length > MAX_NAME {
            return None;
        }
        Some(Some(Self {
            generation: u64::from_le_bytes(array(&bytes[..8])),
            export: array(&bytes[8..24]),
            size: u64::from_le_bytes(array(&bytes[24..32])),
            origin: u64::from_le_bytes(array(&bytes[32..40])),
            name: String::from_utf8(bytes[42..42 + length].to_vec()).ok()?,
            kept: Kept::decode(bytes),
        }))
    }
}

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
    let key = u64::from_le_bytes(array(&bytes[..8]));
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
        let key = u64::from_le_bytes(array(&bytes[..8]));
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
        let key = u64::from_le_bytes(array(&bytes[..8]));
        if key & USED == 0 {
            return None;
        }
        let record = (key >> VOLUME_SHIFT) as u16;
        let check = u32::from_le_bytes(array(&bytes[12..]));
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
            checksum: u32::from_le_bytes(array(&bytes[8..12])),
            dirty,
        })
    }
}

pub(super) fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn a_superblock_of_another_version_is_refused() {
        let mut bytes = SUPERBLOCK.encode();
        bytes[8] = 3;
        let check = xxh3_64(&bytes[..HEAD - 8]);
        bytes[HEAD - 8..HEAD].copy_from_slice(&check.to_le_bytes());
        assert_eq!(Err(FormatError::Version(3)), Superblock::decode(&bytes));
    }

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

    #[test]
    fn a_volume_is_read_back_and_damage_is_seen() {
        let volume = VolumeRecord {
            generation: 5,
            export: [1; 16],
            size: 1 << 30,
            origin: 77,
            name: "n".repeat(MAX_NAME),
            kept: Some(Kept {
                origin: "o".repeat(MAX_ORIGIN),
                mode: 3,
                limit: u32::MAX,
                sequential: u64::MAX,
                admission: 15,
            }),
        };
        let copy = |sequence, volume: Option<&VolumeRecord>| RecordCopy {
            sequence,
            volume: volume.cloned(),
        };
        let plain = VolumeRecord {
            kept: None,
            ..volume.clone()
        };
        for of in [Some(&volume), Some(&plain), None] {
            let (first, second) = (copy(8, of).encode(), copy(9, Some(&plain)).encode());
            assert_eq!(Some(copy(8, of)), RecordCopy::decode(&first));
            for at in 0..VOLUME {
                let mut torn = first;
                torn[at] ^= 1;
                assert_eq!(None, RecordCopy::decode(&torn), "byte {at}");
                let found = RecordCopy::newest([&torn, &second]).unwrap();
                assert_eq!(copy(9, Some(&plain)), found);
                assert_eq!(Some(copy(8, of)), RecordCopy::newest([&first, &torn]));
                assert_eq!(None, RecordCopy::newest([&torn, &torn]));
            }
            assert_eq!(
                RecordCopy::newest([&second, &first]),
                RecordCopy::newest([&first, &second])
            );
            assert_eq!(9, RecordCopy::newest([&first, &second]).unwrap().sequence);
        }
        assert_eq!(Some(copy(0, None)), RecordCopy::decode(&[0; VOLUME]));
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
