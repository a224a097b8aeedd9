//! The end of a plane, as something its threads can wait for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

/// Opens once, when the plane closes; sleeping threads wake at once.
#[derive(Default)]
pub struct Gate {
    closed: AtomicBool,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl Gate {
    /// Notifies all waiters that the plane closes.
    pub fn close(&self) {
        let guard = self.mutex.lock().unpoisoned();
        self.closed.store(true, Ordering::SeqCst);
        drop(guard);
        self.changed.notify_all();
    }

    /// Whether [`Gate::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Sleeps for `time`; returns false, early, if the plane closes.
    pub fn sleep(&self, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut guard = self.mutex.lock().unpoisoned();
        loop {
            if self.is_closed() {
                return false;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            guard = self.changed.wait_timeout(guard, left).unpoisoned().0;
        }
    }
}

/// What may stop a long operation: its caller's handle, or the plane's end.
#[derive(Clone, Default)]
pub struct Cancel(std::sync::Arc<AtomicBool>);

impl Cancel {
    /// Asks the operations that were given this handle to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the other one is a clone of this one.
    pub fn is_same(&self, other: &Cancel) -> bool {
        std::sync::Arc::ptr_eq(&self.0, &other.0)
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_wakes_a_sleeper() {
        let gate = std::sync::Arc::new(Gate::default());
        let sleeper = {
            let gate = gate.clone();
            std::thread::spawn(move || gate.sleep(Duration::from_secs(600)))
        };
        assert!(gate.sleep(Duration::from_millis(1)));
        gate.close();
        assert!(!sleeper.join().unwrap());
        assert!(!gate.sleep(Duration::from_millis(1)));
    }
}
