//! Volumes that are attached, resized and detached while others are served.

use std::io;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::atomic::Ordering;
use diffcache_base::sync::{Arc, MutexGuard, Weak};
use diffcache_partitions::{PartitionId, VolumeId};

use super::attach::{attach, remove};
use super::attachment::{
    check_admission, check_attachment, identities, same_origin, size_of_origin, Attachment,
    Identity,
};
use super::error::{origin_error, CacheError};
use super::origin::check_size;
use super::volume::{Mode, Volume};
use super::{touched, Cache};
use crate::device::disk::Disk;
use crate::device::format::{Kept, Leaving, VolumeRecord, BLOCK, VOLUMES};
use crate::rates::Rates;

/// A volume that was detached, and that clients which are still connected may use.
pub(super) struct Detached {
    volume: Weak<Volume>,
    id: VolumeId,
    partition: PartitionId,
}

impl Detached {
    fn of(volume: &Arc<Volume>) -> Self {
        Self {
            volume: Arc::downgrade(volume),
            id: volume.id,
            partition: volume.partition,
        }
    }
}

impl Cache {
    /// Excludes others that change which volumes there are.
    fn begin_changing(&self) -> MutexGuard<'_, Vec<Detached>> {
        let lock = self.detached.lock();
        lock.unpoisoned()
    }

    /// Attaches a volume, without cached blocks. If it is attached with the same origin, it gets
    /// the mode, the limit and what is cached of requests, and keeps its export and its blocks.
    ///
    /// # Errors
    /// It is attached with another origin, or being detached; the limits do not fit; the device or
    /// the origin cannot be used.
    pub fn attach(&self, attachment: Attachment) -> Result<Arc<Volume>, CacheError> {
        check_attachment(&attachment)?;
        let mut detached = self.begin_changing();
        if let Ok(known) = self.volume(&attachment.name) {
            // It may wait for its origin; others do not wait for that.
            drop(detached);
            self.change_attached(&known, &attachment)?;
            return Ok(known);
        }
        self.check_origin(&attachment)?;
        self.check_elsewhere(&attachment)?;
        self.forget_unused(&mut detached);
        let mut places = self.places();
        let (wanted, samples) = ((attachment, None), self.options.samples);
        let attached = attach(&self.device, &self.state, &mut places, wanted, samples);
        let volume = attached.inspect_err(|error| self.fail_by(error))?;
        if volume.mode() == Mode::WriteBack {
            if let Err(error) = self.begin_unsaved(&volume) {
                self.put_record(&volume, None)?;
                detached.push(Detached::of(&volume));
                return Err(error);
            }
        }
        // A note of before is of clients that have left.
        self.forget_losses(&volume);
        let volumes = self.volumes.write();
        let mut volumes = volumes.unpoisoned();
        let place = volumes.partition_point(|other| other.id < volume.id);
        volumes.insert(place, volume.clone());
        Ok(volume)
    }

    /// Refuses an origin that another volume has.
    fn check_origin(&self, attachment: &Attachment) -> Result<(), CacheError> {
        let wanted: Vec<Identity> =
            identities(attachment.origin.as_ref(), attachment.origin_id).collect();
        let volumes = self.volumes();
        let mut served = volumes.iter().filter(|volume| !volume.is_held());
        let has_it = |volume: &&Arc<Volume>| {
            let mut has = identities(volume.origin(), volume.attachment.origin);
            has.any(|identity| wanted.contains(&identity))
        };
        match served.find(has_it) {
            Some(other) => Err(same_origin(&attachment.name, other.name())),
            None => Ok(()),
        }
    }

    /// Refuses an origin of which another device may have newer blocks.
    fn check_elsewhere(&self, attachment: &Attachment) -> Result<(), CacheError> {
        let Some(notes) = &self.unsaved else {
            return Ok(());
        };
        let name = attachment.name.clone();
        match notes.elsewhere(attachment.origin_id) {
            Ok(None) => Ok(()),
            Ok(Some(device)) => Err(CacheError::Elsewhere {
                name,
                device,
                note: notes.path(attachment.origin_id),
            }),
            Err(source) => Err(CacheError::Note { name, source }),
        }
    }

    fn change_attached(&self, known: &Volume, wanted: &Attachment) -> Result<(), CacheError> {
        if known.ending.load(Ordering::Acquire) {
            return Err(CacheError::Detaching(known.name().to_owned()));
        }
        let path = known.kept().as_ref().map(|kept| kept.origin.clone());
        let size = size_of_origin(known.name(), wanted.origin.as_ref())?;
        let same = path == wanted.kept && known.attachment.origin == wanted.origin_id;
        if !same || size != known.size() {
            return Err(CacheError::Attached(known.name().to_owned()));
        }
        self.set_limit(known, wanted.limit)?;
        self.set_sequential(known, wanted.sequential)?;
        self.set_admission(known, wanted.admission)?;
        self.set_rates(known, wanted.rates)?;
        self.set_mode(known, wanted.mode)
    }

    /// The records of the attached volumes; others are free.
    fn places(&self) -> Vec<Option<VolumeRecord>> {
        let mut places = vec![None; VOLUMES];
        for volume in self.volumes() {
            places[usize::from(volume.record)] = Some(volume.record_now());
        }
        places
    }

    /// Has the numbers used again of detached volumes that no client uses.
    fn forget_unused(&self, detached: &mut Vec<Detached>) {
        detached.retain(|ended| {
            let used = ended.volume.strong_count() > 0;
            if !used {
                remove(&mut self.lock().blocks, (ended.id, ended.partition));
            }
            used
        });
    }

    /// Changes the settings that a start finds.
    pub(super) fn keep(
        &self,
        volume: &Volume,
        change: impl FnOnce(&mut Kept),
    ) -> Result<(), CacheError> {
        // Records are written in the order of the changes.
        let mut kept = volume.kept();
        if let Some(kept) = kept.as_mut() {
            change(kept);
        }
        self.write_record(volume, &kept)
    }

    fn write_record(&self, volume: &Volume, kept: &Option<Kept>) -> Result<(), CacheError> {
        if volume.ending.load(Ordering::Acquire) {
            return Ok(());
        }
        self.put_record(volume, Some(&volume.record_with(kept.clone())))
    }

    /// Writes the record of a volume, or erases it. A device that failed is not opened again. An error
    /// is that of the device: it may be about what was written before, and is reported once.
    pub(super) fn put_record(
        &self,
        volume: &Volume,
        record: Option<&VolumeRecord>,
    ) -> Result<(), CacheError> {
        if self.is_failure_noted() {
            return Ok(());
        }
        let written = self.device.write_record(volume.record, record);
        Ok(written.inspect_err(|error| self.fail(error))?)
    }

    /// Changes after how many bytes in sequence requests to a volume pass the cache by; 0: never.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn set_sequential(&self, volume: &Volume, bytes: u64) -> Result<(), CacheError> {
        volume.set_sequential(bytes);
        self.keep(volume, |kept| kept.sequential = bytes)
    }

    /// Changes at which reference to them the blocks of a volume are cached; 0: as those of all
    /// volumes, [`NEVER`](diffcache_partitions::NEVER): none. What is cached stays; without new blocks,
    /// a write makes the cache forget the block, so that nothing is written to the device.
    ///
    /// # Errors
    /// The number is too large, or the device cannot be written.
    pub fn set_admission(&self, volume: &Volume, admission: u8) -> Result<(), CacheError> {
        check_admission(volume.name(), admission)?;
        self.lock()
            .blocks
            .set_admission(volume.partition, admission);
        self.keep(volume, |kept| kept.admission = admission)
    }

    /// Changes what a volume may do per second.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn set_rates(&self, volume: &Volume, rates: Rates) -> Result<(), CacheError> {
        volume.throttle().set_rates(rates);
        self.refresh_lent();
        self.keep(volume, |kept| kept.rates = rates)
    }

    /// Gives a volume the size that its origin has now. What is cached of it stays.
    ///
    /// # Errors
    /// The origin is smaller than it was, or cannot be read or written; the device cannot be
    /// written.
    pub fn resize(&self, volume: &Volume) -> Result<(), CacheError> {
        // The origin may take its time: others are attached and detached meanwhile.
        let _resizing = volume.resizing.lock().unpoisoned();
        if volume.ending.load(Ordering::Acquire) {
            return Err(CacheError::Detaching(volume.name().to_owned()));
        }
        // The origin may be opened anew, which is not to lose what was not flushed.
        let _closed = volume.close_gate();
        let before = volume.size();
        let writing_back = self.begin_writing_back(volume);
        if let Err(error) = self.sync_origin(volume) {
            // What is lost is noted, and a server that is there again has another size perhaps.
            let name = volume.name();
            log::warn!("Volume {name}: could not flush its origin: {error}");
        }
        let now = volume
            .origin()
            .size_now()
            .and_then(|now| check_size(now).map(|()| now))
            .map_err(|source| origin_error(volume, source))?;
        drop(writing_back);
        if now < before {
            return Err(CacheError::Smaller {
                name: volume.name().to_owned(),
                before,
                now,
            });
        }
        if now == before {
            return Ok(());
        }
        // What is cached of the block with the old end has zeroes for what is behind it. Until the
        // volume has its new size, nobody may cache it again.
        let partial = before - before % BLOCK as u64..before;
        if partial.is_empty() {
            self.grow(volume, now)?;
        } else {
            let renew = |_| self.grow(volume, now).map_err(io::Error::other);
            self.clean(volume, touched(partial.start, 1))
                .and_then(|()| self.change(volume, partial, true, renew))
                .map_err(|source| origin_error(volume, source))?;
        }
        self.refresh_lent();
        Ok(())
    }

    /// Has a volume have its new size once its record has it: a start forgets blocks behind that.
    fn grow(&self, volume: &Volume, size: u64) -> Result<(), CacheError> {
        let kept = volume.kept();
        let record = VolumeRecord {
            size,
            ..volume.record_with(kept.clone())
        };
        self.put_record(volume, Some(&record))?;
        volume.set_size(size);
        Ok(())
    }

    /// Ends the attachment of a volume: flushes it, and forgets its blocks and its export. Requests
    /// that are under way end without the cache. Dirty blocks are written back before, or lost if
    /// they are to be discarded.
    ///
    /// # Errors
    /// The origin cannot be written, or the device cannot be written.
    pub fn detach(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        if volume.ending.swap(true, Ordering::AcqRel) {
            return Err(CacheError::Detaching(volume.name().to_owned()));
        }
        let ended = self.end(volume, discard_dirty);
        if ended.is_err() {
            volume.ending.store(false, Ordering::Release);
        }
        ended
    }

    /// Writes the dirty blocks of a held volume back to its origin. It is held without them then,
    /// and to be detached: a caller that did not wait for the end finds out from its state.
    ///
    /// # Errors
    /// It is not held; the origin is smaller than it was, or cannot be written: the volume keeps
    /// the dirty blocks that are left; the device cannot be written.
    pub fn recover(&self, volume: &Volume, origin: Box<dyn Disk>) -> Result<(), CacheError> {
        let name = volume.name();
        let held = volume.held.as_ref();
        let held = held.ok_or_else(|| CacheError::NotHeld(name.to_owned()))?;
        let (before, now) = (volume.size(), size_of_origin(name, origin.as_ref())?);
        if now < before {
            let name = name.to_owned();
            return Err(CacheError::Smaller { name, before, now });
        }
        if !held.release(origin) {
            return Err(CacheError::Detaching(name.to_owned()));
        }
        let written = self.set_mode(volume, Mode::WriteThrough);
        held.hold();
        written
    }

    fn end(&self, volume: &Volume, discard_dirty: bool) -> Result<(), CacheError> {
        if !discard_dirty {
            self.write_back_now(volume)?;
        }
        if !discard_dirty && volume.damaged_entries() > 0 {
            return Err(CacheError::Damaged {
                name: volume.name().to_owned(),
                entries: volume.damaged_entries(),
            });
        }
        let closed = volume.close_gate();
        if !discard_dirty {
            self.drain(volume)?;
        }
        // No client can ask any more whether it lost something before.
        let lost = volume.losses.lost();
        if let Err(source) = self.sync_origin(volume) {
            // What was lost was known before this call: the caller detaches without it.
            if volume.losses.lost() != lost {
                return Err(origin_error(volume, source));
            }
            let name = volume.name();
            log::warn!("Volume {name}: detached although its origin cannot be flushed: {source}");
        }
        self.note_leaving(volume, &volume.kept(), Leaving::Volume)?;
        self.empty(volume, discard_dirty)?;
        // What clients write from now on is not cached, and flushed by them.
        volume.set_mode(Mode::PassThrough);
        self.refresh_lent();
        drop(closed);
        self.end_attachment(volume, &mut self.begin_changing())
    }

    /// Removes the note of dirty blocks of a volume, then its record, and then all that there is of
    /// it in memory. A start writes a note that a record has to have; without a record, it would have
    /// the origin refused with any other device, although there are no blocks.
    fn end_attachment(
        &self,
        volume: &Volume,
        detached: &mut Vec<Detached>,
    ) -> Result<(), CacheError> {
        let none = [(volume.partition, 0)];
        self.lock().blocks.set_limits(&none)?;
        // Before another attachment has the record, whose entries they might be taken for.
        self.drop_blocks(volume);
        if !self.is_failure_noted() {
            self.sync_device(volume)?;
        }
        // No change of the settings writes the record again.
        let kept = volume.kept();
        self.end_unsaved(volume)?;
        self.put_record(volume, None)?;
        drop(kept);
        if !self.is_failure_noted() {
            let forgotten = self.device.forget_intents(volume.record);
            forgotten.inspect_err(|error| self.fail(error))?;
        }
        self.forget_losses(volume);
        let volumes = self.volumes.write();
        let mut volumes = volumes.unpoisoned();
        if let Ok(place) = volumes.binary_search_by_key(&volume.id, |other| other.id) {
            detached.push(Detached::of(&volumes.remove(place)));
        }
        Ok(())
    }
}
