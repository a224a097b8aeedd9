//! The tables of a qcow2 disk and of its internal snapshots.
//!
//! Unlike an image that somebody uploads, a server's disk may name a backing file and have snapshots. Nothing here opens a path that a disk
//! names. Field positions are those of QEMU's `docs/interop/qcow2.txt`; numbers are big-endian.

use diffcache_core::source::ReadAt;
use diffcache_qcow2::header::Compression;
use diffcache_qcow2::Qcow2Error;

use crate::error::Result;

const MAGIC: [u8; 4] = *b"QFI\xfb";
const HEADER_READ: usize = 112;
/// QEMU's own limits: 32 MiB of first-level table, 65536 snapshots, 16 MiB of snapshot table.
const MAX_L1_BYTES: u64 = 32 << 20;
const MAX_SNAPSHOTS: u32 = 65536;
const MAX_SNAPSHOT_TABLE: u64 = 16 << 20;
const MAX_NAME: u32 = 1023;
/// 16 TiB, as for images.
const MAX_DISK: u64 = 1 << 44;
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const COPIED: u64 = 1 << 63;
const ZERO: u64 = 1;
const SECTOR: u64 = 512;

const INCOMPATIBLE_CORRUPT: u64 = 1 << 1;
const INCOMPATIBLE_KNOWN: u64 = 1 | 1 << 3;

/// Where a guest's cluster is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    /// Not here: the backing file's, or zero if there is none.
    Absent,
    /// All bytes are zero.
    Zero,
    /// At this offset of the file.
    Plain(u64),
    /// Compressed, at this offset, of at most this length.
    Compressed(u64, u64),
}

/// The first-level table of a disk's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// Bytes of the guest's disk.
    pub size: u64,
    /// Offsets of the second-level tables; 0 where there is none.
    l1: Vec<u64>,
}

/// An internal snapshot.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// QEMU's number of it, as text.
    pub id: String,
    /// Its name.
    pub name: String,
    /// A hash of all that tells it from another of the same name: when it was taken, its number, its tables.
    pub fingerprint: String,
    l1_offset: u64,
    l1_entries: u32,
    size: u64,
    record: Vec<u8>,
}

/// A qcow2 disk, of which only tables were read.
pub struct Disk<'a> {
    file: &'a dyn ReadAt,
    /// Bytes of the guest's disk.
    pub size: u64,
    /// Cluster size is `1 << cluster_bits`.
    pub cluster_bits: u32,
    /// How compressed clusters are compressed.
    pub compression: Compression,
    /// The backing file that the header names; never opened.
    pub backing: Option<String>,
    /// The internal snapshots.
    pub snapshots: Vec<Snapshot>,
    version: u32,
    l1_offset: u64,
    l1_entries: u32,
    /// Bytes of tables that were read so far.
    pub bytes_read: std::sync::atomic::AtomicU64,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(raw)
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4))
}

fn damaged(what: impl Into<String>) -> crate::VersionsError {
    Qcow2Error::Damaged(what.into()).into()
}

fn refused(what: impl Into<String>) -> crate::VersionsError {
    Qcow2Error::Refused(what.into()).into()
}

/// Whether a file begins like a qcow2 image.
///
/// # Errors
/// `Source`.
pub fn probe(file: &dyn ReadAt) -> Result<bool> {
    let mut magic = [0; 4];
    if file.len() < 72 {
        return Ok(false);
    }
    file.read_exact_at(&mut magic, 0)?;
    Ok(magic == MAGIC)
}

impl<'a> Disk<'a> {
    /// Reads the header and the snapshot table.
    ///
    /// # Errors
    /// `Qcow2` if it is refused (encrypted, external data, unknown features, absurd tables) or damaged.
    pub fn open(file: &'a dyn ReadAt) -> Result<Self> {
        if !probe(file)? {
            return Err(damaged("no qcow2 magic"));
        }
        let mut raw = [0; HEADER_READ];
        let present = HEADER_READ.min(usize::try_from(file.len()).unwrap_or(HEADER_READ));
        file.read_exact_at(&mut raw[..present], 0)?;
        let version = be32(&raw, 4);
        let cluster_bits = be32(&raw, 20);
        check_header(&raw, version, cluster_bits)?;
        let mut disk = Self {
            file,
            size: be64(&raw, 24),
            cluster_bits,
            compression: compression(&raw, version)?,
            backing: None,
            snapshots: Vec::new(),
            version,
            l1_offset: be64(&raw, 40),
            l1_entries: be32(&raw, 36),
            bytes_read: (present as u64).into(),
        };
        disk.backing = disk.read_backing(be64(&raw, 8), be32(&raw, 16))?;
        disk.read_snapshots(be64(&raw, 64), be32(&raw, 60))?;
        Ok(disk)
    }

