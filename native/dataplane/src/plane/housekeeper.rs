//! A thread that closes files whose lending is over, and probes repositories that did not answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fetching::client::{Client, Stop};
use crate::fetching::peer::Peer;
use crate::fetching::repositories::Repositories;
use crate::gate::{Cancel, Gate};
use crate::serving::service::Service;

/// How often files whose lending is over are closed.
const HOUSEKEEPING: Duration = Duration::from_millis(500);

/// Finds out which repositories answer again.
pub(super) struct Prober {
    pub(super) repositories: Arc<Repositories>,
    pub(super) client: Arc<Client>,
    pub(super) gate: Arc<Gate>,
}

impl Prober {
    /// Probes those whose time has come, each in a thread of its own: one that drops packets holds no other up.
    fn start_due(&self) {
        for host in self.repositories.begin_probes(Instant::now()) {
            let (repositories, client) = (self.repositories.clone(), self.client.clone());
            let (target, gate) = (host.clone(), self.gate.clone());
            // Not joined: it ends with its timeout at the latest, and touches nothing but the records.
            let started = std::thread::Builder::new()
                .name("dataplane-probe".to_owned())
                .spawn(move || {
                    let stop = Stop::new(Cancel::default(), gate);
                    let answered = Peer::parse(&target.url)
                        .is_ok_and(|peer| client.probe(&peer, &stop).is_ok());
                    repositories.end_probe(&target, answered, Instant::now());
                });
            if started.is_err() {
                self.repositories.end_probe(&host, false, Instant::now());
            }
        }
    }
}

pub(super) fn start_housekeeper(
    service: Arc<Service>,
    prober: Prober,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new()
        .name("dataplane-housekeeper".to_owned())
        .spawn(move || {
            while service.gate.sleep(HOUSEKEEPING) {
                service.objects.expire();
                prober.start_due();
            }
        })
}
