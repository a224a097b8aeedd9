//! Getting an object from the first of several sources that delivers it.
//!
//! The caller ranks the sources and says what each one is; here they are tried in that order. What crosses the WAN does so under a claim, once
//! per site: the first applicant becomes the holder and uses the WAN, the others read from the holder while the object is still arriving there. A
//! holder that does not deliver is named as suspect, and the applicant that noticed takes over.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::error::TransferError;
use crate::fetching::build::Place;
use crate::fetching::claimant::{Claimed, SiteHost, HOLDER_PATIENCE};
use crate::fetching::client::{Peer, Remote};
use crate::fetching::part::Durability;
use crate::fetching::wan::{Attempt, Handle};
use crate::gate::{lock, Cancel};
use crate::ids::{Kind, ObjectKey};
use crate::plane::{check_rate, DataPlane, Job};
use crate::traces::Trace;

/// How often a fill that waits for the WAN reports that it does.
const WAITING_REPORT: Duration = Duration::from_secs(1);
/// How soon a fill that waits for the WAN notices that it was cancelled or promoted.
const WAITING_STEP: Duration = Duration::from_millis(50);

/// The link that a source is read over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// The site's own network.
    Lan,
    /// The link to the repository, which is used under a claim.
    Wan,
}

/// Whom an object is delivered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// A client that waits.
    Request,
    /// The cache: it gives way to requests, and leaves what arrives by other means alone.
    Fill,
}

/// A file of this host, or an object of another one.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum PartSource {
    /// A file, which the caller keeps unchanged.
    File {
        /// Its path.
        path: PathBuf,
    },
    /// An object in reach of the LAN, read in place.
    Host {
        /// The host's name.
        host: String,
        /// The base URL of its data plane.
        url: String,
        /// The object's kind.
        kind: String,
        /// The object's id.
        id: String,
        /// The most bytes that it can have.
        #[serde(default)]
        max_size: Option<u64>,
    },
}

/// One way to get the object.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Read it from a host.
    Host {
        /// The host's name.
        host: String,
        /// The base URL of its data plane.
        url: String,
        /// The link between.
        link: Link,
    },
    /// Apply a patch to a base.
    Build {
        /// The base.
        base: PartSource,
        /// The patch.
        patch: PartSource,
    },
}

/// What to deliver, where to, from what.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The object's kind.
    pub kind: String,
    /// The object's id.
    pub id: String,
    /// The file to write.
    pub dest: PathBuf,
    /// Ways to get it, best first.
    pub sources: Vec<Source>,
    /// The manifest that a template is verified against.
    pub manifest: Option<PathBuf>,
    /// Whom it is for.
    pub class: Class,
    /// Bytes per second, as long as it is a fill.
    pub rate: Option<f64>,
    /// Whether it must survive a power cut.
    pub durable: bool,
    /// The most bytes that a patch, a manifest or a form can have, by the catalogue.
    #[serde(default)]
    pub max_size: Option<u64>,
    /// Whether `dest` is where this plane serves the object from; elsewhere it is lent to peers for a while.
    pub in_place: bool,
    /// The step of a trace that it is part of.
    #[serde(default)]
    pub trace: Option<String>,
}

/// Bytes of the transfer that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// That are done.
    pub done: u64,
    /// In all; 0 if that is not known yet.
    pub total: u64,
    /// Whether they cross the WAN.
    pub over_wan: bool,
}

/// Receives progress; false ends the delivery.
pub type Watch<'a> = &'a (dyn Fn(Progress) -> bool + Sync);

/// A source that did not deliver.
#[derive(Debug)]
pub struct Failure {
    /// Its position in the order's list.
    pub source: usize,
    /// The host to blame, if one is known to be.
    pub host: Option<String>,
    /// What happened.
    pub error: TransferError,
}

