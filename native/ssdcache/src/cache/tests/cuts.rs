//! What ends a cut-off, and at which operation: a removal of blocks, or of a volume, has been done at the
//! next start, or it has not begun.

use diffcache_faulty::{Fuse, Random};
use tempfile::TempDir;

use super::*;
use crate::device::format::{Kept, VolumeRecord};
use crate::device::unsaved::Notes;

const SIZE: usize = 16 * BLOCK;
const CAPACITY: u32 = 16;
/// More than any operation here takes.
const MOST: u64 = 200;
/// Operations between the cuts of starts; all removals together have them cut at each.
const STEP: u64 = 13;
/// Blocks that are dirty, and those that are cached only.
const DIRTY: [u64; 3] = [0, 1, 5];
const CLEAN: [u64; 2] = [8, 9];

/// What is cut off.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Removal {
    Invalidate { discard_dirty: bool },
    Detach { discard_dirty: bool },
}

const REMOVALS: [Removal; 4] = [
    Removal::Invalidate {
        discard_dirty: true,
    },
    Removal::Invalidate {
        discard_dirty: false,
    },
    Removal::Detach {
        discard_dirty: true,
    },
    Removal::Detach {
        discard_dirty: false,
    },
];

impl Removal {
    fn run(self, cache: &Cache, volume: &Volume) -> Result<(), CacheError> {
        match self {
            Self::Invalidate { discard_dirty } => cache.invalidate(volume, discard_dirty),
            Self::Detach { discard_dirty } => cache.detach(volume, discard_dirty),
        }
    }

    fn discards(self) -> bool {
        let (Self::Invalidate { discard_dirty } | Self::Detach { discard_dirty }) = self;
        discard_dirty
    }
}

/// How a process ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Kill,
    /// The power ends, and leaves as many of ten writes.
    Cut(u64),
}

/// A volume with dirty blocks of 2s, where its origin has 1s, with clean ones of 3s, and with a neighbour
/// that has a dirty block of 4s.
struct Scene {
    ssd: MemoryDisk,
    origins: [MemoryDisk; 2],
    fuse: Fuse,
    notes: TempDir,
    boot: u8,
}

/// What a start finds of the volume.
#[derive(Debug, PartialEq)]
struct Found {
    is_attached: bool,
    dirty: Vec<u8>,
    clean: Vec<u8>,
}

impl Scene {
    fn new(mode: Mode) -> (Self, Cache) {
        let fuse = Fuse::default();
        let ssd = MemoryDisk::with_fuse(3 << 20, &fuse);
        let origins = [(); 2].map(|()| MemoryDisk::with_fuse(SIZE, &fuse));
        origins[0].damage(0..SIZE as u64, |bytes| bytes.fill(1));
        let notes = tempfile::tempdir().unwrap();
        let scene = Self {
            ssd,
            origins,
            fuse,
            notes,
            boot: 0,
        };
        let device = Device::format(
            Box::new(scene.ssd.clone()),
            CAPACITY,
            scene.place(),
            [3; 24],
        );
        let cache = Cache::open(device.unwrap(), OPTIONS, Vec::new()).unwrap();
        let cache = cache.noting_unsaved(scene.notes_of(3)).unwrap();
        let volume = cache.attach(scene.attachment(0, mode)).unwrap();
        let neighbour = cache.attach(scene.attachment(1, Mode::WriteBack)).unwrap();
        cache.write(&neighbour, &[4; BLOCK], 0).unwrap();
        cache.flush(&neighbour).unwrap();
        for (blocks, value) in [(&CLEAN[..], 3), (&DIRTY[..], 2)] {
            for block in blocks {
                let offset = block * BLOCK as u64;
                cache.write(&volume, &[value; BLOCK], offset).unwrap();
            }
            match value {
                3 => cache.flush_back(&volume).unwrap(),
                _ => cache.flush(&volume).unwrap(),
            }
        }
        // In another way than through the cache.
        for block in CLEAN {
            let offset = block * BLOCK as u64;
            scene.origins[0].damage(offset..offset + BLOCK as u64, |bytes| bytes.fill(5));
        }
        (scene, cache)
    }

    fn place(&self) -> Place {
        Place {
            boot: [self.boot; 16],
            ..PLACE
        }
    }

    fn attachment(&self, n: usize, mode: Mode) -> Attachment {
        let name = ["v", "w"][n];
        Attachment {
            kept: Some(format!("/dev/{name}")),
            mode,
            ..attachment(name, &self.origins[n], 8)
        }
    }

    /// The notes of a device.
    fn notes_of(&self, device: u8) -> Notes {
        Notes::new(self.notes.path(), &[device; 16])
    }

    fn records(&self) -> Vec<VolumeRecord> {
        let device = Device::open(Box::new(self.ssd.clone()), CAPACITY, self.place()).unwrap();
        device.records().unwrap().into_iter().flatten().collect()
    }

    fn names(&self) -> Vec<String> {
        self.records()
            .into_iter()
            .map(|record| record.name)
            .collect()
    }

    /// A start with what the records say.
    fn start(&self) -> Result<Cache, CacheError> {
        let device = Device::open(Box::new(self.ssd.clone()), CAPACITY, self.place())?;
        let known = device.records()?.into_iter().flatten();
        let attachments = known.map(|record| {
            let mode = Mode::numbered(record.kept.unwrap().mode);
            self.attachment(usize::from(record.name == "w"), mode)
        });
        Cache::open(device, OPTIONS, attachments.collect())?.noting_unsaved(self.notes_of(3))
    }

