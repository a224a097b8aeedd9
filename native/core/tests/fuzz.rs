//! Forged patches: whatever a file says, nothing panics, nothing is read outside of it, and no more memory is taken than the engine promises.
//!
//! What is changed are the numbers behind the hashes and the compression, as an attacker would: bytes changed at random rarely get past
//! those. A run tries some hundred cases of each kind; with DIFFCACHE_FUZZ_SECONDS set to a number, as many as that time allows, from another seed
//! each time (or from that of DIFFCACHE_FUZZ_SEED).

// Clippy's allowance for tests does not reach helper functions outside them.
#![allow(clippy::unwrap_used, clippy::panic)]

use diffcache_base::varint;
use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use diffcache_core::near::align::Copy;
use diffcache_core::near::code::Parts;
use diffcache_core::near::pack::{self, Packer};
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
    // The same moved by some bytes, with numbers in it that grew: near copies.
    let mut moved = [&noise(7, 99), &base[..50 * BLOCK]].concat();
    moved
        .iter_mut()
        .step_by(41)
        .for_each(|byte| *byte = byte.wrapping_add(9));
    let tiny = (noise(5, 5000), noise(6, 7000));
    vec![
        Pair::new(Vec::new(), &target),
        Pair::new(target.clone(), &base),
        Pair::new(base.clone(), &moved),
        Pair::new(base, &target),
        Pair::new(tiny.0, &tiny.1),
    ]
}

fn decompress(bytes: &[u8]) -> Vec<u8> {
    zstd::decode_all(bytes).unwrap()
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).unwrap()
}

/// Changes the first frame, with its checksum right: nothing but its own decoder is in the way.
fn spoil_first_frame(data: &mut [u8], frames: &mut [u8], chance: &mut Chance) {
    let mut rest = &*frames;
    let record: Option<Vec<u64>> = (0..2).map(|_| varint::take(&mut rest)).collect();
    let len = record
        .map_or(0, |record| record[1] as usize)
        .min(data.len());
    let old = xxhash_rust::xxh3::xxh3_64(&data[..len]) as u32;
    for _ in 0..=chance.below(3) {
        let reach = 1 << chance.below(16);
        let at = chance.below(len.min(reach));
        if let Some(byte) = data.get_mut(at) {
            *byte = chance.next() as u8;
        }
    }
    let new = xxhash_rust::xxh3::xxh3_64(&data[..len]) as u32;
    if let Some(at) = frames.windows(4).position(|at| at == old.to_le_bytes()) {
        frames[at..at + 4].copy_from_slice(&new.to_le_bytes());
    }
}

/// The patch with some of its numbers changed, and all of its hashes right.
fn forge(pair: &Pair, chance: &mut Chance) -> Vec<u8> {
    let mut header = info(&pair.patch).unwrap().header;
    let (start, end) = (HEADER_LEN as usize, header.meta_offset as usize);
    let mut data = pair.patch[start..end].to_vec();
    let (map, rest) = pair.patch[end..].split_at(header.map_len as usize);
    let (frames, leaves) = rest.split_at(header.frames_len as usize);
    let (mut map, mut frames, mut leaves) = (decompress(map), decompress(frames), leaves.to_vec());
    match chance.below(6) {
        5 => spoil_first_frame(&mut data, &mut frames, chance),
        0 => spoil(&mut map, chance),
        1 => spoil(&mut frames, chance),
        2 => spoil(&mut leaves, chance),
        3 => spoil(&mut data, chance),
        _ => {}
    }
    let (map, frames) = (compress(&map), compress(&frames));
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

#[test]
fn forged_copies_do_no_harm() {
    let reference = noise(1, 30_000);
    let mut target = [&reference[700..20_000], &noise(2, 500), &reference[..9000]].concat();
    target.iter_mut().step_by(60).for_each(|byte| *byte ^= 5);
    let copy = |at, len, from| Copy { at, len, from };
    let copies = [copy(0, 19_300, 700), copy(19_800, 9000, 0)];
    let packed = Packer::new(3, 3)
        .unwrap()
        .pack(&target, &copies, &reference)
        .unwrap();
    let parts = Parts::encode(&target, &copies, &reference);
    fuzz(|chance| {
        let mut forged = packed.clone();
        spoil(&mut forged, chance);
        let mut out = vec![0; chance.below(2 * target.len())];
        let _ = pack::unpack(&forged, &reference, &mut out);
        let mut parts = parts.clone();
        spoil(&mut parts.control, chance);
        if chance.below(4) == 0 {
            spoil(&mut parts.literals, chance);
        }
        let mut out = vec![0; target.len()];
        let _ = Parts::decode(
            &parts.control,
            &parts.literals,
            &parts.differences,
            &reference,
            &mut out,
        );
    });
}
