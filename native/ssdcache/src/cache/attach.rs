//! The start of a cache: volumes, and what the device has of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Instant;

use super::origin::held::Held;
use super::origin::Origins;
use super::pace::Pace;
use super::state::State;
use super::volume::{Mode, Volume};
use super::{Cache, CacheError, Options};
use crate::device::disk::Disk;
use crate::device::format::{Entry, Kept, VolumeRecord, BLOCK, MAX_NAME, MAX_ORIGIN, VOLUMES};
use crate::device::{Device, DeviceError, DirtyEntries};
use crate::partition::{Partitioner, Settings, NEVER};
use crate::Block;

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
    /// Random bytes, for the name of its export and the number of its attachment.
    pub random: [u8; 24],
    /// The path of its origin, if it stays until it is detached without being named at a start.
    pub kept: Option<String>,
    /// Its origin, if it is held.
    pub held: Option<Arc<Held>>,
}

/// A number that identifies an origin, by where it is, and by when it was created: a file
/// in the place of another may have its path and inode. `born` is in nanoseconds, 0 if unknown.
#[must_use]
pub fn origin_id(path: &str, device: u64, inode: u64, born: u64) -> u64 {
    let seed = device.rotate_left(32) ^ inode ^ born.rotate_left(16);
    xxhash_rust::xxh3::xxh3_64_with_seed(path.as_bytes(), seed)
}

impl Cache {
    /// Attaches volumes to a device, each with the blocks that it had at its end if it has the
    /// origin that it had.
    ///
    /// # Errors
    /// The limits do not fit, or the device or an origin cannot be read, or dirty blocks would be
    /// lost.
    pub fn open(
        device: Device,
        options: Options,
        attachments: Vec<Attachment>,
    ) -> Result<Self, CacheError> {
        check_names(&attachments)?;
        let mut state = State::new(Partitioner::new(Settings {
            capacity: device.capacity(),
            eviction: options.eviction,
            admission: options.admission,
            seed: device.seed(),
        }));
        let mut known = device.records()?;
        let mut dirty = device.dirty(&known)?;
        if options.discard_dirty {
            let stays = stays(&device, &known, &attachments)?;
            dirty
                .newest
                .retain(|(record, _), _| stays[usize::from(*record)].is_ok());
        } else {
            check_dirty(&dirty, &known, &stays(&device, &known, &attachments)?)?;
        }
        if device.is_foreign() {
            for (record, place) in (0..).zip(&mut known) {
                if place.take().is_some() {
                    device.write_record(record, None)?;
                }
            }
        }
        let samples = options.samples;
        let volumes = attach_all(&device, &mut state, known, attachments, samples)?;
        load(&device, &mut state, &volumes, &dirty)?;
        let cache = Self {
            device,
            state: Mutex::new(state),
            volumes: RwLock::new(volumes),
            failed: OnceLock::new(),
            pace: Pace::default(),
            note_failure: Box::new(|_| Ok(())),
            unsaved: None,
            loss_notes: None,
            options,
            committing: Mutex::default(),
            detached: Mutex::default(),
        };
        cache.take_over();
        for volume in cache.volumes() {
            if volume.mode() != Mode::WriteBack {
                cache.drain(&volume)?;
            }
            if !volume.is_held() {
                cache.shrink(&volume)?;
            }
        }
        Ok(cache)
    }
}

/// Restores what the device has of volumes.
fn load(
    device: &Device,
    state: &mut State,
    volumes: &[Arc<Volume>],
    dirty: &DirtyEntries,
) -> Result<(), CacheError> {
    let mut owners = vec![None; VOLUMES];
    for volume in volumes {
        owners[usize::from(volume.record)] = Some(volume.clone());
    }
    let of = |record: u16| owners.get(usize::from(record)).and_then(Option::as_ref);
    let now = Instant::now();
    let state = RefCell::new(state);
    device.load(
        |record| of(record).map(|volume| volume.attachment.generation),
        dirty,
        |entries| expect(&state.borrow().blocks, entries, of),
        |slot, entry| {
            let Some(volume) = of(entry.record) else {
                return false;
            };
            let inside = entry.block * (BLOCK as u64) < volume.size();
            let is_dirty = entry.dirty.is_some();
            let mut state = state.borrow_mut();
            let blocks = &mut state.blocks;
            let restored = inside && blocks.restore(volume.id, entry.block, slot, is_dirty);
            if restored {
                blocks.set_checksum(slot, Some(entry.checksum));
                if let Some(version) = entry.dirty {
                    state.restore_version(slot, version.number, now);
                }
            }
            restored
        },
    )?;
    Ok(())
}

/// Prepares to restore entries, those of one volume after the other.
fn expect<'a>(
    blocks: &Partitioner,
    entries: &[Entry],
    of: impl Fn(u16) -> Option<&'a Arc<Volume>>,
) {
    for entries in entries.chunk_by(|one, next| one.record == next.record) {
        if let Some(volume) = of(entries[0].record) {
            let numbers: Vec<Block> = entries.iter().map(|entry| entry.block).collect();
            blocks.expect(volume.id, &numbers);
        }
    }
}

