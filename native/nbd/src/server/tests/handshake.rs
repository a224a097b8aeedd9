//! Clients that choose an export, or something else.

use super::*;

#[test]
fn an_export_is_described_with_sizes_of_requests() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    client.ask(option::INFO, &export_data(NAME, &[3]));
    assert_eq!((reply::INFO, described()), client.answer(option::INFO));
    let sizes = vec![0, 3, 0, 0, 0, 1, 0, 0, 16, 0, 2, 0, 0, 0];
    assert_eq!((reply::INFO, sizes), client.answer(option::INFO));
    assert_eq!((reply::ACK, vec![]), client.answer(option::INFO));
    client.ask(option::ABORT, &[]);
    assert_eq!((reply::ACK, vec![]), client.answer(option::ABORT));
    client.leave().unwrap();
}

#[test]
fn an_old_client_chooses_an_export_by_name() {
    for (flags, zeroes) in [(1_u32, 124), (3, 0)] {
        let mut client = Client::new(&Memory::new());
        client.receive(18);
        client.send(&flags.to_be_bytes());
        client.ask(option::EXPORT_NAME, NAME.as_bytes());
        assert_eq!(described()[2..], client.receive(10));
        assert_eq!(vec![0; zeroes], client.receive(zeroes));
        client.request(READ, 1, 0, 4);
        assert_eq!((0, 1), client.reply());
        assert_eq!(vec![0, 1, 2, 3], client.receive(4));
        client.leave().unwrap();
    }
}

#[test]
fn names_are_neither_listed_nor_guessed() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    client.ask(option::LIST, &[]);
    assert_eq!(reply::ERR_POLICY, client.answer(option::LIST).0);
    client.ask(option::GO, &export_data("other", &[]));
    assert_eq!(reply::ERR_UNKNOWN, client.answer(option::GO).0);
    client.ask(option::EXPORT_NAME, b"other");
    assert!(client.is_ended());
    assert!(client.leave().is_err());
}

#[test]
fn an_unknown_option_is_answered() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    for option in [5, 8, 9, 10, 77] {
        client.ask(option, b"data");
        assert_eq!((reply::ERR_UNSUP, vec![]), client.answer(option));
    }
    client.leave().unwrap_err();
}

#[test]
fn a_malformed_option_is_refused() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    for data in [
        &b""[..],
        b"\0\0\0\x7fsecret\0\0",
        b"\0\0\0\x06secret",
        b"\0\0\0\x06secret\0\x02\0\x03",
    ] {
        client.ask(option::GO, data);
        assert_eq!(reply::ERR_INVALID, client.answer(option::GO).0);
    }
    client.leave().unwrap_err();
}

#[test]
fn a_client_that_breaks_the_handshake_is_disconnected() {
    let long = [&IHAVEOPT.to_be_bytes()[..], &[0, 0, 0, 7, 0x7f, 0, 0, 0]].concat();
    for bytes in [
        &[0xff; 4][..],
        &[[0, 0, 0, 3], [1; 4], [1; 4], [1; 4], [1; 4]].concat(),
        &[&[0, 0, 0, 3][..], &long].concat(),
    ] {
        let mut client = Client::new(&Memory::new());
        client.receive(18);
        client.send(bytes);
        assert!(client.is_ended());
        assert!(client.leave().is_err());
    }
}

#[test]
fn a_client_with_options_without_end_is_disconnected() {
    let mut client = Client::new(&Memory::new());
    client.greet();
    for _ in 0..64 {
        client.ask(option::LIST, &[]);
        client.answer(option::LIST);
    }
    assert!(client.is_ended());
    client.leave().unwrap_err();
}
