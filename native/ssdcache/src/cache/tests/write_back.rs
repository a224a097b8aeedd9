//! The mode write-back: what is dirty, where it is, and what becomes of it.

mod damage;
mod held;
mod zeroes;

use diffcache_faulty::{Effect, Fault, Operation, Valve};

use super::neighbours::beside_held;
use super::*;
use crate::cache::origin::held::Held;
use crate::device::unsaved::Notes;
use crate::device::DeviceError;

fn write_back(limit: u32) -> Setup {
    let setup = Setup::new(limit);
    let set = setup.cache.set_mode(&setup.volume(), Mode::WriteBack);
    set.unwrap();
    setup
}

impl Setup {
    fn restart_in(self, place: Place, options: Options, mode: Mode) -> Result<Self, CacheError> {
        let Self { ssd, origin, cache } = self;
        drop(cache);
        let device = Device::open(Box::new(ssd.clone()), 64, place)?;
        let attachments = vec![Attachment {
            mode,
            ..attachment("v", &origin, 64)
        }];
        let cache = Cache::open(device, options, attachments)?;
        Ok(Self { ssd, origin, cache })
    }

    fn again(self) -> Self {
        self.restart_in(PLACE, OPTIONS, Mode::WriteBack).unwrap()
    }

    fn flush(&self) {
        self.cache.flush(&self.volume()).unwrap();
    }

    fn dirty(&self) -> u32 {
        self.status().dirty
    }

    /// What the origin has at an offset.
    fn origin_at(&self, offset: u64) -> u8 {
        let mut byte = [0];
        self.origin.read_at(&mut byte, offset).unwrap();
        byte[0]
    }
}

fn rebooted() -> Place {
    Place {
        boot: [9; 16],
        ..PLACE
    }
}

#[test]
fn writes_reach_the_origin_later() {
    let setup = write_back(64);
    setup.write(4096, 8192, 7);
    setup.write(5000, 10, 8);
    setup.flush();
    assert_eq!((2, 0), (setup.dirty(), setup.origin_at(4096)));
    let mut expected = vec![7; 8192];
    expected[904..914].fill(8);
    assert_eq!(expected, setup.read(4096, 8192));
    setup.cache.flush_back(&setup.volume()).unwrap();
    assert_eq!((0, 8), (setup.dirty(), setup.origin_at(5000)));
    assert_eq!(expected, setup.read(4096, 8192));
    assert_eq!(2, setup.status().blocks);
}

#[test]
fn what_is_dirty_is_served_after_the_end_of_the_process() {
    let setup = write_back(64);
    setup.write(0, 8192, 1);
    setup.flush();
    setup.write(0, 4096, 2);
    setup.write(0, 4096, 3);
    let setup = setup.again();
    assert_eq!(2, setup.dirty());
    assert_eq!(vec![3; 4096], setup.read(0, 4096));
    assert_eq!(vec![1; 4096], setup.read(4096, 4096));
    setup.cache.drain_and_close().unwrap();
    assert_eq!((3, 1), (setup.origin_at(0), setup.origin_at(4096)));
    let setup = setup.again();
    assert_eq!((0, 2), (setup.dirty(), setup.status().blocks));
}

#[test]
fn after_a_power_cut_there_is_what_was_flushed() {
    for kept in [false, true] {
        let setup = write_back(64);
        setup.write(0, 8192, 1);
        setup.flush();
        setup.write(0, 4096, 2);
        setup.ssd.cut(|count| if kept { count - 1 } else { 0 });
        setup.origin.cut(|count| if kept { count - 1 } else { 0 });
        let setup = setup.restart_in(rebooted(), OPTIONS, Mode::WriteBack);
        let setup = setup.unwrap();
        assert_eq!(vec![1; 8192], setup.read(0, 8192));
        assert_eq!(2, setup.dirty());
    }
}

#[test]
fn another_mode_begins_when_all_is_written_back() {
    for mode in [Mode::WriteThrough, Mode::WriteAround, Mode::PassThrough] {
        let setup = write_back(64);
        setup.write(0, 8192, 1);
        setup.cache.set_mode(&setup.volume(), mode).unwrap();
        assert_eq!((0, 1), (setup.dirty(), setup.origin_at(4096)), "{mode:?}");
        // The same at a start in another mode.
        let setup = write_back(64);
        setup.write(0, 8192, 1);
        let setup = setup.restart_in(PLACE, OPTIONS, mode).unwrap();
        let state = |setup: &Setup| (setup.status().mode, setup.dirty());
        assert_eq!((Mode::WriteBack, 2), state(&setup), "{mode:?}");
        assert_eq!(vec![1; 8192], setup.read(0, 8192));
        setup.cache.write_back_what_is_due().unwrap();
        assert_eq!((mode, 0), state(&setup));
        assert_eq!(1, setup.origin_at(4096), "{mode:?}");
    }
}

