//! What waits for the device or for one origin, and volumes that do not wait with it.

use diffcache_faulty::{Effect, Fault, Operation, Valve};

use super::*;
use crate::device::format::Superblock;

/// Regression: intents of all volumes were cleared by one thread, which waited for each origin; and
/// of a volume whose origin hangs, each second look began another task.
#[test]
fn intents_are_cleared_while_the_origin_of_another_volume_hangs() {
    let setup = Setup::new(32);
    let (cache, hung, valve) = (&setup.cache, MemoryDisk::new(1 << 20), Valve::default());
    let stuck = cache.attach(attachment("hung", &hung, 16)).unwrap();
    cache.write(&stuck, &[1; BLOCK], 0).unwrap();
    setup.write(0, BLOCK, 2);
    hung.inject(Fault::new(Operation::Sync, Effect::Hang(valve.clone())));
    let has = |volume: &Volume| cache.device.intents().has(volume.record, 0);
    cache.settle().unwrap();
    let tasks = cache.take_idle();
    assert_eq!(2, tasks.len());
    std::thread::scope(|scope| {
        for task in tasks {
            scope.spawn(move || assert_eq!(None, cache.run(&task)));
        }
        valve.wait_for(1);
        while has(&setup.volume()) {
            std::thread::yield_now();
        }
        // One at a time for each volume.
        setup.write(0, BLOCK, 3);
        let taken = [(); 4].map(|()| cache.take_idle().len());
        assert_eq!([0, 1, 1, 1], taken);
        assert!(has(&stuck));
        valve.open();
    });
    assert!(!has(&stuck));
}

/// Regression: the record of a new volume was written, and what its origin lost noted, under the lock
/// of all requests.
#[test]
fn requests_are_served_while_an_attachment_waits_for_the_device() {
    let setup = Setup::new(32);
    setup.write(0, BLOCK, 1);
    let valve = Valve::default();
    for place in Superblock::volume_at(1) {
        let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
        setup.ssd.inject(hang.within(place..place + 1));
    }
    let origin = MemoryDisk::new(1 << 20);
    std::thread::scope(|scope| {
        let attached = scope.spawn(|| setup.cache.attach(attachment("w", &origin, 16)));
        valve.wait_for(1);
        assert_eq!(vec![1; BLOCK], setup.read(0, BLOCK));
        setup.write(BLOCK as u64, BLOCK, 2);
        assert_eq!(1, setup.cache.volumes().len());
        valve.open();
        attached.join().unwrap().unwrap();
    });
    assert_eq!(2, setup.cache.volumes().len());
}

/// Intents of a volume that is gone take no place from others.
#[test]
fn a_volume_that_is_detached_leaves_no_intents() {
    let setup = Setup::new(32);
    setup.write(0, BLOCK, 1);
    let volume = setup.volume();
    setup.cache.detach(&volume, false).unwrap();
    assert!(!setup.cache.device.intents().has(volume.record, 0));
}
