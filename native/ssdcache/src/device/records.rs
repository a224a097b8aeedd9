//! Records of volumes: what is attached, and how.

use diffcache_base::words::Words;
use xxhash_rust::xxh3::xxh3_64;

use crate::rates::{Rates, PACKED};

/// Copies of a volume's record.
pub const COPIES: usize = 2;
/// Bytes of one copy of a volume's record.
pub const VOLUME: usize = 1024;

/// Bytes of a volume's name.
pub const MAX_NAME: usize = 255;

/// Bytes of the path of an origin.
pub const MAX_ORIGIN: usize = 640;

/// Where the settings of an attachment begin in a volume's record, and where the path of its
/// origin does.
const KEPT_AT: usize = 304;
const ORIGIN_AT: usize = KEPT_AT + 16;
const LEAVING_AT: usize = 300;
const ADMISSION_AT: usize = ORIGIN_AT + MAX_ORIGIN;
const RATES_AT: usize = ADMISSION_AT + 1;
const SEQUENCE_AT: usize = VOLUME - 16;
/// The origin of a record that is damaged.
pub const UNKNOWN_ORIGIN: u64 = 0;
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
    /// What it may do per second.
    pub rates: Rates,
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
        bytes[RATES_AT..RATES_AT + PACKED].copy_from_slice(&self.rates.pack());
    }

    fn decode(bytes: &[u8; VOLUME]) -> Option<Self> {
        let words = Words(bytes);
        let length = usize::from(words.le16(KEPT_AT + 2));
        if bytes[KEPT_AT] != KEPT || length > MAX_ORIGIN {
            return None;
        }
        Some(Self {
            origin: String::from_utf8(bytes[ORIGIN_AT..ORIGIN_AT + length].to_vec()).ok()?,
            mode: bytes[KEPT_AT + 1],
            limit: words.le32(KEPT_AT + 4),
            sequential: words.le64(KEPT_AT + 8),
            admission: bytes[ADMISSION_AT],
            rates: Rates::unpack(&words.array(RATES_AT)),
        })
    }
}

/// What of a volume has begun to leave the device. It counts from then on; a start finishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Leaving {
    /// Nothing.
    Nothing,
    /// Its blocks, dirty or not.
    Blocks,
    /// The volume with its blocks: it was detached.
    Volume,
}

impl Leaving {
    const ALL: [Self; 3] = [Self::Nothing, Self::Blocks, Self::Volume];
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
    /// What of it leaves.
    pub leaving: Leaving,
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
        let words = Words(bytes);
        if words.le64(VOLUME - 8) != xxh3_64(&bytes[..VOLUME - 8]) {
            return None;
        }
        Some(Self {
            sequence: words.le64(SEQUENCE_AT),
            volume: VolumeRecord::decode(bytes)?,
        })
    }

    /// The newer one of the copies that are not damaged, and which one that is.
    #[must_use]
    pub fn newest(copies: [&[u8; VOLUME]; COPIES]) -> Option<(usize, Self)> {
        let copies = copies.into_iter().map(Self::decode).enumerate();
        let whole = copies.filter_map(|(n, copy)| Some((n, copy?)));
        whole.max_by_key(|(_, copy)| copy.sequence)
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
            origin: UNKNOWN_ORIGIN,
            name: format!("damaged-{record}"),
            kept: None,
            leaving: Leaving::Nothing,
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
        bytes[LEAVING_AT] = self.leaving as u8;
        if let Some(kept) = &self.kept {
            kept.encode(bytes);
        }
    }

    /// The record, or none of a volume that was detached; `None` if it cannot be one.
    #[allow(clippy::option_option)]
    fn decode(bytes: &[u8; VOLUME]) -> Option<Option<Self>> {
        let words = Words(bytes);
        let length = usize::from(words.le16(40));
        if length == 0 {
            return Some(None);
        }
        if length > MAX_NAME {
            return None;
        }
        Some(Some(Self {
            generation: words.le64(0),
            export: words.array(8),
            size: words.le64(24),
            origin: words.le64(32),
            name: String::from_utf8(bytes[42..42 + length].to_vec()).ok()?,
            kept: Kept::decode(bytes),
            leaving: *Leaving::ALL.get(usize::from(bytes[LEAVING_AT]))?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rates::COUNT;

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
                rates: Rates::new([u64::MAX; COUNT]),
            }),
            leaving: Leaving::Volume,
        };
        let copy = |sequence, volume: Option<&VolumeRecord>| RecordCopy {
            sequence,
            volume: volume.cloned(),
        };
        let plain = VolumeRecord {
            kept: None,
            leaving: Leaving::Blocks,
            ..volume.clone()
        };
        for of in [Some(&volume), Some(&plain), None] {
            let (first, second) = (copy(8, of).encode(), copy(9, Some(&plain)).encode());
            assert_eq!(Some(copy(8, of)), RecordCopy::decode(&first));
            for at in 0..VOLUME {
                let mut torn = first;
                torn[at] ^= 1;
                assert_eq!(None, RecordCopy::decode(&torn), "byte {at}");
                let found = RecordCopy::newest([&torn, &second]);
                assert_eq!(Some((1, copy(9, Some(&plain)))), found);
                assert_eq!(Some((0, copy(8, of))), RecordCopy::newest([&first, &torn]));
                assert_eq!(None, RecordCopy::newest([&torn, &torn]));
            }
            let newer = copy(9, Some(&plain));
            assert_eq!(
                Some((0, newer.clone())),
                RecordCopy::newest([&second, &first])
            );
            assert_eq!(Some((1, newer)), RecordCopy::newest([&first, &second]));
        }
        assert_eq!(Some(copy(0, None)), RecordCopy::decode(&[0; VOLUME]));
    }
}