#[test]
fn the_mode_stays_if_the_origin_cannot_be_written() {
    let setup = write_back(64);
    setup.write(0, 8192, 1);
    setup.origin.fail(true);
    let volume = setup.volume();
    assert!(setup.cache.set_mode(&volume, Mode::WriteThrough).is_err());
    assert!(setup.cache.detach(&volume, false).is_err());
    assert!(setup.cache.invalidate(&volume, false).is_err());
    assert!(setup.cache.drain_and_close().is_err());
    assert_eq!(vec![1; 8192], setup.read(0, 8192));
    assert_eq!((Mode::WriteBack, 2), (setup.status().mode, setup.dirty()));
    setup.origin.fail(false);
    setup.cache.detach(&volume, false).unwrap();
    assert_eq!(1, setup.origin_at(4096));
}

#[test]
fn a_lower_limit_writes_back_what_it_evicts() {
    let setup = write_back(64);
    setup.write(0, 40 * 4096, 1);
    setup.cache.set_limit(&setup.volume(), 10).unwrap();
    let status = setup.status();
    assert_eq!((10, 10), (status.blocks, status.dirty));
    assert_eq!(vec![1; 40 * 4096], setup.read(0, 40 * 4096));
    setup.cache.set_limit(&setup.volume(), 0).unwrap();
    assert_eq!((0, 1), (setup.dirty(), setup.origin_at(39 * 4096)));
    setup.write(0, 4096, 2);
    assert_eq!((0, 2), (setup.dirty(), setup.origin_at(0)));
}

#[test]
fn dirty_blocks_are_bounded() {
    for (dirty_max, most) in [(DirtyMax::Blocks(3), 3), (DirtyMax::Percent(25), 16)] {
        let options = Options {
            dirty_max,
            ..OPTIONS
        };
        let setup = Setup::new(64);
        let setup = setup.restart_in(PLACE, options, Mode::WriteBack).unwrap();
        for block in 0..100 {
            setup.write(block * 4096, 4096, 1 + block as u8);
            assert!(setup.dirty() <= most, "{} dirty blocks", setup.dirty());
        }
        for block in 0..100 {
            assert_eq!(vec![1 + block as u8; 4096], setup.read(block * 4096, 4096));
        }
    }
}

#[test]
fn old_and_many_dirty_blocks_are_written_back() {
    let young = write_back(64);
    young.write(0, 8192, 1);
    young.cache.write_back_what_is_due().unwrap();
    assert_eq!(2, young.dirty());
    young.write(0, 40 * 4096, 1);
    young.cache.write_back_what_is_due().unwrap();
    assert_eq!(16, young.dirty(), "a quarter of the most");
    let options = Options {
        dirty_age: Duration::ZERO,
        ..OPTIONS
    };
    let old = young.restart_in(PLACE, options, Mode::WriteBack).unwrap();
    old.cache.write_back_what_is_due().unwrap();
    assert_eq!(0, old.dirty());
}

#[test]
fn a_lost_device_makes_dirty_blocks_errors_and_no_others() {
    let setup = write_back(64);
    setup.write(40960, 4096, 9);
    setup.cache.flush_back(&setup.volume()).unwrap();
    setup.write(0, 4096, 1);
    setup.ssd.fail(true);
    let (volume, mut data) = (setup.volume(), [0; 4096]);
    let read = setup.cache.read(&volume, &mut data, 0);
    let text = read.unwrap_err().to_string();
    assert!(text.contains("block 0 of volume v"), "{text}");
    assert!(setup.cache.read(&volume, &mut data, 0).is_err());
    assert!(setup.cache.write(&volume, &data, 0).is_err());
    assert!(setup.cache.zero(&volume, 0, 4096).is_err());
    assert!(setup.cache.flush(&volume).is_err());
    assert_eq!(vec![9; 4096], setup.read(40960, 4096));
    setup.write(8192, 4096, 5);
    assert_eq!(vec![5; 4096], setup.read(8192, 4096));
    assert!(setup.cache.set_mode(&volume, Mode::WriteThrough).is_err());
    assert_eq!(1, setup.dirty());
}

#[test]
fn a_volume_whose_origin_became_larger_has_its_dirty_blocks_and_its_size() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    setup.flush();
    setup.origin.resize(2 << 20, 0);
    let setup = setup.again();
    assert_eq!((1 << 20, 1), (setup.volume().size(), setup.dirty()));
    assert_eq!(vec![1; 4096], setup.read(0, 4096));
    setup.cache.resize(&setup.volume()).unwrap();
    assert_eq!(2 << 20, setup.volume().size());
    let setup = setup.again();
    assert_eq!((2 << 20, 1), (setup.volume().size(), setup.dirty()));
}

