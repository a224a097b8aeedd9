//! The qcow2 header: everything is refused for which another file would have to be opened.
//!
//! Field positions are those of QEMU's `docs/interop/qcow2.txt`. Numbers are big endian.

use diffcache_base::words::Words;
use diffcache_core::source::ReadAt;

use crate::error::Qcow2Error;
use crate::tables;

/// First bytes of every qcow2 image.
pub const MAGIC: [u8; 4] = *b"QFI\xfb";

/// Positions of the header's fields.
mod field {
    pub const VERSION: usize = 4;
    pub const BACKING_OFFSET: usize = 8;
    pub const BACKING_LENGTH: usize = 16;
    pub const CLUSTER_BITS: usize = 20;
    pub const SIZE: usize = 24;
    pub const ENCRYPTION: usize = 32;
    pub const L1_ENTRIES: usize = 36;
    pub const L1_OFFSET: usize = 40;
    pub const REFTABLE_OFFSET: usize = 48;
    pub const REFTABLE_CLUSTERS: usize = 56;
    pub const SNAPSHOTS: usize = 60;
    pub const SNAPSHOTS_OFFSET: usize = 64;
    pub const INCOMPATIBLE: usize = 72;
    pub const REFCOUNT_ORDER: usize = 96;
    pub const HEADER_LENGTH: usize = 100;
    pub const COMPRESSION: usize = 104;
}

const V2_LENGTH: usize = 72;
/// Bytes of the header that new files have.
pub(crate) const V3_LENGTH: usize = 104;
/// Header fields beyond this are not interpreted.
const HEADER_READ: usize = 112;

const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Largest guest disk that is accepted: 16 TiB.
const MAX_DISK: u64 = 1 << 44;
/// QEMU's own limit: 32 MiB of first-level table.
const MAX_L1_BYTES: u64 = 32 << 20;
/// QEMU's own limit: 8 MiB of refcount table.
const MAX_REFTABLE_BYTES: u64 = 8 << 20;
/// QEMU's own limit.
const MAX_BACKING_NAME: usize = 1023;
const MAX_EXTENSIONS: usize = 64;

const INCOMPATIBLE_DIRTY: u64 = 1 << 0;
const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;

const EXTENSION_END: u32 = 0;
const EXTENSION_BACKING_FORMAT: u32 = 0xe279_2aca;
const EXTENSION_DATA_FILE: u32 = 0x4441_5441;
const EXTENSION_ENCRYPTION: u32 = 0x0537_be77;

/// How the image's compressed clusters are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Raw deflate, window of 12 bits.
    Zlib,
    /// One zstd frame for each cluster.
    Zstd,
}

/// A backing file as a new image names it.
#[derive(Debug, Clone, Copy)]
pub struct Backing<'a> {
    /// The file's name.
    pub name: &'a str,
    /// Its format, `raw` or `qcow2`.
    pub format: &'a str,
}

/// A checked qcow2 header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
    /// Bytes of the header; extensions follow.
    pub length: u32,
    /// Cluster size is `1 << cluster_bits`, 512 bytes to 2 MiB.
    pub cluster_bits: u32,
    /// Guest disk size in bytes.
    pub size: u64,
    /// Bytes of the image file.
    pub file_size: u64,
    /// First-level table: offset in the file.
    pub l1_offset: u64,
    /// First-level table: entries.
    pub l1_entries: u32,
    /// Refcount table: offset in the file.
    pub reftable_offset: u64,
    /// Refcount table: bytes.
    pub reftable_bytes: u64,
    /// A refcount is `1 << refcount_order` bits wide.
    pub refcount_order: u32,
    /// Algorithm of the compressed clusters.
    pub compression: Compression,
    /// Table of internal snapshots: offset in the file.
    pub snapshots_offset: u64,
    /// Internal snapshots.
    pub snapshots: u32,
    /// The backing file's name: offset in the file, 0 for none.
    pub backing_offset: u64,
    /// The backing file's name: bytes, 0 for none.
    pub backing_length: u32,
}

