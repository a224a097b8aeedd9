//! Which repositories answer, and what came from each.
//!
//! A repository that fails is passed over from then on: a probe in the background finds out when it answers again, so that its failure costs the
//! transfers of this host one timeout and not one each. A repository that answers probes and fails transfers is probed later each time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::fetching::claimant::SiteHost;
use crate::fetching::measured_rate::MeasuredRate;

/// Time from the first failure to the first probe, and between probes at most.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const LONGEST_DELAY: Duration = Duration::from_secs(15);
/// Time to the first probe, at most, after repeated failures of transfers with no success between them.
const LONGEST_REST: Duration = Duration::from_secs(240);

/// Why and since when a repository is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outage {
    since: Instant,
    reason: String,
    delay: Duration,
    /// When it is probed; `None` during a probe.
    next: Option<Instant>,
}

#[derive(Default)]
struct Record {
    url: String,
    outage: Option<Outage>,
    /// Failures since the last transfer that succeeded.
    strikes: u32,
    transfers: u64,
    failures: u64,
    bytes: u64,
    rate: MeasuredRate,
}

/// What is known of a repository.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// How long it has been passed over, and why; `None` if it is used.
    pub outage: Option<(Duration, String)>,
    /// Objects that it delivered.
    pub transfers: u64,
    /// Transfers that it did not complete.
    pub failures: u64,
    /// Body bytes that came from it.
    pub bytes: u64,
    /// Measured bytes per second of the link; `None` if too few came.
    pub rate: Option<f64>,
}

/// The repositories of a site as one host sees them, by name.
#[derive(Default)]
pub struct Repositories(Mutex<HashMap<String, Record>>);

impl Repositories {
    /// Replaces the repositories that are known; one with another URL begins anew.
    pub fn set(&self, hosts: &[SiteHost]) {
        let mut records = self.0.lock().unpoisoned();
        records.retain(|name, record| {
            hosts
                .iter()
                .any(|host| host.name == *name && host.url == record.url)
        });
        for host in hosts {
            records
                .entry(host.name.clone())
                .or_insert_with(|| Record::at(&host.url));
        }
    }

    /// Whether a repository is passed over now.
    pub fn is_passed_over(&self, name: &str) -> bool {
        self.0
            .lock()
            .unpoisoned()
            .get(name)
            .is_some_and(|record| record.outage.is_some())
    }

    /// The names of those that are passed over now.
    pub fn passed_over(&self) -> Vec<String> {
        let records = self.0.lock().unpoisoned();
        let down = records.iter().filter(|(_, record)| record.outage.is_some());
        let mut names: Vec<_> = down.map(|(name, _)| name.clone()).collect();
        names.sort();
        names
    }

    /// Notes that a repository did not complete a transfer; `reason` passes it over, without one only the object was at fault.
    ///
    /// Returns whether it was used until now.
    pub fn note_failure(&self, host: &SiteHost, reason: Option<String>, now: Instant) -> bool {
        let mut records = self.0.lock().unpoisoned();
        let record = Record::of(&mut records, host);
        record.failures += 1;
        let Some(reason) = reason.filter(|_| record.outage.is_none()) else {
            return false;
        };
        let delay = (FIRST_DELAY * 2_u32.saturating_pow(record.strikes.min(16))).min(LONGEST_REST);
        record.strikes = record.strikes.saturating_add(1);
        record.outage = Some(Outage {
            since: now,
            reason,
            delay,
            next: Some(now + delay),
        });
        true
    }

    /// Notes that a repository delivered an object.
    pub fn note_success(&self, host: &SiteHost) {
        let mut records = self.0.lock().unpoisoned();
        let record = Record::of(&mut records, host);
        record.transfers += 1;
        record.strikes = 0;
        record.outage = None;
    }

    /// Counts bytes that came from a repository.
    pub fn add_bytes(&self, host: &SiteHost, bytes: u64) {
        Record::of(&mut self.0.lock().unpoisoned(), host).bytes += bytes;
    }

    /// Notes that a transfer begins whose rate only the link limits; [`Repositories::end_measured`] has to follow.
    pub fn begin_measured(&self, host: &SiteHost, now: Instant) {
        Record::of(&mut self.0.lock().unpoisoned(), host)
            .rate
            .begin(now);
    }

    /// Notes that such a transfer ended; see [`MeasuredRate::end`].
    pub fn end_measured(&self, host: &SiteHost, received: Option<u64>, now: Instant) {
        Record::of(&mut self.0.lock().unpoisoned(), host)
            .rate
            .end(received, now);
    }

    /// Returns the repositories to probe now; each is probed by one caller at a time, which calls [`Repositories::end_probe`].
    pub fn begin_probes(&self, now: Instant) -> Vec<SiteHost> {
        let mut due = Vec::new();
        for (name, record) in self.0.lock().unpoisoned().iter_mut() {
            let Some(outage) = &mut record.outage else {
                continue;
            };
            if outage.next.is_some_and(|next| next <= now) {
                outage.next = None;
                due.push(SiteHost {
                    name: name.clone(),
                    url: record.url.clone(),
                });
            }
        }
        due
    }

    /// Notes what a probe found; a repository that answers is used again.
    pub fn end_probe(&self, host: &SiteHost, answered: bool, now: Instant) {
        let mut records = self.0.lock().unpoisoned();
        let record = records
            .get_mut(&host.name)
            .filter(|record| record.url == host.url);
        let Some(record) = record else {
            return;
        };
        if answered {
            record.outage = None;
        } else if let Some(outage) = &mut record.outage {
            outage.delay = (outage.delay * 2).min(LONGEST_DELAY);
            outage.next = Some(now + outage.delay);
        }
    }

