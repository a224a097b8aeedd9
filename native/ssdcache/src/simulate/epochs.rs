//! Epochs of a simulation: after each, new sizes are decided by what volumes referenced in it.

use std::num::NonZeroU64;

use crate::curve::exact::{Counter, Finder};
use crate::curve::Curve;
use crate::partition::VolumeId;
use crate::Block;

/// What is known of one volume at the end of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochVolume {
    /// As in the trace.
    pub name: String,
    /// Its partition, blocks.
    pub size: u32,
    /// Hits of its references in the epoch. Distances go back beyond its begin.
    pub curve: Curve,
}

/// Returns the sizes from then on, or nothing to stop the simulation.
///
/// Takes microseconds since the first request, and the volumes; sizes are in their order.
pub type Decide<'a> = &'a mut dyn FnMut(u64, Vec<EpochVolume>) -> Option<Vec<u32>>;

#[derive(Default)]
struct Access {
    finder: Finder,
    counter: Counter,
}

/// References of all volumes, by epochs.
pub struct Epochs {
    length_us: NonZeroU64,
    ended: u64,
    volumes: Vec<Access>,
}

impl std::fmt::Debug for Epochs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epochs")
            .field("length_us", &self.length_us)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Epochs {
    /// Begins the first epoch.
    pub fn new(length_us: NonZeroU64) -> Self {
        Self {
            length_us,
            ended: 0,
            volumes: Vec::new(),
        }
    }

    /// Notes a reference.
    pub fn refer(&mut self, volume: VolumeId, block: Block) {
        let volume = usize::from(volume);
        if self.volumes.len() <= volume {
            self.volumes.resize_with(volume + 1, Access::default);
        }
        let Access { finder, counter } = &mut self.volumes[volume];
        let mut before = [block];
        finder.find(&mut before);
        counter.count(&before);
    }

    /// Ends an epoch if one is over at a time; returns when it ended.
    ///
    /// Epochs without any request have no end of their own.
    pub fn end(&mut self, time_us: u64) -> Option<u64> {
        let ended = time_us / self.length_us.get();
        if ended == self.ended {
            return None;
        }
        self.ended = ended;
        Some(ended * self.length_us.get())
    }

    /// Returns the curve of a volume's references since this was called before.
    pub fn curve(&mut self, volume: VolumeId) -> Curve {
        self.volumes
            .get_mut(usize::from(volume))
            .map_or_else(Curve::default, |access| access.counter.take())
    }
}
