//! The paper's tables by simulation, and properties.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn scenario(capacity: u32, sharing: Sharing) -> Scenario {
    Scenario {
        capacity,
        block: 4096,
        sharing,
        eviction: Policy::Lru,
        admission: 1,
        sequential: 0,
        ignore_writes: false,
        occupancy_us: None,
    }
}

/// Epochs that do not end early.
fn epochs_of(length_us: u64) -> Sharing {
    Sharing::Dynamic(Lengths {
        longest_us: NonZeroU64::new(length_us).unwrap(),
        look_us: None,
    })
}

/// A decision that changes nothing.
fn keep(_time_us: u64, volumes: Vec<EpochVolume>) -> Option<Vec<u32>> {
    Some(volumes.iter().map(|volume| volume.size).collect())
}

fn run(scenario: Scenario, trace: &str) -> Result<Report, SimulateError> {
    let reader = Reader::new(trace.as_bytes()).unwrap();
    simulate(reader, scenario, &mut keep, &mut || true)
}

/// A trace that reads `blocks` blocks in sequence, `passes` times, 1024 at once.
fn sequential(blocks: u64, passes: u64) -> String {
    let requests = (0..passes).flat_map(|_| (0..blocks).step_by(1024));
    let line = |(n, first): (usize, u64)| {
        let count = (blocks - first).min(1024);
        format!("{n},v,r,{},{}\n", first * 4096, count * 4096)
    };
    requests.enumerate().map(line).collect()
}

fn counts(references: u64, hits: u64, evictions: u64, written: u64) -> Counts {
    Counts {
        references,
        hits,
        evictions,
        written,
    }
}

#[test]
fn table_of_correctness_without_evictions() {
    let own = Sharing::Partitioned(vec![("v".into(), 524_288)]);
    for sharing in [Sharing::Unified, own] {
        for (passes, expected) in [
            (1, counts(131_072, 0, 0, 131_072)),
            (2, counts(262_144, 131_072, 0, 131_072)),
        ] {
            let found = run(
                scenario(524_288, sharing.clone()),
                &sequential(131_072, passes),
            );
            assert_eq!(vec![("v".into(), expected)], found.unwrap().volumes);
        }
    }
}

#[test]
fn table_of_correctness_with_evictions() {
    let own = Sharing::Partitioned(vec![("v".into(), 128_000)]);
    for sharing in [Sharing::Unified, own] {
        for (passes, expected) in [
            (1, counts(131_072, 0, 3072, 131_072)),
            (2, counts(262_144, 0, 3072 + 131_072, 262_144)),
        ] {
            let found = run(
                scenario(128_000, sharing.clone()),
                &sequential(131_072, passes),
            );
            assert_eq!(vec![("v".into(), expected)], found.unwrap().volumes);
        }
    }
}

#[test]
fn occupancy_is_sampled_in_the_time_of_the_trace() {
    let trace = "1000,a,r,0,8192\n1900,b,w,0,4096\n3500,a,r,8192,4096\n";
    let mut scenario = scenario(2, Sharing::Unified);
    scenario.occupancy_us = NonZeroU64::new(1000);
    let rows = run(scenario, trace).unwrap().occupancy;
    let rows: Vec<_> = rows
        .iter()
        .map(|row| (row.time_us, &row.blocks[..]))
        .collect();
    let expected: [(u64, &[u32]); 3] = [(1000, &[1, 1]), (2000, &[1, 1]), (2500, &[1, 1])];
    assert_eq!(expected, rows[..]);
}

#[test]
fn a_leap_in_time_does_not_exhaust_the_memory() {
    let mut scenario = scenario(2, Sharing::Unified);
    scenario.occupancy_us = NonZeroU64::new(1);
    let trace = "0,a,r,0,4096\n9000000000000000000,a,r,0,4096\n";
    assert!(matches!(run(scenario, trace), Err(SimulateError::Samples)));
}

#[test]
fn a_simulation_can_be_stopped() {
    let reader = Reader::new("0,a,r,0,4096\n".as_bytes()).unwrap();
    let stopped = simulate(
        reader,
        scenario(2, Sharing::Unified),
        &mut keep,
        &mut || false,
    );
    assert!(matches!(stopped, Err(SimulateError::Stopped)));
}

#[test]
fn writes_are_cached_or_left_out() {
    let trace = "0,a,w,0,4096\n1,a,r,0,4096\n2,b,w,0,4096\n";
    let mut scenario = scenario(8, Sharing::Unified);
    let found = run(scenario.clone(), trace).unwrap().volumes;
    assert_eq!(counts(2, 1, 0, 1), found[0].1);
    scenario.ignore_writes = true;
    scenario.sharing = Sharing::Partitioned(vec![("a".into(), 8)]);
    let found = run(scenario, trace).unwrap().volumes;
    assert_eq!(vec![("a".into(), counts(1, 0, 0, 1))], found);
}

