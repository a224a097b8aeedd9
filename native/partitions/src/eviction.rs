//! Which block leaves when a partition is full.

mod lru;
mod s3fifo;
mod sieve;

use crate::slots::{List, Slot, Slots};
pub use lru::Lru;
pub use s3fifo::S3Fifo;
pub use sieve::Sieve;

/// A slot that an [`Eviction`] chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Victim {
    /// The slot; it is in no list any more.
    pub slot: Slot,
    /// Whether the block is to be remembered, so that it is recognised when it comes back.
    pub remember: bool,
}

/// Order in which the clean blocks of a partition are evicted.
///
/// Each slot that is handed over with [`insert`](Eviction::insert) belongs to the policy until it
/// is removed or evicted. Every operation takes constant time, amortised.
pub trait Eviction: Send + std::fmt::Debug {
    /// Adds a slot. `returned`: its block is remembered, so that this is not its first time.
    fn insert(&mut self, slots: &mut Slots, slot: Slot, returned: bool);

    /// Notes a reference to a slot that it has.
    fn touch(&mut self, slots: &mut Slots, slot: Slot);

    /// Removes a slot that it has.
    fn remove(&mut self, slots: &mut Slots, slot: Slot);

    /// Removes the slot to evict; `None` if there is no slot.
    fn evict(&mut self, slots: &mut Slots) -> Option<Victim>;

    /// Adapts to the size of the partition, in blocks.
    fn resize(&mut self, limit: u32);

    /// Its slots in lists, of which those at the heads of the first ones stay the longest.
    fn lists(&self) -> Vec<&List>;

    /// Evicted blocks that are to be remembered, for a partition of `limit` blocks.
    fn remembered(&self, limit: u32) -> u32;
}

/// The names of the policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Least recently used: what reuse distances describe.
    Lru,
    /// SIEVE (Zhang et al., NSDI 2024).
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023).
    S3Fifo,
}

impl Policy {
    /// All policies.
    pub const ALL: [Self; 3] = [Self::Lru, Self::Sieve, Self::S3Fifo];

    /// The policy of a name as commands and options give it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.name() == name)
    }

    /// Its name in commands, options and documents.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3fifo",
        }
    }

    /// Creates the order of an empty partition of `limit` blocks.
    #[must_use]
    pub fn create(self, limit: u32) -> Box<dyn Eviction> {
        let mut eviction: Box<dyn Eviction> = match self {
            Self::Lru => Box::<Lru>::default(),
            Self::Sieve => Box::<Sieve>::default(),
            Self::S3Fifo => Box::<S3Fifo>::default(),
        };
        eviction.resize(limit);
        eviction
    }
}
