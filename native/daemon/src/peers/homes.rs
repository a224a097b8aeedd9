//! The homes of chunks: which host of a site fetches a chunk over the WAN for all of them.
//!
//! The hosts of a site, in the rendezvous order of the image, are the homes of its groups of four chunks by turns (striping, as in section 3.1 of the
//! paper on self-adaptive prefetching). Every host computes the same order. A home that does not answer, or does not serve the image, is passed over
//! for the next in rank, so that the hosts that do share what is fetched. It is asked again as soon as it asks here: a host that begins to serve the
//! image looks at all others once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use diffcache_dataplane::fetching::claimant::rendezvous_order;
use diffcache_dataplane::ids::{Kind, ObjectKey};

use crate::config::{self, HomeHost};
use crate::image::chunk::ChunkError;
use crate::sizes::{GROUP_CHUNKS, MAX_HOMES};
use crate::sources::backoff::Known;
use crate::sources::source::Source;

/// How often homes that did not answer are looked at.
pub const PROBE_PAUSE: Duration = Duration::from_secs(1);

/// How many hosts are asked at most for what they may have, before a chunk is fetched over the WAN.
const MOST_LOOKS: usize = 4;

/// Return the hosts that are homes of an image's chunks, by rank.
pub fn rank(homes: &config::Homes, content_id: [u8; 32]) -> Vec<&HomeHost> {
    let key = ObjectKey {
        kind: Kind::Images,
        id: content_id,
    };
    let names = homes.hosts.iter().map(|host| host.name.as_str());
    let ranked = rendezvous_order(key, names);
    let host = |name: &str| homes.hosts.iter().find(|host| host.name == name);
    ranked
        .into_iter()
        .filter_map(host)
        .take(MAX_HOMES)
        .collect()
}

/// The ways in which a host of the site is asked for chunks.
pub struct Ways {
    /// For those that it fetches if it lacks them; it may refer to another host.
    pub asked: Box<dyn Source>,
    /// For the same; it may not.
    pub asked_again: Box<dyn Source>,
    /// For those that it has.
    pub looked_at: Box<dyn Source>,
    /// For those that it has or is getting, as another host says.
    pub referred: Box<dyn Source>,
}

/// A home that is another host.
pub struct Home {
    name: String,
    /// Asks it for chunks, which it fetches if it lacks them.
    pub asked: Known,
    /// Asks it for chunks, which it sends itself.
    pub asked_again: Box<dyn Source>,
    /// Asks it for what it has.
    pub looked_at: Known,
    /// Asks it for what another home has referred here.
    pub referred: Known,
    has_served: AtomicBool,
}

impl Home {
    /// Take a host that was not asked yet.
    pub fn new(name: &str, ways: Ways) -> Home {
        Home {
            name: name.to_owned(),
            asked: Known::home(ways.asked),
            asked_again: ways.asked_again,
            looked_at: Known::new(ways.looked_at),
            referred: Known::referred(ways.referred),
            has_served: AtomicBool::new(false),
        }
    }

    /// Note that it serves the image: it sent a chunk.
    pub fn note_served(&self) {
        self.has_served.store(true, Ordering::Relaxed);
    }

    /// Note what became of a look at what it has.
    pub fn note_looked_at(&self, outcome: Result<(), &ChunkError>) {
        match outcome {
            Ok(()) => {
                self.looked_at.succeeded();
                self.note_served();
            }
            // It does not have that part, or does not serve the image.
            Err(error) if error.is_absent() => {}
            // It is busy. As a home it is waited for.
            Err(error) if error.is_silence() => self.looked_at.failed(error),
            Err(error) => self.asked.failed(error),
        }
    }

    /// Return whether it has sent a chunk.
    pub fn has_served(&self) -> bool {
        self.has_served.load(Ordering::Relaxed)
    }
}

/// The homes of one image, by rank.
#[derive(Default)]
pub struct Homes {
    /// None is this host.
    members: Vec<Option<Home>>,
}

impl Homes {
    /// Take the homes by rank; none is this host.
    pub fn new(members: Vec<Option<Home>>) -> Homes {
        Homes { members }
    }

    /// Return the homes of a chunk, the first in rank first, with their places.
    pub fn of(&self, chunk: u64) -> impl Iterator<Item = (usize, Option<&Home>)> {
        let count = self.members.len();
        let first = match count {
            0 => 0,
            count => (chunk / GROUP_CHUNKS % count as u64) as usize,
        };
        (0..count).map(move |step| {
            let place = (first + step) % count;
            (place, self.members[place].as_ref())
        })
    }

    /// Return whether this host is to fetch a chunk itself: it is the first home that is not left alone.
    pub fn is_here(&self, chunk: u64, now: Instant) -> bool {
        let mut awake = self
            .of(chunk)
            .filter(|(_, home)| home.is_none_or(|home| home.asked.is_awake(now)));
        awake.next().is_none_or(|(_, home)| home.is_none())
    }

