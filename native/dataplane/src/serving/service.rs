//! What a server serves, and by which rules.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::complaints::Complaints;
use crate::counters::Counters;
use crate::gate::Gate;
use crate::serving::admission::Room;
use crate::serving::claims::Claims;
use crate::serving::objects::Objects;
use crate::shaper::Shaper;
use crate::traces::Traces;
use crate::transport::auth::Verifier;
use crate::transport::frames::Slots;
use crate::transport::tls::Tls;

/// Time limits and bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at the same time, and beside them.
    pub room: Room,
    /// How long a connection may wait for its next request.
    pub idle: Duration,
    /// How long a request may take to arrive after its first byte, and a handshake.
    pub head: Duration,
    /// How long a peer may take no byte of a response.
    pub send: Duration,
    /// How long an arriving object may not move before its readers are sent away.
    pub stall: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            room: Room {
                proven: 256,
                per_address: 128,
                unproven: 128,
            },
            idle: Duration::from_secs(60),
            head: Duration::from_secs(10),
            send: Duration::from_secs(30),
            stall: Duration::from_secs(20),
        }
    }
}

/// What a server serves and by which rules.
pub struct Service {
    /// This host's name, returned by the health route.
    pub name: String,
    /// The objects.
    pub objects: Arc<Objects>,
    /// The link's speed.
    pub shaper: Shaper,
    /// The link's delay, added to every request that had to be waited for.
    pub latency: Duration,
    /// The hosts that are answered; `None`: all.
    pub verifier: Option<Verifier>,
    /// This host's identity; without it everything goes in the clear.
    pub tls: Option<Arc<Tls>>,
    /// The present start of this plane, which signatures name.
    pub boot: String,
    /// What was wrong with connections.
    pub complaints: Arc<Complaints>,
    /// The claims this host coordinates.
    pub claims: Mutex<Claims>,
    /// What was done.
    pub counters: Arc<Counters>,
    /// The plane's end.
    pub gate: Arc<Gate>,
    /// Bounds.
    pub limits: Limits,
    /// Responses that may be compressed at the same time.
    pub coders: Slots,
    /// What was sent for traces; `None` keeps nothing of it.
    pub traces: Option<Traces>,
}
