//! Volumes through a cache, on disks in memory that can fail, lose writes and record them.

mod campaign;
mod crashes;
mod cuts;
mod device_states;
mod disks;
mod entries;
mod epochs;
mod intents;
mod interleavings;
mod lent;
mod live;
mod losses;
mod neighbours;
#[cfg(feature = "schedules")]
mod schedules;
mod simulated;
mod threads;
mod warm;
mod write_back;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use super::*;
use crate::device::disk::Disk;
use crate::device::{Device, Place};
use crate::rates::Rates;
use disks::MemoryDisk;

const PLACE: Place = Place {
    host: [1; 16],
    boot: [2; 16],
};
const OPTIONS: Options = Options {
    samples: 100,
    eviction: Policy::Lru,
    admission: 1,
    dirty_max: DirtyMax::Percent(100),
    dirty_age: Duration::from_secs(3600),
    discard_dirty: false,
};

fn device(disk: &MemoryDisk, capacity: u32) -> Device {
    Device::format(Box::new(disk.clone()), capacity, PLACE, [3; 24]).unwrap()
}

fn attachment(name: &str, origin: &MemoryDisk, limit: u32) -> Attachment {
    Attachment {
        name: name.into(),
        origin: Box::new(origin.clone()),
        origin_id: origin_id(name, 0, 0, 0),
        mode: Mode::WriteThrough,
        limit,
        sequential: 0,
        admission: 0,
        rates: Rates::default(),
        random: random(),
        kept: None,
        held: None,
    }
}

/// Other bytes at each call.
fn random() -> [u8; 24] {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let number = CALLS.fetch_add(1, Ordering::Relaxed).to_le_bytes();
    std::array::from_fn(|n| number[n % 8])
}

impl Cache {
    /// Writes back what is due, of one volume after the other.
    fn write_back_what_is_due(&self) -> Result<(), String> {
        self.run_all(&self.take_due())
    }

    /// Clears intents of regions that were not written since the last call.
    fn settle(&self) -> Result<(), String> {
        self.run_all(&self.take_idle())
    }

    /// Runs tasks one after the other; returns the first failure.
    fn run_all(&self, tasks: &[Task]) -> Result<(), String> {
        let done = tasks.iter().map(|task| self.run(task).map_or(Ok(()), Err));
        done.fold(Ok(()), Result::and)
    }

    /// Ends as the process does.
    fn drain_and_close(&self) -> Result<(), CacheError> {
        let volumes = self.volumes().into_iter();
        for volume in volumes.filter(|volume| !volume.is_held()) {
            self.write_back_now(&volume)?;
        }
        self.commit_all()?;
        let mut volumes = self.volumes().into_iter();
        Ok(volumes.try_for_each(|volume| self.close(&volume))?)
    }
}

/// A cache of 64 blocks with one volume of 1 MiB.
struct Setup {
    ssd: MemoryDisk,
    origin: MemoryDisk,
    cache: Cache,
}

impl Setup {
    fn new(limit: u32) -> Self {
        let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
        let attachments = vec![attachment("v", &origin, limit)];
        let cache = Cache::open(device(&ssd, 64), OPTIONS, attachments).unwrap();
        Self { ssd, origin, cache }
    }

    fn restart(self, place: Place, capacity: u32) -> Result<Self, CacheError> {
        let Self { ssd, origin, cache } = self;
        drop(cache);
        let device = Device::open(Box::new(ssd.clone()), capacity, place)?;
        let attachments = vec![attachment("v", &origin, 64)];
        let cache = Cache::open(device, OPTIONS, attachments)?;
        Ok(Self { ssd, origin, cache })
    }

    fn volume(&self) -> Arc<Volume> {
        self.cache.volume("v").unwrap()
    }

    fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let (volume, mut buffer) = (self.volume(), vec![0xee; length]);
        let read = self.cache.begin_read(&volume, offset, length);
        if !self.cache.read_now(&volume, &read, &mut buffer) {
            self.cache.end_read(&volume, &read, &mut buffer).unwrap();
        }
        buffer
    }

    fn write(&self, offset: u64, length: usize, value: u8) {
        let data = vec![value; length];
        self.cache.write(&self.volume(), &data, offset).unwrap();
    }

    fn hits(&self) -> u64 {
        self.volume().counters.hits.load(Ordering::Relaxed)
    }

    fn status(&self) -> VolumeStatus {
        self.cache.status().volumes.remove("v").unwrap()
    }
}

#[test]
fn what_was_read_or_written_is_read_from_the_cache() {
    let setup = Setup::new(64);
    setup.write(4096, 8192, 7);
    assert_eq!(vec![7; 8192], setup.read(4096, 8192));
    assert_eq!(2, setup.hits());
    assert_eq!(vec![0; 100], setup.read(50_000, 100));
    assert_eq!(vec![0; 100], setup.read(50_000, 100));
    assert_eq!(3, setup.hits());
    assert_eq!(4096, setup.status().origin_bytes_read);
}

#[test]
fn parts_of_blocks_are_written_through() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 1);
    setup.write(1000, 5000, 2);
    let mut expected = vec![1; 1000];
    expected.resize(6000, 2);
    expected.resize(8192, 0);
    assert_eq!(expected, setup.read(0, 8192));
    assert_eq!(3, setup.hits(), "the write to block 0, and both reads");
}

#[test]
fn a_volume_that_ends_within_a_block_is_cached() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(5000));
    let attachments = vec![attachment("v", &origin, 8)];
    let cache = Cache::open(device(&ssd, 64), OPTIONS, attachments).unwrap();
    let setup = Setup { ssd, origin, cache };
    setup.write(4096, 904, 9);
    assert_eq!(vec![9; 904], setup.read(4096, 904));
    assert_eq!(1, setup.hits());
}

#[test]
fn write_around_forgets_what_is_written() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 1);
    setup
        .cache
        .set_mode(&setup.volume(), Mode::WriteAround)
        .unwrap();
    setup.write(0, 4096, 2);
    assert_eq!(0, setup.status().blocks);
    assert_eq!(vec![2; 4096], setup.read(0, 4096));
    assert_eq!(1, setup.status().blocks);
}

#[test]
fn pass_through_leaves_nothing_old_behind() {
    let setup = Setup::new(64);
    setup.write(0, 8192, 1);
    setup
        .cache
        .set_mode(&setup.volume(), Mode::PassThrough)
        .unwrap();
    setup.write(0, 4096, 2);
    assert_eq!(vec![2; 4096], setup.read(0, 4096));
    setup
        .cache
        .set_mode(&setup.volume(), Mode::WriteThrough)
        .unwrap();
    assert_eq!(vec![2; 4096], setup.read(0, 4096));
    assert_eq!(vec![1; 4096], setup.read(4096, 4096));
    assert_eq!(1, setup.hits());
}

#[test]
fn zeroes_replace_what_is_cached() {
    let setup = Setup::new(64);
    setup.write(0, 12288, 1);
    setup.cache.zero(&setup.volume(), 100, 8000).unwrap();
    let mut expected = vec![1; 100];
    expected.resize(8100, 0);
    expected.resize(12288, 1);
    assert_eq!(expected, setup.read(0, 12288));
}

#[test]
fn a_restart_is_warm() {
    let setup = Setup::new(64);
    setup.write(8192, 4096, 5);
    setup.read(20480, 4096);
    let export = setup.volume().export();
    let setup = setup.restart(PLACE, 64).unwrap();
    assert_eq!(export, setup.volume().export());
    assert_eq!(vec![5; 4096], setup.read(8192, 4096));
    setup.read(20480, 4096);
    assert_eq!((2, 0), (setup.hits(), setup.status().origin_bytes_read));
}

#[test]
fn another_origin_or_size_begins_empty_under_the_same_export() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 5);
    let export = setup.volume().export();
    let other = MemoryDisk::new(2 << 20);
    let device = Device::open(Box::new(setup.ssd.clone()), 64, PLACE).unwrap();
    let again = vec![attachment("v", &other, 64)];
    let cache = Cache::open(device, OPTIONS, again).unwrap();
    let status = cache.status().volumes.remove("v").unwrap();
    assert_eq!((export, 0), (status.export, status.blocks));
}

