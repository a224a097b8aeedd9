//! The applying side of claims: ask an object's coordinator who brings it to the site, keep a claim alive, give it back.
//!
//! The coordinator of an object is the host of the site that ranks first for it by rendezvous hashing, so that all hosts name the same one
//! without talking to each other.

mod renewal;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::mpsc::{channel, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use serde::de::DeserializeOwned;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::counters::Event;
use crate::error::TransferError;
use crate::fetching::claimant::renewal::Turn;
pub use crate::fetching::claimant::renewal::{Expectation, Renewal};
use crate::fetching::client::{Ask, Client, Stop};
use crate::fetching::peer::{Peer, Remote};
use crate::fetching::standing::{Offence, Standing, Verdict};
use crate::gate::Cancel;
use crate::ids::ObjectKey;
use crate::serving::claim_messages::{ClaimAnswer, ClaimRequest};
use crate::serving::claims::Holder;
use crate::serving::ranges::Want;
use crate::serving::service::Service;

/// How long a host that did not answer is passed over.
const UNREACHABLE_TIME: Duration = Duration::from_secs(30);
/// A holder may need a moment between its claim and its first byte, or to resume an interrupted transfer: waits between attempts.
pub const HOLDER_PATIENCE: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(800),
];

/// A host of the site: its name and the base URL of its data plane.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SiteHost {
    /// The name, by which hosts are ranked.
    pub name: String,
    /// The base URL of its data plane.
    pub url: String,
}

impl SiteHost {
    /// The host with its URL as errors spell it.
    pub fn normalized(&self) -> SiteHost {
        SiteHost {
            name: self.name.clone(),
            url: self.url.trim_end_matches('/').to_owned(),
        }
    }
}

/// Sorts hosts by their rank for an object, highest first; every host computes the same order.
pub fn rendezvous_order<'a>(
    key: ObjectKey,
    names: impl IntoIterator<Item = &'a str>,
) -> Vec<&'a str> {
    let rank = |name: &str| {
        let text = format!("{name}\n{}\n{}", key.kind.as_str(), key.id_hex());
        Sha256::digest(text.as_bytes())
    };
    let mut ranked: Vec<_> = names.into_iter().map(|name| (rank(name), name)).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.into_iter().map(|(_, name)| name).collect()
}

/// The key that is claimed while an object arrives at the site by other means than a transfer.
///
/// Hosts check keys for their form only: this one is the key of no object.
pub fn arrival_key(key: ObjectKey) -> ObjectKey {
    derived_key("arrival", key)
}

/// The key that is claimed to say something about an object; it differs for each label.
pub fn derived_key(label: &str, key: ObjectKey) -> ObjectKey {
    let text = format!("{label}\n{}\n{}", key.kind.as_str(), key.id_hex());
    ObjectKey {
        kind: key.kind,
        id: Sha256::digest(text.as_bytes()).into(),
    }
}

/// Hosts that did not answer lately.
#[derive(Default)]
pub struct Unreachable(Mutex<HashMap<String, Instant>>);

impl Unreachable {
    /// Pass over a host for a while.
    pub fn add(&self, host: &str) {
        let until = Instant::now() + UNREACHABLE_TIME;
        self.0.lock().unpoisoned().insert(host.to_owned(), until);
    }

    /// The hosts that are passed over now.
    pub fn names(&self) -> Vec<String> {
        let mut hosts = self.0.lock().unpoisoned();
        hosts.retain(|_, until| *until > Instant::now());
        hosts.keys().cloned().collect()
    }

    /// Whether a host is passed over now.
    pub fn contains(&self, host: &str) -> bool {
        self.0
            .lock()
            .unpoisoned()
            .get(host)
            .is_some_and(|until| *until > Instant::now())
    }

    /// Forget all of them.
    pub fn clear(&self) {
        self.0.lock().unpoisoned().clear();
    }
}

/// A coordinator's answer.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Who answered; `None` if no coordinator did, and this host acts without a claim.
    pub coordinator: Option<Peer>,
    /// Who brings the object.
    pub holder: Holder,
}

/// Applies for claims in the name of one host.
pub struct Claimant {
    name: String,
    url: String,
    client: Arc<Client>,
    service: Arc<Service>,
    site: Mutex<Vec<SiteHost>>,
    expected: Mutex<BTreeMap<ObjectKey, Arc<Turn>>>,
    standing: Arc<Standing>,
    /// Hosts that did not answer lately.
    pub unreachable: Unreachable,
}

impl Claimant {
    /// An applicant of this name and URL that knows no other host yet.
    pub fn new(name: String, url: String, client: Arc<Client>, service: Arc<Service>) -> Claimant {
        Claimant {
            name,
            url,
            client,
            service,
            site: Mutex::default(),
            expected: Mutex::default(),
            standing: Arc::new(Standing::new(Duration::ZERO)),
            unreachable: Unreachable::default(),
        }
    }

    /// Notes in `standing` what hosts do.
    pub fn with_standing(mut self, standing: Arc<Standing>) -> Claimant {
        self.standing = standing;
        self
    }

