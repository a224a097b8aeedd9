//! The end of the process: requests that are under way are completed, and all is flushed.
//!
//! Clients get no errors. One that reconnects sends again what it has no answer to.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use diffcache_ssdcache::cache::Cache;
use nix::sys::signal::{SigSet, Signal};

use crate::control::remove_socket;

/// Time to send the answers of completed requests.
const ANSWERS: Duration = Duration::from_millis(50);

/// What requests pass until the end begins.
#[derive(Default)]
pub struct Gate(RwLock<()>);

impl Gate {
    /// Begins a request, which ends with what is returned; waits for ever once the end has begun.
    pub fn begin(&self) -> RwLockReadGuard<'_, ()> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
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

/// Ends the process with code 0 on SIGTERM and SIGINT, or with 1 if not all could be flushed, and
/// removes its sockets.
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

fn end(cache: &Cache, gate: &Gate, sockets: &[PathBuf]) {
    let _closed = gate.0.write().unwrap_or_else(PoisonError::into_inner);
    let code = match cache.close() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("diffcache-ssdcached: could not flush everything at the end: {error}");
            1
        }
    };
    std::thread::sleep(ANSWERS);
    // The device's lock is held until the process ends, so that they are not those of the next one.
    for path in sockets {
        remove(path);
    }
    std::process::exit(code)
}

fn remove(path: &Path) {
    if let Err(error) = remove_socket(path) {
        let path = path.display();
        eprintln!("diffcache-ssdcached: could not remove socket {path}: {error}");
    }
}
