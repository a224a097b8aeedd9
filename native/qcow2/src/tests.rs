//! Tests on images made here byte by byte: valid ones in every flavour, hostile ones, and valid ones that were damaged.

mod recipes;
mod refusals;

use std::path::Path;
use std::sync::Arc;

use diffcache_core::manifest::Manifest;
use diffcache_core::patch::CreateOptions;
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_core::task::Task;
use proptest::prelude::*;

use crate::cluster::{compressed_entry, plain_entry, Cluster};
use crate::compress::Settings;
use crate::header::{Compression, Header};
use crate::map::Map;
use crate::patch::TargetView;
use crate::recipe::{describe, rebuild, Ingredients, Recipe, RecipeView, PIECE};
use crate::snapshots::Disk;
use crate::{image as images, patch, Qcow2Error, Qcow2Source};

const BITS: u32 = 9;
const CLUSTER: usize = 1 << BITS;

/// How a test image is to be written.
#[derive(Debug, Clone, Copy)]
struct Flavour {
    version: u32,
    compression: Compression,
    compressed: bool,
    /// Another compressor than the usual, whose streams cannot be made again.
    foreign: bool,
}

const PLAIN: Flavour = Flavour {
    version: 3,
    compression: Compression::Zlib,
    compressed: false,
    foreign: false,
};
const ZLIB: Flavour = Flavour {
    compressed: true,
    ..PLAIN
};
const ZSTD: Flavour = Flavour {
    compression: Compression::Zstd,
    ..ZLIB
};
const V2: Flavour = Flavour { version: 2, ..ZLIB };
const FOREIGN: Flavour = Flavour {
    foreign: true,
    ..ZLIB
};

