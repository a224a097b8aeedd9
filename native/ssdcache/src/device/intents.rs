//! Which regions of volumes are being written, as recorded on the device before their origins are.
//!
//! An intent says besides whether the origin was written since its last flush. The end of the process
//! leaves that on the device, not that of the host. After a power cut, what is cached of a region
//! with an intent is forgotten. An intent is cleared once its region was not written for a while,
//! and origin and device were flushed after that.
//!
//! Intents of a record are written in turns, without the lock that all records share: each place is of
//! one record until its intent is erased, and what is not its own is not written with it.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::{Mutex, MutexGuard};
use diffcache_base::words::Words;

use super::disk::Disk;
use super::format::{Superblock, INTENTS, VOLUMES};

/// Bytes of a region.
pub const REGION: u64 = 64 << 20;
/// Bytes of an intent.
const BYTES: usize = 8;
/// Groups of places that are written durably one by one; more of them with one flush of the device.
const GROUPS: usize = 8;
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

/// What the device has of an intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorded {
    /// Nothing that is durable.
    Nothing,
    /// Whether the origin was flushed is another than it is now.
    Older,
    /// What it is now.
    Same,
}

/// Writes to a region.
#[derive(Debug, Clone, Copy)]
struct Activity {
    /// Where its intent is on the device.
    place: usize,
    /// Changed by who has the turn of its record.
    recorded: Recorded,
    running: u32,
    /// Whether a write began since the last look.
    recent: bool,
    /// Whether a write began since the last flush of the origin.
    unflushed: bool,
    /// How many writes began.
    writes: u64,
}

impl Activity {
    fn at(place: usize, recorded: Recorded, unflushed: bool) -> Self {
        Self {
            place,
            recorded,
            running: 0,
            recent: false,
            unflushed,
            writes: 0,
        }
    }
}

#[derive(Debug)]
struct State {
    active: HashMap<u16, HashMap<u64, Activity>>,
    /// Places without an intent, but those of whole volumes.
    free: BTreeSet<usize>,
}

/// What a place is to have.
type Place = (usize, u64);

/// The intents of a device.
#[derive(Debug)]
pub struct Intents {
    state: Mutex<State>,
    /// Of each record: who changes what the device has of its intents.
    turns: Vec<Mutex<()>>,
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

    /// The regions that have the intents of a range; a new one is of a region, if there is a place.
    fn of(&self, record: u16, range: &Range<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        for region in range.start / REGION..range.end.div_ceil(REGION) {
            let known = self.get(record, region).is_some();
            let region = match known || found.len() < self.free.len() {
                true => region,
                false => WHOLE,
            };
            if found.last() != Some(&region) {
                found.push(region);
            }
        }
        found
    }

    /// Begins a write to regions. `false`: the device does not have all of their intents as they are
    /// to be.
    fn join(&mut self, record: u16, regions: &[u64]) -> bool {
        let is_recorded =
            |activity: &Activity| activity.unflushed && activity.recorded == Recorded::Same;
        let has = |region: &u64| self.get(record, *region).is_some_and(is_recorded);
        if !regions.iter().all(has) {
            return false;
        }
        for &region in regions {
            self.enter((record, region));
        }
        true
    }

    /// Counts a write to a region; `false`: it has no intent.
    fn enter(&mut self, intent: Intent) -> bool {
        let Some(activity) = self.get_mut(intent) else {
            return false;
        };
        let was_flushed = !std::mem::replace(&mut activity.unflushed, true);
        if was_flushed && activity.recorded == Recorded::Same {
            activity.recorded = Recorded::Older;
        }
        activity.running += 1;
        activity.recent = true;
        activity.writes += 1;
        true
    }

    /// Begins a write to a region, with a place if it has none.
    fn enter_new(&mut self, (record, region): Intent) {
        if self.enter((record, region)) {
            return;
        }
        let place = match region {
            WHOLE => Some(usize::from(record)),
            _ => self.free.pop_first(),
        };
        let of = self.active.entry(record).or_default();
        of.extend(place.map(|place| (region, Activity::at(place, Recorded::Nothing, false))));
        self.enter((record, region));
    }

    /// Places of intents that differ from the device: of those recorded there, and of new ones.
    fn unrecorded(&self, intents: &[Intent]) -> [Vec<Place>; 2] {
        let mut places = [Vec::new(), Vec::new()];
        for &(record, region) in intents {
            let Some(activity) = self.get(record, region) else {
                continue;
            };
            let place = (activity.place, encode((record, region), activity.unflushed));
            match activity.recorded {
                Recorded::Same => {}
                Recorded::Older => places[0].push(place),
                Recorded::Nothing => places[1].push(place),
            }
        }
        places
    }

    /// Notes that the device has some intents as they are.
    fn note_recorded(&mut self, intents: &[Intent]) {
        for &intent in intents {
            if let Some(activity) = self.get_mut(intent) {
                activity.recorded = Recorded::Same;
            }
        }
    }

    /// Removes intents of a record, and returns their places, which are to be erased.
    fn remove(
        &mut self,
        record: u16,
        regions: impl Iterator<Item = u64>,
        is_removed: impl Fn(&Activity) -> bool,
    ) -> Vec<Place> {
        let Some(of) = self.active.get_mut(&record) else {
            return Vec::new();
        };
        let mut places = Vec::new();
        for region in regions {
            if of.get(&region).is_some_and(&is_removed) {
                places.extend(of.remove(&region).map(|activity| (activity.place, 0)));
            }
        }
        if of.is_empty() {
            self.active.remove(&record);
        }
        places
    }
}

