//! What the process of a guest reads itself is what the volume has, whatever the cache does meanwhile.

use super::*;
use crate::device::format::checksum;
use crate::shared::hits::{Hit, Hits, ROOM};
use crate::shared::index::{Found, Index};
use std::sync::Arc;

const BLOCKS: u64 = 24;
const CAPACITY: u32 = 12;

/// What happens between the look-up of a block, the read of its slot, and the look at whether it is
/// current.
#[derive(Debug, Clone)]
enum Step {
    Write(u64),
    Read(u64),
    Zero(u64, u64),
    WriteOther(u64),
    Limit(u32),
    Mode(Mode),
    Flush,
    Invalidate,
}

fn step() -> impl Strategy<Value = Step> {
    let block = || 0..BLOCKS;
    prop_oneof![
        4 => block().prop_map(Step::Write),
        4 => block().prop_map(Step::Read),
        1 => (block(), 1..4u64).prop_map(|(from, count)| Step::Zero(from, count)),
        2 => block().prop_map(Step::WriteOther),
        1 => (1..CAPACITY / 2).prop_map(Step::Limit),
        1 => prop::sample::select(&Mode::ALL[..]).prop_map(Step::Mode),
        1 => Just(Step::Flush),
        1 => Just(Step::Invalidate),
    ]
}

struct Trial {
    cache: Cache,
    disk: MemoryDisk,
    volume: Arc<Volume>,
    other: Arc<Volume>,
    index: Index,
    hits: Hits,
    content: Vec<[u8; BLOCK]>,
    writes: u8,
}

impl Trial {
    fn new() -> Self {
        let disk = MemoryDisk::new(Device::bytes(CAPACITY) as usize);
        let [one, two] = ["v", "w"].map(|_| MemoryDisk::new(BLOCKS as usize * BLOCK));
        let (one, two) = (
            attachment("v", &one, CAPACITY / 2),
            attachment("w", &two, CAPACITY / 2),
        );
        let cache = Cache::open(device(&disk, CAPACITY), OPTIONS, vec![one, two]).unwrap();
        let (volume, other) = (cache.volume("v").unwrap(), cache.volume("w").unwrap());
        // Some blocks are there before.
        cache.read(&volume, &mut [0; 3 * BLOCK], 0).unwrap();
        let lent = cache.lend(&volume).unwrap();
        let [index, hits] =
            lent.with_files(|files| files.map(|file| file.try_clone_to_owned().unwrap()));
        Self {
            cache,
            disk,
            volume,
            other,
            index: Index::open(index).unwrap(),
            hits: Hits::open(hits).unwrap(),
            content: vec![[0; BLOCK]; BLOCKS as usize],
            writes: 0,
        }
    }

    fn apply(&mut self, step: &Step) {
        let (cache, volume) = (&self.cache, &self.volume);
        match step {
            Step::Write(block) => {
                self.writes = self.writes.wrapping_add(1);
                let data = [self.writes; BLOCK];
                cache.write(volume, &data, block * BLOCK as u64).unwrap();
                self.content[*block as usize] = data;
            }
            Step::Read(block) => {
                let mut data = [0; BLOCK];
                cache.read(volume, &mut data, block * BLOCK as u64).unwrap();
                assert!(data == self.content[*block as usize]);
            }
            Step::Zero(from, count) => {
                let count = (*count).min(BLOCKS - from);
                let (at, length) = (from * BLOCK as u64, count * BLOCK as u64);
                cache.zero(volume, at, length).unwrap();
                self.content[*from as usize..(from + count) as usize].fill([0; BLOCK]);
            }
            Step::WriteOther(block) => {
                cache
                    .write(&self.other, &[0xee; BLOCK], block * BLOCK as u64)
                    .unwrap();
            }
            Step::Limit(limit) => cache.set_limit(volume, *limit).unwrap(),
            Step::Mode(mode) => cache.set_mode(volume, *mode).unwrap(),
            Step::Flush => cache.flush(volume).unwrap(),
            Step::Invalidate => cache.invalidate(volume, false).unwrap(),
        }
    }

