//! Zeroes over dirty blocks.

use super::*;

#[test]
fn zeroes_replace_what_is_dirty() {
    let setup = write_back(64);
    setup.write(0, 12288, 1);
    setup.cache.zero(&setup.volume(), 100, 8000).unwrap();
    let mut expected = vec![1; 100];
    expected.resize(8100, 0);
    expected.resize(12288, 1);
    assert_eq!(expected, setup.read(0, 12288));
    assert_eq!(3, setup.dirty());
}

#[test]
fn zeroes_take_no_slots_and_evict_nothing_of_other_ranges() {
    for mode in Mode::ALL {
        let setup = Setup::new(16);
        setup.read(0, 8 * 4096);
        setup.cache.set_mode(&setup.volume(), mode).unwrap();
        let before = setup.status();
        setup
            .cache
            .zero(&setup.volume(), 100 * 4096, 150 * 4096)
            .unwrap();
        let after = setup.status();
        assert_eq!(
            (before.blocks, 0),
            (after.blocks, after.evictions),
            "{mode:?}"
        );
        setup.cache.zero(&setup.volume(), 0, 4 * 4096).unwrap();
        setup
            .cache
            .zero(&setup.volume(), 6 * 4096, 200 * 4096)
            .unwrap();
        assert_eq!(2, setup.status().blocks, "{mode:?}");
        assert!(setup.cache.lock().is_idle());
    }
}

#[test]
fn zeroes_of_dirty_blocks_are_durable_before_the_blocks_are_lost() {
    let setup = write_back(64);
    setup.write(0, 32 * 4096, 1);
    setup.flush();
    setup.origin.inject(Fault::new(
        Operation::Sync,
        Effect::Error(diffcache_faulty::EIO),
    ));
    let volume = setup.volume();
    assert!(setup.cache.zero(&volume, 1000, 30 * 4096).is_err());
    assert_eq!(
        32,
        setup.dirty(),
        "the origin has the zeroes, but not durably"
    );
    setup.origin.mend();
    setup.cache.zero(&volume, 1000, 30 * 4096).unwrap();
    assert_eq!(
        3,
        setup.dirty(),
        "the ends of the range, and what is behind it"
    );
    let mut expected = vec![1; 32 * 4096];
    expected[1000..1000 + 30 * 4096].fill(0);
    assert_eq!(expected, setup.read(0, 32 * 4096));
    setup.flush();
    setup.ssd.cut(|_| 0);
    setup.origin.cut(|_| 0);
    let setup = setup.restart_in(rebooted(), OPTIONS, Mode::WriteBack);
    assert_eq!(expected, setup.unwrap().read(0, 32 * 4096));
}

#[test]
fn zeroes_take_as_many_flushes_however_many_blocks_are_dirty() {
    let flushes = |blocks: u64| {
        let setup = write_back(64);
        setup.write(0, blocks as usize * 4096, 1);
        setup.flush();
        let counted = |disk: &MemoryDisk| disk.syncs();
        let before = counted(&setup.ssd) + counted(&setup.origin);
        setup.cache.zero(&setup.volume(), 0, 1 << 20).unwrap();
        assert_eq!(0, setup.dirty());
        counted(&setup.ssd) + counted(&setup.origin) - before
    };
    assert_eq!((2, 2), (flushes(1), flushes(60)));
}