#[test]
fn a_volume_that_is_left_out_is_forgotten() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 5);
    let open = || Device::open(Box::new(setup.ssd.clone()), 64, PLACE).unwrap();
    Cache::open(open(), OPTIONS, Vec::new()).unwrap();
    let again = vec![attachment("v", &setup.origin, 64)];
    let cache = Cache::open(open(), OPTIONS, again).unwrap();
    assert_eq!(0, cache.status().volumes["v"].blocks);
}

#[test]
fn the_device_of_another_host_or_capacity_is_not_used() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 5);
    let host = Place {
        host: [7; 16],
        ..PLACE
    };
    let setup = setup.restart(host, 64).unwrap();
    assert_eq!(0, setup.status().blocks);
    let error = setup.restart(host, 32).err().unwrap().to_string();
    assert!(error.contains("formatted for 64 blocks"), "{error}");
}

#[test]
fn damaged_data_are_read_from_the_origin() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 5);
    setup.ssd.corrupt(5);
    assert_eq!(vec![5; 4096], setup.read(0, 4096));
    let status = setup.status();
    assert_eq!((1, 0), (status.corrupted, status.blocks));
}

#[test]
fn a_device_that_fails_is_left_aside() {
    let setup = Setup::new(64);
    setup.write(0, 8192, 1);
    setup.ssd.fail(true);
    setup.write(0, 4096, 2);
    assert_eq!(vec![2; 4096], setup.read(0, 4096));
    assert_eq!(vec![1; 4096], setup.read(4096, 4096));
    let status = setup.cache.status();
    assert_eq!("failed", status.device.state);
    assert_eq!("pass-through", status.volumes["v"].state);
}

#[test]
fn nothing_is_written_before_a_failure_of_the_device_is_noted() {
    let setup = Setup::new(64);
    let origin = setup.origin.clone();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let noted = seen.clone();
    let note = move |_: &io::Error| {
        let mut first = [9; 1];
        origin.read_at(&mut first, 0)?;
        noted.lock().unwrap().push(first[0]);
        Ok(())
    };
    let setup = Setup {
        cache: setup.cache.noting_failure(Box::new(note)),
        ..setup
    };
    setup.ssd.fail(true);
    setup.write(0, 4096, 2);
    setup.write(0, 4096, 3);
    assert_eq!(vec![0], *seen.lock().unwrap());
    assert_eq!(vec![3; 4096], setup.read(0, 4096));
}

#[test]
fn writes_fail_if_a_failure_of_the_device_cannot_be_noted() {
    let setup = Setup::new(64);
    let note = |_: &io::Error| Err(io::Error::other("no space"));
    let setup = Setup {
        cache: setup.cache.noting_failure(Box::new(note)),
        ..setup
    };
    setup.write(0, 4096, 1);
    setup.ssd.fail(true);
    let volume = setup.volume();
    for _attempt in 0..2 {
        assert!(setup.cache.write(&volume, &[2; 4096], 0).is_err());
    }
    assert_eq!(vec![1; 4096], setup.read(0, 4096));
}

#[test]
fn errors_of_the_origin_are_returned_and_leave_nothing_cached() {
    let setup = Setup::new(64);
    setup.write(0, 4096, 1);
    setup.origin.fail(true);
    let volume = setup.volume();
    assert!(setup.cache.write(&volume, &[2; 4096], 0).is_err());
    assert!(setup.cache.read(&volume, &mut [0; 4096], 4096).is_err());
    assert!(setup.cache.flush(&volume).is_err());
    setup.origin.fail(false);
    assert_eq!(vec![1; 4096], setup.read(0, 4096));
    // What the origin has after an error is not known.
    assert_eq!(4096, setup.status().origin_bytes_read);
}