    /// Bytes of a cluster.
    pub fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    fn read(&self, offset: u64, len: usize, what: &str) -> Result<Vec<u8>> {
        let end = offset.checked_add(len as u64);
        if end.is_none_or(|end| end > self.file.len()) {
            return Err(damaged(format!("the {what} lies outside the file")));
        }
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, offset)?;
        self.bytes_read
            .fetch_add(len as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(bytes)
    }

    fn read_backing(&self, offset: u64, len: u32) -> Result<Option<String>> {
        if offset == 0 || len == 0 {
            return Ok(None);
        }
        if len > MAX_NAME {
            return Err(damaged("its backing file's name is too long"));
        }
        let name = self.read(offset, len as usize, "backing file's name")?;
        Ok(Some(String::from_utf8_lossy(&name).into_owned()))
    }

    fn read_snapshots(&mut self, offset: u64, count: u32) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        if count > MAX_SNAPSHOTS || offset % self.cluster_size() != 0 {
            return Err(damaged("its snapshot table is absurd"));
        }
        let room = MAX_SNAPSHOT_TABLE.min(self.file.len().saturating_sub(offset));
        let mut at = offset;
        for _ in 0..count {
            let (snapshot, len) = self.read_snapshot(at, offset + room)?;
            self.snapshots.push(snapshot);
            at += len.next_multiple_of(8);
        }
        Ok(())
    }

    fn read_snapshot(&self, at: u64, end: u64) -> Result<(Snapshot, u64)> {
        let fixed = self.read(at, 40, "snapshot table")?;
        let (extra, id_len) = (be32(&fixed, 36), be16(&fixed, 12));
        let name_len = be16(&fixed, 14);
        let len = 40 + u64::from(extra) + id_len + name_len;
        if extra > 1024 || at + len > end {
            return Err(damaged("its snapshot table is absurd"));
        }
        let record = self.read(at, len as usize, "snapshot table")?;
        let texts = &record[40 + extra as usize..];
        let (id, name) = texts.split_at(id_len as usize);
        let size = if extra >= 16 {
            be64(&record, 48)
        } else {
            self.size
        };
        let mut snapshot = Snapshot {
            id: String::from_utf8_lossy(id).into_owned(),
            name: String::from_utf8_lossy(name).into_owned(),
            fingerprint: String::new(),
            l1_offset: be64(&record, 0),
            l1_entries: be32(&record, 8),
            size,
            record,
        };
        let l1 = self.read_l1(snapshot.l1_offset, snapshot.l1_entries)?;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&snapshot.record);
        for entry in &l1 {
            hasher.update(&entry.to_be_bytes());
        }
        snapshot.fingerprint = hasher.finalize().to_hex()[..32].to_owned();
        Ok((snapshot, len))
    }

    fn read_l1(&self, offset: u64, entries: u32) -> Result<Vec<u64>> {
        let bytes = u64::from(entries) * 8;
        if bytes > MAX_L1_BYTES || offset % self.cluster_size() != 0 {
            return Err(damaged("a first-level table is absurd"));
        }
        let raw = self.read(offset, bytes as usize, "first-level table")?;
        let offsets = raw.chunks_exact(8).map(|raw| be64(raw, 0) & OFFSET_MASK);
        let offsets: Vec<u64> = offsets.collect();
        if offsets
            .iter()
            .any(|offset| offset % self.cluster_size() != 0)
        {
            return Err(damaged("a second-level table is not aligned"));
        }
        Ok(offsets)
    }

    /// The snapshot of a name, or of QEMU's number of it.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        let named = self.snapshots.iter().find(|snapshot| snapshot.name == name);
        named.or_else(|| self.snapshots.iter().find(|snapshot| snapshot.id == name))
    }

    /// The state that a snapshot keeps, or the present one.
    ///
    /// # Errors
    /// `Qcow2` if its tables are absurd.
    pub fn state(&self, snapshot: Option<&Snapshot>) -> Result<State> {
        let (size, offset, entries) = match snapshot {
            Some(snapshot) => (snapshot.size, snapshot.l1_offset, snapshot.l1_entries),
            None => (self.size, self.l1_offset, self.l1_entries),
        };
        if size > MAX_DISK {
            return Err(refused("its disk is larger than 16 TiB"));
        }
        let mut l1 = self.read_l1(offset, entries)?;
        let clusters = size.div_ceil(self.cluster_size());
        let needed = clusters.div_ceil(self.cluster_size() / 8) as usize;
        if l1.len() < needed {
            return Err(damaged("a first-level table is too short for the disk"));
        }
        l1.truncate(needed);
        Ok(State { size, l1 })
    }

    fn read_l2(&self, offset: Option<u64>) -> Result<Vec<u64>> {
        let entries = self.cluster_size() as usize / 8;
        match offset.unwrap_or(0) {
            0 => Ok(vec![0; entries]),
            offset => {
                let raw = self.read(offset, entries * 8, "second-level table")?;
                Ok(raw.chunks_exact(8).map(|raw| be64(raw, 0)).collect())
            }
        }
    }

    /// Calls `each` with the clusters of `new` that are not where they are in `old`, in the order of the guest's disk; with all that are
    /// not absent if there is no `old`. Tables that both states share are not read.
    ///
    /// # Errors
    /// `Qcow2` if the tables are damaged; what `each` returns.
    pub fn changed(
        &self,
        new: &State,
        old: Option<&State>,
        each: &mut dyn FnMut(u64, Cluster) -> Result<()>,
    ) -> Result<()> {
        let per_table = self.cluster_size() / 8;
        let clusters = new.size.div_ceil(self.cluster_size());
        for (table, offset) in (0u64..).zip(&new.l1) {
            let before = old.map_or(0, |old| old.l1.get(table as usize).copied().unwrap_or(0));
            if before == *offset {
                continue;
            }
            let is = self.read_l2(Some(*offset))?;
            let was = self.read_l2(Some(before))?;
            for (i, (is, was)) in (0u64..).zip(is.into_iter().zip(was)) {
                let index = table * per_table + i;
                if index < clusters && is & !COPIED != was & !COPIED {
                    each(index, self.cluster(is)?)?;
                }
            }
        }
        Ok(())
    }

    fn cluster(&self, raw: u64) -> Result<Cluster> {
        if raw & COMPRESSED != 0 {
            let shift = 62 - (self.cluster_bits - 8);
            let offset = raw & ((1 << shift) - 1);
            let sectors = (raw & (COMPRESSED - 1)) >> shift;
            let end = offset / SECTOR * SECTOR + (sectors + 1) * SECTOR;
            let end = end.min(self.file.len());
            return match offset < end {
                true => Ok(Cluster::Compressed(offset, end - offset)),
                false => Err(damaged("a compressed cluster lies outside the file")),
            };
        }
        if self.version >= 3 && raw & ZERO != 0 {
            return Ok(Cluster::Zero);
        }
        match raw & OFFSET_MASK {
            0 => Ok(Cluster::Absent),
            offset if offset % self.cluster_size() != 0 || offset >= self.file.len() => Err(
                damaged("a cluster is not aligned, or lies outside the file"),
            ),
            offset => Ok(Cluster::Plain(offset)),
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> u64 {
    u64::from(bytes[at]) << 8 | u64::from(bytes[at + 1])
}

fn check_header(raw: &[u8; HEADER_READ], version: u32, cluster_bits: u32) -> Result<()> {
    if !(2..=3).contains(&version) {
        return Err(refused(format!("version {version} is unknown")));
    }
    if !(9..=21).contains(&cluster_bits) {
        return Err(refused(format!("clusters of 2^{cluster_bits} bytes")));
    }
    if be32(raw, 32) != 0 {
        return Err(refused("it is encrypted"));
    }
    if be64(raw, 24) > MAX_DISK {
        return Err(refused("its disk is larger than 16 TiB"));
    }
    if version < 3 {
        return Ok(());
    }
    let features = be64(raw, 72);
    if features & INCOMPATIBLE_CORRUPT != 0 {
        return Err(refused("it is marked corrupt; repair it first"));
    }
    match features & !INCOMPATIBLE_KNOWN {
        0 => Ok(()),
        _ => Err(refused(
            "it uses external data, extended tables or unknown features",
        )),
    }
}

fn compression(raw: &[u8; HEADER_READ], version: u32) -> Result<Compression> {
    if version < 3 || be64(raw, 72) & (1 << 3) == 0 {
        return Ok(Compression::Zlib);
    }
    match (be32(raw, 100) > 104, raw[104]) {
        (true, 0) => Ok(Compression::Zlib),
        (true, 1) => Ok(Compression::Zstd),
        _ => Err(refused("its compression is unknown")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put32(bytes: &mut [u8], at: usize, value: u32) {
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    fn put64(bytes: &mut [u8], at: usize, value: u64) {
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
    }

    /// Clusters of 512 bytes: header, L1, L2, snapshot table, the snapshot's L1 and L2, data.
    fn image() -> Vec<u8> {
        let mut file = vec![0; 512 * 10];
        file[..4].copy_from_slice(&MAGIC);
        put32(&mut file, 4, 3);
        put32(&mut file, 20, 9);
        put64(&mut file, 24, 512 * 64);
        put32(&mut file, 36, 1);
        put64(&mut file, 40, 512);
        put32(&mut file, 60, 1);
        put64(&mut file, 64, 512 * 3);
        put32(&mut file, 100, 104);
        put64(&mut file, 512, COPIED | (512 * 2));
        put64(&mut file, 1024, COPIED | (512 * 6));
        put64(&mut file, 1024 + 8, 512 * 7);
        put64(&mut file, 1024 + 16, ZERO);
        let table = 512 * 3;
        put64(&mut file, table, 512 * 4);
        put32(&mut file, table + 8, 1);
        file[table + 13] = 1;
        file[table + 15] = 4;
        put32(&mut file, table + 36, 16);
        put64(&mut file, table + 48, 512 * 64);
        file[table + 56..table + 61].copy_from_slice(b"1mine");
        put64(&mut file, 512 * 4, 512 * 5);
        put64(&mut file, 512 * 5, 512 * 6);
        put64(&mut file, 512 * 5 + 8, 512 * 8);
        put64(&mut file, 512 * 5 + 24, 512 * 9);
        file
    }

    fn changes(file: &[u8]) -> Result<Vec<(u64, Cluster)>> {
        let source = file.to_vec();
        let disk = Disk::open(&source)?;
        let old = disk
            .snapshot("mine")
            .map(|snapshot| disk.state(Some(snapshot)))
            .transpose()?;
        let mut out = Vec::new();
        disk.changed(&disk.state(None)?, old.as_ref(), &mut |index, cluster| {
            out.push((index, cluster));
            Ok(())
        })?;
        Ok(out)
    }

    #[test]
    fn only_clusters_that_moved_are_told() {
        assert_eq!(
            changes(&image()).unwrap(),
            [
                (1, Cluster::Plain(512 * 7)),
                (2, Cluster::Zero),
                (3, Cluster::Absent)
            ]
        );
    }

    #[test]
    fn a_snapshot_taken_again_has_another_fingerprint() {
        let (one, mut other) = (image(), image());
        put32(&mut other, 512 * 3 + 16, 77);
        let print = |file: &Vec<u8>| Disk::open(file).unwrap().snapshots[0].fingerprint.clone();
        assert_ne!(print(&one), print(&other));
        assert_eq!(print(&one), print(&image()));
    }

    #[test]
    fn hostile_headers_are_refused() {
        for (at, value) in [(4, 4), (20, 40), (20, 3), (32, 1), (76, 4), (60, 1 << 20)] {
            let mut file = image();
            put32(&mut file, at, value);
            assert!(Disk::open(&file).is_err(), "field {at}");
        }
        for at in [40, 64] {
            let mut file = image();
            put64(&mut file, at, 1 << 50);
            assert!(changes(&file).is_err(), "offset {at}");
        }
        let mut file = image();
        put64(&mut file, 1024 + 8, 512 * 4000);
        assert!(changes(&file).is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn any_damage_is_answered(places in proptest::collection::vec((0usize..512 * 6, any::<u8>()), 1..8), cut in 0usize..512 * 10) {
            let mut file = image();
            for (place, value) in places {
                file[place] = value;
            }
            let _ = changes(&file);
            file.truncate(cut);
            let _ = changes(&file);
        }
    }
}