    /// Replace the hosts that may coordinate claims, and hold them.
    pub fn set_site(&self, hosts: Vec<SiteHost>) {
        for host in &hosts {
            self.standing.name(&host.url, &host.name);
        }
        *self.site.lock().unpoisoned() = hosts;
    }

    /// Note, count and report what a host did; leave it alone for a while if that is not the first time.
    pub fn accuse(&self, url: &str, offence: Offence, reason: &str) {
        if offence == Offence::Lie {
            self.service.counters.count(Event::Lie);
        }
        let verdict = self.standing.note(url, offence, Instant::now());
        let host = self.standing.describe(url);
        let reason = match verdict {
            Verdict::Noted => reason.to_owned(),
            Verdict::LeftAlone => {
                self.service.counters.count(Event::LeftAlone);
                let seconds = self.standing.time().as_secs();
                format!("left alone for {seconds} s, since this was not the first time: {reason}")
            }
        };
        self.service.complaints.note(&host, reason);
    }

    /// The holder that a coordinator names, if it is a host of the site: a request is signed for no other.
    fn known(&self, holder: Holder, remote: &Remote) -> Result<Holder, TransferError> {
        let own = holder.name == self.name && holder.url == self.url;
        let listed = self
            .site
            .lock()
            .unpoisoned()
            .iter()
            .any(|host| host.name == holder.name && host.url == holder.url);
        if own || listed {
            return Ok(holder);
        }
        Err(remote.unavailable(format!(
            "it names {:?} at {:?} as the holder, which the site map does not know",
            holder.name, holder.url
        )))
    }

    /// Whether this host is the holder that an answer names.
    pub fn is_own(&self, claimed: &Claimed) -> bool {
        claimed.holder.name == self.name
    }

    fn own(&self) -> Holder {
        Holder {
            name: self.name.clone(),
            url: self.url.clone(),
        }
    }

    /// Claim an object at a given coordinator and return its holder: this host, or another one to read from.
    pub fn claim_at(
        &self,
        coordinator: &Peer,
        key: ObjectKey,
        suspect: Option<&str>,
    ) -> Result<Holder, TransferError> {
        let remote = remote(coordinator, key);
        if coordinator.to_string() == self.url {
            let mut claims = self.service.claims.lock().unpoisoned();
            let claimed = claims.claim(key, self.own(), suspect, Instant::now());
            return claimed.map_err(|error| remote.unavailable(error.to_string()));
        }
        let answer = self.exchange(&remote, "POST", &self.request(suspect)?)?;
        Ok(parse_answer::<ClaimAnswer>(&remote, &answer)?.into())
    }

    /// Give up a claim at a given coordinator; that it was lost before is not an error.
    pub fn release_at(&self, coordinator: &Peer, key: ObjectKey) -> Result<(), TransferError> {
        if coordinator.to_string() == self.url {
            self.service
                .claims
                .lock()
                .unpoisoned()
                .release(key, &self.name, Instant::now());
            return Ok(());
        }
        let remote = remote(coordinator, key);
        let request = self.request(None)?;
        self.exchange(&remote, "DELETE", &request).map(drop)
    }

