//! Planes that speak TLS: whom they take for one of theirs, and what becomes of everybody else.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod handshakes;
mod trust;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use common::{image, job, remote, until, Bytes, Site};
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::peer::{Peer, Remote};
use diffcache_dataplane::ids::ObjectKey;
use diffcache_dataplane::plane::{Config, DataPlane};
use diffcache_dataplane::serving::admission::Room;
use diffcache_dataplane::serving::service::Limits;
use diffcache_dataplane::transport::tls::{Files, Options, PlainPeers};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};

/// An authority, and the folder where it puts what it issues.
struct Authority<'a> {
    site: &'a Site,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority<'_> {
    fn new(site: &Site) -> Authority<'_> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key).unwrap();
        Authority {
            site,
            certificate,
            key,
        }
    }

    /// Writes the list of revoked certificates, by their serial numbers.
    fn revoke(&self, path: &Path, serials: &[u64]) {
        let begun = rcgen::date_time_ymd(2024, 1, 1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: begun,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: begun,
            next_update: rcgen::date_time_ymd(4024, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let signed = list.signed_by(&self.certificate, &self.key).unwrap();
        std::fs::write(path, signed.pem().unwrap()).unwrap();
    }

    /// Writes a certificate for `subject` under `name`.
    fn issue(&self, name: &str, subject: &str) -> Files {
        self.issue_changed(name, subject, |_| ())
    }

    fn issue_changed(
        &self,
        name: &str,
        subject: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Files {
        let path = |end: &str| self.site.path(&format!("{name}.{end}"));
        let files = Files {
            ca: path("ca"),
            cert: path("cert"),
            key: path("key"),
            crl: None,
        };
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![subject.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.certificate, &self.key);
        std::fs::write(&files.ca, self.certificate.pem()).unwrap();
        std::fs::write(&files.cert, certificate.unwrap().pem()).unwrap();
        write_key(&files.key, &key.serialize_pem());
        files
    }
}

fn write_key(path: &Path, pem: &str) {
    std::fs::write(path, pem).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

fn strict(files: Files) -> Option<Options> {
    let plain = PlainPeers::Refused;
    Some(Options { files, plain })
}

fn tolerant(files: Files) -> Option<Options> {
    let plain = PlainPeers::Tolerated;
    Some(Options { files, plain })
}

fn open(site: &Site, name: &str, tls: Option<Options>) -> DataPlane {
    DataPlane::open(Config {
        tls,
        ..site.config(name)
    })
    .unwrap()
}

fn hurried(site: &Site, name: &str, tls: Option<Options>) -> DataPlane {
    DataPlane::open(Config {
        tls,
        limits: Limits {
            head: Duration::from_millis(150),
            ..Limits::default()
        },
        ..site.config(name)
    })
    .unwrap()
}

fn fetch_from(
    site: &Site,
    reader: &DataPlane,
    url: &str,
    key: ObjectKey,
) -> Result<u64, TransferError> {
    let remote = Remote {
        peer: Peer::parse(url).unwrap(),
        key,
        trace: None,
    };
    let dest = site.path("output");
    reader.fetch(&remote, None, None, &job(&dest))
}

fn authority_of(plane: &DataPlane) -> &str {
    plane.url().split_once("://").unwrap().1
}

/// The error must be of the kind that somebody has to act on.
fn untrusted(outcome: Result<u64, TransferError>) -> String {
    let error = outcome.unwrap_err();
    assert!(
        matches!(error, TransferError::PeerUntrusted { .. }),
        "{error}"
    );
    assert!(!error.is_retryable());
    error.to_string()
}

/// The one thing that a plane has to complain of.
fn complaint(plane: &DataPlane) -> String {
    let taken = std::cell::RefCell::new(Vec::new());
    until("the plane complains", || {
        taken.borrow_mut().extend(plane.take_complaints());
        !taken.borrow().is_empty()
    });
    let mut taken = taken.into_inner();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert!(taken[0].about.starts_with("127."));
    taken.remove(0).reason
}

#[test]
fn everything_goes_over_tls_as_it_does_in_the_clear() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = open(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let b = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    assert!(a.url().starts_with("https://127.0.0.1:"), "{}", a.url());
    let content = image(70, |leaf| leaf % 5 == 0);
    let held = site.hold("a", &content);
    let dest = site.path("output");
    let manifest = Some(held.manifest_path.as_path());
    b.fetch(
        &remote(&a, held.manifest_key),
        None,
        None,
        &job(&site.path("m")),
    )
    .unwrap();
    let received = b.fetch(&remote(&a, held.key), manifest, None, &job(&dest));
    assert_eq!(received.unwrap(), 56 * 65536 + 1234);
    assert_eq!(std::fs::read(&dest).unwrap(), content);
    let claimed = b
        .claimant
        .claim_at(&Peer::parse(a.url()).unwrap(), held.key, None)
        .unwrap();
    assert_eq!(claimed.url, b.url());
    // Connections are used again, and large bodies need no second handshake.
    assert_eq!(a.stats().events(Event::Handshake), 1);
    assert_eq!(a.stats().events(Event::Refused), 0);
    assert!(a.take_complaints().is_empty());
}

#[test]
fn nothing_of_an_object_can_be_seen_on_the_network() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let tap = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", tap.local_addr().unwrap());
    let a = DataPlane::open(Config {
        tls: strict(authority.issue("a", "127.0.0.1")),
        advertise_url: Some(url.clone()),
        ..site.config("a")
    })
    .unwrap();
    let b = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    let secret = b"a secret that repeats; ".repeat(10_000);
    let key = site.hold_patch("a", &secret);
    let target = a.address().to_string();
    let listener = std::thread::spawn(move || {
        let (mut near, _) = tap.accept().unwrap();
        let mut far = TcpStream::connect(target).unwrap();
        let (mut asking, mut asked) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let there = std::thread::spawn(move || {
            let _ = std::io::copy(&mut asking, &mut asked);
            let _ = asked.shutdown(std::net::Shutdown::Both);
        });
        let mut seen = Vec::new();
        let mut chunk = [0; 65536];
        while let Ok(count @ 1..) = far.read(&mut chunk) {
            seen.extend_from_slice(&chunk[..count]);
            near.write_all(&chunk[..count]).unwrap();
        }
        there.join().unwrap();
        seen
    });
    assert_eq!(fetch_from(&site, &b, &url, key).unwrap(), 230_000);
    b.close();
    let seen = listener.join().unwrap();
    assert!(seen.len() > 230_000);
    assert!(!seen
        .windows(8)
        .any(|bytes| bytes == b"a secret" || bytes == b"HTTP/1.1"));
}

#[test]
fn a_signature_is_asked_for_under_tls_too() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = open(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let b = DataPlane::open(Config {
        keys: None,
        tls: strict(authority.issue("b", "127.0.0.1")),
        ..site.config("b")
    })
    .unwrap();
    let key = site.hold_patch("a", b"content");
    let outcome = fetch_from(&site, &b, a.url(), key);
    assert!(matches!(outcome, Err(TransferError::PeerRefused { .. })));
}

#[test]
fn a_request_in_the_clear_learns_what_is_missing() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = open(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let b = open(&site, "b", None);
    let key = site.hold_patch("a", b"content");
    let told = untrusted(fetch_from(
        &site,
        &b,
        &format!("http://{}", authority_of(&a)),
        key,
    ));
    assert!(
        told.contains("answers by TLS alone") && told.contains("tls_cert_file"),
        "{told}"
    );
    assert!(complaint(&a).contains("asks in the clear"));
    assert_eq!(a.stats().events(Event::PlainRefused), 1);
    let told = untrusted(fetch_from(&site, &b, a.url(), key));
    assert!(
        told.contains("it speaks TLS and this host does not"),
        "{told}"
    );
    assert_eq!(a.stats().events(Event::Handshake), 0);
}

#[test]
fn nothing_is_asked_in_the_clear_whatever_a_peer_announces() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = open(&site, "a", None);
    let b = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    let key = site.hold_patch("a", b"content");
    let told = untrusted(fetch_from(&site, &b, a.url(), key));
    assert!(
        told.contains("what it sends is no TLS") && told.contains(a.url()),
        "{told}"
    );
    assert_eq!(a.stats().counters.sent(key.kind), 0);
}

#[test]
fn tls_can_be_introduced_host_by_host() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let old = open(&site, "old", None);
    let middle = open(
        &site,
        "middle",
        tolerant(authority.issue("middle", "127.0.0.1")),
    );
    let new = open(&site, "new", strict(authority.issue("new", "127.0.0.1")));
    assert!(middle.url().starts_with("http://"));
    for name in ["old", "middle", "new"] {
        site.hold_patch(name, b"content");
    }
    let key = site.hold_patch("old", b"content");
    for (asking, asked, handshakes) in [
        (&old, &middle, 0),
        (&middle, &old, 0),
        (&middle, &new, 1),
        (&new, &middle, 1),
    ] {
        let before = asked.stats().events(Event::Handshake);
        assert_eq!(fetch_from(&site, asking, asked.url(), key).unwrap(), 7);
        assert_eq!(asked.stats().events(Event::Handshake) - before, handshakes);
    }
}