/// How an order ended.
#[derive(Debug, Default)]
pub struct Delivery {
    /// Position of the source that delivered; `None` if none did, and the destination is as it was.
    pub source: Option<usize>,
    /// Bytes that crossed the WAN to here, also from sources that failed.
    pub wan_bytes: u64,
    /// Bytes that came from hosts of the site, likewise.
    pub lan_bytes: u64,
    /// What failed before, in order. A last failure that another source would not change ends the list early.
    pub failures: Vec<Failure>,
    /// What an operator may want to know beside.
    pub warnings: Vec<String>,
}

/// An order under way.
struct Run<'a> {
    plane: &'a DataPlane,
    order: &'a Order,
    key: ObjectKey,
    handle: &'a Handle,
    watch: Option<Watch<'a>>,
    trace: Option<Trace>,
    refused: Cancel,
    warnings: Vec<String>,
    wan_bytes: AtomicU64,
    lan_bytes: AtomicU64,
}

impl DataPlane {
    /// Get an object from the first source that delivers it.
    ///
    /// # Errors
    ///
    /// `Cancelled` and `Deferred` end the whole order, as does an order that makes no sense; everything else is a failure of a source.
    pub fn deliver(
        &self,
        order: &Order,
        handle: &Handle,
        watch: Option<Watch<'_>>,
    ) -> Result<Delivery, TransferError> {
        let key = ObjectKey::parse(&order.kind, &order.id).ok_or_else(|| {
            TransferError::Invalid(format!("'{}/{}' is no object", order.kind, order.id))
        })?;
        check_rate(order.rate)?;
        let trace = order.trace.as_deref().map(parse_trace).transpose()?;
        let mut run = Run {
            plane: self,
            order,
            key,
            handle,
            watch,
            trace,
            refused: Cancel::default(),
            warnings: Vec::new(),
            wan_bytes: AtomicU64::default(),
            lan_bytes: AtomicU64::default(),
        };
        let mut delivery = Delivery::default();
        let mut avoided = HashSet::new();
        for (index, source) in order.sources.iter().enumerate() {
            if self.is_skipped(source, &order.sources[index + 1..], &avoided) {
                continue;
            }
            match run.get(source) {
                Ok(()) => {
                    delivery.source = Some(index);
                    break;
                }
                Err(error) if error.ends_order() => return Err(error),
                Err(error) => {
                    let host = source.blamed(&error);
                    if error.is_unreachable() {
                        avoided.extend(host.clone());
                    }
                    self.note_failure(source, host.as_deref(), &error);
                    let last = source.ends_list(&error);
                    delivery.failures.push(Failure {
                        source: index,
                        host,
                        error,
                    });
                    if last {
                        break;
                    }
                }
            }
        }
        delivery.wan_bytes = run.wan_bytes.into_inner();
        delivery.lan_bytes = run.lan_bytes.into_inner();
        delivery.warnings = run.warnings;
        Ok(delivery)
    }

    /// Whether a source is not tried, or others after it are better.
    fn is_skipped(&self, source: &Source, later: &[Source], avoided: &HashSet<String>) -> bool {
        let is_avoided = |source: &Source| source.hosts().any(|host| avoided.contains(host));
        is_avoided(source)
            || self.is_left_alone(source)
            || self.is_passed_over(source)
                && later
                    .iter()
                    .any(|other| !is_avoided(other) && !self.is_passed_over(other))
    }

    /// Remembers a host that does not serve this one.
    fn note_failure(&self, source: &Source, host: Option<&str>, error: &TransferError) {
        if let Some(repository) = source.repository() {
            if error.is_about(&repository.url) {
                let reason = error.is_unreachable().then(|| error.to_string());
                let now = Instant::now();
                if self.repositories.note_failure(&repository, reason, now) {
                    let reason = format!("not used until it answers again: {error}");
                    self.complain(&repository.name, reason);
                }
            }
            return;
        }
        let absent = matches!(
            error,
            TransferError::PeerUnavailable { .. } | TransferError::PeerSlow { .. }
        );
        if let Some(host) = host.filter(|_| absent) {
            self.claimant.unreachable.add(host);
        }
    }

