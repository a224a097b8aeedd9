//! Which file each byte of an image belongs to.

use super::contents::{Budget, Contents, Entry, Extent, Kind, Laid, BUDGET, TOO_MUCH};
use super::{ext4, free_space, partitions, refuse, Range, Refusal, Volume};
use diffcache_core::source::{ReadAt, SourceError};

/// The files of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileMap {
    /// Files and other uses.
    pub entries: Vec<Entry>,
    /// All bytes of the image in order, each in one extent.
    pub extents: Vec<Extent>,
}

/// Returns which file each byte of an image belongs to. The contents of files are not read.
///
/// Files of ext2, ext3 and ext4 are found. What cannot be understood is `Unknown`, for a filesystem as a whole, and so is a
/// filesystem with which the image would have more than 2^20 files or 2^20 extents.
///
/// # Errors
/// Only those of reading the image.
pub fn map_files(image: &dyn ReadAt) -> Result<FileMap, SourceError> {
    map_within(image, BUDGET)
}

fn map_within(image: &dyn ReadAt, mut budget: Budget) -> Result<FileMap, SourceError> {
    let mut map = FileMap::default();
    let mut at = 0;
    for (start, end) in partitions::find(image)? {
        map.fill(at, start, nameless(Kind::Unpartitioned, 0));
        let volume = Volume {
            image,
            start,
            size: end - start,
        };
        match read_volume(&volume, &mut budget) {
            Ok(laid) => map.add(laid),
            Err(Refusal::Reason(reason)) => map.fill(start, end, unknown(start, reason)),
            Err(Refusal::Source(error)) => return Err(error),
        }
        at = end;
    }
    map.fill(at, image.len(), nameless(Kind::Unpartitioned, 0));
    Ok(map)
}

/// What has neither path nor size.
fn nameless(kind: Kind, partition: u64) -> Entry {
    Entry {
        kind,
        partition,
        path: String::new(),
        size: 0,
        reason: String::new(),
    }
}

fn unknown(partition: u64, reason: String) -> Entry {
    Entry {
        reason,
        ..nameless(Kind::Unknown, partition)
    }
}

fn read_volume(volume: &Volume<'_>, budget: &mut Budget) -> Result<Laid, Refusal> {
    let Some((kind, free)) = free_space(volume)? else {
        return refuse("it has no filesystem of a known kind");
    };
    let free = free.map_err(Refusal::Reason)?;
    let contents = match kind {
        "ext4" => ext4::files(volume, *budget)?,
        _ => Contents {
            found: Vec::new(),
            end: 0,
        },
    };
    let pieces = contents.found.iter().map(|found| found.pieces.len());
    // Before memory is taken for them; what is between them comes on top.
    if pieces.sum::<usize>() + free.len() > budget.extents {
        return refuse(TOO_MUCH);
    }
    let laid = lay(volume, contents, &free, kind)?;
    budget.take(&laid)?;
    Ok(laid)
}

/// Puts everything in the order of its bytes; refuses what overlaps.
fn lay(
    volume: &Volume<'_>,
    contents: Contents,
    free: &[Range],
    kind: &str,
) -> Result<Laid, Refusal> {
    let mut entries = Vec::with_capacity(contents.found.len() + 3);
    let mut extents = Vec::new();
    for found in contents.found {
        let entry = entries.len() as u32;
        extents.extend(found.pieces.iter().map(|piece| Extent {
            start: volume.start + piece.start,
            end: volume.start + piece.end,
            entry,
            position: piece.position,
        }));
        entries.push(Entry {
            path: found.path,
            size: found.size,
            ..nameless(found.kind, volume.start)
        });
    }
    let spare = entries.len() as u32;
    let rest = spare + 1;
    entries.push(nameless(Kind::Free, volume.start));
    entries.push(nameless(Kind::Metadata, volume.start));
    entries.push(unknown(
        volume.start,
        match kind {
            "ext4" => "it is behind the end of the filesystem".to_owned(),
            _ => format!("files of {kind} are not read"),
        },
    ));
    extents.extend(free.iter().map(|&(start, end)| Extent {
        start,
        end,
        entry: spare,
        position: start - volume.start,
    }));
    extents.sort_unstable_by_key(|extent| extent.start);
    let mut laid = Laid {
        extents: Vec::with_capacity(2 * extents.len() + 2),
        entries,
    };
    let end = volume.start + contents.end;
    let mut at = volume.start;
    for extent in extents {
        if extent.start < at {
            return refuse("two files are stored in the same place, or one in free space");
        }
        if extent.end > volume.start + volume.size {
            return refuse("a table of inodes is outside of the partition");
        }
        laid.gap(at..extent.start, end, volume.start, rest);
        at = extent.end;
        laid.extents.push(extent);
    }
    laid.gap(at..volume.start + volume.size, end, volume.start, rest);
    Ok(laid)
}

impl FileMap {
    fn fill(&mut self, start: u64, end: u64, entry: Entry) {
        if start < end {
            self.extents.push(Extent {
                start,
                end,
                entry: self.entries.len() as u32,
                position: start - entry.partition,
            });
            self.entries.push(entry);
        }
    }

    fn add(&mut self, laid: Laid) {
        let before = self.entries.len() as u32;
        self.entries.extend(laid.entries);
        self.extents
            .extend(laid.extents.into_iter().map(|extent| Extent {
                entry: extent.entry + before,
                ..extent
            }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image of two partitions with the same files.
    fn two_partitions() -> Vec<u8> {
        let packed = include_bytes!("../tests/data/ext2-files.raw.zst");
        let volume = zstd::decode_all(&packed[..]).unwrap();
        let mut image = vec![0; 1 << 20];
        for number in 0..2 {
            let row = &mut image[446 + 16 * number..][..16];
            let start = (1 << 20) + number * volume.len();
            row[4] = 0x83;
            row[8..12].copy_from_slice(&(start as u32 / 512).to_le_bytes());
            row[12..].copy_from_slice(&(volume.len() as u32 / 512).to_le_bytes());
        }
        image[510..512].copy_from_slice(&[0x55, 0xaa]);
        image.extend(volume.repeat(2));
        image
    }

    /// Why filesystems of an image are left out.
    fn reasons(image: &[u8], budget: Budget) -> Vec<String> {
        let map = map_within(&image.to_vec(), budget).unwrap();
        assert_eq!(map.extents.last().unwrap().end, image.len() as u64);
        let reasons = map.entries.into_iter().map(|entry| entry.reason);
        reasons
            .filter(|reason| !reason.is_empty() && !reason.contains("behind the end"))
            .collect()
    }

    #[test]
    fn filesystems_that_are_too_much_for_an_image_are_unknown() {
        let image = two_partitions();
        let all = map_files(&image).unwrap();
        let paths: usize = all.entries.iter().map(|entry| entry.path.len()).sum();
        assert!(reasons(&image, BUDGET).is_empty());
        for budget in [
            Budget {
                entries: all.entries.len() * 3 / 4,
                ..BUDGET
            },
            Budget {
                path_bytes: paths * 3 / 4,
                ..BUDGET
            },
            Budget {
                extents: all.extents.len() * 3 / 4,
                ..BUDGET
            },
        ] {
            assert_eq!(reasons(&image, budget).len(), 1, "{budget:?}");
        }
        let none = Budget {
            extents: 5,
            ..BUDGET
        };
        assert_eq!(reasons(&image, none), [TOO_MUCH, TOO_MUCH]);
    }
}
