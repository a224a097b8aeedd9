//! What was sent to peers for requests that belong to a trace, until it is taken.
//!
//! The text of a trace is passed on as it is. Whether it is genuine is for the caller to find out, who has the keys.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use diffcache_base::locks::Unpoisoned;

use crate::ids::ObjectKey;

/// The header of a request that belongs to a trace.
pub const HEADER: &str = "X-DiffCache-Trace";
/// Longest text of a trace, in bytes.
pub const LONGEST: usize = 512;
/// Transfers that are kept; further ones are dropped until these are taken.
const MOST: usize = 256;

/// Names a trace, and the step of it that a request is part of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Trace(Arc<str>);

impl Trace {
    /// Accepts the alphabet of URL-safe Base64, padding and dots; `None` if the text has others, none, or too many.
    pub fn parse(text: &str) -> Option<Trace> {
        let known = |c: u8| c.is_ascii_alphanumeric() || b"-_=.".contains(&c);
        let fits = (1..=LONGEST).contains(&text.len()) && text.bytes().all(known);
        fits.then(|| Trace(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What was sent of an object for one step of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The step.
    pub trace: Trace,
    /// The object.
    pub object: ObjectKey,
    /// When its first request was there.
    pub began: SystemTime,
    /// When its last response had been sent.
    pub ended: SystemTime,
    /// Number of requests.
    pub requests: u64,
    /// Bytes of the object that they asked for.
    pub bytes: u64,
}

/// Transfers of traces that were not taken yet.
#[derive(Default)]
pub struct Traces(Mutex<HashMap<(Trace, ObjectKey), Served>>);

impl Traces {
    /// Notes a response that was sent now.
    pub fn note(&self, trace: &Trace, object: ObjectKey, began: SystemTime, bytes: u64) {
        let mut kept = self.0.lock().unpoisoned();
        let key = (trace.clone(), object);
        if kept.len() >= MOST && !kept.contains_key(&key) {
            return;
        }
        let served = kept.entry(key).or_insert_with(|| Served {
            trace: trace.clone(),
            object,
            began,
            ended: began,
            requests: 0,
            bytes: 0,
        });
        served.began = served.began.min(began);
        served.ended = SystemTime::now();
        served.requests += 1;
        served.bytes += bytes;
    }

    /// Hands over, and forgets, what nothing was added to for this long.
    pub fn take(&self, quiet: Duration) -> Vec<Served> {
        let now = SystemTime::now();
        let mut kept = self.0.lock().unpoisoned();
        // A clock that was set back must not keep them for ever.
        let is_over = |served: &Served| {
            let age = now.duration_since(served.ended);
            age.map_or(true, |age| age >= quiet)
        };
        let (over, rest) = kept.drain().partition(|(_, served)| is_over(served));
        *kept = rest;
        let over: HashMap<_, _> = over;
        over.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Kind;

    fn object(first: u8) -> ObjectKey {
        let mut id = [0; 32];
        id[0] = first;
        ObjectKey {
            kind: Kind::Patches,
            id,
        }
    }

    #[test]
    fn texts_that_do_not_fit_a_header_are_no_traces() {
        assert!(Trace::parse("eyJhIjoxfQ==.0f-_").is_some());
        for text in ["", "a b", "a\r\nb", "a:b", "é", &"a".repeat(LONGEST + 1)] {
            assert_eq!(Trace::parse(text), None, "{text:?}");
        }
        assert!(Trace::parse(&"a".repeat(LONGEST)).is_some());
    }

    #[test]
    fn requests_of_one_step_for_one_object_are_added_up() {
        let (traces, trace) = (Traces::default(), Trace::parse("a").unwrap());
        let began = SystemTime::now() - Duration::from_secs(5);
        traces.note(&trace, object(1), began, 10);
        traces.note(&trace, object(1), SystemTime::now(), 20);
        traces.note(&trace, object(2), SystemTime::now(), 1);
        assert!(traces.take(Duration::from_secs(60)).is_empty());
        let mut taken = traces.take(Duration::ZERO);
        taken.sort_by_key(|served| served.object);
        let found: Vec<_> = taken
            .iter()
            .map(|served| (served.requests, served.bytes))
            .collect();
        assert_eq!(found, [(2, 30), (1, 1)]);
        assert_eq!(taken[0].began, began);
        assert!(taken[0].ended > began);
        assert!(traces.take(Duration::ZERO).is_empty());
    }

    #[test]
    fn a_flood_is_bounded() {
        let traces = Traces::default();
        for number in 0..1000 {
            let trace = Trace::parse(&format!("t{number}")).unwrap();
            traces.note(&trace, object(1), SystemTime::now(), 1);
        }
        assert_eq!(traces.take(Duration::ZERO).len(), MOST);
    }

    #[test]
    fn a_clock_that_was_set_back_keeps_nothing() {
        let (traces, trace) = (Traces::default(), Trace::parse("a").unwrap());
        traces.note(&trace, object(1), SystemTime::now(), 1);
        for served in traces.0.lock().unpoisoned().values_mut() {
            served.ended += Duration::from_secs(3600);
        }
        assert_eq!(traces.take(Duration::from_secs(1)).len(), 1);
    }
}