    /// Return the hosts that may have fetched a chunk while this one was not its home, the likeliest first.
    ///
    /// That is the next in rank of those that serve the image. Which do is known of those that have served a chunk; others may.
    pub fn neighbours(&self, chunk: u64, now: Instant) -> Vec<(usize, &Home)> {
        let others = self
            .of(chunk)
            .filter_map(|(place, home)| Some((place, home?)));
        let mut awake: Vec<_> = others
            .filter(|(_, home)| home.asked.is_awake(now) && home.looked_at.is_awake(now))
            .collect();
        awake.sort_by_key(|(_, home)| !home.has_served());
        awake.truncate(MOST_LOOKS);
        awake
    }

    /// Ask the home of a chunk again, if it was left alone because it did not have the image: it looks for the chunk, so it serves the image now.
    pub fn wake_home_of(&self, chunk: u64) {
        if let Some((_, Some(home))) = self.of(chunk).next() {
            home.asked.wake();
        }
    }

    /// Return another host by its name, with its place.
    pub fn named(&self, name: &str) -> Option<(usize, &Home)> {
        self.others().find(|(_, home)| home.name == name)
    }

    /// Return all other hosts, with their places.
    pub fn others(&self) -> impl Iterator<Item = (usize, &Home)> {
        let placed = self.members.iter().enumerate();
        placed.filter_map(|(place, home)| Some((place, home.as_ref()?)))
    }

    /// Return the first of an image's chunks that this host is home of; none if the image is too small for that.
    pub fn own_chunk(&self, chunks: u64) -> Option<u64> {
        let place = self.members.iter().position(Option::is_none)?;
        let chunk = place as u64 * GROUP_CHUNKS;
        (chunk < chunks).then_some(chunk)
    }

    /// Return the groups of an image in the order in which this host hydrates them: those it is home of first, then those of the next host.
    ///
    /// The hosts of a site thus fetch different groups over the WAN, and then read them from one another.
    pub fn hydration_order(&self, groups: u64) -> Vec<u64> {
        let mut order: Vec<_> = (0..groups).collect();
        let count = self.members.len() as u64;
        let own = self.members.iter().position(Option::is_none);
        if let (Some(own), true) = (own, count > 0) {
            order.sort_by_key(|group| (group + count - own as u64) % count);
        }
        order
    }

    /// Ask homes that did not answer, and whose rest is over, whether they answer now.
    pub fn probe(&self) {
        for (_, home) in self.others() {
            home.asked.probe();
        }
    }

