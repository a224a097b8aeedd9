//! What the guest's filesystems mark free, and where they store their files.
//!
//! A guest that deletes a file leaves its blocks behind. They are *stale*: never read, and yet a patch that re-creates the image byte for byte has
//! to carry them. [`survey`] finds the filesystems of an image, through its partition table, and reads from each which of its blocks are free; [`trim`] makes
//! an image of the same guest in which they are zero. [`map_files`] finds the file that each byte belongs to, and [`ArrivingFiles`] does so as far as the
//! image is here.
//!
//! The image is its author's input. Everything is checked before it is used: what contradicts itself, is not clean, or has a feature that is not known here
//! counts as used wholly. Reading never leaves the image, takes memory by the limits below, and ends.

mod arriving;
mod blocks;
mod contents;
mod ext4;
mod files;
mod partitions;
mod signatures;
mod trim;
mod xfs;

use diffcache_core::source::{ReadAt, SourceError};

pub use arriving::{ArrivingFiles, Noted};
pub use blocks::FilePiece;
pub use contents::{Entry, Extent, Kind};
pub use files::{map_files, FileMap};
pub use trim::{trim, TrimError, TrimStats};

/// Most ranges of free space of an image: 64 MiB. A filesystem that has more counts as used.
const MAX_RANGES: usize = 1 << 22;

/// Start and end in bytes.
pub type Range = (u64, u64);

/// A filesystem that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    /// `ext4` (also for ext2 and ext3), `xfs`.
    pub kind: &'static str,
    /// Where its partition starts, in bytes.
    pub offset: u64,
    /// Bytes of its partition.
    pub size: u64,
    /// Bytes that it marks free, or why that is not known.
    pub free: Result<u64, String>,
}

/// What was found in an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The filesystems, in order.
    pub filesystems: Vec<Filesystem>,
    /// What they mark free, in order, without overlaps.
    pub free: Vec<Range>,
}

impl Survey {
    /// Returns whether any filesystem says what is free.
    pub fn is_known(&self) -> bool {
        self.filesystems.iter().any(|found| found.free.is_ok())
    }

    /// Returns what is marked free; none if no filesystem says it.
    pub fn known_free(&self) -> Option<&[Range]> {
        self.is_known().then_some(&self.free)
    }

    /// Returns the part of the free space in `start..end`.
    pub fn free_within(&self, start: u64, end: u64) -> impl Iterator<Item = Range> + '_ {
        let first = self.free.partition_point(|(_, to)| *to <= start);
        self.free[first..]
            .iter()
            .take_while(move |(from, _)| *from < end)
            .map(move |(from, to)| ((*from).max(start), (*to).min(end)))
    }
}

/// Why a filesystem is left alone, or that the image could not be read.
enum Refusal {
    /// The image could not be read.
    Source(SourceError),
    /// What it contradicts or lacks.
    Reason(String),
}

impl From<SourceError> for Refusal {
    fn from(error: SourceError) -> Refusal {
        Refusal::Source(error)
    }
}

fn refuse<T>(reason: &str) -> Result<T, Refusal> {
    Err(Refusal::Reason(reason.to_owned()))
}

/// A partition, or an image without partitions.
#[derive(Clone, Copy)]
struct Volume<'a> {
    image: &'a dyn ReadAt,
    start: u64,
    size: u64,
}

impl Volume<'_> {
    /// Returns the bytes from `offset` on; refuses what is not inside.
    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = vec![0; len];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    fn read_into(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Refusal> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return refuse("a structure is outside of the partition");
        }
        Ok(self.image.read_exact_at(bytes, self.start + offset)?)
    }
}

/// Collects ranges of a volume in order.
struct Collector {
    start: u64,
    size: u64,
    ranges: Vec<Range>,
}

impl Collector {
    fn new(volume: &Volume<'_>) -> Collector {
        Collector {
            start: volume.start,
            size: volume.size,
            ranges: Vec::new(),
        }
    }

    /// Adds bytes of the volume; they follow those before.
    fn add(&mut self, from: u64, to: u64) -> Result<(), Refusal> {
        if from >= to {
            return Ok(());
        }
        if to > self.size {
            return refuse("free space is outside of the partition");
        }
        let (from, to) = (self.start + from, self.start + to);
        match self.ranges.last_mut() {
            Some(last) if last.1 > from => return refuse("free space is out of order"),
            Some(last) if last.1 == from => last.1 = to,
            _ => self.ranges.push((from, to)),
        }
        match self.ranges.len() > MAX_RANGES {
            true => refuse("the free space is in too many pieces"),
            false => Ok(()),
        }
    }
}

/// CRC-32C (RFC 3720, appendix B.4) from a register, without inversion before or after.
fn crc32c(register: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!register, bytes)
}

/// Finds the filesystems of an image and what they mark free.
///
/// # Errors
/// Only those of reading the image. What cannot be understood is no error: it counts as used.
pub fn survey(image: &dyn ReadAt) -> Result<Survey, SourceError> {
    let mut survey = Survey::default();
    let partitions = partitions::find(image)?;
    let all = Volume {
        image,
        start: 0,
        size: image.len(),
    };
    let beside = match partitions.as_slice() {
        [] | [(0, _)] => None,
        _ => signatures::beside_partitions(&all)?,
    };
    for (start, end) in partitions {
        let volume = Volume {
            image,
            start,
            size: end - start,
        };
        let Some((kind, ranges)) = free_space(&volume)? else {
            continue;
        };
        let ranges = match beside {
            Some(other) => Err(format!("the disk has partitions, and {}", not_alone(other))),
            None => ranges,
        };
        let free = ranges.map(|ranges| {
            let free = ranges.iter().map(|(from, to)| to - from).sum();
            survey.free.extend(ranges);
            free
        });
        survey.filesystems.push(Filesystem {
            kind,
            offset: start,
            size: end - start,
            free,
        });
    }
    survey.free.sort_unstable();
    Ok(survey)
}

fn not_alone(other: &str) -> String {
    format!("it has the signature of another filesystem or volume, too ({other})")
}

/// A filesystem's kind, and what is free in it or why that is not known.
type FreeSpace = (&'static str, Result<Vec<Range>, String>);

/// Reads the free space of a volume's filesystem, if it has one of a known kind.
fn free_space(volume: &Volume<'_>) -> Result<Option<FreeSpace>, SourceError> {
    let kind = match (ext4::recognises(volume)?, xfs::recognises(volume)?) {
        (false, false) => return Ok(None),
        (true, _) => "ext4",
        (false, true) => "xfs",
    };
    if let Some(other) = signatures::other(volume, kind)? {
        return Ok(Some((kind, Err(not_alone(other)))));
    }
    let ranges = match kind {
        "ext4" => ext4::free(volume),
        _ => xfs::free(volume),
    };
    match ranges {
        Ok(ranges) => Ok(Some((kind, Ok(ranges)))),
        Err(Refusal::Reason(reason)) => Ok(Some((kind, Err(reason)))),
        Err(Refusal::Source(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_of_the_standard() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn an_image_of_nothing_has_nothing() {
        for image in [vec![], vec![0; 511], vec![0; 5 << 20]] {
            assert_eq!(survey(&image).unwrap(), Survey::default());
        }
    }
}
