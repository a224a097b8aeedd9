//! The start of a cache: volumes, and what the device has of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Instant;

use diffcache_base::locks::{ShortLock, Unpoisoned};
use diffcache_base::sync::atomic::AtomicU64;
use diffcache_base::sync::{Arc, Condvar, Mutex, RwLock};
use diffcache_base::words::Words;
use diffcache_partitions::{Block, PartitionError, PartitionId, Partitioner, Settings, VolumeId};

use super::attachment::{check_names, size_of_origin, Attachment};
use super::error::CacheError;
use super::fates::{discard, fates, hold, leave_out_detached, smaller, Fate};
use super::pace::Pace;
use super::state::State;
use super::volume::{Mode, Volume};
use super::{Cache, Options};
use crate::device::format::{Entry, Kept, Leaving, VolumeRecord, BLOCK, VOLUMES};
use crate::device::{Device, DeviceError, DirtyEntries};

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
        mut attachments: Vec<Attachment>,
    ) -> Result<Self, CacheError> {
        check_names(&attachments)?;
        let mut state = ShortLock::new(State::new(Partitioner::new(Settings {
            capacity: device.capacity(),
            eviction: options.eviction,
            admission: options.admission,
            seed: device.seed(),
        })));
        let known = device.records()?;
        leave_out_detached(&known, &mut attachments);
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
        let volumes = attach_all(&device, &state, (places, sizes), attachments, samples)?;
        load(&device, state.get_mut(), &volumes, &dirty)?;
        let cache = Self {
            device,
            state,
            written: Condvar::new(),
            volumes: RwLock::new(volumes),
            failed: OnceLock::new(),
            pace: Pace::default(),
            ring_reads: AtomicU64::default(),
            ring_refused: AtomicU64::default(),
            unreadable: AtomicU64::default(),
            note_failure: Box::new(|_| Ok(())),
            unsaved: None,
            loss_notes: None,
            options,
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
            Some(volume) => volume.damaged.lock().unpoisoned().extend(slots),
            None => log::warn!("{count} entries of dirty blocks are damaged, of volume number {record}, which there is not"),
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
            device.forget_intents(record)?;
            *place = None;
        }
    }
    Ok(known)
}

/// Adds volumes to an empty state, and records them on the device.
fn attach_all(
    device: &Device,
    state: &ShortLock<State>,
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
        log::warn!(
            "Volume {name}: limit lowered from {limit} to {left} blocks, as others have the rest"
        );
        return left;
    }
    *limit
}

/// Adds a volume to a state, and records it on the device, while others use the state; its size is
/// that of its origin, if none is given.
pub(super) fn attach(
    device: &Device,
    state: &ShortLock<State>,
    places: &mut [Option<VolumeRecord>],
    (attachment, size): (Attachment, Option<u64>),
    samples: usize,
) -> Result<Arc<Volume>, CacheError> {
    let name = &attachment.name;
    let size = match size {
        Some(size) => size,
        None => size_of_origin(name, attachment.origin.as_ref())?,
    };
    let is_it = |place: &Option<VolumeRecord>| place.as_ref().is_some_and(|old| old.name == *name);
    let known = places.iter().position(is_it);
    let place = known.or_else(|| places.iter().position(Option::is_none));
    let place = place.ok_or(CacheError::Volumes)?;
    let old = places[place].as_ref();
    let wanted = record_of(&attachment, size, old);
    if old.map(|old| old.origin) != Some(wanted.origin) {
        device
            .forget_intents(place as u16)
            .map_err(DeviceError::from)?;
    }
    let ids = add(&mut state.lock().blocks, &attachment)?;
    if old != Some(&wanted) {
        let written = device.write_record(place as u16, Some(&wanted));
        written.inspect_err(|_| remove(&mut state.lock().blocks, ids))?;
    }
    places[place] = Some(wanted.clone());
    let followed = (attachment.sequential, samples);
    let origin = (attachment.origin, attachment.held);
    let volume = Volume::new(ids, place as u16, wanted, origin, attachment.mode, followed);
    volume.throttle().set_rates(attachment.rates);
    Ok(Arc::new(volume))
}

/// Adds a volume with a partition of its own.
fn add(
    blocks: &mut Partitioner,
    attachment: &Attachment,
) -> Result<(VolumeId, PartitionId), PartitionError> {
    let partition = blocks.add_partition(attachment.limit)?;
    blocks.set_admission(partition, attachment.admission);
    let id = blocks.add_volume(partition);
    let id = id.inspect_err(|_| blocks.remove_partition(partition))?;
    Ok((id, partition))
}

/// Removes a volume and its partition.
pub(super) fn remove(blocks: &mut Partitioner, (id, partition): (VolumeId, PartitionId)) {
    blocks.remove_volume(id);
    blocks.remove_partition(partition);
}

/// The record of a volume, which keeps of an old one what stays true.
fn record_of(attachment: &Attachment, size: u64, old: Option<&VolumeRecord>) -> VolumeRecord {
    let random = Words(&attachment.random);
    let mut wanted = VolumeRecord {
        generation: random.le64(16),
        export: random.array(0),
        size,
        origin: attachment.origin_id,
        name: attachment.name.clone(),
        kept: attachment.kept.clone().map(|origin| Kept {
            origin,
            mode: attachment.mode as u8,
            limit: attachment.limit,
            sequential: attachment.sequential,
            admission: attachment.admission,
            rates: attachment.rates,
        }),
        leaving: Leaving::Nothing,
    };
    if let Some(old) = old {
        wanted.export = old.export;
        // Another origin, or another size: what is cached may not be its content.
        if old.origin == wanted.origin && old.size == wanted.size {
            wanted.generation = old.generation;
        }
    }
    wanted
}
