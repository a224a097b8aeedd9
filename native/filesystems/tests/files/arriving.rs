//! The files of an image as its parts arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use diffcache_core::source::{ReadAt, SourceError};
use diffcache_filesystems::{map_files, ArrivingFiles, FilePiece, Kind, Noted};
use proptest::prelude::*;

use super::{load, partitioned, structures, Damaged, Image, Places, EXT2, EXT4, EXT4_DIRTY};

const BLOCK: usize = 4096;

/// Written by the kernel: a file of 200 blocks in one piece, one of 400 pieces, 40 of one block.
static XFS_FILES: Image = LazyLock::new(|| load("xfs-files"));
static XFS_OLD: Image = LazyLock::new(|| load("xfs4"));

/// An image of which some blocks are here.
struct Arriving {
    image: Vec<u8>,
    here: BTreeSet<usize>,
}

impl Arriving {
    fn new(image: Vec<u8>) -> Arriving {
        let here = BTreeSet::new();
        Arriving { image, here }
    }

    /// Lets the block of a byte arrive, and returns what it says.
    fn arrive(&mut self, files: &mut ArrivingFiles, at: usize) -> Noted {
        self.here.insert(at / BLOCK);
        let start = (at / BLOCK * BLOCK) as u64;
        files.note(self, (start, start + BLOCK as u64))
    }
}

impl ReadAt for Arriving {
    fn len(&self) -> u64 {
        self.image.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let start = offset as usize;
        let mut blocks = start / BLOCK..=(start + buf.len() - 1) / BLOCK;
        if !blocks.all(|block| self.here.contains(&block)) {
            return Err(SourceError::Unavailable {
                name: "image".to_owned(),
                reason: "not here".to_owned(),
            });
        }
        self.image.read_exact_at(buf, offset)
    }
}

/// For each file, by its first block in the image, the position of each of its blocks.
fn places(pieces: impl Iterator<Item = (u64, u64, u64, u64)>) -> BTreeSet<BTreeMap<u64, u64>> {
    let mut files: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for (file, start, end, position) in pieces {
        let blocks = (start..end).step_by(BLOCK).zip((position..).step_by(BLOCK));
        files.entry(file).or_default().extend(blocks);
    }
    files.into_values().collect()
}

fn found_places(pieces: &[FilePiece]) -> BTreeSet<BTreeMap<u64, u64>> {
    places(pieces.iter().map(|p| (p.file, p.start, p.end, p.position)))
}

/// The same of an image that is here as a whole.
fn expected_places(image: &dyn ReadAt) -> BTreeSet<BTreeMap<u64, u64>> {
    let map = map_files(image).unwrap();
    let kind = |entry: u32| map.entries[entry as usize].kind;
    let extents = map.extents.iter().filter(|e| kind(e.entry) == Kind::File);
    places(extents.map(|e| (e.entry.into(), e.start, e.end, e.position)))
}

#[test]
fn all_files_are_found_in_whichever_order_blocks_arrive() {
    let image = partitioned(&EXT4);
    let expected = expected_places(&image);
    let most = expected.iter().map(BTreeMap::len).max();
    // The sparse file's tree of extents has a node besides its root.
    assert!(expected.len() >= 5 && most >= Some(400), "{most:?}");
    let count = image.len() / BLOCK;
    for step in [1, count - 1, 7919] {
        let mut arriving = Arriving::new(image.clone());
        let mut files = ArrivingFiles::default();
        let mut pieces = Vec::new();
        for i in 0..count {
            let noted = arriving.arrive(&mut files, i * step % count * BLOCK);
            assert_eq!(Vec::<String>::new(), noted.refusals);
            pieces.extend(noted.pieces);
        }
        assert!(found_places(&pieces) == expected, "step {step}");
        // Nothing is found twice.
        let unique: BTreeSet<_> = pieces.iter().map(|p| (p.file, p.position)).collect();
        assert_eq!(unique.len(), pieces.len());
    }
}

