//! Where the chunks of one image come from: their homes at the site, and the sources in the order of their cost.
//!
//! A source that fails is left alone for a while, twice as long each time, as long as others serve. When all fail, each is asked at every attempt.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_dataplane::serving::referrals::HostName;

use crate::image::chunk::ChunkError;
use crate::image::flights::Reach;
use crate::image::leaves::Leaves;
use crate::peers::homes::{Home, Homes};
use crate::processes::shared::{Counter, Shared, SourceCounter};
use crate::sizes::{CHUNK, MAX_SOURCES};
use crate::sources::backoff::Known;
use crate::sources::source::{Fetched, Source, SourceError};

/// How long a source may take while another one could be asked.
const SHARE_TIME: Duration = Duration::from_secs(10);
/// How long a home may take, which fetches a chunk over the WAN; a little longer than it gives itself.
const HOME_TIME: Duration = Duration::from_secs(28);
/// How long a host that a home refers to may take: it has the chunk, or waits for it a little shorter than this.
const REFERRED_TIME: Duration = Duration::from_secs(3);
/// How long another host may take to say whether it has a chunk.
const LOOK_TIME: Duration = Duration::from_secs(3);

/// Adjacent chunks of one group that are to be fetched.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    /// Where they are kept; leaves are kept as they arrive.
    pub leaves: &'a Leaves,
    /// Their numbers.
    pub run: &'a Range<u64>,
    /// Called with the number of bytes that have arrived, before leaves of them can be read.
    pub before_arrival: &'a dyn Fn(usize),
    /// Called when more leaves were kept.
    pub on_arrival: &'a dyn Fn(),
}

/// All sources of an image.
pub struct Sources {
    homes: Homes,
    known: Vec<Known>,
    shared: Arc<Shared>,
}

impl Sources {
    /// Take sources, the cheapest first, and count what they do.
    pub fn new(sources: Vec<Box<dyn Source>>, shared: Arc<Shared>) -> Sources {
        Sources {
            homes: Homes::default(),
            known: sources.into_iter().map(Known::new).collect(),
            shared,
        }
    }

    /// Ask the homes of chunks first.
    pub fn with_homes(mut self, homes: Homes) -> Sources {
        self.homes = homes;
        self
    }

    /// Return the homes of chunks.
    pub fn homes(&self) -> &Homes {
        &self.homes
    }

    /// Return the name of the cheapest source, for logs.
    pub fn name(&self) -> &str {
        self.known.first().map_or("", |known| known.source().name())
    }

    /// Have the cheapest source read what it needs before the first chunk.
    pub fn prepare(&self) {
        let Some(known) = self.known.first() else {
            return;
        };
        if let Err(error) = known.source().prepare(SHARE_TIME) {
            let name = known.source().name();
            log::warn!("Could not prepare to read from {name}, as the first read will: {error}");
        }
    }

    /// Return where this host's own fetch of a chunk goes.
    pub fn reach(&self, chunk: u64) -> Reach {
        match self.homes.is_here(chunk, Instant::now()) {
            true => Reach::Direct,
            false => Reach::Site,
        }
    }

    /// Fetch chunks, verified, from the first of their homes that serves them, in the order of their rank, up to this host; none if no one does.
    pub fn fetch_from_homes(&self, wanted: Wanted<'_>, end: Instant) -> Option<Fetched> {
        for (place, home) in self.homes.of(wanted.run.start) {
            // This host is the next in rank.
            let home = home?;
            if !home.asked.is_awake(Instant::now()) {
                continue;
            }
            // The rest of the time is for where the image is.
            let left = end.saturating_duration_since(Instant::now()) / 2;
            match self.ask_home(place, home, wanted, left.min(HOME_TIME)) {
                Ok(fetched) => {
                    home.asked.succeeded();
                    home.note_served();
                    return Some(fetched);
                }
                Err(error) => home.asked.failed(&error),
            }
        }
        None
    }

    /// Ask a home for chunks, and the host that it refers to before the home again.
    fn ask_home(
        &self,
        place: usize,
        home: &Home,
        wanted: Wanted<'_>,
        limit: Duration,
    ) -> Result<Fetched, ChunkError> {
        let end = Instant::now() + limit;
        let index = place + MAX_SOURCES;
        let asked = self.ask(index, home.asked.source(), wanted, limit);
        let Err(ChunkError::Source(SourceError::Referred(name))) = asked else {
            return asked;
        };
        if let Some(fetched) = self.follow(place, &name, wanted) {
            self.shared.add(Counter::ReferralsFollowed, 1);
            return Ok(fetched);
        }
        self.shared.add(Counter::ReferralsFailed, 1);
        let left = end.saturating_duration_since(Instant::now());
        self.ask(index, &*home.asked_again, wanted, left)
    }

    /// Ask the host for chunks that the home at a place has named; none if it does not serve them. A name is that of a host of the site, or of none.
    fn follow(&self, place: usize, name: &HostName, wanted: Wanted<'_>) -> Option<Fetched> {
        let (other, host) = self.homes.named(name.as_str())?;
        if other == place || !host.referred.is_awake(Instant::now()) {
            return None;
        }
        let index = other + MAX_SOURCES;
        match self.ask(index, host.referred.source(), wanted, REFERRED_TIME) {
            Ok(fetched) => {
                host.referred.succeeded();
                host.note_served();
                Some(fetched)
            }
            Err(error) => {
                // Then it is left alone for a while, so that these lines are few.
                log::warn!(
                    "Could not read from host {}, as a home has referred: {error}",
                    name.as_str()
                );
                host.referred.failed(&error);
                None
            }
        }
    }

