//! Volumes attached, resized and detached while others are served.

use diffcache_faulty::{Effect, Fault, Operation, EIO};
use diffcache_partitions::NEVER;

use super::*;
use crate::device::format::Superblock;
use crate::rates::COUNT;

const SIZE: usize = 1 << 20;

fn lasting(name: &str, origin: &MemoryDisk, limit: u32) -> Attachment {
    Attachment {
        kept: Some(format!("/dev/{name}")),
        ..attachment(name, origin, limit)
    }
}

/// A cache of 64 blocks without volumes.
fn empty(ssd: &MemoryDisk) -> Cache {
    Cache::open(device(ssd, 64), OPTIONS, Vec::new()).unwrap()
}

fn read(cache: &Cache, volume: &Volume, block: u64) -> u8 {
    let mut buffer = vec![0xee; BLOCK];
    cache
        .read(volume, &mut buffer, block * BLOCK as u64)
        .unwrap();
    assert!(buffer.iter().all(|byte| *byte == buffer[0]));
    buffer[0]
}

fn write(cache: &Cache, volume: &Volume, block: u64, value: u8) {
    let data = vec![value; BLOCK];
    cache.write(volume, &data, block * BLOCK as u64).unwrap();
}

/// What a start finds.
fn restart(ssd: &MemoryDisk, origin: &MemoryDisk) -> Cache {
    let device = Device::open(Box::new(ssd.clone()), 64, PLACE).unwrap();
    let records = device.records().unwrap().into_iter().flatten();
    let attachments = records
        .filter_map(|record| {
            record.kept.map(|kept| Attachment {
                limit: kept.limit,
                mode: Mode::numbered(kept.mode),
                sequential: kept.sequential,
                admission: kept.admission,
                rates: kept.rates,
                kept: Some(kept.origin),
                ..attachment(&record.name, origin, 0)
            })
        })
        .collect();
    Cache::open(device, OPTIONS, attachments).unwrap()
}

#[test]
fn a_volume_is_attached_while_another_one_is_served() {
    let setup = Setup::new(32);
    setup.write(0, BLOCK, 1);
    let origin = MemoryDisk::new(SIZE);
    let volume = setup.cache.attach(lasting("w", &origin, 32)).unwrap();
    write(&setup.cache, &volume, 0, 2);
    assert_eq!(2, read(&setup.cache, &volume, 0));
    assert_eq!(vec![1; BLOCK], setup.read(0, BLOCK));
    assert_eq!((1, 1), (setup.status().blocks, setup.hits()));
}

#[test]
fn limits_that_do_not_fit_leave_no_trace() {
    let ssd = MemoryDisk::new(4 << 20);
    let cache = empty(&ssd);
    let origin = MemoryDisk::new(SIZE);
    cache.attach(lasting("v", &origin, 40)).unwrap();
    for _ in 0..3 {
        assert!(cache.attach(lasting("w", &origin, 25)).is_err());
    }
    cache.attach(lasting("w", &origin, 24)).unwrap();
    drop(cache);
    assert_eq!(2, restart(&ssd, &origin).volumes().len());
}

#[test]
fn what_was_attached_and_set_is_there_after_a_restart() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let volume = cache.attach(lasting("v", &origin, 20)).unwrap();
    cache.set_limit(&volume, 10).unwrap();
    cache.set_mode(&volume, Mode::WriteAround).unwrap();
    let export = volume.export();
    read(&cache, &volume, 3);
    drop(cache);
    let cache = restart(&ssd, &origin);
    let again = cache.volume("v").unwrap();
    assert_eq!(export, again.export());
    let status = cache.status().volumes.remove("v").unwrap();
    assert_eq!(
        (10, 1, Mode::WriteAround),
        (status.limit, status.blocks, status.mode)
    );
    cache.detach(&again, false).unwrap();
    drop(cache);
    assert!(restart(&ssd, &origin).volumes().is_empty());
}

