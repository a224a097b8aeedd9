//! Getting an object from the first of several sources that delivers it.
//!
//! The caller ranks the sources and says what each one is; here they are tried in that order. What crosses the WAN does so under a claim, once
//! per site: the first applicant becomes the holder and uses the WAN, the others read from the holder while the object is still arriving there. A
//! holder that does not deliver is named as suspect, and the applicant that noticed takes over.

mod order;
mod run;

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use diffcache_base::locks::Unpoisoned;

use crate::error::TransferError;
use crate::fetching::delivery::order::parse_trace;
pub use crate::fetching::delivery::order::{
    parse_hosts, parse_order, Class, Link, Order, PartSource, Source,
};
use crate::fetching::delivery::run::Run;
use crate::fetching::wan::Handle;
use crate::gate::Cancel;
use crate::ids::ObjectKey;
use crate::plane::{check_rate, DataPlane};

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
        let lent: Vec<_> = self.lent.lock().unpoisoned().drain().collect();
        for (key, _) in &lent {
            self.recall(*key);
        }
        lent.iter().any(|(_, until)| *until > now)
    }
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
