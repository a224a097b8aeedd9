//! Commands that may wait for the origin of a volume: some at a time, as it may hang.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use diffcache_base::locks::Unpoisoned;

/// Commands of one volume at the same time.
const MOST: usize = 4;

/// How many are under way, by the names of volumes.
#[derive(Default)]
pub struct Waiting(Mutex<HashMap<String, usize>>);

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, usize>> {
        self.0.lock().unpoisoned()
    }

    /// Counts a command until what is returned is dropped; none: its volume has too many.
    pub fn begin(&self, volume: &str) -> Option<Turn<'_>> {
        let mut counts = self.lock();
        let count = counts.entry(volume.to_owned()).or_default();
        if *count >= MOST {
            return None;
        }
        *count += 1;
        Some(Turn {
            waiting: self,
            volume: volume.to_owned(),
        })
    }
}

/// A command that is counted.
pub struct Turn<'a> {
    waiting: &'a Waiting,
    volume: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut counts = self.waiting.lock();
        if let Some(count) = counts.get_mut(&self.volume) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.volume);
            }
        }
    }
}
