//! Volumes that are held with their dirty blocks.

use super::*;

#[test]
fn a_volume_that_cannot_have_its_dirty_blocks_is_held_with_them_and_others_are_served() {
    let held = |volume: &str, origin: &MemoryDisk, origin_id, place, text: &str| {
        let setup = write_back(40);
        setup.write(0, 4096, 1);
        setup.flush();
        let open = |discard_dirty| {
            let device = Device::open(Box::new(setup.ssd.clone()), 64, place).unwrap();
            let attachments = vec![
                Attachment {
                    origin_id,
                    mode: Mode::WriteBack,
                    ..attachment(volume, origin, 30)
                },
                attachment("other", &MemoryDisk::new(8192), 10),
            ];
            let options = Options {
                discard_dirty,
                ..OPTIONS
            };
            Cache::open(device, options, attachments).unwrap()
        };
        for _attempt in 0..2 {
            let cache = open(false);
            let status = cache.status().volumes.remove("v").unwrap();
            assert_eq!(("held", 1), (status.state, status.dirty));
            let reason = status.reason.unwrap();
            let is_known = reason.contains(text) || reason.contains("held before");
            assert!(is_known, "{reason}");
            let other = cache.volume("other").unwrap();
            cache.write(&other, &[3; 10], 0).unwrap();
            cache.drain_and_close().unwrap();
        }
        // Its origin gets what it lacks once it is known where it is.
        let cache = open(false);
        let volume = cache.volume("v").unwrap();
        let again = MemoryDisk::new(1 << 20);
        cache.recover(&volume, Box::new(again.clone())).unwrap();
        assert_eq!([1; 4096], again.content()[..4096]);
        assert_eq!(0, cache.status().device.dirty);
        drop((volume, cache));
    };
    let origin = MemoryDisk::new(1 << 20);
    let host = Place {
        host: [7; 16],
        ..PLACE
    };
    let id = origin_id("v", 0, 0, 0);
    held("w", &origin, id, PLACE, "not attached");
    held("v", &origin, 2, PLACE, "another file");
    held("v", &MemoryDisk::new(4096), id, PLACE, "another size");
    held("v", &origin, id, host, "another host");
}

#[test]
fn a_volume_that_is_left_out_is_not_held_if_dirty_blocks_are_discarded() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    let device = Device::open(Box::new(setup.ssd.clone()), 64, PLACE).unwrap();
    let options = Options {
        discard_dirty: true,
        ..OPTIONS
    };
    let cache = Cache::open(device, options, Vec::new()).unwrap();
    let found = (cache.volumes().len(), cache.status().device.free);
    assert_eq!((0, 64), found);
}

/// A cache whose volume is held, with one dirty block of 7.
fn held() -> (MemoryDisk, MemoryDisk, Cache) {
    let setup = write_back(64);
    setup.write(4096, 4096, 7);
    setup.flush();
    let Setup { ssd, origin, cache } = setup;
    drop(cache);
    let cache = open_held(&ssd, rebooted());
    (ssd, origin, cache)
}

fn open_held(ssd: &MemoryDisk, place: Place) -> Cache {
    let device = Device::open(Box::new(ssd.clone()), 64, place).unwrap();
    let held = Arc::new(Held::new(1 << 20, "the host was started"));
    let attachment = Attachment {
        origin: Box::new(held.clone()),
        held: Some(held),
        mode: Mode::WriteBack,
        kept: Some("held:/dev/v".into()),
        ..attachment("v", &MemoryDisk::new(1), 64)
    };
    Cache::open(device, OPTIONS, vec![attachment]).unwrap()
}

#[test]
fn a_held_volume_keeps_its_dirty_blocks_and_leaves_its_origin_alone() {
    let (ssd, origin, cache) = held();
    let volume = cache.volume("v").unwrap();
    cache.write_back_what_is_due().unwrap();
    assert!(cache.flush_back(&volume).is_err());
    assert!(cache.set_mode(&volume, Mode::WriteThrough).is_err());
    assert!(cache.detach(&volume, false).is_err());
    assert!(cache.read(&volume, &mut [0; 10], 0).is_err());
    cache.drain_and_close().unwrap();
    drop((volume, cache));
    // Also where the host was not started since.
    let cache = open_held(&ssd, rebooted());
    let status = cache.status().volumes.remove("v").unwrap();
    assert_eq!(("held", 1), (status.state, status.dirty));
    let mut found = [0; 4096];
    origin.read_at(&mut found, 4096).unwrap();
    assert_eq!([0; 4096], found);
}

#[test]
fn a_held_volume_is_written_back_to_the_origin_that_it_is_recovered_with() {
    let (_, origin, cache) = held();
    let volume = cache.volume("v").unwrap();
    let smaller = Box::new(MemoryDisk::new(4096));
    assert!(matches!(
        cache.recover(&volume, smaller),
        Err(CacheError::Smaller { .. })
    ));
    origin.fail(true);
    assert!(cache.recover(&volume, Box::new(origin.clone())).is_err());
    origin.fail(false);
    let status = cache.status().volumes.remove("v").unwrap();
    assert_eq!(("held", 1), (status.state, status.dirty));
    cache.recover(&volume, Box::new(origin.clone())).unwrap();
    let status = cache.status().volumes.remove("v").unwrap();
    assert_eq!(("held", 0), (status.state, status.dirty));
    cache.recover(&volume, Box::new(origin.clone())).unwrap();
    cache.detach(&volume, false).unwrap();
    assert!(cache.volumes().is_empty());
    let mut found = [0; 4096];
    origin.read_at(&mut found, 4096).unwrap();
    assert_eq!([7; 4096], found);
    let other = write_back(64);
    assert!(matches!(
        other.cache.recover(&other.volume(), Box::new(origin)),
        Err(CacheError::NotHeld(_))
    ));
}
