//! Tests of stores whose key is replaced.

use crate::store::crypt::NAME_LEN;
use diffcache_core::task::Task;

use super::*;
use crate::store::check::{compact, repack, verify_pack};
use crate::store::hooks::{is_hook, Merge};
use crate::store::map::MapFile;
use crate::store::nodes::{NodeRef, Run};
use crate::store::pack_index::check_of;
use crate::store::pack_set::{PackOptions, PackSet};
use crate::store::tree::{update, Live};

const OLD: [u8; 32] = [1; 32];
const NEW: [u8; 32] = [2; 32];
const SIZE: usize = 4096;

fn blocks() -> Vec<Vec<u8>> {
    (1..6).map(|each| vec![each; SIZE]).collect()
}

/// Packs of some blocks.
fn written(options: PackOptions, cipher: &Cipher, blocks: &[Vec<u8>]) -> Vec<Written> {
    let task = Task::default();
    std::thread::scope(|scope| {
        let mut packs = PackSet::new(scope, options, cipher, 1, &task);
        for block in blocks {
            packs.push(cipher.name(block), block, &task).unwrap();
        }
        packs.finish(&task).unwrap()
    })
}

/// A store with one pack, which was written with the old key.
fn store(dir: &std::path::Path, key: &[u8; 32]) -> (Store, Written) {
    let mut store = Store::new(SIZE as u32, Some(&OLD)).unwrap();
    let options = PackOptions {
        dir: dir.to_path_buf(),
        block_size: SIZE as u32,
        level: 3,
    };
    let written = written(options, &store.cipher, &blocks()).remove(0);
    if *key != OLD {
        store = Store::new(SIZE as u32, Some(key)).unwrap();
        store.set_keys(2, &[(1, OLD)]);
    }
    store.add_pack(pack(&written, 1)).unwrap();
    (store, written)
}

fn pack(written: &Written, key: u32) -> Pack {
    Pack {
        id: 1,
        origin: 1,
        key,
        blocks: written.blocks,
        data_len: written.data_len,
        place: Place::File(written.data.clone()),
        index: Place::File(written.index.clone()),
        check: written.check,
    }
}

/// What a version needs that has all five blocks.
fn live() -> Live {
    let (maps, mut map) = (Maps::default(), MapFile::new(1, 0));
    let run = Run {
        start: 0,
        len: 5,
        at: BlockRef::Stored { pack: 1, slot: 0 },
    };
    let root = update(&maps, NodeRef::Zero, &[run], &mut map).unwrap();
    maps.insert(Arc::new(map));
    let mut live = Live::default();
    live.add(&maps, root).unwrap();
    live
}

#[test]
fn blocks_of_a_former_key_are_found_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = store(dir.path(), &NEW);
    for (slot, block) in (0..).zip(blocks()) {
        let name = store.cipher.name(&block);
        let at = BlockRef::Stored { pack: 1, slot };
        assert_eq!(store.find(&[name], &[]).unwrap(), [None]);
        assert_eq!(
            store.find_blocks(&[(name, &block)], &[]).unwrap(),
            [Some(at)]
        );
        let names = store.names(1, 0, 5).unwrap();
        assert!(names.holds(u64::from(slot), &name, &block));
        assert!(!names.holds(u64::from((slot + 1) % 5), &name, &block));
        assert_eq!(store.present_name(1, slot).unwrap(), name);
    }
    let found = store.find_blocks(&[([0; NAME_LEN], &[9; SIZE])], &[]);
    assert_eq!(found.unwrap(), [None]);
}

#[test]
fn a_pack_written_again_has_the_present_key_only() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = store(dir.path(), &NEW);
    for again in [compact, repack] {
        let next = tempfile::tempdir().unwrap();
        let task = Task::default();
        let written = again(&store, 1, &live(), next.path(), 3, &task).unwrap();
        store.add_pack(pack(&written, 2)).unwrap();
        let length = written.data_len;
        assert!(verify_pack(&store, 1, length, &task)
            .unwrap()
            .reasons
            .is_empty());
        for (slot, block) in (0..).zip(blocks()) {
            let mut out = vec![0; SIZE];
            store.read_block(1, slot, &mut out).unwrap();
            assert_eq!(out, block);
            assert_eq!(store.name(1, slot).unwrap(), store.cipher.name(&block));
        }
        // With the old key no frame opens, and no name is that of a known block.
        let mut old = Store::new(SIZE as u32, Some(&OLD)).unwrap();
        old.add_pack(pack(&written, 1)).unwrap();
        assert_eq!(verify_pack(&old, 1, length, &task).unwrap().slots.len(), 5);
        for block in blocks() {
            assert_eq!(old.find(&[old.cipher.name(&block)], &[]).unwrap(), [None]);
        }
        let (again, _) = self::store(dir.path(), &NEW);
        store = again;
    }
}

#[test]
fn a_retired_key_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (_, written) = store(dir.path(), &OLD);
    let mut store = Store::new(SIZE as u32, Some(&NEW)).unwrap();
    store.set_keys(3, &[]);
    let error = store.add_pack(pack(&written, 1)).unwrap_err();
    assert!(error.to_string().contains("retired"), "{error}");
}

#[test]
fn a_hook_leads_to_the_blocks_beside_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::new(512, None).unwrap();
    let options = PackOptions {
        dir: dir.path().to_path_buf(),
        block_size: 512,
        level: 1,
    };
    let block = |number: u32| [&number.to_le_bytes()[..], &[7; 508]].concat();
    let blocks: Vec<_> = (0..3000).map(block).collect();
    let names: Vec<_> = blocks.iter().map(|each| store.cipher.name(each)).collect();
    let written = written(options, &store.cipher, &blocks);
    store.add_written(&written, 1).unwrap();
    let hooks = dir.path().join("hooks");
    let merge = Merge {
        files: Vec::new(),
        packs: vec![1],
        indexes: Vec::new(),
    };
    store.write_hooks(&merge, &hooks).unwrap();
    let bytes = std::fs::read(&hooks).unwrap();
    let (len, check) = (bytes.len() as u64, check_of(&bytes));
    store.add_hooks(1, Place::File(hooks), len, check);
    let mut search = Search::default();
    let mut found = |range: std::ops::Range<usize>, beside: &[Slots]| {
        let wanted = &names[range.clone()];
        search.read_best(&store, wanted, beside).unwrap();
        let copies = range.map(|slot| (slot, search.find(&store, &names[slot]).unwrap()));
        let right = |(slot, copy): (usize, Option<BlockRef>)| {
            let slot = slot as u32;
            copy == Some(BlockRef::Stored { pack: 1, slot })
        };
        copies.filter(|copy| right(*copy)).count()
    };
    let first = names.iter().position(is_hook).unwrap();
    assert_eq!(found(1200..1300, &[]), 100);
    assert_eq!(found(0..first, &[]), 0);
    assert_eq!(found(2900..2910, &[(1, 2700, 5)]), 10);
    assert_eq!(found(first..first + 1, &[]), 1);
    assert_eq!(found(0..1024, &[]), 1024);
}
