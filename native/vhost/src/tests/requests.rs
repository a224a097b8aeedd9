//! What a guest that keeps to the rules gets.

use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::*;
use crate::frontend::kind;
use crate::message::{request, Message, CONFIG_CHANGE};

#[test]
fn requests_are_those_of_the_volume() {
    let daemon = Daemon::new();
    let (mut guest, _process) = daemon.serve();
    let expected = daemon.volume.bytes.lock().unwrap().clone();
    assert_eq!(
        (0, expected[1024..3072].to_vec()),
        guest.perform(kind::IN, 2, &[0; 2048]).unwrap()
    );
    assert_eq!(0, guest.perform(kind::OUT, 3, &[5; 1024]).unwrap().0);
    assert_eq!(0, guest.perform(kind::FLUSH, 0, &[]).unwrap().0);
    let range = |sector: u64, sectors: u32, flags: u32| {
        [
            &sector.to_le_bytes()[..],
            &sectors.to_le_bytes(),
            &flags.to_le_bytes(),
        ]
        .concat()
    };
    assert_eq!(
        0,
        guest.perform(kind::DISCARD, 0, &range(8, 8, 0)).unwrap().0
    );
    assert_eq!(
        0,
        guest
            .perform(kind::WRITE_ZEROES, 0, &range(16, 1, 1))
            .unwrap()
            .0
    );
    let seen = [
        "read 1024 2048",
        "write 1536 1024",
        "flush",
        "zero 4096 4096",
        "zero 8192 512",
    ];
    assert_eq!(seen.map(str::to_owned).to_vec(), daemon.volume.seen());
    let found = daemon.volume.bytes.lock().unwrap();
    assert!(found[1536..2560] == [5; 1024] && found[4096..8192] == [0; 4096]);
}

#[test]
fn the_serial_number_is_that_of_the_volume() {
    let (mut guest, _process) = Daemon::new().serve();
    let (status, id) = guest.perform(kind::GET_ID, 0, &[1; 20]).unwrap();
    assert_eq!((0, b"name\0\0".to_vec()), (status, id[..6].to_vec()));
}

#[test]
fn cached_blocks_are_read_without_the_daemon() {
    let mut daemon = Daemon::new();
    let [one, two] =
        [(3, 5, 1), (4, 6, 2)].map(|(block, slot, byte)| daemon.cache(block, slot, byte));
    let far = daemon.cache(5, 9, 3);
    let (mut guest, _process) = daemon.serve();
    let expected = [&one[512..], &two, &far[..1024]].concat();
    let asked = vec![0; expected.len()];
    assert_eq!((0, expected), guest.perform(kind::IN, 25, &asked).unwrap());
    assert!(daemon.volume.seen().is_empty());
    // They are published once the ring is empty.
    let mut hits = Vec::new();
    while hits.is_empty() {
        hits = daemon.hits.take(9);
    }
    assert_eq!(
        [(3, 3)].to_vec(),
        hits.iter()
            .map(|hit| (hit.block, hit.count))
            .collect::<Vec<_>>()
    );
}

/// By io_uring, where the kernel allows it: all requests at the same time.
#[test]
fn cached_blocks_that_are_not_in_memory_are_read_past_it() {
    let mut daemon = Daemon::new();
    let blocks: Vec<_> = (0..30)
        .map(|block| daemon.cache(block, 40 - block as u32, block as u8))
        .collect();
    // Another block's data are in a slot.
    daemon
        .device
        .write_all_at(&[9; BLOCK], DATA + 11 * BLOCK as u64)
        .unwrap();
    daemon.forget();
    let (mut guest, process) = daemon.serve();
    let slots: Vec<_> = (0..30)
        .map(|block| {
            guest
                .begin_request(kind::IN, block * 8 + 1, 3584)
                .unwrap()
                .unwrap()
        })
        .collect();
    guest.kick().unwrap();
    let mut left = slots.len();
    while left > 0 {
        match guest.answer().unwrap() {
            Some((_, status)) => {
                assert_eq!(0, status);
                left -= 1;
            }
            None => guest.wait().unwrap(),
        }
    }
    let volume = daemon.volume.bytes.lock().unwrap().clone();
    for (block, slot) in slots.into_iter().enumerate() {
        let found = guest.get(Guest::data_at(slot), 3584).unwrap();
        let expected = match block {
            29 => &volume[29 * BLOCK + 512..30 * BLOCK],
            block => &blocks[block][512..],
        };
        assert!(found == expected, "{block}");
    }
    assert_eq!(
        ["read 119296 3584"].map(str::to_owned).to_vec(),
        daemon.volume.seen()
    );
    // Nothing is waited for that does not come.
    drop(guest);
    process.join().unwrap().unwrap();
}

