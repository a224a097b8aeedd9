//! Epochs of a simulation: after each, new sizes are decided by what volumes referenced in it.

use std::num::NonZeroU64;

use diffcache_partitions::curve::Curve;
use diffcache_partitions::{Block, VolumeId};

use crate::curves::exact::{Counter, Finder};

/// What was served of one volume until now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// As in the trace.
    pub name: String,
    /// References since the begin of the trace.
    pub references: u64,
    /// Those of them that hit.
    pub hits: u64,
    /// Whether its partition has as many blocks as it may have.
    pub full: bool,
}

/// What is known of one volume at the end of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochVolume {
    /// What was served of it until then.
    pub served: Served,
    /// Its partition, blocks.
    pub size: u32,
    /// Hits of its references in the epoch. Distances go back beyond its begin.
    pub curve: Curve,
}

/// Decides how large the partitions of volumes are. A closure decides sizes, and ends no epoch early.
pub trait Decider {
    /// Returns the sizes from then on, or nothing to stop the simulation.
    ///
    /// Takes microseconds since the first request, and the volumes; sizes are in their order.
    fn decide(&mut self, time_us: u64, volumes: Vec<EpochVolume>) -> Option<Vec<u32>>;

    /// Returns whether an epoch ends early, or nothing to stop the simulation.
    ///
    /// Takes the same as [`decide`](Self::decide).
    fn ends_early(&mut self, _time_us: u64, _volumes: Vec<Served>) -> Option<bool> {
        Some(false)
    }
}

impl<F: FnMut(u64, Vec<EpochVolume>) -> Option<Vec<u32>>> Decider for F {
    fn decide(&mut self, time_us: u64, volumes: Vec<EpochVolume>) -> Option<Vec<u32>> {
        self(time_us, volumes)
    }
}

/// See [`Decider`].
pub type Decide<'a> = &'a mut dyn Decider;

/// When epochs end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// Microseconds after which an epoch ends at the latest.
    pub longest_us: NonZeroU64,
    /// Microseconds after which it is asked for whether it ends early, again and again.
    pub look_us: Option<NonZeroU64>,
}

/// What is due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// The end of an epoch, at this many microseconds.
    End(u64),
    /// A look at what is served.
    Look(u64),
}

#[derive(Default)]
struct Access {
    finder: Finder,
    counter: Counter,
}

/// References of all volumes, by epochs.
pub struct Epochs {
    lengths: Lengths,
    begin_us: u64,
    looked_us: u64,
    volumes: Vec<Access>,
}

impl std::fmt::Debug for Epochs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epochs")
            .field("lengths", &self.lengths)
            .field("begin_us", &self.begin_us)
            .finish_non_exhaustive()
    }
}

impl Epochs {
    /// Begins the first epoch.
    pub fn new(lengths: Lengths) -> Self {
        Self {
            lengths,
            begin_us: 0,
            looked_us: 0,
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

    /// Returns what is due at a time, once.
    ///
    /// Epochs and looks without any request between them are not due.
    pub fn due(&mut self, time_us: u64) -> Option<Due> {
        let longest = self.lengths.longest_us.get();
        let over = time_us.saturating_sub(self.begin_us) / longest;
        if over > 0 {
            let ended = self.begin_us + over * longest;
            self.begin(ended);
            return Some(Due::End(ended));
        }
        let look = self.lengths.look_us?.get();
        let over = time_us.saturating_sub(self.looked_us) / look;
        self.looked_us += over * look;
        (over > 0).then_some(Due::Look(self.looked_us))
    }

    /// Begins an epoch at a time.
    pub fn begin(&mut self, time_us: u64) {
        self.begin_us = time_us;
        self.looked_us = time_us;
    }

    /// Returns the curve of a volume's references since this was called before.
    pub fn curve(&mut self, volume: VolumeId) -> Curve {
        self.volumes
            .get_mut(usize::from(volume))
            .map_or_else(Curve::default, |access| access.counter.take())
    }
}
