//! Properties of the partitioner, and the paper's tables.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::models::{Key, Model};
use super::*;
use crate::eviction::Policy;

const VOLUMES: u16 = 3;
const BLOCKS: Block = 24;
// Ghosts of up to 14 blocks are exact.
const CAPACITY: u32 = 14;

impl Partitioner {
    /// Notes that a slot holds what its volume lacks: it is not evicted until it is clean.
    fn mark_dirty(&mut self, slot: Slot) {
        if self.slots.is_dirty(slot) {
            return;
        }
        let partition = self.partition_of(slot);
        let partition = &mut self.partitions[partition];
        partition.order.remove(&mut self.slots, slot);
        partition.dirty.push(&mut self.slots, slot);
        self.slots.set_dirty(slot, true);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Reference(Key),
    Remove(Key),
    MarkDirty(Key),
    MarkClean(Key),
    WriteBackOldest(PartitionId),
    SetLimit(PartitionId, u32),
    SetAdmission(PartitionId, u8),
    Shrink(PartitionId),
    Replace(VolumeId),
}

fn keys() -> impl Strategy<Value = Key> {
    (0..VOLUMES, 0..BLOCKS)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let partition = 0..usize::from(VOLUMES);
    let step = prop_oneof![
        30 => keys().prop_map(Step::Reference),
        2 => keys().prop_map(Step::Remove),
        4 => keys().prop_map(Step::MarkDirty),
        3 => keys().prop_map(Step::MarkClean),
        2 => partition.clone().prop_map(Step::WriteBackOldest),
        3 => (partition.clone(), 0..=CAPACITY).prop_map(|(id, limit)| Step::SetLimit(id, limit)),
        1 => (partition.clone(), 1..4_u8).prop_map(|(id, n)| Step::SetAdmission(id, n)),
        6 => partition.prop_map(Step::Shrink),
        1 => (0..VOLUMES).prop_map(Step::Replace),
    ];
    proptest::collection::vec(step, 1..200)
}

/// A partitioner and its model, which have to do the same.
struct Pair {
    real: Partitioner,
    model: Model,
}

impl Pair {
    /// One volume for each partition, or all in a single one.
    fn new(policy: Policy, admission: u8, shared: bool) -> Self {
        let settings = Settings {
            capacity: CAPACITY,
            eviction: policy,
            admission,
            seed: 42,
        };
        let mut real = Partitioner::new(settings);
        let mut model = Model::new(CAPACITY, policy, admission);
        let limits = if shared { vec![9, 0, 0] } else { vec![4, 7, 1] };
        for (n, &limit) in limits.iter().enumerate() {
            assert_eq!(Ok(n), real.add_partition(limit));
            model.add_partition(limit);
        }
        for n in 0..VOLUMES {
            let partition = if shared { 0 } else { usize::from(n) };
            assert_eq!(Ok(n), real.add_volume(partition));
            model.volumes.push(partition);
        }
        Self { real, model }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Reference(key) => self.reference(key),
            Step::Remove(key) => {
                if let Some(slot) = self.real.find(key.0, key.1) {
                    assert_eq!(key, key_of(self.real.remove(slot)));
                    self.model.remove(key);
                }
            }
            Step::MarkDirty(key) => {
                if let Some(slot) = self.real.find(key.0, key.1) {
                    self.real.mark_dirty(slot);
                    self.model.mark_dirty(key);
                }
            }
            Step::MarkClean(key) => self.mark_clean(key),
            Step::WriteBackOldest(id) => {
                let oldest = self.model.parts[id].dirty.last().copied();
                let slot = self.real.oldest_dirty(id);
                let found = slot.map(|slot| self.real.slots.block(slot));
                assert_eq!(oldest.map(|key| key.1), found);
                if let Some(key) = oldest {
                    self.mark_clean(key);
                }
            }
            Step::SetLimit(id, limit) => {
                let fits = self.model.set_limit(id, limit);
                assert_eq!(fits, self.real.set_limits(&[(id, limit)]).is_ok());
            }
            Step::SetAdmission(id, admission) => {
                self.model.set_admission(id, admission);
                self.real.set_admission(id, admission);
            }
            Step::Shrink(id) => {
                assert_eq!(self.model.shrink(id), self.real.shrink(id).map(key_of));
            }
            Step::Replace(volume) => self.replace(volume),
        }
    }

