//! A campaign of crashes: random operations on several volumes in all modes, which are attached,
//! resized and detached meanwhile, ended by the end of the process or of the power between any two
//! operations of the disks or in the middle of one, also while the cache starts. What a start attaches
//! is what the records of the device say.
//!
//! `SSDCACHE_RUNS` and `SSDCACHE_SEED` give other numbers than those of the test.

use std::collections::BTreeSet;

use diffcache_faulty::{campaign, Fuse, Random};

use super::*;

pub(super) const SECTOR: usize = 512;
const IN_BLOCK: usize = BLOCK / SECTOR;
const BLOCKS: usize = 24;
/// With few slots blocks are evicted; with more, entries are in several sectors, which a power cut
/// keeps or loses one by one.
const CAPACITIES: [u32; 2] = [16, 48];
const NAMES: [&str; 3] = ["a", "b", "c"];

/// What a sector may have; each write has a number of its own.
#[derive(Clone)]
pub(super) struct Sector {
    /// Now: several after a write that failed.
    now: BTreeSet<u64>,
    /// After a power cut.
    after_cut: BTreeSet<u64>,
}

impl Sector {
    pub(super) fn zero() -> Self {
        Self {
            now: [0].into(),
            after_cut: [0].into(),
        }
    }

    /// Notes a write or its failure.
    pub(super) fn note(&mut self, value: u64, is_done: bool) {
        if is_done {
            self.now.clear();
        }
        self.now.insert(value);
        self.after_cut.insert(value);
    }

    pub(super) fn flush(&mut self) {
        self.after_cut = self.now.clone();
    }

    pub(super) fn cut(&mut self) {
        self.now = self.after_cut.clone();
    }

    pub(super) fn compare(&mut self, found: u64) {
        assert!(self.now.contains(&found), "{found} of {:?}", self.now);
        self.now = [found].into();
    }
}

/// A volume, attached or not.
struct Origin {
    disk: MemoryDisk,
    sectors: Vec<Sector>,
}

impl Origin {
    fn new(fuse: &Fuse) -> Self {
        Self {
            disk: MemoryDisk::with_fuse(BLOCKS * BLOCK, fuse),
            sectors: vec![Sector::zero(); BLOCKS * IN_BLOCK],
        }
    }

    /// Notes a write or its failure.
    fn note(&mut self, (first, count): (usize, usize), value: u64, done: bool) {
        for sector in &mut self.sectors[first..first + count] {
            sector.note(value, done);
        }
    }

    fn note_flush(&mut self) {
        self.sectors.iter_mut().for_each(Sector::flush);
    }

    fn compare(&mut self, first: usize, data: &[u8]) {
        for (sector, bytes) in self.sectors[first..].iter_mut().zip(data.chunks(SECTOR)) {
            sector.compare(value_of(bytes));
        }
    }
}

struct Campaign {
    random: Random,
    capacity: u32,
    ssd: MemoryDisk,
    origins: [Origin; NAMES.len()],
    fuse: Fuse,
    writes: u64,
    boot: u8,
    /// Whether nothing was written since the last power cut.
    fresh: bool,
}

impl Campaign {
    fn new(mut random: Random) -> Self {
        let fuse = Fuse::default();
        let ssd = MemoryDisk::with_fuse(3 << 20, &fuse);
        let origins = NAMES.map(|_| Origin::new(&fuse));
        for disk in origins.iter().map(|origin| &origin.disk).chain([&ssd]) {
            disk.tear(Random::new(random.number()));
        }
        let place = Place {
            boot: [0; 16],
            ..PLACE
        };
        let capacity = random.choose(&CAPACITIES);
        Device::format(Box::new(ssd.clone()), capacity, place, [3; 24]).unwrap();
        Self {
            random,
            capacity,
            ssd,
            origins,
            fuse,
            writes: 0,
            boot: 0,
            fresh: true,
        }
    }

