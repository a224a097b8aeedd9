//! Requests of peers that this host answers, and those that it refers to others because it is busy.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;
use diffcache_dataplane::serving::referrals::HostName;
use diffcache_prefetch::Chunk;

use crate::processes::shared::{Counter, Shared};

/// The requests of one image.
pub struct Referrals {
    /// Number and name of each host of the site but this one.
    hosts: HashMap<String, (u32, HostName)>,
    fan_out: usize,
    state: Mutex<State>,
    shared: Arc<Shared>,
}

struct State {
    asked: diffcache_prefetch::Referrals,
    /// Answers that are being sent.
    answering: usize,
}

/// What becomes of a request.
pub enum Decision<'a> {
    /// It is answered here; it counts until this is dropped.
    Answer(Answering<'a>),
    /// It is referred to this host.
    Refer(HostName),
}

/// An answer that is being sent.
pub struct Answering<'a>(&'a Referrals);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unpoisoned().answering -= 1;
    }
}

impl Referrals {
    /// Refer requests while as many answers as the fan-out are being sent; with 0 none. `homes` are the names of the hosts of the site, `own` is that of this one.
    pub fn new<'a>(
        own: &str,
        homes: impl Iterator<Item = &'a str>,
        fan_out: usize,
        shared: Arc<Shared>,
    ) -> Referrals {
        let others = homes.filter(|name| *name != own);
        let numbered = (0..).zip(others.filter_map(HostName::parse));
        Referrals {
            hosts: numbered
                .map(|(number, name)| (name.as_str().to_owned(), (number, name)))
                .collect(),
            fan_out,
            state: Mutex::new(State {
                asked: diffcache_prefetch::Referrals::new(fan_out),
                answering: 0,
            }),
            shared,
        }
    }

    /// Return whether any request may be referred.
    pub fn is_used(&self) -> bool {
        self.fan_out > 0 && self.hosts.len() > 1
    }

    /// Decide on a request for chunks that are here. A requester that is not of the site is answered, and not remembered.
    pub fn decide(&self, chunks: Range<u64>, requester: &HostName) -> Decision<'_> {
        let mut state = self.state.lock().unpoisoned();
        let is_busy = state.answering >= self.fan_out;
        let known = self.hosts.get(requester.as_str());
        let target = known.and_then(|(number, _)| {
            let chunks = Chunk::try_from(chunks.start).ok()?..Chunk::try_from(chunks.end).ok()?;
            state.asked.note(chunks, *number, is_busy)
        });
        let mut others = self.hosts.values();
        let name = others.find(|(number, _)| Some(*number) == target);
        if let Some((_, name)) = name {
            self.shared.add(Counter::ReferralsGiven, 1);
            return Decision::Refer(name.clone());
        }
        state.answering += 1;
        Decision::Answer(Answering(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn referrals(fan_out: usize) -> Referrals {
        let shared = Arc::new(Shared::map(Shared::create(9).unwrap()).unwrap());
        let homes = ["home", "a", "b", "c", "no name"];
        Referrals::new("home", homes.into_iter(), fan_out, shared)
    }

    fn decide<'a>(referrals: &'a Referrals, requester: &str) -> Decision<'a> {
        referrals.decide(3..5, &HostName::parse(requester).unwrap())
    }

    fn answer<'a>(referrals: &'a Referrals, requester: &str) -> Answering<'a> {
        match decide(referrals, requester) {
            Decision::Answer(answering) => answering,
            Decision::Refer(name) => panic!("referred to {name:?}"),
        }
    }

    fn refer(referrals: &Referrals, requester: &str) -> String {
        match decide(referrals, requester) {
            Decision::Answer(_) => panic!("answered"),
            Decision::Refer(name) => name.as_str().to_owned(),
        }
    }

    #[test]
    fn a_busy_host_refers_until_it_has_answered() {
        let found = referrals(1);
        let first = answer(&found, "a");
        assert_eq!(refer(&found, "b"), "a");
        drop(first);
        drop(answer(&found, "c"));
        assert_eq!(found.shared.get(Counter::ReferralsGiven), 1);
        assert_eq!(found.state.lock().unpoisoned().answering, 0);
    }

    #[test]
    fn hosts_that_are_not_of_the_site_are_answered_and_never_named() {
        let found = referrals(1);
        let _stranger = answer(&found, "stranger");
        let _own = answer(&found, "home");
        let _first = answer(&found, "a");
        assert_eq!(refer(&found, "b"), "a");
    }

    #[test]
    fn with_a_fan_out_of_0_or_one_other_host_none_is_referred() {
        let found = referrals(0);
        let answers: Vec<_> = ["a", "b", "c"].map(|name| answer(&found, name)).into();
        assert!(answers.len() == 3 && !found.is_used() && referrals(1).is_used());
        let shared = Arc::new(Shared::map(Shared::create(9).unwrap()).unwrap());
        let pair = Referrals::new("home", ["home", "a"].into_iter(), 1, shared);
        assert!(!pair.is_used());
    }
}