#[test]
fn a_file_is_found_with_its_inode_and_nothing_before() {
    let mut arriving = Arriving::new(EXT4.as_slice().to_vec());
    let mut files = ArrivingFiles::default();
    let map = map_files(&**EXT4).unwrap();
    let kind = |entry: u32| map.entries[entry as usize].kind;
    let mut tables = map.extents.iter().filter(|e| kind(e.entry) == Kind::Inodes);
    // The first 16 inodes are in the first block; few of them are files.
    let table = tables.next().unwrap().start as usize + BLOCK;
    // Superblock, descriptors, and where other filesystems have their signature.
    for at in [0, BLOCK, 16 * BLOCK] {
        assert_eq!(Noted::default(), arriving.arrive(&mut files, at));
    }
    let data = map.extents.iter().find(|e| kind(e.entry) == Kind::File);
    let data = data.unwrap().start as usize;
    assert_eq!(Noted::default(), arriving.arrive(&mut files, data));
    let found = arriving.arrive(&mut files, table).pieces;
    assert!(!found.is_empty());
    assert!(found_places(&found).is_subset(&expected_places(&**EXT4)));
    // Not again.
    assert_eq!(Noted::default(), arriving.arrive(&mut files, table));
}

#[test]
fn files_of_what_was_not_unmounted_are_found() {
    let noted = ArrivingFiles::default().note(&**EXT4_DIRTY, (0, EXT4_DIRTY.len()));
    assert_eq!(Vec::<String>::new(), noted.refusals);
    assert!(!noted.pieces.is_empty());
}

/// Lets all blocks arrive, in steps of this many, and returns what they say.
fn arrive_all(image: &[u8], step: usize) -> Noted {
    let mut arriving = Arriving::new(image.to_vec());
    let mut files = ArrivingFiles::default();
    let mut all = Noted::default();
    let count = image.len() / BLOCK;
    // Superblock, descriptors, and where other filesystems have their signature.
    for at in [0, 1, 16]
        .into_iter()
        .chain((0..count).map(|i| i * step % count))
    {
        let noted = arriving.arrive(&mut files, at * BLOCK);
        all.pieces.extend(noted.pieces);
        all.refusals.extend(noted.refusals);
    }
    all
}

#[test]
fn files_of_xfs_are_found_in_whichever_order_blocks_arrive() {
    let image = XFS_FILES.as_slice();
    let count = image.len() / BLOCK;
    // Each block of a file begins with the file's name and its place in it.
    let text = |at: u64| String::from_utf8_lossy(&image[at as usize..at as usize + 64]);
    let blocks = (0..count as u64).map(|i| i * BLOCK as u64);
    let expected: BTreeSet<u64> = blocks.filter(|at| text(*at).starts_with("file ")).collect();
    assert_eq!(expected.len(), 200 + 400 + 40);
    for step in [1, count - 1, 7919] {
        let noted = arrive_all(image, step);
        assert_eq!(Vec::<String>::new(), noted.refusals);
        let mut names: BTreeMap<u64, String> = BTreeMap::new();
        let mut found = BTreeSet::new();
        for piece in noted.pieces {
            for at in (piece.start..piece.end).step_by(BLOCK) {
                let number = (piece.position + at - piece.start) / BLOCK as u64;
                let text = text(at);
                let words: Vec<&str> = text.split(' ').collect();
                assert_eq!(["file", &number.to_string()], [words[0], words[3]]);
                let name = names
                    .entry(piece.file)
                    .or_insert_with(|| words[1].to_owned());
                assert_eq!(name, words[1]);
                assert!(found.insert(at));
            }
        }
        assert_eq!(names.len(), 42);
        assert!(found == expected);
    }
}

#[test]
fn what_cannot_be_followed_is_named_once() {
    let noted = arrive_all(XFS_OLD.as_slice(), 1);
    let [refusal] = &noted.refusals[..] else {
        panic!("{:?}", noted.refusals);
    };
    assert!(refusal.contains("at byte 0") && refusal.contains("version 4"));
    assert!(noted.pieces.is_empty());
}

#[test]
fn maps_of_blocks_are_not_followed() {
    let mut files = ArrivingFiles::default();
    let noted = files.note(&**EXT2, (0, EXT2.len()));
    assert_eq!(Noted::default(), noted);
}

fn note_all(image: &Damaged) -> Noted {
    ArrivingFiles::default().note(image, (0, image.len()))
}

