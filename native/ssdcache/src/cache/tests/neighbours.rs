//! What waits for the device or for one origin, and volumes that do not wait with it.

use std::sync::mpsc::channel;

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

/// Work on a volume.
type Work = fn(&Cache, &Volume);

/// What changes entries of a volume with 16 cached blocks and no more room; whether these are dirty.
const WORKS: [(&str, bool, Work); 8] = [
    ("write back", true, |cache, volume| {
        cache.flush_back(volume).unwrap();
    }),
    ("flush", true, |cache, volume| cache.flush(volume).unwrap()),
    ("shrink", false, |cache, volume| {
        cache.set_limit(volume, 2).unwrap();
    }),
    ("trim", true, |cache, volume| {
        cache.zero(volume, 0, 1 << 20).unwrap();
    }),
    ("invalidate", false, |cache, volume| {
        cache.invalidate(volume, false).unwrap();
    }),
    ("detach", false, |cache, volume| {
        cache.detach(volume, false).unwrap();
    }),
    ("write", true, |cache, volume| {
        cache.write(volume, &[3; BLOCK], 0).unwrap();
    }),
    ("read", false, |cache, volume| {
        let mut block = [0; BLOCK];
        cache.read(volume, &mut block, 20 * BLOCK as u64).unwrap();
    }),
];

/// Regression: entries were written under the lock of all requests, up to 4096 at a time.
#[test]
fn reads_are_served_while_the_entries_of_another_volume_are_written() {
    for (name, is_dirty, work) in WORKS {
        let setup = Setup::new(16);
        setup.write(0, BLOCK, 1);
        let origin = MemoryDisk::new(1 << 20);
        let attached = Attachment {
            mode: Mode::WriteBack,
            ..attachment("busy", &origin, 16)
        };
        let busy = setup.cache.attach(attached).unwrap();
        setup.cache.write(&busy, &[2; 16 * BLOCK], 0).unwrap();
        if !is_dirty {
            setup.cache.flush_back(&busy).unwrap();
        }
        let valve = Valve::default();
        let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
        let entries = Superblock::entry_at(0)..Superblock::entry_at(64);
        setup.ssd.inject(hang.within(entries));
        let (send, received) = channel();
        let read = std::thread::scope(|scope| {
            scope.spawn(|| work(&setup.cache, &busy));
            valve.wait_for(1);
            scope.spawn(|| send.send(setup.read(0, BLOCK)));
            // A failure of the test leaves no thread waiting.
            let read = received.recv_timeout(Duration::from_secs(240));
            valve.open();
            read
        });
        assert_eq!(Ok(vec![1; BLOCK]), read, "{name}");
    }
}
