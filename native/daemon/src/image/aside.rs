//! Fetches that continue after the read that began them has its bytes.
//!
//! A read needs a few leaves of a chunk, which may have come long before the rest of it. Threads kept ready for that take the fetch over; when all
//! are busy, the reading thread fetches itself, and its read waits for the whole chunk.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use diffcache_base::locks::Unpoisoned;

use crate::image::flights::{Landing, Reach};

/// Threads that fetch what reads wait for: guests rarely wait for more at once.
pub const FETCHERS: usize = 16;

/// Chunks to fetch, and within which time.
pub type Fetch = (Landing, Reach, Duration);

#[derive(Default)]
struct State {
    waiting: usize,
    queue: VecDeque<Fetch>,
}

/// Hands fetches to threads that wait for some.
#[derive(Default)]
pub struct Aside {
    state: Mutex<State>,
    added: Condvar,
}

impl Aside {
    /// Have chunks fetched by a thread that waits for some; `here` if there is none.
    pub fn fetch(&self, fetch: Fetch, here: impl FnOnce(Fetch)) {
        let mut state = self.state.lock().unpoisoned();
        if state.queue.len() < state.waiting {
            state.queue.push_back(fetch);
            self.added.notify_one();
        } else {
            drop(state);
            here(fetch);
        }
    }

    /// Wait for a fetch.
    pub fn next(&self) -> Fetch {
        let mut state = self.state.lock().unpoisoned();
        loop {
            if let Some(fetch) = state.queue.pop_front() {
                return fetch;
            }
            state.waiting += 1;
            let waited = self.added.wait(state);
            state = waited.unpoisoned();
            state.waiting -= 1;
        }
    }

    /// Return whether a thread waits for a fetch.
    #[cfg(test)]
    pub fn is_ready(&self) -> bool {
        self.state.lock().unpoisoned().waiting > 0
    }
}
