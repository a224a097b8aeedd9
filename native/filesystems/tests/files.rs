//! The files of real filesystems, and of damaged ones.
//!
//! The images `ext4-files` and `ext2-files` in `data` were made by mke2fs from one folder, and their directories indexed by e2fsck: a sparse file of 400
//! pieces, a file of 700,000 bytes, 600 long names in a directory, links. What is found is compared with what the crate ext4-view reads.

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used)]

#[path = "files/arriving.rs"]
mod arriving;
mod volumes;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use diffcache_core::source::{ReadAt, SourceError};
use diffcache_filesystems::{map_files, survey, Entry, Extent, FileMap, Kind};
use proptest::prelude::*;
use volumes::{load, Image};

static EXT4: Image = LazyLock::new(|| load("ext4-files"));
static EXT2: Image = LazyLock::new(|| load("ext2-files"));
static EXT4_DIRTY: Image = LazyLock::new(|| load("ext4-dirty"));
static XFS: Image = LazyLock::new(|| load("xfs"));

/// Fails unless each byte of an image is in one extent, of an entry that there is.
fn assert_covers(map: &FileMap, len: u64) {
    let mut at = 0;
    for extent in &map.extents {
        assert_eq!(at, extent.start);
        assert!(extent.start < extent.end);
        assert!((extent.entry as usize) < map.entries.len());
        at = extent.end;
    }
    assert_eq!(at, len);
}

fn bytes_by_kind(map: &FileMap) -> BTreeMap<Kind, u64> {
    let mut bytes = BTreeMap::new();
    for extent in &map.extents {
        let kind = map.entries[extent.entry as usize].kind;
        *bytes.entry(kind).or_default() += extent.end - extent.start;
    }
    bytes
}

/// The content of each file as its extents have it, by path.
fn contents(map: &FileMap, image: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut contents: Vec<Vec<u8>> = map
        .entries
        .iter()
        .map(|entry| vec![0; entry.size as usize])
        .collect();
    let is_file = |extent: &&Extent| map.entries[extent.entry as usize].kind == Kind::File;
    for extent in map.extents.iter().filter(is_file) {
        let content = &mut contents[extent.entry as usize];
        let at = extent.position as usize;
        let count = (extent.end - extent.start).min((content.len() - at) as u64) as usize;
        let start = extent.start as usize;
        content[at..at + count].copy_from_slice(&image[start..start + count]);
    }
    let files = map.entries.iter().zip(contents);
    files
        .filter(|(entry, _)| entry.kind == Kind::File)
        .map(|(entry, content)| (entry.path.clone(), content))
        .collect()
}

/// The contents of files below a folder as ext4-view reads them; of names of one file the first.
fn expected(volume: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let filesystem = ext4_view::Ext4::load(Box::new(volume.to_vec())).unwrap();
    let mut found = BTreeMap::new();
    let mut folders = vec!["/".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in filesystem.read_dir(folder.as_str()).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().to_str().unwrap().to_owned();
            let kind = entry.file_type().unwrap();
            if matches!(entry.file_name().as_ref(), b"." | b"..") {
                continue;
            }
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_regular_file() {
                found.insert(path.clone(), filesystem.read(path.as_str()).unwrap());
            }
        }
    }
    // Another name of /usr/bin/a.
    assert!(found.remove("/usr/bin/b").is_some());
    found
}

#[test]
fn contents_are_those_that_another_program_reads() {
    for image in [&EXT4, &EXT2] {
        let map = map_files(&**image).unwrap();
        assert_covers(&map, image.as_slice().len() as u64);
        let found = contents(&map, image);
        assert!(found.len() > 600);
        assert!(found == expected(image));
    }
}

#[test]
fn what_is_no_file_is_named_by_its_use() {
    let map = map_files(&*EXT4).unwrap();
    let bytes = bytes_by_kind(&map);
    let free = survey(&*EXT4).unwrap().filesystems[0].free.clone();
    assert_eq!(Ok(bytes[&Kind::Free]), free);
    // As dumpe2fs says: 1024 inodes of 256 bytes, 1024 blocks of journal.
    assert_eq!(256 << 10, bytes[&Kind::Inodes]);
    assert_eq!(4 << 20, bytes[&Kind::Journal]);
    assert!(bytes[&Kind::Metadata] >= 3 * 4096);
    let directory = |entry: &&Entry| entry.kind == Kind::Directory;
    let mut paths: Vec<_> = map.entries.iter().filter(directory).collect();
    paths.sort_by_key(|entry| &entry.path);
    let paths: Vec<_> = paths.iter().map(|entry| entry.path.as_str()).collect();
    assert_eq!(vec!["/", "/lost+found", "/many", "/usr", "/usr/bin"], paths);
}