    fn reference(&mut self, key: Key) {
        let hit = self.real.reference(key.0, key.1).is_some();
        assert_eq!(self.model.has(key), hit);
        if hit {
            return self.model.touch(key);
        }
        let admitted = self.real.admit(key.0, key.1);
        assert_eq!(self.model.admit(key), admitted);
        if admitted {
            let inserted = self.real.insert(key.0, key.1);
            let evicted = inserted.map(|(_, evicted)| evicted.map(key_of));
            assert_eq!(self.model.insert(key), evicted.map_err(|_| ()));
        }
    }

    fn mark_clean(&mut self, key: Key) {
        if let Some(slot) = self.real.find(key.0, key.1) {
            let evicted = self.real.mark_clean(slot).map(key_of);
            assert_eq!(self.model.mark_clean(key), evicted);
        }
    }

    fn replace(&mut self, volume: VolumeId) {
        let partition = self.model.volumes[usize::from(volume)];
        self.real.remove_volume(volume);
        assert_eq!(Ok(volume), self.real.add_volume(partition));
        for block in 0..BLOCKS {
            self.model.remove((volume, block));
        }
    }

    /// Checks that both have the same blocks, each in a slot of its own, and count the same.
    fn check(&self) {
        let mut slots = BTreeSet::new();
        for volume in 0..VOLUMES {
            let mut blocks = 0;
            for block in 0..BLOCKS {
                let slot = self.real.find(volume, block);
                assert_eq!(self.model.has((volume, block)), slot.is_some());
                let Some(slot) = slot else { continue };
                blocks += 1;
                assert!(slots.insert(slot), "slot {slot} has two blocks");
                assert_eq!(volume, self.real.slots.volume(slot));
                let dirty = self.real.slots.is_dirty(slot);
                assert_eq!(self.model.is_dirty((volume, block)), dirty);
            }
            assert_eq!(blocks, self.real.blocks(volume));
        }
        for (id, part) in self.model.parts.iter().enumerate() {
            assert_eq!(part.held(), self.real.held(id));
            assert_eq!(part.dirty.len() as u32, self.real.dirty(id));
            assert_eq!(part.limit, self.real.limit(id));
        }
        assert_eq!(self.model.unused(), self.real.unused());
        assert_eq!(slots.len() as u32 + self.real.unused(), CAPACITY);
    }
}

fn key_of(evicted: Evicted) -> Key {
    (evicted.volume, evicted.block)
}

