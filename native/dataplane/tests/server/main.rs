//! The server seen from raw sockets: what it answers, whom it refuses, how long it waits.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod access;
#[path = "../common/mod.rs"]
mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use common::{assert_sent, image, job, remote, until, Bytes, Site, HELD, PATIENCE};
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::peer::Peer;
use diffcache_dataplane::plane::{Config, DataPlane};
use diffcache_dataplane::serving::admission::Room;
use diffcache_dataplane::serving::service::Limits;
use diffcache_dataplane::transport::auth::{
    fresh_nonce, unix_now, Destination, Keys, Signed, SiteKey,
};

fn open_plane(site: &Site, limits: Limits) -> DataPlane {
    DataPlane::open(Config {
        keys: None,
        limits,
        ..site.config("a")
    })
    .unwrap()
}

fn connect(plane: &DataPlane) -> TcpStream {
    let stream = TcpStream::connect(plane.url().strip_prefix("http://").unwrap()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends bytes and reads until the server closes; it may do so before it has all of them.
fn converse(plane: &DataPlane, request: &[u8]) -> std::io::Result<String> {
    let mut stream = connect(plane);
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn ask(plane: &DataPlane, method: &str, path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{fields}\r\n{body}");
    converse(plane, request.as_bytes()).unwrap()
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[test]
fn objects_are_answered_whole_and_in_ranges() {
    let site = Site::new();
    let plane = open_plane(&site, Limits::default());
    let key = site.hold_patch("a", b"0123456789");
    let path = key.object_path();
    let whole = ask(&plane, "GET", &path, "", "");
    assert!(whole.starts_with("HTTP/1.1 200 OK\r\n"), "{whole}");
    assert!(whole.contains(&format!("ETag: \"{}\"\r\n", key.id_hex())));
    assert!(whole.contains("X-DiffCache-State: held\r\n"));
    assert_eq!(body(&whole), "0123456789");
    for (range, content_range, bytes) in [
        ("bytes=0-0", "bytes 0-0/10", "0"),
        ("bytes=3-5", "bytes 3-5/10", "345"),
        ("bytes=7-", "bytes 7-9/10", "789"),
        ("bytes=-2", "bytes 8-9/10", "89"),
        ("bytes=5-500", "bytes 5-9/10", "56789"),
    ] {
        let part = ask(&plane, "GET", &path, &format!("Range: {range}\r\n"), "");
        assert!(part.starts_with("HTTP/1.1 206 "), "{part}");
        assert!(
            part.contains(&format!("Content-Range: {content_range}\r\n")),
            "{part}"
        );
        assert_eq!(body(&part), bytes);
    }
    let head = ask(&plane, "HEAD", &path, "", "");
    assert!(
        head.contains("Content-Length: 10\r\n") && body(&head).is_empty(),
        "{head}"
    );
    assert_sent(&plane, key.kind, 10 + 1 + 3 + 3 + 2 + 5);
}

#[test]
fn every_refusal_has_a_status_and_a_reason() {
    let site = Site::new();
    let plane = open_plane(&site, Limits::default());
    let key = site.hold_patch("a", b"0123456789");
    let missing = site.hold_patch("nowhere", b"x").object_path();
    let path = key.object_path();
    let claim = key.claim_path();
    let traversal = format!("/v1/objects/patches/../../{}", key.id_hex());
    let get = |path, status, reason| ("GET", path, "", "", status, reason);
    let fields = |fields, status, reason| ("GET", path.as_str(), fields, "", status, reason);
    let post = |payload| ("POST", claim.as_str(), "", payload, 400, "malformed");
    let other = |method, path, payload| (method, path, "", payload, 405, "method");
    for (method, path, fields, payload, status, reason) in [
        get(missing.as_str(), 404, "missing"),
        ("HEAD", missing.as_str(), "", "", 404, ""),
        get("/", 404, "route"),
        get(traversal.as_str(), 404, "route"),
        other("PUT", path.as_str(), "x"),
        other("DELETE", path.as_str(), ""),
        other("PUT", claim.as_str(), "x"),
        fields("Range: bytes=10-\r\n", 416, "range"),
        fields("Range: bytes=0-1,3-4\r\n", 416, "range"),
        fields("Transfer-Encoding: chunked\r\n", 411, "length-required"),
        post(""),
        post("{\"holder\": \"\"}"),
        post("{\"holder\": \"a\", \"more\": 1}"),
    ] {
        let answer = ask(&plane, method, path, fields, payload);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method} {path}: {answer}"
        );
        let told = format!("\"reason\":\"{reason}\"");
        assert!(
            body(&answer).contains(if reason.is_empty() { "" } else { &told }),
            "{answer}"
        );
    }
    assert_eq!(plane.stats().events(Event::Failed), 13);
    assert_eq!(plane.stats().events(Event::Request), 13);
}

#[test]
fn one_connection_carries_many_requests_even_ahead() {
    let site = Site::new();
    let plane = open_plane(&site, Limits::default());
    let key = site.hold_patch("a", &Bytes(1).take(1000));
    let one = format!(
        "GET {} HTTP/1.1\r\nRange: bytes=0-499\r\n\r\n",
        key.object_path()
    );
    let lost = "GET /v1/nothing HTTP/1.1\r\n\r\n";
    let last = format!("GET {} HTTP/1.0\r\n\r\n", key.object_path());
    let mut stream = connect(&plane);
    stream
        .write_all(format!("{one}{lost}{one}{last}").as_bytes())
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let text = String::from_utf8_lossy(&answer);
    let statuses: Vec<&str> = text.matches("HTTP/1.1 ").collect();
    assert_eq!(statuses.len(), 4);
    assert_sent(&plane, key.kind, 500 + 500 + 1000);
    assert_eq!(plane.stats().events(Event::Connection), 1);
}

#[test]
fn a_request_that_dribbles_in_is_given_up() {
    let site = Site::new();
    let limits = Limits {
        head: Duration::from_millis(150),
        ..Limits::default()
    };
    let plane = open_plane(&site, limits);
    let mut stream = connect(&plane);
    let begun = Instant::now();
    let mut ended = false;
    for byte in b"GET /v1/health HTTP/1.1\r\nX: "
        .iter()
        .chain([b'a'; 4000].iter())
    {
        if stream.write_all(&[*byte]).is_err() {
            ended = true;
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(ended);
    assert!(begun.elapsed() >= Duration::from_millis(150));
    until("the thread is gone", || plane.stats().connections == 0);
}

#[test]
fn a_reader_that_takes_nothing_is_given_up() {
    let site = Site::new();
    let limits = Limits {
        send: Duration::from_millis(150),
        ..Limits::default()
    };
    let plane = open_plane(&site, limits);
    let key = site.hold_patch("a", &Bytes(1).take(50_000_000));
    let mut stream = connect(&plane);
    write!(stream, "GET {} HTTP/1.1\r\n\r\n", key.object_path()).unwrap();
    until("the reader is given up", || {
        plane.stats().events(Event::Dropped) == 1
    });
    until("there is no reader", || plane.readers(key) == 0);
    assert!(plane.stats().counters.sent(key.kind) < 50_000_000);
}

#[test]
fn connections_are_bounded_and_idle_ones_make_room() {
    let site = Site::new();
    let limits = Limits {
        room: Room {
            unproven: 3,
            ..Limits::default().room
        },
        ..Limits::default()
    };
    let plane = open_plane(&site, limits);
    let idle: Vec<TcpStream> = (0..3).map(|_| connect(&plane)).collect();
    until("all are taken", || plane.stats().connections == 3);
    for _ in 0..10 {
        assert!(ask(&plane, "GET", "/v1/health", "", "").contains("\"status\":\"ok\""));
        // The one that made room is gone as soon as its thread has noticed.
        until("there is room again", || plane.stats().connections <= 3);
    }
    drop(idle);
}

#[test]
fn busy_connections_are_not_closed_for_new_ones() {
    let site = Site::new();
    let limits = Limits {
        room: Room {
            proven: 1,
            ..Limits::default().room
        },
        ..Limits::default()
    };
    let plane = open_plane(&site, limits);
    let bytes = Bytes(1).take(400_000);
    let key = site.hold_patch("a", &bytes);
    plane.set_rate(HELD).unwrap();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| ask(&plane, "GET", &key.object_path(), "", ""));
        until("it is served", || plane.readers(key) == 1);
        plane.set_rate(Some(1e6)).unwrap();
        assert!(ask(&plane, "GET", "/v1/health", "", "").contains("\"status\":\"ok\""));
        assert!(busy.join().unwrap().len() > 400_000);
    });
}

#[test]
fn latency_is_paid() {
    let site = Site::new();
    let latency = Duration::from_millis(100);
    let a = DataPlane::open(Config {
        latency,
        ..site.config("a")
    })
    .unwrap();
    let b = site.plane("b");
    let held = site.hold("a", &image(100, |leaf| leaf % 2 == 0));
    let begun = Instant::now();
    b.fetch(
        &remote(&a, held.key),
        Some(&held.manifest_path),
        None,
        &job(&site.path("b/x")),
    )
    .unwrap();
    let requests = a.stats().events(Event::Request);
    // One for each leaf, and one to learn the boot.
    assert_eq!(requests, 51);
    assert!(begun.elapsed() >= latency);
}

#[test]
fn a_shaped_link_is_shared_by_all_connections() {
    const SIZE: usize = 1_000_000;
    let site = Site::new();
    let plane = open_plane(&site, Limits::default());
    let key = site.hold_patch("a", &Bytes(1).take(SIZE));
    plane.set_rate(HELD).unwrap();
    std::thread::scope(|scope| {
        let read = || ask(&plane, "GET", &key.object_path(), "", "");
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        until("all are served", || plane.readers(key) == 4);
        let begun = Instant::now();
        plane.set_rate(Some(4e6)).unwrap();
        for reader in readers {
            assert!(reader.join().unwrap().len() > SIZE);
        }
        // Together they have no more than one alone.
        assert!(begun.elapsed() >= Duration::from_millis(970));
    });
}

#[test]
fn no_garbage_disturbs_the_server() {
    let site = Site::new();
    let limits = Limits {
        head: Duration::from_millis(20),
        ..Limits::default()
    };
    let plane = open_plane(&site, limits);
    let key = site.hold_patch("a", &Bytes(1).take(1000));
    let seed = format!(
        "GET {} HTTP/1.1\r\nRange: bytes=1-2\r\nContent-Length: 3\r\n\r\nabc",
        key.object_path()
    );
    let mut random = Bytes(0x2545_f491_4f6c_dd1d);
    for _ in 0..300 {
        let mut bytes = seed.clone().into_bytes();
        for _ in 0..=random.next() % 8 {
            let at = random.next() as usize % bytes.len();
            bytes[at] = random.next() as u8;
        }
        let mut stream = connect(&plane);
        // It may be given up at any moment.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 "));
    }
    let sound = b"GET /v1/health HTTP/1.1\r\nConnection: close\r\n\r\n";
    // With so little time it may be given up on a busy machine.
    until("a sound request is answered", || {
        converse(&plane, sound).is_ok_and(|answer| answer.contains("\"status\":\"ok\""))
    });
    until("every connection ended", || plane.stats().connections == 0);
}

#[test]
fn a_reader_that_comes_back_is_counted_meanwhile() {
    let site = Site::new();
    let plane = open_plane(&site, Limits::default());
    let key = site.hold_patch("a", b"0123456789");
    ask(&plane, "GET", &key.object_path(), "", "");
    until("it is gone", || plane.readers(key) == 0);
    ask(
        &plane,
        "GET",
        &key.object_path(),
        "X-DiffCache-Hold: 60\r\n",
        "",
    );
    until("the connection is gone", || plane.stats().connections == 0);
    assert_eq!(plane.readers(key), 1);
}