/// An image with a partition table and two partitions of which the second is empty.
fn partitioned(volume: &[u8]) -> Vec<u8> {
    let mut image = vec![0; 1 << 20];
    let sectors = (volume.len() / 512) as u32;
    for (at, start, count) in [(446, 2048, sectors), (462, 4096 + sectors, 64)] {
        image[at + 4] = 0x83;
        image[at + 8..at + 12].copy_from_slice(&u32::to_le_bytes(start));
        image[at + 12..at + 16].copy_from_slice(&u32::to_le_bytes(count));
    }
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image.extend_from_slice(volume);
    image.resize(image.len() + (2 << 20), 0);
    image
}

#[test]
fn files_are_found_in_partitions() {
    let image = partitioned(&EXT4);
    let map = map_files(&image).unwrap();
    assert_covers(&map, image.len() as u64);
    let file = |entry: &&Entry| entry.kind == Kind::File;
    assert!(map
        .entries
        .iter()
        .filter(file)
        .all(|entry| entry.partition == 1 << 20));
    assert!(contents(&map, &image) == expected(&EXT4));
    let bytes = bytes_by_kind(&map);
    assert_eq!(64 * 512, bytes[&Kind::Unknown]);
    assert_eq!((3 << 20) - 64 * 512, bytes[&Kind::Unpartitioned]);
}

#[test]
fn what_cannot_be_read_is_unknown() {
    for (image, reason) in [
        (&*EXT4_DIRTY, "mount and unmount"),
        (&*XFS, "files of xfs are not read"),
    ] {
        let map = map_files(image).unwrap();
        assert_covers(&map, image.as_slice().len() as u64);
        let unknown = map.entries.iter().find(|e| e.kind == Kind::Unknown);
        let found = &unknown.unwrap().reason;
        assert!(found.contains(reason), "{found}");
    }
    let map = map_files(&vec![7u8; 5000]).unwrap();
    assert_eq!(5000, bytes_by_kind(&map)[&Kind::Unknown]);
    assert_eq!(FileMap::default(), map_files(&Vec::new()).unwrap());
}

/// An image of which some bytes are others.
struct Damaged {
    image: Arc<Vec<u8>>,
    bytes: BTreeMap<usize, u8>,
    len: usize,
}

impl ReadAt for Damaged {
    fn len(&self) -> u64 {
        self.len as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.image[..self.len].read_exact_at(buf, offset)?;
        let start = offset as usize;
        for (at, byte) in self.bytes.range(start..start + buf.len()) {
            buf[at - start] = *byte;
        }
        Ok(())
    }
}

/// Where the structures of an image are that say where files are stored: inodes, directories and what is counted as metadata, block by block.
fn structures(image: &Image) -> Vec<usize> {
    let map = map_files(&**image).unwrap();
    let tells = |kind| matches!(kind, Kind::Inodes | Kind::Directory | Kind::Metadata);
    let of = map.extents.iter();
    of.filter(|extent| tells(map.entries[extent.entry as usize].kind))
        .flat_map(|extent| (extent.start..extent.end).step_by(64))
        .map(|at| at as usize)
        .filter(|at| image[*at..*at + 64].iter().any(|byte| *byte != 0))
        .collect()
}

/// Fails where a damaged image does harm; returns whether its files were found.
fn check(damaged: &Damaged) -> bool {
    // No read leaves the image: it would be refused, and so fail.
    let map = map_files(damaged).unwrap();
    assert_covers(&map, damaged.len as u64);
    bytes_by_kind(&map).contains_key(&Kind::File)
}

type Places = prop::sample::Index;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// The superblock, descriptors and bitmaps have checksums that refuse damage before files are looked for, so that most of it is elsewhere; the
    /// ext2 has none.
    #[test]
    fn damaged_structures_do_no_harm(
        changes in prop::collection::vec((any::<Places>(), 0..64usize, any::<u8>()), 1..10),
        cut in prop::option::weighted(0.1, any::<Places>()),
    ) {
        static PLACES: LazyLock<[Vec<usize>; 2]> =
            LazyLock::new(|| [structures(&EXT4), structures(&EXT2)]);
        for (image, places) in [&EXT4, &EXT2].into_iter().zip(&*PLACES) {
            let size = image.as_slice().len();
            check(&Damaged {
                image: Arc::clone(image),
                bytes: changes.iter().map(|(at, within, byte)| (at.get(places) + within, *byte)).collect(),
                len: cut.map_or(size, |cut| cut.index(size)),
            });
        }
    }
}

