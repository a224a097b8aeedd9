//! A disk as regions of blocks: what has to be read, and what is known from its tables.

use std::path::{Path, PathBuf};

use diffcache_core::source::{FileSource, ReadAt};
use diffcache_qcow2::compress::decompress;
use diffcache_qcow2::header::{Compression, Header};
use diffcache_qcow2::snapshots::{Disk, State};
use diffcache_qcow2::Cluster;

use crate::error::{Result, VersionsError};
use crate::save::export::Export;

/// Bytes that are read at a time, at most.
pub const PIECE: u64 = 1 << 20;

/// Where a region's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
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
    pub location: Location,
}

/// What a disk is read from.
enum Source {
    File(FileSource),
    Export(Export),
}

impl Source {
    fn bytes(&self) -> &dyn ReadAt {
        match self {
            Self::File(file) => file,
            Self::Export(export) => export,
        }
    }
}

/// The regions of a disk that are compared with a version.
pub struct View {
    source: Source,
    compression: Compression,
    cluster_size: u64,
    /// Bytes of the guest's disk.
    pub size: u64,
    /// Ascending, none longer than `PIECE` if it has to be read. What no region covers is as in the parent.
    pub regions: Vec<Region>,
    /// Bytes that its tables have, which were read.
    pub tables: u64,
    /// All of the disk is covered, not only what changed.
    whole: bool,
}

/// The format of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Without tables, whatever a guest writes to its first bytes.
    Raw,
    /// With tables.
    Qcow2,
}

impl Format {
    /// Returns the given format, or else the one detected by the first bytes.
    ///
    /// The guest of a raw disk may have written these: only a qcow2 header that names no other file is accepted as one.
    ///
    /// # Errors
    /// `Source`; `Qcow2` and `Invalid` if the format is not given, and a header names other files or is refused for another reason.
    pub fn of(given: Option<Self>, file: &FileSource) -> Result<Self> {
        match given {
            Some(format) => Ok(format),
            None if Header::probe(file)? => Self::standalone(file),
            None => Ok(Self::Raw),
        }
    }

    /// Checks that a detected qcow2 header names no backing file; one that names a data file is refused with every format.
    fn standalone(file: &FileSource) -> Result<Self> {
        let disk = Disk::open(file)?;
        if disk.header().check_standalone().is_ok() {
            return Ok(Self::Qcow2);
        }
        Err(VersionsError::Invalid(format!(
            "{} begins with a qcow2 header that names a backing file ({}), which the guest of a raw disk can write itself: state the \
             format of the disk, raw or qcow2",
            file.name(),
            disk.backing.as_deref().unwrap_or_default().escape_default(),
        )))
    }
}

/// Where a disk is.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file.
    File(PathBuf),
    /// A moment of a running guest's volume, which QEMU exports.
    Export {
        /// The server's socket.
        socket: PathBuf,
        /// The export's name.
        name: String,
        /// That of the export of its scratch file.
        scratch: String,
    },
}

impl Default for Place {
    fn default() -> Self {
        Self::File(PathBuf::new())
    }
}

/// Which state of a disk is read, and how.
#[derive(Debug, Clone, Default)]
pub struct DiskSource {
    /// Where the disk is.
    pub place: Place,
    /// The disk's format; if not given, see [`Format::of`].
    pub format: Option<Format>,
    /// A qcow2 disk's internal snapshot; its present state if there is none.
    pub snapshot: Option<String>,
    /// Blocks that a qcow2 disk does not have are the base image's.
    pub has_base: bool,
    /// The content id of the base image, if it is known.
    pub base_id: Option<String>,
    /// At most this many bytes are read in a second.
    pub rate: Option<f64>,
}

/// A snapshot of a disk by its name and its fingerprint, which another snapshot of the same name does not have.
#[derive(Debug, Clone)]
pub struct SnapshotId {
    /// Its name.
    pub name: String,
    /// Its fingerprint.
    pub fingerprint: String,
}

