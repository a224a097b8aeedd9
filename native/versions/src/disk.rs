//! A disk as regions of blocks: what has to be read, and what its tables already tell.

use std::sync::atomic::{AtomicU64, Ordering};

use diffcache_core::source::{FileSource, ReadAt};
use diffcache_qcow2::compress::decompress;
use diffcache_qcow2::header::{Compression, Header};
use diffcache_qcow2::snapshots::{Disk, State};
use diffcache_qcow2::Cluster;

use crate::error::{Result, VersionsError};

/// Bytes that are read at a time, at most.
pub const PIECE: u64 = 1 << 20;

/// Where a region's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// All zero.
    Zero,
    /// The base image's.
    Base,
    /// At this offset of the file.
    At(u64),
    /// A compressed cluster at this offset, of at most this length.
    Compressed(u64, u64),
}

/// Successive bytes of a guest's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First byte, a multiple of the block size.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// Where they are.
    pub kept: Kept,
}

/// What is to be looked at of a disk.
pub struct View {
    file: FileSource,
    compression: Compression,
    cluster_size: u64,
    /// Bytes of the guest's disk.
    pub size: u64,
    /// Ascending, none longer than `PIECE` if it has to be read. What no region covers is as in the parent.
    pub regions: Vec<Region>,
    /// Bytes that were read of the disk so far.
    pub bytes_read: AtomicU64,
    /// All of the disk is looked at, not only what changed.
    whole: bool,
}

/// How a disk is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// As it is. What a guest writes to its beginning means nothing.
    Raw,
    /// With tables.
    Qcow2,
}

impl Format {
    /// The format that is told, or else the one that the file's beginning says: to be believed only of files that no guest wrote itself.
    ///
    /// # Errors
    /// `Source`.
    pub fn of(told: Option<Self>, file: &FileSource) -> Result<Self> {
        match told {
            Some(format) => Ok(format),
            None if Header::probe(file)? => Ok(Self::Qcow2),
            None => Ok(Self::Raw),
        }
    }
}

/// Which state of a disk is looked at.
#[derive(Debug, Clone, Default)]
pub struct Wanted<'a> {
    /// How the disk is kept; found out if nobody knows.
    pub format: Option<Format>,
    /// A qcow2 disk's internal snapshot; its present state if there is none.
    pub snapshot: Option<&'a str>,
    /// The snapshot that keeps the parent's state, with its fingerprint.
    pub parent: Option<(&'a str, &'a str)>,
    /// Blocks that a qcow2 disk does not have are the base image's.
    pub has_base: bool,
}

fn push(regions: &mut Vec<Region>, region: Region) {
    if let Some(last) = regions.last_mut() {
        let joined = last.start + last.len == region.start
            && match (last.kept, region.kept) {
                (Kept::Zero, Kept::Zero) | (Kept::Base, Kept::Base) => true,
                (Kept::At(a), Kept::At(b)) => a + last.len == b && last.len + region.len <= PIECE,
                _ => false,
            };
        if joined {
            last.len += region.len;
            return;
        }
    }
    regions.push(region);
}

impl View {
    /// Looks at the tables of a qcow2 disk, or at the holes of a raw one. Returns also whether the view is a delta: only what changed since
    /// the parent's snapshot. It is none if the snapshot is gone, or is another of the same name.
    ///
    /// # Errors
    /// `Source`, `Qcow2`; `Invalid` if the wanted snapshot does not exist, or clusters are smaller than blocks.
    pub fn open(file: FileSource, wanted: &Wanted<'_>, block_size: u32) -> Result<(Self, bool)> {
        if Format::of(wanted.format, &file)? == Format::Qcow2 {
            return Self::open_qcow2(file, wanted, block_size);
        }
        if wanted.snapshot.is_some() {
            return Err(VersionsError::Invalid(format!(
                "{} is raw: it has no snapshots",
                file.name()
            )));
        }
        let regions = raw_regions(&file, block_size)?;
        // Advice: that it is not taken costs time, nothing else.
        let _ = rustix::fs::fadvise(file.file(), 0, None, rustix::fs::Advice::Sequential);
        let view = Self {
            size: file.len(),
            file,
            compression: Compression::Zlib,
            cluster_size: PIECE,
            regions,
            bytes_read: AtomicU64::new(0),
            whole: true,
        };
        Ok((view, false))
    }

    fn open_qcow2(file: FileSource, wanted: &Wanted<'_>, block_size: u32) -> Result<(Self, bool)> {
        let disk = Disk::open(&file)?;
        if disk.header().cluster_size() < u64::from(block_size) {
            return Err(VersionsError::Invalid(format!(
                "{} has clusters of {} bytes, less than the store's blocks",
                file.name(),
                disk.header().cluster_size()
            )));
        }
        let snapshot = match wanted.snapshot {
            None => None,
            Some(name) => Some(disk.snapshot(name).ok_or_else(|| {
                VersionsError::Invalid(format!("{} has no snapshot {name}", file.name()))
            })?),
        };
        let state = disk.state(snapshot)?;
        let parent = parent_state(&disk, wanted)?;
        let regions = qcow2_regions(&disk, &state, parent.as_ref(), wanted.has_base)?;
        let (size, delta) = (state.size, parent.is_some());
        let tables = disk.bytes_read();
        let (compression, cluster_size) = (disk.header().compression, disk.header().cluster_size());
        let view = Self {
            size,
            compression,
            cluster_size,
            regions,
            bytes_read: AtomicU64::new(tables),
            file,
            whole: !delta,
        };
        Ok((view, delta))
    }

