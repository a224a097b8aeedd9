//! Which hosts of the site delivered what they should, and which are not read from for a while.
//!
//! A host that sent wrong data twice, or that is often suspected, is not read from until its time is over: what it sends is verified in any case, but
//! finding out costs a request its time. A repository is left alone only where
//! another one can stand in for it; it is reported all the same.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

/// Offences that are older do not count.
const MEMORY: Duration = Duration::from_secs(600);
/// Weight at which a host is not read from: two offences, or twice as many suspicions.
const MOST_WEIGHT: u32 = 4;
/// Hosts that are remembered.
const MOST_HOSTS: usize = 4096;

/// What a host did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offence {
    /// It sent what cannot be right, or held a reader up without a reason.
    Lie,
    /// It may have passed on another's fault.
    Doubt,
}

impl Offence {
    fn weight(self) -> u32 {
        match self {
            Offence::Lie => 2,
            Offence::Doubt => 1,
        }
    }
}

/// What follows from an offence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing yet.
    Noted,
    /// The host is left alone from now on.
    LeftAlone,
}

#[derive(Default)]
struct Record {
    name: Option<String>,
    offences: Vec<(Instant, Offence)>,
    until: Option<Instant>,
}

/// A host that is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// Its name, or its URL if that is all that is known.
    pub host: String,
    /// How much longer.
    pub left: Duration,
}

/// The records of all hosts, by the URLs of their data planes.
pub struct Standing {
    time: Duration,
    records: Mutex<HashMap<String, Record>>,
}

impl Standing {
    /// Hosts are left alone for `time`.
    pub fn new(time: Duration) -> Standing {
        Standing {
            time,
            records: Mutex::default(),
        }
    }

    /// Learns the name of the host with a URL, for reports.
    pub fn name(&self, url: &str, name: &str) {
        let mut records = self.records.lock().unpoisoned();
        if records.len() < MOST_HOSTS || records.contains_key(base(url)) {
            records.entry(base(url).to_owned()).or_default().name = Some(name.to_owned());
        }
    }

    /// The name of the host with a URL, or the URL.
    pub fn describe(&self, url: &str) -> String {
        let records = self.records.lock().unpoisoned();
        let name = records
            .get(base(url))
            .and_then(|record| record.name.clone());
        name.unwrap_or_else(|| url.to_owned())
    }

    /// Notes an offence of the host with a URL.
    pub fn note(&self, url: &str, offence: Offence, now: Instant) -> Verdict {
        let mut records = self.records.lock().unpoisoned();
        if records.len() >= MOST_HOSTS && !records.contains_key(base(url)) {
            records.retain(|_, record| record.until.is_some_and(|until| until > now));
        }
        let record = records.entry(base(url).to_owned()).or_default();
        record
            .offences
            .retain(|(time, _)| now.duration_since(*time) < MEMORY);
        record.offences.push((now, offence));
        let weight: u32 = record.offences.iter().map(|(_, one)| one.weight()).sum();
        if weight < MOST_WEIGHT || self.time.is_zero() {
            return Verdict::Noted;
        }
        record.offences.clear();
        record.until = Some(now + self.time);
        Verdict::LeftAlone
    }

    /// How long hosts are left alone.
    pub fn time(&self) -> Duration {
        self.time
    }

    /// Whether the host with a URL is left alone now.
    pub fn is_left_alone(&self, url: &str, now: Instant) -> bool {
        self.records
            .lock()
            .unpoisoned()
            .get(base(url))
            .and_then(|record| record.until)
            .is_some_and(|until| until > now)
    }

    /// The hosts that are left alone now, by name.
    pub fn left_alone(&self, now: Instant) -> Vec<LeftAlone> {
        let records = self.records.lock().unpoisoned();
        let mut found: Vec<_> = records
            .iter()
            .filter_map(|(url, record)| {
                let left = record.until?.saturating_duration_since(now);
                let host = record.name.clone().unwrap_or_else(|| url.clone());
                (!left.is_zero()).then_some(LeftAlone { host, left })
            })
            .collect();
        found.sort_by(|one, other| one.host.cmp(&other.host));
        found
    }
}

/// A base URL as all spell it.
fn base(url: &str) -> &str {
    url.trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_secs(300);

    #[test]
    fn a_host_that_lies_twice_is_left_alone_for_a_while() {
        let (standing, now) = (Standing::new(TIME), Instant::now());
        standing.name("http://a:1", "a");
        let lie = |url, time| standing.note(url, Offence::Lie, time);
        assert_eq!(lie("http://a:1", now), Verdict::Noted);
        assert_eq!(lie("http://b:1", now), Verdict::Noted);
        assert!(standing.left_alone(now).is_empty());
        assert_eq!(lie("http://a:1", now), Verdict::LeftAlone);
        assert!(standing.is_left_alone("http://a:1", now));
        assert!(!standing.is_left_alone("http://b:1", now));
        let found = standing.left_alone(now + TIME / 3);
        assert_eq!(found[0].host, "a");
        assert_eq!(found[0].left, TIME * 2 / 3);
        assert!(!standing.is_left_alone("http://a:1", now + TIME));
        // It begins anew.
        assert_eq!(lie("http://a:1", now + TIME), Verdict::Noted);
    }

    #[test]
    fn doubts_count_half_and_old_offences_do_not() {
        let (standing, now) = (Standing::new(TIME), Instant::now());
        let doubt = |time| standing.note("http://a:1", Offence::Doubt, time);
        for _ in 0..3 {
            assert_eq!(doubt(now), Verdict::Noted);
        }
        assert_eq!(doubt(now + MEMORY), Verdict::Noted);
        for _ in 0..2 {
            assert_eq!(doubt(now + MEMORY), Verdict::Noted);
        }
        assert_eq!(doubt(now + MEMORY), Verdict::LeftAlone);
    }

    #[test]
    fn the_memory_is_bounded() {
        let (standing, now) = (Standing::new(TIME), Instant::now());
        for number in 0..2 * MOST_HOSTS {
            standing.note(&number.to_string(), Offence::Lie, now);
        }
        assert!(standing.records.lock().unpoisoned().len() <= MOST_HOSTS);
    }
}