fn push(regions: &mut Vec<Region>, region: Region) {
    if let Some(last) = regions.last_mut() {
        let joined = last.start + last.len == region.start
            && match (last.location, region.location) {
                (Location::Zero, Location::Zero) | (Location::Base, Location::Base) => true,
                (Location::At(a), Location::At(b)) => {
                    a + last.len == b && last.len + region.len <= PIECE
                }
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
    /// Reads the tables of a qcow2 disk, or the holes of a raw one. Returns also whether the view is a delta: only what changed since the
    /// snapshot `parent`. It is none if that snapshot does not exist, or is another of the same name.
    ///
    /// # Errors
    /// `Source`, `Qcow2`; `Invalid` if the source's snapshot does not exist, or clusters are smaller than blocks.
    pub fn open(
        source: &DiskSource,
        parent: Option<&SnapshotId>,
        block_size: u32,
    ) -> Result<(Self, bool)> {
        match &source.place {
            Place::File(path) => Self::open_file(path, source, parent, block_size),
            Place::Export {
                socket,
                name,
                scratch,
            } => {
                let export = Source::Export(Export::open(socket, name, scratch)?);
                Ok((Self::raw(export, block_size)?, false))
            }
        }
    }

    fn open_file(
        path: &Path,
        source: &DiskSource,
        parent: Option<&SnapshotId>,
        block_size: u32,
    ) -> Result<(Self, bool)> {
        let file = FileSource::open(path)?;
        if Format::of(source.format, &file)? == Format::Qcow2 {
            return Self::open_qcow2(file, source, parent, block_size);
        }
        if source.snapshot.is_some() {
            return Err(VersionsError::Invalid(format!(
                "{} is raw: it has no snapshots",
                file.name()
            )));
        }
        // Advice: that it is not taken costs time, nothing else.
        let _ = rustix::fs::fadvise(file.file(), 0, None, rustix::fs::Advice::Sequential);
        Ok((Self::raw(Source::File(file), block_size)?, false))
    }

    fn raw(source: Source, block_size: u32) -> Result<Self> {
        let bytes = source.bytes();
        Ok(Self {
            size: bytes.len(),
            regions: raw_regions(bytes, block_size)?,
            source,
            compression: Compression::Zlib,
            cluster_size: PIECE,
            tables: 0,
            whole: true,
        })
    }

    fn open_qcow2(
        file: FileSource,
        source: &DiskSource,
        parent: Option<&SnapshotId>,
        block_size: u32,
    ) -> Result<(Self, bool)> {
        let disk = Disk::open(&file)?;
        if disk.header().cluster_size() < u64::from(block_size) {
            return Err(VersionsError::Invalid(format!(
                "{} has clusters of {} bytes, less than the store's blocks",
                file.name(),
                disk.header().cluster_size()
            )));
        }
        let snapshot = match &source.snapshot {
            None => None,
            Some(name) => Some(disk.snapshot(name).ok_or_else(|| {
                VersionsError::Invalid(format!("{} has no snapshot {name}", file.name()))
            })?),
        };
        let state = disk.state(snapshot)?;
        let parent = parent_state(&disk, parent)?;
        let regions = qcow2_regions(&disk, &state, parent.as_ref(), source.has_base)?;
        let (size, delta, tables) = (state.size, parent.is_some(), disk.bytes_read());
        let (compression, cluster_size) = (disk.header().compression, disk.header().cluster_size());
        let view = Self {
            size,
            compression,
            cluster_size,
            regions,
            tables,
            source: Source::File(file),
            whole: !delta,
        };
        Ok((view, delta))
    }

    /// What is read.
    pub fn bytes(&self) -> &dyn ReadAt {
        self.source.bytes()
    }

    /// Bytes of the regions that have to be read.
    pub fn bytes_to_read(&self) -> u64 {
        let read = |region: &&Region| {
            matches!(region.location, Location::At(_) | Location::Compressed(..))
        };
        self.regions
            .iter()
            .filter(read)
            .map(|region| region.len)
            .sum()
    }

    /// Reads a region into `out`, which has at least its bytes: zeroes follow the disk's end. Returns the bytes that were read of the disk.
    ///
    /// # Errors
    /// `Source`; `Qcow2` if a compressed cluster is damaged.
    pub fn read(&self, region: &Region, out: &mut [u8]) -> Result<u64> {
        match region.location {
            Location::Zero | Location::Base => {
                out.fill(0);
                Ok(0)
            }
            Location::At(offset) => {
                // A qcow2 file may end within its last cluster.
                let bytes = self.bytes();
                let there = bytes.len().saturating_sub(offset).min(region.len) as usize;
                bytes.read_exact_at(&mut out[..there], offset)?;
                out[there..].fill(0);
                Ok(there as u64)
            }
            Location::Compressed(offset, len) => {
                let mut stream = vec![0; len as usize];
                self.bytes().read_exact_at(&mut stream, offset)?;
                let mut cluster = vec![0; self.cluster_size as usize];
                decompress(self.compression, &stream, &mut cluster)?;
                let wanted = region.len as usize;
                out[..wanted].copy_from_slice(&cluster[..wanted]);
                out[wanted..].fill(0);
                Ok(len)
            }
        }
    }

    /// Drops a region's bytes from the page cache if all of the disk is read, so that this evicts nothing else.
    pub fn forget(&self, region: &Region) {
        if let (true, Source::File(file), Location::At(offset)) =
            (self.whole, &self.source, region.location)
        {
            let len = std::num::NonZeroU64::new(region.len);
            // Advice: that it is not taken costs memory, nothing else.
            let _ = rustix::fs::fadvise(file.file(), offset, len, rustix::fs::Advice::DontNeed);
        }
    }
}

/// The state of the snapshot that keeps the parent, if it is still that snapshot.
fn parent_state(disk: &Disk<'_>, parent: Option<&SnapshotId>) -> Result<Option<State>> {
    let Some(parent) = parent else {
        return Ok(None);
    };
    match disk.snapshot(&parent.name) {
        Some(snapshot) if snapshot.fingerprint == parent.fingerprint => {
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
    let absent = if has_base {
        Location::Base
    } else {
        Location::Zero
    };
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
                    location: absent,
                },
            );
        }
        let location = match place {
            Cluster::Unallocated => absent,
            Cluster::Zero => Location::Zero,
            Cluster::Plain(offset) => Location::At(offset),
            Cluster::Compressed { offset, length } => Location::Compressed(offset, length),
        };
        let len = cluster.min(size - start);
        push(
            &mut regions,
            Region {
                start,
                len,
                location,
            },
        );
        at = start + len;
    })?;
    if parent.is_none() && at < size {
        let len = size - at;
        push(
            &mut regions,
            Region {
                start: at,
                len,
                location: absent,
            },
        );
    }
    Ok(regions)
}

