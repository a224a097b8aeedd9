//! What limits transfers: the ports of senders, and the order of events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use diffcache_prefetch::Chunk;

/// Number of an instance.
pub type Instance = u32;

/// A request at a port. The least is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// When it arrived at the port.
    pub arrival: u64,
    /// Place in the order of use, where that is known; else 0.
    pub rank: u32,
    /// The instance that needs the chunk.
    pub instance: Instance,
    /// The chunk.
    pub chunk: Chunk,
}

/// The sending side of one link.
#[derive(Debug, Clone, Default)]
pub struct Port {
    waiting: BinaryHeap<Reverse<Request>>,
    busy: bool,
    serves: bool,
    /// Bytes sent so far.
    pub bytes: u64,
}

impl Port {
    /// Adds a request; returns whether the port has to be started.
    pub fn add(&mut self, request: Request) -> bool {
        self.waiting.push(Reverse(request));
        !std::mem::replace(&mut self.busy, true)
    }

    /// How many requests are waiting or being served.
    pub fn requests(&self) -> usize {
        self.waiting.len() + usize::from(self.serves)
    }

    /// Takes the next request to serve; without one the port becomes idle.
    pub fn take(&mut self) -> Option<Request> {
        let next = self.waiting.pop().map(|Reverse(request)| request);
        self.serves = next.is_some();
        self.busy = self.serves;
        next
    }
}

/// The ports of all links.
pub struct Ports {
    /// Of the repository.
    pub wan: Port,
    /// Of each instance.
    pub lan: Vec<Port>,
}

impl Ports {
    /// Idle ports of as many instances, and of the repository.
    pub fn new(instances: usize) -> Self {
        Self {
            wan: Port::default(),
            lan: vec![Port::default(); instances],
        }
    }

    /// The port of an instance, or of the repository (none).
    pub fn get(&mut self, port: Option<Instance>) -> &mut Port {
        match port {
            Some(instance) => &mut self.lan[instance as usize],
            None => &mut self.wan,
        }
    }
}

/// What happens next. At one time chunks arrive first, then reads are issued, then requests
/// arrive, and only then a port chooses among those that are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A chunk arrives at an instance.
    Delivery(Instance, Chunk),
    /// An instance issues its next read.
    Issue(Instance),
    /// A request arrives at the home of its chunk.
    AtHome(Request),
    /// A request arrives at the repository.
    AtRepository(Request),
    /// A request arrives at an instance that is no home, for what it has or is to get.
    AtOther(Instance, Request),
    /// A port is free: of an instance, or of the repository (none).
    Free(Option<Instance>),
}

/// Events by time.
#[derive(Debug, Clone, Default)]
pub struct Agenda {
    waiting: BinaryHeap<Reverse<(u64, Happening)>>,
}

impl Agenda {
    /// Adds an event.
    pub fn add(&mut self, time: u64, happening: Happening) {
        self.waiting.push(Reverse((time, happening)));
    }

    /// Takes the next event.
    pub fn take(&mut self) -> Option<(u64, Happening)> {
        self.waiting.pop().map(|Reverse(next)| next)
    }
}