impl Header {
    /// Returns whether `file` begins like a qcow2 image.
    ///
    /// # Errors
    /// `Source`.
    pub fn probe(file: &dyn ReadAt) -> Result<bool, Qcow2Error> {
        let mut magic = [0; 4];
        if file.len() < V2_LENGTH as u64 {
            return Ok(false);
        }
        file.read_exact_at(&mut magic, 0)?;
        Ok(magic == MAGIC)
    }

    /// Reads the header of `file`; [`Header::check`] has to follow.
    ///
    /// A backing file and internal snapshots are accepted: [`Header::check_standalone`] refuses the one, and [`crate::snapshots`] reads
    /// the other.
    ///
    /// # Errors
    /// `Refused` for external data files, encryption, extended L2 entries and unknown incompatible features; `Damaged`, `Source`.
    pub(crate) fn read(file: &dyn ReadAt) -> Result<Self, Qcow2Error> {
        let file_size = file.len();
        if file_size < V2_LENGTH as u64 {
            return Err(Qcow2Error::damaged("shorter than a header"));
        }
        let mut raw = [0; HEADER_READ];
        let present = HEADER_READ.min(usize::try_from(file_size).unwrap_or(HEADER_READ));
        file.read_exact_at(&mut raw[..present], 0)?;
        if raw[..4] != MAGIC {
            return Err(Qcow2Error::damaged("no qcow2 magic"));
        }
        Self::parse(&raw, file_size)
    }

