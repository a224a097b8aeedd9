//! Clients with requests of all kinds.

use super::*;

#[test]
fn what_was_written_is_read() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    // One at an odd offset, for which a thread is needed.
    for (cookie, offset) in [(1, 4096_u64), (2, 4097)] {
        client.request(WRITE, cookie, offset, 3);
        client.send(b"abc");
        assert_eq!((0, cookie), client.reply());
        client.request(READ, cookie, offset, 3);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(b"abc", &client.receive(3)[..]);
    }
    for command in [TRIM, ZERO] {
        client.request(command, 3, 0, 8192);
        assert_eq!((0, 3), client.reply());
        client.request(READ, 4, 4096, 4);
        assert_eq!((0, 4), client.reply());
        assert_eq!(vec![0; 4], client.receive(4));
    }
    assert_eq!(0, memory.flushes.load(Ordering::Relaxed));
    client.request(FLUSH, 5, 0, 0);
    assert_eq!((0, 5), client.reply());
    client.request(FUA_WRITE, 6, 0, 1);
    client.send(b"x");
    assert_eq!((0, 6), client.reply());
    assert_eq!(2, memory.flushes.load(Ordering::Relaxed));
    client.request(DISCONNECT, 7, 0, 0);
    assert!(client.is_ended());
    client.leave().unwrap();
}

#[test]
fn requests_that_cannot_be_done_are_refused_and_the_next_is_done() {
    let mut client = Client::chosen(&Memory::new());
    let end = SIZE as u64;
    let (invalid, no_space, failed) = (22, 28, 5);
    for (command, offset, length, error) in [
        (READ, end - 1, 2, invalid),
        (READ, u64::MAX, 2, invalid),
        (WRITE, end, 3, no_space),
        (ZERO, 1, SIZE as u32, no_space),
        (TRIM, u64::MAX, 1, no_space),
        (CACHE, 0, 1, invalid),
        ((0, 99), 0, 0, invalid),
        (READ, Memory::FAILING, 1, failed),
    ] {
        client.request(command, 8, offset, length);
        if command == WRITE {
            client.send(b"abc");
        }
        assert_eq!((error, 8), client.reply());
    }
    client.request(READ, 9, 250, 2);
    assert_eq!((0, 9), client.reply());
    assert_eq!(vec![250, 0], client.receive(2));
    client.leave().unwrap();
}

#[test]
fn a_write_that_is_too_long_ends_the_connection() {
    let mut client = Client::chosen(&Memory::new());
    client.request(WRITE, 1, 0, MAX_DATA + 1);
    assert!(client.is_ended());
    client.leave().unwrap_err();
}

#[test]
fn what_is_no_request_ends_the_connection() {
    let mut client = Client::chosen(&Memory::new());
    client.send(&[0x77; 28]);
    assert!(client.is_ended());
    client.leave().unwrap_err();
}

