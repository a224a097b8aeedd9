//! Tests of the keyed code over every request.

use super::*;

const REQUEST: Signed<'static> = Signed {
    method: "GET",
    path: "/v1/objects/patches/aa",
    range: "bytes=0-9",
    body: b"",
};

const HERE: (&str, &str) = ("host-a:9192", "10.0.0.7:9192");

fn key() -> SiteKey {
    SiteKey::new("site-1", b"sixteen bytes or more").unwrap()
}

const BOOT: &str = "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b";

const TO: Destination<'static> = Destination {
    authority: "host-a:9192",
    boot: BOOT,
};

fn verifier() -> Verifier {
    let keys = Keys::single(key());
    Verifier::new(keys, "host-a:9192", BOOT)
}

#[test]
fn a_request_is_accepted_by_the_host_and_boot_that_it_names_alone() {
    let to = |authority| Destination {
        authority,
        boot: BOOT,
    };
    let sign = |to, nonce| key().authorization(&REQUEST, to, 1000, &[nonce; 16]);
    let verify = |header: &str, host: &str| {
        let local = "10.0.0.7:9192";
        verifier().verify(Some(header), &REQUEST, (host, local), 1000)
    };
    let header = sign(to("host-a:9192"), 1);
    assert_eq!(verify(&header, "host-a:9192"), Ok(Accepted::Bound));
    // Neither can the destination be exchanged, nor the boot.
    assert_eq!(verify(&header, "host-b:9192"), Err(AuthError::WrongKey));
    let forged = header.replace(BOOT, &"0c".repeat(16));
    assert_eq!(verify(&forged, "host-a:9192"), Err(AuthError::WrongKey));
    let unbound = header.strip_suffix(&format!(":{BOOT}")).unwrap();
    assert_eq!(verify(unbound, "host-a:9192"), Err(AuthError::Malformed));
    let elsewhere = sign(to("host-b:9192"), 2);
    assert_eq!(
        verify(&elsewhere, "host-b:9192"),
        Err(AuthError::WrongDestination("host-b:9192".to_owned()))
    );
    let by_address = sign(to("10.0.0.7:9192"), 3);
    assert_eq!(verify(&by_address, "10.0.0.7:9192"), Ok(Accepted::Bound));
    let restarted = "0c".repeat(16);
    let earlier = sign(
        Destination {
            authority: "host-a:9192",
            boot: &restarted,
        },
        4,
    );
    assert_eq!(verify(&earlier, "host-a:9192"), Err(AuthError::StaleBoot));
    let introduction = sign(
        Destination {
            authority: "HOST-A:9192",
            boot: NO_BOOT,
        },
        5,
    );
    assert_eq!(
        verify(&introduction, "HOST-A:9192"),
        Ok(Accepted::Introduction)
    );
}

/// Computed with another implementation of HMAC, from the text that the protocol's page specifies.
#[test]
fn requests_are_signed_as_specified() {
    let nonce = "01".repeat(16);
    let specified = format!("DiffCache site-1:1000:{nonce}:7c1f8e0b83e5a45f2211b24c0fe39a17f51f92fd8849535a8c6fb0677fcb34be:{BOOT}");
    assert_eq!(key().authorization(&REQUEST, TO, 1000, &[1; 16]), specified);
    let found = verifier().verify(Some(&specified), &REQUEST, HERE, 1000);
    assert_eq!(found, Ok(Accepted::Bound));
}

#[test]
fn two_keys_are_accepted_while_one_is_exchanged() {
    let next = SiteKey::new("site-2", b"another secret, long enough").unwrap();
    let same_name = SiteKey::new("site-1", b"a third secret, long enough").unwrap();
    let sign = |key: &SiteKey, nonce| key.authorization(&REQUEST, TO, 1000, &[nonce; 16]);
    let verifier = verifier();
    let verify = |header: String| {
        verifier
            .verify(Some(&header), &REQUEST, HERE, 1000)
            .map(drop)
    };
    assert_eq!(verify(sign(&next, 1)), Err(AuthError::UnknownKey));
    verifier.set_keys(Keys {
        signing: key(),
        accepted: vec![next.clone(), same_name.clone()],
    });
    for (number, key) in [&key(), &next, &same_name].into_iter().enumerate() {
        assert_eq!(verify(sign(key, 10 + number as u8)), Ok(()));
    }
    verifier.set_keys(Keys::single(next.clone()));
    assert_eq!(verify(sign(&key(), 20)), Err(AuthError::UnknownKey));
    assert_eq!(verify(sign(&next, 21)), Ok(()));
}