fn put32(image: &mut [u8], at: usize, value: u32) {
    image[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

fn put64(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

const L1: usize = 3 * CLUSTER;
const REFTABLE: usize = CLUSTER;
const REFBLOCK: usize = 2 * CLUSTER;
const FIRST_L2: usize = 4 * CLUSTER;

fn header(flavour: Flavour, size: usize, l1_entries: usize) -> Vec<u8> {
    let mut image = vec![0; FIRST_L2 + l1_entries * CLUSTER];
    image[..4].copy_from_slice(b"QFI\xfb");
    put32(&mut image, 4, flavour.version);
    put32(&mut image, 20, BITS);
    put64(&mut image, 24, size as u64);
    put32(&mut image, 36, l1_entries as u32);
    put64(&mut image, 40, L1 as u64);
    put64(&mut image, 48, REFTABLE as u64);
    put32(&mut image, 56, 1);
    put64(&mut image, REFTABLE, REFBLOCK as u64);
    if flavour.version == 3 {
        put32(&mut image, 96, 4);
        put32(&mut image, 100, 104);
        if flavour.compression == Compression::Zstd {
            put64(&mut image, 72, 8);
            put32(&mut image, 100, 112);
            image[104] = 1;
        }
    }
    image
}

/// A stream that our compressor never produces.
fn foreign_stream(cluster: &[u8]) -> Vec<u8> {
    let mut out = vec![1];
    let length = cluster.len() as u16;
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(cluster);
    out
}

/// Writes `content` as a qcow2 image.
fn image(content: &[u8], flavour: Flavour) -> Vec<u8> {
    let clusters: Vec<&[u8]> = content.chunks(CLUSTER).collect();
    let l1_entries = clusters.len().div_ceil(CLUSTER / 8).max(1);
    let mut image = header(flavour, content.len(), l1_entries);
    let mut compressor = Settings::candidates(flavour.compression)[0]
        .compressor()
        .unwrap();
    for table in 0..l1_entries {
        put64(
            &mut image,
            L1 + table * 8,
            (FIRST_L2 + table * CLUSTER) as u64 | 1 << 63,
        );
    }
    for (index, cluster) in clusters.iter().enumerate() {
        if cluster.iter().all(|&byte| byte == 0) {
            continue;
        }
        let mut whole = cluster.to_vec();
        whole.resize(CLUSTER, 0);
        let mut stream = Vec::new();
        let shorter = compressor.compress(&whole, &mut stream).unwrap();
        let entry = if flavour.compressed && (shorter || flavour.foreign) {
            if flavour.foreign {
                stream = foreign_stream(&whole);
            }
            let offset = image.len() as u64;
            image.extend(&stream);
            compressed_entry(BITS, offset, stream.len() as u64)
        } else {
            image.resize(image.len().next_multiple_of(CLUSTER), 0);
            let offset = image.len() as u64;
            image.extend(&whole);
            plain_entry(offset)
        };
        put64(&mut image, FIRST_L2 + index * 8, entry);
    }
    image
}

/// Content that compresses, with runs of zeroes.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        (0..2000_usize).prop_map(|length| vec![0; length]),
        (any::<u8>(), 0..2000_usize).prop_map(|(byte, length)| vec![byte; length]),
        prop::collection::vec(any::<u8>(), 0..700),
        prop::collection::vec(b'a'..=b'd', 0..1500),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn flavour() -> impl Strategy<Value = Flavour> {
    prop::sample::select(vec![PLAIN, ZLIB, ZSTD, V2, FOREIGN])
}

fn open(bytes: Vec<u8>) -> Result<Qcow2Source, Qcow2Error> {
    Qcow2Source::open(Arc::new(bytes))
}

fn read_all(source: &dyn ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; source.len() as usize];
    source.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Creates and applies a patch between two files; returns what came out.
fn round_trip(dir: &Path, base: &[u8], target: &[u8]) -> Result<Vec<u8>, Qcow2Error> {
    let [from, to, between, out] = ["base", "target", "patch", "out"].map(|name| dir.join(name));
    std::fs::write(&from, base).unwrap();
    std::fs::write(&to, target).unwrap();
    let info = patch::create(&from, &to, &between, &CreateOptions::default())?;
    assert_eq!(info.header.target_size, target.len() as u64);
    patch::verify(&from, &between, &Task::default())?;
    patch::apply(&from, &between, &out, &Task::default())?;
    Ok(std::fs::read(&out).unwrap())
}

/// Content whose file has one piece, or several. Streams that the test's clusters have no room for are short.
fn longer(content: &[u8], times: usize, flavour: Flavour) -> Vec<u8> {
    let most = if flavour.foreign { 7 } else { 4000 };
    let mut longer = content.repeat(times);
    longer.truncate(most * CLUSTER);
    longer
}

/// Opens the target of the patch that `round_trip` left for reading.
fn view_of(dir: &Path, content: Vec<u8>) -> Result<Option<TargetView>, Qcow2Error> {
    TargetView::open(Arc::new(content), &dir.join("patch"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn content_is_what_the_guest_reads(content in content(), flavour in flavour()) {
        let source = open(image(&content, flavour)).unwrap();
        prop_assert_eq!(read_all(&source), content);
    }

    #[test]
    fn images_and_disks_are_read_alike(content in content(), flavour in flavour()) {
        let bytes = image(&content, flavour);
        let map = Map::read(&bytes).unwrap();
        let disk = Disk::open(&bytes).unwrap();
        let mut found = Vec::new();
        let state = disk.state(None).unwrap();
        disk.changed(&state, None, &mut |index, cluster| found.push((index, cluster))).unwrap();
        prop_assert_eq!(found, map.iter().collect::<Vec<_>>());
    }

    #[test]
    fn entries_come_back(bits in 9..=21_u32, place in 1..1_u64 << 32, length in 1..1_u64 << 21) {
        let header = Header { cluster_bits: bits, file_size: 1 << 50, ..refusals::sample_header() };
        let length = length % (1 << bits) + 1;
        let entry = compressed_entry(bits, place, length);
        let Cluster::Compressed { offset, length: upper } = Cluster::decode(&header, entry) else {
            panic!("{entry:x}")
        };
        prop_assert_eq!(offset, place);
        prop_assert!((length..length + 512).contains(&upper), "{} for {}", upper, length);
        prop_assert_eq!(Cluster::decode(&header, plain_entry(place << bits)), Cluster::Plain(place << bits));
    }

    #[test]
    fn any_target_comes_back_bit_for_bit(
        base in content(), edit in content(), at in any::<prop::sample::Index>(),
        forms in (prop::option::of(flavour()), prop::option::of(flavour())),
    ) {
        let mut target = base.clone();
        let cut = at.index(base.len() + 1);
        target.splice(cut..base.len().min(cut + edit.len() / 2), edit);
        let write = |content: &[u8], form: Option<Flavour>| form.map_or(content.to_vec(), |form| image(content, form));
        let (base, target) = (write(&base, forms.0), write(&target, forms.1));
        let dir = tempfile::tempdir().unwrap();
        prop_assert_eq!(round_trip(dir.path(), &base, &target).unwrap(), target);
    }

    #[test]
    fn damaged_images_never_crash_the_reader(
        content in content(), flavour in flavour(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), tables in any::<bool>(),
    ) {
        let mut bytes = image(&content, flavour);
        let span = if tables { bytes.len().min(FIRST_L2 + 2 * CLUSTER) } else { bytes.len() };
        for (at, byte) in damage {
            bytes[at.index(span)] = byte;
        }
        if let Ok(source) = open(bytes) {
            if source.len() < 1 << 20 {
                let mut all = vec![0; source.len() as usize];
                // Either outcome is right; reading outside the file would panic.
                let _ = source.read_exact_at(&mut all, 0);
            }
        }
    }

    #[test]
    fn damaged_forms_never_crash_a_rebuild(
        content in content(), flavour in flavour(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut in any::<prop::sample::Index>(),
    ) {
        let source = open(image(&content, flavour)).unwrap();
        let mut description = describe(&source, None, &Task::default()).unwrap();
        description.add_sequence(&Manifest::from_source(source.file(), &Task::default()).unwrap());
        let mut bytes = description.recipe.encode(&description.placed);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len() * 4) + 1);
        if let Ok(recipe) = Recipe::decode(&bytes) {
            let out = tempfile::tempfile().unwrap();
            let stored = vec![0; 1 << 16];
            let ingredients = Ingredients { recipe: &recipe, content: &source, base: Some(&source), stored: &stored };
            // Either outcome is right; a panic is not.
            let _ = rebuild(&ingredients, &out, &Task::default());
            if let Some(sequence) = &recipe.sequence {
                let _ = sequence.places(&recipe.layout, &recipe.streams);
            }
        }
    }

    #[test]
    fn any_range_of_a_target_is_read_without_the_rest(
        content in content(), flavour in flavour(), times in 1..60_usize,
        ranges in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..6),
    ) {
        let content = longer(&content, times, flavour);
        let dir = tempfile::tempdir().unwrap();
        let target = image(&content, flavour);
        round_trip(dir.path(), &content, &target).unwrap();
        let view = view_of(dir.path(), content).unwrap().unwrap();
        prop_assert_eq!(view.size(), target.len() as u64);
        for (at, length) in ranges {
            let at = at.index(target.len() + 9);
            let end = (at + length.index(target.len() + 9)).min(target.len());
            let read = view.read(at as u64, (end.max(at) - at) as u64, &Task::default()).unwrap();
            prop_assert_eq!(&read, target.get(at..end).unwrap_or_default());
        }
        prop_assert_eq!(view.read(0, u64::MAX, &Task::default()).unwrap(), target);
    }

    #[test]
    fn a_damaged_patch_or_content_never_gives_a_wrong_byte(
        content in content(), flavour in flavour(), times in 1..60_usize, which in any::<bool>(),
        at in any::<prop::sample::Index>(), flip in 1..=255_u8,
    ) {
        let mut content = longer(&content, times, flavour);
        content.push(1);
        let dir = tempfile::tempdir().unwrap();
        let target = image(&content, flavour);
        round_trip(dir.path(), &content, &target).unwrap();
        if which {
            let at = at.index(content.len());
            content[at] ^= flip;
        } else {
            let path = dir.path().join("patch");
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            std::fs::write(path, bytes).unwrap();
        }
        if let Ok(Some(view)) = view_of(dir.path(), content) {
            for (number, piece) in target.chunks(PIECE as usize).enumerate() {
                if let Ok(read) = view.read(number as u64 * PIECE, PIECE, &Task::default()) {
                    prop_assert_eq!(&read, piece);
                }
            }
        }
    }

    #[test]
    fn damaged_patches_never_give_a_wrong_image(
        base in content(), target in content(), flavour in flavour(),
        at in any::<prop::sample::Index>(), flip in 1..=255_u8, cut in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let target = image(&target, flavour);
        round_trip(dir.path(), &base, &target).unwrap();
        let (between, out) = (dir.path().join("patch"), dir.path().join("again"));
        let mut bytes = std::fs::read(&between).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        std::fs::write(&between, &bytes).unwrap();
        match patch::apply(&dir.path().join("base"), &between, &out, &Task::default()) {
            Ok(_) => prop_assert_eq!(std::fs::read(&out).unwrap(), target),
            Err(_) => prop_assert!(!out.exists()),
        }
        let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        prop_assert!(left.len() <= 5, "{left:?}");
    }
}

/// Who began to read behind the end of the file, within its last cluster, got an error.
#[test]
fn what_a_cut_last_cluster_lacks_reads_as_zeroes() {
    let mut bytes = image(&[7; CLUSTER], PLAIN);
    bytes.truncate(bytes.len() - 100);
    let source = open(bytes).unwrap();
    let mut end = [1; 50];
    source.read_exact_at(&mut end, CLUSTER as u64 - 50).unwrap();
    assert_eq!(end, [0; 50]);
    assert_eq!(read_all(&source)[..CLUSTER - 100], [7; CLUSTER - 100]);
}