    fn end(&mut self, end: End, seed: u64) {
        self.fuse.replace();
        let End::Cut(share) = end else {
            return;
        };
        self.boot += 1;
        let mut random = Random::new(seed);
        for disk in self.origins.iter().chain([&self.ssd]) {
            disk.cut(|count| match random.below(10) < share {
                true => count - 1,
                false => 0,
            });
        }
    }

    /// Whether another device would be refused with the origin.
    fn is_refused_elsewhere(&self) -> bool {
        let origin = self.attachment(0, Mode::WriteBack).origin_id;
        self.notes_of(9).elsewhere(origin).unwrap().is_some()
    }

    /// What there is after a start, which is to be the same after another one.
    fn find(&self) -> Found {
        let cache = self.start().unwrap();
        let neighbour = cache.volume("w").unwrap();
        assert_eq!(4, first(&cache, &neighbour, 0));
        let volume = cache.volume("v").ok();
        let read = |block: &u64| match &volume {
            Some(volume) => first(&cache, volume, *block),
            None => self.origins[0].content()[*block as usize * BLOCK],
        };
        let (dirty, clean) = (DIRTY.iter().map(read), CLEAN.iter().map(read));
        let found = Found {
            is_attached: volume.is_some(),
            dirty: dirty.collect(),
            clean: clean.collect(),
        };
        let may_be_dirty = volume.is_some_and(|volume| volume.mode() == Mode::WriteBack);
        assert_eq!(may_be_dirty, self.is_refused_elsewhere(), "{found:?}");
        found
    }
}

/// What a block has, which is one value.
fn first(cache: &Cache, volume: &Volume, block: u64) -> u8 {
    let mut data = [0; BLOCK];
    cache.read(volume, &mut data, block * BLOCK as u64).unwrap();
    assert!(data.iter().all(|byte| *byte == data[0]));
    data[0]
}

/// Cuts a removal off after some operations of the disks. Returns whether it was done before.
fn cut_off(removal: Removal, mode: Mode, (operations, end): (u64, End)) -> bool {
    let told = format!("{removal:?} of {mode:?} after {operations}, {end:?}");
    let (mut scene, cache) = Scene::new(mode);
    let volume = cache.volume("v").unwrap();
    scene.fuse.burn_after(operations);
    let done = removal.run(&cache, &volume);
    let is_cut = scene.fuse.has_burnt();
    assert!(is_cut || done.is_ok(), "{told}: {done:?}");
    drop((volume, cache));
    scene.end(end, operations);
    // The device may be lost now: a note without blocks keeps others from the origin for ever.
    let is_recorded = scene.names().contains(&"v".to_owned());
    assert!(
        is_recorded || !scene.is_refused_elsewhere(),
        "{told}: a note without a record"
    );
    // So are starts, each a little later than the one before.
    for operations in (operations % STEP..MOST).step_by(STEP as usize) {
        scene.fuse.burn_after(operations);
        let started = scene.start();
        let is_cut = scene.fuse.has_burnt();
        assert!(is_cut || started.is_ok(), "{told}");
        drop(started);
        scene.end(end, operations);
        if !is_cut {
            break;
        }
    }
    let found = scene.find();
    let detaches = matches!(removal, Removal::Detach { .. });
    let written = if mode == Mode::WriteBack && removal.discards() {
        1
    } else {
        2
    };
    let after = Found {
        is_attached: !detaches,
        dirty: vec![written; 3],
        clean: vec![5; 2],
    };
    let before = Found {
        is_attached: true,
        dirty: vec![2; 3],
        clean: vec![3; 2],
    };
    assert!(
        found == after || is_cut && found == before,
        "{told}: {found:?}"
    );
    assert_eq!(found, scene.find(), "{told}");
    !is_cut
}

/// Seen failing where the first copy is always written first: a cut between the copies, and another one
/// in the middle of the first, leave none.
#[test]
fn a_record_survives_cuts_that_follow_one_another() {
    for cuts in 0..64_u64 {
        let (mut scene, cache) = Scene::new(Mode::WriteBack);
        drop(cache);
        for at in [cuts % 4, cuts / 4 % 4, cuts / 16] {
            let device = Box::new(scene.ssd.clone());
            let device = Device::open(device, CAPACITY, scene.place()).unwrap();
            let record = device.records().unwrap().swap_remove(0).unwrap();
            let kept = record.kept.clone().map(|kept| Kept {
                limit: kept.limit ^ 1,
                admission: kept.admission ^ 1,
                ..kept
            });
            scene.fuse.burn_after(at);
            let _ = device.write_record(0, Some(&VolumeRecord { kept, ..record }));
            scene.end(End::Cut(5), cuts);
            assert_eq!(["v", "w"].map(String::from)[..], scene.names());
        }
    }
}

#[test]
fn a_removal_that_is_cut_off_has_not_begun_or_is_finished_by_the_next_start() {
    for removal in REMOVALS {
        for (mode, end) in [
            (Mode::WriteThrough, End::Kill),
            (Mode::WriteBack, End::Kill),
            (Mode::WriteBack, End::Cut(0)),
            (Mode::WriteBack, End::Cut(5)),
            (Mode::WriteBack, End::Cut(10)),
        ] {
            let cut = |operations| !cut_off(removal, mode, (operations, end));
            let cuts = (0..MOST).take_while(|operations| cut(*operations)).count();
            assert!((8..MOST as usize).contains(&cuts), "{removal:?}: {cuts}");
        }
    }
}