#[test]
fn what_is_not_as_expected_or_not_current_is_asked_for() {
    let mut daemon = Daemon::new();
    daemon.cache(3, 5, 1);
    // Another block's data are in the slot.
    daemon
        .device
        .write_all_at(&[9; BLOCK], DATA + 5 * BLOCK as u64)
        .unwrap();
    let (mut guest, _process) = daemon.serve();
    let expected = daemon.volume.bytes.lock().unwrap()[3 * BLOCK..4 * BLOCK].to_vec();
    assert_eq!(
        (0, expected.clone()),
        guest.perform(kind::IN, 24, &[0; BLOCK]).unwrap()
    );
    daemon.cache(3, 5, 1);
    assert_eq!(
        (0, vec![1; BLOCK]),
        guest.perform(kind::IN, 24, &[0; BLOCK]).unwrap()
    );
    daemon.index.set_open(false);
    assert_eq!(
        (0, expected),
        guest.perform(kind::IN, 24, &[0; BLOCK]).unwrap()
    );
    assert_eq!(2, daemon.volume.seen().len());
}

#[test]
fn requests_beyond_the_end_fail_and_others_go_on() {
    let daemon = Daemon::new();
    let (mut guest, _process) = daemon.serve();
    let last = SIZE as u64 / 512 - 1;
    assert_eq!(0, guest.perform(kind::IN, last, &[0; 512]).unwrap().0);
    for (kind, sector, length) in [
        (kind::IN, last, 1024),
        (kind::IN, u64::MAX / 512, 512),
        (kind::OUT, u64::MAX, 512),
        (kind::IN, 0, 511),
        (kind::OUT, 0, 0),
        (kind::GET_ID, 0, 19),
        (kind::DISCARD, 0, 15),
    ] {
        let (status, _) = guest.perform(kind, sector, &vec![1; length]).unwrap();
        assert_eq!(1, status, "{kind} {sector} {length}");
    }
    assert_eq!(2, guest.perform(99, 0, &[0; 512]).unwrap().0);
    // A discard of which the flag is not known.
    let range = [0u64, 1 << 32 | 8].map(u64::to_le_bytes).concat();
    assert_eq!(2, guest.perform(kind::DISCARD, 0, &range).unwrap().0);
    assert_eq!(1, guest.perform(kind::OUT, 0, &[0xbd; 512]).unwrap().0);
    assert_eq!(0, guest.perform(kind::OUT, 0, &[1; 512]).unwrap().0);
}

#[test]
fn many_requests_are_answered_in_any_order() {
    let mut daemon = Daemon::new();
    let cached = daemon.cache(1, 1, 7);
    daemon.volume.hold(true);
    let (mut guest, _process) = daemon.serve();
    let write = guest.begin_request(kind::OUT, 0, 4096).unwrap().unwrap();
    guest.kick().unwrap();
    daemon.volume.wait_for(1);
    assert_eq!(
        (0, cached),
        guest.perform(kind::IN, 8, &[0; BLOCK]).unwrap()
    );
    daemon.volume.hold(false);
    while guest.answer().unwrap() != Some((write, 0)) {
        guest.wait().unwrap();
    }
}

/// QEMU keeps which requests are under way; the next process repeats those, in their order, and no other.
#[test]
fn the_next_process_repeats_what_was_under_way() {
    let daemon = Daemon::new();
    let (mut guest, process) = daemon.serve();
    assert_eq!(0, guest.perform(kind::OUT, 0, &[1; 512]).unwrap().0);
    daemon.volume.hold(true);
    for sector in [10, 20] {
        let slot = guest.next_slot().unwrap();
        guest
            .put(&[sector as u8; 512], Guest::data_at(slot))
            .unwrap();
        guest.begin_request(kind::OUT, sector, 512).unwrap();
        guest.kick().unwrap();
    }
    daemon.volume.wait_for(3);
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    process.join().unwrap().unwrap();
    daemon.volume.hold(false);
    daemon.volume.seen();
    let _next = daemon.start();
    let Guest { kept, .. } = guest;
    let mut guest = daemon.connect(kept);
    let mut answered = Vec::new();
    while answered.len() < 2 {
        match guest.answer().unwrap() {
            Some((slot, status)) => answered.push((slot, status)),
            None => guest.wait().unwrap(),
        }
    }
    answered.sort_unstable();
    assert_eq!([(1, 0), (2, 0)].to_vec(), answered);
    let mut seen = daemon.volume.seen();
    seen.sort_unstable();
    assert_eq!(
        ["write 10240 512", "write 5120 512"]
            .map(str::to_owned)
            .to_vec(),
        seen
    );
    assert_eq!(0, guest.perform(kind::IN, 0, &[0; 512]).unwrap().0);
}

