//! Claims that are renewed, and kept, while a value lives.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use diffcache_base::locks::Unpoisoned;

use crate::error::TransferError;
use crate::fetching::claimant::{arrival_key, Claimant, Claimed, HOLDER_PATIENCE};
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

/// Held while an expectation of an object claims, or gives its claim back: all expectations of one have the same claim.
pub(super) type Turn = Mutex<()>;

/// An object that arrives at this host by other means than a transfer.
pub struct Expectation {
    pub(super) claimant: Arc<Claimant>,
    pub(super) key: ObjectKey,
    pub(super) turn: Arc<Turn>,
    pub(super) claimed: Option<Claimed>,
    pub(super) renewal: Option<Renewal>,
}

impl Expectation {
    pub(super) fn claim(&mut self, warn: &mut dyn FnMut(String)) -> Result<(), TransferError> {
        let (claimant, arrival) = (&self.claimant, arrival_key(self.key));
        let _turn = self.turn.lock().unpoisoned();
        let mut claimed = claimant.claim(arrival, None, warn)?;
        // A fill that only looks has the claim for a moment.
        for wait in HOLDER_PATIENCE {
            if claimant.is_own(&claimed) || !claimant.service.gate.sleep(wait) {
                break;
            }
            claimed = claimant.claim(arrival, None, warn)?;
        }
        let renewal = claimant.renewing(&claimed, arrival).map_err(|error| {
            TransferError::Invalid(format!("cannot start a thread for {}: {error}", self.key))
        });
        self.renewal = Some(renewal?);
        self.claimed = Some(claimed);
        Ok(())
    }

    /// Whether no other one has the claim, or waits for its turn to claim.
    fn is_last(&self) -> bool {
        Arc::strong_count(&self.turn) == 2
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        drop(self.renewal.take());
        let _turn = self.turn.lock().unpoisoned();
        let claimed = self.claimed.as_ref();
        if let Some(claimed) = claimed.filter(|found| self.claimant.is_own(found)) {
            if self.is_last() {
                self.claimant
                    .release(claimed, arrival_key(self.key), &mut |_| ());
            }
        }
        let mut expected = self.claimant.expected.lock().unpoisoned();
        // Another one may have come meanwhile.
        if self.is_last() {
            expected.remove(&self.key);
        }
    }
}
