//! The end of the process, within a bounded time.
//!
//! Dirty blocks are written back while clients are served, as long as that gets on: those of an
//! origin that hangs stay on the device, where they are durable. Then no more requests are begun,
//! those under way are completed, and all is flushed. Clients get no errors. One that reconnects
//! sends again what it has no answer to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_control::remove_socket;
use diffcache_ssdcache::cache::{Cache, Volume};
use nix::sys::signal::{SigSet, Signal};

/// Time to write dirty blocks back, while clients are served.
const DRAIN: Duration = Duration::from_secs(60);
/// An origin to which nothing was written for this time is not waited for. Many large writes to a slow
/// one end at the same time.
const STALLED: Duration = Duration::from_secs(15);
/// Time to complete requests that are under way, and to flush.
const FLUSH: Duration = Duration::from_secs(2);
/// Time to send the answers of completed requests.
const ANSWERS: Duration = Duration::from_millis(50);

/// What requests pass until the end begins.
#[derive(Default)]
pub struct Gate(RwLock<()>);

impl Gate {
    /// Begins a request, which ends with what is returned; waits for ever once the end has begun.
    pub fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unpoisoned()
    }
}

fn signals() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals
}

/// Keeps the signals that [`watch`] waits for from this thread, and from threads that it starts. To
/// be called before there are others.
///
/// # Errors
/// The system refused.
pub fn block() -> io::Result<()> {
    Ok(signals().thread_block()?)
}

/// Ends the process on SIGTERM and SIGINT, with code 0, or with 1 if the device could not be flushed;
/// and removes its sockets.
///
/// # Errors
/// The system refused.
pub fn watch(cache: &Arc<Cache>, gate: &Arc<Gate>, sockets: Vec<PathBuf>) -> io::Result<()> {
    let signals = signals();
    let (cache, gate) = (cache.clone(), gate.clone());
    let wait = move || {
        while signals.wait().is_err() {}
        end(&cache, &gate, &sockets);
    };
    std::thread::Builder::new().spawn(wait).map(drop)
}

fn end(cache: &Arc<Cache>, gate: &Arc<Gate>, sockets: &[PathBuf]) {
    drain(cache);
    let flushed = flush(cache, gate, FLUSH);
    if let Err(error) = &flushed {
        log::error!("Could not flush everything at the end: {error}");
    }
    for volume in cache.volumes() {
        let (name, dirty) = (volume.name(), cache.dirty_blocks(&volume));
        if dirty > 0 {
            log::info!("Volume {name}: {dirty} dirty blocks stay on the cache device");
        }
    }
    std::thread::sleep(ANSWERS);
    // The device's lock is held until the process ends, so that they are not those of the next one.
    for path in sockets {
        remove(path);
    }
    std::process::exit(i32::from(flushed.is_err()))
}

/// Writes dirty blocks back, of all volumes at the same time.
fn drain(cache: &Arc<Cache>) {
    let deadline = Instant::now() + DRAIN;
    let volumes = cache.volumes().into_iter();
    let dirty = volumes.filter(|volume| !volume.is_held() && cache.dirty_blocks(volume) > 0);
    let begun = dirty.filter_map(|volume| {
        let (cache, drained) = (cache.clone(), volume.clone());
        let done = beside(move || cache.write_back_now(&drained)).ok()?;
        Some((volume, done))
    });
    for (volume, done) in begun.collect::<Vec<_>>() {
        if let Some(Err(error)) = wait_while_written(&volume, &done, deadline) {
            log::warn!("Could not write all blocks back at the end: {error}");
        }
    }
}

/// Waits for a result while something is written to the origin of a volume.
fn wait_while_written<T>(volume: &Volume, done: &Receiver<T>, deadline: Instant) -> Option<T> {
    let mut written = volume.origin_bytes_written();
    while Instant::now() < deadline {
        match done.recv_timeout(STALLED) {
            Ok(result) => return Some(result),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let before = std::mem::replace(&mut written, volume.origin_bytes_written());
        if before == written {
            return None;
        }
    }
    None
}

/// Completes requests, for which it waits for a time, and flushes each volume, as far as its origin
/// lets it; dirty blocks are durable then.
///
/// # Errors
/// The device or an origin cannot be flushed.
pub(crate) fn flush(cache: &Arc<Cache>, gate: &Arc<Gate>, requests: Duration) -> io::Result<()> {
    let closed = gate.clone();
    let is_closed = beside(move || {
        // No request passes from now on.
        std::mem::forget(closed.0.write().unpoisoned());
    })?;
    // After this time, requests wait for an origin that hangs; those of others have ended.
    let _ = is_closed.recv_timeout(requests);
    let committed = cache.clone();
    let committed = beside(move || committed.commit_all())?;
    let slow = |what: &str| Err(io::Error::other(format!("{what} takes too long")));
    let committed = committed.recv_timeout(FLUSH);
    committed.unwrap_or_else(|_| slow("the device"))?;
    let deadline = Instant::now() + FLUSH;
    let begun = cache.volumes().into_iter().map(|volume| {
        let (cache, closed) = (cache.clone(), volume.clone());
        Ok((volume, beside(move || cache.close(&closed))?))
    });
    let mut flushed = Ok(());
    for (volume, done) in begun.collect::<io::Result<Vec<_>>>()? {
        let done = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let done = done.unwrap_or_else(|_| slow("its origin"));
        let name = volume.name();
        flushed =
            flushed.and(done.map_err(|error| io::Error::other(format!("volume {name}: {error}"))));
    }
    flushed
}

/// Does something in a thread of its own, which may hang.
fn beside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Receiver<T>> {
    let (send, receive) = channel();
    std::thread::Builder::new().spawn(move || {
        // The requester may have given up.
        let _ = send.send(work());
    })?;
    Ok(receive)
}

fn remove(path: &Path) {
    if let Err(error) = remove_socket(path) {
        let path = path.display();
        log::warn!("Could not remove socket {path}: {error}");
    }
}