    fn parse(raw: &[u8; HEADER_READ], file_size: u64) -> Result<Self, Qcow2Error> {
        let version = Words(raw).be32(field::VERSION);
        if !(2..=3).contains(&version) {
            return Err(Qcow2Error::refused(format!("version {version} is unknown")));
        }
        let cluster_bits = Words(raw).be32(field::CLUSTER_BITS);
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(Qcow2Error::refused(format!(
                "clusters of 2^{cluster_bits} bytes"
            )));
        }
        if Words(raw).be32(field::ENCRYPTION) != 0 {
            return Err(Qcow2Error::refused("it is encrypted"));
        }
        let size = Words(raw).be64(field::SIZE);
        if size > MAX_DISK {
            return Err(Qcow2Error::refused("its disk is larger than 16 TiB"));
        }
        let v3 = version == 3;
        if v3 {
            check_features(Words(raw).be64(field::INCOMPATIBLE))?;
        }
        let (length, refcount_order) = match v3 {
            true => (
                Words(raw).be32(field::HEADER_LENGTH),
                Words(raw).be32(field::REFCOUNT_ORDER),
            ),
            false => (V2_LENGTH as u32, 4),
        };
        Ok(Self {
            version,
            length,
            cluster_bits,
            size,
            file_size,
            l1_offset: Words(raw).be64(field::L1_OFFSET),
            l1_entries: Words(raw).be32(field::L1_ENTRIES),
            reftable_offset: Words(raw).be64(field::REFTABLE_OFFSET),
            reftable_bytes: u64::from(Words(raw).be32(field::REFTABLE_CLUSTERS)) << cluster_bits,
            refcount_order,
            compression: compression(raw, v3, length)?,
            snapshots_offset: Words(raw).be64(field::SNAPSHOTS_OFFSET),
            snapshots: Words(raw).be32(field::SNAPSHOTS),
            backing_offset: Words(raw).be64(field::BACKING_OFFSET),
            backing_length: Words(raw).be32(field::BACKING_LENGTH),
        })
    }

    /// Checks the header's own length and widths, and its extensions.
    ///
    /// # Errors
    /// `Refused` if an extension names a data file or an encryption; `Damaged`, `Source`.
    pub(crate) fn check(&self, file: &dyn ReadAt) -> Result<(), Qcow2Error> {
        let length = u64::from(self.length);
        let fits = length >= V3_LENGTH as u64 && length % 8 == 0 && length <= self.cluster_size();
        if self.version == 3 && !fits {
            return Err(Qcow2Error::damaged(format!("a header of {length} bytes")));
        }
        if self.refcount_order > 6 {
            return Err(Qcow2Error::damaged(format!(
                "refcounts of 2^{} bits",
                self.refcount_order
            )));
        }
        self.check_extensions(file)
    }

    /// Walks the header extensions, which are stored in the first cluster, before the name of a backing file.
    fn check_extensions(&self, file: &dyn ReadAt) -> Result<(), Qcow2Error> {
        let mut end = self.cluster_size().min(self.file_size);
        if self.backing_offset != 0 {
            end = end.min(self.backing_offset);
        }
        let mut at = u64::from(self.length);
        for _ in 0..MAX_EXTENSIONS {
            if at + 8 > end {
                return Ok(());
            }
            let mut raw = [0; 8];
            file.read_exact_at(&mut raw, at)?;
            match Words(&raw).be32(0) {
                EXTENSION_END => return Ok(()),
                EXTENSION_DATA_FILE => {
                    return Err(Qcow2Error::refused("it names a data file"));
                }
                EXTENSION_ENCRYPTION => return Err(Qcow2Error::refused("it is encrypted")),
                _ => at += 8 + u64::from(Words(&raw).be32(4)).next_multiple_of(8),
            }
        }
        Err(Qcow2Error::refused("it has too many header extensions"))
    }

    /// Refuses an image that names a backing file: its content is not in the file alone.
    ///
    /// # Errors
    /// `Refused`.
    pub fn check_standalone(&self) -> Result<(), Qcow2Error> {
        match (self.backing_offset, self.backing_length) {
            (0, 0) => Ok(()),
            _ => Err(Qcow2Error::refused(
                "it names a backing file; flatten it first",
            )),
        }
    }

    /// Checks that the tables of the present state are of a sane size, aligned, and inside the file.
    ///
    /// # Errors
    /// `Refused`, `Damaged`.
    pub fn check_tables(&self, file: &dyn ReadAt) -> Result<(), Qcow2Error> {
        let l1_bytes = u64::from(self.l1_entries) * 8;
        if l1_bytes > MAX_L1_BYTES || self.reftable_bytes > MAX_REFTABLE_BYTES {
            return Err(Qcow2Error::refused("its tables are too large"));
        }
        for (what, offset, bytes) in [
            ("first-level table", self.l1_offset, l1_bytes),
            ("refcount table", self.reftable_offset, self.reftable_bytes),
        ] {
            tables::check_place(file, self.cluster_size(), what, (offset, bytes))?;
            if bytes > 0 && offset == 0 {
                return Err(Qcow2Error::damaged(format!("the {what} is misplaced")));
            }
        }
        Ok(())
    }

    /// Reads `entries` of a first-level table, the present state's or a snapshot's; returns the offsets of the second-level tables, 0
    /// for none.
    ///
    /// # Errors
    /// `Damaged`, `Refused`, `Source`.
    pub fn read_l1(
        &self,
        file: &dyn ReadAt,
        offset: u64,
        entries: u32,
    ) -> Result<Vec<u64>, Qcow2Error> {
        if u64::from(entries) * 8 > MAX_L1_BYTES {
            return Err(Qcow2Error::refused("its tables are too large"));
        }
        let raw = tables::read(
            file,
            self.cluster_size(),
            "first-level table",
            (offset, entries as usize),
        )?;
        let offsets: Vec<u64> = raw.iter().map(|raw| raw & tables::OFFSET_MASK).collect();
        if offsets
            .iter()
            .any(|offset| offset % self.cluster_size() != 0)
        {
            return Err(Qcow2Error::damaged("a second-level table is not aligned"));
        }
        Ok(offsets)
    }

    /// Reads the name of the backing file; `None` if the image has none.
    ///
    /// # Errors
    /// `Damaged`, `Source`.
    pub fn read_backing(&self, file: &dyn ReadAt) -> Result<Option<String>, Qcow2Error> {
        if self.backing_offset == 0 || self.backing_length == 0 {
            return Ok(None);
        }
        let length = self.backing_length as usize;
        if length > MAX_BACKING_NAME {
            return Err(Qcow2Error::damaged("its backing file's name is too long"));
        }
        let what = "backing file's name";
        let name = tables::read_bytes(file, what, self.backing_offset, length)?;
        Ok(Some(String::from_utf8_lossy(&name).into_owned()))
    }

    /// Returns the first cluster of a new image of version 3: this header, and the name of its backing file.
    ///
    /// # Errors
    /// `Refused` if the name is too long.
    pub fn encode(&self, backing: Option<Backing<'_>>) -> Result<Vec<u8>, Qcow2Error> {
        let mut out = vec![0; V3_LENGTH];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        let reftable_clusters = (self.reftable_bytes >> self.cluster_bits) as u32;
        put(0, &MAGIC);
        put(field::VERSION, &3u32.to_be_bytes());
        put(field::CLUSTER_BITS, &self.cluster_bits.to_be_bytes());
        put(field::SIZE, &self.size.to_be_bytes());
        put(field::L1_ENTRIES, &self.l1_entries.to_be_bytes());
        put(field::L1_OFFSET, &self.l1_offset.to_be_bytes());
        put(field::REFTABLE_OFFSET, &self.reftable_offset.to_be_bytes());
        put(field::REFTABLE_CLUSTERS, &reftable_clusters.to_be_bytes());
        put(field::REFCOUNT_ORDER, &self.refcount_order.to_be_bytes());
        put(field::HEADER_LENGTH, &self.length.to_be_bytes());
        if let Some(backing) = backing {
            encode_backing(&mut out, backing)?;
        }
        out.resize(self.cluster_size() as usize, 0);
        Ok(out)
    }

    /// Returns the size of a cluster in bytes.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Returns the number of guest clusters; the last may be partly beyond the disk's end.
    pub fn clusters(&self) -> u64 {
        self.size.div_ceil(self.cluster_size())
    }

    /// Returns the number of guest clusters that one second-level table maps.
    pub fn clusters_per_l2(&self) -> u64 {
        self.cluster_size() / 8
    }

    /// Returns the number of first-level entries that a disk of `size` bytes needs.
    pub fn l1_needed(&self, size: u64) -> u64 {
        size.div_ceil(self.cluster_size())
            .div_ceil(self.clusters_per_l2())
    }
}

