//! An order under way: its transfers, claims and turns on the WAN.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::error::TransferError;
use crate::fetching::claimant::{Claimed, SiteHost, HOLDER_PATIENCE};
use crate::fetching::delivery::order::{Class, Order, PartSource, Source};
use crate::fetching::delivery::{Progress, Watch};
use crate::fetching::part::Durability;
use crate::fetching::peer::{Peer, Remote};
use crate::fetching::wan::{Attempt, Handle};
use crate::gate::Cancel;
use crate::ids::{Kind, ObjectKey};
use crate::plane::{DataPlane, Job};
use crate::traces::Trace;

/// How often a fill that waits for the WAN reports that it does.
const WAITING_REPORT: Duration = Duration::from_secs(1);
/// How soon a fill that waits for the WAN notices that it was cancelled or promoted.
const WAITING_STEP: Duration = Duration::from_millis(50);

/// An order under way.
pub(super) struct Run<'a> {
    pub(super) plane: &'a DataPlane,
    pub(super) order: &'a Order,
    pub(super) key: ObjectKey,
    pub(super) handle: &'a Handle,
    pub(super) watch: Option<Watch<'a>>,
    pub(super) trace: Option<Trace>,
    pub(super) refused: Cancel,
    pub(super) warnings: Vec<String>,
    pub(super) wan_bytes: AtomicU64,
    pub(super) lan_bytes: AtomicU64,
}

impl Run<'_> {
    pub(super) fn get(&mut self, source: &Source) -> Result<(), TransferError> {
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
        self.plane
            .peer_rate
            .lock()
            .unpoisoned()
            .begin(Instant::now());
        let outcome = self.over_lan(url);
        let received = self.lan_bytes.load(Ordering::Relaxed) - before;
        let counted = is_measured(&outcome).then_some(received);
        self.plane
            .peer_rate
            .lock()
            .unpoisoned()
            .end(counted, Instant::now());
        outcome
    }

    /// Read from a host of the site.
    fn over_lan(&self, url: &str) -> Result<(), TransferError> {
        self.resuming(|attempt, rate| self.fetch(url, false, &attempt.interrupt, rate))
    }

    /// Read across the WAN, or behind the host that already does.
    pub(super) fn over_wan(&mut self, repository: &SiteHost) -> Result<(), TransferError> {
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

    pub(super) fn claim(&mut self, suspect: Option<&str>) -> Result<Claimed, TransferError> {
        let warnings = &mut self.warnings;
        let mut warn = |text| warnings.push(text);
        self.plane.claimant.claim(self.key, suspect, &mut warn)
    }

    /// Leave a fill for later if its object arrives by other means.
    fn leave_to_others(&mut self) -> Result<(), TransferError> {
        if !self.is_fill() || self.key.kind != Kind::Images {
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
            self.plane
                .lent
                .lock()
                .unpoisoned()
                .insert(self.key, Instant::now() + lend);
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
