//! What a device has after a restart.

use std::collections::HashMap;
use std::io;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::words::Words;
use diffcache_partitions::{Block, Slot};

use super::format::{
    looks_dirty, DirtyVersion, Entry, Leaving, Superblock, VolumeRecord, BLOCK, COPIES, ENTRY,
    VOLUMES,
};
use super::{copies, write_superblock, Device};

/// Entries that are read at once.
const BATCH: u32 = 1 << 16;

/// Entries that are looked at before the first of them is used.
const AHEAD: usize = 32;

/// Blocks of a device that their origins lack.
#[derive(Debug, Default)]
pub struct DirtyEntries {
    /// The newest version of each, by the volume's record and the block.
    pub newest: HashMap<(u16, Block), (Slot, Entry)>,
    /// Slots both copies of whose entry are damaged, by the record that they name.
    pub damaged: HashMap<u16, Vec<Slot>>,
}

impl DirtyEntries {
    fn is_damaged(&self, slot: Slot) -> bool {
        self.damaged.values().any(|slots| slots.contains(&slot))
    }
}

/// What is found of a slot: both copies of its entry.
struct Found {
    slot: Slot,
    copies: [[u8; ENTRY]; COPIES],
}

impl Found {
    /// The entry, which is dirty if one copy says so: where they differ, the process or the power
    /// ended before both were written, or one is damaged.
    fn entry(&self, generation: impl Fn(u16) -> Option<u64>) -> Option<Entry> {
        let [first, second] = self.copies.map(|copy| Entry::decode(&copy, &generation));
        match (first, second) {
            (Some(first), _) if first.dirty.is_some() => Some(first),
            (_, Some(second)) => Some(second),
            (first, None) => first,
        }
    }

    /// The record of a dirty block, whose entry is damaged.
    fn damaged_record(&self) -> Option<u16> {
        self.copies.iter().find_map(looks_dirty)
    }

    /// Whether both copies are those that an entry has.
    fn is_whole(&self, entry: &Entry, generation: u64) -> bool {
        let bytes = entry.encode(generation);
        let second = if entry.is_durable() {
            bytes
        } else {
            [0; ENTRY]
        };
        self.copies == [bytes, second]
    }
}

impl Device {
    /// Calls `work` with each slot that has an entry in ascending order, and `ahead` with the
    /// bytes of some slots' entries before that.
    fn visit(
        &self,
        ahead: impl Fn(&[u8]),
        mut work: impl FnMut(Found) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut bytes = [const { Vec::new() }; COPIES];
        for first in (0..self.capacity()).step_by(BATCH as usize) {
            let count = (self.capacity() - first).min(BATCH) as usize;
            let at = [
                Superblock::entry_at(first),
                self.superblock.second_entry_at(first),
            ];
            bytes
                .iter_mut()
                .for_each(|copy| copy.resize(count * ENTRY, 0));
            let copies = bytes.each_mut().map(Vec::as_mut_slice);
            // Entries that are no more than written are there once, and a power cut lost them.
            copies::read(self.disk.as_ref(), copies, at, self.rebooted)?;
            for (next, slot) in (first..first + count as Slot).enumerate() {
                if next % AHEAD == 0 {
                    ahead(&bytes[0][next * ENTRY..count.min(next + AHEAD) * ENTRY]);
                }
                let copies = bytes.each_ref();
                let copies = copies.map(|copy| Words(copy).array(next * ENTRY));
                if copies != [[0; ENTRY]; COPIES] {
                    work(Found { slot, copies })?;
                }
            }
        }
        Ok(())
    }

