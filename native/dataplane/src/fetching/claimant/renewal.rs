//! Claims that are renewed, and kept, while a value lives.

use std::sync::mpsc::Sender;
use std::sync::Arc;
use std::thread::JoinHandle;

use diffcache_base::locks::Unpoisoned;

use crate::fetching::claimant::{arrival_key, Claimant, Claimed};
use crate::ids::ObjectKey;

/// Renews a claim while it lives.
pub struct Renewal(pub(super) Option<(Sender<()>, JoinHandle<()>)>);

impl Drop for Renewal {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.0.take() {
            drop(end);
            let _ = thread.join();
        }
    }
}

/// An object that arrives at this host by other means than a transfer.
pub struct Expectation {
    pub(super) claimant: Arc<Claimant>,
    pub(super) key: ObjectKey,
    pub(super) claimed: Option<Claimed>,
    pub(super) renewal: Option<Renewal>,
}

impl Drop for Expectation {
    fn drop(&mut self) {
        drop(self.renewal.take());
        let last = {
            let mut expected = self.claimant.expected.lock().unpoisoned();
            let count = expected.get(&self.key).copied().unwrap_or_default();
            if count > 1 {
                expected.insert(self.key, count - 1);
            } else {
                expected.remove(&self.key);
            }
            count <= 1
        };
        if let Some(claimed) = self
            .claimed
            .take()
            .filter(|found| self.claimant.is_own(found))
        {
            if last {
                self.claimant
                    .release(&claimed, arrival_key(self.key), &mut |_| ());
            }
        }
    }
}
