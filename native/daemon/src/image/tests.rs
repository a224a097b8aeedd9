//! Tests of the lazy file, without a mount.

use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use diffcache_core::manifest::{leaf_hash, Builder, LeafHash, Manifest, LEAF_SIZE};
use diffcache_core::task::Task;
use diffcache_dataplane::serving::ranges::{RangeRequest, Want};
use diffcache_prefetch::Policy;
use diffcache_prefetch::Profile;

use crate::image::chunk::{ChunkError, Provided};
use crate::image::lazy_file::LazyFile;
use crate::image::leaves::{data_path, Leaves};
use crate::peers::homes::{Home, Homes, Ways};
use crate::prefetch::prefetcher::Prefetcher;
use crate::processes::shared::{free, request_len, Counter, Shared, SourceCounter};
use crate::sizes::CHUNK;
use crate::sources::selection::{Sources, Wanted};
use crate::sources::source::{Source, SourceError};

mod arriving;
mod campaign;
mod files;
mod left;
mod referred;

struct Memory {
    content: Arc<Vec<u8>>,
    requests: Arc<Mutex<Vec<u64>>>,
    wrong: bool,
}

impl Source for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], _: Duration) -> Result<(), SourceError> {
        self.requests.lock().unwrap().push(offset);
        let start = offset as usize;
        buffer.copy_from_slice(&self.content[start..start + buffer.len()]);
        if self.wrong {
            buffer[0] ^= 1;
        }
        Ok(())
    }
}

struct Fixture {
    folder: tempfile::TempDir,
    content: Arc<Vec<u8>>,
    manifest: Manifest,
    requests: Arc<Mutex<Vec<u64>>>,
}

impl Fixture {
    fn new() -> Fixture {
        let noise = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8;
        Fixture::of((0..3 * CHUNK as u32 + 1234).map(noise).collect())
    }

    fn of(content: Vec<u8>) -> Fixture {
        let mut builder = Builder::new(content.len() as u64);
        for (index, leaf) in (0..).zip(content.chunks(LEAF_SIZE as usize)) {
            builder.add(index, &[LeafHash::Data(leaf_hash(index, leaf))]);
        }
        Fixture {
            folder: tempfile::tempdir().unwrap(),
            manifest: builder.finish(&Task::default()).unwrap(),
            content: Arc::new(content),
            requests: Arc::default(),
        }
    }

    fn open(&self, wrong: bool) -> (LazyFile, Arc<Shared>) {
        self.open_with(wrong, None)
    }

    fn open_with(&self, wrong: bool, prefetcher: Option<Prefetcher>) -> (LazyFile, Arc<Shared>) {
        let shared = Arc::new(Shared::map(Shared::create(4).unwrap()).unwrap());
        let leaves = Leaves::open(self.folder.path(), self.manifest.clone()).unwrap();
        let source = Memory {
            content: self.content.clone(),
            requests: self.requests.clone(),
            wrong,
        };
        let wait = Duration::ZERO;
        let sources = Sources::new(vec![Box::new(source)], shared.clone());
        let file = LazyFile::new(
            leaves,
            sources,
            shared.clone(),
            wait,
            prefetcher.map(Arc::new),
        );
        (file, shared)
    }

    fn requests(&self) -> Vec<u64> {
        let mut requests = std::mem::take(&mut *self.requests.lock().unwrap());
        // Those of one read are issued together.
        requests.sort_unstable();
        requests
    }
}

fn read(file: &LazyFile, offset: u64, len: usize) -> Result<Vec<u8>, ChunkError> {
    let kept_out = file.prepare(1, offset, len)?;
    let mut buffer = vec![0; len];
    file.copy(offset, &mut buffer, &kept_out).unwrap();
    Ok(buffer)
}

/// Wait for what another thread brings about, however slow the machine is.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(240);
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_read_fetches_its_chunks_and_nothing_else() {
    let fixture = Fixture::new();
    let (file, shared) = fixture.open(false);
    let start = CHUNK as usize - 10;
    assert_eq!(
        read(&file, start as u64, 20).unwrap(),
        fixture.content[start..start + 20]
    );
    // Adjacent chunks are one request.
    assert_eq!(fixture.requests(), [0]);
    assert_eq!(shared.get(Counter::Misses), 1);
    read(&file, 0, 2 * CHUNK as usize).unwrap();
    assert!(fixture.requests().is_empty());
    assert!(!file.leaves().is_complete());
    read(&file, 0, fixture.content.len()).unwrap();
    assert!(file.leaves().is_complete() && shared.get(Counter::Complete) == 1);
}

