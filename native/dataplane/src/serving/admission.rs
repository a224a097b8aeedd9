//! Which connections a server has, and which of them end when there are too many.
//!
//! A connection that has not sent an accepted request yet proves nothing: there is room for a number of them beside those that are served, and each
//! new one takes the place of another if that is used up. The oldest of the address with the most goes, so that a host that only opens connections, or
//! sends a byte at a time, takes places from itself. What is proven is served by turns: idle connections make room, busy ones do not.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

/// How often a thread that waits looks around.
pub const WAIT_STEP: Duration = Duration::from_millis(100);

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Served at the same time.
    pub proven: usize,
    /// Served at the same time of one address.
    pub per_address: usize,
    /// That have not sent an accepted request yet.
    pub unproven: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No request of it was accepted yet.
    Unproven,
    /// It got the request to end, and is ending.
    Ending,
    /// It waits for its next request.
    Idle,
    /// A request of it is served.
    Busy,
}

impl State {
    fn is_proven(self) -> bool {
        matches!(self, State::Idle | State::Busy)
    }
}

struct Open {
    stream: Arc<TcpStream>,
    address: Option<IpAddr>,
    state: State,
    since: Instant,
}

impl Open {
    fn end(&mut self) {
        self.state = State::Ending;
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

#[derive(Default)]
struct Table {
    open: HashMap<u64, Open>,
    next: u64,
}

impl Table {
    fn count(&self, wanted: impl Fn(&Open) -> bool) -> usize {
        self.open.values().filter(|open| wanted(open)).count()
    }

    /// Ends the connection that has been idle longest, of one address or of all; false if none is idle.
    fn end_idle(&mut self, address: Option<Option<IpAddr>>) -> bool {
        let idle = self.open.values_mut().filter(|open| {
            open.state == State::Idle && address.is_none_or(|wanted| wanted == open.address)
        });
        let oldest = idle.min_by_key(|open| open.since);
        oldest.map(Open::end).is_some()
    }

    /// Ends the oldest unproven connection of the address that has the most.
    fn end_unproven(&mut self) {
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        let unproven = |open: &&Open| open.state == State::Unproven;
        for open in self.open.values().filter(unproven) {
            *counts.entry(open.address).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or_default();
        let oldest = self
            .open
            .values_mut()
            .filter(|open| open.state == State::Unproven && counts[&open.address] == most)
            .min_by_key(|open| open.since);
        if let Some(open) = oldest {
            open.end();
        }
    }
}

/// The connections of a server.
pub struct Connections {
    room: Room,
    table: Mutex<Table>,
    freed: Condvar,
}

impl Connections {
    /// No connections yet.
    pub fn new(room: Room) -> Connections {
        Connections {
            room,
            table: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Open connections.
    pub fn len(&self) -> usize {
        self.table.lock().unpoisoned().open.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a new connection in, in place of another one if there are too many; returns its number.
    pub fn add(&self, stream: Arc<TcpStream>) -> u64 {
        let address = stream.peer_addr().ok().map(|address| address.ip());
        let mut table = self.table.lock().unpoisoned();
        if table.count(|open| open.state == State::Unproven) >= self.room.unproven {
            table.end_unproven();
        }
        table.next += 1;
        let number = table.next;
        let open = Open {
            stream,
            address,
            state: State::Unproven,
            since: Instant::now(),
        };
        table.open.insert(number, open);
        number
    }

    /// Waits a moment if connections that were ended are still there, so that their number is bounded too.
    pub fn settle(&self) {
        let table = self.table.lock().unpoisoned();
        let most = self.room.proven + 2 * self.room.unproven;
        if table.open.len() >= most {
            let waited = self.freed.wait_timeout(table, WAIT_STEP);
            drop(waited.unpoisoned());
        }
    }

    /// A request of a connection was accepted: it is served from now on if there is a place, or one becomes free in time.
    pub fn prove(&self, number: u64, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut table = self.table.lock().unpoisoned();
        loop {
            let Some(open) = table.open.get(&number) else {
                return false;
            };
            match open.state {
                State::Unproven => {}
                State::Ending => return false,
                State::Idle | State::Busy => {
                    set_state(&mut table, number, State::Busy);
                    return true;
                }
            }
            let address = open.address;
            let of_address = |open: &Open| open.state.is_proven() && open.address == address;
            let fits = if table.count(of_address) >= self.room.per_address {
                table.end_idle(Some(address))
            } else if table.count(|open| open.state.is_proven()) >= self.room.proven {
                table.end_idle(None)
            } else {
                true
            };
            if fits {
                set_state(&mut table, number, State::Busy);
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.freed.wait_timeout(table, left.min(WAIT_STEP));
            table = waited.unpoisoned().0;
        }
    }

    /// A served connection waits for its next request, which makes room if others need it.
    pub fn rest(&self, number: u64) {
        let mut table = self.table.lock().unpoisoned();
        let proven = table
            .open
            .get(&number)
            .is_some_and(|open| open.state == State::Busy);
        if proven {
            set_state(&mut table, number, State::Idle);
            self.freed.notify_all();
        }
    }

    /// Whether a request of the connection was accepted.
    pub fn is_proven(&self, number: u64) -> bool {
        self.table
            .lock()
            .unpoisoned()
            .open
            .get(&number)
            .is_some_and(|open| open.state.is_proven())
    }

    /// A connection has ended.
    pub fn remove(&self, number: u64) {
        self.table.lock().unpoisoned().open.remove(&number);
        self.freed.notify_all();
    }

    /// Ends the connections that wait for a request.
    pub fn end_all_idle(&self) {
        let mut table = self.table.lock().unpoisoned();
        while table.end_idle(None) {}
    }

    /// Ends all connections and waits until they have.
    pub fn end_all(&self) {
        self.freed.notify_all();
        let mut table = self.table.lock().unpoisoned();
        while !table.open.is_empty() {
            table.open.values_mut().for_each(Open::end);
            let waited = self.freed.wait_timeout(table, WAIT_STEP);
            table = waited.unpoisoned().0;
        }
    }
}

/// The place of a connection, which is free again when its thread ends, whatever ends it.
pub struct Place {
    connections: Arc<Connections>,
    number: u64,
}

impl Place {
    /// The place that a connection was given.
    pub fn of(connections: Arc<Connections>, number: u64) -> Place {
        Place {
            connections,
            number,
        }
    }

    /// All connections.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.remove(self.number);
    }
}

fn set_state(table: &mut Table, number: u64, state: State) {
    if let Some(open) = table.open.get_mut(&number) {
        (open.state, open.since) = (state, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Both ends of connections from given addresses.
    struct Network {
        listener: TcpListener,
        theirs: Vec<TcpStream>,
    }

    impl Network {
        fn new() -> Network {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let theirs = Vec::new();
            Network { listener, theirs }
        }

        fn connect(&mut self) -> Arc<TcpStream> {
            let address = self.listener.local_addr().unwrap();
            self.theirs.push(TcpStream::connect(address).unwrap());
            Arc::new(self.listener.accept().unwrap().0)
        }
    }

    fn room() -> Room {
        Room {
            proven: 2,
            per_address: 2,
            unproven: 3,
        }
    }

    fn ended(connections: &Connections, number: u64) -> bool {
        connections.table.lock().unpoisoned().open[&number].state == State::Ending
    }

    fn claim_address(connections: &Connections, number: u64, last: u8) {
        let mut table = connections.table.lock().unpoisoned();
        table.open.get_mut(&number).unwrap().address = Some([192, 0, 2, last].into());
    }

    #[test]
    fn the_oldest_unproven_one_of_the_greediest_address_makes_room() {
        let (mut network, connections) = (Network::new(), Connections::new(room()));
        let mut add = |last| {
            let number = connections.add(network.connect());
            claim_address(&connections, number, last);
            number
        };
        let honest = add(1);
        let greedy = [add(2), add(2)];
        let another = add(3);
        assert!(ended(&connections, greedy[0]));
        assert!(![honest, greedy[1], another]
            .into_iter()
            .any(|number| ended(&connections, number)));
        let next = connections.prove(honest, Duration::ZERO);
        assert!(next && connections.is_proven(honest));
        assert!(!connections.prove(greedy[0], Duration::ZERO));
        let mut end = [0; 1];
        assert_eq!(network.theirs[1].read(&mut end).unwrap(), 0);
    }

    #[test]
    fn busy_ones_stay_and_idle_ones_make_room() {
        let (mut network, connections) = (Network::new(), Connections::new(room()));
        let mut add = || connections.add(network.connect());
        let (first, second, third) = (add(), add(), add());
        assert!(connections.prove(first, Duration::ZERO));
        assert!(connections.prove(second, Duration::ZERO));
        assert!(!connections.prove(third, Duration::ZERO));
        connections.rest(second);
        assert!(connections.prove(third, Duration::ZERO));
        assert!(ended(&connections, second) && !ended(&connections, first));
        connections.rest(first);
        connections.end_all_idle();
        assert!(ended(&connections, first) && !ended(&connections, third));
    }

    /// Regression: after a panic the connection counted as open, and the end of the server waited for it.
    #[test]
    fn a_thread_that_panics_frees_its_place_and_the_end_does_not_wait_for_it() {
        let mut network = Network::new();
        let connections = Arc::new(Connections::new(room()));
        let number = connections.add(network.connect());
        let place = Place::of(connections.clone(), number);
        let thread = std::thread::spawn(move || {
            assert_eq!(place.connections().len(), 1);
            panic!("made to");
        });
        assert!(thread.join().is_err());
        assert_eq!(connections.len(), 0);
        connections.end_all();
    }

    #[test]
    fn an_address_has_a_share() {
        let wide = Room {
            proven: 10,
            ..room()
        };
        let (mut network, connections) = (Network::new(), Connections::new(wide));
        let mut add = |last| {
            let number = connections.add(network.connect());
            claim_address(&connections, number, last);
            connections.prove(number, Duration::ZERO)
        };
        assert!(add(1) && add(1));
        assert!(!add(1));
        assert!(add(2));
    }
}