#[test]
fn a_volume_without_a_size_is_named() {
    let sizes = Sharing::Partitioned(vec![("a".into(), 8)]);
    let error = run(scenario(8, sizes), "0,b,r,0,4096\n").unwrap_err();
    assert_eq!("volume b has no size; add it to --sizes", error.to_string());
}

#[test]
fn a_scan_bypasses_the_cache_after_the_cutoff() {
    let mut scenario = scenario(4096, Sharing::Unified);
    scenario.sequential = 1024 * 4096;
    let found = run(scenario, &sequential(4096, 2)).unwrap().volumes;
    assert_eq!(counts(8192, 1024, 0, 1024), found[0].1);
}

#[test]
fn blocks_are_admitted_at_the_second_reference() {
    let mut scenario = scenario(4096, Sharing::Unified);
    scenario.admission = 2;
    let found = run(scenario, &sequential(2048, 3)).unwrap().volumes;
    assert_eq!(counts(3 * 2048, 2048, 0, 2048), found[0].1);
}

/// Hits by reuse distances, which LRU follows: those below the size.
fn hits_by_distance(references: &[u64], size: usize) -> u64 {
    let mut stack: Vec<u64> = Vec::new();
    let mut hits = 0;
    for &block in references {
        if let Some(distance) = stack.iter().position(|&other| other == block) {
            hits += u64::from(distance < size);
            stack.remove(distance);
        }
        stack.insert(0, block);
    }
    hits
}

proptest! {
    #[test]
    fn hits_of_partitions_are_those_of_their_reuse_distances(
        references in proptest::collection::vec((0..3_u8, 0..40_u64), 1..400),
        sizes in [0..30_u32, 0..30_u32, 0..30_u32],
    ) {
        let line = |(n, (v, block)): (usize, &(u8, u64))| format!("{n},{v},r,{},1\n", block * 4096);
        let trace: String = references.iter().enumerate().map(line).collect();
        let named = sizes.iter().enumerate().map(|(v, &size)| (v.to_string(), size));
        let sharing = Sharing::Partitioned(named.collect());
        let found = run(scenario(90, sharing), &trace).unwrap();
        let mut own: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        for &(v, block) in &references {
            own.entry(v).or_default().push(block);
        }
        for (v, blocks) in own {
            let expected = hits_by_distance(&blocks, sizes[usize::from(v)] as usize);
            prop_assert_eq!(expected, found.volumes[usize::from(v)].1.hits);
        }
        let all: Vec<u64> = references.iter().map(|&(v, b)| u64::from(v) << 32 | b).collect();
        let unified = run(scenario(20, Sharing::Unified), &trace).unwrap();
        let hits: u64 = unified.volumes.iter().map(|(_, counts)| counts.hits).sum();
        prop_assert_eq!(hits_by_distance(&all, 20), hits);
    }
}

#[test]
fn sizes_are_decided_after_each_epoch() {
    let text = "100,a,r,0,8192\n105,b,r,0,4096\n111,a,r,0,8192\n155,b,r,0,4096\n";
    let mut seen = Vec::new();
    let mut decide = |time_us: u64, volumes: Vec<EpochVolume>| {
        let of = |volume: &EpochVolume| (volume.size, volume.curve.references);
        seen.push((time_us, of(&volumes[0]), of(&volumes[1])));
        Some(vec![1, 3])
    };
    let reader = Reader::new(text.as_bytes()).unwrap();
    let scenario = scenario(4, epochs_of(10));
    let found = simulate(reader, scenario, &mut decide, &mut || true).unwrap();
    assert_eq!(vec![(10, (2, 2), (2, 1)), (50, (1, 2), (3, 0))], seen);
    let row = |time_us, blocks: &[u32]| Row {
        time_us,
        blocks: blocks.to_vec(),
    };
    assert_eq!(
        vec![row(0, &[4]), row(5, &[2, 2]), row(11, &[1, 3])],
        found.sizes
    );
    // Of the two blocks of a, one left when its partition shrank, and each read replaced one.
    let expected = [
        ("a".into(), counts(4, 0, 3, 4)),
        ("b".into(), counts(2, 1, 0, 1)),
    ];
    assert_eq!(expected.to_vec(), found.volumes);
}