#[test]
fn new_certificates_are_taken_up_without_a_restart() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let a = open(&site, "a", strict(authority.issue("a", "127.0.0.1")));
    let b = open(&site, "b", strict(authority.issue("b", "127.0.0.1")));
    let key = site.hold_patch("a", b"content");
    fetch_from(&site, &b, a.url(), key).unwrap();
    // Another authority for all: each connection is judged by what its ends had read.
    let successor = Authority::new(&site);
    successor.issue("a", "127.0.0.1");
    successor.issue("b", "127.0.0.1");
    b.reload_tls().unwrap();
    untrusted(fetch_from(&site, &b, a.url(), key));
    a.reload_tls().unwrap();
    assert_eq!(fetch_from(&site, &b, a.url(), key).unwrap(), 7);
    // What cannot be used changes nothing.
    std::fs::write(site.path("a.cert"), "half of a certif").unwrap();
    let error = a.reload_tls().unwrap_err();
    assert!(error.to_string().contains("tls_cert_file"), "{error}");
    b.reload_tls().unwrap();
    assert_eq!(fetch_from(&site, &b, a.url(), key).unwrap(), 7);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let good = authority.issue("good", "127.0.0.1");
    let other = authority.issue("other", "127.0.0.1");
    let nothing = site.path("nothing");
    let empty = site.path("empty");
    write_key(&empty, "");
    let exposed = site.path("exposed");
    std::fs::copy(&good.key, &exposed).unwrap();
    std::fs::set_permissions(&exposed, PermissionsExt::from_mode(0o644)).unwrap();
    let (ca, cert, key) = (&good.ca, &good.cert, &good.key);
    for (files, option) in [
        ((&nothing, cert, key), "tls_ca_file"),
        ((&empty, cert, key), "tls_ca_file"),
        ((ca, &nothing, key), "tls_cert_file"),
        ((ca, key, key), "tls_cert_file"),
        ((ca, cert, &nothing), "tls_key_file"),
        ((ca, cert, &empty), "tls_key_file"),
        ((ca, cert, &exposed), "chmod o="),
        ((ca, cert, &other.key), "cannot be used together"),
    ] {
        let (ca, cert, key) = (files.0.clone(), files.1.clone(), files.2.clone());
        let tls = strict(Files {
            ca,
            cert,
            key,
            crl: None,
        });
        let opened = DataPlane::open(Config {
            tls,
            ..site.config("a")
        });
        let error = opened.err().unwrap();
        assert!(matches!(error, TransferError::Invalid(_)), "{error}");
        assert!(error.to_string().contains(option), "{option}: {error}");
    }
    let plain = PlainPeers::Refused;
    assert!(Options::from_files(None, None, None, None, plain)
        .unwrap()
        .is_none());
    assert!(Options::from_files(Some(good.ca.clone()), None, None, None, plain).is_err());
}

