//! Devices that are slow, read-only or full.

use std::time::Duration;

use diffcache_faulty::{Effect, Fault, Operation, EIO};

use super::*;
use crate::device::format::Superblock;

const SLOW: Duration = Duration::from_millis(50);

/// Has the device and the origin measured as if they took this time, until the state has changed.
///
/// Probes of the device, which are measured besides, may take long on a busy machine.
fn measure(setup: &Setup, device: Duration) {
    let before = states(setup);
    for _window in 0..100 {
        if states(setup) != before {
            return;
        }
        for _ in 0..16 {
            setup.cache.pace.device.note(device);
            setup.cache.pace.origin.note(Duration::from_millis(1));
        }
        setup.cache.judge_device();
    }
}

fn states(setup: &Setup) -> (&'static str, &'static str) {
    let status = setup.cache.status();
    (status.device.state, status.volumes["v"].state)
}

#[test]
fn a_slow_device_is_left_aside_until_it_recovers() {
    let setup = Setup::new(64);
    setup.write(0, 4 * 4096, 1);
    measure(&setup, SLOW);
    assert_eq!(("slow", "pass-through"), states(&setup));
    let before = setup.status();
    assert_eq!(vec![1; 4096], setup.read(4096, 4096));
    setup.write(0, 4096, 2);
    let status = setup.status();
    assert_eq!(before.hits, status.hits);
    assert_eq!(before.ssd_bytes_written, status.ssd_bytes_written);
    assert_eq!(vec![2; 4096], setup.read(0, 4096));
    // The probes of the device take no time in memory.
    measure(&setup, Duration::ZERO);
    assert_eq!(("ok", "ok"), states(&setup));
    // What was written meanwhile is not cached, the rest is as before.
    setup.origin.fail(true);
    assert_eq!(vec![1; 3 * 4096], setup.read(4096, 3 * 4096));
    assert!(setup
        .cache
        .read(&setup.volume(), &mut [0; 4096], 0)
        .is_err());
    setup.origin.fail(false);
    assert_eq!(vec![2; 4096], setup.read(0, 4096));
}

#[test]
fn a_slow_device_without_cached_blocks_recovers() {
    let setup = Setup::new(64);
    measure(&setup, SLOW);
    assert_eq!("slow", states(&setup).0);
    measure(&setup, Duration::ZERO);
    assert_eq!("ok", states(&setup).0);
}

#[test]
fn dirty_blocks_are_read_from_a_slow_device() {
    let setup = Setup::new(64);
    let volume = setup.volume();
    setup.cache.set_mode(&volume, Mode::WriteBack).unwrap();
    setup.write(0, 4096, 1);
    measure(&setup, SLOW);
    assert_eq!(("slow", "ok"), states(&setup));
    assert_eq!(vec![1; 4096], setup.read(0, 4096));
    setup.cache.set_mode(&volume, Mode::WriteThrough).unwrap();
    assert_eq!(("slow", "pass-through"), states(&setup));
    assert_eq!(vec![1; 4096], setup.read(0, 4096));
}

#[test]
fn a_slow_device_that_fails_is_not_used_again() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 1);
    measure(&setup, SLOW);
    setup.ssd.fail(true);
    // One block that cannot be read says nothing of the others.
    setup.cache.judge_device();
    assert_eq!(("slow", "pass-through"), states(&setup));
    setup.write(0, 4096, 1);
    assert_eq!(("failed", "pass-through"), states(&setup));
    setup.ssd.fail(false);
    measure(&setup, Duration::ZERO);
    assert_eq!("failed", states(&setup).0);
    assert_eq!(vec![1; 4096], setup.read(0, 4096));
}

#[test]
fn a_device_that_becomes_read_only_or_full_is_left_aside() {
    for number in [diffcache_faulty::EROFS, diffcache_faulty::ENOSPC] {
        let setup = Setup::new(64);
        setup.write(0, 8192, 1);
        setup.ssd.refuse_writes(number);
        // Its entry cannot be erased, so that the device must not be used again.
        setup.write(0, 4096, 2);
        assert_eq!(("failed", "pass-through"), states(&setup));
        assert_eq!(vec![2; 4096], setup.read(0, 4096));
        assert_eq!(vec![1; 4096], setup.read(4096, 4096));
    }
}

