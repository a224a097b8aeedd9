//! A device whose superblock, records, entries and intents say anything, with checksums that are right.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use diffcache_base::words::Words;
use diffcache_faulty as faulty;
use diffcache_partitions::eviction::Policy;
use diffcache_ssdcache::cache::{
    origin_id, Attachment, Cache, CacheError, DirtyMax, Mode, Options, Volume,
};
use diffcache_ssdcache::device::disk::Disk;
use diffcache_ssdcache::device::format::{DirtyVersion, Entry, Superblock, BLOCK, INTENTS, VOLUME};
use diffcache_ssdcache::device::{Device, Place};
use diffcache_ssdcache::rates::Rates;
use xxhash_rust::xxh3::xxh3_64;

const CAPACITY: u32 = 16;
const NAMES: [&str; 3] = ["a", "b", "c"];
const ORIGIN: usize = 64 * BLOCK;
/// Bytes of the superblock that its checksum is of.
const HEAD: usize = 512;
/// Bytes of one change.
const CHANGE: usize = 8;
const PLACE: Place = Place {
    host: [1; 16],
    boot: [2; 16],
};
const OPTIONS: Options = Options {
    samples: 16,
    eviction: Policy::Lru,
    admission: 1,
    dirty_max: DirtyMax::Percent(50),
    dirty_age: Duration::from_secs(3600),
    discard_dirty: false,
};

#[derive(Clone)]
struct Memory(faulty::Disk);

impl Disk for Memory {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(bytes, offset)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_durably(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.0.write_at(&vec![0; length as usize], offset)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.size())
    }
}

/// What a device has after three volumes were used, of which two have dirty blocks.
fn used() -> &'static [u8] {
    static USED: OnceLock<Vec<u8>> = OnceLock::new();
    USED.get_or_init(|| {
        let ssd = faulty::Disk::new(Device::bytes(CAPACITY) as usize);
        let device = Device::format(Box::new(Memory(ssd.clone())), CAPACITY, PLACE, [3; 24]);
        let attachments = NAMES
            .map(|name| attachment(name, Mode::WriteBack, 5))
            .into();
        let cache = Cache::open(device.unwrap(), OPTIONS, attachments).unwrap();
        for (n, volume) in cache.volumes().iter().enumerate() {
            cache.write(volume, &[7; 3 * BLOCK], 4096).unwrap();
            match n {
                0 => cache.flush(volume).unwrap(),
                1 => cache.flush_back(volume).unwrap(),
                _ => {}
            }
        }
        drop(cache);
        ssd.content()
    })
}

fn attachment(name: &str, mode: Mode, limit: u32) -> Attachment {
    Attachment {
        name: name.to_owned(),
        origin: Box::new(Memory(faulty::Disk::new(ORIGIN))),
        origin_id: origin_id(name, 0, 0, 0),
        mode,
        limit,
        sequential: 0,
        admission: 0,
        rates: Rates::default(),
        random: [name.as_bytes()[0]; 24],
        kept: Some(format!("/dev/{name}")),
        held: None,
    }
}

fn seal(bytes: &mut [u8]) {
    let (body, check) = bytes.split_at_mut(bytes.len() - 8);
    check.copy_from_slice(&xxh3_64(body).to_le_bytes());
}

/// Changes what a device has, as some bytes say.
fn change(device: &mut [u8], change: &[u8; CHANGE]) {
    let [kind, which, low, high, value, number, copies, more] = *change;
    let at = usize::from(u16::from_le_bytes([low, high]));
    let record = u16::from(which) % 4;
    match kind % 5 {
        0 => {
            let copies = Superblock::copies_at()
                .into_iter()
                .take(usize::from(copies % 2) + 1);
            for start in copies.map(|start| start as usize) {
                device[start + at % (HEAD - 8)] = value;
                seal(&mut device[start..start + HEAD]);
            }
        }
        1 => {
            let copies = Superblock::volume_at(record)
                .into_iter()
                .skip(usize::from(copies % 2));
            for start in copies.map(|start| start as usize) {
                device[start + at % (VOLUME - 8)] = value;
                seal(&mut device[start..start + VOLUME]);
            }
        }
        2 => {
            let [start, _] = Superblock::volume_at(record);
            let generation = Words(&device[start as usize..]).le64(0);
            let dirty = (more & 1 != 0).then_some(DirtyVersion {
                number: number % 32,
                is_durable: more & 2 != 0,
            });
            let block = u64::from(value) << (at % 33);
            let entry = Entry {
                record,
                block,
                checksum: 0,
                dirty,
            };
            let bytes = entry.encode(generation);
            let first = Superblock::entry_at(u32::from(which) % CAPACITY) as usize;
            // The copies of so few entries take a block each.
            let of = [first, first + BLOCK];
            for start in of.into_iter().skip(usize::from(copies % 2)) {
                device[start..start + bytes.len()].copy_from_slice(&bytes);
            }
        }
        3 => {
            let start = Superblock::intents_at() as usize + at * 8 % INTENTS;
            device[start..start + 8].copy_from_slice(&u64::from_be_bytes(*change).to_le_bytes());
        }
        _ => {
            let start = Superblock::entry_at(0) as usize + at % (2 * BLOCK);
            device[start] = value;
        }
    }
}

/// Attaches what a device's records name, as a start does.
fn start(ssd: &faulty::Disk, boot: u8) -> Result<Cache, CacheError> {
    let place = Place {
        boot: [boot; 16],
        ..PLACE
    };
    let device = Device::open(Box::new(Memory(ssd.clone())), CAPACITY, place)?;
    let records = device.records()?;
    let known = records.into_iter().flatten();
    let attachments = known.filter_map(|record| {
        let kept = record.kept?;
        let name = NAMES.into_iter().find(|name| *name == record.name)?;
        Some(Attachment {
            sequential: kept.sequential,
            admission: kept.admission,
            rates: kept.rates,
            ..attachment(name, Mode::numbered(kept.mode), kept.limit)
        })
    });
    Cache::open(device, OPTIONS, attachments.collect())
}

fn use_volume(cache: &Cache, volume: &std::sync::Arc<Volume>) {
    let mut all = vec![0; volume.size().min(ORIGIN as u64) as usize];
    // Whatever fails, fails with an error.
    let _ = cache.read(volume, &mut all, 0);
    let _ = cache.write(volume, &[9; BLOCK], 512);
    let _ = cache.flush(volume);
    let _ = cache.zero(volume, 4096, 8192);
    let _ = cache.flush_back(volume);
}

/// Opens the device twice, and uses its volumes.
pub fn open(input: &[u8]) {
    let mut bytes = used().to_vec();
    let changes = input.chunks_exact(CHANGE);
    let boot = 2 + changes.remainder().first().map_or(0, |byte| byte % 2);
    let parts = changes.take(64).filter_map(|part| part.try_into().ok());
    parts.for_each(|part| change(&mut bytes, part));
    let ssd = faulty::Disk::new(bytes.len());
    ssd.damage(0..bytes.len() as u64, |all| all.copy_from_slice(&bytes));
    for _ in 0..2 {
        let Ok(cache) = start(&ssd, boot) else {
            return;
        };
        let _ = serde_json::to_string(&cache.status()).unwrap();
        cache
            .volumes()
            .iter()
            .for_each(|volume| use_volume(&cache, volume));
        for volume in cache.volumes() {
            let _ = cache.close(&volume);
        }
    }
}
