//! The state of a simulated site: its instances, and the ports of their links.

use std::collections::{BTreeMap, HashMap};

use diffcache_prefetch::tree::Visit;
use diffcache_prefetch::Sequences;
use diffcache_prefetch::{Chunk, ChunkSet, Learner, Profile, Queue, Reader, Referrals, Reply};

use super::ports::{Agenda, Happening, Instance, Ports, Request};
use super::report::{Boot, Distinct, Event, Requests};
use super::scenario::{Mode, Scenario};

/// Why a chunk is on its way to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Demand,
    Prefetch,
}

/// One instance: what it has, what it waits for, and how far its boot is.
pub struct Guest {
    pub have: ChunkSet,
    pub coming: HashMap<Chunk, Reason>,
    /// Prefetched, and not read yet.
    pub unread: ChunkSet,
    pub next_read: usize,
    /// Chunks that the current read waits for.
    pub missing: ChunkSet,
    pub missing_count: usize,
    pub reader: Reader,
    pub queue: Queue,
    pub sequences: Sequences,
    pub boot: Boot,
}

impl Guest {
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            have: ChunkSet::default(),
            coming: HashMap::new(),
            unread: ChunkSet::default(),
            next_read: 0,
            missing: ChunkSet::default(),
            missing_count: 0,
            reader: Reader::default(),
            queue: Queue::new(scenario.policy.in_flight),
            sequences: Sequences::new(scenario.chunks(), scenario.policy.read_ahead),
            boot: Boot::default(),
        }
    }

    /// Queues what to prefetch after an access.
    pub fn plan_prefetches(&mut self, chunk: Chunk, miss: bool, is_known: bool, reply: Reply) {
        self.queue
            .add_sequence(self.sequences.read(chunk, is_known));
        self.queue.add_hints(reply.hints);
        if miss {
            self.queue.stop();
        }
    }
}

/// What was counted.
#[derive(Default)]
pub struct Tally {
    pub read: Distinct,
    pub visit: Visit,
    pub accesses: u64,
    pub requests: BTreeMap<Chunk, Requests>,
}

/// All instances, homes and ports.
pub struct Site<'a> {
    pub scenario: &'a Scenario,
    pub mode: Mode,
    pub agenda: Agenda,
    pub guests: Vec<Guest>,
    pub ports: Ports,
    /// Requests that wait at a chunk's home until it is there.
    pub arriving: HashMap<Chunk, Vec<Request>>,
    pub referrals: Referrals,
    /// Requests at an instance that has not got the chunk yet.
    pub waiting: HashMap<(Instance, Chunk), Vec<Request>>,
    pub learner: Learner,
    pub tally: Tally,
    pub events: &'a mut dyn FnMut(Event),
}

impl<'a> Site<'a> {
    /// A site on which no instance has started.
    pub fn new(
        scenario: &'a Scenario,
        mode: Mode,
        known: Profile,
        events: &'a mut dyn FnMut(Event),
    ) -> Self {
        let count = scenario.instances.len();
        Self {
            scenario,
            mode,
            agenda: Agenda::default(),
            guests: (0..count).map(|_| Guest::new(scenario)).collect(),
            ports: Ports::new(count),
            arriving: HashMap::new(),
            referrals: Referrals::new(scenario.fan_out),
            waiting: HashMap::new(),
            learner: Learner::new(scenario.chunks(), scenario.least(), known),
            tally: Tally::default(),
            events,
        }
    }

    pub fn home_of(&self, chunk: Chunk) -> Instance {
        self.scenario.home_of(chunk)
    }

    pub fn is_there(&self, instance: Instance, chunk: Chunk) -> bool {
        is_present(
            self.scenario,
            self.mode,
            instance,
            chunk,
            &self.guests[instance as usize].have,
        )
    }

    pub fn is_coming(&self, instance: Instance, chunk: Chunk) -> bool {
        self.guests[instance as usize].coming.contains_key(&chunk)
            || (self.home_of(chunk) == instance && self.arriving.contains_key(&chunk))
    }

    /// Adds a request to the port of an instance, or of the repository (none).
    pub fn enter_port(&mut self, now: u64, port: Option<Instance>, mut request: Request) {
        request.arrival = now;
        if self.ports.get(port).add(request) {
            self.agenda.add(now, Happening::Free(port));
        }
    }
}

/// Whether an instance has a chunk: it was delivered, or was there from the start.
pub fn is_present(
    scenario: &Scenario,
    mode: Mode,
    instance: Instance,
    chunk: Chunk,
    have: &ChunkSet,
) -> bool {
    let own = scenario.home_of(chunk) == instance;
    mode == Mode::Local || (scenario.striped && own) || have.contains(chunk)
}