    fn mode(&mut self) -> Mode {
        // Half of the time the mode that has most to lose.
        let choices = [Mode::WriteBack; 4].into_iter().chain(Mode::ALL);
        self.random.choose(&choices.collect::<Vec<_>>())
    }

    /// A start, as the records say.
    fn open(&mut self) -> Result<Cache, CacheError> {
        let place = Place {
            boot: [self.boot; 16],
            ..PLACE
        };
        let options = Options {
            dirty_max: DirtyMax::Blocks(1 + self.random.below(u64::from(self.capacity)) as u32),
            dirty_age: Duration::ZERO,
            ..OPTIONS
        };
        let device = Device::open(Box::new(self.ssd.clone()), self.capacity, place)?;
        let known = device.records()?.into_iter().flatten();
        let attachments = known.map(|record| {
            let kept = record.kept.unwrap();
            Attachment {
                mode: Mode::numbered(kept.mode),
                limit: kept.limit,
                sequential: kept.sequential,
                admission: kept.admission,
                rates: kept.rates,
                ..self.attachment(of(&record.name))
            }
        });
        Cache::open(device, options, attachments.collect())
    }

    fn attachment(&self, n: usize) -> Attachment {
        Attachment {
            kept: Some(format!("/dev/{}", NAMES[n])),
            ..attachment(NAMES[n], &self.origins[n].disk, 0)
        }
    }

    /// A start, operations, and an end.
    fn live(&mut self) {
        if self.random.once_in(3) {
            let operations = self.random.below(60);
            self.fuse.burn_after(operations);
            let started = self.open();
            self.fuse.replace();
            drop(started);
            self.end();
        }
        let cache = self.open().unwrap();
        self.check(&cache);
        let operations = self.random.below(600);
        self.fuse.burn_after(operations);
        for _ in 0..60 {
            let n = self.random.below(NAMES.len() as u64) as usize;
            match cache.volume(NAMES[n]) {
                Ok(volume) => self.step(&cache, n, &volume),
                Err(_) => self.attach(&cache, n),
            }
        }
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
        self.ssd.cut_at_random(&mut self.random);
        for origin in &mut self.origins {
            origin.disk.cut_at_random(&mut self.random);
            origin.sectors.iter_mut().for_each(Sector::cut);
        }
        self.fresh = true;
    }

    /// Reads all, of volumes that are not attached from their origins.
    fn check(&mut self, cache: &Cache) {
        for (name, origin) in NAMES.iter().zip(&mut self.origins) {
            let mut data = origin.disk.content();
            if let Ok(volume) = cache.volume(name) {
                assert_eq!(None, volume.trouble());
                let size = volume.size() as usize;
                cache.read(&volume, &mut data[..size], 0).unwrap();
            }
            origin.compare(0, &data);
            if self.fresh {
                // What a power cut left is durable.
                origin.note_flush();
            }
        }
        self.fresh = false;
    }

    fn attach(&mut self, cache: &Cache, n: usize) {
        let attached = cache.attach(Attachment {
            mode: self.mode(),
            limit: self.random.below(9) as u32,
            ..self.attachment(n)
        });
        if let Ok(volume) = attached {
            self.read(cache, n, &volume, (0, IN_BLOCK));
        }
    }

    fn read(&mut self, cache: &Cache, n: usize, volume: &Volume, (first, count): (usize, usize)) {
        let mut data = vec![0; count * SECTOR];
        match cache.read(volume, &mut data, (first * SECTOR) as u64) {
            Ok(()) => self.origins[n].compare(first, &data),
            Err(error) => assert!(self.fuse.has_burnt(), "without a cause: {error}"),
        }
    }

