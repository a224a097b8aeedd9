//! The internal snapshots of a server's disk, and what changed between two of its states.
//!
//! Unlike an image that a user uploads, a server's disk may name a backing file and have snapshots. Nothing here opens a path that a disk
//! names.

use std::sync::atomic::{AtomicU64, Ordering};

use diffcache_base::words::Words;
use diffcache_core::source::{ReadAt, SourceError};

use crate::cluster::{Cluster, COPIED};
use crate::error::Qcow2Error;
use crate::header::Header;
use crate::tables;

/// QEMU's own limits.
const MAX_SNAPSHOTS: u32 = 65536;
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// Largest disk of a snapshot: 16 TiB, as for headers.
const MAX_DISK: u64 = 1 << 44;
/// Bytes of a snapshot's record before its extra data, its number and its name.
const FIXED_LENGTH: usize = 40;
const MAX_EXTRA: u32 = 1024;

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
    /// A hash of all that distinguishes it from another of the same name: when it was taken, its number, its tables.
    pub fingerprint: String,
    l1_offset: u64,
    l1_entries: u32,
    size: u64,
}

/// A file that counts the bytes read of it.
struct Counted<'a> {
    file: &'a dyn ReadAt,
    bytes: AtomicU64,
}

impl ReadAt for Counted<'_> {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.file.read_exact_at(buf, offset)?;
        self.bytes.fetch_add(buf.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

/// A qcow2 disk, of which only tables are read.
pub struct Disk<'a> {
    file: Counted<'a>,
    header: Header,
    /// The backing file that the header names; never opened.
    pub backing: Option<String>,
    /// The internal snapshots.
    pub snapshots: Vec<Snapshot>,
}

impl<'a> Disk<'a> {
    /// Reads the header and the snapshot table.
    ///
    /// # Errors
    /// `Refused` (encrypted, external data, unknown features, sizes beyond all limits), `Damaged`, `Source`.
    pub fn open(file: &'a dyn ReadAt) -> Result<Self, Qcow2Error> {
        let file = Counted {
            file,
            bytes: AtomicU64::new(0),
        };
        let header = Header::read(&file)?;
        header.check(&file)?;
        let backing = header.read_backing(&file)?;
        let snapshots = read_table(&file, &header)?;
        Ok(Self {
            file,
            header,
            backing,
            snapshots,
        })
    }

    /// Returns the disk's header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns how many bytes of the file were read so far.
    pub fn bytes_read(&self) -> u64 {
        self.file.bytes.load(Ordering::Relaxed)
    }

    /// Finds the snapshot with a name, or with QEMU's number of it.
    pub fn snapshot(&self, name: &str) -> Option<&Snapshot> {
        let named = self.snapshots.iter().find(|snapshot| snapshot.name == name);
        named.or_else(|| self.snapshots.iter().find(|snapshot| snapshot.id == name))
    }

    /// Reads the first-level table of a snapshot, or of the present state.
    ///
    /// # Errors
    /// `Refused`, `Damaged`, `Source`.
    pub fn state(&self, snapshot: Option<&Snapshot>) -> Result<State, Qcow2Error> {
        let (size, offset, entries) = match snapshot {
            Some(snapshot) => (snapshot.size, snapshot.l1_offset, snapshot.l1_entries),
            None => (
                self.header.size,
                self.header.l1_offset,
                self.header.l1_entries,
            ),
        };
        if size > MAX_DISK {
            return Err(Qcow2Error::refused("its disk is larger than 16 TiB"));
        }
        let mut l1 = self.header.read_l1(&self.file, offset, entries)?;
        let needed = self.header.l1_needed(size) as usize;
        if l1.len() < needed {
            return Err(Qcow2Error::damaged(
                "a first-level table is too short for the disk",
            ));
        }
        l1.truncate(needed);
        Ok(State { size, l1 })
    }

    fn read_l2(&self, offset: u64) -> Result<Vec<u64>, Qcow2Error> {
        let entries = self.header.clusters_per_l2() as usize;
        match offset {
            0 => Ok(vec![0; entries]),
            offset => {
                let cluster_size = self.header.cluster_size();
                tables::read(
                    &self.file,
                    cluster_size,
                    "second-level table",
                    (offset, entries),
                )
            }
        }
    }

