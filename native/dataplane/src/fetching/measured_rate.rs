//! The rate at which bytes come over a link, measured on the transfers that it carries.
//!
//! Transfers of a host share its links, so the rate of a single one says little about the link. What counts is what all of them received during the
//! time in which at least one was under way.

use std::time::Instant;

/// Bytes of a busy time from which on it counts: fewer measure the latency.
const LEAST_SAMPLE: u64 = 1 << 20;
/// Bytes from which on a rate is reported.
const LEAST_TOTAL: f64 = 8.0 * (1 << 20) as f64;
/// Bytes after which a busy time is counted although it has not ended, and after which earlier ones count half.
const MEMORY: u64 = 256 << 20;

/// Measures one link.
#[derive(Clone, Debug, Default)]
pub struct MeasuredRate {
    /// Transfers under way.
    active: u32,
    /// Since when, or since the time counted last.
    since: Option<Instant>,
    /// Bytes of transfers that ended since then.
    pending: u64,
    bytes: f64,
    seconds: f64,
}

impl MeasuredRate {
    /// Notes that a transfer begins.
    pub fn begin(&mut self, now: Instant) {
        if self.active == 0 {
            self.since = Some(now);
            self.pending = 0;
        }
        self.active += 1;
    }

    /// Notes that a transfer ended, with the bytes that came; `None` if it waited for a host that did not send, so that the time says nothing.
    pub fn end(&mut self, received: Option<u64>, now: Instant) {
        self.active = self.active.saturating_sub(1);
        let Some(received) = received else {
            self.restart(now);
            return;
        };
        self.pending += received;
        if self.active == 0 || self.pending >= MEMORY {
            self.count(now);
            self.restart(now);
        }
    }

    /// The rate in bytes per second; `None` until enough was received.
    pub fn bytes_per_second(&self) -> Option<f64> {
        (self.bytes >= LEAST_TOTAL && self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }

    fn count(&mut self, now: Instant) {
        let Some(since) = self.since.filter(|_| self.pending >= LEAST_SAMPLE) else {
            return;
        };
        if self.bytes >= MEMORY as f64 {
            self.bytes /= 2.0;
            self.seconds /= 2.0;
        }
        self.bytes += self.pending as f64;
        self.seconds += now.saturating_duration_since(since).as_secs_f64();
    }

    fn restart(&mut self, now: Instant) {
        self.pending = 0;
        self.since = (self.active > 0).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MIB: u64 = 1 << 20;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn transfer(rate: &mut MeasuredRate, bytes: u64, start: Instant, seconds: u64) {
        rate.begin(start);
        rate.end(Some(bytes), after(start, seconds));
    }

    #[test]
    fn nothing_is_reported_of_little() {
        let (mut rate, start) = (MeasuredRate::default(), Instant::now());
        assert_eq!(rate.bytes_per_second(), None);
        transfer(&mut rate, 7 * MIB, start, 1);
        assert_eq!(rate.bytes_per_second(), None);
        transfer(&mut rate, MIB, start, 1);
        assert_eq!(rate.bytes_per_second(), Some((4 * MIB) as f64));
    }

    #[test]
    fn small_transfers_measure_latency_and_do_not_count() {
        let (mut rate, start) = (MeasuredRate::default(), Instant::now());
        transfer(&mut rate, 8 * MIB, start, 1);
        for _ in 0..100 {
            transfer(&mut rate, 1000, start, 1);
        }
        assert_eq!(rate.bytes_per_second(), Some((8 * MIB) as f64));
    }

    #[test]
    fn transfers_that_share_the_link_count_together() {
        let (mut rate, start) = (MeasuredRate::default(), Instant::now());
        rate.begin(start);
        rate.begin(start);
        rate.end(Some(10 * MIB), after(start, 2));
        rate.end(Some(10 * MIB), after(start, 2));
        assert_eq!(rate.bytes_per_second(), Some((10 * MIB) as f64));
    }

    #[test]
    fn time_in_which_nothing_is_transferred_does_not_count() {
        let (mut rate, start) = (MeasuredRate::default(), Instant::now());
        transfer(&mut rate, 8 * MIB, start, 1);
        transfer(&mut rate, 8 * MIB, after(start, 3600), 1);
        assert_eq!(rate.bytes_per_second(), Some((8 * MIB) as f64));
    }

    #[test]
    fn a_timeout_does_not_count() {
        let (mut rate, start) = (MeasuredRate::default(), Instant::now());
        transfer(&mut rate, 8 * MIB, start, 1);
        rate.begin(start);
        rate.end(None, after(start, 60));
        assert_eq!(rate.bytes_per_second(), Some((8 * MIB) as f64));
    }

    #[test]
    fn a_link_that_is_never_idle_is_measured_and_its_changes_show() {
        let (mut rate, mut now) = (MeasuredRate::default(), Instant::now());
        rate.begin(now);
        for _ in 0..4 {
            transfer(&mut rate, MEMORY, now, 256);
            now = after(now, 256);
        }
        assert_eq!(rate.bytes_per_second(), Some(MIB as f64));
        for _ in 0..8 {
            transfer(&mut rate, MEMORY, now, 64);
            now = after(now, 64);
        }
        let found = rate.bytes_per_second().unwrap_or_default();
        assert!(found > 3.9 * MIB as f64, "{found}");
        assert!(found <= 4.0 * MIB as f64, "{found}");
    }

    #[test]
    fn an_end_without_a_beginning_is_ignored() {
        let (mut rate, start) = (MeasuredRate::default(), Instant::now());
        rate.end(Some(100 * MIB), start);
        assert_eq!(rate.bytes_per_second(), None);
    }
}