fn check_names(attachments: &[Attachment]) -> Result<(), CacheError> {
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

/// Of each record, why its attachment ends, if it does.
fn stays(
    device: &Device,
    known: &[Option<VolumeRecord>],
    attachments: &[Attachment],
) -> Result<Vec<Result<(), &'static str>>, CacheError> {
    let stays = |record: &Option<VolumeRecord>| {
        let Some(old) = record else {
            return Ok(Ok(()));
        };
        let Some(found) = attachments.iter().find(|a| a.name == old.name) else {
            return Ok(Err("it is not attached now"));
        };
        let size = size_of_origin(&old.name, found.origin.as_ref())?;
        Ok(if device.is_foreign() {
            Err("another host wrote them")
        } else if found.origin_id != old.origin {
            Err("its origin is another file or device")
        } else if size != old.size {
            Err("its origin has another size")
        } else {
            Ok(())
        })
    };
    known.iter().map(stays).collect()
}

/// Refuses to lose dirty blocks.
fn check_dirty(
    dirty: &DirtyEntries,
    known: &[Option<VolumeRecord>],
    stays: &[Result<(), &'static str>],
) -> Result<(), CacheError> {
    if dirty.damaged > 0 {
        return Err(CacheError::Damaged(dirty.damaged));
    }
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for (record, _) in dirty.newest.keys() {
        *counts.entry(*record).or_default() += 1;
    }
    for (record, blocks) in counts {
        let record = usize::from(record);
        if let (Some(volume), Err(reason)) = (&known[record], stays[record]) {
            return Err(CacheError::Unsaved {
                name: volume.name.clone(),
                blocks,
                reason,
            });
        }
    }
    Ok(())
}

pub(super) fn size_of_origin(name: &str, origin: &dyn Disk) -> Result<u64, CacheError> {
    origin.size().map_err(|source| CacheError::Origin {
        name: name.to_owned(),
        source,
    })
}

/// Adds volumes to an empty state, and records them on the device.
fn attach_all(
    device: &Device,
    state: &mut State,
    known: Vec<Option<VolumeRecord>>,
    attachments: Vec<Attachment>,
    samples: usize,
) -> Result<Vec<Arc<Volume>>, CacheError> {
    let names: HashSet<String> = attachments.iter().map(|a| a.name.clone()).collect();
    let mut places: Vec<Option<VolumeRecord>> = known;
    for (record, place) in (0..).zip(&mut places) {
        if place.as_ref().is_some_and(|old| !names.contains(&old.name)) {
            device.write_record(record, None)?;
            *place = None;
        }
    }
    attachments
        .into_iter()
        .map(|attachment| attach(device, state, &mut places, attachment, samples))
        .collect()
}

/// Adds a volume to a state, and records it on the device.
pub(super) fn attach(
    device: &Device,
    state: &mut State,
    places: &mut [Option<VolumeRecord>],
    attachment: Attachment,
    samples: usize,
) -> Result<Arc<Volume>, CacheError> {
    let (mode, sequential) = (attachment.mode, attachment.sequential);
    let admission = attachment.admission;
    let kept = attachment.kept.map(|origin| Kept {
        origin,
        mode: mode as u8,
        limit: attachment.limit,
        sequential,
        admission,
    });
    let Attachment {
        name, origin, held, ..
    } = attachment;
    let size = size_of_origin(&name, origin.as_ref())?;
    let is_it = |place: &Option<VolumeRecord>| place.as_ref().is_some_and(|old| old.name == name);
    let known = places.iter().position(is_it);
    let place = known.or_else(|| places.iter().position(Option::is_none));
    let place = place.ok_or(CacheError::Volumes)?;
    let (mut export, mut generation) = ([0; 16], [0; 8]);
    export.copy_from_slice(&attachment.random[..16]);
    generation.copy_from_slice(&attachment.random[16..]);
    let mut wanted = VolumeRecord {
        generation: u64::from_le_bytes(generation),
        export,
        size,
        origin: attachment.origin_id,
        name,
        kept,
    };
    if let Some(old) = &places[place] {
        wanted.export = old.export;
        // Another origin, or another size: what is cached may not be its content.
        if old.origin == wanted.origin && old.size == wanted.size {
            wanted.generation = old.generation;
        }
    }
    let had = places[place].as_ref().map(|old| old.origin);
    if had != Some(wanted.origin) {
        device
            .forget_intents(place as u16)
            .map_err(DeviceError::from)?;
    }
    let partition = state.blocks.add_partition(attachment.limit)?;
    state.blocks.set_admission(partition, admission);
    let id = state.blocks.add_volume(partition);
    let id = id.inspect_err(|_| state.blocks.remove_partition(partition))?;
    if places[place].as_ref() != Some(&wanted) {
        if let Err(error) = device.write_record(place as u16, Some(&wanted)) {
            state.blocks.remove_volume(id);
            state.blocks.remove_partition(partition);
            return Err(error.into());
        }
    }
    places[place] = Some(wanted.clone());
    let ids = (id, partition);
    let followed = (sequential, samples);
    let volume = Volume::new(ids, place as u16, wanted, (origin, held), mode, followed);
    Ok(Arc::new(volume))
}
