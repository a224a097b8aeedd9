//! Tests of requests that a home refers to another host.

use std::ops::Range;

use diffcache_dataplane::serving::referrals::HostName;

use super::*;
use crate::image::chunk::Chunk;
use crate::image::flights::{Purpose, Reach};
use crate::sources::source::{Arrived, Fetched};

/// A way to ask a host, which counts how often it was asked.
struct Way {
    count: AtomicUsize,
    answer: Box<Answer>,
}

type Answer = dyn Fn(&Range<u64>) -> Result<Vec<u8>, SourceError> + Send + Sync;

struct Counted(Arc<Way>);

impl Source for Counted {
    fn name(&self) -> &str {
        "counted"
    }

    fn fetch(
        &self,
        run: &Range<u64>,
        _: usize,
        _: Duration,
        _: Arrived<'_>,
    ) -> Result<Fetched, SourceError> {
        self.0.count.fetch_add(1, Ordering::SeqCst);
        (self.0.answer)(run).map(Fetched::plain)
    }

    fn read_at(&self, _: u64, _: &mut [u8], _: Duration) -> Result<(), SourceError> {
        Err(SourceError::Absent("no chunk".to_owned()))
    }
}

/// The first group's home refers to a host by its name; the next in rank is `other`, and then this host.
struct Referring {
    fixture: Fixture,
    file: LazyFile,
    shared: Arc<Shared>,
    asked: Arc<Way>,
    again: Arc<Way>,
    referred: Arc<Way>,
    wan: Arc<Way>,
}

fn way(
    answer: impl Fn(&Range<u64>) -> Result<Vec<u8>, SourceError> + Send + Sync + 'static,
) -> Arc<Way> {
    Arc::new(Way {
        count: AtomicUsize::new(0),
        answer: Box::new(answer),
    })
}

fn boxed(way: &Arc<Way>) -> Box<dyn Source> {
    Box::new(Counted(way.clone()))
}

impl Referring {
    fn new(to: &str, damage: Result<u8, SourceError>) -> Referring {
        let fixture = Fixture::new();
        let serve = |damage: u8| {
            let content = fixture.content.clone();
            move |run: &Range<u64>| {
                let end = (run.end * CHUNK).min(content.len() as u64) as usize;
                let mut bytes = content[(run.start * CHUNK) as usize..end].to_vec();
                bytes[0] ^= damage;
                Ok(bytes)
            }
        };
        let to = HostName::parse(to).unwrap();
        let asked = way(move |_| Err(SourceError::Referred(to.clone())));
        let again = way(serve(0));
        let referred = match damage {
            Ok(damage) => way(serve(damage)),
            Err(error) => way(move |_| Err(error.clone())),
        };
        let wan = way(serve(0));
        let none = way(|_| Err(SourceError::Absent("not asked".to_owned())));
        let home = |asked_again, referred| Ways {
            asked: boxed(&asked),
            asked_again: boxed(asked_again),
            looked_at: boxed(&none),
            referred: boxed(referred),
        };
        let members = vec![
            // A home that names itself would be asked this way.
            Some(Home::new("home", home(&again, &referred))),
            Some(Home::new("other", home(&none, &referred))),
            None,
        ];
        let shared = Arc::new(Shared::map(Shared::create(4).unwrap()).unwrap());
        let leaves = Leaves::open(fixture.folder.path(), fixture.manifest.clone()).unwrap();
        let sources = Sources::new(vec![boxed(&wan)], shared.clone());
        let sources = sources.with_homes(Homes::new(members));
        Referring {
            file: LazyFile::new(leaves, sources, shared.clone(), Duration::ZERO, None),
            fixture,
            shared,
            asked,
            again,
            referred,
            wan,
        }
    }

    fn assert_read(&self, chunk: u64) {
        let at = (chunk * CHUNK) as usize;
        let found = read(&self.file, at as u64, 9).unwrap();
        assert_eq!(found, self.fixture.content[at..at + 9]);
    }

    /// Requests to the home, to the other host, to the home once more, and over the WAN.
    fn counts(&self) -> [usize; 4] {
        let ways = [&self.asked, &self.referred, &self.again, &self.wan];
        ways.map(|way| way.count.load(Ordering::SeqCst))
    }

    /// Referrals that were followed, and that failed.
    fn referrals(&self) -> [u64; 2] {
        [Counter::ReferralsFollowed, Counter::ReferralsFailed]
            .map(|counter| self.shared.get(counter))
    }

    fn failures(&self, place: usize) -> u64 {
        let index = crate::sizes::MAX_SOURCES + place;
        let count = self.shared.source_counter(index, SourceCounter::Failures);
        count.load(Ordering::SeqCst)
    }
}

#[test]
fn a_referral_is_followed_once() {
    let site = Referring::new("other", Ok(0));
    site.assert_read(0);
    assert_eq!(site.counts(), [1, 1, 0, 0]);
    assert_eq!((site.referrals(), site.failures(0)), ([1, 0], 0));
}

#[test]
fn after_a_referral_in_vain_the_home_serves() {
    let absent = SourceError::Absent("nothing here".to_owned());
    // A host that is itself referring would be a circle.
    let referred = SourceError::Referred(HostName::parse("home").unwrap());
    for error in [absent, referred] {
        let site = Referring::new("other", Err(error));
        site.assert_read(0);
        assert_eq!(site.counts(), [1, 1, 1, 0]);
        assert_eq!((site.referrals(), site.failures(0)), ([0, 1], 0));
        // The other host is left alone for a moment, and the home is not.
        site.assert_read(1);
        assert_eq!(site.counts(), [2, 1, 2, 0]);
    }
}

#[test]
fn wrong_bytes_of_a_host_that_was_named_are_dropped() {
    let site = Referring::new("other", Ok(1));
    site.assert_read(0);
    assert_eq!(site.counts(), [1, 1, 1, 0]);
    assert_eq!(site.shared.get(Counter::Corrupt), 1);
}

#[test]
fn a_name_of_no_other_host_of_the_site_is_not_followed() {
    for name in ["stranger", "home", "10.0.0.9:80"] {
        let site = Referring::new(name, Ok(0));
        site.assert_read(0);
        assert_eq!(site.counts(), [1, 0, 1, 0], "{name}");
        assert_eq!(site.referrals(), [0, 1]);
    }
}

#[test]
fn what_is_arriving_is_waited_for_and_nothing_is_begun() {
    let site = Referring::new("other", Ok(0));
    let limit = Duration::from_secs(60);
    let arriving = |chunk| site.file.provide(&wanted(Want::Arriving, chunk), limit);
    assert_eq!(arriving(1).unwrap(), Provided::Absent);
    assert_eq!(site.counts(), [0, 0, 0, 0]);
    for reach in [Reach::Site, Reach::Direct] {
        let chunk = u64::from(reach == Reach::Direct);
        let mut own = site.file.begin(chunk..chunk + 1, reach, Purpose::Demand);
        let found = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arriving(chunk).unwrap());
            let bytes = &site.fixture.content[(chunk * CHUNK) as usize..][..CHUNK as usize];
            site.file.leaves().keep(chunk, bytes).unwrap();
            own.set(chunk, Ok(Chunk::Local));
            drop(own);
            waiting.join()
        });
        assert_eq!(found.unwrap(), Provided::InFile);
    }
    // One that does not come in time.
    let _own = site.file.begin(2..3, Reach::Site, Purpose::Demand);
    let found = site
        .file
        .provide(&wanted(Want::Arriving, 2), Duration::ZERO);
    assert_eq!(found.unwrap(), Provided::Absent);
    assert_eq!(site.counts(), [0, 0, 0, 0]);
}
