//! The cache has the hits of the simulation.

use super::*;

#[test]
fn served_hits_are_those_of_the_simulation() {
    for (sequential, admission) in [(0, 1), (5 * 4096, 1), (5 * 4096, 2)] {
        compare_with_the_simulation(sequential, admission);
    }
}

fn compare_with_the_simulation(sequential: u64, admission: u8) {
    use diffcache_simulation::cache::{simulate, Scenario, Sharing};
    use diffcache_simulation::trace::Reader;

    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
    let attachments = vec![Attachment {
        sequential,
        ..attachment("v", &origin, 20)
    }];
    let options = Options {
        admission,
        ..OPTIONS
    };
    let cache = Cache::open(device(&ssd, 64), options, attachments).unwrap();
    let setup = Setup { ssd, origin, cache };
    let mut lines = String::new();
    let (mut state, mut block) = (12345_u64, 0);
    for n in 0..3000 {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let count = 1 + (state >> 60) % 3;
        // Half of the requests continue the one before.
        if n % 20 < 10 || block > 100 {
            block = (state >> 33) % 40;
        }
        let op = if state >> 50 & 7 == 0 { 'w' } else { 'r' };
        lines += &format!("{n},v,{op},{},{}\n", block * 4096, count * 4096);
        let length = count as usize * 4096;
        match op {
            'w' => setup.write(block * 4096, length, n as u8),
            _ => drop(setup.read(block * 4096, length)),
        }
        block += count;
    }
    let scenario = Scenario {
        capacity: 64,
        block: 4096,
        sharing: Sharing::Partitioned(vec![("v".into(), 20)]),
        eviction: Policy::Lru,
        admission,
        sequential,
        ignore_writes: false,
        occupancy_us: None,
    };
    let reader = Reader::new(lines.as_bytes()).unwrap();
    let report = simulate(reader, scenario, &mut |_, _| None, &mut || true).unwrap();
    let (counts, status) = (report.volumes[0].1, setup.status());
    assert_eq!(
        (counts.hits, counts.evictions),
        (status.hits, status.evictions)
    );
    assert_eq!(counts.references, status.hits + status.misses);
    assert_eq!(counts.written * 4096, status.ssd_bytes_written);
    assert_eq!(sequential > 0, status.bypassed > 0);
}
