//! A campaign of crashes: random operations in all modes, ended by the end of the process or of the
//! power between any two operations of the disks, also while the cache starts.
//!
//! `SSDCACHE_CRASHES` and `SSDCACHE_SEED` give other numbers than those of the test. A crash that
//! finds something prints its seed.

use std::collections::BTreeSet;

use diffcache_faulty::{Fuse, Random};

use super::*;

const SECTOR: usize = 512;
const BLOCKS: u64 = 48;
const SECTORS: usize = BLOCKS as usize * BLOCK / SECTOR;
const CAPACITY: u32 = 16;

/// What a sector may have; each write has a number of its own.
#[derive(Clone)]
struct Sector {
    /// Now: several after a write that failed.
    now: BTreeSet<u64>,
    /// After a power cut.
    after_cut: BTreeSet<u64>,
}

struct Campaign {
    random: Random,
    ssd: MemoryDisk,
    origin: MemoryDisk,
    fuse: Fuse,
    sectors: Vec<Sector>,
    writes: u64,
    boot: u8,
    /// Whether nothing was written since the last power cut.
    fresh: bool,
}

impl Campaign {
    fn new(seed: u64) -> Self {
        let fuse = Fuse::default();
        let ssd = MemoryDisk::with_fuse(3 << 20, &fuse);
        let place = Place {
            boot: [0; 16],
            ..PLACE
        };
        Device::format(Box::new(ssd.clone()), CAPACITY, place, [3; 24]).unwrap();
        let zero = Sector {
            now: [0].into(),
            after_cut: [0].into(),
        };
        Self {
            random: Random::new(seed),
            ssd,
            origin: MemoryDisk::with_fuse(BLOCKS as usize * BLOCK, &fuse),
            fuse,
            sectors: vec![zero; SECTORS],
            writes: 0,
            boot: 0,
            fresh: true,
        }
    }

    fn mode(&mut self) -> Mode {
        // Half of the time the mode that has most to lose.
        let choices = [Mode::WriteBack; 4].into_iter().chain(Mode::ALL);
        let choices: Vec<Mode> = choices.collect();
        choices[self.random.below(choices.len() as u64) as usize]
    }

    fn open(&mut self) -> Result<Cache, CacheError> {
        let place = Place {
            boot: [self.boot; 16],
            ..PLACE
        };
        let options = Options {
            dirty_max: DirtyMax::Blocks(1 + self.random.below(u64::from(CAPACITY)) as u32),
            dirty_age: Duration::ZERO,
            ..OPTIONS
        };
        let device = Device::open(Box::new(self.ssd.clone()), CAPACITY, place)?;
        let attachments = vec![Attachment {
            mode: self.mode(),
            ..attachment("v", &self.origin, CAPACITY)
        }];
        Cache::open(device, options, attachments)
    }

    /// A start, operations, and an end.
    fn live(&mut self) {
        if self.random.below(3) == 0 {
            let operations = self.random.below(30);
            self.fuse.burn_after(operations);
            let started = self.open();
            self.fuse.replace();
            if let Ok(cache) = started {
                drop(cache);
            }
            self.end();
        }
        let cache = self.open().unwrap();
        self.check(&cache);
        let operations = self.random.below(400);
        self.fuse.burn_after(operations);
        for _ in 0..40 {
            self.step(&cache);
        }
        self.fuse.replace();
        drop(cache);
        self.end();
    }

    /// The end of the process, or of the power.
    fn end(&mut self) {
        if self.random.below(2) == 0 {
            return;
        }
        self.boot = self.boot.wrapping_add(1);
        self.ssd.cut_at_random(&mut self.random);
        self.origin.cut_at_random(&mut self.random);
        for sector in &mut self.sectors {
            sector.now = sector.after_cut.clone();
        }
        self.fresh = true;
    }

    /// Reads all.
    fn check(&mut self, cache: &Cache) {
        self.read(cache, 0, SECTORS);
        if self.fresh {
            // What a power cut left is durable.
            self.note_flush();
            self.fresh = false;
        }
    }

    fn read(&mut self, cache: &Cache, first: usize, count: usize) {
        let volume = cache.volume("v").unwrap();
        let mut data = vec![0; count * SECTOR];
        if cache
            .read(&volume, &mut data, (first * SECTOR) as u64)
            .is_err()
        {
            assert!(self.fuse.has_burnt(), "an error without a cause");
            return;
        }
        let sectors = self.sectors[first..first + count].iter_mut();
        for (n, (sector, bytes)) in sectors.zip(data.chunks(SECTOR)).enumerate() {
            let found = value_of(bytes);
            let text = format!("sector {}: {found} of {:?}", first + n, sector.now);
            assert!(sector.now.contains(&found), "{text}");
            sector.now = [found].into();
        }
    }

