//! Reads that are answered while the rest of their chunk is on its way.

use std::sync::mpsc::{channel, Receiver, Sender};

use super::*;
use crate::image::aside::FETCHERS;
use crate::sources::source::{Arrived, Fetched};

const LEAF: usize = LEAF_SIZE as usize;

/// A source that sends as many bytes as it is told to, and then waits.
struct Halting {
    content: Vec<u8>,
    until: Mutex<Receiver<usize>>,
}

impl Source for Halting {
    fn name(&self) -> &str {
        "halting"
    }

    fn fetch(
        &self,
        run: &std::ops::Range<u64>,
        len: usize,
        _: Duration,
        arrived: Arrived<'_>,
    ) -> Result<Fetched, SourceError> {
        let start = (run.start * CHUNK) as usize;
        let bytes = self.content[start..start + len].to_vec();
        let mut sent = 0;
        while sent < len {
            let Ok(count) = self.until.lock().unwrap().recv() else {
                return Err(SourceError::Short("cut off".to_owned()));
            };
            sent = (sent + count).min(len);
            arrived(&bytes[..sent]);
        }
        Ok(Fetched::plain(bytes))
    }

    fn read_at(&self, _: u64, _: &mut [u8], _: Duration) -> Result<(), SourceError> {
        unreachable!("it is fetched from only")
    }
}

/// A host that does not serve the image.
struct Absent;

impl Source for Absent {
    fn name(&self) -> &str {
        "absent"
    }

    fn read_at(&self, _: u64, _: &mut [u8], _: Duration) -> Result<(), SourceError> {
        Err(SourceError::Absent("not served".to_owned()))
    }
}

struct Halted {
    fixture: Fixture,
    file: Arc<LazyFile>,
    shared: Arc<Shared>,
    go_on: Sender<usize>,
}

impl Halted {
    fn new(change: impl Fn(&mut Vec<u8>)) -> Halted {
        Halted::with(change, Homes::default(), None)
    }

    fn with(
        change: impl Fn(&mut Vec<u8>),
        homes: Homes,
        prefetcher: Option<Arc<Prefetcher>>,
    ) -> Halted {
        let fixture = Fixture::new();
        let shared = Arc::new(Shared::map(Shared::create(4).unwrap()).unwrap());
        let leaves = Leaves::open(fixture.folder.path(), fixture.manifest.clone()).unwrap();
        let (go_on, until) = channel();
        let mut content = fixture.content.to_vec();
        change(&mut content);
        let source = Halting {
            content,
            until: Mutex::new(until),
        };
        let sources = Sources::new(vec![Box::new(source)], shared.clone()).with_homes(homes);
        let file = LazyFile::new(leaves, sources, shared.clone(), Duration::ZERO, prefetcher);
        let halted = Halted {
            fixture,
            file: Arc::new(file),
            shared,
            go_on,
        };
        for _ in 0..FETCHERS {
            let file = halted.file.clone();
            std::thread::spawn(move || file.fetch_aside());
        }
        halted.wait_for_fetchers();
        halted
    }

    /// Chunk 0 is there, and chunk 1 is being prefetched.
    fn prefetching() -> Halted {
        let policy = Policy {
            in_flight: 1,
            read_ahead: 0,
            rest: 0,
            ..Policy::default()
        };
        let profile = Profile::from_rows([(1, 9, 0.0)]).unwrap();
        let prefetcher = Arc::new(Prefetcher::new(4, profile, policy));
        let halted = Halted::with(|_| (), Homes::default(), Some(prefetcher));
        let file = halted.file.clone();
        std::thread::spawn(move || file.prefetch());
        halted.go_on.send(CHUNK as usize).unwrap();
        halted.assert_read(0, CHUNK as usize);
        halted.wait_for_requests(2);
        halted
    }

    /// Wait until a thread would take a fetch over.
    fn wait_for_fetchers(&self) {
        until("a thread waits for a fetch", || self.file.has_fetcher());
    }

    /// Wait until this many requests were made.
    fn wait_for_requests(&self, count: u64) {
        until("the requests are made", || self.requests() == count);
    }

    fn requests(&self) -> u64 {
        let requests = self.shared.source_counter(0, SourceCounter::Requests);
        requests.load(Ordering::SeqCst)
    }

    fn assert_read(&self, offset: usize, len: usize) {
        let found = read(&self.file, offset as u64, len).unwrap();
        assert_eq!(found, self.fixture.content[offset..offset + len]);
    }
}

