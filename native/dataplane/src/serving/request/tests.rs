//! Tests of requests as they arrive, hostile ones too.

use super::*;

fn head(lines: &str) -> Vec<u8> {
    format!("{}\r\n\r\n", lines.replace('\n', "\r\n")).into_bytes()
}

#[test]
fn a_plain_request_is_understood() {
    let bytes =
        head("GET /v1/health HTTP/1.1\nHost: a\nRange: bytes=0-1\nAuthorization: DiffCache x");
    let (request, length) = parse(&bytes).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    assert_eq!(request.method, "GET");
    assert_eq!(request.path, "/v1/health");
    assert_eq!(request.range, "bytes=0-1");
    assert_eq!(request.authorization.as_deref(), Some("DiffCache x"));
    assert!(request.keep_alive);
    for cut in 0..bytes.len() {
        assert_eq!(parse(&bytes[..cut]).unwrap(), None);
    }
}

#[test]
fn what_cannot_be_a_name_is_no_reason_not_to_serve() {
    let requester = |text: &str| {
        let bytes = head(&format!("GET / HTTP/1.1\nX-DiffCache-Refer: {text}"));
        parse(&bytes).unwrap().unwrap().0.requester
    };
    assert_eq!(requester("host-3"), HostName::parse("host-3"));
    assert_eq!(requester("a b"), None);
}

#[test]
fn what_becomes_of_absent_bytes_is_said_by_words() {
    let want = |text: &str| {
        let bytes = head(&format!("GET / HTTP/1.1\nX-DiffCache-Fetch: {text}"));
        parse(&bytes).map(|found| found.unwrap().0.want)
    };
    assert_eq!(want("no"), Ok(Want::Present));
    assert_eq!(want("arriving"), Ok(Want::Arriving));
    assert!(want("yes").is_err());
}

#[test]
fn what_cannot_be_a_trace_is_no_reason_not_to_serve() {
    for (text, trace) in [("YQ==.0f", Some("YQ==.0f")), ("a b", None)] {
        let bytes = head(&format!("GET / HTTP/1.1\nX-DiffCache-Trace: {text}"));
        let request = parse(&bytes).unwrap().unwrap().0;
        assert_eq!(request.trace.as_ref().map(Trace::as_str), trace);
    }
}

#[test]
fn no_text_of_what_is_known_keeps_from_serving() {
    let known = |text: &[u8]| {
        let mut bytes = b"GET / HTTP/1.1\r\nX-DiffCache-Known: ".to_vec();
        bytes.extend(text);
        bytes.extend(b"\r\n\r\n");
        parse(&bytes).unwrap().unwrap().0.known
    };
    assert_eq!(known(b"YQ==").as_deref(), Some("YQ=="));
    assert_eq!(known(b"a\xff").as_deref(), Some("a\u{fffd}"));
    assert!(known(b"a\r\nX-DiffCache-Known: b").is_some());
}

#[test]
fn what_is_ambiguous_is_refused() {
    for (lines, status) in [
        ("GET / HTTP/1.1\nContent-Length: 1\nContent-Length: 1", 400),
        ("GET / HTTP/1.1\nRange: bytes=0-1\nrange: bytes=2-3", 400),
        ("POST / HTTP/1.1\nContent-Length: +1", 400),
        ("POST / HTTP/1.1\nContent-Length: 1, 1", 400),
        ("POST / HTTP/1.1\nContent-Length: 4097", 413),
        (
            "POST / HTTP/1.1\nContent-Length: 99999999999999999999999",
            413,
        ),
        ("POST / HTTP/1.1\nTransfer-Encoding: chunked", 411),
        (
            "POST / HTTP/1.1\nExpect: 100-continue\nContent-Length: 3",
            417,
        ),
        ("GET /\u{1} HTTP/1.1", 400),
        ("GET / HTTP/2.0", 400),
        ("nonsense", 400),
    ] {
        assert_eq!(parse(&head(lines)).unwrap_err().status(), status, "{lines}");
    }
    let many = format!("GET / HTTP/1.1{}", "\nA: b".repeat(MOST_HEADERS + 1));
    assert_eq!(parse(&head(&many)).unwrap_err().status(), 431);
    let long = format!("GET / HTTP/1.1\nA: {}", "b".repeat(LONGEST_HEAD));
    assert_eq!(parse(&head(&long)).unwrap_err().status(), 431);
}

#[test]
fn connections_end_when_either_side_says_so() {
    let keep = |lines| parse(&head(lines)).unwrap().unwrap().0.keep_alive;
    assert!(keep("GET / HTTP/1.1"));
    assert!(!keep("GET / HTTP/1.0"));
    assert!(!keep("GET / HTTP/1.1\nConnection: Close"));
}

