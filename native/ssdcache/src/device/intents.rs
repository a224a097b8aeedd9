//! Which regions of volumes are being written, as recorded on the device before their origins are.
//!
//! After a power cut, what is cached of a region with an intent is forgotten. An intent is cleared
//! once its region was not written for a while, and origins and device were flushed after that.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::disk::Disk;
use super::format::{Superblock, BLOCK, INTENTS};

/// Bytes of a region.
pub const REGION: u64 = 64 << 20;

/// Where the intent of a region is; regions may share one.
fn bit(record: u16, region: u64) -> usize {
    xxh3_64_with_seed(&region.to_le_bytes(), u64::from(record)) as usize % (INTENTS * 8)
}

/// Writes to the regions of one intent.
#[derive(Debug, Clone, Copy, Default)]
struct Activity {
    running: u32,
    /// Whether a write began since the last look.
    recent: bool,
}

#[derive(Debug)]
struct State {
    bits: Vec<u8>,
    active: HashMap<usize, Activity>,
}

/// The intents of a device.
#[derive(Debug)]
pub struct Intents {
    state: Mutex<State>,
}

impl Intents {
    /// The intents that a device has.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn load(device: &dyn Disk) -> io::Result<Self> {
        let mut bits = vec![0; INTENTS];
        device.read_at(&mut bits, Superblock::intents_at())?;
        let set = (0..INTENTS * 8).filter(|&bit| is_set(&bits, bit));
        let active = set.map(|bit| (bit, Activity::default())).collect();
        Ok(Self {
            state: Mutex::new(State { bits, active }),
        })
    }

    /// Whether a region had an intent when the device was loaded, or has got one since.
    #[must_use]
    pub fn has(&self, record: u16, offset: u64) -> bool {
        is_set(&self.lock().bits, bit(record, offset / REGION))
    }

    /// Records on the device that a range is going to be written, if it is not recorded.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn begin(&self, device: &dyn Disk, record: u16, range: &Range<u64>) -> io::Result<()> {
        let mut state = self.lock();
        let wanted = bits(record, range);
        let new: Vec<usize> = wanted
            .iter()
            .copied()
            .filter(|&bit| !is_set(&state.bits, bit))
            .collect();
        for bit in &new {
            state.bits[bit / 8] |= 1 << (bit % 8);
        }
        let mut pages: Vec<usize> = new.iter().map(|bit| bit / 8 / BLOCK).collect();
        pages.dedup();
        for page in pages {
            if let Err(error) = write_page(device, &state.bits, page, true) {
                for bit in &new {
                    state.bits[bit / 8] &= !(1 << (bit % 8));
                }
                return Err(error);
            }
        }
        for bit in wanted {
            let activity = state.active.entry(bit).or_default();
            activity.running += 1;
            activity.recent = true;
        }
        Ok(())
    }

    /// Ends what [`begin`](Self::begin) recorded.
    pub fn end(&self, record: u16, range: &Range<u64>) {
        let mut state = self.lock();
        for bit in bits(record, range) {
            if let Some(activity) = state.active.get_mut(&bit) {
                activity.running = activity.running.saturating_sub(1);
            }
        }
    }

    /// Returns the intents without a write since the last call: they may be cleared after a flush.
    pub fn idle(&self) -> Vec<usize> {
        let mut idle = Vec::new();
        for (&bit, activity) in &mut self.lock().active {
            if activity.running == 0 && !activity.recent {
                idle.push(bit);
            }
            activity.recent = false;
        }
        idle
    }

    /// Returns the intents without a write that is under way.
    pub fn finished(&self) -> Vec<usize> {
        let mut finished = Vec::new();
        for (&bit, activity) in &mut self.lock().active {
            if activity.running == 0 {
                activity.recent = false;
                finished.push(bit);
            }
        }
        finished
    }

    /// Clears intents unless a write began since. All origins and the device were flushed.
    ///
    /// # Errors
    /// The device cannot be written.
    pub fn clear(&self, device: &dyn Disk, intents: &[usize]) -> io::Result<()> {
        let mut state = self.lock();
        for bit in intents {
            let active = state.active.get(bit).copied().unwrap_or_default();
            if active.running == 0 && !active.recent {
                state.active.remove(bit);
                state.bits[bit / 8] &= !(1 << (bit % 8));
                write_page(device, &state.bits, bit / 8 / BLOCK, false)?;
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The intents of a range, each once.
fn bits(record: u16, range: &Range<u64>) -> Vec<usize> {
    let regions = range.start / REGION..range.end.div_ceil(REGION);
    let mut bits: Vec<usize> = regions.map(|region| bit(record, region)).collect();
    bits.sort_unstable();
    bits.dedup();
    bits
}

fn is_set(bits: &[u8], bit: usize) -> bool {
    bits[bit / 8] & 1 << (bit % 8) != 0
}

/// Writes a page of the intents.
fn write_page(device: &dyn Disk, bits: &[u8], page: usize, durable: bool) -> io::Result<()> {
    let start = page * BLOCK;
    let at = Superblock::intents_at() + start as u64;
    let page = &bits[start..start + BLOCK];
    if durable {
        device.write_durably(page, at)
    } else {
        device.write_at(page, at)
    }
}
