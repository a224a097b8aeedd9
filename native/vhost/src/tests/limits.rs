//! Requests beyond what the volume may do per second.

use std::collections::BTreeMap;

use diffcache_ssdcache::rates::Rates;

use super::*;
use crate::frontend::kind;
use crate::message::{request, Message};

/// A limit. With 1, nothing begins again within a test.
fn rates(name: &str, value: u64) -> Rates {
    Rates::try_from(BTreeMap::from([(name.to_owned(), value)])).unwrap()
}

impl Daemon {
    fn set_rates(&self, rates: Rates) {
        self.index.set_rates(rates);
        rustix::io::write(&self.nudge, &1u64.to_ne_bytes()).unwrap();
    }
}

fn wait_for_answer(guest: &mut Guest) -> (usize, u8) {
    loop {
        match guest.answer().unwrap() {
            Some(answer) => return answer,
            None => guest.wait().unwrap(),
        }
    }
}

#[test]
fn what_is_not_limited_passes_what_waits_until_the_limits_change() {
    let mut daemon = Daemon::new();
    let cached = daemon.cache(1, 1, 7);
    daemon.index.set_rates(rates("write_bytes_sec", 1));
    let (mut guest, _process) = daemon.serve();
    assert_eq!(0, guest.perform(kind::OUT, 0, &[1; 512]).unwrap().0);
    let write = guest.begin_request(kind::OUT, 1, 512).unwrap().unwrap();
    guest.kick().unwrap();
    let range = [&[0; 8][..], &8u32.to_le_bytes(), &[0; 4]].concat();
    for _ in 0..3 {
        let read = guest.perform(kind::IN, 8, &[0; BLOCK]).unwrap();
        assert_eq!((0, cached.clone()), read);
        assert_eq!(0, guest.perform(kind::FLUSH, 0, &[]).unwrap().0);
        assert_eq!(0, guest.perform(kind::DISCARD, 0, &range).unwrap().0);
    }
    assert!(!daemon.volume.seen().contains(&"write 512 512".to_owned()));
    daemon.set_rates(Rates::default());
    assert_eq!((write, 0), wait_for_answer(&mut guest));
    assert_eq!(0, guest.perform(kind::OUT, 0, &[1; 512]).unwrap().0);
}

#[test]
fn reads_of_cached_blocks_wait_too_and_begin_at_the_rate() {
    let mut daemon = Daemon::new();
    let cached = daemon.cache(1, 1, 7);
    // 4096 bytes, and more after that each 4 milliseconds.
    daemon.index.set_rates(rates("read_bytes_sec", 1_000_000));
    let (mut guest, _process) = daemon.serve();
    let begin = std::time::Instant::now();
    for _ in 0..50 {
        let read = guest.perform(kind::IN, 8, &[0; BLOCK]).unwrap();
        assert_eq!((0, cached.clone()), read);
    }
    // A tenth of a second's bytes at once; how much later depends on the machine.
    assert!(begin.elapsed() >= std::time::Duration::from_millis(98));
    assert!(daemon.volume.seen().is_empty());
}

#[test]
fn a_ring_that_ends_has_its_requests_begin() {
    let daemon = Daemon::new();
    daemon.index.set_rates(rates("total_iops_sec", 1));
    let (mut guest, _process) = daemon.serve();
    assert_eq!(0, guest.perform(kind::OUT, 0, &[1; 512]).unwrap().0);
    let mut writes = Vec::new();
    for sector in 1..4 {
        writes.extend(guest.begin_request(kind::OUT, sector, 512).unwrap());
    }
    guest.kick().unwrap();
    // Served after the kick, in the same thread.
    assert_eq!(0, guest.perform(kind::FLUSH, 0, &[]).unwrap().0);
    guest.tell(request::GET_VRING_BASE, &[0], &[]).unwrap();
    Message::receive(&guest.stream).unwrap().unwrap();
    let mut answered: Vec<_> = (0..3).map(|_| guest.answer().unwrap().unwrap()).collect();
    answered.sort_unstable();
    assert_eq!(
        writes.into_iter().map(|slot| (slot, 0)).collect::<Vec<_>>(),
        answered
    );
}
