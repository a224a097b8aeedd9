//! What hosts of a site teach each other about an image, with requests for its chunks and the replies to them.
//!
//! The counts are those of `diffcache_prefetch::counts`. No request is made for them: they go with those for chunks, and are lost with a worker,
//! but for those of this host. What other hosts say is a hint: malformed texts and hosts of no site are counted, and the rest is bounded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use diffcache_base::locks::Unpoisoned;
use diffcache_prefetch::counts::{HostId, Message, News, Version};
use diffcache_prefetch::{Chunk, SiteCounts};

use crate::prefetch::learned::{Counted, Learned};
use crate::prefetch::prefetcher::Prefetcher;
use crate::processes::shared::{Counter, Shared};

const NS_PER_MS: u64 = 1_000_000;
const US_PER_MS: f64 = 1000.0;

/// Return the ID of a host: the beginning of the BLAKE3 hash of its name.
pub fn host_id(name: &str) -> HostId {
    let hash = blake3::hash(name.as_bytes());
    let first = hash.as_bytes().first_chunk();
    first.map_or(0, |bytes| HostId::from_le_bytes(*bytes))
}

/// Return the number of a start of this host, which is greater than those before it: its time in milliseconds since 1970.
fn start_number() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let millis = now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / NS_PER_MS;
    millis.max(1)
}

/// A home of chunks, and how much of this host's counts it has.
struct Home {
    host: HostId,
    /// None until it has answered with hints.
    told: Mutex<Option<Version>>,
}

/// The counts of the hosts of a site, of one image.
pub struct Hints {
    counts: Mutex<SiteCounts>,
    chunks: Chunk,
    homes: Vec<Home>,
    prefetcher: Option<Arc<Prefetcher>>,
    shared: Arc<Shared>,
    is_forgotten: AtomicBool,
}

impl Hints {
    /// Know of this host what was `learned`, and of the others nothing; `homes` are the names of all, by rank. A host that does not prefetch teaches
    /// others, and asks for no hints.
    pub fn new(
        own: &str,
        homes: &[&str],
        learned: &Learned,
        prefetcher: Option<Arc<Prefetcher>>,
        shared: Arc<Shared>,
    ) -> Hints {
        let home = |name: &&str| Home {
            host: host_id(name),
            told: Mutex::default(),
        };
        let homes: Vec<_> = homes.iter().map(home).collect();
        let others = homes.iter().map(|home| home.host);
        let mut counts = SiteCounts::new(host_id(own), others, start_number());
        let mut rows: Vec<_> = learned.rows().collect();
        // What is read first is worth most to others.
        rows.sort_by(|one, other| one.2.total_cmp(&other.2));
        for (chunk, count, mean_us) in rows {
            if let Ok(chunk) = Chunk::try_from(chunk) {
                counts.count(chunk, count, (mean_us / US_PER_MS) as u64);
            }
        }
        Hints {
            counts: Mutex::new(counts),
            chunks: Chunk::try_from(learned.chunks()).unwrap_or(Chunk::MAX),
            homes,
            prefetcher,
            shared,
            is_forgotten: AtomicBool::new(false),
        }
    }

    /// Forget what other hosts count, and learn no more from them.
    pub fn forget(&self) {
        self.is_forgotten.store(true, Ordering::SeqCst);
        self.counts.lock().unpoisoned().forget_others();
    }

    /// Count what an instance of this host has read.
    pub fn count(&self, counted: &Counted) {
        if let Ok(chunk) = Chunk::try_from(counted.chunk) {
            let mean_ms = counted.total_ns / counted.count.max(1) / NS_PER_MS;
            self.counts
                .lock()
                .unpoisoned()
                .count(chunk, counted.count, mean_ms);
        }
    }

    /// Return what goes with a request to a home, by its rank; none if this host does not prefetch.
    pub fn ask(&self, place: usize) -> Option<String> {
        self.prefetcher.as_ref()?;
        let told = *self.homes.get(place)?.told.lock().unpoisoned();
        let message = self.counts.lock().unpoisoned().ask(told);
        Some(STANDARD.encode(message.encode()))
    }

    /// Take what came with the reply of a home.
    pub fn take(&self, place: usize, text: &str) {
        let (Some(home), Some(message)) = (self.homes.get(place), self.decode(text)) else {
            return;
        };
        // Of which host's counts this is, is known by the request.
        let told = message.versions.first().map(|(_, version)| *version);
        *home.told.lock().unpoisoned() = told;
        self.learn(home.host, &message);
    }

    /// Take what came with a request of another host, and return what goes with its reply; nothing for what is no message.
    pub fn answer(&self, text: &str) -> String {
        let Some(message) = self.decode(text) else {
            return String::new();
        };
        self.learn(message.sender, &message);
        let reply = self.counts.lock().unpoisoned().answer(&message);
        STANDARD.encode(reply.encode())
    }

    fn decode(&self, text: &str) -> Option<Message> {
        let bytes = STANDARD.decode(text).ok();
        let message = bytes.and_then(|bytes| Message::decode(&bytes, self.chunks).ok());
        if message.is_none() {
            self.shared.add(Counter::HintsMalformed, 1);
        }
        message
    }

