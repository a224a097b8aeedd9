//! What a disk does, and each of its faults.

use std::time::Duration;

use super::*;
use crate::fault::Valve;

fn read(disk: &Disk, offset: u64) -> io::Result<u8> {
    let mut byte = [0xee];
    disk.read_at(&mut byte, offset).map(|()| byte[0])
}

#[test]
fn a_power_cut_leaves_what_was_synced_and_any_content_since() {
    for chosen in 0..3 {
        let disk = Disk::new(4096);
        disk.write_at(&[1; 1024], 0).unwrap();
        disk.sync().unwrap();
        disk.write_at(&[2; 512], 0).unwrap();
        disk.write_at(&[3; 100], 0).unwrap();
        let mut counts = Vec::new();
        disk.cut(|count| {
            counts.push(count);
            chosen
        });
        assert_eq!(vec![3], counts);
        assert_eq!(chosen as u8 + 1, read(&disk, 0).unwrap());
        assert_eq!(1, read(&disk, 512).unwrap());
        // What the disk has now is durable.
        disk.cut(|_| panic!("nothing is pending"));
    }
}

#[test]
fn a_durable_write_is_one_of_its_bytes_alone() {
    let disk = Disk::new(4096);
    disk.write_at(&[1; 512], 1024).unwrap();
    disk.write_durably(&[2; 512], 0).unwrap();
    disk.cut(|_| 0);
    assert_eq!(
        (2, 0),
        (read(&disk, 0).unwrap(), read(&disk, 1024).unwrap())
    );
}

#[test]
fn a_sync_that_fails_once_loses_what_was_written_though_the_next_one_succeeds() {
    let disk = Disk::new(4096);
    disk.write_at(&[1; 512], 0).unwrap();
    disk.inject(Fault::new(Operation::Sync, Effect::Lose).times(1));
    assert!(disk.sync().is_err());
    disk.sync().unwrap();
    assert_eq!(1, read(&disk, 0).unwrap());
    disk.evict();
    assert_eq!(0, read(&disk, 0).unwrap());
    // Written again, it becomes durable.
    disk.write_at(&[1; 512], 0).unwrap();
    disk.sync().unwrap();
    disk.cut(|_| 0);
    assert_eq!(1, read(&disk, 0).unwrap());
}

#[test]
fn a_sync_fails_for_ever_or_lies() {
    let disk = Disk::new(4096);
    disk.inject(Fault::new(Operation::Sync, Effect::Error(libc::EIO)));
    assert!((0..3).all(|_| disk.sync().is_err()));
    disk.mend();
    disk.write_at(&[1; 512], 0).unwrap();
    disk.inject(Fault::new(Operation::Sync, Effect::Ignored));
    disk.sync().unwrap();
    disk.cut(|_| 0);
    assert_eq!(0, read(&disk, 0).unwrap());
}

#[test]
fn the_write_that_burns_the_fuse_is_torn_at_any_sector_by_a_power_cut() {
    for mask in 0..8_usize {
        let fuse = Fuse::default();
        let disk = Disk::with_fuse(8192, &fuse);
        fuse.burn_after(1);
        disk.write_at(&[1; 512], 4096).unwrap();
        assert!(disk.write_at(&[1; 1536], 0).is_err());
        assert!(fuse.has_burnt() && disk.write_at(&[2; 512], 0).is_err());
        fuse.replace();
        assert_eq!(0, read(&disk, 0).unwrap(), "before the power cut");
        let mut sector = 0..;
        disk.cut(|_| mask >> sector.next().unwrap() & 1);
        let found = (0..3).map(|n| usize::from(read(&disk, n * 512).unwrap()) << n);
        assert_eq!(mask, found.sum());
    }
}

#[test]
fn a_process_that_is_killed_leaves_the_first_pages_of_a_write() {
    let mut found = [0; 4];
    for seed in 0..100 {
        let fuse = Fuse::default();
        let disk = Disk::with_fuse(16384, &fuse);
        disk.tear(Random::new(seed));
        fuse.burn_after(0);
        assert!(disk.write_at(&[1; 10000], 2000).is_err());
        fuse.replace();
        let content = disk.content();
        let written = content.iter().filter(|byte| **byte == 1).count();
        let ends = [0, 2096, 6192, 10000];
        found[ends.iter().position(|end| *end == written).unwrap()] += 1;
        assert!(content[2000..2000 + written].iter().all(|byte| *byte == 1));
    }
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
}

#[test]
fn reads_fail_are_stale_or_have_a_flipped_bit() {
    let disk = Disk::new(4096);
    disk.write_at(&[8; 512], 0).unwrap();
    let faults = [Effect::Error(libc::EIO), Effect::Stale, Effect::Flipped(0)];
    for effect in faults {
        disk.inject(Fault::new(Operation::Read, effect).within(0..512).times(1));
    }
    assert_eq!(Some(libc::EIO), read(&disk, 0).unwrap_err().raw_os_error());
    let found = (0..3).map(|_| read(&disk, 0).unwrap());
    assert_eq!(vec![0, 9, 8], found.collect::<Vec<_>>());
    assert!(!disk.is_faulty());
}

#[test]
fn writes_are_torn_ignored_or_find_no_space() {
    let disk = Disk::new(4096);
    let once = |effect| Fault::new(Operation::Write, effect).after(1).times(1);
    disk.inject(once(Effect::Error(libc::ENOSPC)));
    disk.write_at(&[1; 512], 0).unwrap();
    let full = disk.write_at(&[2; 512], 0).unwrap_err();
    assert_eq!(Some(libc::ENOSPC), full.raw_os_error());
    assert_eq!((1, false), (read(&disk, 0).unwrap(), disk.is_faulty()));
    disk.inject(once(Effect::Ignored));
    for value in [3, 4, 5] {
        disk.write_at(&[value; 512], 512 * u64::from(value))
            .unwrap();
    }
    let found = [3, 4, 5].map(|value| read(&disk, 512 * value).unwrap());
    assert_eq!([3, 0, 5], found);
    disk.inject(Fault::new(Operation::Write, Effect::Torn(512, libc::EIO)));
    assert!(disk.write_at(&[6; 1024], 512).is_err());
    assert_eq!(
        (6, 0),
        (read(&disk, 512).unwrap(), read(&disk, 1024).unwrap())
    );
}

#[test]
fn a_call_hangs_until_its_valve_is_open() {
    let (disk, valve) = (Disk::new(4096), Valve::default());
    disk.inject(Fault::new(Operation::Write, Effect::Hang(valve.clone())).times(1));
    disk.inject(Fault::new(
        Operation::Read,
        Effect::Slow(Duration::from_micros(1)),
    ));
    std::thread::scope(|scope| {
        let hung = scope.spawn(|| disk.write_at(&[1; 512], 0));
        valve.wait_for(1);
        // Others are served meanwhile.
        assert_eq!(0, read(&disk, 0).unwrap());
        disk.write_at(&[2; 512], 512).unwrap();
        valve.open();
        hung.join().unwrap().unwrap();
    });
    assert_eq!(1, read(&disk, 0).unwrap());
}

#[test]
fn a_campaign_has_the_numbers_of_its_seeds() {
    let seen = Mutex::new(Vec::new());
    crate::campaign("NO_SUCH_CAMPAIGN", 7, 3, |mut random| {
        lock(&seen).push(random.number())
    });
    let expected: Vec<u64> = (7..10).map(|seed| Random::new(seed).number()).collect();
    assert_eq!(expected, *lock(&seen));
}
