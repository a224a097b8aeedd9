//! Peers that break off, or send nonsense.

use diffcache_dataplane::ids::ObjectKey;

use super::*;

/// A plane whose first request is for the object: it has no key, and no boot to learn.
fn unsigning(site: &Site) -> DataPlane {
    DataPlane::open(Config {
        keys: None,
        ..site.config("b")
    })
    .unwrap()
}

/// A peer that answers each connection with the start of a response and hangs up.
fn broken_peer(answers: Vec<Vec<u8>>) -> Peer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer);
            let _ = stream.write_all(&answer);
        }
    });
    Peer::parse(&url).unwrap()
}

fn fetch(plane: &DataPlane, peer: Peer, key: ObjectKey, dest: &Path) -> Result<(), TransferError> {
    let remote = Remote {
        peer,
        key,
        trace: None,
    };
    plane.fetch(&remote, None, None, &job(dest)).map(drop)
}

#[test]
fn a_peer_that_breaks_off_gets_a_second_chance_and_no_third() {
    let site = Site::new();
    let b = unsigning(&site);
    let bytes = Bytes(3).take(1000);
    let key = site.hold_patch("nowhere", &bytes);
    let part = |range: &str, body: &[u8]| {
        let length = 1000 - if range.is_empty() { 0 } else { 400 };
        let status = if range.is_empty() {
            "200 OK"
        } else {
            "206 Partial"
        };
        let mut answer =
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{range}\r\n").into_bytes();
        answer.extend_from_slice(body);
        answer
    };
    let peer = broken_peer(vec![part("", &bytes[..400]), Vec::new()]);
    let error = fetch(&b, peer, key, &site.path("x")).unwrap_err();
    assert!(
        matches!(error, TransferError::PeerUnavailable { .. }),
        "{error}"
    );
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec();
    let rest = part("Content-Range: bytes 400-999/1000\r\n", &bytes[400..]);
    let peer = broken_peer(vec![[head, rest].concat()]);
    fetch(&b, peer, key, &site.path("x")).unwrap();
    assert_eq!(std::fs::read(site.path("x")).unwrap(), bytes);
}

#[test]
fn nonsense_from_a_peer_is_an_error_not_an_object() {
    let site = Site::new();
    let b = unsigning(&site);
    let key = site.hold_patch("nowhere", b"0123456789");
    for answer in [
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n012",
        "HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 There\r\nContent-Length: 0\r\nLocation: http://elsewhere/\r\n\r\n",
    ] {
        let peer = broken_peer(vec![answer.into(), answer.into()]);
        let error = fetch(&b, peer, key, &site.path("x")).unwrap_err();
        assert!(
            matches!(error, TransferError::PeerUnavailable { .. }),
            "{answer}: {error}"
        );
    }
    let wrong = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n9876543210";
    let peer = broken_peer(vec![wrong.into()]);
    let dest = site.path("y");
    let error = fetch(&b, peer, key, &dest).unwrap_err();
    assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n";
    let peer = broken_peer(vec![endless.into(), endless.into()]);
    let error = fetch(&b, peer, key, &dest).unwrap_err();
    // The peer breaks off; the disk is not full because it says so.
    assert!(
        matches!(error, TransferError::PeerUnavailable { .. }),
        "{error}"
    );
    assert!(!dest.exists());
}
