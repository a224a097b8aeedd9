//! The threads of a cache in many schedules: each is decided by a seed, see [`sync`](diffcache_base::sync).
//!
//! Each block is written by one thread, with numbers that become larger. Whatever others evict, shrink,
//! extend or write back meanwhile: a read has the number of the last write that was complete when it
//! began, or of a later one.

use std::sync::OnceLock;

use diffcache_base::sync::atomic::AtomicU64 as Number;
use diffcache_base::sync::{chance, explore, point, thread};
use diffcache_faulty::Random;

use super::*;

const CAPACITY: u32 = 4;
/// Blocks of a volume, of which fewer are cached.
const BLOCKS: u64 = 5;
const OPERATIONS: usize = 5;

/// Lets other threads come, once or several times.
fn pause() {
    (0..=chance() % 4).for_each(|_| point());
}

/// A disk between whose operations other threads come.
#[derive(Clone)]
struct Scheduled(MemoryDisk);

impl Disk for Scheduled {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        pause();
        self.0.read_at(buffer, offset)
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.0.read_now(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        pause();
        // Others may see a part of it.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.0.write_at(first, offset)?;
        pause();
        self.0.write_at(second, offset + first.len() as u64)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        pause();
        self.0.write_durably(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        pause();
        self.0.sync()
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.write_at(&vec![0; length as usize], offset)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}

/// A formatted device; formatting it takes long.
fn formatted() -> MemoryDisk {
    static CONTENT: OnceLock<MemoryDisk> = OnceLock::new();
    let format = || {
        let disk = MemoryDisk::new(Device::bytes(CAPACITY) as usize);
        drop(device(&disk, CAPACITY));
        disk
    };
    CONTENT.get_or_init(format).copied()
}

/// What the threads of a schedule share.
struct Shared {
    ssd: MemoryDisk,
    origin: MemoryDisk,
    cache: Cache,
    begun: [Number; BLOCKS as usize],
    done: [Number; BLOCKS as usize],
}

impl Shared {
    fn new(mode: Mode) -> Self {
        let (ssd, origin) = (formatted(), MemoryDisk::new(BLOCKS as usize * BLOCK));
        Self {
            cache: open(&ssd, &origin, mode),
            ssd,
            origin,
            begun: Default::default(),
            done: Default::default(),
        }
    }

    fn volume(&self) -> Arc<Volume> {
        self.cache.volume("v").unwrap()
    }

    fn status(&self) -> VolumeStatus {
        self.cache.status().volumes.remove("v").unwrap()
    }

    fn write(&self, block: u64) {
        let n = block as usize;
        let value = self.begun[n].fetch_add(1, Ordering::SeqCst) + 1;
        let data = value.to_le_bytes().repeat(BLOCK / 8);
        let written = self
            .cache
            .write(&self.volume(), &data, block * BLOCK as u64);
        written.unwrap();
        self.done[n].store(value, Ordering::SeqCst);
    }

    fn read(&self, cache: &Cache, block: u64) {
        let n = block as usize;
        let least = self.done[n].load(Ordering::SeqCst);
        let mut data = vec![0xff; BLOCK];
        let volume = cache.volume("v").unwrap();
        cache
            .read(&volume, &mut data, block * BLOCK as u64)
            .unwrap();
        let most = self.begun[n].load(Ordering::SeqCst);
        let values = data.chunks(8);
        let values: Vec<u64> = values
            .map(|value| u64::from_le_bytes(value.try_into().unwrap()))
            .collect();
        // A read beside a write may have a part of it.
        let is_known = |value: &u64| (least..=most).contains(value);
        assert!(
            values.iter().all(is_known),
            "block {block}: {} and {}, not {least} to {most}",
            values[0],
            values[BLOCK / 8 - 1]
        );
    }

    /// What is no request of a client.
    fn change(&self, random: &mut Random) {
        let volume = self.volume();
        match random.below(6) {
            0 => self
                .cache
                .set_limit(&volume, random.below(4) as u32)
                .unwrap(),
            1 => {
                self.origin.resize(volume.size() as usize + BLOCK, 0);
                self.cache.resize(&volume).unwrap();
            }
            2 => self.cache.write_back_what_is_due().unwrap(),
            3 => self.cache.flush(&volume).unwrap(),
            4 => self.cache.invalidate(&volume, false).unwrap(),
            _ => self.cache.settle().unwrap(),
        }
    }
}

fn open(ssd: &MemoryDisk, origin: &MemoryDisk, mode: Mode) -> Cache {
    let device = Device::open(Box::new(Scheduled(ssd.clone())), CAPACITY, PLACE);
    let attachment = Attachment {
        origin: Box::new(Scheduled(origin.clone())),
        mode,
        ..attachment("v", origin, 3)
    };
    let options = Options {
        dirty_age: Duration::ZERO,
        samples: 0,
        ..OPTIONS
    };
    Cache::open(device.unwrap(), options, vec![attachment]).unwrap()
}

/// Operations that a seed gives, of a thread that alone writes some blocks.
fn client(shared: &Shared, mut random: Random, writes: &[u64]) {
    for _ in 0..OPERATIONS {
        if random.once_in(2) {
            shared.write(random.choose(writes));
        } else {
            shared.read(&shared.cache, random.below(BLOCKS));
        }
    }
}

fn run(mode: Mode) {
    let shared = Arc::new(Shared::new(mode));
    let random = |_| Random::new(chance());
    let [first, second, mut third] = [(); 3].map(random);
    let threads = [
        {
            let shared = shared.clone();
            thread::spawn(move || client(&shared, first, &[0, 1]))
        },
        {
            let shared = shared.clone();
            thread::spawn(move || client(&shared, second, &[2, 3, 4]))
        },
        {
            let shared = shared.clone();
            thread::spawn(move || (0..3).for_each(|_| shared.change(&mut third)))
        },
    ];
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    assert!(shared.cache.lock().is_idle());
    (0..BLOCKS).for_each(|block| shared.read(&shared.cache, block));
    let shared = Arc::into_inner(shared).unwrap();
    // What the end of the process leaves.
    let again = open(&shared.ssd, &shared.origin, mode);
    (0..BLOCKS).for_each(|block| shared.read(&again, block));
}

#[test]
fn a_read_has_the_last_write_in_every_schedule() {
    for mode in [Mode::WriteThrough, Mode::WriteBack, Mode::WriteAround] {
        explore(40, move || run(mode));
    }
}

/// Regression: it looked again and again, on a processor of its own, while a write waited for the device.
#[test]
fn a_lower_limit_waits_for_a_write_in_every_schedule() {
    explore(60, || {
        let shared = Arc::new(Shared::new(Mode::WriteBack));
        let writer = shared.clone();
        let writer = thread::spawn(move || writer.write(0));
        shared.cache.set_limit(&shared.volume(), 0).unwrap();
        assert_eq!(0, shared.status().blocks);
        writer.join().unwrap();
        shared.read(&shared.cache, 0);
    });
}
