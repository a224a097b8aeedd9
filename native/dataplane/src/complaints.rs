//! Reasons for which connections, and transfers from peers, failed, counted until they are taken.

use std::collections::BTreeMap;
use std::sync::Mutex;

use diffcache_base::locks::Unpoisoned;

/// Different complaints that are kept; further ones are dropped until these are taken.
const MOST: usize = 64;

/// A reason, whom it is about, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The address that connected, or the host that was read from.
    pub about: String,
    /// What was wrong, as a clause about it.
    pub reason: String,
    /// How often it happened since it was last taken.
    pub count: u64,
}

/// Complaints that were not taken yet.
#[derive(Default)]
pub struct Complaints(Mutex<BTreeMap<(String, String), u64>>);

impl Complaints {
    /// Notes one.
    pub fn note(&self, about: &str, reason: String) {
        let mut kept = self.0.lock().unpoisoned();
        let key = (about.to_owned(), reason);
        if kept.len() < MOST || kept.contains_key(&key) {
            *kept.entry(key).or_default() += 1;
        }
    }

    /// Hands over all and forgets them.
    pub fn take(&self) -> Vec<Complaint> {
        std::mem::take(&mut *self.0.lock().unpoisoned())
            .into_iter()
            .map(|((about, reason), count)| Complaint {
                about,
                reason,
                count,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_counted_and_a_flood_is_bounded() {
        let complaints = Complaints::default();
        let address = "192.0.2.1";
        for _ in 0..3 {
            complaints.note(address, "known".to_owned());
        }
        for number in 0..1000 {
            complaints.note(address, number.to_string());
        }
        complaints.note(address, "known".to_owned());
        let taken = complaints.take();
        assert_eq!(taken.len(), MOST);
        let known = taken.iter().find(|one| one.reason == "known").unwrap();
        assert_eq!(known.count, 4);
        assert!(complaints.take().is_empty());
    }
}