    /// Whether a source is a repository that does not answer, or is left alone.
    fn is_passed_over(&self, source: &Source) -> bool {
        source.repository().is_some_and(|host| {
            self.repositories.is_passed_over(&host.name) || self.is_distrusted(&host.url)
        })
    }

    /// Whether the host with a URL is left alone now.
    fn is_distrusted(&self, url: &str) -> bool {
        self.standing.is_left_alone(url, Instant::now())
    }

    /// Whether a host that a source reads from within the site is left alone now.
    fn is_left_alone(&self, source: &Source) -> bool {
        source.site_hosts().any(|(host, url)| {
            self.standing.name(url, host);
            self.is_distrusted(url)
        })
    }

    /// End the lending of delivered files, because the space is needed; returns whether anything was lent.
    pub fn stop_lending(&self) -> bool {
        let now = Instant::now();
        let lent: Vec<_> = lock(&self.lent).drain().collect();
        for (key, _) in &lent {
            self.recall(*key);
        }
        lent.iter().any(|(_, until)| *until > now)
    }
}

impl Source {
    fn hosts(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Source::Host { host, .. } => (Some(host.as_str()), None),
            Source::Build { base, patch } => (base.host(), patch.host()),
        };
        first.into_iter().chain(second)
    }

    /// The repository that it reads from.
    fn repository(&self) -> Option<SiteHost> {
        match self {
            Source::Host {
                host,
                url,
                link: Link::Wan,
            } => Some(SiteHost {
                name: host.clone(),
                url: url.trim_end_matches('/').to_owned(),
            }),
            _ => None,
        }
    }

    /// Names and URLs of the hosts of the site that it reads from.
    fn site_hosts(&self) -> impl Iterator<Item = (&str, &str)> {
        let whole = match self {
            Source::Host {
                host,
                url,
                link: Link::Lan,
            } => Some((host.as_str(), url.as_str())),
            _ => None,
        };
        let parts = match self {
            Source::Host { .. } => [None, None],
            Source::Build { base, patch } => [base, patch].map(|part| part.host().zip(part.url())),
        };
        whole.into_iter().chain(parts.into_iter().flatten())
    }

    /// The host whose fault an error is; `None` if it may be another's.
    fn blamed(&self, error: &TransferError) -> Option<String> {
        match self {
            Source::Host { host, .. } => Some(host.clone()),
            Source::Build { base, patch } => [base, patch]
                .into_iter()
                .find(|part| part.url().is_some_and(|url| error.is_about(url)))
                .and_then(PartSource::host)
                .map(str::to_owned),
        }
    }

    /// Whether the next source would fail for the same reason, or the caller has to look at its own files first.
    fn ends_list(&self, error: &TransferError) -> bool {
        match error {
            TransferError::NoSpace { .. }
            | TransferError::File { .. }
            | TransferError::Format { .. }
            | TransferError::BaseMismatch { .. }
            | TransferError::Invalid(_) => true,
            TransferError::Integrity { blame, .. } => {
                blame.is_none() && matches!(self, Source::Build { .. })
            }
            _ => false,
        }
    }
}

fn parse_trace(text: &str) -> Result<Trace, TransferError> {
    Trace::parse(text)
        .ok_or_else(|| TransferError::Invalid(format!("'{text}' is no text of a trace")))
}

impl PartSource {
    fn host(&self) -> Option<&str> {
        match self {
            PartSource::File { .. } => None,
            PartSource::Host { host, .. } => Some(host),
        }
    }

    fn url(&self) -> Option<&str> {
        match self {
            PartSource::File { .. } => None,
            PartSource::Host { url, .. } => Some(url),
        }
    }

