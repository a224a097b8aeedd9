//! What is done for volumes beside their requests: blocks are written back, and intents are cleared.
//!
//! Each task is of one volume, and waits for its origin alone: others go on while one hangs. A volume
//! has at most one task of a kind at a time.

use diffcache_base::sync::atomic::{AtomicBool, Ordering};
use diffcache_base::sync::Arc;

use super::volume::Volume;
use super::Cache;
use crate::device::intents::Intent;

/// Work on one volume, which [a thread of its own](Cache::run) does.
pub struct Task {
    volume: Arc<Volume>,
    work: Work,
}

enum Work {
    WriteBack,
    /// Clear intents of regions that were not written for a while.
    Settle(Vec<Intent>),
}

impl Work {
    /// Set while a volume has a task of the kind.
    fn flag<'a>(&self, volume: &'a Volume) -> &'a AtomicBool {
        match self {
            Self::WriteBack => &volume.is_due,
            Self::Settle(_) => &volume.is_settling,
        }
    }
}

impl Task {
    fn take(volume: Arc<Volume>, work: Work) -> Option<Self> {
        let is_free = !work.flag(&volume).swap(true, Ordering::AcqRel);
        // Not `then_some`: the end of one that was not taken would free the other.
        is_free.then(|| Self { volume, work })
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.work.flag(&self.volume).store(false, Ordering::Release);
    }
}

impl Cache {
    /// Returns a task for each volume that has blocks to write back: they have been dirty for too
    /// long, or are too many. To be called every second or so.
    pub fn take_due(&self) -> Vec<Task> {
        self.take(|volume| self.is_due(volume).then_some(Work::WriteBack))
    }

    /// Returns a task for each volume with regions that were not written since the last call. To be
    /// called every few seconds.
    pub fn take_idle(&self) -> Vec<Task> {
        self.take(|volume| {
            let idle = self.device.intents().idle(volume.record);
            (!idle.is_empty()).then_some(Work::Settle(idle))
        })
    }

    fn take(&self, work: impl Fn(&Volume) -> Option<Work>) -> Vec<Task> {
        if self.has_failed() {
            return Vec::new();
        }
        let volumes = self.volumes().into_iter();
        let tasks = volumes.filter_map(|volume| Task::take(volume.clone(), work(&volume)?));
        tasks.collect()
    }

    /// Does a task. Returns why that failed, if it is to be logged; it is tried again later.
    #[must_use]
    pub fn run(&self, task: &Task) -> Option<String> {
        let volume = &task.volume;
        match &task.work {
            Work::WriteBack => self.write_back_due(volume),
            Work::Settle(idle) => {
                let error = self.clear(volume, idle).err()?;
                Some(format!("volume {}: {error}", volume.name()))
            }
        }
    }
}
