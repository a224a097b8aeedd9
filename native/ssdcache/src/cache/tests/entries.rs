//! The order in which entries, data and origins are written, while the write of one entry is held up;
//! and what a start finds of the disks as they are then: after the end of the process, or after a
//! power cut that all writes survived.

use std::thread::{yield_now, ScopedJoinHandle};

use diffcache_faulty::{Effect, Fault, Fuse, Operation, Valve};
use diffcache_partitions::Slot;

use super::*;
use crate::device::format::{Superblock, ENTRY};

/// What was written to one of the disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Written {
    Entry(Slot),
    Erasure(Slot),
    Data(Slot),
    /// The first block of a write to an origin.
    Origin(Block),
    /// The note of a failure of the device.
    Failure,
}

type Record = Arc<Mutex<Vec<Written>>>;

/// What a write is, if it is to be recorded.
type Name = dyn Fn(&[u8], u64) -> Option<Written> + Send + Sync;

/// A disk whose completed writes are recorded, with those of others.
struct Recorded {
    disk: MemoryDisk,
    record: Record,
    name: Box<Name>,
}

impl Recorded {
    fn note(&self, bytes: &[u8], offset: u64) {
        let written = (self.name)(bytes, offset);
        self.record.lock().unpoisoned().extend(written);
    }
}

impl Disk for Recorded {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.disk.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_at(bytes, offset)?;
        self.note(bytes, offset);
        Ok(())
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.disk.write_durably(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_at(&vec![0; length as usize], offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.disk.size()
    }
}

/// A cache with volumes of 16 blocks, whose limits fill it.
struct World {
    capacity: u32,
    ssd: MemoryDisk,
    /// Burns for the device alone.
    fuse: Fuse,
    origins: Vec<(&'static str, MemoryDisk)>,
    mode: Mode,
    record: Record,
    cache: Cache,
}

const NAMES: [&str; 2] = ["a", "b"];
const SIZE: usize = 16 * BLOCK;

impl World {
    fn new(mode: Mode, volumes: usize, limit: u32) -> Self {
        let capacity = limit * volumes as u32;
        let (fuse, record) = (Fuse::default(), Record::default());
        let ssd = MemoryDisk::with_fuse(3 << 20, &fuse);
        drop(device(&ssd, capacity));
        let disk = recorded(&ssd, &record, move |bytes, offset| {
            of_device(bytes, offset, capacity)
        });
        let origins: Vec<_> = (NAMES.into_iter())
            .take(volumes)
            .map(|name| (name, MemoryDisk::new(SIZE)))
            .collect();
        let attachments = origins.iter().map(|(name, origin)| {
            let written = |_: &[u8], offset| Some(Written::Origin(offset / BLOCK as u64));
            Attachment {
                origin: recorded(origin, &record, written),
                mode,
                ..attachment(name, origin, limit)
            }
        });
        let device = Device::open(disk, capacity, PLACE).unwrap();
        let cache = Cache::open(device, OPTIONS, attachments.collect()).unwrap();
        let noted = record.clone();
        let note = move |_: &io::Error| {
            noted.lock().unpoisoned().push(Written::Failure);
            Ok(())
        };
        let cache = cache.noting_failure(Box::new(note));
        Self {
            capacity,
            ssd,
            fuse,
            origins,
            mode,
            record,
            cache,
        }
    }

    fn volume(&self, name: &str) -> Arc<Volume> {
        self.cache.volume(name).unwrap()
    }

    fn write(&self, name: &str, block: Block, value: u8) {
        let written = self
            .cache
            .write(&self.volume(name), &[value; BLOCK], block * BLOCK as u64);
        written.unwrap();
    }

    fn read(&self, name: &str, block: Block) -> u8 {
        read(&self.cache, name, block).unwrap()
    }

    fn slot(&self, name: &str, block: Block) -> Option<Slot> {
        let volume = self.volume(name);
        self.cache.lock().blocks.find(volume.id, block)
    }

    /// Holds the next writes of a slot's entry up.
    fn hold(&self, slot: Slot) -> Held {
        self.record.lock().unpoisoned().clear();
        let valve = Valve::default();
        let hang = Fault::new(Operation::Write, Effect::Hang(valve.clone()));
        let at = Superblock::entry_at(slot);
        self.ssd.inject(hang.within(at..at + ENTRY as u64));
        Held(valve)
    }

    fn written(&self) -> Vec<Written> {
        self.record.lock().unpoisoned().clone()
    }