    fn place(&self, trace: &Option<Trace>) -> Result<Place, TransferError> {
        match self {
            PartSource::File { path } => Ok(Place::Local(path.clone())),
            PartSource::Host {
                url,
                kind,
                id,
                max_size,
                ..
            } => {
                let key = ObjectKey::parse(kind, id)
                    .ok_or_else(|| TransferError::Invalid(format!("'{kind}/{id}' is no object")))?;
                let remote = Remote {
                    peer: Peer::parse(url)?,
                    key,
                    trace: trace.clone(),
                };
                Ok(Place::Remote(remote, *max_size))
            }
        }
    }
}

impl Run<'_> {
    fn get(&mut self, source: &Source) -> Result<(), TransferError> {
        if let Some(repository) = source.repository() {
            return self.over_wan(&repository);
        }
        match source {
            Source::Host { url, .. } => self.measured_over_lan(url),
            Source::Build { base, patch } => self.build(base, patch),
        }
    }

    /// Build in place from a base and a patch.
    fn build(&self, base: &PartSource, patch: &PartSource) -> Result<(), TransferError> {
        let manifest = self.order.manifest.as_deref().ok_or_else(|| {
            TransferError::Invalid(format!("{}: a build needs a manifest", self.key))
        })?;
        let (base, patch) = (base.place(&self.trace)?, patch.place(&self.trace)?);
        let built = self.resuming(|attempt, rate| {
            self.with_job(&attempt.interrupt, false, |job| {
                self.plane.build(&base, &patch, manifest, rate, job)
            })
        })?;
        let received = built.base_bytes + built.patch_bytes;
        self.lan_bytes.fetch_add(received, Ordering::Relaxed);
        Ok(())
    }

    /// Read what a host of the site holds, and measure the link.
    fn measured_over_lan(&self, url: &str) -> Result<(), TransferError> {
        if self.order.rate.is_some() {
            return self.over_lan(url);
        }
        let before = self.lan_bytes.load(Ordering::Relaxed);
        lock(&self.plane.peer_rate).begin(Instant::now());
        let outcome = self.over_lan(url);
        let received = self.lan_bytes.load(Ordering::Relaxed) - before;
        let counted = is_measured(&outcome).then_some(received);
        lock(&self.plane.peer_rate).end(counted, Instant::now());
        outcome
    }

    /// Read from a host of the site.
    fn over_lan(&self, url: &str) -> Result<(), TransferError> {
        self.resuming(|attempt, rate| self.fetch(url, false, &attempt.interrupt, rate))
    }

    /// Read across the WAN, or behind the host that already does.
    fn over_wan(&mut self, repository: &SiteHost) -> Result<(), TransferError> {
        let mut suspects = HashSet::new();
        let mut suspect: Option<String> = None;
        loop {
            self.await_turn()?;
            self.leave_to_others()?;
            let claimed = self.claim(suspect.as_deref())?;
            let claimant = self.plane.claimant.clone();
            let alone = self.plane.is_distrusted(&claimed.holder.url);
            if claimant.is_own(&claimed) || alone || suspects.contains(&claimed.holder.name) {
                match self.as_holder(repository, &claimed) {
                    Err(TransferError::Cancelled { .. }) if self.may_resume() => continue,
                    outcome => return outcome,
                }
            }
            match self.behind(&claimed) {
                Err(error) if error.is_of_source() => {
                    let name = claimed.holder.name;
                    self.warnings.push(format!(
                        "Host {name} does not deliver {}, taking over: {error}",
                        self.key
                    ));
                    suspects.insert(name.clone());
                    suspect = Some(name);
                }
                outcome => return outcome,
            }
        }
    }

    fn claim(&mut self, suspect: Option<&str>) -> Result<Claimed, TransferError> {
        let warnings = &mut self.warnings;
        let mut warn = |text| warnings.push(text);
        self.plane.claimant.claim(self.key, suspect, &mut warn)
    }

    /// Leave a fill for later if its object arrives by other means.
    fn leave_to_others(&mut self) -> Result<(), TransferError> {
        if !self.is_fill() || self.key.kind != Kind::Templates {
            return Ok(());
        }
        let warnings = &mut self.warnings;
        let mut warn = |text| warnings.push(text);
        if self.plane.claimant.arrives(self.key, &mut warn)? {
            return Err(TransferError::Deferred {
                object: self.key.to_string(),
            });
        }
        Ok(())
    }

    /// Read from the claim's holder, which may need a moment until it has something.
    fn behind(&self, claimed: &Claimed) -> Result<(), TransferError> {
        let mut patience = HOLDER_PATIENCE.into_iter();
        loop {
            match self.over_lan(&claimed.holder.url) {
                Err(
                    error @ (TransferError::ObjectMissing { .. }
                    | TransferError::PeerUnavailable { .. }),
                ) => {
                    let Some(wait) = patience.next() else {
                        return Err(error);
                    };
                    if !self.plane.sleep(wait) || self.handle.is_cancelled() {
                        return Err(self.cancelled());
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Use the WAN under this host's claim, or without one.
    fn as_holder(&mut self, repository: &SiteHost, claimed: &Claimed) -> Result<(), TransferError> {
        let claimant = self.plane.claimant.clone();
        let renewal = claimant
            .renewing(claimed, self.key)
            .map_err(|error| TransferError::file(self.key, &self.order.dest, error));
        let outcome = renewal.and_then(|_renewal| self.fetch_over_wan(repository));
        let lend = self.plane.lend_time;
        // If the object stays readable here the claim is left to expire: until then late applicants are sent here and not over the WAN.
        if outcome.is_err() || (lend.is_zero() && !self.order.in_place) {
            let warnings = &mut self.warnings;
            claimant.release(claimed, self.key, &mut |text| warnings.push(text));
        } else if !self.order.in_place {
            lock(&self.plane.lent).insert(self.key, Instant::now() + lend);
        }
        outcome
    }

    /// One attempt over the WAN; `Cancelled` if it was interrupted.
    fn fetch_over_wan(&self, repository: &SiteHost) -> Result<(), TransferError> {
        let (attempt, promoted) = self.handle.begin_attempt();
        let gate = &self.plane.wan;
        let entered = if promoted || self.order.class == Class::Request {
            Some(gate.enter_request())
        } else {
            gate.enter_fill(attempt.interrupt.clone())
        };
        let Some(_entered) = entered else {
            return Err(self.cancelled());
        };
        let rate = if promoted { None } else { self.order.rate };
        let before = self.wan_bytes.load(Ordering::Relaxed);
        let repositories = &self.plane.repositories;
        if rate.is_none() {
            repositories.begin_measured(repository, Instant::now());
        }
        let outcome = self.fetch(&repository.url, true, &attempt.interrupt, rate);
        let received = self.wan_bytes.load(Ordering::Relaxed) - before;
        if rate.is_none() {
            let counted = is_measured(&outcome).then_some(received);
            repositories.end_measured(repository, counted, Instant::now());
        }
        repositories.add_bytes(repository, received);
        if outcome.is_ok() {
            repositories.note_success(repository);
        }
        outcome
    }

    fn fetch(
        &self,
        url: &str,
        over_wan: bool,
        interrupt: &Cancel,
        rate: Option<f64>,
    ) -> Result<(), TransferError> {
        let remote = Remote {
            peer: Peer::parse(url)?,
            key: self.key,
            trace: self.trace.clone(),
        };
        self.with_job(interrupt, over_wan, |job| {
            self.plane
                .fetch(&remote, self.order.manifest.as_deref(), rate, job)
                .map(drop)
        })
    }

    /// Run one attempt with the caller's handle, its interruption and its progress.
    fn with_job<T>(
        &self,
        interrupt: &Cancel,
        over_wan: bool,
        run: impl FnOnce(&Job<'_>) -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        let report = |done, total| {
            self.report(Progress {
                done,
                total,
                over_wan,
            })
        };
        let lend = match over_wan && !self.order.in_place {
            true => self.plane.lend_time,
            false => Duration::ZERO,
        };
        run(&Job {
            dest: &self.order.dest,
            lend,
            durability: Durability::of(self.order.durable),
            report: Some(&report),
            cancel: self.handle.canceller(),
            interrupt: interrupt.clone(),
            max_size: self.order.max_size,
            over_wan,
            frames: !over_wan && self.plane.is_lan_slow(),
            received: Some(match over_wan {
                true => &self.wan_bytes,
                false => &self.lan_bytes,
            }),
        })
    }

    /// Repeat an attempt over the LAN as long as it is interrupted and not cancelled.
    fn resuming<T>(
        &self,
        mut run: impl FnMut(&Attempt<'_>, Option<f64>) -> Result<T, TransferError>,
    ) -> Result<T, TransferError> {
        loop {
            let (attempt, promoted) = self.handle.begin_attempt();
            let rate = if promoted { None } else { self.order.rate };
            match run(&attempt, rate) {
                Err(TransferError::Cancelled { .. }) if self.may_resume() => (),
                outcome => return outcome,
            }
        }
    }

    /// Wait until the WAN may be used.
    fn await_turn(&self) -> Result<(), TransferError> {
        let mut reported: Option<Instant> = None;
        loop {
            let waiting = Progress {
                done: 0,
                total: 0,
                over_wan: true,
            };
            if reported.is_none_or(|time| time.elapsed() >= WAITING_REPORT) {
                reported = Some(Instant::now());
                self.report(waiting);
            }
            if !self.may_resume() {
                return Err(self.cancelled());
            }
            if !self.is_fill() || self.plane.wan.wait_free(WAITING_STEP) {
                return Ok(());
            }
        }
    }

    fn report(&self, progress: Progress) -> bool {
        let accepted = self.watch.is_none_or(|watch| watch(progress));
        if !accepted {
            self.refused.cancel();
        }
        accepted
    }

    fn is_fill(&self) -> bool {
        self.order.class == Class::Fill && !self.handle.is_promoted()
    }

    /// Whether an interrupted attempt is taken up again: neither the caller nor the plane ended it.
    fn may_resume(&self) -> bool {
        !self.handle.is_cancelled() && !self.refused.is_cancelled() && !self.plane.is_closed()
    }

    fn cancelled(&self) -> TransferError {
        TransferError::Cancelled {
            object: self.key.to_string(),
        }
    }
}

/// Whether the bytes of a transfer came as fast as the link allowed, until it ended.
fn is_measured(outcome: &Result<(), TransferError>) -> bool {
    matches!(outcome, Ok(()) | Err(TransferError::Cancelled { .. }))
}

impl Delivery {
    /// As JSON, for the bindings.
    pub fn to_json(&self) -> String {
        let failures: Vec<_> = self.failures.iter().map(Failure::to_json).collect();
        serde_json::json!({
            "source": self.source,
            "wan_bytes": self.wan_bytes,
            "lan_bytes": self.lan_bytes,
            "failures": failures,
            "warnings": self.warnings,
        })
        .to_string()
    }
}

impl Failure {
    fn to_json(&self) -> serde_json::Value {
        let errno = match &self.error {
            TransferError::File { source, .. } => source.raw_os_error(),
            _ => None,
        };
        serde_json::json!({
            "source": self.source,
            "host": self.host,
            "error": self.error.kind().name(),
            "errno": errno,
            "message": self.error.to_string(),
        })
    }
}

/// Reads the hosts of a site from JSON.
pub fn parse_hosts(text: &str) -> Result<Vec<SiteHost>, TransferError> {
    serde_json::from_str(text)
        .map_err(|error| TransferError::Invalid(format!("the hosts cannot be read: {error}")))
}

/// Reads an order from JSON.
pub fn parse_order(text: &str) -> Result<Order, TransferError> {
    serde_json::from_str(text)
        .map_err(|error| TransferError::Invalid(format!("the order cannot be read: {error}")))
}