/// All of a raw disk; holes are zero.
fn raw_regions(file: &dyn ReadAt, block_size: u32) -> Result<Vec<Region>> {
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
                    location: Location::Zero,
                },
            );
        }
        let mut start = from;
        while start < to {
            let len = PIECE.min(to - start);
            regions.push(Region {
                start,
                len,
                location: Location::At(start),
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

    /// A qcow2 header of version 3, which names a backing file of three bytes at the given offset if that is not 0.
    fn header(backing_offset: u8) -> tempfile::NamedTempFile {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(b"QFI\xfb");
        (bytes[7], bytes[23], bytes[103]) = (3, 9, 104);
        if backing_offset != 0 {
            (bytes[15], bytes[19]) = (backing_offset, 3);
            bytes[usize::from(backing_offset)..][..3].copy_from_slice(b"/a\n");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&bytes, 0).unwrap();
        file
    }

    #[test]
    fn a_detected_format_names_no_other_file() {
        let detect = |file: &tempfile::NamedTempFile, given| {
            Format::of(given, &FileSource::open(file.path()).unwrap())
        };
        assert_eq!(detect(&header(0), None).unwrap(), Format::Qcow2);
        let hostile = header(200);
        match detect(&hostile, None) {
            Err(VersionsError::Invalid(text)) => assert!(text.contains("(/a\\n)"), "{text}"),
            other => panic!("{other:?}"),
        }
        for given in [Format::Raw, Format::Qcow2] {
            assert_eq!(detect(&hostile, Some(given)).unwrap(), given);
        }
    }

    #[test]
    fn holes_of_a_raw_disk_are_zero_and_data_is_read_in_pieces() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        file.as_file().write_all_at(&[7; 100], 5 << 20).unwrap();
        let source = DiskSource {
            place: Place::File(file.path().to_owned()),
            ..DiskSource::default()
        };
        let (view, delta) = View::open(&source, None, 4096).unwrap();
        assert!(!delta);
        assert_eq!(
            view.regions.iter().map(|region| region.len).sum::<u64>(),
            8 << 20
        );
        assert!(view.bytes_to_read() >= 4096 && view.bytes_to_read() < 1 << 20);
        let data = view
            .regions
            .iter()
            .find(|region| region.location == Location::At(5 << 20))
            .unwrap();
        let mut out = vec![1; data.len as usize];
        view.read(data, &mut out).unwrap();
        assert_eq!(&out[..101], [[7; 100].as_slice(), &[0]].concat());
    }
}