#[test]
fn readers_of_one_chunk_share_its_fetch() {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    let barrier = Barrier::new(8);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                barrier.wait();
                assert_eq!(read(&file, 0, 100).unwrap(), fixture.content[..100]);
            });
        }
    });
    assert_eq!(fixture.requests(), [0]);
}

#[test]
fn wrong_bytes_are_not_kept() {
    let fixture = Fixture::new();
    let (file, shared) = fixture.open(true);
    assert!(matches!(read(&file, 0, 1), Err(ChunkError::Wrong(0))));
    assert!(shared.get(Counter::Corrupt) > 0 && shared.get(Counter::BytesFetched) == 0);
    drop(file);
    let (file, _) = fixture.open(false);
    assert_eq!(read(&file, 0, 9).unwrap(), fixture.content[..9]);
}

#[test]
fn a_clean_end_is_trusted_and_an_unclean_one_verified() {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    read(&file, 0, 2 * CHUNK as usize).unwrap();
    file.leaves().close().unwrap();
    drop(file);
    fixture.requests();
    let (file, _) = fixture.open(false);
    assert_eq!(
        read(&file, CHUNK, 9).unwrap(),
        fixture.content[CHUNK as usize..][..9]
    );
    assert!(fixture.requests().is_empty());
    // Not closed: the bytes of the first chunk are damaged on the disk.
    file.leaves().file().write_all_at(b"damage", 7).unwrap();
    drop(file);
    let (file, _) = fixture.open(false);
    assert_eq!(read(&file, 0, 20).unwrap(), fixture.content[..20]);
    assert_eq!(
        read(&file, CHUNK, 9).unwrap(),
        fixture.content[CHUNK as usize..][..9]
    );
    assert_eq!(fixture.requests(), [0]);
}

#[test]
fn marks_of_another_length_are_not_used() {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    read(&file, 0, 1).unwrap();
    file.leaves().close().unwrap();
    drop(file);
    let marks = data_path(fixture.folder.path(), &fixture.manifest).with_extension("leaves");
    std::fs::write(&marks, b"DCLEAVES").unwrap();
    fixture.requests();
    let (file, _) = fixture.open(false);
    assert_eq!(read(&file, 0, 20).unwrap(), fixture.content[..20]);
    assert_eq!(fixture.requests(), [0]);
}

#[test]
fn a_slot_holds_its_request_until_it_is_freed() {
    let memory = Shared::create(0).unwrap();
    let (first, second) = (Shared::map(&memory).unwrap(), Shared::map(&memory).unwrap());
    // SAFETY: the two references are used one after the other.
    let (slot, seen) = unsafe { (first.slot(3), second.slot(3)) };
    assert_eq!(request_len(slot), 0);
    slot[..4].copy_from_slice(&40u32.to_ne_bytes());
    assert_eq!(request_len(seen), 40);
    free(seen);
    assert_eq!(request_len(slot), 0);
}

#[test]
fn the_profile_is_prefetched_after_the_first_read_and_counted_when_it_is_read() {
    let fixture = Fixture::new();
    let profile = Profile::from_rows([(0, 9, 0.0), (3, 5, 1.0), (2, 7, 5.0)]).unwrap();
    let policy = Policy {
        in_flight: 1,
        read_ahead: 2,
        ..Policy::default()
    };
    let prefetcher = Prefetcher::new(4, profile, policy);
    let (file, shared) = fixture.open_with(false, Some(prefetcher));
    let file: &'static LazyFile = Box::leak(Box::new(file));
    std::thread::spawn(|| file.prefetch());
    read(file, 0, 1).unwrap();
    until("the profile is here", || {
        file.leaves().check(2) && file.leaves().check(3)
    });
    let order = fixture.requests.lock().unwrap().clone();
    assert_eq!(order, [0, 2 * CHUNK, 3 * CHUNK]);
    assert_eq!(shared.count_prefetched(), (2, 0));
    read(file, 2 * CHUNK + 5, 1).unwrap();
    read(file, 2 * CHUNK, 1).unwrap();
    assert_eq!(shared.count_prefetched(), (2, 1));
    assert_eq!(shared.get(Counter::Misses), 1);
    read(file, CHUNK, 2 * CHUNK as usize + 7).unwrap();
    assert_eq!(shared.count_prefetched(), (2, 2));
    assert_eq!(shared.get(Counter::Misses), 2);
}

