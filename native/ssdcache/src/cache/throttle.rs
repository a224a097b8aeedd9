//! Requests of a volume that wait for what it may do per second.
//!
//! They wait in threads of their clients, and hold no lock. One of them at a time sees to it that all
//! begin when they may.

use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::atomic::{AtomicBool, Ordering};
use diffcache_base::sync::{wait_timeout, Arc, Condvar, Mutex, MutexGuard};

use crate::rates::{Cost, Limiter, Rates};

/// How often a request that waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(250);

/// The limits of a volume, and requests that wait for them.
pub struct Throttle {
    /// Whether there are limits, which a request looks at first.
    is_limited: AtomicBool,
    state: Mutex<State>,
}

struct State {
    limiter: Limiter<Arc<Waiter>>,
    /// Whether a thread sees to those that wait.
    is_kept: bool,
}

/// A request that waits.
#[derive(Default)]
struct Waiter {
    has_begun: AtomicBool,
    changed: Condvar,
}

impl Waiter {
    fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }
}

impl State {
    /// Begins all requests that may. Returns the time until another one may.
    fn begin_due(&mut self) -> Duration {
        let now = Instant::now();
        loop {
            match self.limiter.next(now) {
                Ok(waiter) => waiter.begin(),
                Err(wait) => return wait.map_or(LOOK, |wait| wait.min(LOOK)),
            }
        }
    }
}

impl Default for Throttle {
    fn default() -> Self {
        let limiter = Limiter::new(Rates::default(), Instant::now());
        Self {
            is_limited: AtomicBool::new(false),
            state: Mutex::new(State {
                limiter,
                is_kept: false,
            }),
        }
    }
}

impl Throttle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// What the volume may do per second.
    pub fn rates(&self) -> Rates {
        self.lock().limiter.rates()
    }

    pub(super) fn set_rates(&self, rates: Rates) {
        let mut state = self.lock();
        state.limiter.set_rates(rates, Instant::now());
        self.is_limited.store(rates.is_limited(), Ordering::Relaxed);
        state.begin_due();
    }

    /// Begins a request, if it need not [wait](Self::wait).
    pub fn begin(&self, cost: Cost) -> bool {
        if !self.is_limited.load(Ordering::Relaxed) {
            return true;
        }
        self.lock().limiter.begin(cost, Instant::now())
    }

    /// Waits until a request may begin, or is in a hurry: its client has left.
    pub fn wait(&self, cost: Cost, is_hurried: impl Fn() -> bool) {
        let waiter = Arc::new(Waiter::default());
        let mut state = self.lock();
        state.limiter.queue(cost, waiter.clone());
        loop {
            let next = state.begin_due();
            if waiter.has_begun() {
                break;
            }
            let keeps = !state.is_kept;
            state.is_kept = true;
            let time = if keeps { next } else { LOOK };
            (state, _) = wait_timeout((&self.state, &waiter.changed), state, time);
            state.is_kept &= !keeps;
            if waiter.has_begun() {
                break;
            }
            drop(state);
            let is_hurried = is_hurried();
            state = self.lock();
            if is_hurried {
                let is_it = |other: &Arc<Waiter>| Arc::ptr_eq(other, &waiter);
                state.limiter.release(is_it);
                break;
            }
        }
        if let Some(next) = state.limiter.first().filter(|_| !state.is_kept) {
            next.changed.notify_one();
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::rates::Direction;

    const READ: Cost = Cost {
        direction: Direction::Read,
        bytes: 4096,
    };

    fn limited(rate: u64) -> Throttle {
        let throttle = Throttle::default();
        let named = [("read_iops_sec".to_owned(), rate)];
        throttle.set_rates(Rates::try_from(std::collections::BTreeMap::from(named)).unwrap());
        throttle
    }

    /// Empties what may begin at once.
    fn use_up(throttle: &Throttle) {
        while throttle.begin(READ) {}
    }

    #[test]
    fn many_that_wait_begin_at_the_rate() {
        let throttle = limited(1000);
        use_up(&throttle);
        let begin = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..25).for_each(|_| throttle.wait(READ, || false)));
            }
        });
        // 200 requests; how much later depends on the machine.
        assert!(begin.elapsed() >= Duration::from_millis(199));
    }

    #[test]
    fn a_request_whose_client_has_left_waits_no_longer_and_others_do() {
        let throttle = limited(1);
        use_up(&throttle);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| throttle.wait(READ, || false));
            throttle.wait(READ, || true);
            assert!(!other.is_finished());
            throttle.set_rates(Rates::default());
        });
        assert!(throttle.begin(READ));
    }
}
