//! Ends of the process and power cuts, between any two operations of its disks. With the power, any
//! subset of the sectors is lost that were written since the last flush.

use diffcache_faulty::{Fuse, Random};
use proptest::prelude::*;

use super::*;

const VOLUME: usize = 64 * 4096;
const CAPACITY: u32 = 16;

/// What a process does, and after how many operations of the disks it ends.
type Life = (Vec<Step>, u64);

#[derive(Debug, Clone)]
enum Step {
    Write(u64, usize, u8),
    Read(u64, usize),
    Flush,
    Settle,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let (offset, length) = (0..50_u64 * 4096, 1..3 * 4096_usize);
    let step = prop_oneof![
        6 => (offset.clone(), length.clone(), any::<u8>()).prop_map(|(o, l, v)| Step::Write(o, l, v)),
        6 => (offset, length).prop_map(|(o, l)| Step::Read(o, l)),
        1 => Just(Step::Flush),
        3 => Just(Step::Settle),
    ];
    let life = (proptest::collection::vec(step, 1..40), 0..400_u64);
    proptest::collection::vec(life, 1..5)
}

fn open(ssd: &MemoryDisk, origin: &MemoryDisk, boot: u8, first: bool) -> Cache {
    let place = Place {
        boot: [boot; 16],
        ..PLACE
    };
    let disk = Box::new(ssd.clone());
    let device = if first {
        Device::format(disk, CAPACITY, place, [3; 24])
    } else {
        Device::open(disk, CAPACITY, place)
    };
    let attachments = vec![attachment("v", origin, CAPACITY)];
    Cache::open(device.unwrap(), OPTIONS, attachments).unwrap()
}

/// What the origin has, around the cache.
fn content(origin: &MemoryDisk) -> Vec<u8> {
    let mut bytes = vec![0; VOLUME];
    origin.read_at(&mut bytes, 0).unwrap();
    bytes
}

/// Executes steps until the disks fail, and leaves them working.
fn live(cache: &Cache, (steps, operations): &Life, fuse: &Fuse) {
    let volume = cache.volume("v").unwrap();
    fuse.burn_after(*operations);
    for step in steps {
        let _ = match *step {
            Step::Write(offset, length, value) => {
                cache.write(&volume, &vec![value; length], offset)
            }
            Step::Read(offset, length) => cache.read(&volume, &mut vec![0; length], offset),
            Step::Flush => cache.flush(&volume),
            Step::Settle => cache.settle().map_err(io::Error::other),
        };
    }
    fuse.replace();
}

fn disks() -> (MemoryDisk, MemoryDisk, Fuse) {
    let fuse = Fuse::default();
    let ssd = MemoryDisk::with_fuse(3 << 20, &fuse);
    (ssd, MemoryDisk::with_fuse(VOLUME, &fuse), fuse)
}

/// Compares what is cached with the origin, and then all that is read.
fn check(cache: &Cache, origin: &MemoryDisk) {
    let volume = cache.volume("v").unwrap();
    let expected = content(origin);
    let blocks = || (0..).zip(expected.chunks(4096));
    let is_cached = |block| cache.lock().blocks.find(volume.id, block).is_some();
    let cached: Vec<_> = blocks().filter(|&(n, _)| is_cached(n)).collect();
    for (n, block) in cached.into_iter().chain(blocks()) {
        let mut found = [0; 4096];
        cache.read(&volume, &mut found, n * 4096).unwrap();
        assert!(found == block, "block {n} is not that of the origin");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn after_power_cuts_the_cache_never_has_older_data_than_the_origin(
        lives in lives(), seed: u64
    ) {
        let (ssd, origin, fuse) = disks();
        let mut random = Random::new(seed);
        for (boot, life) in (0..).zip(&lives) {
            let cache = open(&ssd, &origin, boot, boot == 0);
            check(&cache, &origin);
            live(&cache, life, &fuse);
            drop(cache);
            ssd.cut_at_random(&mut random);
            origin.cut_at_random(&mut random);
        }
        check(&open(&ssd, &origin, lives.len() as u8, false), &origin);
    }

    #[test]
    fn after_the_end_of_the_process_the_cache_has_what_the_origin_has(lives in lives()) {
        let (ssd, origin, fuse) = disks();
        for (n, life) in lives.iter().enumerate() {
            let cache = open(&ssd, &origin, 0, n == 0);
            check(&cache, &origin);
            live(&cache, life, &fuse);
        }
        check(&open(&ssd, &origin, 0, false), &origin);
    }
}

#[test]
fn a_process_that_ends_after_an_eviction_leaves_no_entry_of_what_left() {
    for operations in 0..20 {
        let (ssd, origin, fuse) = disks();
        let cache = open(&ssd, &origin, 0, true);
        cache.set_limit(&cache.volume("v").unwrap(), 1).unwrap();
        // Block 6 leaves for block 5, and is written before block 5 has its entry.
        let before = vec![Step::Write(6 * 4096, 4096, 1)];
        live(&cache, &(before, u64::MAX), &fuse);
        let end = vec![Step::Write(5 * 4096, 8192, 2)];
        live(&cache, &(end, operations), &fuse);
        check(&open(&ssd, &origin, 0, false), &origin);
    }
}
