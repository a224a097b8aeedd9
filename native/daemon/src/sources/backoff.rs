//! A source, and how long it is left alone after it failed.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::image::chunk::ChunkError;
use crate::sources::source::Source;

const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);
/// A host that does not have the image may get it.
const ABSENT_REST: Duration = Duration::from_secs(20);
/// A source that sent wrong bytes holds another image or is damaged.
const WRONG_REST: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug)]
struct Rest {
    until: Option<Instant>,
    next: Duration,
    /// Whether the source has to answer a probe first.
    is_probed: bool,
    /// Whether the source did not have the image.
    is_absent: bool,
}

impl Rest {
    const NONE: Rest = Rest {
        until: None,
        next: FIRST_REST,
        is_probed: false,
        is_absent: false,
    };
}

/// A source and its record.
pub struct Known {
    source: Box<dyn Source>,
    rest: Mutex<Rest>,
    /// The shortest rest of one that does not have the image.
    absent_rest: Duration,
    /// Whether one that did not answer is probed before it is asked again, so that no read waits for it.
    probes: bool,
}

impl Known {
    /// Take a source that was not asked yet.
    pub fn new(source: Box<dyn Source>) -> Known {
        Known {
            source,
            rest: Mutex::new(Rest::NONE),
            absent_rest: ABSENT_REST,
            probes: false,
        }
    }

    /// Take a home of chunks: it may begin to serve the image at any moment.
    pub fn home(source: Box<dyn Source>) -> Known {
        Known {
            absent_rest: Duration::ZERO,
            probes: true,
            ..Known::new(source)
        }
    }

    /// Take a host that homes may refer requests to: that it does not have a chunk says nothing of others.
    pub fn referred(source: Box<dyn Source>) -> Known {
        Known {
            absent_rest: Duration::ZERO,
            ..Known::new(source)
        }
    }

    /// Return the source.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Return when it may be asked again, as far as that is known.
    pub fn awake_at(&self, now: Instant) -> Instant {
        self.rest
            .lock()
            .unpoisoned()
            .until
            .map_or(now, |until| until.max(now))
    }

    /// Return whether it may be asked.
    pub fn is_awake(&self, now: Instant) -> bool {
        let rest = self.rest.lock().unpoisoned();
        !rest.is_probed && rest.until.is_none_or(|until| until <= now)
    }

    /// Note that it served a chunk.
    pub fn succeeded(&self) {
        *self.rest.lock().unpoisoned() = Rest::NONE;
    }

    /// Note that it did not.
    pub fn failed(&self, error: &ChunkError) {
        let mut rest = self.rest.lock().unpoisoned();
        let is_absent = error.is_absent();
        let least = match error {
            ChunkError::Wrong(_) => WRONG_REST,
            ChunkError::Source(error) if error.is_wrong() => WRONG_REST,
            _ if is_absent => self.absent_rest,
            error => error.delay(),
        };
        rest.until = Some(Instant::now() + rest.next.max(least));
        rest.next = (rest.next * 2).min(LONGEST_REST);
        rest.is_probed = self.probes && !is_absent;
        rest.is_absent = is_absent;
    }

    /// Ask it again if it did not have the image: it has it now.
    pub fn wake(&self) {
        let mut rest = self.rest.lock().unpoisoned();
        if rest.is_absent {
            *rest = Rest::NONE;
        }
    }

    /// Probe it if it has to answer before it is asked again.
    pub fn probe(&self) {
        self.probe_at(Instant::now());
    }

    /// Probe it at a time.
    pub fn probe_at(&self, now: Instant) {
        let rest = *self.rest.lock().unpoisoned();
        if !rest.is_probed || rest.until.is_some_and(|until| until > now) {
            return;
        }
        let is_alive = self.source.is_alive();
        let mut rest = self.rest.lock().unpoisoned();
        match is_alive {
            true => rest.is_probed = false,
            false => rest.until = Some(now + rest.next),
        }
    }
}
