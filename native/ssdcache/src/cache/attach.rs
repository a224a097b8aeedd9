//! The start of a cache: volumes, and what the device has of them.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::Instant;

use super::origin::held::{self, Held};
use super::origin::Origins;
use super::pace::Pace;
use super::state::State;
use super::volume::{lock, Mode, Volume};
use super::{Cache, CacheError, Options};
use crate::device::disk::Disk;
use crate::device::format::{Entry, Kept, VolumeRecord, BLOCK, MAX_NAME, MAX_ORIGIN, VOLUMES};
use crate::device::{Device, DeviceError, DirtyEntries};
use diffcache_partitions::Block;
use diffcache_partitions::{Partitioner, Settings, NEVER};

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

impl Attachment {
    /// A volume that keeps what the device has of it, and leaves its origin alone.
    fn held(old: &VolumeRecord, reason: &str) -> Self {
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
            random: [0; 24],
            kept: kept.map(|kept| kept.origin.clone()),
            held: Some(held),
        }
    }

    /// Has later starts hold a volume that is held.
    fn keep_held(&mut self) {
        if self.held.is_some() {
            let origin = self.kept.as_deref().unwrap_or_default();
            self.kept = Some(held::name(origin));
        }
    }
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
    /// origin that it had. One that has dirty blocks on the device, and cannot have them as it is
    /// attached now, is held with them, and others are served.
    ///
    /// # Errors
    /// The limits do not fit, or the device cannot be read.
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
        let known = device.records()?;
        let mut dirty = device.dirty(&known)?;
        let mut fates = fates(&device, &known, &attachments, &dirty);
        if options.discard_dirty {
            discard(&mut fates, &mut dirty);
        }
        let mut attachments = hold(&known, &fates, attachments);
        if device.is_foreign() {
            attachments.iter_mut().for_each(Attachment::keep_held);
        }
        let sizes = smaller(&known, &fates);
        let places = end_others(&device, known, &fates, &attachments)?;
        let samples = options.samples;
        let volumes = attach_all(&device, &mut state, (places, sizes), attachments, samples)?;
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
            if volume.mode() != Mode::WriteBack && cache.dirty_blocks(&volume) > 0 {
                volume.postpone_mode();
            }
            // Dirty blocks above the limit are written back later: no start waits for an origin.
            cache.evict_excess(&volume);
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
    // No block is put into the slots of damaged entries.
    let nothing = state.blocks.add_partition(0)?;
    let unowned = state.blocks.add_volume(nothing)?;
    let now = Instant::now();
    let state = RefCell::new(state);
    device.load(
        |record| of(record).map(|volume| volume.attachment.generation),
        dirty,
        |entries| expect(&state.borrow().blocks, entries, of),
        |slot, entry| {
            let mut state = state.borrow_mut();
            let blocks = &mut state.blocks;
            let Some(entry) = entry else {
                return blocks.restore(unowned, Block::from(slot), slot, true);
            };
            let Some(volume) = of(entry.record) else {
                return false;
            };
            let inside = entry.block * (BLOCK as u64) < volume.size();
            let is_dirty = entry.dirty.is_some();
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
    for (record, slots) in &dirty.damaged {
        let count = slots.len();
        match of(*record) {
            Some(volume) => lock(&volume.damaged).extend(slots),
            None => eprintln!("diffcache-ssdcache: {count} entries of dirty blocks are damaged, of volume number {record}, which there is not"),
        }
    }
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

/// What becomes of a record at a start.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fate {
    /// There is none.
    Free,
    /// Its attachment stays.
    Stays,
    /// Its attachment stays, with this size: the origin became larger, and dirty blocks are of the
    /// size that it had.
    StaysSmaller,
    /// Its attachment ends.
    Ends,
    /// It has dirty blocks, and its attachment cannot stay for this reason.
    Held(String),
}

/// Decides what becomes of each record.
fn fates(
    device: &Device,
    known: &[Option<VolumeRecord>],
    attachments: &[Attachment],
    dirty: &DirtyEntries,
) -> Vec<Fate> {
    let mut counts = vec![0; known.len()];
    for (record, _) in dirty.newest.keys() {
        counts[usize::from(*record)] += 1;
    }
    let fate = |(record, known): (u16, &Option<VolumeRecord>)| {
        let Some(old) = known else {
            return Fate::Free;
        };
        let count = counts[usize::from(record)];
        if let Some(damaged) = dirty.damaged.get(&record) {
            let damaged = damaged.len();
            return Fate::Held(format!("{damaged} entries of its dirty blocks are damaged"));
        }
        let found = attachments.iter().find(|a| a.name == old.name);
        match why_it_ends(device, old, found) {
            Ok(Ordering::Greater) if count > 0 => Fate::StaysSmaller,
            Ok(Ordering::Equal) => Fate::Stays,
            Ok(_) if count == 0 => Fate::Ends,
            Ok(_) => Fate::Held(held_for("its origin has another size", count)),
            Err(reason) if count > 0 => Fate::Held(held_for(&reason, count)),
            Err(_) => Fate::Ends,
        }
    };
    (0..).zip(known).map(fate).collect()
}

fn held_for(reason: &str, dirty: u32) -> String {
    format!("it has {dirty} dirty blocks, but {reason}")
}

/// Why the attachment of a record ends; if it does not, whether its origin is larger than it was.
fn why_it_ends(
    device: &Device,
    old: &VolumeRecord,
    found: Option<&Attachment>,
) -> Result<Ordering, String> {
    let found = found.ok_or("it is not attached now")?;
    if device.is_foreign() {
        return Err("another host wrote them".into());
    }
    let was_held = |kept: &Kept| held::is_held(&kept.origin);
    if found.held.is_none() && old.kept.as_ref().is_some_and(was_held) {
        return Err("it was held before".into());
    }
    if found.origin_id != old.origin {
        return Err("its origin is another file or device".into());
    }
    let size = found.origin.size().map_err(|error| error.to_string())?;
    Ok(size.cmp(&old.size))
}

/// Has attachments end, and dirty blocks be lost, rather than be held.
fn discard(fates: &mut [Fate], dirty: &mut DirtyEntries) {
    for fate in fates.iter_mut() {
        if matches!(fate, Fate::Held(_)) {
            *fate = Fate::Ends;
        }
    }
    let stays = |record: &u16| {
        matches!(
            fates[usize::from(*record)],
            Fate::Stays | Fate::StaysSmaller
        )
    };
    dirty.newest.retain(|(record, _), _| stays(record));
    dirty.damaged.clear();
}

/// Replaces attachments by such that are held.
fn hold(
    known: &[Option<VolumeRecord>],
    fates: &[Fate],
    mut attachments: Vec<Attachment>,
) -> Vec<Attachment> {
    for (old, fate) in known.iter().zip(fates) {
        let (Some(old), Fate::Held(reason)) = (old, fate) else {
            continue;
        };
        eprintln!("diffcache-ssdcache: volume {}: held, {reason}", old.name);
        attachments.retain(|attachment| attachment.name != old.name);
        attachments.push(Attachment::held(old, reason));
    }
    attachments
}

/// The sizes of volumes that are served as they were before their origins became larger.
fn smaller(known: &[Option<VolumeRecord>], fates: &[Fate]) -> HashMap<String, u64> {
    let pairs = known.iter().zip(fates);
    let pairs = pairs.filter(|(_, fate)| **fate == Fate::StaysSmaller);
    let old = pairs.filter_map(|(old, _)| old.as_ref());
    old.map(|old| (old.name.clone(), old.size)).collect()
}

/// Erases the entries of records whose attachments end, before others have the records, and then
/// the records that no attachment has.
fn end_others(
    device: &Device,
    mut known: Vec<Option<VolumeRecord>>,
    fates: &[Fate],
    attachments: &[Attachment],
) -> Result<Vec<Option<VolumeRecord>>, CacheError> {
    let ends = |record: &u16| fates[usize::from(*record)] == Fate::Ends;
    let ended: Vec<u16> = (0..known.len() as u16).filter(ends).collect();
    device.erase_entries(&ended, |record| {
        let old = known.get(usize::from(record))?.as_ref();
        old.filter(|_| !ends(&record)).map(|old| old.generation)
    })?;
    for record in ended {
        let place = &mut known[usize::from(record)];
        let has_name = |old: &VolumeRecord| attachments.iter().any(|a| a.name == old.name);
        if device.is_foreign() || !place.as_ref().is_some_and(has_name) {
            device.write_record(record, None)?;
            *place = None;
        }
    }
    Ok(known)
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
    (mut places, sizes): (Vec<Option<VolumeRecord>>, HashMap<String, u64>),
    attachments: Vec<Attachment>,
    samples: usize,
) -> Result<Vec<Arc<Volume>>, CacheError> {
    let mut left = device.capacity();
    let attach_one = |mut attachment: Attachment| {
        attachment.limit = fit(&attachment, left);
        left = left.saturating_sub(attachment.limit);
        let size = sizes.get(&attachment.name).copied();
        attach(device, state, &mut places, (attachment, size), samples)
    };
    attachments.into_iter().map(attach_one).collect()
}

/// The limit of a volume. One that a record has, and does not fit beside others, as after a crash
/// while limits were changed, is lowered.
fn fit(attachment: &Attachment, left: u32) -> u32 {
    let Attachment { name, limit, .. } = attachment;
    let is_recorded = attachment.kept.is_some() || attachment.held.is_some();
    if is_recorded && *limit > left {
        eprintln!("diffcache-ssdcache: volume {name}: limit lowered from {limit} to {left} blocks, as others have the rest");
        return left;
    }
    *limit
}

/// Adds a volume to a state, and records it on the device; its size is that of its origin, if none
/// is given.
pub(super) fn attach(
    device: &Device,
    state: &mut State,
    places: &mut [Option<VolumeRecord>],
    (attachment, size): (Attachment, Option<u64>),
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
    let size = match size {
        Some(size) => size,
        None => size_of_origin(&name, origin.as_ref())?,
    };
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
