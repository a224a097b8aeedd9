//! Clients of NBD on a unix socket.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use diffcache_base::locks::Unpoisoned;
use diffcache_nbd::negotiation::{self, Exports};
use diffcache_nbd::server::transmit;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::exports::{CachedVolume, Volumes};

/// Clients at the same time; others are turned away.
const MAX_CLIENTS: u64 = 4096;
/// Connections to one export at the same time: a guest has one, a copy of a volume up to 16.
const MAX_OF_EXPORT: usize = 64;
/// Connections that have not chosen an export yet.
const MAX_CHOOSING: usize = 256;
/// A client that does not choose an export within this time is disconnected.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often a client that waits is looked at, which may have given up.
const LOOK: Duration = Duration::from_secs(1);
/// Time until it is tried again to accept clients.
const AGAIN: Duration = Duration::from_millis(100);

/// A client that has chosen an export.
struct Chosen {
    export: String,
    stream: UnixStream,
    /// Whether it is not served before others have left.
    waits: bool,
}

impl Chosen {
    /// Whether it has ended, while requests of it are under way.
    fn is_leaving(&self) -> bool {
        !self.waits && has_ended(&self.stream)
    }
}

/// The clients that have chosen an export.
///
/// An export serves no new client while one that has ended, by itself or by a
/// [disconnection](Self::disconnect), has requests under way: the new one may repeat them and write
/// something newer, which they would replace. Clients side by side see to that themselves.
#[derive(Default)]
pub struct Clients {
    last: AtomicU64,
    count: AtomicU64,
    chosen: Mutex<HashMap<u64, Chosen>>,
    /// A client is served to its end.
    left: Condvar,
    /// Those that have not, by their age.
    choosing: Mutex<BTreeMap<u64, UnixStream>>,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Chosen>> {
        self.chosen.lock().unpoisoned()
    }

    fn choosing(&self) -> MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        self.choosing.lock().unpoisoned()
    }

    /// Enters a connection until it has chosen, and returns its number. The oldest gives way if
    /// there are too many: a client that opens many and chooses nothing keeps no other away.
    fn begin_choosing(&self, stream: &UnixStream) -> io::Result<u64> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut choosing = self.choosing();
        choosing.insert(number, stream.try_clone()?);
        if choosing.len() > MAX_CHOOSING {
            if let Some((_, oldest)) = choosing.pop_first() {
                // Fails if the client has left.
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        Ok(number)
    }

    /// Enters a connection to an export, unless that has too many, and waits until all that ended
    /// have left it. `false`: it has ended itself before.
    fn enter(&self, number: u64, export: &str, stream: &UnixStream) -> io::Result<bool> {
        self.choosing().remove(&number);
        let client = Chosen {
            export: export.to_owned(),
            stream: stream.try_clone()?,
            waits: true,
        };
        let mut chosen = self.lock();
        chosen.remove(&number);
        let of_export = chosen.values().filter(|other| other.export == export);
        if of_export.count() >= MAX_OF_EXPORT {
            let why = format!("there are too many connections to export {export}");
            return Err(io::Error::other(why));
        }
        chosen.insert(number, client);
        let is_waited_for = |other: &Chosen| other.export == export && other.is_leaving();
        while chosen.values().any(is_waited_for) {
            if has_ended(stream) {
                return Ok(false);
            }
            let waited = self.left.wait_timeout(chosen, LOOK);
            (chosen, _) = waited.unpoisoned();
        }
        if let Some(client) = chosen.get_mut(&number) {
            client.waits = false;
        }
        Ok(true)
    }

    /// Ends the connections to an export.
    pub fn disconnect(&self, export: &str) {
        for client in self.lock().values() {
            if client.export == export {
                // Fails if the client has left.
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Of each export with some, how many clients have ended whose requests are under way.
    #[must_use]
    pub fn leaving(&self) -> HashMap<String, u64> {
        let mut leaving = HashMap::new();
        for client in self.lock().values().filter(|client| client.is_leaving()) {
            *leaving.entry(client.export.clone()).or_default() += 1;
        }
        leaving
    }

    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.lock().values().filter(|client| client.waits).count()
    }

    fn serve(&self, stream: UnixStream, volumes: &Volumes) -> io::Result<()> {
        let client = Client {
            clients: self,
            number: self.begin_choosing(&stream)?,
            stream: &stream,
            volumes,
        };
        stream.set_read_timeout(Some(HANDSHAKE))?;
        stream.set_write_timeout(Some(HANDSHAKE))?;
        let Some(export) = negotiation::offer(&mut &stream, &client)? else {
            return Ok(());
        };
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        transmit(stream.try_clone()?, export)
    }
}

/// A client, until it has left.
struct Client<'a> {
    clients: &'a Clients,
    number: u64,
    stream: &'a UnixStream,
    volumes: &'a Volumes,
}

impl Exports for Client<'_> {
    type Export = CachedVolume;

    fn find(&self, name: &str) -> io::Result<Option<Arc<CachedVolume>>> {
        if self.volumes.find(name).is_none() {
            return Ok(None);
        }
        match self.clients.enter(self.number, name, self.stream)? {
            true => Ok(self.volumes.find(name)),
            false => Ok(None),
        }
    }
}

impl Drop for Client<'_> {
    fn drop(&mut self) {
        self.clients.choosing().remove(&self.number);
        self.clients.lock().remove(&self.number);
        self.clients.left.notify_all();
    }
}

/// Whether the other side has closed a connection, or this side has shut it down.
fn has_ended(stream: &UnixStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // What cannot be looked at is waited for, and looked at again.
    let found = poll(&mut polled, Some(&at_once));
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    found.is_err() || polled[0].revents().intersects(ended)
}

/// Serves clients until the process ends.
pub fn serve(listener: &UnixListener, volumes: &Arc<Volumes>, clients: &Arc<Clients>) {
    for stream in listener.incoming() {
        let accepted = stream.and_then(|stream| start(stream, volumes, clients));
        if let Err(error) = accepted {
            // Out of descriptors, of threads, or of memory: others may free some.
            log::warn!("Could not serve a client: {error}");
            std::thread::sleep(AGAIN);
        }
    }
}

/// Serves a client in a thread of its own.
pub(crate) fn start(
    stream: UnixStream,
    volumes: &Arc<Volumes>,
    clients: &Arc<Clients>,
) -> io::Result<()> {
    let (volumes, clients) = (volumes.clone(), clients.clone());
    if clients.count.load(Ordering::Relaxed) >= MAX_CLIENTS {
        return Err(io::Error::other("there are too many"));
    }
    clients.count.fetch_add(1, Ordering::Relaxed);
    let counted = clients.clone();
    let work = move || {
        if let Err(error) = clients.serve(stream, &volumes) {
            log::warn!("A client was disconnected: {error}");
        }
        clients.count.fetch_sub(1, Ordering::Relaxed);
    };
    let started = std::thread::Builder::new().spawn(work);
    if started.is_err() {
        counted.count.fetch_sub(1, Ordering::Relaxed);
    }
    started.map(drop)
}
