//! Volumes that are to be attached, and what is refused of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use diffcache_partitions::NEVER;

use super::error::CacheError;
use super::origin::held::{self, Held};
use super::origin::Origins;
use super::volume::Mode;
use crate::device::disk::Disk;
use crate::device::format::{VolumeRecord, MAX_NAME, MAX_ORIGIN, VOLUMES};
use crate::rates::Rates;

/// A volume to attach.
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// What it caches.
    pub origin: Box<dyn Disk>,
    /// Identifies the origin, see [`origin_id`].
    pub origin_id: u64,
    /// What its cache does.
    pub mode: Mode,
    /// The most blocks that it has.
    pub limit: u32,
    /// Requests pass the cache by after this many bytes in sequence; 0: never.
    pub sequential: u64,
    /// A block is cached at this reference to it; 0: at that of all volumes.
    pub admission: u8,
    /// What it may do per second.
    pub rates: Rates,
    /// Random bytes, for the name of its export and the number of its attachment.
    pub random: [u8; 24],
    /// The path of its origin, if it stays until it is detached without being named at a start.
    pub kept: Option<String>,
    /// Its origin, if it is held.
    pub held: Option<Arc<Held>>,
}

impl Attachment {
    /// A volume that keeps what the device has of it, and leaves its origin alone.
    pub(super) fn held(old: &VolumeRecord, reason: &str) -> Self {
        let held = Arc::new(Held::new(old.size, reason));
        let kept = old.kept.as_ref();
        Self {
            name: old.name.clone(),
            origin: Box::new(held.clone()),
            origin_id: old.origin,
            mode: Mode::WriteBack,
            limit: kept.map_or(0, |kept| kept.limit),
            sequential: kept.map_or(0, |kept| kept.sequential),
            admission: kept.map_or(0, |kept| kept.admission),
            rates: kept.map(|kept| kept.rates).unwrap_or_default(),
            random: [0; 24],
            kept: kept.map(|kept| kept.origin.clone()),
            held: Some(held),
        }
    }

    /// Has later starts hold a volume that is held.
    pub(super) fn keep_held(&mut self) {
        if self.held.is_some() {
            let origin = self.kept.as_deref().unwrap_or_default();
            self.kept = Some(held::name(origin));
        }
    }
}

pub(super) fn check_names(attachments: &[Attachment]) -> Result<(), CacheError> {
    if attachments.len() > VOLUMES {
        return Err(CacheError::Volumes);
    }
    let mut names = HashSet::new();
    for attachment in attachments {
        check_attachment(attachment)?;
        if !names.insert(&attachment.name) {
            return Err(CacheError::Name(attachment.name.clone()));
        }
    }
    check_origins(attachments)
}

/// Refuses several volumes with one origin: what one writes, the cache of the other does not see.
fn check_origins(attachments: &[Attachment]) -> Result<(), CacheError> {
    let mut known: HashMap<Identity, &str> = HashMap::new();
    for attachment in attachments.iter().filter(|a| a.held.is_none()) {
        let name = &attachment.name;
        for identity in identities(attachment.origin.as_ref(), attachment.origin_id) {
            if let Some(other) = known.insert(identity, name) {
                return Err(same_origin(name, other));
            }
        }
    }
    Ok(())
}

/// What identifies an origin: two with something in common are the same.
#[derive(PartialEq, Eq, Hash)]
pub(super) enum Identity {
    /// Its number, also while it is missing.
    Id(u64),
    /// What it is, whatever its name.
    Is(String),
}

pub(super) fn identities(origin: &dyn Disk, id: u64) -> impl Iterator<Item = Identity> {
    let known = origin.identity().map(Identity::Is);
    std::iter::once(Identity::Id(id)).chain(known)
}

pub(super) fn same_origin(name: &str, other: &str) -> CacheError {
    CacheError::SameOrigin {
        name: name.to_owned(),
        other: other.to_owned(),
    }
}

/// Refuses a number of references that are not counted.
pub(super) fn check_admission(name: &str, admission: u8) -> Result<(), CacheError> {
    if admission > NEVER {
        return Err(CacheError::Admission(name.to_owned()));
    }
    Ok(())
}

/// Refuses what a record has no room for, and settings out of range.
pub(super) fn check_attachment(attachment: &Attachment) -> Result<(), CacheError> {
    let Attachment { name, kept, .. } = attachment;
    check_admission(name, attachment.admission)?;
    if !(1..=MAX_NAME).contains(&name.len()) {
        return Err(CacheError::Name(name.clone()));
    }
    let fits = |path: &String| Origins::is_name(path) && path.len() <= MAX_ORIGIN;
    match kept {
        Some(path) if !fits(path) => Err(CacheError::Path(name.clone())),
        _ => Ok(()),
    }
}

pub(super) fn size_of_origin(name: &str, origin: &dyn Disk) -> Result<u64, CacheError> {
    origin.size().map_err(|source| CacheError::Origin {
        name: name.to_owned(),
        source,
    })
}