    /// The blocks that their origins lack. After a power cut, those that were not durable are none;
    /// nor are those that were leaving.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn dirty(&self, known: &[Option<VolumeRecord>]) -> io::Result<DirtyEntries> {
        let of = |record: u16| known.get(usize::from(record))?.as_ref();
        let generation = |record: u16| of(record).map(|record| record.generation);
        let stays = |record: &u16| of(*record).is_none_or(|of| of.leaving == Leaving::Nothing);
        let mut dirty = DirtyEntries::default();
        self.visit(
            |_| (),
            |found| {
                let slot = found.slot;
                let Some(entry) = found.entry(generation) else {
                    if let Some(record) = found.damaged_record().filter(stays) {
                        dirty.damaged.entry(record).or_default().push(slot);
                    }
                    return Ok(());
                };
                let surviving = self.surviving(&entry);
                let Some(version) = surviving.filter(|_| stays(&entry.record)) else {
                    return Ok(());
                };
                let found = dirty.newest.entry((entry.record, entry.block));
                let newest = found.or_insert((slot, entry));
                if newest.1.dirty.is_some_and(|other| version.is_newer(&other)) {
                    *newest = (slot, entry);
                }
                Ok(())
            },
        )?;
        Ok(dirty)
    }

    /// Erases all entries of some records whose attachments ended, durably: before another
    /// attachment has the record, whose entries they might be taken for. `generation` is that of the
    /// attachments that stay.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn erase_entries(
        &self,
        ended: &[u16],
        generation: impl Fn(u16) -> Option<u64>,
    ) -> io::Result<()> {
        if ended.is_empty() {
            return Ok(());
        }
        let has_ended =
            |copy: &[u8; ENTRY]| Entry::record_of(copy).is_some_and(|of| ended.contains(&of));
        self.visit(
            |_| (),
            |found| {
                if found.entry(&generation).is_some() || !found.copies.iter().any(has_ended) {
                    return Ok(());
                }
                self.doubled.lock().unpoisoned().insert(found.slot);
                self.write_entry(found.slot, None)
            },
        )?;
        self.disk.sync()
    }

    /// The version of a dirty entry, unless a power cut may have lost its data.
    fn surviving(&self, entry: &Entry) -> Option<DirtyVersion> {
        let version = entry.dirty?;
        (version.is_durable || !self.rebooted).then_some(version)
    }

    /// Makes what the end of a process left of dirty blocks durable: others may be erased then.
    fn commit(
        &self,
        generation: impl Fn(u16) -> Option<u64>,
        dirty: &DirtyEntries,
    ) -> io::Result<()> {
        if dirty.newest.is_empty() {
            return Ok(());
        }
        self.disk.sync()?;
        for (slot, entry) in dirty.newest.values() {
            let version = entry.dirty.filter(|version| !version.is_durable);
            let of = version.zip(generation(entry.record));
            if let Some((DirtyVersion { number, .. }, generation)) = of {
                let is_durable = true;
                let dirty = Some(DirtyVersion { number, is_durable });
                self.write_entry(*slot, Some((Entry { dirty, ..*entry }, generation)))?;
            }
        }
        self.disk.sync()
    }

    /// Calls `restore` with each slot's entry in ascending order, without one where it is that of a
    /// dirty block and damaged; and `expect` with some entries before that. An entry for which `restore` returns `false` is erased, and so are those of
    /// regions whose writes a power cut may have lost, and all but the newest of a block that is
    /// `dirty`.
    ///
    /// # Errors
    /// The device cannot be read or written.
    pub fn load(
        &self,
        generation: impl Fn(u16) -> Option<u64>,
        dirty: &DirtyEntries,
        expect: impl Fn(&[Entry]),
        mut restore: impl FnMut(Slot, Option<Entry>) -> bool,
    ) -> io::Result<()> {
        self.commit(&generation, dirty)?;
        let ahead = |bytes: &[u8]| {
            let decode = |entry| Entry::decode(&Words(entry).array(0), &generation);
            let entries = bytes.chunks_exact(ENTRY).filter_map(decode);
            expect(&entries.collect::<Vec<_>>());
        };
        self.visit(ahead, |found| {
            let slot = found.slot;
            self.doubled.lock().unpoisoned().insert(slot);
            let newest = |entry: &Entry| dirty.newest.get(&(entry.record, entry.block));
            let kept = found
                .entry(&generation)
                .filter(|entry| match newest(entry) {
                    Some((of, _)) => *of == slot,
                    None => entry.dirty.is_none() && !self.is_doubtful(entry),
                });
            if kept.is_none() && dirty.is_damaged(slot) {
                restore(slot, None);
                return Ok(());
            }
            let restored = kept.filter(|entry| restore(slot, Some(*entry)));
            let of = restored.and_then(|entry| Some((entry, generation(entry.record)?)));
            match of {
                Some((entry, generation)) if found.is_whole(&entry, generation) => {
                    self.note_copies(slot, &entry);
                    Ok(())
                }
                of => self.write_entry(slot, of),
            }
        })?;
        if self.rebooted {
            // What they are about was forgotten: durably, before they are.
            self.disk.sync()?;
            (0..VOLUMES as u16).try_for_each(|record| self.forget_intents(record))?;
        }
        self.disk.sync()?;
        write_superblock(self.disk.as_ref(), &self.superblock)
    }

    /// Notes whether the entry of a slot, which is whole, has a second copy.
    fn note_copies(&self, slot: Slot, entry: &Entry) {
        if !entry.is_durable() {
            self.doubled.lock().unpoisoned().remove(&slot);
        }
    }

    fn is_doubtful(&self, entry: &Entry) -> bool {
        self.rebooted && self.intents.has(entry.record, entry.block * BLOCK as u64)
    }
}
