//! Which regions of volumes are being written, as recorded on the device before their origins are.
//!
//! An intent says besides whether the origin was written since its last flush. The end of the process
//! leaves that on the device, not that of the host. After a power cut, what is cached of a region
//! with an intent is forgotten. An intent is cleared once its region was not written for a while,
//! and origin and device were flushed after that.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use diffcache_base::locks::Unpoisoned;
use diffcache_base::words::Words;

use super::disk::Disk;
use super::format::{Superblock, BLOCK, INTENTS, VOLUMES};

/// Bytes of a region.
pub const REGION: u64 = 64 << 20;
/// Bytes of an intent.
const BYTES: usize = 8;
/// Intents that there is room for.
const PLACES: usize = INTENTS / BYTES;
const RECORD_SHIFT: u32 = 40;
const UNFLUSHED: u64 = 1 << 56;
const USED: u64 = 1 << 57;
/// The region that is all of them: of volumes for whose regions there is no room. Each volume has a
/// place for it.
const WHOLE: u64 = (1 << RECORD_SHIFT) - 1;

/// A region of a volume's record.
pub type Intent = (u16, u64);

/// Writes to a region.
#[derive(Debug, Clone, Copy)]
struct Activity {
    /// Where its intent is on the device.
    place: usize,
    running: u32,
    /// Whether a write began since the last look.
    recent: bool,
    /// Whether a write began since the last flush of the origin.
    unflushed: bool,
    /// How many writes began.
    writes: u64,
}

impl Activity {
    fn at(place: usize, unflushed: bool) -> Self {
        Self {
            place,
            running: 0,
            recent: false,
            unflushed,
            writes: 0,
        }
    }
}

#[derive(Debug)]
struct State {
    /// As on the device.
    bytes: Vec<u8>,
    active: HashMap<u16, HashMap<u64, Activity>>,
    /// Places without an intent, but those of whole volumes.
    free: BTreeSet<usize>,
}

/// The intents of a device.
#[derive(Debug)]
pub struct Intents {
    state: Mutex<State>,
}

/// What a flush of an origin concerns: regions, and how many writes to each had begun.
pub struct Flushing(Vec<(u64, u64)>);

impl State {
    fn get(&self, record: u16, region: u64) -> Option<&Activity> {
        self.active.get(&record)?.get(&region)
    }

    fn get_mut(&mut self, (record, region): Intent) -> Option<&mut Activity> {
        self.active.get_mut(&record)?.get_mut(&region)
    }

    /// The intents of a range, with a place each; those that are new have none on the device yet.
    fn of(&mut self, record: u16, range: &Range<u64>) -> Vec<u64> {
        let wanted = range.start / REGION..range.end.div_ceil(REGION);
        let mut found = Vec::new();
        for region in wanted {
            let known = self.get(record, region).is_some();
            let region = match known || !self.free.is_empty() {
                true => region,
                false => WHOLE,
            };
            if self.get(record, region).is_none() {
                let place = match region {
                    WHOLE => Some(usize::from(record)),
                    _ => self.free.pop_first(),
                };
                let of = self.active.entry(record).or_default();
                of.extend(place.map(|place| (region, Activity::at(place, false))));
            }
            if found.last() != Some(&region) {
                found.push(region);
            }
        }
        found
    }

    fn remove(&mut self, (record, region): Intent) -> Option<usize> {
        let of = self.active.get_mut(&record)?;
        let place = of.remove(&region)?.place;
        if of.is_empty() {
            self.active.remove(&record);
        }
        self.put(place, 0);
        if place >= VOLUMES {
            self.free.insert(place);
        }
        Some(place)
    }

    fn put(&mut self, place: usize, intent: u64) {
        self.bytes[place * BYTES..][..BYTES].copy_from_slice(&intent.to_le_bytes());
    }

    /// Writes an intent so that it survives the end of the process.
    fn write(&self, device: &dyn Disk, place: usize) -> io::Result<()> {
        let at = Superblock::intents_at() + (place * BYTES) as u64;
        device.write_at(&self.bytes[place * BYTES..][..BYTES], at)
    }

    /// Writes intents so that they survive a power cut.
    fn write_durably(&self, device: &dyn Disk, places: &[usize]) -> io::Result<()> {
        let pages: BTreeSet<usize> = places.iter().map(|place| place * BYTES / BLOCK).collect();
        for page in pages {
            let start = page * BLOCK;
            let at = Superblock::intents_at() + start as u64;
            device.write_durably(&self.bytes[start..start + BLOCK], at)?;
        }
        Ok(())
    }
}

fn encode((record, region): Intent, unflushed: bool) -> u64 {
    let flag = if unflushed { UNFLUSHED } else { 0 };
    USED | flag | u64::from(record) << RECORD_SHIFT | region
}