#[test]
fn epochs_take_requests_in_the_order_of_time() {
    let trace = "1,a,r,0,1\n9,a,r,0,1\n8,a,r,0,1\n";
    let found = run(scenario(4, epochs_of(5)), trace);
    let expected = SimulateError::Unsorted {
        time_us: 8,
        latest: 9,
    };
    assert_eq!(found.unwrap_err().to_string(), expected.to_string());
    // Without epochs their order is that of the trace.
    assert!(run(scenario(4, Sharing::Unified), trace).is_ok());
}

#[test]
fn a_decision_can_stop_it() {
    let mut stop = |_: u64, _: Vec<EpochVolume>| None;
    let reader = Reader::new(&b"1,a,r,0,1\n9,a,r,0,1\n"[..]).unwrap();
    let scenario = scenario(4, epochs_of(5));
    let found = simulate(reader, scenario, &mut stop, &mut || true);
    assert!(matches!(found, Err(SimulateError::Stopped)));
}

/// Ends epochs early at some times, and notes when it was asked and decided.
#[derive(Default)]
struct EndsAt {
    early: Vec<u64>,
    looks: Vec<(u64, Vec<Served>)>,
    decisions: Vec<(u64, u64)>,
}

impl Decider for EndsAt {
    fn decide(&mut self, time_us: u64, volumes: Vec<EpochVolume>) -> Option<Vec<u32>> {
        let references = volumes.iter().map(|volume| volume.curve.references);
        self.decisions.push((time_us, references.sum()));
        keep(time_us, volumes)
    }

    fn ends_early(&mut self, time_us: u64, volumes: Vec<Served>) -> Option<bool> {
        self.looks.push((time_us, volumes));
        Some(self.early.contains(&time_us))
    }
}

fn play_each_us(requests: u64, lengths: Lengths, decider: &mut EndsAt) {
    let line = |n: u64| format!("{n},v,r,{},4096\n", n % 3 * 4096);
    let text: String = (0..requests).map(line).collect();
    let reader = Reader::new(text.as_bytes()).unwrap();
    let scenario = scenario(2, Sharing::Dynamic(lengths));
    simulate(reader, scenario, decider, &mut || true).unwrap();
}

fn lengths(longest_us: u64, look_us: u64) -> Lengths {
    Lengths {
        longest_us: NonZeroU64::new(longest_us).unwrap(),
        look_us: NonZeroU64::new(look_us),
    }
}

#[test]
fn an_epoch_that_ends_early_begins_a_whole_one() {
    let mut ends = EndsAt {
        early: vec![6],
        ..EndsAt::default()
    };
    play_each_us(30, lengths(10, 3), &mut ends);
    // Requests are counted before the one at the end of an epoch.
    assert_eq!(vec![(6, 6), (16, 10), (26, 10)], ends.decisions);
    let times: Vec<u64> = ends.looks.iter().map(|look| look.0).collect();
    assert_eq!(vec![3, 6, 9, 12, 15, 19, 22, 25, 29], times);
    let served = |references, full| Served {
        name: "v".into(),
        references,
        hits: 0,
        full,
    };
    assert_eq!(vec![served(3, true)], ends.looks[0].1);
    assert_eq!(vec![served(29, true)], ends.looks[8].1);
}

#[test]
fn a_look_can_stop_it() {
    struct Stops;
    impl Decider for Stops {
        fn decide(&mut self, time_us: u64, volumes: Vec<EpochVolume>) -> Option<Vec<u32>> {
            keep(time_us, volumes)
        }
        fn ends_early(&mut self, _: u64, _: Vec<Served>) -> Option<bool> {
            None
        }
    }
    let reader = Reader::new(&b"1,a,r,0,1\n9,a,r,0,1\n"[..]).unwrap();
    let scenario = scenario(4, Sharing::Dynamic(lengths(100, 5)));
    let found = simulate(reader, scenario, &mut Stops, &mut || true);
    assert!(matches!(found, Err(SimulateError::Stopped)));
}

proptest! {
    #[test]
    fn epochs_are_no_longer_and_no_shorter_than_they_may_be(
        longest in 1..40_u64, look in 1..40_u64,
        early in proptest::collection::vec(0..200_u64, 0..20),
    ) {
        let mut ends = EndsAt { early, ..EndsAt::default() };
        play_each_us(200, lengths(longest, look), &mut ends);
        let mut begin = 0;
        for (time, _) in ends.decisions {
            prop_assert!(time - begin == longest
                || (time - begin) % look == 0 && time - begin < longest && ends.early.contains(&time));
            begin = time;
        }
        prop_assert!(200 - begin <= longest);
    }
}
