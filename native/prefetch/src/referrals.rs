//! To which host a busy one refers a request for a chunk: to one that asked for the chunk before.

use std::collections::{HashMap, VecDeque};

use crate::chunks::Chunk;

/// Number of a host, or of an instance in a simulation.
pub type Host = u32;

/// Chunks that are remembered. Referrals serve hosts that boot at the same time: what was asked for long ago is forgotten.
const MOST_CHUNKS: usize = 4096;

/// Which hosts asked for which chunk, in the order in which they were answered.
///
/// With fan-out *f*, the requester of place *p* (from 0 on) is referred to that of place *p/f* - 1: the requesters of a chunk form a tree, and each
/// is sent at most *f* others. A host has one place for each chunk, and is referred to a lower one alone, so that no hosts wait for one another in a
/// circle.
#[derive(Debug, Clone)]
pub struct Referrals {
    fan_out: usize,
    asked: HashMap<Chunk, Vec<Host>>,
    /// The chunks, those first that were asked for first.
    order: VecDeque<Chunk>,
}

impl Referrals {
    /// Know of no request yet. With a fan-out of 0 none is referred.
    pub fn new(fan_out: usize) -> Referrals {
        Referrals {
            fan_out,
            asked: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    /// Note a request for chunks, and return to which host it is referred if this one `is_busy`; none if it is to be answered here.
    ///
    /// That host has asked for all of the chunks. A host that asks again for the first of them got it from no other: it is answered here.
    pub fn note(
        &mut self,
        chunks: impl Iterator<Item = Chunk> + Clone,
        host: Host,
        is_busy: bool,
    ) -> Option<Host> {
        if self.fan_out == 0 {
            return None;
        }
        let target = chunks.clone().next().filter(|_| is_busy);
        let target = target.and_then(|first| self.parent(first, host));
        let target = target.filter(|target| {
            let mut others = chunks.clone().skip(1);
            others.all(|chunk| self.hosts(chunk).contains(target))
        });
        chunks.for_each(|chunk| self.add(chunk, host));
        target
    }

    /// Return the host that is above a new requester of a chunk in the tree.
    fn parent(&self, chunk: Chunk, host: Host) -> Option<Host> {
        let hosts = self.hosts(chunk);
        let above = (hosts.len() / self.fan_out).checked_sub(1)?;
        hosts.get(above).copied().filter(|_| !hosts.contains(&host))
    }

    fn hosts(&self, chunk: Chunk) -> &[Host] {
        self.asked.get(&chunk).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, chunk: Chunk, host: Host) {
        if !self.asked.contains_key(&chunk) {
            if self.order.len() >= MOST_CHUNKS {
                let oldest = self.order.pop_front();
                oldest.map(|oldest| self.asked.remove(&oldest));
            }
            self.order.push_back(chunk);
        }
        let hosts = self.asked.entry(chunk).or_default();
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::once;

    fn note(referrals: &mut Referrals, host: Host) -> Option<Host> {
        referrals.note(once(7), host, true)
    }

    #[test]
    fn requesters_form_a_tree() {
        let mut referrals = Referrals::new(2);
        let targets: Vec<_> = (10..18).map(|host| note(&mut referrals, host)).collect();
        let expected = [
            None,
            None,
            Some(10),
            Some(10),
            Some(11),
            Some(11),
            Some(12),
            Some(12),
        ];
        assert_eq!(targets, expected);
        // In chains.
        let mut referrals = Referrals::new(1);
        let targets: Vec<_> = (0..3).map(|host| note(&mut referrals, host)).collect();
        assert_eq!(targets, [None, Some(0), Some(1)]);
    }

    #[test]
    fn a_host_that_is_not_busy_answers_and_remembers() {
        let mut referrals = Referrals::new(1);
        for host in 0..3 {
            assert_eq!(referrals.note(once(7), host, false), None);
        }
        assert_eq!(note(&mut referrals, 3), Some(2));
    }

    #[test]
    fn with_a_fan_out_of_0_all_are_answered() {
        let mut referrals = Referrals::new(0);
        assert!((0..9).all(|host| note(&mut referrals, host).is_none()));
    }

    #[test]
    fn a_host_that_asks_again_is_answered_and_keeps_its_place() {
        let mut referrals = Referrals::new(1);
        note(&mut referrals, 5);
        assert_eq!(note(&mut referrals, 6), Some(5));
        assert_eq!(
            (note(&mut referrals, 6), note(&mut referrals, 5)),
            (None, None)
        );
        assert_eq!(note(&mut referrals, 7), Some(6));
    }

    #[test]
    fn a_host_is_referred_to_one_that_asked_for_all_chunks() {
        let mut referrals = Referrals::new(1);
        let mut note = |chunks: std::ops::Range<Chunk>, host| referrals.note(chunks, host, true);
        assert_eq!(note(4..6, 0), None);
        assert_eq!(note(4..8, 1), None, "host 0 has two of four");
        assert_eq!(note(4..8, 2), Some(1));
        assert_eq!(note(5..6, 3), Some(2));
        assert_eq!(note(8..8, 3), None);
    }

    #[test]
    fn what_was_asked_for_first_is_forgotten_first() {
        let mut referrals = Referrals::new(1);
        note(&mut referrals, 0);
        let chunks = 100..100 + MOST_CHUNKS as Chunk;
        for chunk in chunks.clone() {
            referrals.note(once(chunk), 1, true);
        }
        assert_eq!(note(&mut referrals, 2), None);
        assert_eq!(referrals.note(once(chunks.end - 1), 2, true), Some(1));
        assert_eq!(referrals.asked.len(), MOST_CHUNKS);
        assert_eq!(referrals.order.len(), MOST_CHUNKS);
    }
}