/// Where the inode of a path of `EXT2` is: its first bytes in the image.
fn inode_of(size: u32) -> usize {
    let map = map_files(&*EXT2).unwrap();
    let tables = map
        .extents
        .iter()
        .filter(|extent| map.entries[extent.entry as usize].kind == Kind::Inodes);
    let found = tables
        .flat_map(|extent| (extent.start as usize..extent.end as usize).step_by(128))
        .find(|at| EXT2[at + 4..at + 8] == size.to_le_bytes() && EXT2[at + 1] & 0xf0 == 0x80);
    found.unwrap()
}

fn with(at: usize, bytes: &[u8]) -> Damaged {
    Damaged {
        image: Arc::clone(&EXT2),
        bytes: (at..).zip(bytes.iter().copied()).collect(),
        len: EXT2.as_slice().len(),
    }
}

fn reason(image: &Damaged) -> String {
    let map = map_files(image).unwrap();
    assert_covers(&map, image.len());
    map.entries[0].reason.clone()
}

#[test]
fn a_directory_that_is_stored_in_its_inode_is_refused() {
    // The root's is the second one of the first table.
    let map = map_files(&*EXT2).unwrap();
    let is_table = |extent: &&Extent| map.entries[extent.entry as usize].kind == Kind::Inodes;
    let table = map.extents.iter().find(is_table).unwrap();
    let inode_len = u16::from_le_bytes([EXT2[1024 + 0x58], EXT2[1024 + 0x59]]);
    let flags = table.start as usize + usize::from(inode_len) + 0x20;
    let found = reason(&with(flags + 3, &[EXT2[flags + 3] | 0x10]));
    assert!(found.contains("stored in its inode"), "{found}");
}

#[test]
fn a_map_of_blocks_that_contains_itself_ends() {
    // The file of 700,000 bytes gets the greatest size, and itself below itself.
    let inode = inode_of(700_000);
    let double = EXT2[inode + 0x28 + 52..inode + 0x28 + 56].to_vec();
    let at = u32::from_le_bytes(double.clone().try_into().unwrap()) as usize * 1024;
    let mut image = with(at, &double.repeat(256));
    image.bytes.extend((inode + 4..).zip([0xff; 4]));
    image.bytes.extend((inode + 0x28 + 56..).zip(double));
    let found = reason(&image);
    assert!(!found.is_empty(), "{found}");
}

#[test]
fn two_files_in_one_place_are_refused() {
    let (one, other) = (inode_of(5000), inode_of(3000));
    let image = with(one + 0x28, &EXT2[other + 0x28..other + 0x2c]);
    let found = reason(&image);
    assert!(found.contains("in the same place"), "{found}");
}

#[test]
fn a_file_outside_of_the_filesystem_is_refused() {
    let image = with(inode_of(5000) + 0x28, &[0xff; 4]);
    let found = reason(&image);
    assert!(found.contains("outside of the filesystem"), "{found}");
}

#[test]
fn a_table_of_inodes_outside_of_the_partition_is_refused() {
    // The descriptor of the only group of inodes that are in use: the last block of the filesystem is the first of the table.
    let last = (EXT2.as_slice().len() as u32 / 1024 - 1).to_le_bytes();
    let image = with(2048 + 8, &last);
    let found = reason(&image);
    assert!(!found.is_empty(), "{found}");
    assert!(
        found.contains("root") || found.contains("outside"),
        "{found}"
    );
}

#[test]
fn directories_in_circles_are_refused() {
    // The entry of "bin" in /usr names /usr.
    let map = map_files(&*EXT2).unwrap();
    let place = map.entries.iter().position(|e| e.path == "/usr").unwrap();
    let extent = map.extents.iter().find(|e| e.entry as usize == place);
    let start = extent.unwrap().start as usize;
    let block = &EXT2[start..start + 1024];
    let name = block.windows(3).position(|part| part == b"bin").unwrap();
    let image = with(start + name - 8, &block[..4]);
    let found = reason(&image);
    assert!(found.contains("in two places"), "{found}");
}