    /// Fetch chunks, verified, from hosts that have the image or the chunks, then from where it is dearer, before `end`.
    ///
    /// # Errors
    /// Of the source that was asked last.
    pub fn fetch_directly(&self, wanted: Wanted<'_>, end: Instant) -> Result<Fetched, ChunkError> {
        let order = self.order(Instant::now());
        let mut last = ChunkError::TooSlow;
        let mut is_looked_for = true;
        for (place, index) in order.iter().enumerate() {
            let known = &self.known[*index];
            if is_looked_for && !known.source().is_near() {
                is_looked_for = false;
                if let Some(fetched) = self.look_for(wanted) {
                    return Ok(fetched);
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let is_last = place + 1 == order.len();
            let limit = if is_last { left } else { left.min(SHARE_TIME) };
            match self.ask(*index, known.source(), wanted, limit) {
                Ok(fetched) => {
                    known.succeeded();
                    return Ok(fetched);
                }
                Err(error) => {
                    known.failed(&error);
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Ask hosts for chunks that they may have fetched while this one was not their home.
    fn look_for(&self, wanted: Wanted<'_>) -> Option<Fetched> {
        for (place, home) in self.homes.neighbours(wanted.run.start, Instant::now()) {
            match self.look(place, home, wanted) {
                Ok(fetched) => return Some(fetched),
                // It may not serve the image at all, and another one may.
                Err(error) if error.is_absent() && !home.has_served() => {}
                Err(_) => return None,
            }
        }
        None
    }

    /// Ask a host for chunks that it may have.
    fn look(&self, place: usize, home: &Home, wanted: Wanted<'_>) -> Result<Fetched, ChunkError> {
        let index = place + MAX_SOURCES;
        let found = self.ask(index, home.looked_at.source(), wanted, LOOK_TIME);
        home.note_looked_at(found.as_ref().map(drop));
        found
    }

    /// Look at all hosts of the site for a chunk that this one is home of: those that serve the image know from that that this one does, too.
    pub fn announce(&self, chunks: u64) {
        let Some(chunk) = self.homes.own_chunk(chunks) else {
            return;
        };
        for (_, home) in self.homes.others() {
            let source = home.looked_at.source();
            let found = source
                .read_at(chunk * CHUNK, &mut [0], LOOK_TIME)
                .map_err(ChunkError::from);
            home.note_looked_at(found.as_ref().map(drop));
        }
    }

    /// Return the sources that are not left alone, then the others, those first whose rest ends first.
    fn order(&self, now: Instant) -> Vec<usize> {
        let mut order: Vec<_> = (0..self.known.len()).collect();
        order.sort_by_key(|index| self.known[*index].awake_at(now));
        order
    }

    fn ask(
        &self,
        index: usize,
        source: &dyn Source,
        wanted: Wanted<'_>,
        limit: Duration,
    ) -> Result<Fetched, ChunkError> {
        self.count(index, SourceCounter::Requests, 1);
        let Wanted { leaves, run, .. } = wanted;
        let mut kept = 0;
        let mut arrived = |bytes: &[u8]| {
            (wanted.before_arrival)(bytes.len());
            let now = leaves.keep_arrived(run.start, bytes, kept);
            if now > kept {
                kept = now;
                (wanted.on_arrival)();
            }
        };
        let asked = source.fetch(run, leaves.run_len(run), limit, &mut arrived);
        let outcome = asked.map_err(ChunkError::from);
        let outcome = outcome.and_then(|fetched| self.verify(index, source, wanted, fetched, kept));
        match &outcome {
            // Its home is busy, which is no failure.
            Ok(_) | Err(ChunkError::Source(SourceError::Referred(_))) => {}
            Err(error) => {
                self.count(index, SourceCounter::Failures, 1);
                self.distrust(source, error);
            }
        }
        outcome
    }

    /// Use nothing again of what a source sent, if that was wrong.
    fn distrust(&self, source: &dyn Source, error: &ChunkError) {
        match error {
            ChunkError::Wrong(_) => source.distrust(),
            ChunkError::Source(SourceError::Wrong(reason)) => {
                self.shared.add(Counter::Corrupt, 1);
                log::warn!("Dropped what came from {}: {reason}", source.name());
                source.distrust();
            }
            _ => {}
        }
    }

    /// Check chunks, but for the leaves that were `kept` already, and drop what came with them if that is wrong.
    fn verify(
        &self,
        index: usize,
        source: &dyn Source,
        wanted: Wanted<'_>,
        mut fetched: Fetched,
        kept: usize,
    ) -> Result<Fetched, ChunkError> {
        let Wanted { leaves, run, .. } = wanted;
        self.count(index, SourceCounter::Bytes, fetched.moved);
        self.count(index, SourceCounter::PatchBytes, fetched.of_patch);
        if fetched.bytes.len() != leaves.run_len(run) {
            let reason = format!("{} bytes of chunks {run:?}", fetched.bytes.len());
            return Err(SourceError::Short(reason).into());
        }
        let is_sound = |chunk, bytes: &[u8], kept| match leaves.find_wrong(chunk, bytes, kept) {
            None => Ok(()),
            Some(leaf) => {
                self.shared.add(Counter::Corrupt, 1);
                log::warn!("Dropped leaf {leaf} from {}: wrong bytes", source.name());
                Err(ChunkError::Wrong(leaf))
            }
        };
        is_sound(run.start, &fetched.bytes, kept)?;
        fetched.others.retain(|(other, bytes)| {
            bytes.len() == leaves.chunk_range(*other).1 && is_sound(*other, bytes, 0).is_ok()
        });
        Ok(fetched)
    }

    fn count(&self, index: usize, counter: SourceCounter, count: u64) {
        self.shared
            .source_counter(index, counter)
            .fetch_add(count, Ordering::Relaxed);
    }
}