#[test]
fn a_tree_of_extents_that_contains_itself_ends() {
    // Each of four entries of an inode's root is the same node, and each of 340 of that, and so on.
    let image = &***EXT4;
    let whole = note_all(&damaged(&EXT4, BTreeMap::new()));
    let map = map_files(&**EXT4).unwrap();
    let is_table =
        |e: &&diffcache_filesystems::Extent| map.entries[e.entry as usize].kind == Kind::Inodes;
    let table = map.extents.iter().find(is_table).unwrap();
    let inodes = (table.start as usize..table.end as usize).step_by(256);
    let inode = inodes
        .skip(11)
        .find(|at| image[at + 1] & 0xf0 == 0x80 && image[at + 0x2e] == 0)
        .unwrap();
    let (first, count) = (3000u32, 5u32);
    let mut bytes = BTreeMap::new();
    let node = |depth: u16, entries: usize, child: u32| {
        let mut node = vec![0x0a, 0xf3];
        node.extend((entries as u16).to_le_bytes());
        node.extend((entries as u16).to_le_bytes());
        node.extend(depth.to_le_bytes());
        node.extend([0; 4]);
        for i in 0..entries as u32 {
            node.extend(i.to_le_bytes());
            node.extend(child.to_le_bytes());
            node.extend([0; 4]);
        }
        node
    };
    bytes.extend((inode + 0x28..).zip(node(5, 4, first)));
    for level in 0..count {
        let at = (first + level) as usize * BLOCK;
        let child = first + level + 1;
        bytes.extend((at..).zip(node((4 - level) as u16, 340, child)));
    }
    let found = note_all(&damaged(&EXT4, bytes));
    assert!(found.pieces.len() <= whole.pieces.len() + 340);
}

fn damaged(image: &Image, bytes: BTreeMap<usize, u8>) -> Damaged {
    Damaged {
        image: Arc::clone(image),
        bytes,
        len: image.as_slice().len(),
    }
}

/// Where blocks of XFS begin that say where files are: superblock, inodes, nodes of trees.
fn xfs_structures() -> Vec<usize> {
    let tells = |at: &usize| {
        let block = &XFS_FILES[*at..];
        ["XFSB", "IN", "BMA3"]
            .iter()
            .any(|magic| block.starts_with(magic.as_bytes()))
    };
    (0..XFS_FILES.as_slice().len())
        .step_by(512)
        .filter(tells)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_structures_do_no_harm_as_they_arrive(
        changes in prop::collection::vec((any::<Places>(), 0..64usize, any::<u8>()), 1..10),
    ) {
        static STRUCTURES: LazyLock<Vec<usize>> =
            LazyLock::new(|| structures(&EXT4));
        let places = &*STRUCTURES;
        let bytes = changes.iter().map(|(at, within, byte)| (at.get(places) + within, *byte));
        let image = damaged(&EXT4, bytes.collect());
        // A read that leaves the image would panic.
        for piece in note_all(&image).pieces {
            prop_assert!(piece.start < piece.end && piece.end <= image.len());
        }
    }

    #[test]
    fn damaged_structures_of_xfs_do_no_harm_as_they_arrive(
        changes in prop::collection::vec((any::<Places>(), 0..256usize, any::<u8>()), 1..10),
    ) {
        static STRUCTURES: LazyLock<Vec<usize>> = LazyLock::new(xfs_structures);
        let places = &*STRUCTURES;
        prop_assert!(places.len() > 42);
        let bytes = changes.iter().map(|(at, within, byte)| (at.get(places) + within, *byte));
        let image = damaged(&XFS_FILES, bytes.collect());
        // What this filesystem has is near its start.
        let noted = ArrivingFiles::default().note(&image, (0, 24 << 20));
        for piece in noted.pieces {
            prop_assert!(piece.start < piece.end && piece.end <= image.len());
        }
    }
}

/// An image of a filesystem of as many groups whose tables of inodes are all of one block, and of which all is here; it is in no memory.
struct Crafted {
    groups: u64,
    block: Vec<u8>,
}

const GROUP_BLOCKS: u64 = 32_768;
const TABLE_BLOCKS: u64 = 16_384;

impl Crafted {
    /// Each inode has four extents.
    fn new(groups: u64) -> Crafted {
        let mut inode = [0; 128];
        inode[..2].copy_from_slice(&0x81a4u16.to_le_bytes());
        inode[0x1a] = 1;
        inode[0x20..0x24].copy_from_slice(&0x8_0000u32.to_le_bytes());
        inode[0x28..0x30].copy_from_slice(&[0x0a, 0xf3, 4, 0, 4, 0, 0, 0]);
        for k in 0..4u8 {
            let extent = &mut inode[0x34 + 12 * usize::from(k)..][..12];
            (extent[0], extent[4], extent[8]) = (8 * k, 1, 1 + k);
        }
        Crafted {
            groups,
            block: inode.repeat(BLOCK / 128),
        }
    }

