//! Intents of several records, whose places on the device lie among one another.

use diffcache_faulty::{Effect, Fault, Operation, Valve};

use super::*;
use crate::device::format::INTENTS;
use crate::device::intents::{Intents, REGION};

const COUNT: u64 = 20;

fn region(number: u64) -> Range<u64> {
    number * REGION..number * REGION + 1
}

/// The regions of a record that have intents after a power cut which lost all that need not be kept.
fn after_a_cut(disk: &MemoryDisk, record: u16) -> Vec<u64> {
    disk.cut(|_| 0);
    let intents = Intents::load(disk).unwrap();
    let has = |number: &u64| intents.has(record, number * REGION);
    (0..COUNT).filter(has).collect()
}

#[test]
fn intents_are_durable_wherever_their_places_are() {
    let disk = MemoryDisk::new(2 * BLOCK + INTENTS);
    let intents = Intents::load(&disk).unwrap();
    for number in 0..COUNT {
        for record in [0, 1] {
            let begun = intents.begin(&disk, record, &region(number)).unwrap();
            assert_eq!(vec![(record, number)], begun);
            intents.end(&begun);
        }
    }
    intents.forget(&disk, 0).unwrap();
    disk.sync().unwrap();
    let all: Vec<u64> = (0..COUNT).collect();
    assert_eq!(
        [vec![], all.clone()],
        [0, 1].map(|record| after_a_cut(&disk, record))
    );
    // The places between those of the other record.
    let begun = intents.begin(&disk, 2, &(0..COUNT * REGION)).unwrap();
    assert_eq!(COUNT as usize, begun.len());
    assert_eq!(
        [vec![], all.clone(), all.clone()],
        [0, 1, 2].map(|record| after_a_cut(&disk, record))
    );
    // One that is being written stays.
    intents.end(&begun[1..]);
    let flushed = intents.begin_flush(2);
    intents.end_flush(&disk, 2, &flushed).unwrap();
    let finished = intents.finished(2);
    intents.clear(&disk, &finished).unwrap();
    disk.sync().unwrap();
    assert_eq!(
        [all, vec![0]],
        [1, 2].map(|record| after_a_cut(&disk, record))
    );
}

#[test]
fn an_intent_says_whether_the_origin_was_flushed_since_the_last_write() {
    let disk = MemoryDisk::new(2 * BLOCK + INTENTS);
    let intents = Intents::load(&disk).unwrap();
    let unflushed = || {
        let found = Intents::load(&disk).unwrap().unflushed(1, COUNT * REGION);
        found
            .iter()
            .map(|range| range.start / REGION)
            .collect::<Vec<_>>()
    };
    for number in [3, 5] {
        intents.end(&intents.begin(&disk, 1, &region(number)).unwrap());
    }
    let mut found = unflushed();
    found.sort_unstable();
    assert_eq!([3, 5], found[..]);
    let flushed = intents.begin_flush(1);
    intents.end(&intents.begin(&disk, 1, &region(5)).unwrap());
    intents.end_flush(&disk, 1, &flushed).unwrap();
    assert_eq!([5], unflushed()[..]);
    intents.end(&intents.begin(&disk, 1, &region(3)).unwrap());
    let mut found = unflushed();
    found.sort_unstable();
    assert_eq!([3, 5], found[..]);
}

/// What could not be recorded is not taken for what the device has.
#[test]
fn an_intent_that_could_not_be_recorded_is_recorded_by_the_next_write() {
    let disk = MemoryDisk::new(2 * BLOCK + INTENTS);
    let intents = Intents::load(&disk).unwrap();
    disk.fail(true);
    assert!(intents.begin(&disk, 0, &region(7)).is_err());
    disk.fail(false);
    let flushed = intents.begin_flush(0);
    intents.end_flush(&disk, 0, &flushed).unwrap();
    intents.begin(&disk, 0, &region(7)).unwrap();
    assert_eq!(vec![7], after_a_cut(&disk, 0));
}

/// Regression: an intent was cleared although its region was written after the flush before.
#[test]
fn what_is_written_while_intents_are_cleared_keeps_its_intent() {
    let setup = Setup::new(64);
    setup.write(0, BLOCK, 1);
    setup.cache.settle().unwrap();
    let (tasks, valve) = (setup.cache.take_idle(), Valve::default());
    let hang = Fault::new(Operation::Sync, Effect::Hang(valve.clone()));
    setup.ssd.inject(hang.times(1));
    std::thread::scope(|scope| {
        let cleared = scope.spawn(|| setup.cache.run_all(&tasks));
        valve.wait_for(1);
        setup.write(0, BLOCK, 2);
        assert!(setup.cache.take_idle().is_empty());
        valve.open();
        cleared.join().unwrap().unwrap();
    });
    // The origin has not flushed it.
    setup.origin.cut(|_| 0);
    let rebooted = Place {
        boot: [9; 16],
        ..PLACE
    };
    let setup = setup.restart(rebooted, 64).unwrap();
    assert_eq!(setup.origin.content()[..BLOCK], setup.read(0, BLOCK));
}
