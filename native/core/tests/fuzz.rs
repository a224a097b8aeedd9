//! Forged patches and images: whatever a file says, nothing panics, nothing is read outside of it, and no more memory is taken than the engine promises.
//!
//! What is changed are the numbers behind the hashes and the compression, as somebody would who means harm: bytes changed at random rarely get past
//! those. A run tries some hundred cases of each kind; with DIFFCACHE_FUZZ_SECONDS set to a number, as many as that time allows, from another seed
//! each time (or from that of DIFFCACHE_FUZZ_SEED).

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use diffcache_core::patch::format::HEADER_LEN;
use diffcache_core::patch::{
    apply_to_sink, create, info, target_manifest, verify, CreateOptions, PatchView,
};
use diffcache_core::qcow2::Qcow2Source;
use diffcache_core::sink::{LeafSink, SinkError};
use diffcache_core::source::{ReadAt, SourceError};
use diffcache_core::task::Task;

#[allow(dead_code)]
mod images;
use images::{noise, BLOCK};

/// What the engine promises to take at most, for any images.
const MEMORY: usize = 1 << 30;
/// Cases of each kind in a usual run.
const CASES: u64 = 400;
/// Targets that a forger claims to be larger are opened, and not built: that takes its time.
const BUILT: u64 = 64 << 20;

/// Counts what is allocated.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that must not be asked for what they do not have.
struct Strict(Vec<u8>);

impl ReadAt for Strict {
    fn len(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let end = offset.checked_add(buf.len() as u64);
        assert!(
            end.is_some_and(|end| end <= self.len()),
            "{} bytes from {offset} on were asked of {}",
            buf.len(),
            self.len()
        );
        self.0.read_exact_at(buf, offset)
    }
}

struct Nowhere;

impl LeafSink for Nowhere {
    fn put(&self, _index: u64, _data: &[u8]) -> Result<(), SinkError> {
        Ok(())
    }
}

/// Numbers by chance.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// A number at an edge, or near `to`, or any.
    fn number(&mut self, to: u64) -> u64 {
        match self.below(6) {
            0 => self.next() % 3,
            1 => to.wrapping_add(self.next() % 5).wrapping_sub(2),
            2 => 1 << self.below(64),
            3 => (1u64 << self.below(64)).wrapping_sub(1),
            4 => to ^ (1 << self.below(44)),
            _ => self.next(),
        }
    }
}

/// Calls `case` a bounded number of times, or for as long as was asked for.
fn fuzz(mut case: impl FnMut(&mut Chance)) {
    let variable = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds: Option<u64> = variable("DIFFCACHE_FUZZ_SECONDS");
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let anew = since.unwrap().as_nanos() as u64;
    let first = variable("DIFFCACHE_FUZZ_SEED").unwrap_or(seconds.map_or(1, |_| anew));
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut count = 0;
    while end.map_or(count < CASES, |end| Instant::now() < end) {
        let seed = first.wrapping_add(count);
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| case(&mut chance)));
        assert!(outcome.is_ok(), "DIFFCACHE_FUZZ_SEED={seed} fails");
        assert!(
            PEAK.load(Ordering::Relaxed) < MEMORY,
            "DIFFCACHE_FUZZ_SEED={seed} takes too much memory"
        );
        count += 1;
    }
    println!(
        "{count} cases, {} MB at most",
        PEAK.load(Ordering::Relaxed) / 1_000_000
    );
}

/// Changes some bytes: sets, inserts, removes or repeats them.
fn spoil(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(3) {
        let at = chance.below(bytes.len() + 1);
        let end = (at + 1 + chance.below(6)).min(bytes.len());
        let (range, new) = match chance.below(6) {
            0 => (at..at, noise(chance.next(), 1 + chance.below(9))),
            1 => (at..end, Vec::new()),
            2 => (at..at, bytes[at..end].to_vec()),
            3 => (at..end, vec![0xff; 6]),
            _ => (at..end, noise(chance.next(), end - at)),
        };
        bytes.splice(range, new);
    }
}

/// An image, another, and the patch between them.
struct Pair {
    base: Vec<u8>,
    target: Manifest,
    patch: Vec<u8>,
}

impl Pair {
    fn new(base: Vec<u8>, target: &[u8]) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("patch");
        create(&base, &target, &path, &CreateOptions::default()).unwrap();
        Pair {
            base,
            target: manifest(target),
            patch: std::fs::read(path).unwrap(),
        }
    }
}

fn manifest(image: &[u8]) -> Manifest {
    Manifest::from_source(&image, &Task::default()).unwrap()
}