    fn superblock(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        let inodes = TABLE_BLOCKS * BLOCK as u64 / 128;
        let words = [
            (0x4, self.groups * GROUP_BLOCKS),
            (0x18, 2),
            (0x20, GROUP_BLOCKS),
            (0x24, GROUP_BLOCKS),
            (0x28, inodes),
            (0x38, 0x1_ef53),
            (0x4c, 1),
            (0x58, 128),
            (0x60, 0x42),
        ];
        for (at, word) in words {
            block[1024 + at..][..4].copy_from_slice(&(word as u32).to_le_bytes());
        }
        block
    }

    fn descriptors(&self) -> Vec<u8> {
        let mut block = vec![0; BLOCK];
        for (group, descriptor) in (0..self.groups).zip(block.chunks_mut(32)) {
            let first = group * GROUP_BLOCKS;
            for (word, within) in (0..).zip([100, 101, 128]) {
                let number = (first + within) as u32;
                descriptor[4 * word..4 * word + 4].copy_from_slice(&number.to_le_bytes());
            }
        }
        block
    }
}

impl ReadAt for Crafted {
    fn len(&self) -> u64 {
        self.groups * GROUP_BLOCKS * BLOCK as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let (number, within) = (offset / BLOCK as u64, offset as usize % BLOCK);
        let block = match number {
            0 => self.superblock(),
            1 => self.descriptors(),
            _ => self.block.clone(),
        };
        buf.copy_from_slice(&block[within..within + buf.len()]);
        Ok(())
    }
}

#[test]
fn what_is_found_is_bounded_while_it_is_collected() {
    let image = Crafted::new(8);
    let mut files = ArrivingFiles::default();
    let noted = files.note(&image, (0, BLOCK as u64));
    assert_eq!(noted.refusals, Vec::<String>::new());
    // Of the 2^24 extents that the tables have.
    assert_eq!(noted.pieces.len(), 1 << 18);
    assert!(noted.pieces.capacity() <= 1 << 19);
    let again = files.note(&image, (0, image.len()));
    assert_eq!(again, Noted::default());
}

/// A sparse image: a superblock, and zeros.
struct Sparse {
    superblock: Vec<u8>,
    len: u64,
    longest_read: std::sync::atomic::AtomicUsize,
}

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let order = std::sync::atomic::Ordering::Relaxed;
        self.longest_read.fetch_max(buf.len(), order);
        buf.fill(0);
        let start = offset as usize;
        for (at, byte) in (start..).zip(buf) {
            *byte = self.superblock.get(at).copied().unwrap_or(0);
        }
        Ok(())
    }
}

#[test]
fn a_superblock_of_absurdly_many_groups_is_refused_and_takes_no_memory() {
    let mut superblock = vec![0; 2048];
    let groups = 1u32 << 20;
    for (per_group, is_absurd) in [(8, true), (256, false)] {
        let words = [
            (0x4, per_group * groups),
            (0x14, 1),
            (0x20, per_group),
            (0x24, per_group),
            (0x28, 8),
            (0x4c, 1),
            (0x60, 0xc2),
        ];
        for (at, word) in words {
            superblock[1024 + at..][..4].copy_from_slice(&word.to_le_bytes());
        }
        for (at, half) in [(0x38, 0xef53u16), (0x3a, 1), (0x58, 128), (0xfe, 1024)] {
            superblock[1024 + at..][..2].copy_from_slice(&half.to_le_bytes());
        }
        let image = Sparse {
            superblock: superblock.clone(),
            len: u64::from(per_group) * u64::from(groups) * 1024 + (1 << 20),
            longest_read: Default::default(),
        };
        let noted = ArrivingFiles::default().note(&image, (0, 4096));
        assert_eq!(noted.refusals.len(), 1, "{per_group} blocks");
        assert_eq!(noted.refusals[0].contains("contradicts"), is_absurd);
        let map = map_files(&image).unwrap();
        assert!(map.extents.len() < 9);
        let longest = image.longest_read.into_inner();
        assert!(longest <= 1 << 20, "{longest} bytes at once");
    }
}
