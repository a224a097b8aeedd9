//! What a plane has done and does.

use std::sync::Arc;

use crate::counters::{Counters, Event};

/// What a plane has done and does.
pub struct Stats {
    /// The counters.
    pub counters: Arc<Counters>,
    /// Open connections of the server.
    pub connections: usize,
    /// Objects arriving now.
    pub in_flight: usize,
    /// Files lent now.
    pub lent: usize,
    /// Claims coordinated now.
    pub claims: usize,
}

impl Stats {
    /// How often an event happened.
    pub fn events(&self, event: Event) -> u64 {
        self.counters.events(event)
    }
}