    fn learn(&self, sender: HostId, message: &Message) {
        if self.is_forgotten.load(Ordering::SeqCst) {
            return;
        }
        let mut counts = self.counts.lock().unpoisoned();
        let News { chunks, unknown } = counts.learn(sender, message);
        let row = |chunk: &Chunk| {
            let (count, mean_us) = counts.sum(*chunk);
            (*chunk, count, mean_us)
        };
        let rows: Vec<_> = chunks.iter().map(row).collect();
        drop(counts);
        self.shared.add(Counter::HintsUnknown, unknown as u64);
        self.shared.add(Counter::HintsReceived, rows.len() as u64);
        if let Some(prefetcher) = self.prefetcher.as_ref().filter(|_| !rows.is_empty()) {
            prefetcher.learn(rows);
        }
    }
}

/// The exchange of hints with one home.
#[derive(Clone)]
pub struct Exchange {
    /// What is known.
    pub hints: Arc<Hints>,
    /// The home's rank.
    pub place: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    use diffcache_prefetch::Policy;
    use diffcache_prefetch::Profile;

    const NAMES: [&str; 3] = ["a", "b", "c"];

    struct Host {
        learned: Learned,
        shared: Arc<Shared>,
        prefetcher: Arc<Prefetcher>,
        hints: Hints,
    }

    fn hints(
        own: usize,
        learned: &Learned,
        prefetcher: &Arc<Prefetcher>,
        shared: &Arc<Shared>,
    ) -> Hints {
        Hints::new(
            NAMES[own],
            &NAMES,
            learned,
            Some(prefetcher.clone()),
            shared.clone(),
        )
    }

    fn host(own: usize) -> Host {
        let learned = Learned::map(Learned::create(100).unwrap()).unwrap();
        let shared = Arc::new(Shared::map(Shared::create(100).unwrap()).unwrap());
        let prefetcher = Prefetcher::new(100, Profile::default(), Policy::default());
        let prefetcher = Arc::new(prefetcher);
        let hints = hints(own, &learned, &prefetcher, &shared);
        Host {
            learned,
            shared,
            prefetcher,
            hints,
        }
    }

    impl Host {
        fn read(&self, handle: u64, chunks: std::ops::Range<u64>) {
            self.learned.open(handle, 0);
            let counted = self.learned.read(handle, chunks, 7 * NS_PER_MS);
            counted.iter().for_each(|counted| self.hints.count(counted));
        }

        fn ask(&self, place: usize, other: &Host) {
            let reply = other.hints.answer(&self.hints.ask(place).unwrap());
            self.hints.take(place, &reply);
        }
    }

    #[test]
    fn one_host_teaches_another_through_a_home() {
        let [home, teacher, pupil] = [0, 1, 2].map(host);
        teacher.ask(0, &home);
        teacher.read(1, 5..8);
        teacher.ask(0, &home);
        assert_eq!(3, home.shared.get(Counter::HintsReceived));
        pupil.prefetcher.begin();
        pupil.ask(0, &home);
        let next: Vec<_> = (0..3).map(|_| pupil.prefetcher.next(|_| false)).collect();
        assert_eq!(vec![5, 6, 7], next);
        assert!(pupil.prefetcher.was_taught(5) && !pupil.prefetcher.was_taught(8));
        // Once.
        pupil.ask(0, &home);
        assert_eq!(3, pupil.shared.get(Counter::HintsReceived));
    }

    #[test]
    fn what_a_killed_worker_had_counted_is_taught_by_the_next() {
        let [mut home, pupil] = [0, 2].map(host);
        home.read(1, 5..8);
        pupil.ask(0, &home);
        std::thread::sleep(std::time::Duration::from_millis(2));
        home.hints = hints(0, &home.learned, &home.prefetcher, &home.shared);
        home.read(2, 7..9);
        pupil.ask(0, &home);
        let sum = |chunk| pupil.hints.counts.lock().unpoisoned().sum(chunk);
        assert_eq!([1, 1, 2, 1], [5, 6, 7, 8].map(|chunk| sum(chunk).0));
        assert_eq!(7000.0, sum(7).1);
    }

    #[test]
    fn forged_texts_are_counted_and_change_nothing() {
        let [home, pupil] = [0, 2].map(host);
        home.read(1, 5..8);
        let reply = home.hints.answer(&pupil.hints.ask(0).unwrap());
        for forged in [
            "",
            "*",
            "YQ==",
            &reply[..reply.len() - 4],
            &reply.repeat(30),
        ] {
            pupil.hints.take(0, forged);
        }
        assert_eq!(5, pupil.shared.get(Counter::HintsMalformed));
        assert_eq!(0, pupil.shared.get(Counter::HintsReceived));
        assert_eq!("", home.hints.answer("YQ=="));
        pupil.hints.take(9, &reply);
        pupil.hints.take(0, &reply);
        assert_eq!(3, pupil.shared.get(Counter::HintsReceived));
        let mut message = Message::decode(&STANDARD.decode(&reply).unwrap(), 100).unwrap();
        message.blocks[0].host = host_id("stranger");
        pupil.hints.take(0, &STANDARD.encode(message.encode()));
        assert_eq!(1, pupil.shared.get(Counter::HintsUnknown));
        assert_eq!(3, pupil.shared.get(Counter::HintsReceived));
    }

    #[test]
    fn without_prefetching_no_hints_are_asked_for() {
        let host = host(0);
        let hints = Hints::new("a", &NAMES, &host.learned, None, host.shared.clone());
        assert_eq!(None, hints.ask(1));
        let pupil = self::host(1);
        assert!(!hints.answer(&pupil.hints.ask(0).unwrap()).is_empty());
    }
}