#[test]
fn readers_may_say_that_they_come_back() {
    let hold = |lines| parse(&head(lines)).map(|found| found.unwrap().0.hold);
    assert_eq!(hold("GET / HTTP/1.1"), Ok(0));
    assert_eq!(hold("GET / HTTP/1.1\nX-DiffCache-Hold: 10"), Ok(10));
    assert_eq!(hold("GET / HTTP/1.1\nX-DiffCache-Hold: 9999"), Ok(60));
    assert!(hold("GET / HTTP/1.1\nX-DiffCache-Hold: -1").is_err());
}

#[test]
fn readers_may_take_frames() {
    let takes = |lines| parse(&head(lines)).unwrap().unwrap().0.takes_frames;
    assert!(!takes("GET / HTTP/1.1"));
    assert!(takes("GET / HTTP/1.1\nX-DiffCache-Accept: zstd"));
    assert!(takes("GET / HTTP/1.1\nX-DiffCache-Accept: later, zstd"));
    assert!(!takes("GET / HTTP/1.1\nX-DiffCache-Accept: zstd2,,lz4"));
}

#[test]
fn routes_are_exact() {
    let id = "ab".repeat(32);
    let key = ObjectKey::parse("patches", &id).unwrap();
    assert_eq!(
        route(&format!("/v1/objects/patches/{id}")),
        Ok(Route::Object(key))
    );
    assert_eq!(
        route(&format!("/v1/claims/patches/{id}")),
        Ok(Route::Claim(key))
    );
    assert_eq!(route("/v1/health"), Ok(Route::Health));
    for bad in [
        "/".to_owned(),
        "/v1/health/".to_owned(),
        "/v1/health?x".to_owned(),
        format!("/v1/objects/staging/{id}"),
        format!("/v1/objects/patches/{id}/"),
        format!("/v1/objects/patches/{id}?x=1"),
        format!("/v1/objects/patches//{id}"),
        format!("/v1/objects/patches/../patches/{id}"),
        format!("/v1/objects/patches/%61{}", &id[1..]),
        format!("http://a/v1/objects/patches/{id}"),
        format!("/v2/objects/patches/{id}"),
    ] {
        assert_eq!(route(&bad), Err(RequestError::Route), "{bad}");
    }
}

#[test]
fn ranges_resolve_to_bytes_inside_of_the_object() {
    for (range, size, expected) in [
        ("", 10, None),
        ("items=0-1", 10, None),
        ("bytes=0-0", 10, Some((0, 1))),
        ("bytes=2-5", 10, Some((2, 6))),
        ("bytes=2-", 10, Some((2, 10))),
        ("bytes=-3", 10, Some((7, 10))),
        ("bytes=-30", 10, Some((0, 10))),
        ("bytes=5-18446744073709551615", 10, Some((5, 10))),
        ("bytes=5-99999999999999999999999", 10, Some((5, 10))),
    ] {
        assert_eq!(resolve_range(range, size), Ok(expected), "{range}");
    }
    for range in [
        "bytes=",
        "bytes=-",
        "bytes=-0",
        "bytes=10-",
        "bytes=6-5",
        "bytes=0-1,3-4",
        "bytes=a-b",
        "bytes= 0-1",
        "bytes=+1-2",
    ] {
        assert_eq!(
            resolve_range(range, 10),
            Err(RequestError::Range),
            "{range}"
        );
    }
    assert_eq!(resolve_range("bytes=0-", 0), Err(RequestError::Range));
    assert_eq!(resolve_range("bytes=-1", 0), Err(RequestError::Range));
}

/// A small generator: the same bytes in every run.
struct Bytes(u64);

impl Bytes {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn no_mutation_of_a_request_confuses_the_parser() {
    let seed = head("POST /v1/claims/patches/aa HTTP/1.1\nHost: h\nContent-Length: 12\nRange: bytes=1-2\nConnection: close");
    let mut random = Bytes(0x9e37_79b9_7f4a_7c15);
    for _ in 0..200_000 {
        let mut bytes = seed.clone();
        for _ in 0..=random.next() % 4 {
            let at = random.next() as usize % bytes.len().max(1);
            match random.next() % 4 {
                _ if bytes.is_empty() => break,
                0 => bytes[at] = random.next() as u8,
                1 => drop(bytes.remove(at)),
                2 => bytes.insert(at, random.next() as u8),
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let Ok(Some((request, length))) = parse(&bytes) {
            assert!(length <= bytes.len() && length <= LONGEST_HEAD);
            assert!(request.body_length <= LONGEST_BODY);
            assert!(!request.path.contains(['\r', '\n', ' ', '\0']));
            if let Ok(Some((start, end))) = resolve_range(&request.range, 1000) {
                assert!(start < end && end <= 1000);
            }
            let _ = route(&request.path);
        }
    }
}