    /// What is known of all of them, by name.
    pub fn reports(&self, now: Instant) -> Vec<Report> {
        let records = self.0.lock().unpoisoned();
        let mut found: Vec<_> = records
            .iter()
            .map(|(name, record)| Report {
                name: name.clone(),
                outage: record.outage.as_ref().map(|outage| {
                    let time = now.saturating_duration_since(outage.since);
                    (time, outage.reason.clone())
                }),
                transfers: record.transfers,
                failures: record.failures,
                bytes: record.bytes,
                rate: record.rate.bytes_per_second(),
            })
            .collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }
}

impl Record {
    fn at(url: &str) -> Record {
        Record {
            url: url.to_owned(),
            ..Record::default()
        }
    }

    fn of<'a>(records: &'a mut HashMap<String, Record>, host: &SiteHost) -> &'a mut Record {
        records
            .entry(host.name.clone())
            .or_insert_with(|| Record::at(&host.url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host(name: &str) -> SiteHost {
        SiteHost {
            name: name.to_owned(),
            url: format!("http://{name}:1"),
        }
    }

    fn fail(repositories: &Repositories, now: Instant) -> bool {
        repositories.note_failure(&host("a"), Some("gone".to_owned()), now)
    }

    #[test]
    fn a_dead_one_is_passed_over_until_a_probe_is_answered() {
        let (repositories, start) = (Repositories::default(), Instant::now());
        repositories.set(&[host("a"), host("b")]);
        assert!(fail(&repositories, start));
        assert!(!fail(&repositories, start));
        assert_eq!(repositories.passed_over(), ["a"]);
        assert!(repositories.begin_probes(start).is_empty());
        let later = start + FIRST_DELAY;
        assert_eq!(repositories.begin_probes(later), [host("a")]);
        // One probe at a time.
        assert!(repositories.begin_probes(later + LONGEST_REST).is_empty());
        repositories.end_probe(&host("a"), false, later);
        assert!(repositories.begin_probes(later + FIRST_DELAY).is_empty());
        let again = later + 2 * FIRST_DELAY;
        assert_eq!(repositories.begin_probes(again), [host("a")]);
        repositories.end_probe(&host("a"), true, again);
        assert!(!repositories.is_passed_over("a"));
        let report = &repositories.reports(again)[0];
        assert_eq!((report.failures, &report.outage), (2, &None));
    }

    #[test]
    fn one_that_answers_probes_and_fails_transfers_rests_longer_each_time() {
        let (repositories, start) = (Repositories::default(), Instant::now());
        for expected in [1, 2, 4] {
            fail(&repositories, start);
            let delay = FIRST_DELAY * expected;
            assert!(repositories
                .begin_probes(start + delay - Duration::from_millis(1))
                .is_empty());
            assert_eq!(repositories.begin_probes(start + delay), [host("a")]);
            repositories.end_probe(&host("a"), true, start);
        }
        repositories.note_success(&host("a"));
        fail(&repositories, start);
        assert_eq!(repositories.begin_probes(start + FIRST_DELAY), [host("a")]);
    }

    #[test]
    fn a_missing_object_passes_no_one_over() {
        let repositories = Repositories::default();
        assert!(!repositories.note_failure(&host("a"), None, Instant::now()));
        assert!(repositories.passed_over().is_empty());
    }

    #[test]
    fn one_with_another_url_begins_anew_and_others_are_forgotten() {
        let (repositories, now) = (Repositories::default(), Instant::now());
        fail(&repositories, now);
        let moved = SiteHost {
            url: "http://elsewhere:1".to_owned(),
            ..host("a")
        };
        repositories.begin_probes(now + FIRST_DELAY);
        repositories.set(std::slice::from_ref(&moved));
        assert!(repositories.passed_over().is_empty());
        repositories.note_failure(&moved, Some("gone".to_owned()), now);
        // A probe of the former URL says nothing about this one.
        repositories.end_probe(&host("a"), true, now);
        assert_eq!(repositories.passed_over(), ["a"]);
        repositories.set(&[]);
        assert!(repositories.reports(now).is_empty());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Fail,
        Deliver,
        Probe(bool),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Fail),
            Just(Step::Deliver),
            any::<bool>().prop_map(Step::Probe),
            (1_u64..400_000).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn it_is_used_unless_it_failed_and_no_probe_was_answered_since(steps in steps()) {
            let (repositories, mut now) = (Repositories::default(), Instant::now());
            repositories.set(&[host("a")]);
            let mut down = false;
            let mut quiet_since = now;
            for step in steps {
                match step {
                    Step::Fail => {
                        prop_assert_eq!(fail(&repositories, now), !down);
                        if !down {
                            quiet_since = now;
                        }
                        down = true;
                    }
                    Step::Deliver => {
                        repositories.note_success(&host("a"));
                        down = false;
                    }
                    Step::Probe(answered) => {
                        let due = repositories.begin_probes(now);
                        prop_assert!(due.is_empty() || down);
                        // While it is passed over it is never left unprobed for long.
                        let waited = now - quiet_since;
                        prop_assert!(!down || !due.is_empty() || waited < LONGEST_REST);
                        if !due.is_empty() {
                            prop_assert!(repositories.begin_probes(now).is_empty());
                            repositories.end_probe(&host("a"), answered, now);
                            down = !answered;
                            quiet_since = now;
                        }
                    }
                    Step::Wait(time) => now += Duration::from_millis(time),
                }
                prop_assert_eq!(repositories.is_passed_over("a"), down);
            }
        }
    }
}