fn encode_backing(out: &mut Vec<u8>, backing: Backing<'_>) -> Result<(), Qcow2Error> {
    if backing.name.len() > MAX_BACKING_NAME {
        return Err(Qcow2Error::BackingName(backing.name.to_owned()));
    }
    out.extend_from_slice(&EXTENSION_BACKING_FORMAT.to_be_bytes());
    out.extend_from_slice(&(backing.format.len() as u32).to_be_bytes());
    out.extend_from_slice(backing.format.as_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
    out.extend_from_slice(&[0; 8]);
    let at = out.len() as u64;
    let length = backing.name.len() as u32;
    out[field::BACKING_OFFSET..field::BACKING_OFFSET + 8].copy_from_slice(&at.to_be_bytes());
    out[field::BACKING_LENGTH..field::BACKING_LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(backing.name.as_bytes());
    Ok(())
}

fn check_features(incompatible: u64) -> Result<(), Qcow2Error> {
    let refused = [
        (
            INCOMPATIBLE_CORRUPT,
            "it is marked corrupt; repair it first",
        ),
        (INCOMPATIBLE_DATA_FILE, "it names a data file"),
        (
            INCOMPATIBLE_EXTENDED_L2,
            "extended L2 entries are not supported",
        ),
    ];
    for (bit, why) in refused {
        if incompatible & bit != 0 {
            return Err(Qcow2Error::refused(why));
        }
    }
    if incompatible & !(INCOMPATIBLE_DIRTY | INCOMPATIBLE_COMPRESSION) != 0 {
        return Err(Qcow2Error::refused("it uses unknown incompatible features"));
    }
    Ok(())
}

fn compression(raw: &[u8; HEADER_READ], v3: bool, length: u32) -> Result<Compression, Qcow2Error> {
    let named = v3 && Words(raw).be64(field::INCOMPATIBLE) & INCOMPATIBLE_COMPRESSION != 0;
    if !named {
        return Ok(Compression::Zlib);
    }
    match raw[field::COMPRESSION] {
        _ if length as usize <= field::COMPRESSION => {
            Err(Qcow2Error::damaged("no compression type"))
        }
        0 => Ok(Compression::Zlib),
        1 => Ok(Compression::Zstd),
        other => Err(Qcow2Error::refused(format!(
            "compression type {other} is unknown"
        ))),
    }
}