fn rates(value: u64) -> Rates {
    Rates::new([value; COUNT])
}

#[test]
fn what_is_cached_of_requests_changes_while_they_arrive() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let volume = cache
        .attach(Attachment {
            admission: 3,
            rates: rates(7),
            ..lasting("v", &origin, 20)
        })
        .unwrap();
    let status = |cache: &Cache| cache.status().volumes.remove("v").unwrap();
    read(&cache, &volume, 0);
    assert_eq!((3, 0), (status(&cache).admission, status(&cache).blocks));
    assert_eq!(rates(7), status(&cache).rates);
    cache.set_rates(&volume, rates(8)).unwrap();
    cache.set_admission(&volume, 2).unwrap();
    // The reference before counts.
    read(&cache, &volume, 0);
    assert_eq!(1, status(&cache).blocks);
    cache.set_sequential(&volume, 4096).unwrap();
    for block in 1..9 {
        read(&cache, &volume, block);
        read(&cache, &volume, block);
    }
    assert!(matches!(
        cache.set_admission(&volume, NEVER + 1),
        Err(CacheError::Admission(_))
    ));
    let before = status(&cache);
    assert!(before.blocks < 9, "{} blocks", before.blocks);
    drop(volume);
    drop(cache);
    let again = restart(&ssd, &origin);
    let found = status(&again);
    assert_eq!((2, 4096), (found.admission, found.sequential));
    assert_eq!(rates(8), found.rates);
    let volume = again.volume("v").unwrap();
    again.set_admission(&volume, 0).unwrap();
    again.set_sequential(&volume, 0).unwrap();
    read(&again, &volume, 30);
    let found = status(&again);
    assert_eq!(
        (1, 0, before.blocks + 1),
        (found.admission, found.sequential, found.blocks)
    );
}

#[test]
fn a_volume_without_new_blocks_writes_nothing_to_the_device() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let volume = cache.attach(lasting("v", &origin, 20)).unwrap();
    let status = |cache: &Cache| cache.status().volumes.remove("v").unwrap();
    write(&cache, &volume, 0, 1);
    write(&cache, &volume, 1, 1);
    cache.set_admission(&volume, NEVER).unwrap();
    let before = status(&cache);
    write(&cache, &volume, 1, 2);
    for _ in 0..20 {
        read(&cache, &volume, 2);
        write(&cache, &volume, 3, 2);
    }
    assert_eq!((1, 2), (read(&cache, &volume, 0), read(&cache, &volume, 1)));
    let after = status(&cache);
    assert_eq!(before.ssd_bytes_written, after.ssd_bytes_written);
    assert_eq!((1, before.hits + 1), (after.blocks, after.hits));
    cache.set_admission(&volume, 1).unwrap();
    assert_eq!(2, read(&cache, &volume, 1));
    assert_eq!(2, status(&cache).blocks);
}

#[test]
fn the_same_volume_again_stays_what_it_is() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let volume = cache.attach(lasting("v", &origin, 20)).unwrap();
    write(&cache, &volume, 0, 1);
    let again = cache.attach(lasting("v", &origin, 30)).unwrap();
    assert!(Arc::ptr_eq(&volume, &again));
    let status = cache.status().volumes.remove("v").unwrap();
    assert_eq!((30, 1), (status.limit, status.blocks));
    let other = Attachment {
        origin_id: 2,
        ..lasting("v", &origin, 20)
    };
    assert!(matches!(cache.attach(other), Err(CacheError::Attached(_))));
    let larger = lasting("v", &MemoryDisk::new(2 * SIZE), 20);
    assert!(matches!(cache.attach(larger), Err(CacheError::Attached(_))));
}

