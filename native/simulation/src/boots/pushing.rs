//! Chunks that homes push along trees to the instances that boot.

use std::collections::hash_map::Entry;

use diffcache_prefetch::Chunk;

use super::ports::{Happening, Instance, Request};
use super::scenario::{half_ns, Mode};
use super::site::{Reason, Site};

impl Site<'_> {
    /// The instances to which one of them sends a chunk.
    fn children(&self, chunk: Chunk, parent: Instance) -> Vec<Instance> {
        let Some(order) = self.trees.get(&chunk) else {
            return Vec::new();
        };
        let Some(place) = order.iter().position(|&other| other == parent) else {
            return Vec::new();
        };
        let fan_out = self.scenario.fan_out;
        let first = place.saturating_mul(fan_out).saturating_add(1);
        order.iter().skip(first).take(fan_out).copied().collect()
    }

    /// Pushes a chunk from its home from now on, if it is there and an instance has read it.
    ///
    /// `waiting` are the instances whose requests wait at the home. They come first in the tree,
    /// then those that boot and lack the chunk, in the order of their starts.
    pub fn push_from_home(&mut self, now: u64, chunk: Chunk, waiting: &[Instance]) {
        if self.mode != Mode::Push || self.trees.contains_key(&chunk) {
            return;
        }
        let home = self.home_of(chunk);
        let is_read = self.learner.profile().get(chunk).count > 0;
        if !is_read || !self.is_there(home, chunk) {
            return;
        }
        let mut others: Vec<_> = (0..self.guests.len() as Instance)
            .filter(|&other| other != home && !waiting.contains(&other))
            .filter(|&other| self.boots(now, other) && !self.is_there(other, chunk))
            .collect();
        others.sort_by_key(|&other| self.scenario.instances[other as usize].start_ns);
        let order = [&[home], waiting, &others].concat();
        self.trees.insert(chunk, order);
        self.pass_on(now, home, chunk);
    }

    /// Whether an instance has started, and has more to read.
    fn boots(&self, now: u64, instance: Instance) -> bool {
        let trace = &self.scenario.instances[instance as usize];
        let guest = &self.guests[instance as usize];
        trace.start_ns <= now && (guest.next_read < trace.reads.len() || guest.missing_count > 0)
    }

    /// Lets an instance that has a chunk send it to its children: at once to those that asked for
    /// it, to others when they accept.
    pub fn pass_on(&mut self, now: u64, parent: Instance, chunk: Chunk) {
        for child in self.children(chunk, parent) {
            let was_asked_for = self.guests[child as usize].coming.contains_key(&chunk);
            let request = Request {
                is_push: !was_asked_for,
                arrival: now,
                rank: 0,
                instance: child,
                chunk,
            };
            if was_asked_for {
                self.enter_port(now, Some(parent), request);
            } else {
                let at = now.saturating_add(half_ns(self.scenario.links.lan_rtt_ms));
                self.agenda.add(at, Happening::Offered(parent, request));
            }
        }
    }

    /// Lets an instance accept a chunk, unless it has it or has asked for it.
    pub fn consider(&mut self, now: u64, parent: Instance, request: Request) {
        let Request {
            instance, chunk, ..
        } = request;
        if !self.is_there(instance, chunk) && !self.is_coming(instance, chunk) {
            let at = now.saturating_add(half_ns(self.scenario.links.lan_rtt_ms));
            self.agenda.add(at, Happening::AtOther(parent, request));
        }
    }

    /// Whether a chunk still has to be sent to an instance: it may have come from another one.
    pub fn is_needed(&self, request: &Request) -> bool {
        let Request {
            instance, chunk, ..
        } = *request;
        self.mode != Mode::Push
            || !(self.is_there(instance, chunk)
                || self.guests[instance as usize].sent.contains(chunk))
    }

    /// Notes that an instance begins to send a chunk.
    pub fn note_sent(&mut self, request: &Request) {
        if self.mode != Mode::Push {
            return;
        }
        let guest = &mut self.guests[request.instance as usize];
        guest.sent.insert(request.chunk);
        if let Entry::Vacant(entry) = guest.coming.entry(request.chunk) {
            entry.insert(Reason::Push);
            guest.unread.insert(request.chunk);
            guest.boot.prefetched += 1;
            guest.boot.pushed += 1;
        }
    }
}