    /// Return whether there is any other host.
    pub fn is_alone(&self) -> bool {
        self.others().next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::source::SourceError;
    use std::sync::Arc;

    struct Host(Arc<AtomicBool>);

    impl Source for Host {
        fn name(&self) -> &str {
            "host"
        }

        fn is_alive(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }

        fn read_at(&self, _: u64, _: &mut [u8], _: Duration) -> Result<(), SourceError> {
            Ok(())
        }
    }

    fn homes(own: usize, count: usize, alive: &Arc<AtomicBool>) -> Homes {
        let member = |place| {
            let host = || Box::new(Host(alive.clone()));
            let ways = || Ways {
                asked: host(),
                asked_again: host(),
                looked_at: host(),
                referred: host(),
            };
            (place != own).then(|| Home::new(&format!("host-{place}"), ways()))
        };
        Homes::new((0..count).map(member).collect())
    }

    fn places<'a>(found: impl Iterator<Item = (usize, Option<&'a Home>)>) -> Vec<usize> {
        found.map(|(place, _)| place).collect()
    }

    fn neighbours(homes: &Homes, chunk: u64) -> Vec<usize> {
        let found = homes.neighbours(chunk, Instant::now());
        found.iter().map(|(place, _)| *place).collect()
    }

    fn host(name: &str) -> HomeHost {
        HomeHost {
            name: name.to_owned(),
            url: format!("http://{name}:1"),
        }
    }

    #[test]
    fn hosts_agree_on_ranks_whatever_order_they_know_each_other_in() {
        let mut hosts: Vec<_> = (0..100).map(|at| host(&format!("h{at}"))).collect();
        let known = |hosts: &[HomeHost]| config::Homes {
            own: "h1".to_owned(),
            hosts: hosts.to_vec(),
        };
        let one = known(&hosts);
        hosts.reverse();
        let other = known(&hosts);
        assert_eq!(rank(&one, [7; 32]), rank(&other, [7; 32]));
        assert_ne!(rank(&one, [7; 32]), rank(&one, [8; 32]));
        assert_eq!(rank(&one, [7; 32]).len(), MAX_HOMES);
    }

    #[test]
    fn groups_have_homes_by_turns() {
        let homes = homes(1, 3, &Arc::default());
        assert_eq!(places(homes.of(0)), [0, 1, 2]);
        assert_eq!(places(homes.of(3)), [0, 1, 2]);
        assert_eq!(places(homes.of(4)), [1, 2, 0]);
        assert_eq!(places(homes.of(11)), [2, 0, 1]);
        let now = Instant::now();
        assert!(!homes.is_here(0, now) && homes.is_here(4, now) && !homes.is_here(8, now));
        assert_eq!(neighbours(&homes, 4), [2, 0]);
        let place = |name: &str| homes.named(name).map(|(place, _)| place);
        assert_eq!(["host-2", "host-1"].map(place), [Some(2), None]);
        assert_eq!(homes.own_chunk(5), Some(4));
        assert_eq!(homes.own_chunk(4), None);
    }

    #[test]
    fn those_that_have_served_are_looked_at_first() {
        let homes = homes(0, 9, &Arc::default());
        assert_eq!(neighbours(&homes, 0), [1, 2, 3, 4]);
        homes.members[7].as_ref().unwrap().note_served();
        assert_eq!(neighbours(&homes, 0), [7, 1, 2, 3]);
    }

    #[test]
    fn a_home_that_begins_to_serve_is_asked_when_it_looks_here() {
        let homes = homes(1, 3, &Arc::default());
        let absent = || ChunkError::Source(SourceError::Absent(String::new()));
        let now = Instant::now();
        for home in homes.members.iter().flatten() {
            home.asked.failed(&absent());
        }
        assert!(homes.is_here(0, now) && neighbours(&homes, 4).is_empty());
        homes.wake_home_of(0);
        assert!(!homes.is_here(0, now));
        // Others are left alone, and so are those that did not answer.
        let last = homes.members[2].as_ref().unwrap();
        assert!(!last.asked.is_awake(now));
        let lost = SourceError::Unreachable(String::new());
        let first = homes.members[0].as_ref().unwrap();
        first.asked.failed(&lost.into());
        homes.wake_home_of(0);
        assert!(homes.is_here(0, now));
        // This host is the home of chunk 4: no other host is woken.
        homes.wake_home_of(4);
    }

    #[test]
    fn a_home_that_failed_is_passed_over_until_it_answers() {
        let alive = Arc::new(AtomicBool::new(false));
        let homes = homes(1, 3, &alive);
        let first = homes.members[0].as_ref().unwrap();
        first
            .asked
            .failed(&ChunkError::Source(SourceError::Unreachable(String::new())));
        let now = Instant::now();
        assert!(homes.is_here(0, now));
        let later = now + Duration::from_secs(60);
        // However long: it has to answer first.
        assert!(homes.is_here(0, later));
        first.asked.probe_at(later);
        assert!(homes.is_here(0, later));
        alive.store(true, Ordering::SeqCst);
        first.asked.probe_at(now);
        assert!(homes.is_here(0, now), "it is left alone for a while");
        let later = later + Duration::from_secs(60);
        first.asked.probe_at(later);
        assert!(!homes.is_here(0, later));
    }

    #[test]
    fn a_host_that_is_slow_to_say_what_it_has_stays_a_home() {
        let homes = homes(1, 3, &Arc::default());
        let silent = ChunkError::Source(SourceError::Silent(String::new()));
        let lost = ChunkError::Source(SourceError::Unreachable(String::new()));
        let first = homes.members[0].as_ref().unwrap();
        first.note_looked_at(Err(&silent));
        let now = Instant::now();
        assert!(!homes.is_here(0, now));
        assert_eq!(neighbours(&homes, 4), [2]);
        first.note_looked_at(Ok(()));
        assert_eq!(neighbours(&homes, 4), [0, 2]);
        first.note_looked_at(Err(&lost));
        assert!(homes.is_here(0, now));
        assert_eq!(neighbours(&homes, 4), [2]);
    }

    #[test]
    fn without_others_this_host_fetches_all() {
        let now = Instant::now();
        let none = Homes::default();
        assert!(none.is_here(5, now) && none.neighbours(5, now).is_empty());
        assert_eq!(none.own_chunk(9), None);
        assert_eq!(none.hydration_order(3), [0, 1, 2]);
        let alone = homes(0, 1, &Arc::default());
        assert!(alone.is_here(5, now) && alone.neighbours(5, now).is_empty() && alone.is_alone());
    }

    #[test]
    fn hosts_hydrate_different_groups_first() {
        let order = |own| homes(own, 3, &Arc::default()).hydration_order(7);
        assert_eq!(order(0), [0, 3, 6, 1, 4, 2, 5]);
        assert_eq!(order(1), [1, 4, 2, 5, 0, 3, 6]);
        assert_eq!(order(2), [2, 5, 0, 3, 6, 1, 4]);
    }
}