#[test]
fn many_reads_in_one_piece_are_answered_in_few() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    let mut bytes = Vec::new();
    for cookie in 0..1000 {
        bytes.extend(request(READ, cookie, cookie * 2, 700));
    }
    let mut sender = client.stream.try_clone().unwrap();
    let sent = std::thread::spawn(move || sender.write_all(&bytes));
    for cookie in 0..1000 {
        assert_eq!((0, cookie), client.reply());
        let data = client.receive(700);
        assert_eq!((cookie * 2 % 251) as u8, data[0]);
        assert_eq!(((cookie * 2 + 699) % 251) as u8, data[699]);
    }
    sent.join().unwrap().unwrap();
    assert_eq!(1000, memory.at_once.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn a_read_longer_than_the_room_for_answers_is_answered() {
    let mut client = Client::chosen(&Memory::new());
    client.request(READ, 1, 0, SIZE as u32);
    assert_eq!((0, 1), client.reply());
    let data = client.receive(SIZE);
    assert!(data
        .iter()
        .enumerate()
        .all(|(n, byte)| *byte == (n % 251) as u8));
    client.leave().unwrap();
}

#[test]
fn slow_requests_do_not_keep_others_from_being_done() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    for cookie in 0..40 {
        client.request(READ, cookie, Memory::SLOW, 1);
    }
    for cookie in 100..110 {
        client.request(READ, cookie, 1, 1);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(vec![1], client.receive(1));
    }
    memory.release();
    let mut cookies: Vec<u64> = (0..40)
        .map(|_| {
            let (error, cookie) = client.reply();
            assert_eq!((0, 1), (error, client.receive(1).len()));
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert_eq!((0..40).collect::<Vec<u64>>(), cookies);
    client.leave().unwrap();
}

#[test]
fn requests_that_may_not_begin_yet_keep_no_others_from_it() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    make_quick(&mut client);
    for cookie in 0..10 {
        client.request(READ, cookie, Memory::LIMITED, 2);
    }
    for (cookie, command) in [(10, WRITE), (11, FUA_WRITE), (12, ZERO)] {
        client.request(command, cookie, Memory::LIMITED, 2);
        if command != ZERO {
            client.send(b"ab");
        }
    }
    make_quick(&mut client);
    client.request(FLUSH, 99, 0, 0);
    assert_eq!((0, 99), client.reply());
    memory.release();
    let mut cookies: Vec<u64> = (0..13)
        .map(|_| {
            let (error, cookie) = client.reply();
            assert_eq!(0, error);
            if cookie < 10 {
                client.receive(2);
            }
            cookie
        })
        .collect();
    cookies.sort_unstable();
    assert_eq!((0..13).collect::<Vec<u64>>(), cookies);
    assert_eq!(2, memory.flushes.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn a_client_that_leaves_is_not_kept_by_requests_that_may_not_begin_yet() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    client.request(WRITE, 1, Memory::LIMITED, 2);
    client.send(b"ab");
    client.request(READ, 2, 0, 1);
    assert_eq!((0, 2), client.reply());
    // That the client is gone is an error only for those that wanted to answer it.
    let _ = client.leave();
    let place = Memory::LIMITED as usize;
    assert_eq!(b"ab", &memory.bytes.lock().unwrap()[place..place + 2]);
}

/// Has requests served until those that need no disk are quick, wherever this is run.
fn make_quick(client: &mut Client) {
    for cookie in 1000..2000 {
        client.request(READ, cookie, 1, 1);
        assert_eq!((0, cookie), client.reply());
        assert_eq!(vec![1], client.receive(1));
    }
}

#[test]
fn a_slow_read_after_quick_ones_has_others_served_by_threads() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    for round in 1..3 {
        make_quick(&mut client);
        client.request(READ, round, Memory::SLOW, 1);
        memory.wait_for_slow(round);
        // The thread that waits had the socket.
        make_quick(&mut client);
    }
    memory.release();
    let mut cookies = [client.reply(), (client.receive(1), client.reply()).1];
    cookies.sort_unstable();
    assert_eq!([(0, 1), (0, 2)], cookies);
    client.receive(1);
    client.leave().unwrap();
}

#[test]
fn a_write_that_fails_is_answered_among_quick_ones() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    make_quick(&mut client);
    let bytes: Vec<u8> = (0..100)
        .flat_map(|cookie| {
            let offset = if cookie % 7 == 3 {
                Memory::FAILING
            } else {
                cookie * 2
            };
            let command = if cookie % 10 == 0 { FUA_WRITE } else { WRITE };
            let mut bytes = request(command, cookie, offset, 1);
            bytes.push(0xff);
            bytes
        })
        .collect();
    client.send(&bytes);
    let mut replies: Vec<(u64, u32)> = (0..100)
        .map(|_| client.reply())
        .map(|(error, cookie)| (cookie, error))
        .collect();
    replies.sort_unstable();
    let failed = |cookie| if cookie % 7 == 3 { 5 } else { 0 };
    let expected: Vec<_> = (0..100).map(|cookie| (cookie, failed(cookie))).collect();
    assert_eq!(expected, replies);
    // A write that failed is not made durable.
    assert_eq!(8, memory.flushes.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn a_read_that_is_to_be_durable_needs_no_flush() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    client.request((1, 0), 1, 1, 1);
    assert_eq!((0, 1), client.reply());
    assert_eq!(vec![1], client.receive(1));
    assert_eq!(0, memory.flushes.load(Ordering::Relaxed));
    client.leave().unwrap();
}

#[test]
fn more_slow_requests_than_threads_are_all_answered() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    for cookie in 0..100 {
        client.request(READ, cookie, Memory::SLOW, 1);
    }
    memory.wait_for_slow(64);
    memory.release();
    for _ in 0..100 {
        assert_eq!(0, client.reply().0);
        client.receive(1);
    }
    client.leave().unwrap();
}

