//! Guests, and a QEMU that a guest took over, which break the rules: they harm themselves alone.

use proptest::prelude::*;

use super::*;
use crate::device::RINGS;
use crate::frontend::{kind, BASE, BUFFERS, MEMORY, SIZE as RING};
use crate::message::{request, send, Kind, Message};

/// A header of a read at a place.
fn put_header(guest: &Guest, at: u64, kind: u32) {
    guest
        .put(&[&kind.to_le_bytes()[..], &[0; 12]].concat(), at)
        .unwrap();
}

/// Offers a request that cannot be answered, and sees that it has an answer all the same.
fn offer_and_see(describe: impl Fn(&Guest)) {
    let daemon = Daemon::new();
    let (mut guest, _process) = daemon.serve();
    put_header(&guest, BUFFERS, kind::IN);
    describe(&guest);
    guest.offer(0).unwrap();
    guest.kick_anyway().unwrap();
    while guest.answer().unwrap().is_none() {
        guest.wait().unwrap();
    }
    // The ring is served as before.
    let (status, _) = guest.perform(kind::IN, 0, &[0; 512]).unwrap();
    assert_eq!(0, status);
}

#[test]
fn descriptors_that_lead_nowhere() {
    let header = (16, 1, 1);
    // To itself, beyond the ring, out of memory, at the end of all memory, without an end, of no bytes.
    offer_and_see(|guest| guest.describe(0, BUFFERS, (16, 1, 0)).unwrap());
    offer_and_see(|guest| guest.describe(0, BUFFERS, (16, 1, RING)).unwrap());
    offer_and_see(|guest| {
        guest.describe(0, BUFFERS, header).unwrap();
        guest.describe(1, 0, (1, 2, 0)).unwrap();
    });
    offer_and_see(|guest| {
        guest.describe(0, u64::MAX - 3, header).unwrap();
        guest.describe(1, BUFFERS, (1, 2, 0)).unwrap();
    });
    offer_and_see(|guest| {
        guest.describe(0, BUFFERS, header).unwrap();
        guest.describe(1, u64::MAX - 600, (u32::MAX, 3, 2)).unwrap();
        guest.describe(2, BUFFERS + 64, (1, 2, 0)).unwrap();
    });
    offer_and_see(|guest| {
        guest.describe(0, BUFFERS, (0, 1, 1)).unwrap();
        guest.describe(1, BUFFERS, (0, 2, 0)).unwrap();
    });
    // Data that are nowhere, to be read and to be written.
    offer_and_see(|guest| {
        guest.describe(0, BUFFERS, header).unwrap();
        guest.describe(1, 64, (512, 3, 2)).unwrap();
        guest.describe(2, BUFFERS + 64, (1, 2, 0)).unwrap();
    });
    offer_and_see(|guest| {
        put_header(guest, BUFFERS, kind::OUT);
        guest.describe(0, BUFFERS, header).unwrap();
        guest.describe(1, 64, (512, 1, 2)).unwrap();
        guest.describe(2, BUFFERS + 64, (1, 2, 0)).unwrap();
    });
    // A status alone; nothing to write; what is read behind what is written.
    offer_and_see(|guest| guest.describe(0, BUFFERS, (1, 2, 0)).unwrap());
    offer_and_see(|guest| guest.describe(0, BUFFERS, (16, 0, 0)).unwrap());
    offer_and_see(|guest| {
        guest.describe(0, BUFFERS + 64, (16, 3, 1)).unwrap();
        guest.describe(1, BUFFERS, (16, 0, 0)).unwrap();
    });
}

#[test]
fn tables_of_descriptors_that_are_malformed() {
    const INDIRECT: u16 = 4;
    for (address, length, flags) in [
        (BUFFERS, 15, INDIRECT),
        (BUFFERS, 0, INDIRECT),
        (u64::MAX - 15, 16, INDIRECT),
        (BUFFERS, u32::MAX - 15, INDIRECT | 1),
        (BUFFERS, u32::MAX - 15, INDIRECT),
    ] {
        offer_and_see(|guest| guest.describe(0, address, (length, flags, 1)).unwrap());
    }
    // A table in a table.
    offer_and_see(|guest| {
        let inner = [&BUFFERS.to_le_bytes()[..], &[16, 0, 0, 0, 4, 0, 0, 0]].concat();
        guest.put(&inner, BUFFERS).unwrap();
        guest.describe(0, BUFFERS, (16, INDIRECT, 0)).unwrap();
    });
}

#[test]
fn a_good_table_of_descriptors_and_a_header_in_pieces() {
    let mut daemon = Daemon::new();
    let data = daemon.cache(0, 0, 9);
    let (mut guest, _process) = daemon.serve();
    put_header(&guest, BUFFERS, kind::IN);
    let mut table = Vec::new();
    let pieces = [
        (BUFFERS, 7, 1, 1),
        (BUFFERS + 7, 9, 1, 2),
        (BUFFERS + 4096, 100, 3, 3),
        (BUFFERS + 8192, 3997, 2, 0),
    ];
    for (address, length, flags, next) in pieces {
        table.extend(u64::to_le_bytes(address));
        table.extend(u32::to_le_bytes(length));
        table.extend([flags, 0, next, 0]);
    }
    guest.put(&table, BUFFERS + 1024).unwrap();
    guest.describe(0, BUFFERS + 1024, (64, 4, 0)).unwrap();
    guest.offer(0).unwrap();
    guest.kick_anyway().unwrap();
    while guest.answer().unwrap().is_none() {
        guest.wait().unwrap();
    }
    assert_eq!(data[..100], guest.get(BUFFERS + 4096, 100).unwrap());
    assert_eq!(data[100..], guest.get(BUFFERS + 8192, 3996).unwrap());
    assert_eq!(vec![0], guest.get(BUFFERS + 8192 + 3996, 1).unwrap());
}

