//! Fills a cache, looks blocks up in random order, and prints what that took.
//!
//! usage: bench_partition [BLOCKS] [lru|sieve|s3fifo]
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Instant;

use diffcache_partitions::eviction::Policy;
use diffcache_partitions::{Block, Partitioner, Settings};

const LOOKUPS: u64 = 10_000_000;

/// Anonymous memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon"))
        .unwrap();
    1024 * line
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
}

/// Prints the time of each of `count` calls of `work` with random numbers below `bound`.
fn measure(what: &str, count: u64, bound: Block, mut work: impl FnMut(Block)) {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let started = Instant::now();
    for _ in 0..count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        work(state % bound);
    }
    let each = started.elapsed().as_nanos() as f64 / count as f64;
    println!("{what}: {each:.0} ns");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let blocks: u32 = args.get(1).map_or(4 << 20, |text| text.parse().unwrap());
    let policy = Policy::named(args.get(2).map_or("lru", String::as_str)).unwrap();
    let before = resident();
    let mut cache = Partitioner::new(Settings {
        capacity: blocks,
        eviction: policy,
        admission: 1,
        seed: 7,
    });
    let partition = cache.add_partition(blocks).unwrap();
    let volume = cache.add_volume(partition).unwrap();
    for block in 0..2 * Block::from(blocks) {
        cache.insert(volume, block * 3).unwrap();
    }
    println!(
        "{blocks} blocks, {}: {:.2} bytes each, {:.2} resident",
        policy.name(),
        cache.memory_bytes() as f64 / f64::from(blocks),
        (resident() - before) as f64 / f64::from(blocks),
    );
    let all = 2 * Block::from(blocks);
    measure("look-up of any block", LOOKUPS, all, |n| {
        black_box(cache.find(volume, n * 3));
    });
    measure("reference", LOOKUPS, all, |n| {
        black_box(cache.reference(volume, n * 3));
    });
    measure(
        "reference, with a fill and an eviction at each miss",
        LOOKUPS,
        all,
        |n| {
            if cache.reference(volume, n * 3).is_none() {
                black_box(cache.insert(volume, n * 3).unwrap());
            }
        },
    );
}
