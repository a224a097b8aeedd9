//! Indexes, maps, bases and hooks of a version store whose checksums are right and whose content is anything.

#![no_main]

use std::sync::Arc;

use diffcache_fuzz::{sealed, Parts};
use diffcache_versions::store::base::BaseIndex;
use diffcache_versions::store::crypt::NAME_LEN;
use diffcache_versions::store::hooks::{encode, Fences, Hook};
use diffcache_versions::store::map::{MapFile, Maps};
use diffcache_versions::store::nodes::NodeRef;
use diffcache_versions::store::pack_index::{check_of, PackIndex};
use diffcache_versions::store::tree;
use diffcache_versions::VersionsError;
use libfuzzer_sys::fuzz_target;

const BLOCK_SIZE: u32 = 4096;

/// The body of an index is what it has before the names, of which no reading depends.
fn read_index(body: &[u8]) {
    let Ok(mut index) = PackIndex::parse(body, "index") else {
        return;
    };
    for rank in 0..index.blocks {
        let slot = index.slot(rank);
        assert_eq!(Some(rank), index.rank(slot));
        assert!(index.frame_of(rank).is_some());
    }
    let names = vec![[7; NAME_LEN]; index.blocks as usize];
    let file = index.encode(&names);
    let again = PackIndex::read(&file, &check_of(&file), "index").expect("what was written is valid");
    assert!(again == index);
    for section in 0..index.sections.len() as u32 {
        let names = again.read_section(&file, section).expect("its names");
        assert_eq!(names.len(), index.ranks(section).len());
    }
}

fn read_base(body: &[u8]) {
    if let Ok(base) = BaseIndex::decode(&sealed(body), BLOCK_SIZE, "base") {
        for block in [0, base.size() / u64::from(BLOCK_SIZE), u64::MAX] {
            let _ = base.block(block);
        }
    }
}

/// The body of a map is compressed, so that the input has it in the clear, behind the count of nodes.
fn read_map(body: &[u8]) {
    let mut parts = Parts(body);
    let count = parts.number() as u32;
    let raw = parts.0;
    let head = [1, 1, 0, count].map(u32::to_le_bytes).concat();
    let packed = zstd::bulk::compress(raw, 1).expect("memory suffices");
    let length = (raw.len() as u64).to_le_bytes();
    let file = sealed(&[&b"DCVMAP01"[..], &head, &length, &packed].concat());
    let Ok(map) = MapFile::decode(&file, "map") else {
        return;
    };
    let nodes = map.len() as u32;
    assert!(MapFile::decode(&map.encode().expect("a map"), "map").is_ok());
    let maps = Maps::default();
    maps.insert(Arc::new(map));
    for index in 0..nodes.min(8) {
        let root = NodeRef::Node { map: 1, index };
        let _ = tree::collect(&maps, root, 0, 4096);
    }
    if nodes > 1 {
        let roots = [0, 1].map(|index| NodeRef::Node { map: 1, index });
        let mut left = 1000;
        let _ = tree::diff(&maps, roots[0], roots[1], &mut |_| {
            left -= 1;
            match left {
                0 => Err(VersionsError::Invalid("enough".to_owned())),
                _ => Ok(()),
            }
        });
    }
}

/// The body of a file of hooks is what it has before them.
fn read_hooks(body: &[u8]) {
    if let Ok(fences) = Fences::parse(body, "hooks") {
        assert!(fences.sections() <= body.len());
    }
    let mut parts = Parts(body);
    let mut hooks: Vec<Hook> = (0..body.len() / 16)
        .map(|_| Hook {
            name: parts.number(),
            pack: parts.number() as u32,
            slot: 7,
        })
        .collect();
    hooks.sort_unstable();
    hooks.dedup_by_key(|hook| hook.name);
    let mut file = Vec::new();
    encode(&hooks, &mut file).expect("memory suffices");
    let layout = Fences::layout(file.len() as u64);
    let (head, count) = layout.expect("what was written has a length");
    assert_eq!(count, hooks.len());
    assert!(Fences::parse(&file[..head], "hooks").is_ok());
}

fuzz_target!(|data: &[u8]| {
    let Some((kind, body)) = data.split_first() else {
        return;
    };
    match kind % 4 {
        0 => read_index(body),
        1 => read_base(body),
        2 => read_map(body),
        _ => read_hooks(body),
    }
});