    fn has_written(&self, what: Written) -> bool {
        self.written().contains(&what)
    }

    /// Waits until a thread waits for the entries of another one, or ends.
    fn wait_for_waiting<T>(&self, thread: &ScopedJoinHandle<'_, T>) {
        while self.cache.lock().waiting == 0 && !thread.is_finished() {
            yield_now();
        }
    }

    /// What starts find of copies of the disks: after the end of the process, and after a power cut.
    fn starts(&self) -> [Cache; 2] {
        let starts = [PLACE.boot, [9; 16]].map(|boot| Place { boot, ..PLACE });
        let limit = self.capacity / self.origins.len() as u32;
        starts.map(|place| {
            let attachments = self.origins.iter().map(|(name, origin)| Attachment {
                mode: self.mode,
                ..attachment(name, &origin.copied(), limit)
            });
            let device = Device::open(Box::new(self.ssd.copied()), self.capacity, place).unwrap();
            Cache::open(device, OPTIONS, attachments.collect()).unwrap()
        })
    }
}

/// What an operation waits for, until this is dropped: a test that fails does not wait for ever.
struct Held(Valve);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn recorded(
    disk: &MemoryDisk,
    record: &Record,
    name: impl Fn(&[u8], u64) -> Option<Written> + Send + Sync + 'static,
) -> Box<Recorded> {
    Box::new(Recorded {
        disk: disk.clone(),
        record: record.clone(),
        name: Box::new(name),
    })
}

fn of_device(bytes: &[u8], offset: u64, capacity: u32) -> Option<Written> {
    let has = |slot: &Slot| match bytes.len() {
        ENTRY => Superblock::entry_at(*slot) == offset,
        _ => data_at(*slot, capacity) == offset,
    };
    let slot = (0..capacity).find(has)?;
    Some(match bytes.len() {
        ENTRY if bytes == [0; ENTRY] => Written::Erasure(slot),
        ENTRY => Written::Entry(slot),
        _ => Written::Data(slot),
    })
}

/// Where the data of a slot are: they end the device.
fn data_at(slot: Slot, capacity: u32) -> u64 {
    Superblock::bytes(capacity) - u64::from(capacity - slot) * BLOCK as u64
}

fn read(cache: &Cache, name: &str, block: Block) -> io::Result<u8> {
    let (volume, mut data) = (cache.volume(name).unwrap(), [0; BLOCK]);
    cache.read(&volume, &mut data, block * BLOCK as u64)?;
    assert_eq!([data[0]; BLOCK], data);
    Ok(data[0])
}

/// A slot that was left gets no other block while the device has its entry.
#[test]
fn a_slot_is_not_used_again_before_its_entry_is_erased() {
    let world = World::new(Mode::WriteBack, 2, 1);
    world.write("a", 0, 1);
    world.cache.flush(&world.volume("a")).unwrap();
    let slot = world.slot("a", 0).unwrap();
    std::thread::scope(|scope| {
        let held = world.hold(slot);
        let trim = || world.cache.zero(&world.volume("a"), 0, BLOCK as u64);
        let trimmed = scope.spawn(trim);
        held.0.wait_for(1);
        let written = scope.spawn(|| world.write("b", 5, 7));
        let has_data = || (0..2).any(|slot| world.has_written(Written::Data(slot)));
        while !has_data() && !written.is_finished() {
            yield_now();
        }
        for start in world.starts() {
            let found = read(&start, "a", 0).map_err(|error| error.to_string());
            assert!(matches!(found, Ok(0 | 1)), "{found:?}");
        }
        assert!(!world.has_written(Written::Data(slot)));
        // Nor does it get a block of its own volume, which is read without it.
        assert_eq!(0, world.read("a", 3));
        assert_eq!(None, world.slot("a", 3));
        drop(held);
        trimmed.join().unwrap().unwrap();
    });
    assert_eq!(0, world.read("a", 3));
    assert_eq!(Some(slot), world.slot("a", 3));
    let record = world.written();
    let at = |what| record.iter().position(|written| *written == what).unwrap();
    assert!(at(Written::Erasure(slot)) < at(Written::Data(slot)));
    assert!(world.cache.lock().is_idle());
}

type Change = fn(&Cache, &Volume);

/// What writes a block of an origin past a cached one.
const CHANGES: [(&str, Mode, Change); 4] = [
    ("write through", Mode::WriteThrough, write_block),
    ("write around", Mode::WriteAround, write_block),
    ("write without the cache", Mode::PassThrough, write_block),
    ("trim", Mode::WriteThrough, |cache, volume| {
        cache.zero(volume, 0, BLOCK as u64).unwrap();
    }),
];

fn write_block(cache: &Cache, volume: &Volume) {
    cache.write(volume, &[9; BLOCK], 0).unwrap();
}

/// A block that another thread evicts is not written before its entry is erased: a start would take
/// what the entry is of for what the origin has.
#[test]
fn an_origin_is_not_written_before_entries_of_its_blocks() {
    for (name, mode, change) in CHANGES {
        let world = World::new(Mode::WriteThrough, 1, 2);
        world.write("a", 0, 1);
        world.write("a", 1, 2);
        let slot = world.slot("a", 0).unwrap();
        std::thread::scope(|scope| {
            let held = world.hold(slot);
            // The block that was used the longest ago leaves for this one.
            let evicting = scope.spawn(|| world.read("a", 2));
            held.0.wait_for(1);
            let volume = world.volume("a");
            world.cache.set_mode(&volume, mode).unwrap();
            let changed = scope.spawn(|| change(&world.cache, &world.volume("a")));
            world.wait_for_waiting(&changed);
            for start in world.starts() {
                let mut origin = [0];
                let disk = start.volume("a").unwrap();
                disk.origin().read_at(&mut origin, 0).unwrap();
                assert_eq!(origin[0], read(&start, "a", 0).unwrap(), "{name}");
            }
            assert!(!world.has_written(Written::Origin(0)), "{name}");
            drop(held);
            changed.join().unwrap();
            assert_eq!(0, evicting.join().unwrap());
        });
        let record = world.written();
        let at = |what| record.iter().position(|written| *written == what).unwrap();
        let order = [Written::Erasure(slot), Written::Origin(0)].map(at);
        assert!(order.is_sorted(), "{name}: {record:?}");
        assert!(world.cache.lock().is_idle(), "{name}");
    }
}

/// The entry of a new version is written before that of the older one is erased: a start finds one.
#[test]
fn a_version_is_erased_after_the_entry_of_the_next_one_was_written() {
    let world = World::new(Mode::WriteBack, 1, 2);
    world.write("a", 0, 1);
    let older = world.slot("a", 0).unwrap();
    let newer = 1 - older;
    std::thread::scope(|scope| {
        let held = world.hold(newer);
        let written = scope.spawn(|| world.write("a", 0, 2));
        held.0.wait_for(1);
        let [ended, _] = world.starts();
        assert_eq!(1, read(&ended, "a", 0).unwrap());
        assert_eq!(vec![Written::Data(newer)], world.written());
        drop(held);
        written.join().unwrap();
    });
    let order = [
        Written::Data(newer),
        Written::Entry(newer),
        Written::Erasure(older),
    ];
    assert_eq!(order, world.written()[..]);
    assert_eq!(2, read(&world.starts()[0], "a", 0).unwrap());
    assert!(world.cache.lock().is_idle());
}

/// Entries of a batch stay in their order where the first is being written by another thread.
#[test]
fn entries_behind_one_that_another_thread_writes_wait_with_it() {
    let world = World::new(Mode::WriteThrough, 1, 2);
    world.read("a", 1);
    let cached = world.slot("a", 1).unwrap();
    let filled = 1 - cached;
    std::thread::scope(|scope| {
        let held = world.hold(filled);
        let filling = scope.spawn(|| world.read("a", 0));
        held.0.wait_for(1);
        let trim = || world.cache.zero(&world.volume("a"), 0, 2 * BLOCK as u64);
        let trimmed = scope.spawn(trim);
        world.wait_for_waiting(&trimmed);
        assert_eq!(vec![Written::Data(filled)], world.written());
        drop(held);
        trimmed.join().unwrap().unwrap();
        filling.join().unwrap();
    });
    let order = [
        Written::Data(filled),
        Written::Entry(filled),
        Written::Erasure(filled),
        Written::Erasure(cached),
        Written::Origin(0),
    ];
    assert_eq!(order, world.written()[..]);
    assert!(world.cache.lock().is_idle());
}

/// Data are written to a slot after the entry of its block before was erased, which waits for another
/// thread that writes that entry.
#[test]
fn data_are_not_written_before_the_entry_of_the_block_before_is_erased() {
    let world = World::new(Mode::WriteThrough, 1, 1);
    std::thread::scope(|scope| {
        let held = world.hold(0);
        let filling = scope.spawn(|| world.read("a", 0));
        held.0.wait_for(1);
        let next = scope.spawn(|| world.read("a", 1));
        world.wait_for_waiting(&next);
        let written = scope.spawn(|| world.write("a", 1, 9));
        while world.cache.lock().waiting < 2 && !written.is_finished() && !next.is_finished() {
            yield_now();
        }
        assert_eq!(vec![Written::Data(0)], world.written());
        for start in world.starts() {
            assert_eq!([0, 0], [0, 1].map(|n| read(&start, "a", n).unwrap()));
        }
        drop(held);
        written.join().unwrap();
        filling.join().unwrap();
        assert!(matches!(next.join().unwrap(), 0 | 9));
    });
    let record = world.written();
    let first = [Written::Data(0), Written::Entry(0), Written::Erasure(0)];
    assert!(record.starts_with(&first), "{record:?}");
    assert_eq!(9, world.read("a", 1));
    for start in world.starts() {
        assert_eq!([0, 9], [0, 1].map(|n| read(&start, "a", n).unwrap()));
    }
    assert!(world.cache.lock().is_idle());
}

/// An entry cannot be written: threads that wait for it continue once the failure is noted.
#[test]
fn an_origin_is_written_after_the_note_of_an_entry_that_cannot_be_written() {
    let world = World::new(Mode::WriteThrough, 1, 2);
    world.write("a", 0, 1);
    world.write("a", 1, 2);
    std::thread::scope(|scope| {
        let held = world.hold(world.slot("a", 0).unwrap());
        let evicting = scope.spawn(|| world.read("a", 2));
        held.0.wait_for(1);
        // Neither takes a slot: the volume has no cache for new blocks.
        let none = diffcache_partitions::NEVER;
        let volume = world.volume("a");
        world.cache.set_admission(&volume, none).unwrap();
        let written = scope.spawn(|| world.write("a", 0, 9));
        world.wait_for_waiting(&written);
        let flushed = scope.spawn(|| world.cache.sync_entries(&world.volume("a")));
        while world.cache.lock().waiting < 2 && !flushed.is_finished() {
            yield_now();
        }
        world.fuse.burn_after(0);
        drop(held);
        written.join().unwrap();
        assert!(flushed.join().unwrap().is_err());
        assert_eq!(0, evicting.join().unwrap());
    });
    assert_eq!([Written::Failure, Written::Origin(0)], world.written()[..]);
    assert_eq!(9, world.read("a", 0));
    assert!(world.cache.lock().is_idle());
}

/// Regression: a loss was forgotten while another thread erased the entry of a block of it, so that a
/// start found what the origin lost.
#[test]
fn a_loss_does_not_end_before_entries_of_its_blocks_are_erased() {
    let world = World::new(Mode::WriteThrough, 1, 2);
    world.write("a", 0, 1);
    world.origins[0].1.lose(1);
    assert!(world.cache.flush(&world.volume("a")).is_err());
    // What is lost is in the memory of the origin's server still.
    let found = [0, 1].map(|block| world.read("a", block));
    assert_eq!([1, 0], found);
    let slot = world.slot("a", 0).unwrap();
    std::thread::scope(|scope| {
        let held = world.hold(slot);
        let evicting = scope.spawn(|| world.read("a", 2));
        held.0.wait_for(1);
        let accepted = scope.spawn(|| world.cache.accept_loss(&world.volume("a")));
        world.wait_for_waiting(&accepted);
        assert!(!accepted.is_finished());
        drop(held);
        accepted.join().unwrap();
        evicting.join().unwrap();
    });
    assert!(world.cache.flush(&world.volume("a")).is_ok());
    assert!(world.cache.lock().is_idle());
}

/// Regression: what an operator had forgotten, because the origin was changed in another way, was
/// there again after a power cut.
#[test]
fn what_was_invalidated_is_not_there_after_a_power_cut() {
    let setup = Setup::new(32);
    setup.write(0, BLOCK, 1);
    // No intent has the block forgotten.
    setup.cache.flush(&setup.volume()).unwrap();
    (0..2).for_each(|_| setup.cache.settle().unwrap());
    setup.ssd.sync().unwrap();
    setup.cache.invalidate(&setup.volume(), false).unwrap();
    setup.origin.write_durably(&[2; BLOCK], 0).unwrap();
    setup.ssd.cut(|_| 0);
    let place = Place {
        boot: [9; 16],
        ..PLACE
    };
    let again = setup.restart(place, 64).unwrap();
    assert_eq!([2], again.read(0, 1)[..]);
}
