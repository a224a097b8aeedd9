//! Clients of NBD on a unix socket.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::exports::{CachedVolume, Volumes};
use crate::nbd;

/// Clients at the same time; others are turned away.
const MAX_CLIENTS: u64 = 4096;
/// Connections to one export at the same time: a guest has one, a copy of a volume up to 16.
const MAX_OF_EXPORT: usize = 64;
/// Connections that have not chosen an export yet.
const MAX_CHOOSING: usize = 256;
/// A client that does not choose an export within this time is disconnected.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time until it is tried again to accept clients.
const AGAIN: Duration = Duration::from_millis(100);

/// The clients that have chosen an export.
#[derive(Default)]
pub struct Clients {
    last: AtomicU64,
    count: AtomicU64,
    chosen: Mutex<HashMap<u64, (Arc<CachedVolume>, UnixStream)>>,
    /// Those that have not, by their age.
    choosing: Mutex<BTreeMap<u64, UnixStream>>,
}

/// A connection that has not chosen an export.
struct Choosing<'a> {
    clients: &'a Clients,
    number: u64,
}

impl Drop for Choosing<'_> {
    fn drop(&mut self) {
        self.clients.choosing().remove(&self.number);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Arc<CachedVolume>, UnixStream)>> {
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn choosing(&self) -> MutexGuard<'_, BTreeMap<u64, UnixStream>> {
        self.choosing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a connection until it has chosen. The oldest gives way if there are too many: a
    /// client that opens many and chooses nothing keeps no other away.
    fn begin_choosing(&self, stream: &UnixStream) -> io::Result<Choosing<'_>> {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let mut choosing = self.choosing();
        choosing.insert(number, stream.try_clone()?);
        if choosing.len() > MAX_CHOOSING {
            if let Some((_, oldest)) = choosing.pop_first() {
                // Fails if the client has left.
                let _ = oldest.shutdown(Shutdown::Both);
            }
        }
        let clients = self;
        Ok(Choosing { clients, number })
    }

    /// Enters a connection to an export, unless that has too many.
    fn enter(&self, export: &Arc<CachedVolume>, stream: &UnixStream) -> io::Result<u64> {
        let chosen = (export.clone(), stream.try_clone()?);
        let name = export.name();
        let mut all = self.lock();
        let of_export = all.values().filter(|(each, _)| each.name() == name);
        if of_export.count() >= MAX_OF_EXPORT {
            let why = format!("there are too many connections to export {name}");
            return Err(io::Error::other(why));
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        all.insert(number, chosen);
        Ok(number)
    }

    /// Ends the connections to an export.
    pub fn disconnect(&self, export: &str) {
        for (volume, stream) in self.lock().values() {
            if volume.name() == export {
                // Fails if the client has left.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn serve(&self, stream: UnixStream, volumes: &Volumes) -> io::Result<()> {
        let choosing = self.begin_choosing(&stream)?;
        stream.set_read_timeout(Some(HANDSHAKE))?;
        stream.set_write_timeout(Some(HANDSHAKE))?;
        let Some(export) = nbd::negotiate(&mut &stream, volumes)? else {
            return Ok(());
        };
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)?;
        drop(choosing);
        let number = self.enter(&export, &stream)?;
        let result = nbd::transmit(stream, export);
        self.lock().remove(&number);
        result
    }
}

/// Serves clients until the process ends.
pub fn serve(listener: &UnixListener, volumes: Volumes, clients: &Arc<Clients>) {
    let volumes = Arc::new(volumes);
    for stream in listener.incoming() {
        let accepted = stream.and_then(|stream| start(stream, &volumes, clients));
        if let Err(error) = accepted {
            // Out of descriptors, of threads, or of memory: others may free some.
            eprintln!("diffcache-ssdcached: could not serve a client: {error}");
            std::thread::sleep(AGAIN);
        }
    }
}

fn start(stream: UnixStream, volumes: &Arc<Volumes>, clients: &Arc<Clients>) -> io::Result<()> {
    let (volumes, clients) = (volumes.clone(), clients.clone());
    if clients.count.load(Ordering::Relaxed) >= MAX_CLIENTS {
        return Err(io::Error::other("there are too many"));
    }
    clients.count.fetch_add(1, Ordering::Relaxed);
    let counted = clients.clone();
    let work = move || {
        if let Err(error) = clients.serve(stream, &volumes) {
            eprintln!("diffcache-ssdcached: a client was disconnected: {error}");
        }
        clients.count.fetch_sub(1, Ordering::Relaxed);
    };
    let started = std::thread::Builder::new().spawn(work);
    if started.is_err() {
        counted.count.fetch_sub(1, Ordering::Relaxed);
    }
    started.map(drop)
}