#[test]
fn no_start_waits_for_an_origin_or_fails_by_it() {
    for change in 0..2 {
        let setup = write_back(64);
        setup.write(0, 40 * 4096, 1);
        setup.flush();
        setup.origin.fail(true);
        let mode = match change {
            0 => Mode::WriteBack,
            _ => Mode::WriteThrough,
        };
        assert!(setup.cache.set_limit(&setup.volume(), 10).is_err());
        let device = Device::open(Box::new(setup.ssd.clone()), 64, PLACE).unwrap();
        let attachments = vec![Attachment {
            mode,
            ..attachment("v", &setup.origin, 10)
        }];
        let cache = Cache::open(device, OPTIONS, attachments).unwrap();
        let setup = Setup { cache, ..setup };
        assert_eq!((10, 40), (setup.status().limit, setup.dirty()));
        assert!(setup.cache.write_back_what_is_due().is_err());
        let reason = setup.status().reason.unwrap();
        assert!(reason.contains("volume v"), "{reason}");
        setup.origin.fail(false);
        setup.cache.flush_back(&setup.volume()).unwrap();
        assert_eq!((0, 1), (setup.dirty(), setup.origin_at(39 * 4096)));
    }
}

#[test]
fn dirty_blocks_are_counted_before_a_device_is_formatted() {
    let setup = write_back(64);
    let check = || Device::check_clean(Box::new(setup.ssd.clone()), PLACE);
    setup.write(0, 8192, 1);
    setup.write(0, 8192, 2);
    assert!(matches!(check(), Err(DeviceError::Dirty(2))));
    setup.cache.drain_and_close().unwrap();
    assert!(check().unwrap().is_some());
    let blank = MemoryDisk::new(100);
    let found = Device::check_clean(Box::new(blank), PLACE).unwrap();
    assert_eq!(None, found);
}

/// A directory for notes, which is removed.
struct State(std::path::PathBuf);