#[test]
fn a_volume_of_a_name_that_was_detached_begins_empty() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let first = cache.attach(lasting("v", &origin, 20)).unwrap();
    write(&cache, &first, 0, 1);
    cache.detach(&first, false).unwrap();
    assert!(matches!(
        cache.detach(&first, false),
        Err(CacheError::Detaching(_))
    ));
    // Without the cache, as another host would.
    origin.write_at(&[2; BLOCK], 0).unwrap();
    let second = cache.attach(lasting("v", &origin, 20)).unwrap();
    assert_ne!(first.export(), second.export());
    assert_eq!(2, read(&cache, &second, 0));
    // A client that is still connected is served without the cache.
    write(&cache, &first, 1, 3);
    assert_eq!(3, read(&cache, &first, 1));
    drop(cache);
    let cache = restart(&ssd, &origin);
    assert_eq!(2, read(&cache, &cache.volume("v").unwrap(), 0));
}

#[test]
fn numbers_of_detached_volumes_are_used_again_without_their_clients() {
    let ssd = MemoryDisk::new(4 << 20);
    let cache = empty(&ssd);
    let stays = cache
        .attach(lasting("stays", &MemoryDisk::new(SIZE), 10))
        .unwrap();
    let connected = cache
        .attach(lasting("v", &MemoryDisk::new(SIZE), 10))
        .unwrap();
    cache.detach(&connected, false).unwrap();
    let mut ids = Vec::new();
    for _ in 0..4 {
        let volume = cache
            .attach(lasting("v", &MemoryDisk::new(SIZE), 10))
            .unwrap();
        ids.push((volume.id, volume.partition));
        write(&cache, &volume, 0, 4);
        cache.detach(&volume, false).unwrap();
    }
    assert_eq!(vec![ids[0]; 4], ids);
    assert!(!ids.contains(&(connected.id, connected.partition)));
    drop(connected);
    let two = ["v", "w"].map(|name| {
        let volume = cache.attach(lasting(name, &MemoryDisk::new(SIZE), 10));
        volume.unwrap()
    });
    // Evictions are counted for the right one.
    for block in 0..30 {
        write(&cache, &two[1], block, 5);
    }
    let status = cache.status().volumes;
    let evictions = ["stays", "v", "w"].map(|name| status[name].evictions);
    assert_eq!([0, 0, 20], evictions);
    write(&cache, &stays, 0, 6);
    assert_eq!(6, read(&cache, &stays, 0));
}

#[test]
fn a_volume_grows_with_its_origin_and_keeps_its_blocks() {
    for mode in Mode::ALL {
        let (ssd, small) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE + 512));
        let cache = empty(&ssd);
        let volume = cache
            .attach(Attachment {
                mode,
                ..lasting("v", &small, 20)
            })
            .unwrap();
        write(&cache, &volume, 0, 1);
        let mut end = [0; 512];
        cache.read(&volume, &mut end, SIZE as u64).unwrap();
        let held = cache.status().volumes["v"].blocks;
        cache.resize(&volume).unwrap();
        assert_eq!(held, cache.status().volumes["v"].blocks);
        small.resize(SIZE + 1000, 9);
        assert!(matches!(
            cache.resize(&volume),
            Err(CacheError::Origin { .. })
        ));
        small.resize(SIZE + 512, 9);
        small.resize(2 * SIZE, 9);
        cache.resize(&volume).unwrap();
        assert_eq!(2 * SIZE as u64, volume.size());
        assert_eq!(1, read(&cache, &volume, 0));
        let mut block = [0; BLOCK];
        cache.read(&volume, &mut block, SIZE as u64).unwrap();
        assert_eq!(
            ([0; 512], [9; 1]),
            (array(&block[..512]), array(&block[512..513]))
        );
        assert_eq!(9, read(&cache, &volume, 511));
        let export = volume.export();
        cache.drain_and_close().unwrap();
        drop((cache, volume));
        let cache = restart(&ssd, &small);
        let volume = cache.volume("v").unwrap();
        assert_eq!(export, volume.export());
        assert_eq!(1, read(&cache, &volume, 0));
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().unwrap()
}