/// Pairs whose patches have records of every kind.
fn pairs() -> Vec<Pair> {
    let text = |len: usize| (0..len).map(|i| (i / 97) as u8).collect::<Vec<u8>>();
    let base = [noise(1, 60 * BLOCK), vec![0; 40 * BLOCK], text(90_001)].concat();
    let mut target = base.clone();
    target.copy_within(30 * BLOCK..47 * BLOCK, 2 * BLOCK);
    target[70 * BLOCK..90 * BLOCK].copy_from_slice(&text(20 * BLOCK));
    target[20 * BLOCK..24 * BLOCK].fill(0);
    target[100 * BLOCK..101 * BLOCK].copy_from_slice(&noise(3, BLOCK));
    // Nearly a piece of the base, so that it is a dictionary.
    let mut similar = base[40 * BLOCK..44 * BLOCK].to_vec();
    similar.iter_mut().step_by(500).for_each(|byte| *byte ^= 1);
    target.extend(&similar);
    target.extend(&similar[..BLOCK * 2]);
    target.extend(noise(4, 777));
    let tiny = (noise(5, 5000), noise(6, 7000));
    vec![
        Pair::new(Vec::new(), &target),
        Pair::new(target.clone(), &base),
        Pair::new(base, &target),
        Pair::new(tiny.0, &tiny.1),
    ]
}

fn unpack(bytes: &[u8]) -> Vec<u8> {
    zstd::decode_all(bytes).unwrap()
}

