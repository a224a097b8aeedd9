//! Ranges for peers.

use std::ops::Range;
use std::time::{Duration, Instant};

use diffcache_dataplane::serving::ranges::{RangeRequest, Want};

use crate::image::chunk::{Chunk, ChunkError, Outcome, Provided};
use crate::image::flights::{Purpose, Reach};
use crate::image::lazy_file::read::collect_kept_out;
use crate::image::lazy_file::{split_runs, LazyFile};
use crate::processes::shared::Counter;
use crate::sizes::CHUNK;

impl LazyFile {
    /// Give a range to a peer: what is there, or what can be fetched without other hosts that would fetch it.
    ///
    /// # Errors
    /// Of the last attempt.
    pub fn provide(&self, request: &RangeRequest, limit: Duration) -> Result<Provided, ChunkError> {
        let chunks = request.offset / CHUNK..(request.offset + request.len).div_ceil(CHUNK);
        let mut absent = Vec::new();
        for chunk in chunks {
            if !self.is_local(chunk) {
                absent.push(chunk);
            }
        }
        if request.want == Want::Present {
            // By its home, or by the host that takes its place.
            self.sources.homes().wake_home_of(request.offset / CHUNK);
            if !absent.is_empty() {
                return Ok(Provided::Absent);
            }
        }
        let outcomes = match request.want {
            Want::Arriving => match self.await_arriving(&absent, limit) {
                Some(outcomes) => outcomes,
                None => return Ok(Provided::Absent),
            },
            Want::Present | Want::Fetched => self.obtain_for_peer(&absent, limit),
        };
        let kept_out = collect_kept_out(outcomes)?;
        if kept_out.is_empty() {
            return Ok(Provided::InFile);
        }
        let mut bytes = vec![0; request.len as usize];
        let copied = self.copy(request.offset, &mut bytes, &kept_out);
        copied.map_err(|error| ChunkError::Disk(error.to_string()))?;
        Ok(Provided::Bytes(bytes))
    }

    fn obtain_for_peer(&self, absent: &[u64], limit: Duration) -> Vec<(u64, Outcome)> {
        let _demand = (!absent.is_empty()).then(|| self.enter_demand());
        let obtain = |run: Range<u64>| self.obtain(&run, Reach::Direct, Purpose::Peer, limit);
        split_runs(absent).into_iter().flat_map(obtain).collect()
    }

    /// Wait for chunks that are on their way here; none if some are not, or do not come.
    fn await_arriving(&self, absent: &[u64], limit: Duration) -> Option<Vec<(u64, Outcome)>> {
        let end = Instant::now() + limit;
        let wait = |chunk: &u64| match self.flights.find(*chunk) {
            Some(flight) => {
                let outcome = flight.wait(end.saturating_duration_since(Instant::now()));
                outcome.is_ok().then_some((*chunk, outcome))
            }
            // It may have come since the look at the file.
            None => {
                let is_local = self.is_local(*chunk);
                is_local.then_some((*chunk, Ok(Chunk::Local)))
            }
        };
        absent.iter().map(wait).collect()
    }

    /// Count a range that is sent to a peer.
    pub fn count_provided(&self, len: u64) {
        self.shared.add(Counter::PeerRequests, 1);
        self.shared.add(Counter::PeerBytes, len);
    }
}
