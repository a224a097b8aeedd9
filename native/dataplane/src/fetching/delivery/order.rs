//! What to deliver, and from which sources.

use std::path::PathBuf;

use serde::Deserialize;

use crate::error::TransferError;
use crate::fetching::build::Place;
use crate::fetching::claimant::SiteHost;
use crate::fetching::peer::{Peer, Remote};
use crate::ids::ObjectKey;
use crate::traces::Trace;

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
        /// The manifest that the file is known to match, so that it need not be read to be sure of that.
        #[serde(default)]
        manifest: Option<PathBuf>,
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
    /// The manifest that an image is verified against.
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

impl Source {
    pub(super) fn hosts(&self) -> impl Iterator<Item = &str> {
        let (first, second) = match self {
            Source::Host { host, .. } => (Some(host.as_str()), None),
            Source::Build { base, patch } => (base.host(), patch.host()),
        };
        first.into_iter().chain(second)
    }

    /// The repository that it reads from.
    pub(super) fn repository(&self) -> Option<SiteHost> {
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
    pub(super) fn site_hosts(&self) -> impl Iterator<Item = (&str, &str)> {
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
    pub(super) fn blamed(&self, error: &TransferError) -> Option<String> {
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
    pub(super) fn ends_list(&self, error: &TransferError) -> bool {
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

pub(super) fn parse_trace(text: &str) -> Result<Trace, TransferError> {
    Trace::parse(text)
        .ok_or_else(|| TransferError::Invalid(format!("'{text}' is no text of a trace")))
}

impl PartSource {
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            PartSource::File { .. } => None,
            PartSource::Host { host, .. } => Some(host),
        }
    }

    pub(super) fn url(&self) -> Option<&str> {
        match self {
            PartSource::File { .. } => None,
            PartSource::Host { url, .. } => Some(url),
        }
    }

    pub(super) fn place(&self, trace: &Option<Trace>) -> Result<Place, TransferError> {
        match self {
            PartSource::File { path, manifest } => Ok(match manifest {
                Some(manifest) => Place::Known(path.clone(), manifest.clone()),
                None => Place::Local(path.clone()),
            }),
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
