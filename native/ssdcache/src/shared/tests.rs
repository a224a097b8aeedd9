//! The index and the ring of hits, against what they stand for.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use diffcache_partitions::Mirror;
use proptest::prelude::*;

use super::hits::{Hit, Hits, ROOM};
use super::index::{Facts, Index, SERIAL_BYTES};

const FACTS: Facts = Facts {
    data: 1 << 20,
    export: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
    serial: [b'x'; SERIAL_BYTES],
};

fn both(most: u32) -> (Index, Index) {
    let writer = Index::new(most, &FACTS).unwrap();
    writer.set_open(true);
    let file = writer.file().try_clone_to_owned().unwrap();
    (writer, Index::open(file).unwrap())
}

#[test]
fn another_process_reads_what_stays_and_cannot_write() {
    let (writer, reader) = both(100);
    assert_eq!(FACTS, reader.facts());
    writer.set_size(12345);
    assert_eq!(12345, reader.size());
    let file = std::fs::File::from(writer.file().try_clone_to_owned().unwrap());
    assert!(std::os::unix::fs::FileExt::write_all_at(&file, &[1], 0).is_err());
    assert!(file.set_len(0).is_err());
    let other = tempfile::tempfile().unwrap();
    other.set_len(8192).unwrap();
    assert!(
        Index::open(other.into()).is_err(),
        "it could become shorter"
    );
}

#[test]
fn few_blocks_are_forgotten_where_there_is_room_for_all() {
    let (mut writer, reader) = both(10_000);
    for block in 0..10_000 {
        writer.put(block * 7919, block as u32, 1);
    }
    let found = (0..10_000).filter(|block| reader.find(block * 7919).is_some());
    assert!(found.count() > 9990);
}

#[derive(Debug, Clone)]
enum Step {
    Put(u64, u32),
    Remove(u64),
    Open(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..40u64, 0..1000u32).prop_map(|(block, slot)| Step::Put(block, slot)),
        (0..40u64).prop_map(Step::Remove),
        any::<bool>().prop_map(Step::Open),
    ]
}

proptest! {
    /// What is found is the last that was put, and what was found before a change of it is not
    /// current after it.
    #[test]
    fn nothing_is_found_that_is_not_there(steps in prop::collection::vec(step(), 1..200)) {
        let (mut writer, reader) = both(30);
        let mut model: HashMap<u64, (u32, u32)> = HashMap::new();
        let mut is_open = true;
        for (number, step) in steps.into_iter().enumerate() {
            let before: Vec<_> = (0..40).map(|block| reader.find(block)).collect();
            let changed = match step {
                Step::Put(block, slot) => {
                    writer.put(block, slot, number as u32);
                    model.insert(block, (slot, number as u32));
                    Some(block)
                }
                Step::Remove(block) => {
                    writer.remove(block);
                    model.remove(&block);
                    Some(block)
                }
                Step::Open(open) => {
                    writer.set_open(open);
                    is_open = open;
                    None
                }
            };
            for (block, before) in before.iter().enumerate() {
                let found = reader.find(block as u64);
                if let Some(found) = found {
                    prop_assert!(is_open);
                    prop_assert_eq!(Some((found.slot, found.checksum)), model.get(&(block as u64)).copied());
                }
                if let (Some(before), true) = (before, changed == Some(block as u64)) {
                    prop_assert!(!reader.is_current(before));
                }
            }
        }
    }

    #[test]
    fn hits_are_counted_in_their_order(counts in prop::collection::vec(0..400usize, 1..20), most in 1..500usize) {
        let mut reader = Hits::new().unwrap();
        let mut writer = Hits::open(reader.file().try_clone_to_owned().unwrap()).unwrap();
        let (mut written, mut read) = (0u64, 0u64);
        for count in counts {
            for _ in 0..count {
                let hit = Hit { block: written, count: written % 16 + 1, took: Duration::from_nanos(written % 999 * 256) };
                writer.add(hit);
                written += 1;
            }
            writer.publish();
            for hit in reader.take(most) {
                let expected = Hit { block: read, count: read % 16 + 1, took: Duration::from_nanos(read % 999 * 256) };
                prop_assert_eq!(expected, hit);
                read += 1;
            }
        }
        prop_assert!(read == written || reader.take(usize::MAX).len() as u64 == written - read);
    }
}

#[test]
fn the_oldest_hits_are_lost_where_nobody_looks() {
    let mut reader = Hits::new().unwrap();
    let mut writer = Hits::open(reader.file().try_clone_to_owned().unwrap()).unwrap();
    for block in 0..ROOM as u64 + 10 {
        let took = Duration::ZERO;
        writer.add(Hit {
            block,
            count: 1,
            took,
        });
    }
    writer.publish();
    let taken = reader.take(usize::MAX);
    assert_eq!((10, ROOM), (taken[0].block, taken.len()));
    assert!(reader.take(usize::MAX).is_empty());
}

/// Slots whose words say which block they have: a reader that finds the block current has read
/// that block, while the writer has slots change hands as fast as it can.
#[test]
fn a_slot_that_was_used_again_is_never_taken_for_the_block_of_before() {
    const BLOCKS: u64 = 64;
    const SLOTS: usize = 16;
    let (mut writer, reader) = both(SLOTS as u32);
    let data: Vec<AtomicU64> = (0..SLOTS).map(|_| AtomicU64::new(u64::MAX)).collect();
    let (data, ended) = (&data[..], AtomicBool::new(false));
    let checked = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut owners = [u64::MAX; SLOTS];
            for turn in 0..200_000u64 {
                let slot = (turn * 7 % SLOTS as u64) as usize;
                let block = turn * 31 % BLOCKS;
                if owners.contains(&block) {
                    continue;
                }
                writer.remove(owners[slot]);
                // As the data of a slot: by no particular order.
                data[slot].store(block, Ordering::Relaxed);
                owners[slot] = block;
                writer.put(block, slot as u32, 0);
            }
            ended.store(true, Ordering::Release);
        });
        let mut checked = 0u64;
        while !ended.load(Ordering::Acquire) {
            for block in 0..BLOCKS {
                if let Some(found) = reader.find(block) {
                    let read = data[found.slot as usize].load(Ordering::Relaxed);
                    if reader.is_current(&found) {
                        assert_eq!(block, read);
                        checked += 1;
                    }
                }
            }
        }
        checked
    });
    assert!(checked > 0);
}