    /// Calls `each` with the clusters of `new` that are stored elsewhere than in `old`, in the order of the guest's disk; without `old`,
    /// with all that are allocated. Tables that both states share are not read.
    ///
    /// # Errors
    /// `Damaged`, `Source`.
    pub fn changed(
        &self,
        new: &State,
        old: Option<&State>,
        each: &mut dyn FnMut(u64, Cluster),
    ) -> Result<(), Qcow2Error> {
        let per_table = self.header.clusters_per_l2();
        let clusters = new.size.div_ceil(self.header.cluster_size());
        for (table, offset) in (0u64..).zip(&new.l1) {
            let before = old.map_or(0, |old| old.l1.get(table as usize).copied().unwrap_or(0));
            if before == *offset {
                continue;
            }
            let is = self.read_l2(*offset)?;
            let was = self.read_l2(before)?;
            for (i, (is, was)) in (0u64..).zip(is.into_iter().zip(was)) {
                let index = table * per_table + i;
                if index < clusters && is & !COPIED != was & !COPIED {
                    let cluster = Cluster::decode(&self.header, is);
                    cluster.check(&self.header, index)?;
                    each(index, cluster);
                }
            }
        }
        Ok(())
    }
}

fn read_table(file: &dyn ReadAt, header: &Header) -> Result<Vec<Snapshot>, Qcow2Error> {
    let (start, count) = (header.snapshots_offset, header.snapshots);
    if count == 0 {
        return Ok(Vec::new());
    }
    if count > MAX_SNAPSHOTS || start % header.cluster_size() != 0 {
        return Err(bad_table());
    }
    let end = start + MAX_TABLE_BYTES.min(file.len().saturating_sub(start));
    let mut at = start;
    let mut snapshots = Vec::new();
    for _ in 0..count {
        let (snapshot, length) = read_record(file, header, at, end)?;
        snapshots.push(snapshot);
        at += length.next_multiple_of(8);
    }
    Ok(snapshots)
}

fn bad_table() -> Qcow2Error {
    Qcow2Error::damaged("its snapshot table is misplaced, or too large")
}

/// Reads the record at `at` of a table that ends before `end`; returns also its length.
fn read_record(
    file: &dyn ReadAt,
    header: &Header,
    at: u64,
    end: u64,
) -> Result<(Snapshot, u64), Qcow2Error> {
    let fixed = tables::read_bytes(file, "snapshot table", at, FIXED_LENGTH)?;
    let (id_length, name_length) = (
        usize::from(Words(&fixed).be16(12)),
        usize::from(Words(&fixed).be16(14)),
    );
    let extra = Words(&fixed).be32(36);
    let length = FIXED_LENGTH + extra as usize + id_length + name_length;
    if extra > MAX_EXTRA || at + length as u64 > end {
        return Err(bad_table());
    }
    let record = tables::read_bytes(file, "snapshot table", at, length)?;
    let texts = &record[FIXED_LENGTH + extra as usize..];
    let (id, name) = texts.split_at(id_length);
    let (l1_offset, l1_entries) = (Words(&record).be64(0), Words(&record).be32(8));
    let size = match extra {
        16.. => Words(&record).be64(48),
        _ => header.size,
    };
    let mut hasher = blake3::Hasher::new();
    hasher.update(&record);
    for entry in header.read_l1(file, l1_offset, l1_entries)? {
        hasher.update(&entry.to_be_bytes());
    }
    let snapshot = Snapshot {
        id: String::from_utf8_lossy(id).into_owned(),
        name: String::from_utf8_lossy(name).into_owned(),
        fingerprint: hasher.finalize().to_hex()[..32].to_owned(),
        l1_offset,
        l1_entries,
        size,
    };
    Ok((snapshot, length as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::MAGIC;
    use proptest::prelude::*;

    const ZERO: u64 = 1;

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

    fn changes(file: &[u8]) -> Result<Vec<(u64, Cluster)>, Qcow2Error> {
        let source = file.to_vec();
        let disk = Disk::open(&source)?;
        let old = disk
            .snapshot("mine")
            .map(|snapshot| disk.state(Some(snapshot)))
            .transpose()?;
        let mut out = Vec::new();
        disk.changed(&disk.state(None)?, old.as_ref(), &mut |index, cluster| {
            out.push((index, cluster));
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
                (3, Cluster::Unallocated)
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
