//! Boots to replay: what instances read, over which links.

use diffcache_prefetch::{Chunk, Files, Policy, Profile};
use thiserror::Error;

const NS_PER_MS: f64 = 1e6;
/// Nanoseconds for a bit at 1 Mbit/s.
const NS_PER_BIT: f64 = 1e3;
/// About 31 years. Sums of two times below it do not overflow.
pub(super) const MAX_NS: u64 = 1_000_000_000_000_000_000;

/// Why a scenario cannot be replayed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ReplayError {
    /// {0}: {1}
    #[error("{0}: {1}")]
    Field(&'static str, &'static str),
    /// the replay would last longer than 31 years; raise the rates of the links
    #[error("the replay would last longer than 31 years; raise the rates of the links")]
    TooLong,
}

/// One read of an instance.
#[derive(Debug, Clone, Copy)]
pub struct Read {
    /// Time from the completion of the read before it, or from the start.
    pub think_ns: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub length: u64,
}

/// What an instance reads while it boots.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// Time of its start.
    pub start_ns: u64,
    /// Its reads, in order.
    pub reads: Vec<Read>,
}

impl Trace {
    pub(super) fn think_ns(&self) -> u64 {
        let thinks = self.reads.iter().map(|read| read.think_ns);
        thinks.fold(0, u64::saturating_add)
    }
}

/// Rates in Mbit/s, round-trip times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub struct Links {
    /// Rate of the link to the repository.
    pub wan_mbps: f64,
    /// Round trip to the repository.
    pub wan_rtt_ms: f64,
    /// Rate at which an instance sends to others.
    pub lan_mbps: f64,
    /// Round trip between instances.
    pub lan_rtt_ms: f64,
}

/// Boots of one image.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Size of the image.
    pub image_bytes: u64,
    /// Size of a chunk.
    pub chunk_bytes: u64,
    /// Whether the homes have their chunks at the start.
    pub striped: bool,
    /// The links.
    pub links: Links,
    /// The instances, by number.
    pub instances: Vec<Trace>,
    /// What is known of the image; [`Mode::Later`] needs it.
    pub profile: Option<Profile>,
    /// How instances prefetch.
    pub policy: Policy,
    /// The files of the image, for [`Policy::rest`].
    pub files: Files,
    /// Which instances are homes of which chunks.
    pub layout: Layout,
    /// To how many others each instance sends a chunk in [`Mode::Refer`].
    pub fan_out: usize,
}

/// Which instances are homes of which chunks: the first ones, by turns.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    /// How many instances are homes; none: all.
    pub homes: Option<u32>,
    /// Adjacent chunks of one home.
    pub group: Chunk,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            homes: None,
            group: 1,
        }
    }
}

/// How chunks come to the instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// All are there.
    Local,
    /// Each when it is read.
    OnDemand,
    /// By hints, and nothing is known at first.
    First,
    /// By hints, and the profile is known.
    Later,
    /// All before the first read.
    Broadcast,
    /// Those that the instance will read, in this order, from its start.
    Oracle,
    /// As [`Mode::First`]; busy homes refer requests to those that asked for the chunk before.
    Refer,
}

impl Mode {
    pub(super) fn learns(self) -> bool {
        matches!(self, Mode::First | Mode::Later | Mode::Refer)
    }
}

impl Scenario {
    /// The number of the image's chunks.
    pub(super) fn chunks(&self) -> Chunk {
        let chunks = self.image_bytes.div_ceil(self.chunk_bytes.max(1));
        Chunk::try_from(chunks).unwrap_or(Chunk::MAX)
    }

    /// The number of readers from which on a chunk is a hint.
    pub(super) fn least(&self) -> u64 {
        self.policy.threshold.readers(self.instances.len())
    }

    /// The instance that is home of a chunk.
    pub(super) fn home_of(&self, chunk: Chunk) -> u32 {
        let all = self.instances.len() as u32;
        // Checked to be at least 1.
        chunk / self.layout.group % self.layout.homes.unwrap_or(all)
    }

    pub(super) fn bytes_of(&self, chunk: Chunk) -> u64 {
        let start = u64::from(chunk) * self.chunk_bytes;
        self.chunk_bytes.min(self.image_bytes.saturating_sub(start))
    }

    /// The chunks of a read.
    pub(super) fn chunks_of(&self, read: &Read) -> std::ops::RangeInclusive<Chunk> {
        let last = read.offset + (read.length - 1);
        // Checked to be below the number of chunks.
        (read.offset / self.chunk_bytes) as Chunk..=(last / self.chunk_bytes) as Chunk
    }

    pub(super) fn check(&self) -> Result<(), ReplayError> {
        let refuse = |field, reason| Err(ReplayError::Field(field, reason));
        if self.chunk_bytes == 0 || self.image_bytes == 0 {
            return refuse("image_bytes", "an image and a chunk have at least one byte");
        }
        if self.image_bytes.div_ceil(self.chunk_bytes) >= u64::from(Chunk::MAX) {
            return refuse("chunk", "the image has too many chunks");
        }
        if self.instances.is_empty() {
            return refuse("instances", "there has to be at least one");
        }
        let all = self.instances.len() as u32;
        if !(1..=all).contains(&self.layout.homes.unwrap_or(all)) {
            return refuse("homes", "at least one, and at most all instances");
        }
        if self.layout.group == 0 {
            return refuse("group", "at least one chunk");
        }
        if self.fan_out == 0 {
            return refuse("fan_out", "at least one instance");
        }
        let links = self.links;
        for rate in [links.wan_mbps, links.lan_mbps] {
            if !(rate.is_finite() && rate > 0.0) {
                return refuse("links", "rates have to be finite and above 0");
            }
        }
        for rtt in [links.wan_rtt_ms, links.lan_rtt_ms] {
            if !(rtt.is_finite() && rtt >= 0.0) {
                return refuse("links", "round trips have to be finite and not negative");
            }
        }
        for trace in &self.instances {
            let fits = |read: &Read| {
                let end = read.offset.checked_add(read.length);
                read.length > 0 && end.is_some_and(|end| end <= self.image_bytes)
            };
            if !trace.reads.iter().all(fits) {
                return refuse("instances", "a read is empty or ends beyond the image");
            }
            if trace.start_ns.saturating_add(trace.think_ns()) > MAX_NS {
                return Err(ReplayError::TooLong);
            }
        }
        Ok(())
    }
}

/// The nanoseconds that this many bytes take at a rate.
pub(super) fn sending_ns(bytes: u64, mbps: f64) -> u64 {
    // Saturates; such a replay is refused as too long.
    (8.0 * bytes as f64 * NS_PER_BIT / mbps).round() as u64
}

/// The nanoseconds of half a round trip.
pub(super) fn half_ns(rtt_ms: f64) -> u64 {
    (rtt_ms * NS_PER_MS / 2.0).round() as u64
}
