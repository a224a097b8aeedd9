//! Who is answered, and who holds a claim.

use super::*;

#[test]
fn only_the_site_key_opens() {
    let site = Site::new();
    let plane = site.plane("a");
    let key = site.hold_patch("a", b"0123456789");
    let path = key.object_path();
    let site_key = SiteKey::new("site", &[7; 32]).unwrap();
    let refused = ask(&plane, "GET", &path, "", "");
    let (_, boot) = refused.split_once("X-DiffCache-Boot: ").unwrap();
    let (boot, _) = boot.split_once("\r\n").unwrap();
    let authority = plane.address().to_string();
    let to = Destination {
        authority: &authority,
        boot,
    };
    let sign = |key: &SiteKey, time: u64, path: &str| {
        let signed = Signed {
            method: "GET",
            path,
            range: "",
            body: b"",
        };
        let credentials = key.authorization(&signed, to, time, &fresh_nonce().unwrap());
        format!("Host: {authority}\r\nAuthorization: {credentials}\r\n")
    };
    let now = unix_now();
    let good = sign(&site_key, now, &path);
    assert!(ask(&plane, "GET", &path, &good, "").starts_with("HTTP/1.1 200 "));
    let wrong = SiteKey::new("site", &[8; 32]).unwrap();
    let named = SiteKey::new("other", &[7; 32]).unwrap();
    for (fields, reason) in [
        (String::new(), "no-credentials"),
        (good, "replayed"),
        (sign(&wrong, now, &path), "wrong-key"),
        (sign(&named, now, &path), "unknown-key"),
        (sign(&site_key, now - 400, &path), "stale-clock"),
        (sign(&site_key, now + 400, &path), "stale-clock"),
        (sign(&site_key, now, "/v1/health"), "wrong-key"),
        (
            "Authorization: Bearer abc\r\n".to_owned(),
            "malformed-credentials",
        ),
    ] {
        let answer = ask(&plane, "GET", &path, &fields, "");
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        assert!(
            body(&answer).contains(&format!("\"reason\":\"{reason}\"")),
            "{reason}: {answer}"
        );
    }
    assert_eq!(plane.stats().events(Event::Refused), 9);
}

#[test]
fn a_refused_client_names_the_peer_and_the_key() {
    let site = Site::new();
    let a = site.plane("a");
    let held = site.hold("a", &image(30, |leaf| leaf % 2 == 0));
    let other = DataPlane::open(Config {
        keys: Some(Keys::single(SiteKey::new("other-key", &[1; 32]).unwrap())),
        ..site.config("b")
    })
    .unwrap();
    let dest = site.path("b/output");
    let fetched = other.fetch(
        &remote(&a, held.key),
        Some(&held.manifest_path),
        None,
        &job(&dest),
    );
    let error = fetched.unwrap_err();
    assert!(
        matches!(error, TransferError::PeerRefused { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("other-key") && error.to_string().contains(a.url()),
        "{error}"
    );
    let claimed = other
        .claimant
        .claim_at(&Peer::parse(a.url()).unwrap(), held.key, None);
    assert!(matches!(claimed, Err(TransferError::PeerRefused { .. })));
    assert!(!dest.exists());
}

#[test]
fn without_a_key_only_loopback_is_served() {
    let site = Site::new();
    let open = |listen: &str, url: Option<&str>| {
        DataPlane::open(Config {
            keys: None,
            listen: listen.to_owned(),
            advertise_url: url.map(str::to_owned),
            ..site.config("a")
        })
    };
    assert!(matches!(
        open("0.0.0.0:0", None),
        Err(TransferError::Invalid(_))
    ));
    assert!(matches!(
        open("nonsense", None),
        Err(TransferError::Invalid(_))
    ));
    assert!(matches!(
        open("127.0.0.1:0", Some("ftp://x")),
        Err(TransferError::Invalid(_))
    ));
    let plane = open("127.0.0.1:0", Some("http://host-a:8443")).unwrap();
    assert_eq!(plane.url(), "http://host-a:8443");
    open("127.0.0.1:0", None).unwrap();
}

#[test]
fn claims_pass_between_hosts() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let key = site.hold_patch("nowhere", b"x");
    let at = Peer::parse(a.url()).unwrap();
    assert_eq!(b.claimant.claim_at(&at, key, None).unwrap().name, "b");
    for plane in [&a, &c] {
        let holder = plane.claimant.claim_at(&at, key, None).unwrap();
        assert_eq!((holder.name.as_str(), holder.url.as_str()), ("b", b.url()));
    }
    c.claimant.release_at(&at, key).unwrap();
    assert_eq!(a.claimant.claim_at(&at, key, Some("b")).unwrap().name, "a");
    assert_eq!(c.claimant.claim_at(&at, key, Some("b")).unwrap().name, "a");
    a.claimant.release_at(&at, key).unwrap();
    assert_eq!(c.claimant.claim_at(&at, key, None).unwrap().name, "c");
    assert_eq!(a.stats().claims, 1);
    c.claimant.release_at(&at, key).unwrap();
    assert_eq!(a.stats().claims, 0);
    a.close();
    let error = b.claimant.claim_at(&at, key, None).unwrap_err();
    assert!(
        matches!(error, TransferError::PeerUnavailable { .. }),
        "{error}"
    );
}

#[test]
fn a_claim_is_shown_and_not_changed() {
    let site = Site::new();
    let plane = open_plane(&site, Limits::default());
    let key = site.hold_patch("nowhere", b"x");
    let shown = || ask(&plane, "GET", &key.claim_path(), "", "");
    let answer = shown();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(body(&answer), "null");
    let at = Peer::parse(plane.url()).unwrap();
    let holder = plane.claimant.claim_at(&at, key, None).unwrap();
    let text = format!(
        "{{\"holder\":\"{}\",\"url\":\"{}\"}}",
        holder.name, holder.url
    );
    assert_eq!(body(&shown()), text);
    assert_eq!(body(&shown()), text);
    plane.claimant.release_at(&at, key).unwrap();
    assert_eq!(body(&shown()), "null");
    assert_eq!(plane.stats().events(Event::Failed), 0);
}
