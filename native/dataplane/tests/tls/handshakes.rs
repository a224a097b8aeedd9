//! Handshakes that do not end, or take long.

use super::*;

#[test]
fn garbage_and_silence_cost_a_connection_and_nothing_else() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let patient = open(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let a = hurried(&site, "h", strict(authority.issue("h", "127.0.0.1")));
    let connect = || TcpStream::connect(authority_of(&a)).unwrap();
    let mut hello = vec![22, 3, 1, 0x40, 0];
    hello.extend(Bytes(1).take(100));
    let mut garbage = vec![0];
    garbage.extend(Bytes(2).take(5000));
    for (plane, bytes, reason) in [
        (&patient, garbage, "no TLS"),
        // The beginning of a handshake, and no more.
        (&a, hello, "no TLS handshake in time"),
    ] {
        let mut stream = TcpStream::connect(authority_of(plane)).unwrap();
        stream.write_all(&bytes).unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
        let complaint = complaint(plane);
        assert!(complaint.contains(reason), "{complaint}");
        assert_eq!(plane.stats().events(Event::HandshakeFailed), 1);
    }
    // A client that sends nothing, or closes at once, as the probe of a monitor does: no complaint.
    drop(connect());
    let mut silent = connect();
    let _ = silent.read_to_end(&mut Vec::new());
    until("all connections ended", || a.stats().connections == 0);
    assert!(a.take_complaints().is_empty());
    assert_eq!(a.stats().events(Event::HandshakeFailed), 1);
    let b = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    let key = site.hold_patch("a", b"content");
    assert_eq!(fetch_from(&site, &b, patient.url(), key).unwrap(), 7);
    // With so little time a handshake may fail on a busy machine.
    site.hold_patch("h", b"content");
    until("a peer is served", || {
        fetch_from(&site, &b, a.url(), key).is_ok()
    });
}

#[test]
fn a_handshake_in_small_pieces_has_a_limit_for_the_whole() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = hurried(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let mut stream = TcpStream::connect(authority_of(&a)).unwrap();
    stream.write_all(&[22, 3, 1, 0x40, 0]).unwrap();
    // Each piece comes well before the limit, and there would be more than a minute of them.
    let sent = (0..16_000).find(|_| {
        std::thread::sleep(Duration::from_millis(5));
        stream.write_all(&[1]).is_err()
    });
    assert!(sent.is_some());
    assert!(complaint(&a).contains("no TLS handshake in time"));
}

#[test]
fn stalled_handshakes_make_room_for_others() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = DataPlane::open(Config {
        tls: strict(authority.issue("a", "127.0.0.1")),
        limits: Limits {
            room: Room {
                unproven: 2,
                ..Limits::default().room
            },
            head: Duration::from_secs(600),
            ..Limits::default()
        },
        ..site.config("a")
    })
    .unwrap();
    let stalled: Vec<TcpStream> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(authority_of(&a)).unwrap();
            stream.write_all(&[22, 3, 1]).unwrap();
            stream
        })
        .collect();
    until("they fill the plane", || a.stats().connections == 2);
    let b = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    let key = site.hold_patch("a", b"content");
    assert_eq!(fetch_from(&site, &b, a.url(), key).unwrap(), 7);
    drop(stalled);
}

#[test]
fn a_server_that_does_not_answer_the_handshake_is_unavailable() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let b = DataPlane::open(Config {
        tls: strict(authority.issue("b", "127.0.0.1")),
        timeout: Duration::from_millis(150),
        ..site.config("b")
    })
    .unwrap();
    let key = site.hold_patch("a", b"content");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let error = fetch_from(&site, &b, &url, key).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert!(
        error.to_string().contains("no TLS handshake in time"),
        "{error}"
    );
}