/// A source that fails as long as it is told to, and counts what it was asked.
struct Flaky {
    content: Arc<Vec<u8>>,
    fails: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Source for Flaky {
    fn name(&self) -> &str {
        "flaky"
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], _: Duration) -> Result<(), SourceError> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err(SourceError::Unreachable("told to fail".to_owned()));
        }
        let start = offset as usize;
        buffer.copy_from_slice(&self.content[start..start + buffer.len()]);
        Ok(())
    }
}

#[test]
fn failing_sources_are_passed_over_and_all_asked_when_all_fail() {
    let fixture = Fixture::new();
    let shared = Arc::new(Shared::map(Shared::create(4).unwrap()).unwrap());
    let leaves = Leaves::open(fixture.folder.path(), fixture.manifest.clone()).unwrap();
    let flags = [(); 2].map(|()| (Arc::new(AtomicBool::new(false)), Arc::default()));
    let open = |(fails, requests): &(Arc<AtomicBool>, Arc<AtomicUsize>)| -> Box<dyn Source> {
        Box::new(Flaky {
            content: fixture.content.clone(),
            fails: fails.clone(),
            requests: requests.clone(),
        })
    };
    let sources = Sources::new(flags.iter().map(open).collect(), shared.clone());
    let fetch = |chunk| {
        let end = Instant::now() + Duration::from_secs(240);
        let wanted = Wanted {
            leaves: &leaves,
            run: &(chunk..chunk + 1),
            before_arrival: &|_| {},
            on_arrival: &|| {},
        };
        sources.fetch_directly(wanted, end)
    };
    let requests = || {
        flags
            .each_ref()
            .map(|(_, count)| count.load(Ordering::SeqCst))
    };
    fetch(0).unwrap();
    assert_eq!(requests(), [1, 0]);
    flags[0].0.store(true, Ordering::SeqCst);
    fetch(1).unwrap();
    assert_eq!(requests(), [2, 1]);
    // All fail: each is asked, whether it is to be left alone or not.
    flags[1].0.store(true, Ordering::SeqCst);
    assert!(fetch(2).is_err());
    assert_eq!(requests(), [3, 2]);
    flags
        .iter()
        .for_each(|(fails, _)| fails.store(false, Ordering::SeqCst));
    assert_eq!(
        fetch(3).unwrap().bytes,
        fixture.content[3 * CHUNK as usize..]
    );
    let failures = [0, 1].map(|index| {
        shared
            .source_counter(index, SourceCounter::Failures)
            .load(Ordering::SeqCst)
    });
    assert_eq!(failures, [2, 1]);
}

/// A site of one host beside this one, which is the home of no chunk here; what was asked of each is noted.
struct Site {
    fixture: Fixture,
    home: Arc<AtomicBool>,
    asked: [Arc<AtomicUsize>; 3],
}

/// Places in `Site::asked`.
const HOME: usize = 0;
const NEIGHBOUR: usize = 1;
const WAN: usize = 2;

/// A host that has no byte of the image.
struct Empty(Arc<AtomicUsize>);

impl Source for Empty {
    fn name(&self) -> &str {
        "empty"
    }

    fn read_at(&self, _: u64, _: &mut [u8], _: Duration) -> Result<(), SourceError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Err(SourceError::Absent("nothing here".to_owned()))
    }
}

impl Site {
    fn new() -> Site {
        Site {
            fixture: Fixture::new(),
            home: Arc::default(),
            asked: Default::default(),
        }
    }

    fn flaky(&self, place: usize, fails: &Arc<AtomicBool>) -> Box<dyn Source> {
        Box::new(Flaky {
            content: self.fixture.content.clone(),
            fails: fails.clone(),
            requests: self.asked[place].clone(),
        })
    }

    /// Open the image; the other host is the home of its only group.
    fn open(&self) -> LazyFile {
        self.open_with(self.flaky(HOME, &self.home))
    }

