//! Requests that a home refers to instances which got the chunk from it, or are about to.

use std::iter;

use diffcache_prefetch::Chunk;

use super::ports::{Happening, Instance, Request};
use super::scenario::{half_ns, Mode};
use super::site::Site;

impl Site<'_> {
    /// Lets a home answer a request for a chunk that it has.
    ///
    /// With as many requests at its port as the fan-out, it refers further ones. None is sent what it
    /// did not ask for.
    pub fn answer(&mut self, now: u64, home: Instance, request: Request) {
        if self.mode != Mode::Refer {
            self.enter_port(now, Some(home), request);
            return;
        }
        let is_busy = self.ports.lan[home as usize].requests() >= self.scenario.fan_out;
        let chunk = iter::once(request.chunk);
        let other = self.referrals.note(chunk, request.instance, is_busy);
        let Some(other) = other else {
            self.enter_port(now, Some(home), request);
            return;
        };
        let round_trip = half_ns(self.scenario.links.lan_rtt_ms).saturating_mul(2);
        let at = now.saturating_add(round_trip);
        self.agenda.add(at, Happening::AtOther(other, request));
    }

    /// Lets an instance that is no home send a chunk, at once or when it has it.
    pub fn arrive_at_other(&mut self, now: u64, other: Instance, request: Request) {
        if self.is_there(other, request.chunk) {
            self.enter_port(now, Some(other), request);
        } else {
            let place = (other, request.chunk);
            let waiting = self.waiting.entry(place).or_default();
            waiting.push(request);
        }
    }

    /// Lets an instance that has got a chunk send it to those that were referred to it.
    pub fn serve_referred(&mut self, now: u64, instance: Instance, chunk: Chunk) {
        let waiting = self.waiting.remove(&(instance, chunk));
        for request in waiting.unwrap_or_default() {
            self.enter_port(now, Some(instance), request);
        }
    }
}