#[test]
fn a_lower_limit_evicts_and_a_detached_volume_has_no_blocks() {
    let setup = Setup::new(64);
    setup.write(0, 40 * 4096, 1);
    setup.cache.set_limit(&setup.volume(), 10).unwrap();
    let status = setup.status();
    assert_eq!(
        (10, 10, 30),
        (status.limit, status.blocks, status.evictions)
    );
    setup.cache.detach(&setup.volume(), false).unwrap();
    assert!(setup.cache.volume("v").is_err());
    assert_eq!(64, setup.cache.status().device.free);
    let setup = setup.restart(PLACE, 64).unwrap();
    assert_eq!(0, setup.status().blocks);
}

#[test]
fn sequences_pass_the_cache_by_in_all_modes_and_leave_nothing_old() {
    for mode in Mode::ALL {
        let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
        let attachments = vec![Attachment {
            sequential: 8192,
            mode,
            ..attachment("v", &origin, 64)
        }];
        let cache = Cache::open(device(&ssd, 64), OPTIONS, attachments).unwrap();
        let setup = Setup { ssd, origin, cache };
        setup.write(20480, 4096, 1);
        for block in 0..10 {
            setup.write(block * 4096, 4096, 2);
        }
        let status = setup.status();
        let cached = match mode {
            // Two at the begin, and the one that was cached before.
            Mode::WriteThrough | Mode::WriteBack => (3, 7),
            Mode::WriteAround | Mode::PassThrough => (0, 11),
        };
        assert_eq!(cached, (status.blocks, status.bypassed), "{mode:?}");
        assert_eq!(vec![2; 40960], setup.read(0, 40960));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_volume_is_what_was_written(
        steps in proptest::collection::vec((0..6_u8, 0..60_000_u64, 1..20_000_usize, any::<u8>()), 1..40)
    ) {
        let setup = Setup::new(8);
        let mut plain = vec![0; 1 << 20];
        for (what, offset, length, value) in steps {
            let range = offset as usize..offset as usize + length;
            match what {
                0 | 1 => {
                    setup.write(offset, length, value);
                    plain[range].fill(value);
                }
                2 => {
                    setup.cache.zero(&setup.volume(), offset, length as u64).unwrap();
                    plain[range].fill(0);
                }
                3 => setup.cache.set_mode(
                    &setup.volume(), Mode::ALL[usize::from(value) % Mode::ALL.len()]
                ).unwrap(),
                4 => setup.cache.set_limit(&setup.volume(), u32::from(value) % 16).unwrap(),
                _ => prop_assert_eq!(&plain[range], &setup.read(offset, length)[..]),
            }
        }
        prop_assert_eq!(plain, setup.read(0, 1 << 20));
    }
}

#[test]
fn names_are_given_once() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
    for names in [["a", "a"], ["a", ""]] {
        let volumes = names.map(|name| Attachment {
            name: name.into(),
            ..attachment("x", &origin, 1)
        });
        let opened = Cache::open(device(&ssd, 64), OPTIONS, volumes.into());
        assert!(matches!(opened, Err(CacheError::Name(_))));
    }
}

#[test]
fn the_status_is_the_document_of_the_contract() {
    let status = serde_json::to_value(Setup::new(64).cache.status()).unwrap();
    let fields = |value: &serde_json::Value| -> Vec<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(
        [
            "blocks",
            "dirty",
            "free",
            "reads",
            "ring_reads",
            "ring_refused",
            "state"
        ],
        fields(&status["device"])[..]
    );
    let volume = &status["volumes"]["v"];
    assert_eq!("write-through", volume["mode"]);
    let has: BTreeMap<_, _> = fields(volume).into_iter().map(|name| (name, ())).collect();
    for name in [
        "state",
        "limit",
        "blocks",
        "dirty",
        "reads",
        "writes",
        "hits",
        "misses",
        "evictions",
        "bypassed",
        "ssd_bytes_written",
        "origin_bytes_read",
        "origin_bytes_written",
    ] {
        assert!(has.contains_key(name), "{name}");
    }
    let latencies = ["mean", "p50", "p99"];
    assert_eq!(latencies, fields(&volume["latency_us"]["hit"])[..]);
    assert_eq!(latencies, fields(&volume["latency_us"]["miss"])[..]);
}