#[test]
fn what_the_key_signed_is_accepted_once() {
    let header = key().authorization(&REQUEST, TO, 1000, &[7; 16]);
    let verifier = verifier();
    assert_eq!(
        verifier.verify(Some(&header), &REQUEST, HERE, 1300),
        Ok(Accepted::Bound)
    );
    assert_eq!(
        verifier.verify(Some(&header), &REQUEST, HERE, 1300),
        Err(AuthError::Replayed)
    );
}

#[test]
fn each_covered_part_counts() {
    let header = key().authorization(&REQUEST, TO, 1000, &[7; 16]);
    let verifier = verifier();
    for changed in [
        Signed {
            method: "HEAD",
            ..REQUEST
        },
        Signed {
            path: "/v1/objects/patches/ab",
            ..REQUEST
        },
        Signed {
            range: "bytes=0-8",
            ..REQUEST
        },
        Signed {
            body: b"x",
            ..REQUEST
        },
    ] {
        assert_eq!(
            verifier.verify(Some(&header), &changed, HERE, 1000),
            Err(AuthError::WrongKey)
        );
    }
    for (old, new) in [(":1000:", ":1001:"), ("0707", "0708")] {
        let forged = header.replacen(old, new, 1);
        assert_eq!(
            verifier.verify(Some(&forged), &REQUEST, HERE, 1000),
            Err(AuthError::WrongKey)
        );
    }
    assert_eq!(
        verifier.verify(Some(&header), &REQUEST, HERE, 1000),
        Ok(Accepted::Bound)
    );
}

#[test]
fn refusals_name_their_reason() {
    let verifier = verifier();
    let at = |time| key().authorization(&REQUEST, TO, time, &[1; 16]);
    assert_eq!(
        verifier.verify(None, &REQUEST, HERE, 0),
        Err(AuthError::Missing)
    );
    for text in [
        "",
        "Basic abc",
        "DiffCache ",
        "DiffCache a:b:c:d",
        "DiffCache a:1:2",
        "DiffCache a:+1:2:3",
    ] {
        assert_eq!(
            verifier.verify(Some(text), &REQUEST, HERE, 0),
            Err(AuthError::Malformed),
            "{text}"
        );
    }
    assert_eq!(
        verifier.verify(Some(&at(1000)), &REQUEST, HERE, 1301),
        Err(AuthError::StaleClock(301))
    );
    assert_eq!(
        verifier.verify(Some(&at(1301)), &REQUEST, HERE, 1000),
        Err(AuthError::StaleClock(301))
    );
    let other = SiteKey::new("site-1", b"another secret, long enough").unwrap();
    assert_eq!(
        verifier.verify(
            Some(&other.authorization(&REQUEST, TO, 0, &[1; 16])),
            &REQUEST,
            HERE,
            0
        ),
        Err(AuthError::WrongKey)
    );
    let renamed = SiteKey::new("site-2", b"sixteen bytes or more").unwrap();
    assert_eq!(
        verifier.verify(
            Some(&renamed.authorization(&REQUEST, TO, 0, &[1; 16])),
            &REQUEST,
            HERE,
            0
        ),
        Err(AuthError::UnknownKey)
    );
}

#[test]
fn keys_are_long_enough_and_never_shown() {
    assert_eq!(
        SiteKey::new("a", b"short").unwrap_err(),
        KeyError::TooShort(5)
    );
    assert_eq!(
        SiteKey::new("a:b", &[0; 32]).unwrap_err(),
        KeyError::BadName
    );
    assert_eq!(format!("{:?}", key()), "SiteKey(site-1)");
}

#[test]
fn the_memory_of_nonces_spans_two_generations() {
    let start = Instant::now();
    let mut seen = Seen {
        recent: HashSet::new(),
        older: HashSet::new(),
        rotated: start,
    };
    assert!(seen.insert([1; 16], start));
    let later = start + Duration::from_secs(2 * CLOCK_WINDOW + 1);
    assert!(!seen.insert([1; 16], later));
    let much_later = later + Duration::from_secs(2 * CLOCK_WINDOW + 1);
    assert!(seen.insert([2; 16], much_later));
    assert!(seen.insert([1; 16], much_later));
}

#[test]
fn nonces_differ() {
    assert_ne!(fresh_nonce().unwrap(), fresh_nonce().unwrap());
}