    fn open_with(&self, asked: Box<dyn Source>) -> LazyFile {
        let shared = Arc::new(Shared::map(Shared::create(4).unwrap()).unwrap());
        let leaves = Leaves::open(self.fixture.folder.path(), self.fixture.manifest.clone());
        let empty = || Box::new(Empty(self.asked[NEIGHBOUR].clone()));
        let ways = Ways {
            asked,
            asked_again: empty(),
            looked_at: empty(),
            referred: empty(),
        };
        let home = Home::new("home", ways);
        let sources = vec![self.flaky(WAN, &Arc::default())];
        let sources =
            Sources::new(sources, shared.clone()).with_homes(Homes::new(vec![Some(home), None]));
        LazyFile::new(leaves.unwrap(), sources, shared, Duration::ZERO, None)
    }

    fn asked(&self) -> [usize; 3] {
        self.asked
            .each_ref()
            .map(|count| count.swap(0, Ordering::SeqCst))
    }
}

fn wanted(want: Want, chunk: u64) -> RangeRequest {
    RangeRequest {
        want,
        offset: chunk * CHUNK + 5,
        len: 9,
    }
}

#[test]
fn a_home_is_asked_before_the_wan_and_passed_over_when_it_fails() {
    let site = Site::new();
    let file = site.open();
    assert_eq!(read(&file, 0, 9).unwrap(), site.fixture.content[..9]);
    assert_eq!(site.asked(), [1, 0, 0]);
    site.home.store(true, Ordering::SeqCst);
    let end = 2 * CHUNK as usize;
    assert_eq!(
        read(&file, CHUNK, 9).unwrap(),
        site.fixture.content[CHUNK as usize..][..9]
    );
    assert_eq!(site.asked(), [1, 0, 1]);
    // It is left alone now, and this host is the next in rank.
    assert_eq!(
        read(&file, end as u64, 9).unwrap(),
        site.fixture.content[end..][..9]
    );
    assert_eq!(site.asked(), [0, 0, 1]);
}

#[test]
fn a_home_without_the_image_is_asked_again_when_it_looks_for_a_chunk() {
    let site = Site::new();
    let file = site.open_with(Box::new(Empty(site.asked[HOME].clone())));
    read(&file, 0, 9).unwrap();
    assert_eq!(site.asked(), [1, 0, 1]);
    // It is left alone now, and this host is the next in rank.
    read(&file, CHUNK, 9).unwrap();
    assert_eq!(site.asked(), [0, 0, 1]);
    // It serves the image by now.
    let limit = Duration::from_secs(60);
    file.provide(&wanted(Want::Present, 3), limit).unwrap();
    read(&file, 2 * CHUNK, 9).unwrap();
    assert_eq!(site.asked(), [1, 0, 1]);
}

#[test]
fn what_a_peer_asks_for_is_never_asked_of_a_home() {
    let site = Site::new();
    let file = site.open();
    let limit = Duration::from_secs(60);
    let provide = |want, chunk| file.provide(&wanted(want, chunk), limit).unwrap();
    assert_eq!(provide(Want::Present, 1), Provided::Absent);
    assert_eq!(site.asked(), [0, 0, 0]);
    // Another host may have it, but is not to fetch it.
    assert_eq!(provide(Want::Fetched, 1), Provided::InFile);
    assert_eq!(site.asked(), [0, 1, 1]);
    assert_eq!(provide(Want::Present, 1), Provided::InFile);
    assert_eq!(site.asked(), [0, 0, 0]);
    let mut found = [0; 9];
    file.leaves()
        .file()
        .read_exact_at(&mut found, CHUNK + 5)
        .unwrap();
    assert_eq!(found, site.fixture.content[CHUNK as usize + 5..][..9]);
}

#[test]
fn what_an_unclean_end_left_is_verified_before_a_peer_gets_it() {
    let site = Site::new();
    let file = site.open();
    read(&file, 0, 9).unwrap();
    // A kill, then damage on the disk.
    file.leaves().file().write_all_at(b"damage", 7).unwrap();
    drop(file);
    let file = site.open();
    site.asked();
    let limit = Duration::from_secs(60);
    let present = file.provide(&wanted(Want::Present, 0), limit).unwrap();
    assert_eq!(present, Provided::Absent);
    assert_eq!(
        file.provide(&wanted(Want::Fetched, 0), limit).unwrap(),
        Provided::InFile
    );
    assert_eq!(site.asked(), [0, 1, 1]);
}