#[test]
fn a_ring_that_makes_no_sense_is_left_and_qemu_can_still_stop_it() {
    let daemon = Daemon::new();
    let (guest, process) = daemon.serve();
    // More requests than descriptors.
    guest.put(&500u16.to_le_bytes(), BASE + 0x1002).unwrap();
    guest.kick_anyway().unwrap();
    let reply = guest.ask(request::GET_VRING_BASE, &[0; 8]).unwrap();
    assert_eq!(0, reply.half(0));
    drop(guest);
    process.join().unwrap().unwrap();
}

#[test]
fn messages_that_break_the_protocol_end_the_process() {
    let wrong: &[(u32, &[u64])] = &[
        (request::SET_FEATURES, &[1 << 40]),
        (request::SET_VRING_NUM, &[3 << 32]),
        (request::SET_VRING_NUM, &[1 << 48]),
        (request::SET_VRING_NUM, &[256 | 128 << 32]),
        (request::SET_VRING_ADDR, &[0, 1, 2, 3, 4]),
        (request::SET_VRING_KICK, &[1 << 8]),
        (request::SET_VRING_KICK, &[0]),
        (request::SET_MEM_TABLE, &[1, 0, 4096, 0, 0]),
        (request::SET_MEM_TABLE, &[9]),
        (request::SET_LOG_BASE, &[u64::MAX, 0]),
        (request::SET_INFLIGHT_FD, &[0, 0, 1 << 16 | 1]),
        (request::GET_INFLIGHT_FD, &[0, 0, 0]),
        (request::GET_CONFIG, &[200 | 100 << 32, 0]),
        (request::GET_VRING_BASE, &[RINGS as u64]),
        (99, &[]),
    ];
    for (number, words) in wrong {
        let daemon = Daemon::new();
        let (guest, process) = daemon.serve();
        guest.tell(*number, words, &[]).unwrap();
        assert!(process.join().unwrap().is_err(), "{number} {words:?}");
    }
}

#[test]
fn a_message_that_is_too_long_is_not_waited_for() {
    let daemon = Daemon::new();
    let (guest, process) = daemon.serve();
    let mut header = [0; 12];
    header[8..].copy_from_slice(&u32::MAX.to_le_bytes());
    std::io::Write::write_all(&mut &guest.stream, &header).unwrap();
    assert!(process.join().unwrap().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever is in the ring, the process stops it when QEMU wants that, and has written nothing
    /// to memory behind what the guest has.
    #[test]
    fn whatever_is_in_the_ring(
        bytes in prop::collection::vec(any::<u8>(), 16 * 8),
        near in prop::collection::vec((0..8u16, 0..MEMORY / 512, 0..2048u32, 0..8u16, 0..9u16), 0..12),
        heads in prop::collection::vec(0..130u16, 1..20),
    ) {
        let mut daemon = Daemon::new();
        daemon.cache(0, 0, 1);
        let (mut guest, process) = daemon.serve();
        guest.put(&bytes, BASE).unwrap();
        for (number, at, length, flags, next) in near {
            guest.describe(number, BASE + at * 512, (length, flags, next)).unwrap();
        }
        for head in heads {
            guest.offer(head).unwrap();
        }
        guest.kick_anyway().unwrap();
        guest.ask(request::GET_VRING_BASE, &[0; 8]).unwrap();
        drop(guest);
        process.join().unwrap().unwrap();
    }

    #[test]
    fn whatever_qemu_says(number in 0..40u32, body in prop::collection::vec(any::<u8>(), 0..80), files in 0..3usize) {
        let daemon = Daemon::new();
        let (guest, process) = daemon.serve();
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let files = vec![file.as_fd(); files];
        send(&guest.stream, (number, Kind::Request), &body, &files).unwrap();
        drop(guest);
        // With an error or without one.
        drop(process.join().unwrap());
    }
}

#[test]
fn a_frontend_that_leaves_at_once_or_in_a_message() {
    for bytes in [0, 5, 12] {
        let daemon = Daemon::new();
        let process = daemon.start();
        let stream = UnixStream::connect(daemon.folder.path().join("vhost")).unwrap();
        let mut header = [0; 12];
        header[8] = 8;
        std::io::Write::write_all(&mut &stream, &header[..bytes]).unwrap();
        drop(stream);
        assert_eq!(bytes == 0, process.join().unwrap().is_ok());
    }
}

#[test]
fn requests_without_data_are_limited() {
    let daemon = Daemon::new();
    let (mut guest, process) = daemon.serve();
    daemon.volume.hold(true);
    guest.begin_request(kind::FLUSH, 0, 0).unwrap();
    for _ in 0..20 {
        // The same one again and again.
        (0..RING).for_each(|_| guest.offer(0).unwrap());
        guest.kick_anyway().unwrap();
        // By the second answer, it was seen.
        for _ in 0..2 {
            guest.ask(request::GET_FEATURES, &[]).unwrap();
        }
    }
    guest.tell(request::GET_VRING_BASE, &[0], &[]).unwrap();
    daemon.volume.hold(false);
    let taken = Message::receive(&guest.stream).unwrap().unwrap().half(4);
    assert!(taken <= 1024, "{taken}");
    drop(guest);
    process.join().unwrap().unwrap();
}
