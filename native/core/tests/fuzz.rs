//! Forged patches: whatever a file says, nothing panics, nothing is read outside of it, and no more memory is taken than the engine promises.
//!
//! What is changed are the numbers behind the hashes and the compression, as somebody would who means harm: bytes changed at random rarely get past
//! those. A run tries some hundred cases of each kind; with DIFFCACHE_FUZZ_SECONDS set to a number, as many as that time allows, from another seed
//! each time (or from that of DIFFCACHE_FUZZ_SEED).

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used, clippy::panic)]

use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use diffcache_core::patch::format::HEADER_LEN;
use diffcache_core::patch::{
    apply_to_sink, create, info, target_manifest, verify, CreateOptions, PatchView,
};
use diffcache_core::sink::{LeafSink, SinkError};
use diffcache_core::source::ReadAt;
use diffcache_core::task::Task;

mod fuzzing;
#[allow(dead_code)]
mod images;
use fuzzing::{fuzz, spoil, Chance, Strict};
use images::{noise, BLOCK};

/// Targets that a forger claims to be larger are opened, and not built: that takes its time.
const BUILT: u64 = 64 << 20;

struct Nowhere;

impl LeafSink for Nowhere {
    fn put(&self, _index: u64, _data: &[u8]) -> Result<(), SinkError> {
        Ok(())
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