impl State {
    fn new(name: &str) -> Self {
        let name = format!("diffcache-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn notes(&self) -> Notes {
        Notes::new(&self.0, &[1; 16])
    }

    fn is_empty(&self) -> bool {
        std::fs::read_dir(&self.0).unwrap().next().is_none()
    }
}

impl Drop for State {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn a_volume_is_noted_as_long_as_it_may_have_dirty_blocks() {
    let state = State::new("noted");
    let setup = Setup::new(64);
    let cache = setup.cache.noting_unsaved(state.notes()).unwrap();
    let setup = Setup { cache, ..setup };
    let set = |mode| setup.cache.set_mode(&setup.volume(), mode).unwrap();
    assert!(state.is_empty());
    for _ in 0..2 {
        set(Mode::WriteBack);
        setup.write(0, 4096, 1);
        assert!(!state.is_empty());
        set(Mode::WriteAround);
        assert!(state.is_empty());
    }
    set(Mode::WriteBack);
    setup.cache.drain_and_close().unwrap();
    assert!(state.is_empty());
    set(Mode::WriteBack);
    let setup = setup.again();
    let cache = setup.cache.noting_unsaved(state.notes()).unwrap();
    assert!(!state.is_empty());
    let volume = cache.volume("v").unwrap();
    cache.detach(&volume, false).unwrap();
    assert!(state.is_empty());
}

#[test]
fn no_block_gets_dirty_that_cannot_be_noted() {
    let state = State::new("unnoted");
    let setup = Setup::new(64);
    let notes = Notes::new(&state.0.join("missing"), &[1; 16]);
    let cache = setup.cache.noting_unsaved(notes).unwrap();
    let setup = Setup { cache, ..setup };
    let failed = setup.cache.set_mode(&setup.volume(), Mode::WriteBack);
    assert!(matches!(failed, Err(CacheError::Note { .. })));
    setup.write(0, 4096, 1);
    assert_eq!((0, 1), (setup.dirty(), setup.origin_at(0)));
}

#[test]
fn dirty_blocks_are_discarded_after_the_origin_was_flushed() {
    let setup = write_back(64);
    setup.write(0, 4096, 1);
    setup.cache.zero(&setup.volume(), 40960, 4096).unwrap();
    setup
        .origin
        .inject(Fault::new(Operation::Sync, Effect::Error(diffcache_faulty::EIO)).times(1));
    assert!(setup.cache.detach(&setup.volume(), true).is_err());
    assert_eq!((1, Mode::WriteBack), (setup.dirty(), setup.status().mode));
    setup.cache.detach(&setup.volume(), true).unwrap();
}

#[test]
fn an_origin_that_hangs_holds_up_no_other_volume() {
    let setup = write_back(32);
    let hung = MemoryDisk::new(1 << 20);
    let valve = Valve::default();
    let cache = &setup.cache;
    let stuck = cache.attach(attachment("hung", &hung, 16)).unwrap();
    cache.set_mode(&stuck, Mode::WriteBack).unwrap();
    cache.write(&stuck, &[2; 4096], 0).unwrap();
    setup.write(0, 20 * 4096, 1);
    hung.inject(Fault::new(Operation::Write, Effect::Hang(valve.clone())));
    std::thread::scope(|scope| {
        let written = scope.spawn(|| cache.write_back_now(&stuck));
        valve.wait_for(1);
        cache.write_back_what_is_due().unwrap();
        assert!(setup.dirty() < 20);
        let third = cache
            .attach(attachment("third", &MemoryDisk::new(8192), 8))
            .unwrap();
        cache.resize(&third).unwrap();
        cache.detach(&third, false).unwrap();
        cache.detach(&setup.volume(), false).unwrap();
        // What hangs is durable on the device.
        cache.commit_all().unwrap();
        assert_eq!(1, cache.status().volumes["hung"].dirty);
        valve.open();
        written.join().unwrap().unwrap();
    });
    assert_eq!(1, setup.origin.content()[0]);
}

/// Regression: dirty blocks were copied one after the other, however many writes an origin can do at
/// a time.
#[test]
fn a_write_that_takes_long_holds_up_no_other_one_of_a_drain() {
    let setup = write_back(64);
    setup.write(0, 32 * 4096, 1);
    let valve = Valve::default();
    let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
    setup.origin.inject(hang.within(0..4096));
    beside_held(
        &valve,
        || setup.cache.drain(&setup.volume()).unwrap(),
        || {
            while setup.origin.content()[31 * 4096] != 1 {
                std::thread::yield_now();
            }
        },
    );
    assert_eq!(0, setup.dirty());
}

#[test]
fn parts_of_a_block_that_are_written_at_the_same_time_are_all_kept() {
    let setup = write_back(64);
    let (cache, volume) = (&setup.cache, setup.volume());
    std::thread::scope(|scope| {
        for n in 0..8_u8 {
            let volume = &volume;
            scope.spawn(move || {
                for value in 1..=50 {
                    let offset = u64::from(n) * 512;
                    cache.write(volume, &[value; 512], offset).unwrap();
                }
            });
        }
        for _ in 0..20 {
            cache.flush_back(&volume).unwrap();
        }
    });
    assert_eq!(vec![50; 4096], setup.read(0, 4096));
}

/// Regression: a change of the mode that had waited for the origin replaced one that began later, so
/// that a volume was in write-back again after its server had begun to leave.
#[test]
fn the_mode_is_that_of_the_last_change_that_began() {
    let setup = write_back(64);
    let (cache, volume, valve) = (&setup.cache, setup.volume(), Valve::default());
    setup.write(0, 4096, 1);
    let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
    setup.origin.inject(hang);
    std::thread::scope(|scope| {
        let former = scope.spawn(|| cache.set_mode(&volume, Mode::WriteAround));
        valve.wait_for(1);
        cache.set_mode(&volume, Mode::WriteBack).unwrap();
        valve.open();
        let former = former.join().unwrap();
        assert!(matches!(former, Err(CacheError::Superseded(_))));
    });
    assert_eq!(Mode::WriteBack, volume.mode());
}

#[test]
fn a_volume_that_is_being_detached_does_not_enter_write_back() {
    // What it wrote then would be lost with its record.
    let setup = Setup::new(64);
    let volume = setup.volume();
    volume.ending.store(true, Ordering::Release);
    assert!(matches!(
        setup.cache.set_mode(&volume, Mode::WriteBack),
        Err(CacheError::Detaching(_))
    ));
    assert_eq!(Mode::WriteThrough, volume.mode());
    volume.ending.store(false, Ordering::Release);
    setup.cache.set_mode(&volume, Mode::WriteBack).unwrap();
}

#[test]
fn the_record_says_write_back_before_the_first_dirty_block() {
    let (ssd, origin) = (MemoryDisk::new(4 << 20), MemoryDisk::new(1 << 20));
    let attached = Attachment {
        kept: Some("/dev/v".into()),
        ..attachment("v", &origin, 64)
    };
    let cache = Cache::open(device(&ssd, 64), OPTIONS, vec![attached]).unwrap();
    let volume = cache.volume("v").unwrap();
    ssd.fail(true);
    assert!(cache.set_mode(&volume, Mode::WriteBack).is_err());
    assert_eq!(Mode::WriteThrough, volume.mode());
}
