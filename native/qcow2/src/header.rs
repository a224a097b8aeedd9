//! The qcow2 header: parsed with everything refused that would make reading open another file.
//!
//! Field positions are those of QEMU's `docs/interop/qcow2.txt`. Numbers are big endian.

use crate::error::Qcow2Error;
use diffcache_core::patch::format::MAX_SIZE;
use diffcache_core::source::ReadAt;

/// First bytes of every qcow2 image.
pub const MAGIC: [u8; 4] = *b"QFI\xfb";

const V2_LENGTH: usize = 72;
const V3_LENGTH: usize = 104;
const COMPRESSION_FIELD: usize = 104;
/// Header fields beyond this are not ours to interpret.
const HEADER_READ: usize = 112;

const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// QEMU's own limit: 32 MiB of first-level table.
const MAX_L1_BYTES: u64 = 32 << 20;
/// QEMU's own limit: 8 MiB of refcount table.
const MAX_REFTABLE_BYTES: u64 = 8 << 20;
const MAX_EXTENSIONS: usize = 64;

const INCOMPATIBLE_DIRTY: u64 = 1 << 0;
const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_DATA_FILE: u64 = 1 << 2;
const INCOMPATIBLE_COMPRESSION: u64 = 1 << 3;
const INCOMPATIBLE_EXTENDED_L2: u64 = 1 << 4;

const EXTENSION_END: u32 = 0;
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

/// A checked qcow2 header.
#[derive(Debug, Clone)]
pub struct Header {
    /// 2 or 3.
    pub version: u32,
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
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(raw)
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(raw)
}

impl Header {
    /// Whether `file` begins like a qcow2 image.
    pub fn probe(file: &dyn ReadAt) -> Result<bool, Qcow2Error> {
        let mut magic = [0; 4];
        if file.len() < V2_LENGTH as u64 {
            return Ok(false);
        }
        file.read_exact_at(&mut magic, 0)?;
        Ok(magic == MAGIC)
    }

    /// Reads and checks the header of `file`.
    ///
    /// Refuses backing files, external data files, encryption, extended L2 entries and unknown
    /// incompatible features; tables that are absurdly large, not aligned, or not inside the file.
    pub fn read(file: &dyn ReadAt) -> Result<Self, Qcow2Error> {
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
        let header = Self::parse(&raw, file_size)?;
        header.check_tables()?;
        header.check_extensions(file, header_length(&raw, header.version))?;
        Ok(header)
    }

    fn parse(raw: &[u8; HEADER_READ], file_size: u64) -> Result<Self, Qcow2Error> {
        let version = be32(raw, 4);
        if !(2..=3).contains(&version) {
            return Err(Qcow2Error::refused(format!("version {version} is unknown")));
        }
        if be64(raw, 8) != 0 || be32(raw, 16) != 0 {
            return Err(Qcow2Error::refused(
                "it names a backing file; flatten it first",
            ));
        }
        let cluster_bits = be32(raw, 20);
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(Qcow2Error::refused(format!(
                "clusters of 2^{cluster_bits} bytes"
            )));
        }
        if be32(raw, 32) != 0 {
            return Err(Qcow2Error::refused("it is encrypted"));
        }
        let v3 = version == 3;
        if v3 {
            check_features(be64(raw, 72))?;
        }
        let length = header_length(raw, version);
        if v3 && (length < V3_LENGTH || length % 8 != 0 || length > 1 << cluster_bits) {
            return Err(Qcow2Error::damaged(format!("a header of {length} bytes")));
        }
        let refcount_order = if v3 { be32(raw, 96) } else { 4 };
        if refcount_order > 6 {
            return Err(Qcow2Error::damaged(format!(
                "refcounts of 2^{refcount_order} bits"
            )));
        }
        Ok(Self {
            version,
            cluster_bits,
            size: be64(raw, 24),
            file_size,
            l1_offset: be64(raw, 40),
            l1_entries: be32(raw, 36),
            reftable_offset: be64(raw, 48),
            reftable_bytes: u64::from(be32(raw, 56)) << cluster_bits,
            refcount_order,
            compression: compression(raw, v3, length)?,
        })
    }

    fn check_tables(&self) -> Result<(), Qcow2Error> {
        if self.size > MAX_SIZE {
            return Err(Qcow2Error::refused(
                "its disk is larger than a patch can describe, which is 64 MiB less than 16 TiB",
            ));
        }
        let l1_bytes = u64::from(self.l1_entries) * 8;
        if l1_bytes > MAX_L1_BYTES || self.reftable_bytes > MAX_REFTABLE_BYTES {
            return Err(Qcow2Error::refused("its tables are absurdly large"));
        }
        if u64::from(self.l1_entries) < self.l1_needed() {
            return Err(Qcow2Error::damaged(
                "the first-level table is too short for the disk's size",
            ));
        }
        for (what, offset, bytes) in [
            ("first-level table", self.l1_offset, l1_bytes),
            ("refcount table", self.reftable_offset, self.reftable_bytes),
        ] {
            let end = offset
                .checked_add(bytes)
                .filter(|&end| end <= self.file_size);
            if end.is_none() || offset % self.cluster_size() != 0 || (bytes > 0 && offset == 0) {
                return Err(Qcow2Error::damaged(format!("the {what} is misplaced")));
            }
        }
        Ok(())
    }

    /// Walks the header extensions, which lie in the first cluster.
    fn check_extensions(&self, file: &dyn ReadAt, start: usize) -> Result<(), Qcow2Error> {
        let end = self.cluster_size().min(self.file_size);
        let mut at = start as u64;
        for _ in 0..MAX_EXTENSIONS {
            if at + 8 > end {
                return Ok(());
            }
            let mut raw = [0; 8];
            file.read_exact_at(&mut raw, at)?;
            match be32(&raw, 0) {
                EXTENSION_END => return Ok(()),
                EXTENSION_DATA_FILE => {
                    return Err(Qcow2Error::refused("it names a data file"));
                }
                EXTENSION_ENCRYPTION => return Err(Qcow2Error::refused("it is encrypted")),
                _ => at += 8 + u64::from(be32(&raw, 4)).next_multiple_of(8),
            }
        }
        Err(Qcow2Error::refused("it has too many header extensions"))
    }

    /// Bytes of a cluster.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Guest clusters, the last perhaps partly beyond the disk's end.
    pub fn clusters(&self) -> u64 {
        self.size.div_ceil(self.cluster_size())
    }

    /// Guest clusters that one second-level table maps.
    pub fn clusters_per_l2(&self) -> u64 {
        self.cluster_size() / 8
    }

    /// First-level entries the disk's size needs.
    pub fn l1_needed(&self) -> u64 {
        self.clusters().div_ceil(self.clusters_per_l2())
    }
}

fn header_length(raw: &[u8; HEADER_READ], version: u32) -> usize {
    if version == 3 {
        be32(raw, 100) as usize
    } else {
        V2_LENGTH
    }
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

fn compression(
    raw: &[u8; HEADER_READ],
    v3: bool,
    length: usize,
) -> Result<Compression, Qcow2Error> {
    let named = v3 && be64(raw, 72) & INCOMPATIBLE_COMPRESSION != 0;
    if !named {
        return Ok(Compression::Zlib);
    }
    match raw[COMPRESSION_FIELD] {
        _ if length <= COMPRESSION_FIELD => Err(Qcow2Error::damaged("no compression type")),
        0 => Ok(Compression::Zlib),
        1 => Ok(Compression::Zstd),
        other => Err(Qcow2Error::refused(format!(
            "compression type {other} is unknown"
        ))),
    }
}
