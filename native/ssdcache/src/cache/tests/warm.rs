//! Blocks that travel with a volume: their numbers, and what is cached of them elsewhere.

use diffcache_partitions::NEVER;

use super::*;

fn warm(setup: &Setup, runs: &[Run]) -> (u64, bool) {
    let warmed = setup.cache.warm(&setup.volume(), runs).unwrap();
    (warmed.blocks, warmed.room)
}

fn hottest(setup: &Setup, most: usize) -> Vec<Run> {
    setup.cache.hottest(&setup.volume(), most)
}

#[test]
fn the_latest_blocks_are_the_hottest() {
    let setup = Setup::new(64);
    for block in [9, 3, 4, 5, 9, 20] {
        setup.read(block * 4096, 4096);
    }
    assert_eq!(vec![(3, 3), (9, 1), (20, 1)], hottest(&setup, 100));
    assert_eq!(vec![(5, 1), (9, 1), (20, 1)], hottest(&setup, 3));
    assert_eq!(Vec::<Run>::new(), hottest(&setup, 0));
}

#[test]
fn dirty_blocks_are_no_hot_ones() {
    let setup = Setup::new(64);
    let volume = setup.volume();
    setup.cache.set_mode(&volume, Mode::WriteBack).unwrap();
    setup.write(0, 4096, 1);
    setup.read(4096, 4096);
    assert_eq!(vec![(1, 1)], hottest(&setup, 100));
}

#[test]
fn warmed_blocks_are_hits_and_no_requests() {
    let setup = Setup::new(64);
    setup.write(5 * 4096, 4096, 7);
    setup.cache.invalidate(&setup.volume(), false).unwrap();
    setup.read(6 * 4096, 4096);
    assert_eq!((3, true), warm(&setup, &[(4, 3), (9, 1)]));
    let status = setup.status();
    assert_eq!((1, 2, 4), (status.reads, status.misses, status.blocks));
    assert_eq!(vec![7; 4096], setup.read(5 * 4096, 4096));
    assert_eq!(1, setup.hits());
    // Only what was missing was read.
    let read = setup.status().origin_bytes_read;
    assert_eq!((0, true), warm(&setup, &[(4, 3)]));
    assert_eq!(read, setup.status().origin_bytes_read);
}

#[test]
fn no_block_is_evicted_for_a_warmed_one() {
    let setup = Setup::new(4);
    setup.read(0, 2 * 4096);
    assert_eq!((2, false), warm(&setup, &[(10, 100)]));
    let status = setup.status();
    assert_eq!((0, 4), (status.evictions, status.blocks));
    assert_eq!(vec![(0, 2), (10, 2)], hottest(&setup, 100));
}

#[test]
fn numbers_that_the_volume_does_not_have_are_left_out() {
    let setup = Setup::new(64);
    let runs = [
        (255, 9),
        (256, 1),
        (u64::MAX, u64::MAX),
        (1 << 60, 1),
        (0, 0),
    ];
    assert_eq!((1, true), warm(&setup, &runs));
    assert_eq!(vec![(255, 1)], hottest(&setup, 100));
}

#[test]
fn nothing_is_warmed_where_nothing_is_cached() {
    let setup = Setup::new(64);
    let volume = setup.volume();
    setup.cache.set_mode(&volume, Mode::PassThrough).unwrap();
    assert_eq!((0, false), warm(&setup, &[(0, 9)]));
    setup.cache.set_mode(&volume, Mode::WriteThrough).unwrap();
    setup.cache.set_admission(&volume, NEVER).unwrap();
    assert_eq!((0, false), warm(&setup, &[(0, 9)]));
    assert_eq!(0, setup.status().origin_bytes_read);
}

#[test]
fn an_origin_that_cannot_be_read_leaves_no_block() {
    let setup = Setup::new(64);
    setup.origin.fail(true);
    assert!(setup.cache.warm(&setup.volume(), &[(0, 9)]).is_err());
    assert_eq!(0, setup.status().blocks);
    assert!(setup.cache.lock().is_idle());
    setup.origin.fail(false);
    assert_eq!((9, true), warm(&setup, &[(0, 9)]));
}