    fn step(&mut self, cache: &Cache, n: usize, volume: &Arc<Volume>) {
        let sectors = volume.size() / SECTOR as u64;
        let first = self.random.below(sectors - 24) as usize;
        let count = 1 + self.random.below(24) as usize;
        let (offset, bytes) = ((first * SECTOR) as u64, count * SECTOR);
        let what = self.random.below(24);
        let flushed = match what {
            0..8 => {
                self.writes += 1;
                let data = self.writes.to_le_bytes().repeat(bytes / 8);
                let done = cache.write(volume, &data, offset).is_ok();
                self.origins[n].note((first, count), self.writes, done);
                false
            }
            8 | 9 => {
                let done = cache.zero(volume, offset, bytes as u64).is_ok();
                self.origins[n].note((first, count), 0, done);
                false
            }
            10..13 => {
                self.read(cache, n, volume, (first, count));
                false
            }
            13 | 14 => cache.flush(volume).is_ok(),
            15 => cache.flush_back(volume).is_ok(),
            _ => {
                self.change(cache, n, volume, what);
                false
            }
        };
        if flushed {
            self.origins[n].note_flush();
        }
    }

    /// What is not a request of a client.
    fn change(&mut self, cache: &Cache, n: usize, volume: &Arc<Volume>, what: u64) {
        match what {
            16 => drop(cache.settle()),
            17 | 18 => drop(cache.write_back_what_is_due()),
            19 => drop(cache.set_mode(volume, self.mode())),
            20 => drop(cache.set_limit(volume, self.random.below(12) as u32)),
            21 => {
                // Without its disks, a volume that has lost nothing is detached.
                if cache.detach(volume, false).is_ok() && !self.fuse.has_burnt() {
                    self.origins[n].note_flush();
                }
            }
            22 => {
                let Origin { disk, sectors } = &mut self.origins[n];
                if sectors.len() < 4 * BLOCKS * IN_BLOCK {
                    sectors.extend(vec![Sector::zero(); IN_BLOCK + 1]);
                    disk.resize(sectors.len() * SECTOR, 0);
                }
                drop(cache.resize(volume));
            }
            _ => drop(cache.invalidate(volume, false)),
        }
    }
}

fn of(name: &str) -> usize {
    NAMES.iter().position(|other| *other == name).unwrap()
}

/// The number of the write of a sector, which is whole.
pub(super) fn value_of(bytes: &[u8]) -> u64 {
    let (first, _) = bytes.split_at(8);
    assert!(bytes.chunks(8).all(|part| part == first), "a torn sector");
    u64::from_le_bytes(first.try_into().unwrap())
}

#[test]
fn nothing_flushed_is_lost_and_nothing_is_older_than_it_was() {
    campaign("SSDCACHE", 20_251_123, 8, |random| {
        let mut campaign = Campaign::new(random);
        for _ in 0..8 {
            campaign.live();
        }
        let cache = campaign.open().unwrap();
        campaign.check(&cache);
    });
}

#[test]
fn no_subset_of_writes_that_a_power_cut_leaves_brings_a_replaced_version_back() {
    for operations in 0..12 {
        for mask in 0..4_u32 {
            let mut campaign = Campaign::new(Random::new(1));
            let cache = campaign.open().unwrap();
            let attachment = Attachment {
                mode: Mode::WriteBack,
                limit: 8,
                ..campaign.attachment(0)
            };
            let volume = cache.attach(attachment).unwrap();
            for value in 1..=3_u64 {
                let data = value.to_le_bytes().repeat(BLOCK / 8);
                cache.write(&volume, &data, 0).unwrap();
                cache.flush(&volume).unwrap();
            }
            campaign.fuse.burn_after(operations);
            drop(cache.flush_back(&volume));
            campaign.fuse.replace();
            drop((volume, cache));
            let mut bits = (0..).map(|bit| bit < 32 && mask >> bit & 1 == 1);
            campaign
                .ssd
                .cut(|count| if bits.next().unwrap() { count - 1 } else { 0 });
            campaign.boot = 1;
            for sector in &mut campaign.origins[0].sectors[..IN_BLOCK] {
                sector.now = [3].into();
            }
            let cache = campaign.open().unwrap();
            campaign.check(&cache);
        }
    }
}