    /// Notes a write or its failure.
    fn note(&mut self, first: usize, count: usize, value: u64, done: bool) {
        for sector in &mut self.sectors[first..first + count] {
            if done {
                sector.now.clear();
            }
            sector.now.insert(value);
            sector.after_cut.insert(value);
        }
    }

    fn step(&mut self, cache: &Cache) {
        let volume = cache.volume("v").unwrap();
        let first = self.random.below(SECTORS as u64 - 24) as usize;
        let count = 1 + self.random.below(24) as usize;
        let (offset, bytes) = ((first * SECTOR) as u64, count * SECTOR);
        match self.random.below(20) {
            0..8 => {
                self.writes += 1;
                let data = self.writes.to_le_bytes().repeat(bytes / 8);
                let done = cache.write(&volume, &data, offset).is_ok();
                self.note(first, count, self.writes, done);
            }
            8 => {
                let done = cache.zero(&volume, offset, bytes as u64).is_ok();
                self.note(first, count, 0, done);
            }
            9..13 => self.read(cache, first, count),
            13 | 14 => {
                if cache.flush(&volume).is_ok() {
                    self.note_flush();
                }
            }
            15 => drop(cache.settle()),
            16 => drop(cache.write_back_what_is_due()),
            17 => drop(cache.set_mode(&volume, self.mode())),
            18 => {
                let limit = self.random.below(u64::from(CAPACITY) + 1);
                drop(cache.set_limit(&volume, limit as u32));
            }
            _ => {
                if cache.flush_back(&volume).is_ok() {
                    self.note_flush();
                }
            }
        }
    }

    fn note_flush(&mut self) {
        for sector in &mut self.sectors {
            sector.after_cut = sector.now.clone();
        }
    }
}

/// The number of the write of a sector, which is whole.
fn value_of(bytes: &[u8]) -> u64 {
    let (first, _) = bytes.split_at(8);
    assert!(bytes.chunks(8).all(|part| part == first), "a torn sector");
    u64::from_le_bytes(first.try_into().unwrap())
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn nothing_flushed_is_lost_and_nothing_is_older_than_it_was() {
    let seed = number("SSDCACHE_SEED", 20_251_123);
    let crashes = number("SSDCACHE_CRASHES", 50);
    let mut left = crashes;
    for n in 0.. {
        if left == 0 {
            break;
        }
        let lives = left.min(10);
        left -= lives;
        let seed = seed.wrapping_add(n * 1_000_003);
        println!("seed {seed}");
        let mut campaign = Campaign::new(seed);
        for _ in 0..lives {
            campaign.live();
        }
        let cache = campaign.open().unwrap();
        campaign.check(&cache);
    }
}

#[test]
fn no_subset_of_writes_that_a_power_cut_leaves_brings_a_replaced_version_back() {
    for operations in 0..12 {
        for mask in 0..4_u32 {
            let mut campaign = Campaign::new(1);
            let place = Place {
                boot: [0; 16],
                ..PLACE
            };
            let device = Device::open(Box::new(campaign.ssd.clone()), CAPACITY, place);
            let attachments = vec![Attachment {
                mode: Mode::WriteBack,
                ..attachment("v", &campaign.origin, CAPACITY)
            }];
            let cache = Cache::open(device.unwrap(), OPTIONS, attachments).unwrap();
            let volume = cache.volume("v").unwrap();
            for value in 1..=3_u64 {
                let data = value.to_le_bytes().repeat(BLOCK / 8);
                cache.write(&volume, &data, 0).unwrap();
                cache.flush(&volume).unwrap();
            }
            campaign.fuse.burn_after(operations);
            drop(cache.flush_back(&volume));
            campaign.fuse.replace();
            drop(cache);
            let mut bits = (0..).map(|bit| bit < 32 && mask >> bit & 1 == 1);
            campaign
                .ssd
                .cut(|count| if bits.next().unwrap() { count - 1 } else { 0 });
            campaign.boot = 1;
            for sector in &mut campaign.sectors[..BLOCK / SECTOR] {
                sector.now = [3].into();
            }
            let cache = campaign.open().unwrap();
            campaign.check(&cache);
        }
    }
}
