//! Dirty blocks on a device that is damaged.

use diffcache_faulty::EIO;

use super::*;
use crate::device::format::Superblock;

#[test]
fn damaged_dirty_blocks_are_errors_until_they_are_written_or_lost() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    setup.write(4096, 4096, 5);
    setup.ssd.corrupt(5);
    let (volume, mut data) = (setup.volume(), [0; 4096]);
    assert!(setup.cache.read(&volume, &mut data, 4096).is_err());
    assert!(setup.cache.write(&volume, &data[..10], 4096).is_err());
    assert!(setup.cache.flush_back(&volume).is_err());
    // What is good was written back, and what is damaged is still known.
    assert_eq!((1, 1), (setup.dirty(), setup.origin_at(0)));
    setup.write(4096, 4096, 6);
    assert_eq!(vec![6; 4096], setup.read(4096, 4096));
    setup.ssd.corrupt(6);
    assert!(setup.cache.invalidate(&volume, false).is_err());
    setup.cache.invalidate(&volume, true).unwrap();
    assert_eq!((0, vec![0; 4096]), (setup.dirty(), setup.read(4096, 4096)));
}

#[test]
fn a_damaged_dirty_block_stops_neither_its_volume_nor_a_start() {
    let setup = write_back(64);
    setup.write(0, 4096, 5);
    setup.write(4096, 4096, 6);
    setup.flush();
    setup.ssd.corrupt(5);
    assert!(setup.cache.set_limit(&setup.volume(), 0).is_err());
    let device = Device::open(Box::new(setup.ssd.clone()), 64, PLACE).unwrap();
    let attachments = vec![Attachment {
        mode: Mode::WriteBack,
        ..attachment("v", &setup.origin, 0)
    }];
    let cache = Cache::open(device, OPTIONS, attachments).unwrap();
    let setup = Setup { cache, ..setup };
    let (volume, mut data) = (setup.volume(), [0; 4096]);
    let error = setup.cache.read(&volume, &mut data, 0).unwrap_err();
    assert!(error.to_string().contains("block 0 of volume v"), "{error}");
    assert!(setup.cache.write_back_what_is_due().is_err());
    assert_eq!((1, 6), (setup.dirty(), setup.origin_at(4096)));
    assert!(setup.cache.detach(&volume, false).is_err());
}

/// Where the copies of the entry of the first slot are.
fn entry_at() -> [u64; 2] {
    let superblock = Superblock {
        capacity: 64,
        id: [0; 16],
        host: [0; 16],
        boot: [0; 16],
        seed: 0,
    };
    [Superblock::entry_at(0), superblock.second_entry_at(0)]
}

#[test]
fn a_flipped_bit_or_zeroes_of_one_copy_of_an_entry_lose_no_dirty_block() {
    for at in entry_at() {
        for bit in 0..=128 {
            let setup = write_back(64);
            setup.write(0, 4096, 1);
            setup.flush();
            setup.ssd.damage(at..at + 16, |entry| match bit {
                128 => entry.fill(0),
                _ => entry[bit / 8] ^= 1 << (bit % 8),
            });
            // The copy is mended by the start.
            let mut setup = setup;
            for place in [PLACE, rebooted()] {
                setup = setup.restart_in(place, OPTIONS, Mode::WriteBack).unwrap();
                assert_eq!((1, vec![1; 4096]), (setup.dirty(), setup.read(0, 4096)));
            }
            let [first, second] = entry_at().map(|at| {
                let mut entry = [0; 16];
                setup.ssd.read_at(&mut entry, at).unwrap();
                entry
            });
            assert_eq!(first, second);
        }
    }
}

#[test]
fn a_volume_is_held_if_both_copies_of_an_entry_are_damaged() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    setup.write(4096, 4096, 2);
    setup.flush();
    for at in entry_at() {
        setup.ssd.damage(at..at + 16, |entry| entry[12] ^= 1);
    }
    let Setup { ssd, origin, cache } = setup;
    drop(cache);
    let open = || {
        let device = Device::open(Box::new(ssd.clone()), 64, PLACE).unwrap();
        let attachments = vec![Attachment {
            mode: Mode::WriteBack,
            ..attachment("v", &origin, 60)
        }];
        Cache::open(device, OPTIONS, attachments).unwrap()
    };
    // Nothing is put into the slot.
    drop(open());
    let cache = open();
    let status = cache.status();
    assert_eq!(62, status.device.free);
    let reason = status.volumes["v"].reason.clone().unwrap();
    assert!(reason.contains("1 entries"), "{reason}");
    let volume = cache.volume("v").unwrap();
    cache.recover(&volume, Box::new(origin.clone())).unwrap();
    assert_eq!(2, origin.content()[4096]);
    let refused = cache.detach(&volume, false);
    assert!(matches!(
        refused,
        Err(CacheError::Damaged { entries: 1, .. })
    ));
    cache.detach(&volume, true).unwrap();
    assert_eq!(64, cache.status().device.free);
    drop((volume, cache));
    assert_eq!("ok", open().status().volumes["v"].state);
}