impl Intents {
    /// The intents that a device has.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn load(device: &dyn Disk) -> io::Result<Self> {
        let mut bytes = vec![0; INTENTS];
        device.read_at(&mut bytes, Superblock::intents_at())?;
        let mut active: HashMap<u16, HashMap<u64, Activity>> = HashMap::new();
        let mut free: BTreeSet<usize> = (VOLUMES..PLACES).collect();
        for (place, intent) in bytes.chunks_exact(BYTES).enumerate() {
            let intent = Words(intent).le64(0);
            if intent & USED != 0 {
                let activity = Activity::at(place, intent & UNFLUSHED != 0);
                let record = (intent >> RECORD_SHIFT) as u16;
                active
                    .entry(record)
                    .or_default()
                    .insert(intent & WHOLE, activity);
                free.remove(&place);
            }
        }
        let state = Mutex::new(State {
            bytes,
            active,
            free,
        });
        Ok(Self { state })
    }

    /// Whether a region had an intent when the device was loaded, or has got one since.
    #[must_use]
    pub fn has(&self, record: u16, offset: u64) -> bool {
        let state = self.lock();
        let regions = [offset / REGION, WHOLE];
        regions
            .iter()
            .any(|&region| state.get(record, region).is_some())
    }

    /// Records on the device that a range is going to be written, if it is not recorded. Returns what
    /// [`end`](Self::end) is to be given.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn begin(
        &self,
        device: &dyn Disk,
        record: u16,
        range: &Range<u64>,
    ) -> io::Result<Vec<Intent>> {
        let mut state = self.lock();
        let regions = state.of(record, range);
        let intents: Vec<Intent> = regions.into_iter().map(|region| (record, region)).collect();
        let (mut new, mut known) = (Vec::new(), Vec::new());
        for &intent in &intents {
            let Some(activity) = state.get_mut(intent) else {
                continue;
            };
            let place = activity.place;
            let was_flushed = !std::mem::replace(&mut activity.unflushed, true);
            activity.running += 1;
            activity.recent = true;
            activity.writes += 1;
            let is_recorded = state.bytes[place * BYTES..][..BYTES] != [0; BYTES];
            if was_flushed || !is_recorded {
                state.put(place, encode(intent, true));
            }
            match is_recorded {
                false => new.push(place),
                true if was_flushed => known.push(place),
                true => {}
            }
        }
        let recorded = known
            .iter()
            .try_for_each(|&place| state.write(device, place));
        let recorded = recorded.and_then(|()| state.write_durably(device, &new));
        if let Err(error) = recorded {
            drop(state);
            self.end(&intents);
            return Err(error);
        }
        Ok(intents)
    }

    /// Ends what [`begin`](Self::begin) recorded.
    pub fn end(&self, intents: &[Intent]) {
        let mut state = self.lock();
        for &intent in intents {
            if let Some(activity) = state.get_mut(intent) {
                activity.running = activity.running.saturating_sub(1);
            }
        }
    }

    /// Begins a flush of an origin.
    #[must_use]
    pub fn begin_flush(&self, record: u16) -> Flushing {
        let state = self.lock();
        let regions = state.active.get(&record).into_iter().flatten();
        let complete = regions.filter(|(_, activity)| activity.unflushed && activity.running == 0);
        Flushing(
            complete
                .map(|(&region, activity)| (region, activity.writes))
                .collect(),
        )
    }

    /// Ends a flush of an origin that succeeded.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn end_flush(&self, device: &dyn Disk, record: u16, flushed: &Flushing) -> io::Result<()> {
        let mut state = self.lock();
        for &(region, writes) in &flushed.0 {
            let Some(activity) = state.get_mut((record, region)) else {
                continue;
            };
            if activity.writes == writes {
                activity.unflushed = false;
                let place = activity.place;
                state.put(place, encode((record, region), false));
                state.write(device, place)?;
            }
        }
        Ok(())
    }

    /// The ranges of a volume that were written since its origin was flushed.
    #[must_use]
    pub fn unflushed(&self, record: u16, size: u64) -> Vec<Range<u64>> {
        let state = self.lock();
        let regions = state.active.get(&record).into_iter().flatten();
        let unflushed = regions.filter(|(_, activity)| activity.unflushed);
        let range = |(&region, _): (&u64, &Activity)| match region {
            WHOLE => 0..size,
            _ => (region * REGION).min(size)..((region + 1) * REGION).min(size),
        };
        unflushed
            .map(range)
            .filter(|range| !range.is_empty())
            .collect()
    }

    /// Returns the intents of a record without a write since the last call: they may be cleared after
    /// a flush.
    pub fn idle(&self, record: u16) -> Vec<Intent> {
        self.select(record, |activity| {
            let is_idle = !std::mem::take(&mut activity.recent);
            is_idle && activity.running == 0
        })
    }

    /// Returns the intents of a record without a write that is under way.
    pub fn finished(&self, record: u16) -> Vec<Intent> {
        self.select(record, |activity| {
            let is_finished = activity.running == 0;
            activity.recent &= !is_finished;
            is_finished
        })
    }

    fn select(
        &self,
        record: u16,
        mut is_selected: impl FnMut(&mut Activity) -> bool,
    ) -> Vec<Intent> {
        let mut state = self.lock();
        let regions = state.active.get_mut(&record).into_iter().flatten();
        let selected = regions
            .filter_map(|(&region, activity)| is_selected(activity).then_some((record, region)));
        selected.collect()
    }

    /// Clears intents unless a write began since. Their origins and the device were flushed.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, device: &dyn Disk, intents: &[Intent]) -> io::Result<()> {
        let mut state = self.lock();
        for &intent in intents {
            let is_idle = |activity: &&Activity| activity.running == 0 && !activity.recent;
            if state.get(intent.0, intent.1).filter(is_idle).is_none() {
                continue;
            }
            if let Some(place) = state.remove(intent) {
                state.write(device, place)?;
            }
        }
        Ok(())
    }

    /// Forgets the intents of a record that another volume gets.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn forget(&self, device: &dyn Disk, record: u16) -> io::Result<()> {
        let mut state = self.lock();
        let regions = state.active.get(&record).into_iter().flatten();
        let regions: Vec<u64> = regions.map(|(&region, _)| region).collect();
        for region in regions {
            if let Some(place) = state.remove((record, region)) {
                state.write(device, place)?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }
}
