//! The files of an image as its parts arrive.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use diffcache_core::fs::{map_files, ArrivingFiles, FilePiece, Kind, Noted};
use diffcache_core::source::{ReadAt, SourceError};
use proptest::prelude::*;

use super::{partitioned, structures, Damaged, Image, Places, EXT2, EXT4, EXT4_DIRTY};

const BLOCK: usize = 4096;

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
fn what_is_not_clean_is_named_once_and_left_alone() {
    let mut arriving = Arriving::new(EXT4_DIRTY.as_slice().to_vec());
    let mut files = ArrivingFiles::default();
    let blocks = EXT4_DIRTY.as_slice().len() / BLOCK;
    let noted: Vec<_> = (0..blocks)
        .map(|i| arriving.arrive(&mut files, i * BLOCK))
        .collect();
    assert!(noted.iter().all(|noted| noted.pieces.is_empty()));
    let refusals: Vec<_> = noted.iter().flat_map(|noted| &noted.refusals).collect();
    let [refusal] = refusals[..] else {
        panic!("{refusals:?}");
    };
    assert!(refusal.contains("at byte 0") && refusal.contains("unmount"));
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
        |e: &&diffcache_core::fs::Extent| map.entries[e.entry as usize].kind == Kind::Inodes;
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn damaged_structures_do_no_harm_as_they_arrive(
        changes in prop::collection::vec((any::<Places>(), 0..64usize, any::<u8>()), 1..10),
    ) {
        static STRUCTURES: std::sync::LazyLock<Vec<usize>> =
            std::sync::LazyLock::new(|| structures(&EXT4));
        let places = &*STRUCTURES;
        let bytes = changes.iter().map(|(at, within, byte)| (at.get(places) + within, *byte));
        let image = damaged(&EXT4, bytes.collect());
        // A read that leaves the image would panic.
        for piece in note_all(&image).pieces {
            prop_assert!(piece.start < piece.end && piece.end <= image.len());
        }
    }
}