#[test]
fn a_record_of_which_both_copies_are_damaged_is_a_volume_that_is_held() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    setup.flush();
    for at in Superblock::volume_at(0) {
        setup.ssd.damage(at..at + 1, |bytes| bytes[0] ^= 1);
    }
    let other = MemoryDisk::new(8192);
    let device = Device::open(Box::new(setup.ssd.clone()), 64, PLACE).unwrap();
    let cache = Cache::open(device, OPTIONS, vec![attachment("w", &other, 9)]).unwrap();
    let status = cache.status();
    let states = ["damaged-0", "w"].map(|name| status.volumes[name].state);
    assert_eq!((["held", "ok"], 63), (states, status.device.free));
}

/// Has the data of a slot be unreadable, as a sector of a disk may be.
fn lose_slot(setup: &Setup, slot: u32) {
    let at = setup.cache.device.data_at(slot);
    let fails = Fault::new(Operation::Read, Effect::Error(EIO));
    setup.ssd.inject(fails.within(at..at + BLOCK as u64));
}

/// Regression: one unreadable block failed the device, and with it all dirty blocks of all volumes.
#[test]
fn a_block_that_cannot_be_read_loses_no_other_one() {
    let setup = write_back(64);
    for block in 0..3 {
        setup.write(block * 4096, 4096, 1 + block as u8);
    }
    setup.flush();
    lose_slot(&setup, 1);
    let (volume, mut data) = (setup.volume(), [0; 4096]);
    assert!(setup.cache.read(&volume, &mut data, 4096).is_err());
    assert!(setup.cache.flush_back(&volume).is_err());
    assert_eq!(1, setup.dirty());
    assert_eq!((1, 3), (setup.origin_at(0), setup.origin_at(8192)));
    setup.write(4096, 4096, 5);
    setup.cache.flush_back(&volume).unwrap();
    assert_eq!((0, 5), (setup.dirty(), setup.origin_at(4096)));
    assert_eq!("ok", setup.cache.status().device.state);
}

/// Has what a range of the device has be unreadable until it is written, as a start does.
fn lose_block(setup: &Setup, at: u64) {
    let fails = Fault::new(Operation::Read, Effect::Error(EIO));
    setup.ssd.inject(fails.within(at..at + 4096).times(2));
}

/// Regression: a start failed, with all volumes, by one block of the device that could not be read.
#[test]
fn a_start_needs_one_copy_of_what_it_reads() {
    let superblocks = Superblock::copies_at();
    let records = Superblock::volume_at(0);
    let places = superblocks.into_iter().chain(records).chain(entry_at());
    for at in places.map(|at| at - at % 4096) {
        let setup = write_back(64);
        setup.write(0, 4096, 1);
        setup.flush();
        lose_block(&setup, at);
        let setup = setup
            .restart_in(rebooted(), OPTIONS, Mode::WriteBack)
            .unwrap();
        assert_eq!((1, vec![1; 4096]), (setup.dirty(), setup.read(0, 4096)));
        let ssd = setup.ssd.clone();
        ssd.mend();
        // Both copies are there again.
        let copy = |at: u64| ssd.content()[at as usize..][..16].to_vec();
        let [first, second] = entry_at().map(copy);
        assert_eq!(first, second);
    }
}

/// Entries that were not flushed are there once.
#[test]
fn a_start_fails_without_entries_that_the_end_of_the_process_left() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    lose_block(&setup, entry_at()[0] / 4096 * 4096);
    let ssd = setup.ssd.clone();
    assert!(setup.restart_in(PLACE, OPTIONS, Mode::WriteBack).is_err());
    ssd.mend();
}

#[test]
fn a_clean_block_that_cannot_be_read_is_read_from_the_origin() {
    let setup = Setup::new(64);
    setup.write(0, 8192, 1);
    lose_slot(&setup, 0);
    assert_eq!(vec![1; 8192], setup.read(0, 8192));
    let status = setup.cache.status();
    assert_eq!(
        ("ok", 1),
        (status.device.state, status.volumes["v"].corrupted)
    );
}