#[test]
fn a_smaller_origin_is_refused() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let volume = cache.attach(lasting("v", &origin, 20)).unwrap();
    origin.resize(SIZE / 2, 0);
    assert!(matches!(
        cache.resize(&volume),
        Err(CacheError::Smaller { .. })
    ));
    assert_eq!(SIZE as u64, volume.size());
}

#[test]
fn a_device_that_fails_attaches_nothing() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    ssd.fail(true);
    for _ in 0..3 {
        assert!(cache.attach(lasting("v", &origin, 64)).is_err());
    }
    ssd.fail(false);
    cache.attach(lasting("v", &origin, 64)).unwrap();
}

#[test]
fn names_and_paths_that_records_have_no_room_for_are_refused() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    for name in ["", &"n".repeat(256)] {
        let refused = cache.attach(lasting(name, &origin, 1));
        assert!(matches!(refused, Err(CacheError::Name(_))));
    }
    for path in ["v", "", &format!("/{}", "p".repeat(640))] {
        let refused = cache.attach(Attachment {
            kept: Some(path.to_owned()),
            ..lasting("v", &origin, 1)
        });
        assert!(matches!(refused, Err(CacheError::Path(_))));
    }
}

#[test]
fn a_volume_with_the_origin_of_another_one_is_refused_whatever_its_name() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let known = |name: &str, identity| Attachment {
        origin: Box::new(origin.known_as(identity)),
        ..lasting(name, &origin, 10)
    };
    let cache = empty(&ssd);
    let volume = cache.attach(known("a", "disk 1")).unwrap();
    cache.attach(known("b", "disk 2")).unwrap();
    let same_name = Attachment {
        origin_id: volume.attachment.origin,
        ..lasting("c", &origin, 10)
    };
    for refused in [known("c", "disk 1"), same_name] {
        let error = cache.attach(refused).map(drop).unwrap_err();
        let text = "volume c: its origin is that of volume a; detach a first";
        assert_eq!(text, error.to_string());
    }
    cache.attach(known("a", "disk 1")).unwrap();
    cache.detach(&volume, false).unwrap();
    cache.attach(known("c", "disk 1")).unwrap();
    let twice = vec![known("a", "disk 1"), known("b", "disk 1")];
    let opened = Cache::open(device(&MemoryDisk::new(4 << 20), 64), OPTIONS, twice);
    assert!(matches!(opened, Err(CacheError::SameOrigin { .. })));
}

/// Regression: what was written behind the former end was lost at the next start.
#[test]
fn a_volume_has_another_size_only_once_its_record_has() {
    for size in [SIZE, SIZE + 512] {
        let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(size));
        let cache = empty(&ssd);
        let volume = cache
            .attach(Attachment {
                mode: Mode::WriteBack,
                ..lasting("v", &origin, 20)
            })
            .unwrap();
        origin.resize(2 * SIZE, 9);
        let [record, _] = Superblock::volume_at(volume.record);
        let fails = Fault::new(Operation::Write, Effect::Error(EIO));
        ssd.inject(fails.within(record..record + 1).times(1));
        assert!(cache.resize(&volume).is_err());
        assert_eq!(size as u64, volume.size());
    }
}

/// Regression: a volume that nothing was written to could not be detached once its origin was gone.
#[test]
fn a_volume_whose_origin_is_gone_is_detached_if_nothing_of_it_is_lost() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(SIZE));
    let cache = empty(&ssd);
    let volume = cache.attach(lasting("v", &origin, 20)).unwrap();
    read(&cache, &volume, 0);
    origin.fail(true);
    cache.detach(&volume, false).unwrap();
    let volume = cache.attach(lasting("v", &origin, 20)).unwrap();
    origin.fail(false);
    write(&cache, &volume, 0, 1);
    origin.fail(true);
    assert!(cache.detach(&volume, false).is_err(), "it may be lost");
    cache.detach(&volume, false).unwrap();
}
