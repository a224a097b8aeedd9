//! An object at a data plane, read by ranges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::client::{Ask, Client, Connection, Fault, Stop};
use diffcache_dataplane::fetching::peer::{Peer, Remote};
use diffcache_dataplane::gate::{Cancel, Gate};
use diffcache_dataplane::serving::ranges::Want;
use diffcache_dataplane::serving::referrals::HostName;

use crate::peers::hints::Exchange;
use crate::sources::source::{Arrived, SourceError};

/// How long a host of the site may send nothing until it is asked anew: one that is gone is noticed so.
pub const SITE_SILENCE: Duration = Duration::from_secs(3);

/// How long a host keeps an object for this one between requests.
const HOLD_SECONDS: u64 = 15;

/// An object at a data plane. Its bytes are not trusted.
pub struct Object {
    /// The object, and the host.
    pub(crate) remote: Remote,
    pub(crate) client: Arc<Client>,
    pub(crate) gate: Arc<Gate>,
    /// What becomes of bytes that the host lacks.
    pub(crate) want: Want,
    /// This host's name, if it follows a referral.
    pub(crate) requester: Option<HostName>,
    /// Whether counts go with requests and replies.
    pub(crate) exchange: Option<Exchange>,
}

impl Object {
    /// Return the host.
    pub fn peer(&self) -> &Peer {
        &self.remote.peer
    }

    /// Return whether the host answers at all.
    pub fn is_alive(&self) -> bool {
        let end = Instant::now() + SITE_SILENCE;
        self.client.probe(self.peer(), &self.stop(end)).is_ok()
    }

    /// Read a range before `end`; return it and the size of the whole object.
    ///
    /// # Errors
    /// As `SourceError`.
    pub fn read(&self, range: (u64, u64), end: Instant) -> Result<(Vec<u8>, u64), SourceError> {
        self.receive(range, end, &mut |_| {})
    }

    /// Read a range as `read` does, and tell what has `arrived`; it begins anew over another connection if one breaks.
    ///
    /// # Errors
    /// As `SourceError`.
    pub fn receive(
        &self,
        range: (u64, u64),
        end: Instant,
        arrived: Arrived<'_>,
    ) -> Result<(Vec<u8>, u64), SourceError> {
        let stop = self.stop(end);
        let fail = |fault| to_source_error(self.remote.error(fault));
        let mut connection = self.client.connection(self.peer(), &stop).map_err(fail)?;
        let mut outcome = self.read_over(&mut connection, range, &stop, arrived);
        if let Err(Fault::Broken(_)) = outcome {
            connection = self.client.renewed(self.peer(), &stop).map_err(fail)?;
            outcome = self.read_over(&mut connection, range, &stop, arrived);
        }
        let is_read = match &outcome {
            Ok(_) => true,
            Err(fault) => matches!(
                fault,
                Fault::Final(TransferError::ObjectMissing { .. }) | Fault::Referred(_)
            ),
        };
        if is_read {
            self.client.keep(self.peer(), connection);
        }
        match outcome {
            // Others have no reason to refer a request.
            Err(Fault::Referred(referral)) if self.requester.is_some() => {
                Err(SourceError::Referred(referral.to))
            }
            outcome => outcome.map_err(fail),
        }
    }

    fn stop(&self, end: Instant) -> Stop {
        Stop::new(Cancel::default(), self.gate.clone()).before(end)
    }

    fn read_over(
        &self,
        connection: &mut Connection,
        range: (u64, u64),
        stop: &Stop,
        arrived: Arrived<'_>,
    ) -> Result<(Vec<u8>, u64), Fault> {
        let (client, remote) = (&self.client, &self.remote);
        let path = remote.key.object_path();
        let exchange = self.exchange.as_ref();
        let known = exchange.and_then(|exchange| exchange.hints.ask(exchange.place));
        let ask = Ask {
            method: "GET",
            path: &path,
            range: Some(range),
            body: b"",
            hold: HOLD_SECONDS,
            want: self.want,
            takes_frames: false,
            known: known.as_deref(),
            requester: self.requester.as_ref(),
        };
        client.send(connection, remote, &ask)?;
        let take = |hints: &Option<String>| {
            if let (Some(exchange), Some(text)) = (exchange, hints) {
                exchange.hints.take(exchange.place, text);
            }
        };
        let head = client.receive_range(connection, remote, range, stop);
        if let Err(Fault::Referred(referral)) = &head {
            take(&referral.hints);
        }
        let head = head?;
        take(&head.hints);
        let mut bytes = vec![0; (range.1 - range.0) as usize];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += connection.read(&mut bytes[filled..], stop)?;
            arrived(&bytes[..filled]);
        }
        Ok((bytes, head.range.map_or(head.length, |(_, _, size)| size)))
    }
}

fn to_source_error(error: TransferError) -> SourceError {
    match error {
        TransferError::ObjectMissing { .. } => SourceError::Absent(error.to_string()),
        TransferError::Cancelled { .. } => {
            SourceError::Silent("it does not answer in time".to_owned())
        }
        TransferError::PeerSlow { .. } => SourceError::Silent(error.to_string()),
        error => SourceError::Unreachable(error.to_string()),
    }
}