fn pack(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// The patch with some of its numbers changed, and all of its hashes right.
fn forge(pair: &Pair, chance: &mut Chance) -> Vec<u8> {
    let mut header = info(&pair.patch).unwrap().header;
    let (start, end) = (HEADER_LEN as usize, header.meta_offset as usize);
    let mut data = pair.patch[start..end].to_vec();
    let (map, rest) = pair.patch[end..].split_at(header.map_len as usize);
    let (frames, leaves) = rest.split_at(header.frames_len as usize);
    let (mut map, mut frames, mut leaves) = (unpack(map), unpack(frames), leaves.to_vec());
    match chance.below(5) {
        0 => spoil(&mut map, chance),
        1 => spoil(&mut frames, chance),
        2 => spoil(&mut leaves, chance),
        3 => spoil(&mut data, chance),
        _ => {}
    }
    let (map, frames) = (pack(&map), pack(&frames));
    header.meta_offset = HEADER_LEN + data.len() as u64;
    header.map_len = map.len() as u64;
    header.frames_len = frames.len() as u64;
    header.leaves = leaves.len() as u64 / 32;
    leaves.truncate(header.leaves as usize * 32);
    if chance.below(3) == 0 {
        let fields = [
            &mut header.base_size,
            &mut header.target_size,
            &mut header.meta_offset,
            &mut header.map_len,
            &mut header.frames_len,
            &mut header.leaves,
            &mut header.runs,
            &mut header.frames,
        ];
        let chosen = chance.below(fields.len());
        let field = fields.into_iter().nth(chosen).unwrap();
        *field = chance.number(*field);
    } else {
        // Room for what was added, or the count would end it.
        header.runs += chance.next() % 3;
        header.frames = header
            .frames
            .wrapping_add(chance.next() % 3)
            .wrapping_sub(1);
    }
    let meta = [map, frames, leaves].concat();
    header.patch_size = HEADER_LEN + (data.len() + meta.len()) as u64;
    header.meta_hash = *blake3::hash(&meta).as_bytes();
    [header.encode().to_vec(), data, meta].concat()
}

#[test]
fn forged_patches_do_no_harm() {
    let pairs = pairs();
    let manifests: Vec<Manifest> = pairs.iter().map(|pair| manifest(&pair.base)).collect();
    fuzz(|chance| {
        let chosen = chance.below(pairs.len());
        let pair = &pairs[chosen];
        let patch = Strict(forge(pair, chance));
        let base = Strict(pair.base.clone());
        let task = Task {
            threads: 1,
            ..Task::default()
        };
        let Ok(known) = info(&patch) else { return };
        let _ = target_manifest(&manifests[chosen], &patch, &task);
        if let Ok(view) = PatchView::open(&base, &patch, None) {
            let size = view.len();
            for _ in 0..3 {
                let from = chance.next() % size.max(1);
                let mut buf = vec![0; (size - from).min(3 * LEAF_SIZE) as usize];
                let _ = view.read(&mut buf, from);
            }
        }
        if known.header.target_size > BUILT {
            return;
        }
        if let Ok(made) = verify(&base, &patch, &task) {
            assert_eq!(made.manifest.content_id(), known.header.target_hash);
            assert!(made.manifest == pair.target);
        }
        let _ = apply_to_sink(&base, &patch, &pair.target, &Nowhere, &task);
    });
}

const BITS: usize = 9;
const CLUSTER: usize = 1 << BITS;
const TABLES: usize = 5 * CLUSTER;

fn put(image: &mut [u8], at: usize, value: u64) {
    image[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

/// A qcow2 image of 32 clusters, every third of them zero and every other one compressed.
fn qcow2() -> Vec<u8> {
    let mut image = vec![0; TABLES];
    image[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    put(&mut image, 16, BITS as u64);
    put(&mut image, 24, 32 * CLUSTER as u64);
    put(&mut image, 36, 1 << 32);
    put(&mut image, 40, 3 * CLUSTER as u64);
    put(&mut image, 48, CLUSTER as u64);
    image[56..60].copy_from_slice(&1u32.to_be_bytes());
    image[96..104].copy_from_slice(&[0, 0, 0, 4, 0, 0, 0, 104]);
    put(&mut image, CLUSTER, 2 * CLUSTER as u64);
    put(&mut image, 3 * CLUSTER, (4 * CLUSTER as u64) | (1 << 63));
    for index in (0..32).filter(|index| index % 3 != 2) {
        let content = noise(index as u64 + 1, CLUSTER);
        let entry = if index % 2 == 0 {
            let offset = image.len() as u64;
            // A stored block of deflate.
            image.extend([1, 0, 2, 0xff, 0xfd]);
            image.extend(content);
            let sectors = (offset % 512 + 517).div_ceil(512) - 1;
            (1 << 62) | (sectors << (62 - (BITS as u64 - 8))) | offset
        } else {
            image.resize(image.len().next_multiple_of(CLUSTER), 0);
            let offset = image.len() as u64;
            image.extend(content);
            offset | (1 << 63)
        };
        put(&mut image, 4 * CLUSTER + index * 8, entry);
    }
    image
}

#[test]
fn the_image_to_spoil_is_valid() {
    let source = Qcow2Source::open(Arc::new(Strict(qcow2()))).unwrap();
    let mut content = vec![0; source.len() as usize];
    source.read_exact_at(&mut content, 0).unwrap();
    for (index, cluster) in content.chunks(CLUSTER).enumerate() {
        let expected = match index % 3 {
            2 => vec![0; CLUSTER],
            _ => noise(index as u64 + 1, CLUSTER),
        };
        assert!(cluster == expected, "cluster {index}");
    }
}

#[test]
fn forged_images_do_no_harm() {
    let valid = qcow2();
    let buf = Mutex::new(Vec::new());
    fuzz(|chance| {
        let mut image = valid.clone();
        for _ in 0..=chance.below(3) {
            match chance.below(8) {
                0 => image.truncate(chance.below(valid.len() + 1)),
                1 => spoil(&mut image, chance),
                2 | 3 => {
                    // The header's fields of 4 bytes.
                    let at = 4 + 4 * chance.below(26);
                    let value = chance.number(CLUSTER as u64) as u32;
                    if let Some(field) = image.get_mut(at..at + 4) {
                        field.copy_from_slice(&value.to_be_bytes());
                    }
                }
                _ => {
                    // Entries of the header, of the tables, and of what follows.
                    let tables = [24, 40, 48, 64, CLUSTER, 3 * CLUSTER];
                    let at = match chance.below(3) {
                        0 => tables[chance.below(tables.len())],
                        _ => 4 * CLUSTER + 8 * chance.below(64),
                    };
                    let to = (chance.below(valid.len()) & !(CLUSTER - 1)) as u64;
                    let flags = (chance.next() % 4) << 62;
                    if image.len() >= at + 8 {
                        put(&mut image, at, chance.number(to) | flags);
                    }
                }
            }
        }
        if let Ok(source) = Qcow2Source::open(Arc::new(Strict(image))) {
            let len = source.len();
            let mut buf = buf.lock().unwrap();
            for from in [0, chance.next() % len.max(1), len.saturating_sub(5000)] {
                buf.resize((len - from).min(1 << 20) as usize, 0);
                let _ = source.read_exact_at(&mut buf, from);
            }
            // A file that is mostly holes is long to walk through.
            let mut at = 0;
            for _ in 0..1000 {
                match source.next_data(at) {
                    Ok(Some((from, to))) => {
                        assert!(at <= from && from < to && to <= len);
                        at = to;
                    }
                    _ => break,
                }
            }
        }
    });
}
