//! The simulation: instances, homes and ports, event by event.

use std::collections::btree_map::Entry;

use diffcache_prefetch::{Chunk, Profile, Queue, Reply};

use super::ports::{Happening, Instance, Request};
use super::report::{Event, Report, Requests};
use super::scenario::{half_ns, sending_ns, Mode, ReplayError, Scenario, Trace, MAX_NS};
use super::site::{is_present, Guest, Reason, Site};

/// Runs one mode from what is known of the image.
pub(super) fn run(
    scenario: &Scenario,
    mode: Mode,
    known: Profile,
    events: &mut dyn FnMut(Event),
) -> Result<Report, ReplayError> {
    let mut site = Site::new(scenario, mode, known, events);
    site.start();
    while let Some((now, happening)) = site.agenda.take() {
        if now > MAX_NS {
            return Err(ReplayError::TooLong);
        }
        site.handle(now, happening);
    }
    Ok(site.report())
}

impl Site<'_> {
    /// Lets every instance start: with its first read, or with what has to be there before.
    fn start(&mut self) {
        for (number, trace) in self.scenario.instances.iter().enumerate() {
            let instance = number as Instance;
            match self.mode {
                Mode::Broadcast => {
                    for chunk in 0..self.scenario.chunks() {
                        self.prefetch(trace.start_ns, instance, chunk, 0);
                        self.wait_for(instance, chunk);
                    }
                }
                Mode::Oracle => self.ask_in_order(instance),
                _ => {}
            }
            if self.guests[number].missing_count == 0 {
                self.schedule_read(trace.start_ns, instance);
            }
        }
    }

    /// Asks for what an instance will read, in the order of use.
    fn ask_in_order(&mut self, instance: Instance) {
        let trace = &self.scenario.instances[instance as usize];
        let mut rank = 0;
        for read in &trace.reads {
            for chunk in self.scenario.chunks_of(read) {
                if !self.is_there(instance, chunk) && !self.is_coming(instance, chunk) {
                    rank += 1;
                    self.prefetch(trace.start_ns, instance, chunk, rank);
                }
            }
        }
    }

    fn handle(&mut self, now: u64, happening: Happening) {
        match happening {
            Happening::Delivery(instance, chunk) => self.deliver(now, instance, chunk),
            Happening::Issue(instance) => self.issue(now, instance),
            Happening::AtHome(request) => self.arrive_at_home(now, request),
            Happening::AtRepository(request) => self.enter_port(now, None, request),
            Happening::AtOther(other, request) => self.arrive_at_other(now, other, request),
            Happening::Free(port) => self.serve(now, port),
        }
    }

    fn wait_for(&mut self, instance: Instance, chunk: Chunk) {
        if self.is_there(instance, chunk) {
            return;
        }
        let guest = &mut self.guests[instance as usize];
        if guest.missing.insert(chunk) {
            guest.missing_count += 1;
        }
    }

    /// Plans the next read of an instance whose last one completed, if there is one.
    fn schedule_read(&mut self, now: u64, instance: Instance) {
        let trace = &self.scenario.instances[instance as usize];
        let guest = &mut self.guests[instance as usize];
        match trace.reads.get(guest.next_read) {
            Some(read) => self.agenda.add(
                now.saturating_add(read.think_ns),
                Happening::Issue(instance),
            ),
            None => {
                guest.boot.boot_ns = now - trace.start_ns;
                guest.boot.stall_ns = guest.boot.boot_ns.saturating_sub(trace.think_ns());
            }
        }
    }

    fn issue(&mut self, now: u64, instance: Instance) {
        let trace = &self.scenario.instances[instance as usize];
        let read = trace.reads[self.guests[instance as usize].next_read];
        self.guests[instance as usize].next_read += 1;
        let mut is_known = false;
        for chunk in self.scenario.chunks_of(&read) {
            is_known = self.access(now, instance, chunk);
        }
        if !is_known {
            self.plan_rest(instance, read.offset + (read.length - 1));
        }
        if self.guests[instance as usize].missing_count == 0 {
            self.schedule_read(now, instance);
        }
        self.fill_links(now, instance);
    }

    /// Queues the rest of the file that a read ended in.
    fn plan_rest(&mut self, instance: Instance, byte: u64) {
        let (scenario, most) = (self.scenario, self.scenario.policy.rest);
        if most == 0 || !self.mode.learns() {
            return;
        }
        let rest = scenario.files.rest(byte, scenario.chunk_bytes, most);
        self.guests[instance as usize].queue.add_in_order(rest);
    }

    /// Lets an instance access a chunk; returns whether it had requested the chunk, or got a hint of it, before.
    fn access(&mut self, now: u64, instance: Instance, chunk: Chunk) -> bool {
        self.tally.accesses += 1;
        self.tally.read.add(chunk, self.scenario.bytes_of(chunk));
        let there = self.is_there(instance, chunk);
        let guest = &mut self.guests[instance as usize];
        if guest.unread.remove(chunk) {
            guest.boot.used += 1;
        }
        let reason = guest.coming.get(&chunk);
        let miss = !there && matches!(reason, None | Some(Reason::Demand));
        let is_known = guest.reader.was_given(chunk);
        let reply = self.learn(now, instance, chunk, miss);
        if miss {
            self.guests[instance as usize].boot.misses += 1;
            if !self.is_coming(instance, chunk) {
                self.request(now, instance, chunk, Reason::Demand, 0);
            }
        }
        self.wait_for(instance, chunk);
        (self.events)(Event {
            time_ns: now,
            instance,
            chunk,
            miss,
            hints: reply.hints.iter().map(|hint| hint.chunk).collect(),
            visit: reply.visit,
        });
        if self.mode.learns() {
            self.guests[instance as usize].plan_prefetches(chunk, miss, is_known, reply);
        }
        is_known
    }

    /// Counts an access, and asks for hints if it is a miss.
    fn learn(&mut self, now: u64, instance: Instance, chunk: Chunk, miss: bool) -> Reply {
        let since = now - self.scenario.instances[instance as usize].start_ns;
        let Guest { reader, have, .. } = &mut self.guests[instance as usize];
        if !(miss && self.mode.learns()) {
            self.learner.read(reader, chunk, since);
            return Reply::default();
        }
        let (scenario, mode) = (self.scenario, self.mode);
        let reply = self.learner.miss(reader, chunk, since, |chunk| {
            is_present(scenario, mode, instance, chunk, have)
        });
        self.tally.visit.remote += reply.visit.remote;
        self.tally.visit.cached += reply.visit.cached;
        self.tally.visit.skipped += reply.visit.skipped;
        reply
    }

    /// Requests what the instance's queue lets be in flight.
    fn fill_links(&mut self, now: u64, instance: Instance) {
        loop {
            let mut queue =
                std::mem::replace(&mut self.guests[instance as usize].queue, Queue::new(0));
            let next = queue
                .next(|chunk| self.is_there(instance, chunk) || self.is_coming(instance, chunk));
            self.guests[instance as usize].queue = queue;
            let Some(chunk) = next else {
                return;
            };
            self.prefetch(now, instance, chunk, 0);
        }
    }

    /// Requests a chunk that is not read yet, unless it is there.
    fn prefetch(&mut self, now: u64, instance: Instance, chunk: Chunk, rank: u32) {
        if self.is_there(instance, chunk) {
            return;
        }
        let guest = &mut self.guests[instance as usize];
        guest.boot.prefetched += 1;
        guest.unread.insert(chunk);
        self.request(now, instance, chunk, Reason::Prefetch, rank);
    }

    fn request(&mut self, now: u64, instance: Instance, chunk: Chunk, reason: Reason, rank: u32) {
        self.note_request(now, chunk);
        self.guests[instance as usize].coming.insert(chunk, reason);
        let request = Request {
            arrival: now,
            rank,
            instance,
            chunk,
        };
        if self.home_of(chunk) == instance {
            self.fetch_home(now, request);
        } else {
            let at = now.saturating_add(half_ns(self.scenario.links.lan_rtt_ms));
            self.agenda.add(at, Happening::AtHome(request));
        }
    }

    fn note_request(&mut self, now: u64, chunk: Chunk) {
        match self.tally.requests.entry(chunk) {
            Entry::Vacant(entry) => {
                entry.insert(Requests {
                    chunk,
                    count: 1,
                    first_ns: now,
                    total_ns: u128::from(now),
                    last_ns: now,
                });
            }
            Entry::Occupied(mut entry) => {
                let asked = entry.get_mut();
                asked.count += 1;
                asked.first_ns = asked.first_ns.min(now);
                asked.total_ns += u128::from(now);
                asked.last_ns = asked.last_ns.max(now);
            }
        }
    }

    /// Has the home fetch its chunk over the WAN, unless it is on its way.
    fn fetch_home(&mut self, now: u64, request: Request) {
        if self.arriving.contains_key(&request.chunk) {
            return;
        }
        self.arriving.insert(request.chunk, Vec::new());
        let at = now.saturating_add(half_ns(self.scenario.links.wan_rtt_ms));
        self.agenda.add(at, Happening::AtRepository(request));
    }

    fn arrive_at_home(&mut self, now: u64, request: Request) {
        let home = self.home_of(request.chunk);
        if self.is_there(home, request.chunk) {
            self.answer(now, home, request);
            return;
        }
        self.fetch_home(now, request);
        if let Some(waiting) = self.arriving.get_mut(&request.chunk) {
            waiting.push(request);
        }
    }

    /// Sends the next chunk from a port that is free.
    fn serve(&mut self, now: u64, port: Option<Instance>) {
        let Some(request) = self.ports.get(port).take() else {
            return;
        };
        let links = self.scenario.links;
        let bytes = self.scenario.bytes_of(request.chunk);
        let (mbps, rtt, receiver) = match port {
            Some(_) => (links.lan_mbps, links.lan_rtt_ms, request.instance),
            None => (
                links.wan_mbps,
                links.wan_rtt_ms,
                self.home_of(request.chunk),
            ),
        };
        self.ports.get(port).bytes += bytes;
        let sent = now.saturating_add(sending_ns(bytes, mbps));
        self.agenda.add(sent, Happening::Free(port));
        self.agenda.add(
            sent.saturating_add(half_ns(rtt)),
            Happening::Delivery(receiver, request.chunk),
        );
    }

    fn deliver(&mut self, now: u64, instance: Instance, chunk: Chunk) {
        let guest = &mut self.guests[instance as usize];
        guest.have.insert(chunk);
        if guest.coming.remove(&chunk) == Some(Reason::Prefetch) {
            guest.queue.done();
        }
        if guest.missing.remove(chunk) {
            guest.missing_count -= 1;
            if guest.missing_count == 0 {
                guest.queue.resume();
                self.schedule_read(now, instance);
            }
        }
        if self.home_of(chunk) == instance {
            self.serve_waiting(now, instance, chunk);
        } else {
            self.serve_referred(now, instance, chunk);
        }
        self.fill_links(now, instance);
    }

    /// Lets a home serve the requests that waited for a chunk.
    fn serve_waiting(&mut self, now: u64, home: Instance, chunk: Chunk) {
        for request in self.arriving.remove(&chunk).unwrap_or_default() {
            self.answer(now, home, request);
        }
    }

    fn report(self) -> Report {
        let unread = self.guests.iter().flat_map(|guest| guest.unread.iter());
        let thinks = self.scenario.instances.iter().map(Trace::think_ns);
        let crossing = if self.scenario.striped {
            0
        } else {
            sending_ns(self.tally.read.bytes, self.scenario.links.wan_mbps)
        };
        Report {
            wasted_bytes: unread.map(|chunk| self.scenario.bytes_of(chunk)).sum(),
            wan_bytes: self.ports.wan.bytes,
            lan_bytes: self.ports.lan.iter().map(|port| port.bytes).sum(),
            unique_bytes: self.tally.read.bytes,
            bound_ns: thinks.max().unwrap_or(0).max(crossing),
            visit: self.tally.visit,
            accesses: self.tally.accesses,
            requests: self.tally.requests.into_values().collect(),
            profile: self.learner.profile().clone(),
            boots: self.guests.iter().map(|guest| guest.boot).collect(),
        }
    }
}