// nbdkit 1.32 ends its process then, and with it the exports of all others.
#[test]
fn a_client_that_vanishes_with_reads_under_way_ends_its_connection_alone() {
    let memory = Memory::new();
    let mut other = Client::chosen(&memory);
    let mut client = Client::chosen(&memory);
    for cookie in 0..40 {
        client.request(READ, cookie, Memory::SLOW, 100_000);
    }
    memory.wait_for_slow(1);
    client.stream.shutdown(Shutdown::Both).unwrap();
    memory.release();
    // That the client is gone is an error only for those that wanted to answer it.
    let _ = client.leave();
    other.request(READ, 1, 0, 1);
    assert_eq!((0, 1), other.reply());
    assert_eq!(vec![0], other.receive(1));
    other.leave().unwrap();
}

#[test]
fn a_client_that_leaves_within_a_write_writes_nothing() {
    let memory = Memory::new();
    let mut client = Client::chosen(&memory);
    client.request(WRITE, 1, 0, 100);
    client.send(&[0xff; 50]);
    assert!(client.leave().is_err());
    assert_eq!([0, 1], memory.bytes.lock().unwrap()[..2]);
}

#[derive(Debug, Clone)]
enum Step {
    Read(u64, u32),
    Write(u64, Vec<u8>),
    Zero(u64, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..1000_u64;
    prop_oneof![
        (offset.clone(), 0..5000_u32).prop_map(|(at, length)| Step::Read(at, length)),
        (offset.clone(), prop::collection::vec(any::<u8>(), 0..300))
            .prop_map(|(at, data)| Step::Write(at, data)),
        (offset, 0..300_u32).prop_map(|(at, length)| Step::Zero(at, length)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_one_after_the_other_are_those_of_a_plain_array(steps in prop::collection::vec(step(), 1..40)) {
        let memory = Memory::new();
        let mut model = memory.bytes.lock().unwrap().clone();
        let mut client = Client::chosen(&memory);
        for (cookie, step) in (0..).zip(steps) {
            match step {
                Step::Read(at, length) => {
                    client.request(READ, cookie, at, length);
                    prop_assert_eq!((0, cookie), client.reply());
                    let end = at as usize + length as usize;
                    prop_assert_eq!(&model[at as usize..end], &client.receive(length as usize)[..]);
                }
                Step::Write(at, data) => {
                    client.request(WRITE, cookie, at, data.len() as u32);
                    client.send(&data);
                    prop_assert_eq!((0, cookie), client.reply());
                    model[at as usize..at as usize + data.len()].copy_from_slice(&data);
                }
                Step::Zero(at, length) => {
                    client.request(ZERO, cookie, at, length);
                    prop_assert_eq!((0, cookie), client.reply());
                    model[at as usize..at as usize + length as usize].fill(0);
                }
            }
        }
        prop_assert!(client.leave().is_ok());
    }

    #[test]
    fn no_bytes_of_a_client_stop_the_server(
        chosen in any::<bool>(),
        bytes in prop::collection::vec(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..64),
            (0..9_u16, 0..2_u64 << 20, any::<u32>()).prop_map(|(command, offset, length)| {
                request((0, command), 1, offset, length)
            }),
        ], 0..20),
    ) {
        let memory = Memory::new();
        memory.release();
        let mut client = if chosen { Client::chosen(&memory) } else { Client::new(&memory) };
        // What it answers is not read by all clients.
        let _ = client.stream.write_all(&bytes.concat());
        let _ = client.stream.shutdown(Shutdown::Both);
        let _ = client.leave();
    }
}