/// QEMU stops a ring to stop the guest: nothing is written to its memory after that.
#[test]
fn a_ring_ends_once_its_requests_are_answered() {
    let daemon = Daemon::new();
    let (mut guest, _process) = daemon.serve();
    daemon.volume.hold(true);
    let write = guest.begin_request(kind::OUT, 0, 512).unwrap().unwrap();
    guest.kick().unwrap();
    daemon.volume.wait_for(1);
    guest.tell(request::GET_VRING_BASE, &[0], &[]).unwrap();
    daemon.volume.hold(false);
    let reply = Message::receive(&guest.stream).unwrap().unwrap();
    assert_eq!(1, reply.half(4));
    assert_eq!(Some((write, 0)), guest.answer().unwrap());
}

#[test]
fn the_guest_sees_that_the_volume_grew() {
    let daemon = Daemon::new();
    let (mut guest, _process) = daemon.serve();
    let (ours, theirs) = UnixStream::pair().unwrap();
    guest
        .tell(request::SET_BACKEND_REQ_FD, &[], &[&theirs])
        .unwrap();
    let told = || Message::receive(&ours).unwrap().unwrap().request;
    // It may have grown before.
    assert_eq!(CONFIG_CHANGE, told());
    let sectors = |guest: &Guest| {
        let asked = [0u32, 60, 0].map(u32::to_le_bytes).concat();
        let reply = guest
            .ask(request::GET_CONFIG, &[asked, vec![0; 60]].concat())
            .unwrap();
        reply.word(12)
    };
    assert_eq!(SIZE as u64 / 512, sectors(&guest));
    daemon.volume.bytes.lock().unwrap().resize(2 * SIZE, 0);
    daemon.index.set_size(2 * SIZE as u64);
    rustix::io::write(&daemon.nudge, &1u64.to_ne_bytes()).unwrap();
    assert_eq!(CONFIG_CHANGE, told());
    assert_eq!(2 * SIZE as u64 / 512, sectors(&guest));
    assert_eq!(
        0,
        guest
            .perform(kind::OUT, SIZE as u64 / 512, &[1; 512])
            .unwrap()
            .0
    );
}

/// While a guest is migrated, each page that is written to has a bit.
#[test]
fn pages_that_are_written_to_are_logged() {
    let mut daemon = Daemon::new();
    daemon.cache(0, 0, 1);
    let (mut guest, _process) = daemon.serve();
    let log = rustix::fs::memfd_create("log", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let log = File::from(log);
    log.set_len(4096).unwrap();
    guest
        .tell(request::SET_LOG_BASE, &[4096, 0], &[&log])
        .unwrap();
    Message::receive(&guest.stream).unwrap().unwrap();
    let features = crate::frontend::FEATURES | 1 << 26;
    guest.tell(request::SET_FEATURES, &[features], &[]).unwrap();
    let slot = guest.next_slot().unwrap() as u64;
    assert_eq!(0, guest.perform(kind::IN, 0, &[0; 512]).unwrap().0);
    let mut bits = vec![0; 4096];
    log.read_exact_at(&mut bits, 0).unwrap();
    let is_marked = |at: u64| bits[(at >> 15) as usize] & (1 << (at >> 12 & 7)) != 0;
    let base = crate::frontend::BASE;
    // The data, the status, and the answers.
    assert!(
        is_marked(Guest::data_at(slot as usize))
            && is_marked(base + 0x4000)
            && is_marked(base + 0x2000)
    );
    assert!(!is_marked(base) && !is_marked(Guest::data_at(slot as usize + 1)));
}

/// What was answered without that, or by a process before, is seen.
#[test]
fn a_notifier_is_used_once_it_is_given() {
    let is_readable = |guest: &Guest, call: &std::os::fd::OwnedFd| {
        // What was said before is done.
        guest.ask(request::GET_FEATURES, &[]).unwrap();
        let now = Timespec::default();
        poll(&mut [PollFd::new(call, PollFlags::IN)], Some(&now)).unwrap() == 1
    };
    let daemon = Daemon::new();
    let (mut guest, process) = daemon.serve();
    assert_eq!(0, guest.perform(kind::IN, 0, &[0; 512]).unwrap().0);
    let call = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    guest.tell(request::SET_VRING_CALL, &[0], &[&call]).unwrap();
    assert!(is_readable(&guest, &call));
    guest.stream.shutdown(std::net::Shutdown::Both).unwrap();
    process.join().unwrap().unwrap();
    let _next = daemon.start();
    let mut kept = guest.kept;
    kept.call = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let guest = daemon.connect(kept);
    assert!(is_readable(&guest, &guest.kept.call));
}