    /// The file that is read.
    pub fn file(&self) -> &FileSource {
        &self.file
    }

    /// Bytes of the regions that have to be read.
    pub fn bytes_to_read(&self) -> u64 {
        let read = |region: &&Region| matches!(region.kept, Kept::At(_) | Kept::Compressed(..));
        self.regions
            .iter()
            .filter(read)
            .map(|region| region.len)
            .sum()
    }

    /// Reads a region into `out`, which has at least its bytes: zeroes follow the disk's end.
    ///
    /// # Errors
    /// `Source`; `Qcow2` if a compressed cluster is damaged.
    pub fn read(&self, region: &Region, out: &mut [u8]) -> Result<()> {
        match region.kept {
            Kept::Zero | Kept::Base => out.fill(0),
            Kept::At(offset) => {
                // A qcow2 file may end within its last cluster.
                let there = self.file.len().saturating_sub(offset).min(region.len) as usize;
                self.file.read_exact_at(&mut out[..there], offset)?;
                out[there..].fill(0);
                self.bytes_read.fetch_add(there as u64, Ordering::Relaxed);
            }
            Kept::Compressed(offset, len) => {
                let mut stream = vec![0; len as usize];
                self.file.read_exact_at(&mut stream, offset)?;
                self.bytes_read.fetch_add(len, Ordering::Relaxed);
                let mut cluster = vec![0; self.cluster_size as usize];
                decompress(self.compression, &stream, &mut cluster)?;
                let wanted = region.len as usize;
                out[..wanted].copy_from_slice(&cluster[..wanted]);
                out[wanted..].fill(0);
            }
        }
        Ok(())
    }

    /// Tells the system that a region's bytes will not be read again soon, if so much is read that others' would have to go for them.
    pub fn forget(&self, region: &Region) {
        if let (true, Kept::At(offset)) = (self.whole, region.kept) {
            let len = std::num::NonZeroU64::new(region.len);
            // Advice: that it is not taken costs memory, nothing else.
            let _ =
                rustix::fs::fadvise(self.file.file(), offset, len, rustix::fs::Advice::DontNeed);
        }
    }
}

/// The state of the snapshot that keeps the parent, if it is still that snapshot.
fn parent_state(disk: &Disk<'_>, wanted: &Wanted<'_>) -> Result<Option<State>> {
    let Some((name, fingerprint)) = wanted.parent else {
        return Ok(None);
    };
    match disk.snapshot(name) {
        Some(snapshot) if snapshot.fingerprint == fingerprint => {
            Ok(Some(disk.state(Some(snapshot))?))
        }
        _ => Ok(None),
    }
}

fn qcow2_regions(
    disk: &Disk<'_>,
    state: &State,
    parent: Option<&State>,
    has_base: bool,
) -> Result<Vec<Region>> {
    let absent = if has_base { Kept::Base } else { Kept::Zero };
    let (cluster, size) = (disk.header().cluster_size(), state.size);
    let mut regions = Vec::new();
    let mut at = 0;
    disk.changed(state, parent, &mut |index, place| {
        let start = index * cluster;
        if parent.is_none() && start > at {
            push(
                &mut regions,
                Region {
                    start: at,
                    len: start - at,
                    kept: absent,
                },
            );
        }
        let kept = match place {
            Cluster::Unallocated => absent,
            Cluster::Zero => Kept::Zero,
            Cluster::Plain(offset) => Kept::At(offset),
            Cluster::Compressed { offset, length } => Kept::Compressed(offset, length),
        };
        let len = cluster.min(size - start);
        push(&mut regions, Region { start, len, kept });
        at = start + len;
    })?;
    if parent.is_none() && at < size {
        let len = size - at;
        push(
            &mut regions,
            Region {
                start: at,
                len,
                kept: absent,
            },
        );
    }
    Ok(regions)
}

/// All of a raw disk; holes are zero.
fn raw_regions(file: &FileSource, block_size: u32) -> Result<Vec<Region>> {
    let (size, block) = (file.len(), u64::from(block_size));
    let mut regions = Vec::new();
    let mut at = 0;
    while at < size {
        let data = file.next_data(at)?;
        let (from, to) = data.map_or((size, size), |(from, to)| {
            let from = (from / block * block).max(at);
            (from, to.next_multiple_of(block).min(size))
        });
        if from > at {
            push(
                &mut regions,
                Region {
                    start: at,
                    len: from - at,
                    kept: Kept::Zero,
                },
            );
        }
        let mut start = from;
        while start < to {
            let len = PIECE.min(to - start);
            regions.push(Region {
                start,
                len,
                kept: Kept::At(start),
            });
            start += len;
        }
        at = to;
    }
    Ok(regions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn holes_of_a_raw_disk_are_zero_and_data_is_read_in_pieces() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8 << 20).unwrap();
        file.write_all_at(&[7; 100], 5 << 20).unwrap();
        let source = FileSource::from_file(file, "disk".to_owned()).unwrap();
        let (view, delta) = View::open(source, &Wanted::default(), 4096).unwrap();
        assert!(!delta);
        assert_eq!(
            view.regions.iter().map(|region| region.len).sum::<u64>(),
            8 << 20
        );
        assert!(view.bytes_to_read() >= 4096 && view.bytes_to_read() < 1 << 20);
        let data = view
            .regions
            .iter()
            .find(|region| region.kept == Kept::At(5 << 20))
            .unwrap();
        let mut out = vec![1; data.len as usize];
        view.read(data, &mut out).unwrap();
        assert_eq!(&out[..101], [[7; 100].as_slice(), &[0]].concat());
    }
}
