//! Which of a host's transfers use the WAN: requests before fills.
//!
//! While a request uses the WAN, fills of the same host stop using it. A fill that a request waits for becomes a request at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use diffcache_base::locks::Unpoisoned;

use crate::gate::Cancel;

#[derive(Default)]
struct Users {
    requests: usize,
    fills: Vec<(u64, Cancel)>,
    next: u64,
}

/// Counts requests on the WAN and interrupts fills meanwhile.
#[derive(Default)]
pub struct WanGate {
    users: Mutex<Users>,
    changed: Condvar,
}

impl WanGate {
    /// Use the WAN for a request until the returned value is dropped, and interrupt the fills that use it.
    pub fn enter_request(&self) -> WanUse<'_> {
        let mut users = self.users.lock().unpoisoned();
        users.requests += 1;
        for (_, interrupt) in &users.fills {
            interrupt.cancel();
        }
        WanUse {
            gate: self,
            fill: None,
        }
    }

    /// Use the WAN for a fill until the returned value is dropped, unless a request does; `interrupt` is cancelled when one comes.
    pub fn enter_fill(&self, interrupt: Cancel) -> Option<WanUse<'_>> {
        let mut users = self.users.lock().unpoisoned();
        if users.requests > 0 {
            return None;
        }
        users.next += 1;
        let number = users.next;
        users.fills.push((number, interrupt));
        Some(WanUse {
            gate: self,
            fill: Some(number),
        })
    }

    /// Wait until no request uses the WAN, at most for `time`; returns whether none does.
    pub fn wait_free(&self, time: Duration) -> bool {
        let users = self.users.lock().unpoisoned();
        let waited = self
            .changed
            .wait_timeout_while(users, time, |users| users.requests > 0)
            .unpoisoned();
        waited.0.requests == 0
    }
}

/// A use of the WAN, which ends with this value.
pub struct WanUse<'a> {
    gate: &'a WanGate,
    fill: Option<u64>,
}

impl Drop for WanUse<'_> {
    fn drop(&mut self) {
        let mut users = self.gate.users.lock().unpoisoned();
        match self.fill {
            Some(number) => users.fills.retain(|(other, _)| *other != number),
            None => users.requests -= 1,
        }
        drop(users);
        self.gate.changed.notify_all();
    }
}

/// The caller's handle on the transfers that it was given to: cancels them, or gives them the class of a request.
#[derive(Clone, Default)]
pub struct Handle(Arc<HandleState>);

#[derive(Default)]
struct HandleState {
    cancel: Cancel,
    promoted: AtomicBool,
    attempts: Mutex<Vec<Cancel>>,
}

impl Handle {
    /// End the transfers, present and future; what has arrived is kept.
    pub fn cancel(&self) {
        self.0.cancel.cancel();
    }

    /// Lift the limits of a fill: no rate, no waiting for requests.
    pub fn promote(&self) {
        let attempts = self.0.attempts.lock().unpoisoned();
        self.0.promoted.store(true, Ordering::SeqCst);
        // They resume without the limits.
        attempts.iter().for_each(Cancel::cancel);
    }

    /// Whether [`Handle::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancel.is_cancelled()
    }

    /// Whether [`Handle::promote`] was called.
    pub fn is_promoted(&self) -> bool {
        self.0.promoted.load(Ordering::SeqCst)
    }

    /// What ends every attempt.
    pub fn canceller(&self) -> Cancel {
        self.0.cancel.clone()
    }

    /// Begin an attempt, which a promotion interrupts; returns what interrupts it, and whether the handle is promoted already.
    pub fn begin_attempt(&self) -> (Attempt<'_>, bool) {
        let mut attempts = self.0.attempts.lock().unpoisoned();
        let interrupt = Cancel::default();
        let promoted = self.is_promoted();
        if !promoted {
            attempts.push(interrupt.clone());
        }
        let attempt = Attempt {
            handle: self,
            interrupt,
        };
        (attempt, promoted)
    }
}

/// One attempt of a transfer.
pub struct Attempt<'a> {
    handle: &'a Handle,
    /// Set when the attempt is to end and to be taken up again.
    pub interrupt: Cancel,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.handle
            .0
            .attempts
            .lock()
            .unpoisoned()
            .retain(|other| !other.is_same(&self.interrupt));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn a_request_interrupts_the_fills_and_keeps_them_away() {
        let gate = WanGate::default();
        let interrupt = Cancel::default();
        let fill = gate.enter_fill(interrupt.clone());
        assert!(fill.is_some() && !interrupt.is_cancelled());
        let request = gate.enter_request();
        assert!(interrupt.is_cancelled());
        drop(fill);
        assert!(gate.enter_fill(Cancel::default()).is_none());
        assert!(!gate.wait_free(Duration::from_millis(1)));
        drop(request);
        assert!(gate.wait_free(LONG));
        assert!(gate.enter_fill(Cancel::default()).is_some());
    }

    #[test]
    fn a_waiting_fill_wakes_when_the_last_request_ends() {
        let gate = Arc::new(WanGate::default());
        let (first, second) = (gate.enter_request(), gate.enter_request());
        let waiter = {
            let gate = gate.clone();
            std::thread::spawn(move || gate.wait_free(LONG))
        };
        drop(first);
        assert!(!gate.wait_free(Duration::from_millis(1)));
        drop(second);
        assert!(waiter.join().unwrap());
    }

    #[test]
    fn a_promotion_interrupts_once_what_began_before_it() {
        let handle = Handle::default();
        let (before, promoted) = handle.begin_attempt();
        assert!(!promoted);
        handle.promote();
        assert!(before.interrupt.is_cancelled() && !handle.is_cancelled());
        let (after, promoted) = handle.begin_attempt();
        assert!(promoted);
        handle.promote();
        assert!(!after.interrupt.is_cancelled());
        handle.cancel();
        assert!(handle.canceller().is_cancelled());
    }
}
