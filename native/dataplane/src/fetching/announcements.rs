//! Announcements: what hosts are about to bring over the WAN for requests, or are bringing.
//!
//! Other hosts look at them before they bring a similar image: a patch from the one that arrives may do. An announcement is a claim of a key
//! that is derived from the object's, so that coordinators of any release keep it, and it ends with the host that made it.

use std::sync::Arc;

use crate::error::TransferError;
use crate::fetching::claimant::{derived_key, Claimant, Claimed, Renewal};
use crate::ids::ObjectKey;

/// How far a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It looks for a cheaper way, and will bring the object whole if there is none.
    Considered,
    /// It brings the object whole, whatever others do.
    Coming,
}

impl Stage {
    /// The stage of a name.
    pub fn parse(name: &str) -> Option<Stage> {
        [Stage::Considered, Stage::Coming]
            .into_iter()
            .find(|stage| stage.name() == name)
    }

    /// The name, from which keys are derived.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Considered => "considered",
            Stage::Coming => "coming",
        }
    }
}

/// A host's word on an object; it is taken back when this is dropped.
pub struct Announcement {
    claimant: Arc<Claimant>,
    key: ObjectKey,
    claimed: Option<Claimed>,
    renewal: Option<Renewal>,
}

impl Announcement {
    /// Announce how far this host is with an object. Of several hosts the first is named.
    pub fn new(
        claimant: &Arc<Claimant>,
        key: ObjectKey,
        stage: Stage,
        warn: &mut dyn FnMut(String),
    ) -> Result<Announcement, TransferError> {
        let key = derived_key(stage.name(), key);
        let claimed = claimant.claim(key, None, warn)?;
        let renewal = claimant.renewing(&claimed, key).map_err(|error| {
            TransferError::Invalid(format!("cannot start a thread for {key}: {error}"))
        })?;
        Ok(Announcement {
            claimant: claimant.clone(),
            key,
            claimed: Some(claimed),
            renewal: Some(renewal),
        })
    }

    /// Leave the announcement to expire: others may read the object here for a while.
    pub fn leave(mut self) {
        self.claimed = None;
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        drop(self.renewal.take());
        let claimed = self.claimed.take();
        if let Some(claimed) = claimed.filter(|found| self.claimant.is_own(found)) {
            self.claimant.release(&claimed, self.key, &mut |_| ());
        }
    }
}

/// Whether any host of the site announced a stage of an object.
pub fn is_announced(
    claimant: &Claimant,
    key: ObjectKey,
    stage: Stage,
    warn: &mut dyn FnMut(String),
) -> Result<bool, TransferError> {
    let holder = claimant.holder(derived_key(stage.name(), key), warn)?;
    Ok(holder.is_some())
}