#[test]
fn a_read_waits_for_its_leaves_and_not_for_the_chunk() {
    let halted = Halted::new(|_| ());
    halted.go_on.send(LEAF + 10).unwrap();
    halted.assert_read(5, 100);
    // Others of the chunk have not come.
    assert!(!halted.file.leaves().check(0));
    let second = std::thread::scope(|scope| {
        let reader = scope.spawn(|| halted.assert_read(LEAF, 2 * LEAF));
        halted.go_on.send(LEAF).unwrap();
        halted.go_on.send(LEAF).unwrap();
        reader.join()
    });
    second.unwrap();
    assert!(!halted.file.leaves().check(0));
    // The chunk had begun to arrive.
    assert_eq!(halted.shared.get(Counter::Misses), 1);
    halted.go_on.send(LEAF).unwrap();
    halted.assert_read(3 * LEAF, LEAF);
    assert_eq!(halted.requests(), 1);
}

/// Regression: with the home left alone this host was the home, and a read beyond what had arrived fetched the chunk once more.
#[test]
fn a_chunk_whose_home_does_not_serve_it_is_fetched_once() {
    let ways = Ways {
        asked: Box::new(Absent),
        asked_again: Box::new(Absent),
        looked_at: Box::new(Absent),
        referred: Box::new(Absent),
    };
    let home = Home::new("home", ways);
    let halted = Halted::with(|_| (), Homes::new(vec![Some(home), None]), None);
    halted.go_on.send(LEAF + 10).unwrap();
    halted.assert_read(5, 100);
    assert!(halted.file.sources().homes().is_here(0, Instant::now()));
    std::thread::scope(|scope| {
        scope.spawn(|| halted.assert_read(LEAF, LEAF));
        // Time for the reader to make a request that it should not.
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(halted.requests(), 1);
        halted.go_on.send(CHUNK as usize).unwrap();
    });
}

/// Regression: a chunk was marked as prefetched once all of it had arrived; one that was read earlier counted as not used.
#[test]
fn a_prefetched_chunk_that_is_read_while_it_arrives_is_used() {
    let halted = Halted::prefetching();
    halted.go_on.send(LEAF + 10).unwrap();
    halted.assert_read(CHUNK as usize, LEAF);
    assert_eq!(halted.shared.count_prefetched(), (1, 1));
    halted.go_on.send(CHUNK as usize).unwrap();
    halted.assert_read(2 * CHUNK as usize - LEAF, LEAF);
    assert_eq!(halted.shared.count_prefetched(), (1, 1));
}

#[test]
fn a_chunk_that_could_not_be_prefetched_does_not_count() {
    let halted = Halted::prefetching();
    let shared = halted.shared.clone();
    halted.go_on.send(LEAF + 10).unwrap();
    until("a part is noted", || shared.count_prefetched() == (1, 0));
    drop(halted.go_on);
    until("it is forgotten", || shared.count_prefetched() == (0, 0));
}

#[test]
fn what_arrived_before_a_source_failed_is_kept() {
    let halted = Halted::new(|_| ());
    halted.go_on.send(2 * LEAF).unwrap();
    halted.assert_read(LEAF - 5, 10);
    let Halted {
        fixture,
        file,
        go_on,
        ..
    } = halted;
    drop(go_on);
    assert!(read(&file, 3 * LEAF as u64, 10).is_err());
    assert_eq!(
        read(&file, 0, 2 * LEAF).unwrap(),
        fixture.content[..2 * LEAF]
    );
}

#[test]
fn no_leaf_is_answered_before_it_is_verified() {
    let halted = Halted::new(|content| content[LEAF] ^= 1);
    halted.go_on.send(CHUNK as usize).unwrap();
    halted.assert_read(0, LEAF);
    halted.go_on.send(CHUNK as usize).unwrap();
    let found = read(&halted.file, LEAF as u64, 1);
    assert!(matches!(found, Err(ChunkError::Wrong(1))), "{found:?}");
}

#[test]
fn without_a_thread_for_it_the_read_fetches_itself() {
    let fixture = Fixture::new();
    let (file, _) = fixture.open(false);
    assert!(!file.has_fetcher());
    assert_eq!(read(&file, 5, 100).unwrap(), fixture.content[5..105]);
    assert!(file.leaves().check(0));
}
