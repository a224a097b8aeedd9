//! Requests that wait for what the volume may do per second.
//!
//! This process limits all requests of its guest, as it does not ask the daemon for cached blocks. The
//! daemon limits what it is asked for once more: a guest that has taken this process over reads cached
//! blocks without a limit, and no more.

use std::time::{Duration, Instant};

use diffcache_ssdcache::rates::{Cost, Direction};

use super::{Device, Place, LEAST_BYTES};
use crate::request::{Request, Work};
use crate::ring::Chain;

/// A request that waits.
pub(super) struct Late {
    place: Place,
    request: Request,
    chain: Chain,
}

/// What a request counts as; none: QEMU does not limit it either.
fn cost(work: Work) -> Option<Cost> {
    let (direction, length) = match work {
        Work::Read { length, .. } => (Direction::Read, length),
        Work::Write { length, .. } | Work::Zero { length, .. } => (Direction::Write, length),
        _ => return None,
    };
    Some(Cost {
        direction,
        bytes: length.into(),
    })
}

impl Device {
    /// Begins a request, or has it wait.
    pub(super) fn admit(
        &mut self,
        place: Place,
        request: &Request,
        chain: &mut Chain,
        begun: Instant,
    ) -> std::io::Result<()> {
        let is_limited = self.limiter.rates().is_limited();
        match cost(request.work).filter(|_| is_limited) {
            Some(cost) if !self.limiter.begin(cost, begun) => {
                let late = Late {
                    place,
                    request: *request,
                    chain: std::mem::take(chain),
                };
                self.limiter.queue(cost, late);
                self.bytes += LEAST_BYTES;
                self.rings[place.0].running += 1;
                Ok(())
            }
            _ => self.begin(place, request, chain, begun),
        }
    }

    /// Begins the requests that have waited until now. Returns the time until another one may begin; none:
    /// none waits.
    pub fn begin_due(&mut self) -> Option<Duration> {
        let mut rings = Vec::new();
        let next = loop {
            match self.limiter.next(Instant::now()) {
                Ok(late) => {
                    if rings.last() != Some(&late.place.0) {
                        rings.push(late.place.0);
                    }
                    self.begin_late(late);
                }
                Err(next) => break next,
            }
        };
        if !rings.is_empty() {
            self.cached.publish();
        }
        rings.into_iter().for_each(|ring| self.notify(ring));
        next
    }

    /// Begins all requests of a ring, which is to be served no longer.
    pub(super) fn begin_all(&mut self, ring: usize) {
        let late = self.limiter.release(|late| late.place.0 == ring);
        late.into_iter().for_each(|late| self.begin_late(late));
    }

    fn begin_late(&mut self, late: Late) {
        let Late {
            place,
            request,
            mut chain,
        } = late;
        self.bytes -= LEAST_BYTES;
        self.rings[place.0].running -= 1;
        let done = self.begin(place, &request, &mut chain, Instant::now());
        self.see_to(place.0, done);
    }

    /// Follows other limits of the volume.
    pub(super) fn refresh_rates(&mut self) {
        let rates = self.cached.index.rates();
        if rates != self.limiter.rates() {
            self.limiter.set_rates(rates, Instant::now());
        }
    }
}