#[test]
fn a_read_only_device_is_noticed_by_a_read_that_is_to_be_cached() {
    let setup = Setup::new(64);
    setup.ssd.refuse_writes(diffcache_faulty::EROFS);
    assert_eq!(vec![0; 4096], setup.read(0, 4096));
    assert_eq!("failed", states(&setup).0);
}

/// What changes the record of a volume that stays until it is detached.
type Change = fn(&Cache, &Volume) -> Result<(), CacheError>;

fn lasting(origin: &MemoryDisk) -> Attachment {
    Attachment {
        kept: Some("/dev/w".into()),
        ..attachment("w", origin, 32)
    }
}

/// Regression: the kernel reports an error of the device once. Where that was to a change of settings,
/// the next flush succeeded without what was written before.
#[test]
fn an_error_that_a_change_of_settings_meets_is_that_of_the_device() {
    let changes: [(u64, Change); 5] = [
        (0, |cache, volume| cache.set_limit(volume, 20)),
        (0, |cache, volume| cache.set_mode(volume, Mode::WriteAround)),
        (0, |cache, volume| cache.set_sequential(volume, 9)),
        (0, |cache, volume| cache.detach(volume, false)),
        // The record says first that it is being detached, twice.
        (2, |cache, volume| cache.detach(volume, false)),
    ];
    for (after, change) in changes {
        let (setup, origin) = (Setup::new(32), MemoryDisk::new(1 << 20));
        let volume = setup.cache.attach(lasting(&origin)).unwrap();
        let area = Superblock::volume_at(volume.record).map(|at| at..at + 1);
        let fails = Fault::new(Operation::Write, Effect::Error(EIO));
        let fails = fails.within(area[0].start..area[1].end);
        setup.ssd.inject(fails.after(after).times(1));
        assert!(change(&setup.cache, &volume).is_err());
        assert_eq!("failed", states(&setup).0);
    }
    let (setup, origin) = (Setup::new(32), MemoryDisk::new(1 << 20));
    let fails = Fault::new(Operation::Write, Effect::Error(EIO));
    setup.ssd.inject(fails.times(1));
    assert!(setup.cache.attach(lasting(&origin)).is_err());
    assert_eq!("failed", states(&setup).0);
}

/// Regression: a detach met the error of a flush in place of the volume whose writes it was about.
#[test]
fn a_flush_that_fails_within_a_detach_is_that_of_the_device() {
    let (setup, origin) = (Setup::new(32), MemoryDisk::new(1 << 20));
    let other = setup.cache.attach(lasting(&origin)).unwrap();
    let volume = setup.volume();
    setup.cache.set_mode(&volume, Mode::WriteBack).unwrap();
    setup.write(0, BLOCK, 7);
    let lost = Fault::new(Operation::Sync, Effect::Lose);
    setup.ssd.inject(lost.after(1).times(1));
    let detached = setup.cache.detach(&other, false);
    let flushed = setup.cache.flush(&volume);
    assert!(flushed.is_err(), "{detached:?}");
}

/// Regression: without the device, nothing could be changed: servers could not leave the host, nor
/// give their volumes back.
#[test]
fn volumes_of_a_failed_device_are_changed_and_detached() {
    let (setup, origin) = (Setup::new(32), MemoryDisk::new(1 << 20));
    let volume = setup.cache.attach(lasting(&origin)).unwrap();
    setup.cache.set_mode(&volume, Mode::WriteBack).unwrap();
    setup.ssd.fail(true);
    assert!(setup.cache.write(&volume, &[1; BLOCK], 0).is_ok());
    assert_eq!("failed", states(&setup).0);
    setup.cache.set_mode(&volume, Mode::WriteThrough).unwrap();
    setup.cache.set_limit(&volume, 10).unwrap();
    assert!(setup.cache.set_mode(&volume, Mode::WriteBack).is_err());
    origin.resize(2 << 20, 0);
    setup.cache.resize(&volume).unwrap();
    setup.cache.write(&volume, &[2; BLOCK], 1 << 20).unwrap();
    setup.cache.detach(&volume, false).unwrap();
    assert_eq!(1, setup.cache.volumes().len());
    assert_eq!((1, 2), (origin.content()[0], origin.content()[1 << 20]));
}
