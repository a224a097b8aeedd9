//! Whether the device is so slow that volumes are served better without it.
//!
//! What operations on the device and reads of origins took is compared for each window of some
//! seconds. It takes several windows in a row to leave the device aside, and to use it again.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_partitions::Slot;

use super::latency::Total;
use super::volume::{Counters, Volume};
use super::{Cache, State};
use crate::device::format::BLOCK;

/// Windows in a row that change the state.
const WINDOWS: u32 = 3;
/// Operations of a window that tell something.
const LEAST: u64 = 16;
/// The device is slow if it takes as many times as long as the origins, and longer than
/// [`FLOOR_US`].
const FACTOR: f64 = 4.0;
/// No SSD that works takes as many microseconds.
const FLOOR_US: f64 = 10_000.0;

/// Operations since they were taken, and their time.
#[derive(Debug, Default)]
pub(super) struct Operations {
    count: AtomicU64,
    ns: AtomicU64,
}

impl Operations {
    /// Does one, and notes what it takes.
    pub(super) fn time<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = work();
        self.note(started.elapsed());
        result
    }

    pub(super) fn note(&self, duration: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.ns.fetch_add(ns, Ordering::Relaxed);
    }

    fn take(&self) -> Total {
        Total {
            count: self.count.swap(0, Ordering::Relaxed),
            ns: self.ns.swap(0, Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
struct Judged {
    /// Windows in a row that speak for the other state.
    contrary: u32,
    /// The origins' mean in the last window with a measurement; 0 before.
    origin_us: f64,
    /// Where the next probe begins.
    cursor: Slot,
}

/// What is known of the pace of a device.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Reads and writes of blocks on the device.
    pub(super) device: Operations,
    /// Reads of origins.
    pub(super) origin: Operations,
    slow: AtomicBool,
    judged: Mutex<Judged>,
}

/// A change of the state, and the means of the last window in microseconds.
#[derive(Debug, PartialEq)]
struct Change {
    slow: bool,
    device_us: f64,
    origin_us: f64,
}

impl Pace {
    /// Whether the device is left aside.
    pub(super) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Acquire)
    }

    /// Ends a window.
    fn judge(&self) -> Option<Change> {
        let (device, origin) = (self.device.take(), self.origin.take());
        let mut judged = self.judged.lock().unpoisoned();
        if origin.count >= LEAST {
            judged.origin_us = origin.mean_us();
        }
        if device.count < LEAST || judged.origin_us == 0.0 {
            return None;
        }
        let slow = self.is_slow();
        // It has to become clearly faster, so that the state does not flap.
        let bound = (FACTOR * judged.origin_us).max(FLOOR_US) / if slow { 2.0 } else { 1.0 };
        if (device.mean_us() > bound) == slow {
            judged.contrary = 0;
            return None;
        }
        judged.contrary += 1;
        if judged.contrary < WINDOWS {
            return None;
        }
        judged.contrary = 0;
        self.slow.store(!slow, Ordering::Release);
        Some(Change {
            slow: !slow,
            device_us: device.mean_us(),
            origin_us: judged.origin_us,
        })
    }

    /// Slots to read for a probe: such that had a block, if there are some, as those of a new file
    /// take no time.
    fn probed(&self, state: &State) -> Vec<Slot> {
        let mut judged = self.judged.lock().unpoisoned();
        let written = match state.blocks.touched() {
            0 => state.blocks.capacity(),
            touched => touched,
        };
        let from = judged.cursor.min(written);
        let slots: Vec<Slot> = (from..written)
            .chain(0..from)
            .take(LEAST as usize)
            .collect();
        judged.cursor = slots.last().map_or(0, |slot| slot + 1);
        slots
    }
}

impl Cache {
    /// Decides whether the device is used. To be called every few seconds.
    ///
    /// While it is left aside, volumes are served as in the mode pass-through, except for those in
    /// write-back: blocks that their origins lack are on the device.
    pub fn judge_device(&self) {
        if self.has_failed() {
            return;
        }
        if self.pace.is_slow() {
            if let Err(error) = self.probe() {
                // Blocks that their origins lack may be read of it.
                return self.note_unreadable(&error);
            }
        }
        let Some(change) = self.pace.judge() else {
            return;
        };
        self.refresh_lent();
        let means = format!(
            "it takes {:.1} ms, origins {:.1} ms",
            change.device_us / 1000.0,
            change.origin_us / 1000.0
        );
        if change.slow {
            log::warn!("Cache device is slow, volumes are served without it: {means}");
        } else {
            log::info!("Cache device is used again: {means}");
        }
    }

    /// Reads the data of slots that follow one another.
    pub(super) fn read_device(&self, into: &mut [u8], slot: Slot) -> io::Result<()> {
        let read = || self.device.read_data(into, slot);
        self.pace.device.time(read)
    }

    pub(super) fn read_origin(
        &self,
        volume: &Volume,
        into: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        self.pace
            .origin
            .time(|| volume.origin().read_at(into, offset))?;
        Counters::add(&volume.counters.origin_bytes_read, into.len() as u64);
        Ok(())
    }

    pub(super) fn write_device(&self, data: &[u8], slot: Slot) -> io::Result<()> {
        let write = || self.device.write_data(data, slot);
        self.pace.device.time(write)
    }

    /// Reads some blocks of the device, each repeatedly if there are few.
    fn probe(&self) -> io::Result<()> {
        let slots = self.pace.probed(&self.lock());
        let mut data = [0; BLOCK];
        for slot in slots.iter().cycle().take(LEAST as usize) {
            let read = || self.device.read_afresh(&mut data, *slot);
            self.pace.device.time(read)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    fn window(pace: &Pace, device_us: u32, origin_us: u32) -> Option<bool> {
        for _ in 0..LEAST {
            pace.device.note(device_us * US);
            pace.origin.note(origin_us * US);
        }
        pace.judge().map(|change| change.slow)
    }

    #[test]
    fn three_windows_in_a_row_leave_the_device_aside_and_use_it_again() {
        let pace = Pace::default();
        for device in [50_000, 50_000, 300, 50_000, 50_000] {
            assert_eq!(None, window(&pace, device, 2000));
        }
        assert_eq!(Some(true), window(&pace, 50_000, 2000));
        assert!(pace.is_slow());
        // Between the two bounds.
        for device in [300, 300, 8000, 300, 300] {
            assert_eq!(None, window(&pace, device, 2000));
        }
        assert_eq!(Some(false), window(&pace, 300, 2000));
        assert!(!pace.is_slow());
    }

    #[test]
    fn a_device_is_not_slow_beside_an_origin_that_is() {
        let pace = Pace::default();
        for _ in 0..10 {
            assert_eq!(None, window(&pace, 50_000, 20_000));
            assert_eq!(None, window(&pace, 5000, 100));
        }
    }

    #[test]
    fn few_operations_tell_nothing_and_an_origin_is_remembered() {
        let pace = Pace::default();
        for _ in 0..10 {
            (1..LEAST).for_each(|_| pace.device.note(50_000 * US));
            assert_eq!(None, pace.judge());
        }
        for _ in 0..LEAST {
            pace.origin.note(2000 * US);
        }
        assert_eq!(None, pace.judge());
        let mut changes = (0..3).map(|_| {
            (0..LEAST).for_each(|_| pace.device.note(50_000 * US));
            pace.judge().is_some()
        });
        assert!(changes.by_ref().any(|changed| changed));
    }
}