    /// Claim an object at the first coordinator that answers.
    ///
    /// If none does this host is the holder by its own right: two transfers are better than none. `warn` receives what went wrong.
    pub fn claim(
        &self,
        key: ObjectKey,
        suspect: Option<&str>,
        warn: &mut dyn FnMut(String),
    ) -> Result<Claimed, TransferError> {
        for (name, url) in self.coordinators(key) {
            let claimed = Peer::parse(&url).and_then(|peer| {
                let found = self.claim_at(&peer, key, suspect)?;
                Ok((peer.clone(), self.known(found, &remote(&peer, key))?))
            });
            match claimed {
                Ok((peer, holder)) => {
                    return Ok(Claimed {
                        coordinator: Some(peer),
                        holder,
                    })
                }
                Err(error) if error.is_unreachable() => {
                    warn(format!(
                        "Coordinator {name} of {key} does not serve claims, trying the next: {error}"
                    ));
                    self.unreachable.add(&name);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Claimed {
            coordinator: None,
            holder: self.own(),
        })
    }

    /// Return who holds an object's claim, without applying for it.
    ///
    /// A coordinator that does not say counts as one that knows no holder.
    pub fn holder(
        &self,
        key: ObjectKey,
        warn: &mut dyn FnMut(String),
    ) -> Result<Option<Holder>, TransferError> {
        for (name, url) in self.coordinators(key) {
            let found = Peer::parse(&url).and_then(|peer| self.holder_at(&peer, key));
            match found {
                Err(TransferError::ObjectMissing { .. }) => return Ok(None),
                Err(error) if error.is_unreachable() => {
                    warn(format!(
                        "Coordinator {name} of {key} does not serve claims, trying the next: {error}"
                    ));
                    self.unreachable.add(&name);
                }
                outcome => return outcome,
            }
        }
        Ok(None)
    }

    fn holder_at(
        &self,
        coordinator: &Peer,
        key: ObjectKey,
    ) -> Result<Option<Holder>, TransferError> {
        if coordinator.to_string() == self.url {
            return Ok(self
                .service
                .claims
                .lock()
                .unpoisoned()
                .holder(key, Instant::now()));
        }
        let remote = remote(coordinator, key);
        let answer = self.exchange(&remote, "GET", &[])?;
        Ok(parse_answer::<Option<ClaimAnswer>>(&remote, &answer)?.map(Holder::from))
    }

    /// Names and URLs of the hosts that may coordinate an object, in the order in which they are asked.
    fn coordinators(&self, key: ObjectKey) -> Vec<(String, String)> {
        let mut urls: BTreeMap<String, String> = self
            .site
            .lock()
            .unpoisoned()
            .iter()
            .map(|host| (host.name.clone(), host.url.clone()))
            .collect();
        urls.insert(self.name.clone(), self.url.clone());
        rendezvous_order(key, urls.keys().map(String::as_str))
            .into_iter()
            .filter(|name| !self.unreachable.contains(name))
            .map(|name| (name.to_owned(), urls[name].clone()))
            .collect()
    }

    /// Give a claim back; what cannot be given back expires.
    pub fn release(&self, claimed: &Claimed, key: ObjectKey, warn: &mut dyn FnMut(String)) {
        let Some(coordinator) = &claimed.coordinator else {
            return;
        };
        if let Err(error) = self.release_at(coordinator, key) {
            warn(format!(
                "Could not release the claim of {key}, it will expire: {error}"
            ));
        }
    }

    /// Renew a claim until the returned value is dropped.
    pub fn renewing(
        self: &Arc<Claimant>,
        claimed: &Claimed,
        key: ObjectKey,
    ) -> std::io::Result<Renewal> {
        let Some(coordinator) = claimed.coordinator.clone() else {
            return Ok(Renewal(None));
        };
        let interval = self.service.claims.lock().unpoisoned().ttl() / 3;
        let claimant = self.clone();
        let (end, ended) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name("dataplane-claim".to_owned())
            .spawn(move || {
                while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    // A claim that is lost costs a second transfer, so there is nothing better to do than to try again.
                    let _ = claimant.claim_at(&coordinator, key, None);
                }
            })?;
        Ok(Renewal(Some((end, thread))))
    }

    /// Make the site read an object here, until the claim expires, before the site map says that it is held.
    pub fn offer(&self, key: ObjectKey, warn: &mut dyn FnMut(String)) -> Result<(), TransferError> {
        self.claim(key, None, warn).map(drop)
    }

    /// Let the fills of the site leave an object alone until the returned value is dropped: it arrives here by other means.
    pub fn expect(
        self: &Arc<Claimant>,
        key: ObjectKey,
        warn: &mut dyn FnMut(String),
    ) -> Result<Expectation, TransferError> {
        let turn = self
            .expected
            .lock()
            .unpoisoned()
            .entry(key)
            .or_default()
            .clone();
        // From here on its drop takes the entry back.
        let mut expectation = Expectation {
            claimant: self.clone(),
            key,
            turn,
            claimed: None,
            renewal: None,
        };
        expectation.claim(warn)?;
        Ok(expectation)
    }

    /// Whether an object arrives at the site by other means than a transfer.
    pub fn arrives(
        &self,
        key: ObjectKey,
        warn: &mut dyn FnMut(String),
    ) -> Result<bool, TransferError> {
        if self.expected.lock().unpoisoned().contains_key(&key) {
            return Ok(true);
        }
        let arrival = arrival_key(key);
        let claimed = self.claim(arrival, None, warn)?;
        if !self.is_own(&claimed) {
            return Ok(true);
        }
        self.release(&claimed, arrival, warn);
        Ok(false)
    }

    /// The body of a request that claims, or gives up, an object.
    fn request(&self, suspect: Option<&str>) -> Result<Vec<u8>, TransferError> {
        let request = ClaimRequest {
            holder: self.name.clone(),
            url: self.url.clone(),
            suspect: suspect.map(str::to_owned),
        };
        serde_json::to_vec(&request).map_err(|error| TransferError::Invalid(error.to_string()))
    }

    fn exchange(
        &self,
        remote: &Remote,
        method: &str,
        body: &[u8],
    ) -> Result<Vec<u8>, TransferError> {
        let path = remote.key.claim_path();
        let ask = Ask {
            method,
            path: &path,
            range: None,
            body,
            hold: 0,
            want: Want::Fetched,
            takes_frames: false,
            known: None,
            requester: None,
        };
        let stop = Stop::new(Cancel::default(), self.service.gate.clone());
        Ok(self.client.exchange(remote, &ask, &stop)?.1)
    }
}

impl From<ClaimAnswer> for Holder {
    fn from(answer: ClaimAnswer) -> Holder {
        Holder {
            name: answer.holder,
            url: answer.url,
        }
    }
}

fn parse_answer<T: DeserializeOwned>(remote: &Remote, answer: &[u8]) -> Result<T, TransferError> {
    serde_json::from_slice(answer)
        .map_err(|error| remote.unavailable(format!("its answer to a claim is malformed: {error}")))
}

fn remote(peer: &Peer, key: ObjectKey) -> Remote {
    Remote {
        peer: peer.clone(),
        key,
        trace: None,
    }
}