#[test]
fn what_peers_are_told_has_to_be_what_they_find() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let files = authority.issue("a", "127.0.0.1");
    for (tls, url, good) in [
        (None, "https://host:1", false),
        (strict(files.clone()), "http://host:1", false),
        (strict(files.clone()), "https://host:1", true),
        (tolerant(files.clone()), "http://host:1", true),
        (tolerant(files), "https://host:1", true),
    ] {
        let opened = DataPlane::open(Config {
            tls,
            advertise_url: Some(url.to_owned()),
            ..site.config("a")
        });
        assert_eq!(opened.is_ok(), good, "{url}");
    }
}

#[test]
fn a_revoked_certificate_opens_nothing_any_more() {
    let site = Site::new();
    let authority = Authority::new(&site);
    let crl = site.path("revoked.pem");
    authority.revoke(&crl, &[]);
    let open_as = |name: &str, serial: u64| {
        let files = authority.issue_changed(name, "127.0.0.1", |params| {
            params.serial_number = Some(SerialNumber::from(serial));
        });
        let crl = Some(crl.clone());
        open(&site, name, strict(Files { crl, ..files }))
    };
    let (a, b, c) = (open_as("a", 1), open_as("b", 2), open_as("c", 3));
    let key = site.hold_patch("a", b"content");
    let theirs = site.hold_patch("b", b"theirs");
    for plane in [&b, &c] {
        fetch_from(&site, plane, a.url(), key).unwrap();
    }
    authority.revoke(&crl, &[2]);
    for plane in [&a, &c] {
        plane.reload_tls().unwrap();
    }
    // Neither over the connection that it has, nor over a new one.
    let reason = untrusted(fetch_from(&site, &b, a.url(), key));
    assert!(
        reason.contains("refuses this host's certificate"),
        "{reason}"
    );
    until("it is noticed", || {
        a.take_complaints()
            .iter()
            .any(|one| one.reason.contains("revoked (tls_crl_file)"))
    });
    let reason = untrusted(fetch_from(&site, &a, b.url(), theirs));
    assert!(reason.contains("revoked"), "{reason}");
    fetch_from(&site, &c, a.url(), key).unwrap();
    // A list that cannot be read is no reason to forget the last one.
    std::fs::write(&crl, "nonsense").unwrap();
    let error = a.reload_tls().unwrap_err().to_string();
    assert!(error.contains("tls_crl_file"), "{error}");
    untrusted(fetch_from(&site, &b, a.url(), key));
}
