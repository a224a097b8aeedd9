//! Volumes as they are given, or as a device knows them, with their origins.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_ssdcache::cache::origin::held::{self, Held};
use diffcache_ssdcache::cache::origin::{Named, Origins};
use diffcache_ssdcache::cache::{Attachment, Mode};
use diffcache_ssdcache::device::format::{Kept, VolumeRecord};
use diffcache_ssdcache::device::Device;
use diffcache_ssdcache::rates::Rates;
use serde::Deserialize;

use crate::error::ConfigError;

const RANDOM: &str = "/dev/urandom";
/// At a start, volumes whose origins are not open after this time are served once they are.
const OPENING: Duration = Duration::from_secs(60);

/// A volume as it is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Its name.
    pub name: String,
    /// Name of its origin.
    pub origin: String,
    /// Name of its mode.
    pub mode: String,
    /// The most blocks that it has.
    pub limit: u32,
    /// Requests pass the cache by after this many bytes in sequence; 0: never.
    pub sequential: u64,
    /// A block is cached at this reference to it; 0: at that of all volumes.
    #[serde(default)]
    pub admission: u8,
    /// What it may do per second.
    #[serde(default)]
    pub rates: Rates,
}

impl VolumeConfig {
    /// Opens the origin.
    ///
    /// # Errors
    /// It cannot be opened, or the mode is not known.
    pub(crate) fn attachment(self, origins: &Origins) -> Result<Attachment, ConfigError> {
        self.attach(|name| origins.open(name))
    }

    fn attach(
        self,
        open: impl FnOnce(&str) -> io::Result<Named>,
    ) -> Result<Attachment, ConfigError> {
        let mode = Mode::named(&self.mode).ok_or_else(|| ConfigError::Parameter {
            key: "mode".into(),
            value: self.mode.clone(),
            reason: "no such mode".into(),
        })?;
        let origin = open(&self.origin).map_err(ConfigError::file(&self.origin))?;
        Ok(Attachment {
            name: self.name,
            origin_id: origin.id,
            origin: origin.disk,
            mode,
            limit: self.limit,
            sequential: self.sequential,
            admission: self.admission,
            rates: self.rates,
            random: random()?,
            kept: None,
            held: None,
        })
    }

    /// As [`attachment`](Self::attachment), where a device has had the volume: it is served once its
    /// origin is there.
    pub(crate) fn reattachment(
        self,
        opened: &mut Reopened,
        known: &[VolumeRecord],
    ) -> Result<Attachment, ConfigError> {
        let known = known.iter().find(|record| record.name == self.name);
        let Some(VolumeRecord { origin, size, .. }) = known else {
            return self.attachment(&opened.origins);
        };
        self.attach(|name| opened.take(name, (*origin, *size)))
    }

    /// Opens the origin of a volume that stays until it is detached.
    ///
    /// # Errors
    /// As [`attachment`](Self::attachment).
    pub fn lasting(self, origins: &Origins) -> Result<Attachment, ConfigError> {
        let name = self.origin.clone();
        Ok(Attachment {
            kept: Some(name),
            ..self.attachment(origins)?
        })
    }
}

/// The volumes of a device that stay until they are detached. Those of another host are none.
pub(crate) fn lasting(device: &Device, known: Vec<VolumeRecord>) -> Vec<(VolumeRecord, Kept)> {
    if device.is_foreign() {
        return Vec::new();
    }
    let known = known.into_iter();
    let lasting = known.filter_map(|record| record.kept.clone().map(|kept| (record, kept)));
    lasting.collect()
}

/// Origins that volumes had before, as far as they could be opened.
pub(crate) struct Reopened {
    origins: Arc<Origins>,
    found: HashMap<String, io::Result<Named>>,
}

impl Reopened {
    /// Opens origins at the same time, each in a thread of its own, which may hang.
    pub(crate) fn all(origins: &Arc<Origins>, names: HashSet<String>) -> Self {
        let (send, opened) = channel();
        let mut found = HashMap::new();
        for name in names {
            let (origins, send, opening) = (origins.clone(), send.clone(), name.clone());
            let open = move || {
                let opened = origins.open(&opening);
                // The start may have gone on without it.
                let _ = send.send((opening, opened));
            };
            if let Err(error) = std::thread::Builder::new().spawn(open) {
                found.insert(name, Err(error));
            }
        }
        drop(send);
        let deadline = Instant::now() + OPENING;
        let left = || deadline.saturating_duration_since(Instant::now());
        found.extend(std::iter::from_fn(|| opened.recv_timeout(left()).ok()));
        Self {
            origins: origins.clone(),
            found,
        }
    }

    /// Returns an origin. If it is missing, each request looks for it.
    fn take(&mut self, name: &str, (id, size): (u64, u64)) -> io::Result<Named> {
        let opened = self.found.remove(name).unwrap_or_else(|| {
            let late = format!("it was not open after {} seconds", OPENING.as_secs());
            Err(io::Error::new(ErrorKind::TimedOut, late))
        });
        opened.or_else(|error| {
            log::warn!("Could not open origin {name}, will retry at each request: {error}");
            self.origins.missing(name, id, size)
        })
    }
}

/// Attaches a volume that was attached before. Its export is served even if its origin is missing.
pub(crate) fn reattach(
    (record, kept): (VolumeRecord, Kept),
    opened: &mut Reopened,
) -> Result<Attachment, ConfigError> {
    let origin = opened.take(&kept.origin, (record.origin, record.size));
    let origin = match origin {
        Ok(origin) => origin,
        Err(error) => return hold((record, kept.clone()), &error.to_string()),
    };
    Ok(Attachment {
        name: record.name,
        origin_id: origin.id,
        origin: origin.disk,
        mode: Mode::numbered(kept.mode),
        limit: kept.limit,
        sequential: kept.sequential,
        admission: kept.admission,
        rates: kept.rates,
        random: random()?,
        kept: Some(kept.origin),
        held: None,
    })
}

/// Keeps a volume, whose dirty blocks stay on the device, from its origin. Its record says so: a
/// later start holds it, too.
pub(crate) fn hold(
    (record, kept): (VolumeRecord, Kept),
    reason: &str,
) -> Result<Attachment, ConfigError> {
    let held = Arc::new(Held::new(record.size, reason));
    let origin = held::name(&kept.origin);
    let name = &record.name;
    log::warn!("Volume {name}: held, {reason}");
    Ok(Attachment {
        name: record.name,
        origin_id: record.origin,
        origin: Box::new(held.clone()),
        mode: Mode::WriteBack,
        limit: kept.limit,
        sequential: kept.sequential,
        admission: kept.admission,
        rates: kept.rates,
        random: random()?,
        kept: Some(origin),
        held: Some(held),
    })
}

pub(crate) fn random() -> Result<[u8; 24], ConfigError> {
    let mut bytes = [0; 24];
    let read = File::open(RANDOM).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(ConfigError::file(RANDOM))?;
    Ok(bytes)
}
