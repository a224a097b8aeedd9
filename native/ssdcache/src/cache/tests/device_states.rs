//! Devices that are slow, read-only or full.

use std::time::Duration;

use super::*;

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
    setup.cache.judge_device();
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
