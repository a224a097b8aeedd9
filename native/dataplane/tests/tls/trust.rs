//! Which certificates are taken, and whose requests.

use super::*;

#[test]
fn certificates_that_do_not_prove_the_peer_are_refused() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let reader = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    let strangers = Authority::new(&site);
    let stale = authority.issue_changed("stale", "127.0.0.1", |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    let early = authority.issue_changed("early", "127.0.0.1", |params| {
        params.not_before = rcgen::date_time_ymd(4001, 1, 1);
    });
    for (files, reason) in [
        (
            strangers.issue("stranger", "127.0.0.1"),
            "is of no authority in tls_ca_file",
        ),
        (stale, "expired"),
        (early, "not valid yet"),
        (
            authority.issue("namesake", "another.example"),
            "not valid for name",
        ),
        (authority.issue("near", "127.0.0.2"), "not valid for name"),
    ] {
        let name = files.cert.file_stem().unwrap().to_str().unwrap().to_owned();
        let plane = open(&site, &name, strict(files));
        let key = site.hold_patch(&name, b"content");
        let told = untrusted(fetch_from(&site, &reader, plane.url(), key));
        assert!(
            told.contains(reason) && told.contains(plane.url()),
            "{told}"
        );
        // The peer learns of it, too.
        let complaint = complaint(&plane);
        assert!(
            complaint.contains("refuses this host's certificate"),
            "{complaint}"
        );
        assert_eq!(plane.stats().events(Event::HandshakeFailed), 1);
        assert_eq!(plane.stats().events(Event::Request), 0);
    }
}

#[test]
fn a_certificate_may_name_the_host() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap();
    drop(free);
    let a = DataPlane::open(Config {
        tls: strict(authority.issue("a", "localhost")),
        listen: listen.to_string(),
        advertise_url: Some(format!("https://localhost:{}", listen.port())),
        ..site.config("a")
    })
    .unwrap();
    let b = open(&site, "b", strict(authority.issue("b", "b.example")));
    let key = site.hold_patch("a", b"content");
    assert_eq!(fetch_from(&site, &b, a.url(), key).unwrap(), 7);
}

#[test]
fn who_asks_has_to_show_a_certificate_that_is_taken() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = open(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let key = site.hold_patch("a", b"content");
    let stranger = Authority::new(&site).issue("stranger", "127.0.0.1");
    std::fs::copy(site.path("a.ca"), &stranger.ca).unwrap();
    let stale = authority.issue_changed("stale", "127.0.0.1", |params| {
        params.not_before = rcgen::date_time_ymd(2001, 1, 1);
        params.not_after = rcgen::date_time_ymd(2002, 1, 1);
    });
    for (files, reason) in [(stranger, "is of no authority"), (stale, "expired")] {
        let name = files.cert.file_stem().unwrap().to_str().unwrap().to_owned();
        let reader = open(&site, &name, strict(files));
        let told = untrusted(fetch_from(&site, &reader, a.url(), key));
        assert!(
            told.contains("compare tls_cert_file here with tls_ca_file there"),
            "{told}"
        );
        let complaint = complaint(&a);
        assert!(complaint.contains(reason), "{complaint}");
    }
    assert_eq!(a.stats().events(Event::HandshakeFailed), 2);
    assert_eq!(a.stats().events(Event::Request), 0);
}

/// A session of a client that shows no certificate.
fn anonymous(
    authority: &Authority<'_>,
    plane: &DataPlane,
) -> rustls::StreamOwned<rustls::ClientConnection, TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.certificate.der().clone()).unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "127.0.0.1".try_into().unwrap();
    let session = rustls::ClientConnection::new(config.into(), name).unwrap();
    rustls::StreamOwned::new(session, TcpStream::connect(authority_of(plane)).unwrap())
}

#[test]
fn who_shows_no_certificate_is_refused() {
    let site = Site::new();
    let authority = Authority::new(&site);
    for wanted in [strict, tolerant] {
        let a = open(&site, "a", wanted(authority.issue("a", "127.0.0.1")));
        let mut stream = anonymous(&authority, &a);
        let _ = stream.write_all(b"GET /v1/health HTTP/1.1\r\n\r\n");
        let mut answer = Vec::new();
        let error = stream.read_to_end(&mut answer).unwrap_err();
        assert!(error.to_string().contains("CertificateRequired"), "{error}");
        assert!(answer.is_empty());
        assert!(complaint(&a).contains("shows no certificate"));
    }
}