fn compare(policy: Policy, admission: u8, shared: bool, steps: &[Step]) {
    let mut pair = Pair::new(policy, admission, shared);
    for step in steps {
        pair.run(step);
        pair.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn partitions_do_as_the_plain_model_with_lru(
        steps in steps(), admission in 1..4_u8, shared: bool
    ) {
        compare(Policy::Lru, admission, shared, &steps);
    }

    #[test]
    fn partitions_do_as_the_plain_model_with_sieve(
        steps in steps(), admission in 1..4_u8, shared: bool
    ) {
        compare(Policy::Sieve, admission, shared, &steps);
    }

    #[test]
    fn partitions_do_as_the_plain_model_with_s3fifo(
        steps in steps(), admission in 1..4_u8, shared: bool
    ) {
        compare(Policy::S3Fifo, admission, shared, &steps);
    }
}

fn one_volume(capacity: u32, eviction: Policy) -> (Partitioner, VolumeId) {
    let mut cache = Partitioner::new(Settings {
        capacity,
        eviction,
        admission: 1,
        seed: 0,
    });
    let partition = cache.add_partition(capacity).unwrap();
    let volume = cache.add_volume(partition).unwrap();
    (cache, volume)
}

/// Hits and evictions of a sequential pass.
fn pass(cache: &mut Partitioner, volume: VolumeId, blocks: Block) -> (u32, u32) {
    let (mut hits, mut evictions) = (0, 0);
    for block in 0..blocks {
        if cache.reference(volume, block).is_some() {
            hits += 1;
        } else {
            let (_, evicted) = cache.insert(volume, block).unwrap();
            evictions += u32::from(evicted.is_some());
        }
    }
    (hits, evictions)
}

#[test]
fn table_of_correctness_without_evictions() {
    let (mut cache, volume) = one_volume(524_288, Policy::Lru);
    assert_eq!((0, 0), pass(&mut cache, volume, 131_072));
    assert_eq!((131_072, 0), pass(&mut cache, volume, 131_072));
}

#[test]
fn table_of_correctness_with_evictions() {
    let (mut cache, volume) = one_volume(128_000, Policy::Lru);
    assert_eq!((0, 3072), pass(&mut cache, volume, 131_072));
    assert_eq!((0, 131_072), pass(&mut cache, volume, 131_072));
}

#[test]
fn a_cached_block_takes_at_most_32_bytes_of_memory() {
    const BLOCKS: u32 = 1 << 18;
    for policy in Policy::ALL {
        let (mut cache, volume) = one_volume(BLOCKS, policy);
        pass(&mut cache, volume, 3 * Block::from(BLOCKS));
        assert_eq!(BLOCKS, cache.blocks(volume));
        let bytes = cache.memory_bytes() as f64 / f64::from(BLOCKS);
        assert!(bytes <= 32.0, "{}: {bytes}", policy.name());
    }
}

#[test]
fn memory_of_the_index_is_returned() {
    let (mut cache, volume) = one_volume(1 << 16, Policy::Lru);
    let empty = cache.volume(volume).index.memory_bytes();
    pass(&mut cache, volume, 1 << 16);
    while cache.pop(volume).is_some() {}
    assert_eq!(1 << 16, cache.unused());
    assert!(cache.volume(volume).index.memory_bytes() < 2 * empty);
}

#[test]
fn a_block_beyond_the_largest_volume_is_refused() {
    let (mut cache, volume) = one_volume(4, Policy::Lru);
    let refused = cache.insert(volume, MAX_BLOCK + 1);
    assert_eq!(Err(PartitionError::Block(MAX_BLOCK + 1)), refused);
    assert!(cache.insert(volume, MAX_BLOCK).is_ok());
    assert!(cache.find(volume, MAX_BLOCK).is_some());
}

#[test]
fn blocks_are_restored_to_their_slots() {
    let (mut cache, volume) = one_volume(8, Policy::Lru);
    assert!(cache.restore(volume, 70, 2, false));
    assert!(cache.restore(volume, 50, 5, false));
    assert_eq!(
        (Some(2), Some(5)),
        (cache.find(volume, 70), cache.find(volume, 50))
    );
    assert!(
        !cache.restore(volume, 60, 4, false),
        "below a restored slot"
    );
    assert!(!cache.restore(volume, 70, 6, false), "the block is there");
    assert!(!cache.restore(volume, 90, 8, false), "no such slot");
    assert_eq!(6, cache.unused());
    let used: BTreeSet<_> = (0..6).map(|n| cache.insert(volume, n).unwrap().0).collect();
    assert_eq!(BTreeSet::from([0, 1, 3, 4, 6, 7]), used);
    assert!((0..8).all(|slot| cache.is_used(slot)));
    let (_, evicted) = cache.insert(volume, 100).unwrap();
    assert_eq!(Some(70), evicted.map(|evicted| evicted.block));
}

#[test]
fn a_block_has_a_checksum_once_its_data_are_written() {
    let (mut cache, volume) = one_volume(1, Policy::Lru);
    let (slot, _) = cache.insert(volume, 1).unwrap();
    assert_eq!(None, cache.checksum(slot));
    cache.set_checksum(slot, Some(0));
    assert_eq!(Some(0), cache.checksum(slot));
    cache.insert(volume, 2).unwrap();
    assert_eq!(None, cache.checksum(slot));
    cache.remove(slot);
    assert!(!cache.is_used(slot));
}

#[test]
fn buckets_that_removals_emptied_are_not_searched_again() {
    let (mut cache, volume) = one_volume(1 << 16, Policy::Lru);
    pass(&mut cache, volume, 1 << 16);
    let full = cache.volume(volume).index.memory_bytes();
    for _ in 0..1 << 15 {
        cache.pop(volume);
    }
    assert!(cache.volume(volume).index.memory_bytes() < full * 3 / 4);
    let left = (0..1 << 16).filter(|&block| cache.find(volume, block).is_some());
    assert_eq!(1 << 15, left.count());
    pass(&mut cache, volume, 1 << 16);
    assert_eq!(1 << 16, cache.blocks(volume));
}