/// Divides places into groups that follow one another, with their bytes.
fn groups(mut places: Vec<Place>) -> Vec<(u64, Vec<u8>)> {
    places.sort_unstable();
    let follows = |one: &Place, next: &Place| one.0 + 1 == next.0;
    let group = |group: &[Place]| {
        let at = Superblock::intents_at() + (group[0].0 * BYTES) as u64;
        let bytes = group.iter().flat_map(|(_, intent)| intent.to_le_bytes());
        (at, bytes.collect())
    };
    places.chunk_by(follows).map(group).collect()
}

/// Writes places so that they survive the end of the process.
fn write(device: &dyn Disk, places: Vec<Place>) -> io::Result<()> {
    let mut groups = groups(places).into_iter();
    groups.try_for_each(|(at, bytes)| device.write_at(&bytes, at))
}

/// Writes places so that they survive a power cut.
fn write_durably(device: &dyn Disk, places: Vec<Place>) -> io::Result<()> {
    let groups = groups(places);
    if groups.len() > GROUPS {
        let mut groups = groups.iter();
        groups.try_for_each(|(at, bytes)| device.write_at(bytes, *at))?;
        return device.sync();
    }
    let mut groups = groups.iter();
    groups.try_for_each(|(at, bytes)| device.write_durably(bytes, *at))
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
                let unflushed = intent & UNFLUSHED != 0;
                let activity = Activity::at(place, Recorded::Same, unflushed);
                let record = (intent >> RECORD_SHIFT) as u16;
                active
                    .entry(record)
                    .or_default()
                    .insert(intent & WHOLE, activity);
                free.remove(&place);
            }
        }
        Ok(Self {
            state: Mutex::new(State { active, free }),
            turns: (0..VOLUMES).map(|_| Mutex::default()).collect(),
        })
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
        let of = |regions: Vec<u64>| regions.into_iter().map(|region| (record, region)).collect();
        let mut state = self.lock();
        let regions = state.of(record, range);
        if state.join(record, &regions) {
            return Ok(of(regions));
        }
        drop(state);
        // Another write of the record may be recording the same intents.
        let _turn = self.turn(record);
        let mut state = self.lock();
        let intents: Vec<Intent> = of(state.of(record, range));
        intents.iter().for_each(|&intent| state.enter_new(intent));
        let [known, new] = state.unrecorded(&intents);
        drop(state);
        let recorded = write(device, known).and_then(|()| write_durably(device, new));
        if let Err(error) = recorded {
            self.end(&intents);
            return Err(error);
        }
        self.lock().note_recorded(&intents);
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
        let _turn = self.turn(record);
        let mut intents = Vec::new();
        let mut state = self.lock();
        for &(region, writes) in &flushed.0 {
            let activity = state.get_mut((record, region));
            let Some(activity) = activity.filter(|activity| activity.writes == writes) else {
                continue;
            };
            activity.unflushed = false;
            // One that could not be recorded is new to the next write.
            if activity.recorded != Recorded::Nothing {
                activity.recorded = Recorded::Older;
                intents.push((record, region));
            }
        }
        let [known, _] = state.unrecorded(&intents);
        drop(state);
        write(device, known)?;
        self.lock().note_recorded(&intents);
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
        self.select(record, |activity| activity.running == 0)
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

    /// Clears those of some intents whose origins were flushed after the last write. The device was
    /// flushed.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, device: &dyn Disk, intents: &[Intent]) -> io::Result<()> {
        for some in intents.chunk_by(|one, next| one.0 == next.0) {
            let regions = some.iter().map(|(_, region)| *region);
            let is_idle = |activity: &Activity| activity.running == 0 && !activity.unflushed;
            self.erase(device, some[0].0, regions, is_idle)?;
        }
        Ok(())
    }

    /// Forgets the intents of a record that another volume gets.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn forget(&self, device: &dyn Disk, record: u16) -> io::Result<()> {
        let state = self.lock();
        let regions = state.active.get(&record).into_iter().flatten();
        let regions: Vec<u64> = regions.map(|(&region, _)| region).collect();
        drop(state);
        self.erase(device, record, regions.into_iter(), |_| true)
    }

    /// Erases intents of a record. Their places are free for other records after that.
    fn erase(
        &self,
        device: &dyn Disk,
        record: u16,
        regions: impl Iterator<Item = u64>,
        is_erased: impl Fn(&Activity) -> bool,
    ) -> io::Result<()> {
        let _turn = self.turn(record);
        let places = self.lock().remove(record, regions, is_erased);
        let freed: Vec<usize> = places.iter().map(|(place, _)| *place).collect();
        write(device, places)?;
        let free = freed.into_iter().filter(|place| *place >= VOLUMES);
        self.lock().free.extend(free);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Excludes others that change what the device has of the intents of a record.
    fn turn(&self, record: u16) -> MutexGuard<'_, ()> {
        // A damaged device may have intents of numbers that no record has.
        self.turns[usize::from(record) % VOLUMES]
            .lock()
            .unpoisoned()
    }
}
