//! The serving side: accepts connections, checks requests, sends objects.
//!
//! One thread per connection, and a bounded number of them: see [`crate::serving::admission`]. Reading a request and sending a response have time limits, so
//! a peer that dawdles loses its connection, not others theirs. Bodies go from the page cache to the socket by sendfile(2), or are encrypted on the way.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use diffcache_base::locks::Unpoisoned;

use crate::counters::Event;
use crate::serving::admission::{Connections, Place};
use crate::serving::connection::Connection;
use crate::serving::service::Service;
use crate::serving::sigpipe;

const THREAD_STACK: usize = 256 << 10;

/// A running server.
pub struct Server {
    /// The address it listens on.
    pub address: SocketAddr,
    service: Arc<Service>,
    listener: Arc<TcpListener>,
    connections: Arc<Connections>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Starts to serve on a bound listener.
    pub fn start(service: Arc<Service>, listener: TcpListener) -> io::Result<Server> {
        let address = listener.local_addr()?;
        let listener = Arc::new(listener);
        let connections = Arc::new(Connections::new(service.limits.room));
        let acceptor = {
            let (service, listener, connections) =
                (service.clone(), listener.clone(), connections.clone());
            std::thread::Builder::new()
                .name("dataplane-accept".to_owned())
                .spawn(move || accept_all(&service, &listener, &connections))?
        };
        Ok(Server {
            address,
            service,
            listener,
            connections,
            acceptor: Mutex::new(Some(acceptor)),
        })
    }

    /// Open connections.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Ends the connections that wait for a request, so that others are judged anew.
    pub fn end_idle(&self) {
        self.connections.end_all_idle();
    }

    /// Ends every connection and waits for the threads; the gate must be closed before.
    pub fn stop(&self) {
        self.service.shaper.close();
        self.service.objects.fail_flights();
        // On Linux this ends a blocked accept.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        if let Some(acceptor) = self.acceptor.lock().unpoisoned().take() {
            let _ = acceptor.join();
        }
        self.connections.end_all();
    }
}

fn accept_all(service: &Arc<Service>, listener: &TcpListener, connections: &Arc<Connections>) {
    while !service.gate.is_closed() {
        connections.settle();
        match listener.accept() {
            Ok((stream, _)) if !service.gate.is_closed() => {
                start_connection(service, connections, stream)
            }
            Ok(_) => return,
            // Out of descriptors or memory, or the peer went away already: others may have better luck in a moment.
            Err(_) => drop(service.gate.sleep(Duration::from_millis(20))),
        }
    }
}

fn start_connection(service: &Arc<Service>, connections: &Arc<Connections>, stream: TcpStream) {
    service.counters.count(Event::Connection);
    let stream = Arc::new(stream);
    let number = connections.add(stream.clone());
    let place = Place::of(connections.clone(), number);
    let service = service.clone();
    // Without a thread the place is free again at once.
    let _ = std::thread::Builder::new()
        .name("dataplane-serve".to_owned())
        .stack_size(THREAD_STACK)
        .spawn(move || {
            sigpipe::block();
            let mut connection = Connection::new(&service, place.connections(), number, stream);
            // An error here means that the peer has gone; it cannot get an answer any more.
            let _ = connection.serve();
        });
}
