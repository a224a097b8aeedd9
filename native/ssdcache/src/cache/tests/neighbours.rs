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

/// Does work in threads while the device holds up what another thread of a scope waits for.
pub(super) fn beside_held<T: Send>(
    valve: &Valve,
    held: impl FnOnce() + Send,
    work: impl FnOnce() -> T + Send,
) -> T {
    let (send, received) = channel();
    let done = std::thread::scope(|scope| {
        scope.spawn(held);
        valve.wait_for(1);
        scope.spawn(|| send.send(work()));
        // A failure of the test leaves no thread waiting.
        let done = received.recv_timeout(Duration::from_secs(240));
        valve.open();
        done
    });
    done.unwrap()
}

/// Holds writes to a part of the device up.
fn hold(ssd: &MemoryDisk, range: Range<u64>) -> Valve {
    let valve = Valve::default();
    ssd.inject(Fault::new(Operation::Write, Effect::Hang(valve.clone())).within(range));
    valve
}

/// What is held up until this is dropped: a test that fails does not wait for ever.
struct Held(Valve);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Bytes of an intent, and of places that are those of whole volumes.
const INTENT: u64 = 8;
const WHOLE: u64 = 1024 * INTENT;

/// Regression: intents were written under a lock that the writes to all volumes need.
#[test]
fn writes_do_not_wait_for_the_intent_of_another_volume() {
    let setup = Setup::new(32);
    let (cache, origins) = (&setup.cache, [(); 2].map(|()| MemoryDisk::new(1 << 20)));
    let slow = cache.attach(attachment("slow", &origins[0], 16)).unwrap();
    let new = cache.attach(attachment("new", &origins[1], 16)).unwrap();
    setup.write(0, BLOCK, 1);
    let second = Superblock::intents_at() + WHOLE + INTENT;
    let valve = hold(&setup.ssd, second..second + INTENT);
    beside_held(
        &valve,
        || cache.write(&slow, &[2; BLOCK], 0).unwrap(),
        || {
            assert!(cache.device.intents().has(slow.record, 0));
            // Of a region with an intent, of one that was flushed since, and of one without an intent.
            setup.write(0, BLOCK, 3);
            cache.flush(&setup.volume()).unwrap();
            setup.write(0, BLOCK, 4);
            cache.write(&new, &[5; BLOCK], 0).unwrap();
            for _ in 0..2 {
                cache
                    .clear(&new, &cache.device.intents().idle(new.record))
                    .unwrap();
            }
            assert!(!cache.device.intents().has(new.record, 0));
            assert_eq!([0, 5], origins.each_ref().map(|origin| origin.content()[0]));
        },
    );
    assert_eq!(2, origins[0].content()[0]);
}

/// A write to a region whose intent another thread is recording begins after it is recorded.
#[test]
fn a_write_waits_for_the_intent_of_its_own_region() {
    let setup = Setup::new(32);
    let first = Superblock::intents_at() + WHOLE;
    let valve = hold(&setup.ssd, first..first + INTENT);
    let (send, received) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| setup.write(0, BLOCK, 1));
        valve.wait_for(1);
        let held = Held(valve.clone());
        scope.spawn(|| {
            send.send(()).unwrap();
            setup.write(5 * BLOCK as u64, BLOCK, 2);
            let mut intent = [0; INTENT as usize];
            setup.ssd.copied().read_at(&mut intent, first).unwrap();
            assert_ne!([0; INTENT as usize], intent);
        });
        received.recv().unwrap();
        for _ in 0..1000 {
            std::thread::yield_now();
        }
        assert_eq!([0, 0], [0, 5 * BLOCK].map(|at| setup.origin.content()[at]));
        drop(held);
    });
    assert_eq!([1, 2], [0, 5 * BLOCK].map(|at| setup.origin.content()[at]));
}

/// A cache with the volume "v", and another one with dirty blocks that were not flushed, both in
/// write-back. Returns where the entries of the dirty blocks are.
fn with_dirty_neighbour() -> (Setup, Arc<Volume>, Range<u64>) {
    let setup = Setup::new(16);
    setup
        .cache
        .set_mode(&setup.volume(), Mode::WriteBack)
        .unwrap();
    let attached = Attachment {
        mode: Mode::WriteBack,
        ..attachment("busy", &MemoryDisk::new(1 << 20), 16)
    };
    let busy = setup.cache.attach(attached).unwrap();
    setup.cache.write(&busy, &[2; 4 * BLOCK], 0).unwrap();
    let state = setup.cache.lock();
    let slots = (0..4).map(|block| state.blocks.find(busy.id, block).unwrap());
    let slots: Vec<_> = slots.collect();
    drop(state);
    let (first, last) = (slots.iter().min().unwrap(), slots.iter().max().unwrap());
    let entries = Superblock::entry_at(*first)..Superblock::entry_at(last + 1);
    (setup, busy, entries)
}

/// Regression: one flush at a time made the dirty blocks of all volumes durable.
#[test]
fn a_flush_does_not_wait_for_that_of_another_volume() {
    let (setup, busy, entries) = with_dirty_neighbour();
    let (cache, valve) = (&setup.cache, hold(&setup.ssd, entries));
    beside_held(
        &valve,
        || cache.flush(&busy).unwrap(),
        || {
            setup.write(0, BLOCK, 1);
            cache.flush(&setup.volume()).unwrap();
            cache.flush_back(&setup.volume()).unwrap();
            cache.zero(&setup.volume(), 0, BLOCK as u64).unwrap();
            cache.detach(&setup.volume(), false).unwrap();
        },
    );
}

/// Regression: a flush made the dirty blocks of all volumes durable.
#[test]
fn a_flush_writes_no_entries_of_another_volume() {
    let (setup, busy, entries) = with_dirty_neighbour();
    setup.write(0, BLOCK, 1);
    let failing = Fault::new(Operation::Write, Effect::Error(5));
    setup.ssd.inject(failing.within(entries));
    setup.cache.flush(&setup.volume()).unwrap();
    assert_eq!("ok", setup.cache.status().device.state);
    assert_eq!(4, setup.cache.dirty_blocks(&busy));
    // All of them are, with one pass, at the end of the process.
    assert!(setup.cache.commit_all().is_err());
    assert_eq!("failed", setup.cache.status().device.state);
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
