//! A campaign of crashes while several threads use volumes, each a part of its own of one, and another
//! thread has blocks written back and evicted: entries are written between the steps of others.
//!
//! `SSDCACHE_THREADS_RUNS` and `SSDCACHE_THREADS_SEED` give other numbers than those of the test.

use diffcache_faulty::{campaign, Fuse, Random};

use super::campaign::{value_of, Sector, SECTOR};
use super::*;

/// Sectors of a part.
const PART: usize = 12 * BLOCK / SECTOR;
/// With few slots blocks are evicted; with more, entries are in several sectors, which a power cut
/// keeps or loses one by one.
const CAPACITIES: [u32; 2] = [16, 48];
const NAMES: [&str; 2] = ["a", "b"];
/// Parts of each volume.
const PARTS: usize = 2;

/// What one thread uses.
struct Part {
    name: &'static str,
    first: usize,
    sectors: Vec<Sector>,
    random: Random,
    writes: u64,
}

impl Part {
    fn note(&mut self, (first, count): (usize, usize), value: u64, is_done: bool) {
        for sector in &mut self.sectors[first..first + count] {
            sector.note(value, is_done);
        }
    }

    fn flush(&mut self) {
        self.sectors.iter_mut().for_each(Sector::flush);
    }

    fn compare(&mut self, first: usize, data: &[u8]) {
        for (sector, bytes) in self.sectors[first..].iter_mut().zip(data.chunks(SECTOR)) {
            sector.compare(value_of(bytes));
        }
    }

    fn read(&mut self, cache: &Cache, (first, count): (usize, usize)) -> io::Result<()> {
        let volume = cache.volume(self.name).unwrap();
        let mut data = vec![0; count * SECTOR];
        cache.read(&volume, &mut data, ((self.first + first) * SECTOR) as u64)?;
        self.compare(first, &data);
        Ok(())
    }

    fn step(&mut self, cache: &Cache, fuse: &Fuse) {
        let volume = cache.volume(self.name).unwrap();
        let count = 1 + self.random.below(24) as usize;
        let first = self.random.below((PART - count) as u64) as usize;
        let offset = ((self.first + first) * SECTOR) as u64;
        match self.random.below(20) {
            0..10 => {
                self.writes += 1;
                let value = self.writes;
                let data = value.to_le_bytes().repeat(count * SECTOR / 8);
                let is_done = cache.write(&volume, &data, offset).is_ok();
                self.note((first, count), value, is_done);
            }
            10 => {
                let length = (count * SECTOR) as u64;
                let is_done = cache.zero(&volume, offset, length).is_ok();
                self.note((first, count), 0, is_done);
            }
            11..17 => {
                let done = self.read(cache, (first, count));
                assert!(
                    done.is_ok() || fuse.has_burnt(),
                    "without a cause: {done:?}"
                );
            }
            _ => {
                if cache.flush(&volume).is_ok() {
                    self.flush();
                }
            }
        }
    }
}

struct Threads {
    random: Random,
    capacity: u32,
    ssd: MemoryDisk,
    origins: [MemoryDisk; NAMES.len()],
    fuse: Fuse,
    parts: Vec<Part>,
    boot: u8,
}

impl Threads {
    fn new(mut random: Random) -> Self {
        let fuse = Fuse::default();
        let ssd = MemoryDisk::with_fuse(3 << 20, &fuse);
        let origins = NAMES.map(|_| MemoryDisk::with_fuse(PARTS * PART * SECTOR, &fuse));
        for disk in origins.iter().chain([&ssd]) {
            disk.tear(Random::new(random.number()));
        }
        let capacity = random.choose(&CAPACITIES);
        Device::format(Box::new(ssd.clone()), capacity, place(0), [3; 24]).unwrap();
        let parts = (0..NAMES.len() * PARTS).map(|n| Part {
            name: NAMES[n / PARTS],
            first: n % PARTS * PART,
            sectors: vec![Sector::zero(); PART],
            random: Random::new(random.number()),
            // Each has values of its own.
            writes: (n as u64) << 32,
        });
        Self {
            parts: parts.collect(),
            random,
            capacity,
            ssd,
            origins,
            fuse,
            boot: 0,
        }
    }

    fn open(&mut self) -> Cache {
        let options = Options {
            dirty_max: DirtyMax::Blocks(1 + self.random.below(u64::from(self.capacity)) as u32),
            dirty_age: Duration::ZERO,
            ..OPTIONS
        };
        let disk = Box::new(self.ssd.clone());
        let device = Device::open(disk, self.capacity, place(self.boot)).unwrap();
        let attached = |(name, origin): (&&str, &MemoryDisk)| Attachment {
            mode: Mode::WriteBack,
            ..attachment(name, origin, self.capacity / 2)
        };
        let attachments = NAMES.iter().zip(&self.origins).map(attached);
        Cache::open(device, options, attachments.collect()).unwrap()
    }

    fn live(&mut self) {
        let cache = self.open();
        for part in &mut self.parts {
            part.read(&cache, (0, PART)).unwrap();
        }
        // What a start finds is durable once it is flushed.
        for (n, part) in self.parts.iter_mut().enumerate() {
            if n % PARTS == 0 {
                cache.flush(&cache.volume(part.name).unwrap()).unwrap();
            }
            part.flush();
        }
        let operations = self.random.below(2000);
        self.fuse.burn_after(operations);
        let mut random = Random::new(self.random.number());
        std::thread::scope(|scope| {
            for part in &mut self.parts {
                scope.spawn(|| (0..60).for_each(|_| part.step(&cache, &self.fuse)));
            }
            scope.spawn(|| (0..40).for_each(|_| change(&cache, &mut random)));
        });
        self.fuse.replace();
        drop(cache);
        self.end();
    }

    /// The end of the process, or of the power.
    fn end(&mut self) {
        if self.random.once_in(2) {
            return;
        }
        self.boot = self.boot.wrapping_add(1);
        for disk in self.origins.iter().chain([&self.ssd]) {
            disk.cut_at_random(&mut self.random);
        }
        let sectors = self.parts.iter_mut().flat_map(|part| &mut part.sectors);
        sectors.for_each(Sector::cut);
    }
}

fn place(boot: u8) -> Place {
    Place {
        boot: [boot; 16],
        ..PLACE
    }
}

/// What is not a request of a client.
fn change(cache: &Cache, random: &mut Random) {
    let volume = cache.volume(random.choose(&NAMES)).unwrap();
    match random.below(10) {
        0 | 1 => drop(cache.write_back_what_is_due()),
        2 => drop(cache.settle()),
        3 => drop(cache.flush_back(&volume)),
        4..7 => drop(cache.set_limit(&volume, random.below(9) as u32)),
        7 => drop(cache.invalidate(&volume, false)),
        8 => drop(cache.set_mode(&volume, random.choose(&Mode::ALL))),
        _ => drop(cache.set_mode(&volume, Mode::WriteBack)),
    }
}

#[test]
fn no_order_of_threads_loses_what_was_flushed_or_brings_older_blocks_back() {
    campaign("SSDCACHE_THREADS", 20_261_129, 8, |random| {
        let mut threads = Threads::new(random);
        for _ in 0..6 {
            threads.live();
        }
        let cache = threads.open();
        for part in &mut threads.parts {
            part.read(&cache, (0, PART)).unwrap();
        }
    });
}