    fn slot(&self, found: &Found) -> [u8; BLOCK] {
        let mut data = [0; BLOCK];
        let at = self.index.facts().data + u64::from(found.slot) * BLOCK as u64;
        self.disk.read_at(&mut data, at).unwrap();
        data
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_block_that_is_current_is_what_the_volume_has(
        steps in prop::collection::vec((step(), any::<bool>()), 1..60),
    ) {
        let mut trial = Trial::new();
        for (step, is_before) in steps {
            let found: Vec<_> = (0..BLOCKS).map(|block| trial.index.find(block)).collect();
            let found = || found.iter().enumerate().filter_map(|(n, found)| Some((n, (*found)?)));
            let read = |trial: &Trial| found().map(|(_, found)| trial.slot(&found)).collect::<Vec<_>>();
            let early = read(&trial);
            trial.apply(&step);
            let data = if is_before { early } else { read(&trial) };
            for ((block, found), data) in found().zip(data) {
                if trial.index.is_current(&found) {
                    prop_assert!(data == trial.content[block], "block {} after {:?}", block, step);
                    prop_assert_eq!(found.checksum, checksum(&data));
                }
            }
        }
    }
}

#[test]
fn all_cached_blocks_are_found_unless_the_cache_is_left_aside() {
    let mut trial = Trial::new();
    let found = |trial: &Trial| {
        (0..BLOCKS)
            .filter(|block| trial.index.find(*block).is_some())
            .count()
    };
    assert_eq!(3, found(&trial));
    trial.apply(&Step::Write(7));
    assert_eq!(4, found(&trial));
    trial.apply(&Step::Mode(Mode::PassThrough));
    assert_eq!(0, found(&trial));
    trial.apply(&Step::Mode(Mode::WriteBack));
    assert_eq!(4, found(&trial));
    trial.cache.fail(&std::io::Error::other("made to fail"));
    assert_eq!(0, found(&trial));
}

#[test]
fn nothing_is_found_once_it_is_taken_back_or_detached() {
    let trial = Trial::new();
    let found = trial.index.find(0).unwrap();
    trial.cache.take_back(&trial.volume);
    assert!(!trial.index.is_current(&found) && trial.index.find(0).is_none());
    let trial = Trial::new();
    let found = trial.index.find(0).unwrap();
    trial.cache.detach(&trial.volume, false).unwrap();
    assert!(!trial.index.is_current(&found) && trial.index.find(0).is_none());
}

#[test]
fn hits_have_blocks_stay_and_count() {
    let mut trial = Trial::new();
    for block in 3..6 {
        trial.apply(&Step::Read(block));
    }
    // The partition is full, and block 0 is the oldest.
    let before = trial.cache.status().volumes["v"].clone();
    let took = Duration::from_millis(1);
    trial.hits.add(Hit {
        block: 0,
        count: 1,
        took,
    });
    // What a process makes up is of no block that the volume has: it takes no time.
    for (block, count) in [(1 << 39, 256), (BLOCKS, 1), (BLOCKS - 1, 2)] {
        trial.hits.add(Hit { block, count, took });
    }
    trial.hits.publish();
    trial.cache.take_hits(&trial.volume, ROOM);
    trial.apply(&Step::Read(9));
    assert!(trial.index.find(0).is_some() && trial.index.find(1).is_none());
    let after = &trial.cache.status().volumes["v"];
    assert_eq!(before.hits + 1, after.hits);
    assert_eq!(before.reads + 2, after.reads);
}

#[test]
fn hits_that_are_made_up_are_of_few_blocks() {
    let mut hits = Hits::new().unwrap();
    let mut process = Hits::open(hits.file().try_clone_to_owned().unwrap()).unwrap();
    let (block, took) = (0, Duration::ZERO);
    (1..=256).for_each(|count| process.add(Hit { block, count, took }));
    process.publish();
    assert!(hits.take(ROOM).iter().all(|hit| hit.count <= 16));
}

/// Regression: the index was no longer changed with the cache while its blocks were still current.
#[test]
fn nothing_is_found_before_its_index_is_left_alone() {
    let trial = Trial::new();
    let state = trial.cache.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| trial.cache.take_back(&trial.volume));
        let is_closed = (0..10_000).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            trial.index.find(0).is_none()
        });
        drop(state);
        assert!(is_closed);
    });
}
