//! What a plane has done since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::ids::Kind;

/// Counters; every one only grows.
#[derive(Default)]
pub struct Counters {
    sent: [AtomicU64; Kind::ALL.len()],
    received: [AtomicU64; Kind::ALL.len()],
    shared: AtomicU64,
    requests: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
    connections: AtomicU64,
    handshakes: AtomicU64,
    handshakes_failed: AtomicU64,
    plain_refused: AtomicU64,
    lies: AtomicU64,
    slow: AtomicU64,
    left_alone: AtomicU64,
    unhinted: AtomicU64,
}

/// Counters that are not per kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was read.
    Request,
    /// A request was answered with 401.
    Refused,
    /// A request was answered with another error status.
    Failed,
    /// A connection ended in the middle of a body.
    Dropped,
    /// A connection was accepted.
    Connection,
    /// A peer that connected and this host agreed on TLS.
    Handshake,
    /// They did not.
    HandshakeFailed,
    /// A request in the clear was turned away, since this host speaks TLS.
    PlainRefused,
    /// A peer sent what cannot be right.
    Lie,
    /// A peer was given up because it sent too slowly.
    Slow,
    /// A host is left alone for a while from now on.
    LeftAlone,
    /// Bytes of an image went without the hints that were asked for, as diffcached gave none.
    Unhinted,
}

impl Counters {
    /// Body bytes of an object were handed to the network.
    pub fn add_sent(&self, kind: Kind, bytes: u64) {
        self.sent[kind.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Body bytes of an object came from a peer.
    pub fn add_received(&self, kind: Kind, bytes: u64) {
        self.received[kind.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes of an image on its way were taken from another one that is held here.
    pub fn add_shared(&self, bytes: u64) {
        self.shared.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts an event.
    pub fn count(&self, event: Event) {
        self.event(event).fetch_add(1, Ordering::Relaxed);
    }

    /// Body bytes sent of a kind.
    pub fn sent(&self, kind: Kind) -> u64 {
        self.sent[kind.index()].load(Ordering::Relaxed)
    }

    /// Body bytes received of a kind.
    pub fn received(&self, kind: Kind) -> u64 {
        self.received[kind.index()].load(Ordering::Relaxed)
    }

    /// Bytes of images on their way that were taken from others that are held here.
    pub fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// How often an event happened.
    pub fn events(&self, event: Event) -> u64 {
        self.event(event).load(Ordering::Relaxed)
    }

    fn event(&self, event: Event) -> &AtomicU64 {
        match event {
            Event::Request => &self.requests,
            Event::Refused => &self.refused,
            Event::Failed => &self.failed,
            Event::Dropped => &self.dropped,
            Event::Connection => &self.connections,
            Event::Handshake => &self.handshakes,
            Event::HandshakeFailed => &self.handshakes_failed,
            Event::PlainRefused => &self.plain_refused,
            Event::Lie => &self.lies,
            Event::Slow => &self.slow,
            Event::LeftAlone => &self.left_alone,
            Event::Unhinted => &self.unhinted,
        }
    }
}
