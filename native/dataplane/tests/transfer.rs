//! Objects between planes: fetched, built, interrupted, read while they arrive.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{assert_sent, image, job, remote, site_key, until, Bytes, Site};
use diffcache_core::manifest::LEAF_SIZE;
use diffcache_core::patch::{create, CreateOptions};
use diffcache_core::source::ReadAt;
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::build::Place;
use diffcache_dataplane::fetching::client::{Client, Stop};
use diffcache_dataplane::fetching::peer::{Peer, Remote};
use diffcache_dataplane::fetching::source::HttpSource;
use diffcache_dataplane::gate::Cancel;
use diffcache_dataplane::ids::Kind;
use diffcache_dataplane::plane::{Config, DataPlane, Job};
use diffcache_dataplane::serving::service::Limits;
use diffcache_dataplane::transport::auth::Keys;

#[test]
fn a_template_arrives_sparse_and_only_its_data_crosses() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = image(300, |leaf| leaf % 7 == 0 || (100..200).contains(&leaf));
    let held = site.hold("a", &bytes);
    let dest = site.path("b/output");
    let received = b
        .fetch(
            &remote(&a, held.key),
            Some(&held.manifest_path),
            None,
            &job(&dest),
        )
        .unwrap();
    assert_eq!(std::fs::read(&dest).unwrap(), bytes);
    assert_eq!(received, held.manifest.data_size());
    assert_sent(&a, Kind::Templates, held.manifest.data_size());
    assert_eq!(b.stats().counters.received(Kind::Templates), received);
    let on_disk = std::fs::metadata(&dest).unwrap().blocks() * 512;
    assert!(on_disk <= received + LEAF_SIZE, "{on_disk}");
    assert_eq!(std::fs::read_dir(site.path("b")).unwrap().count(), 7);
}

#[test]
fn manifests_patches_and_forms_arrive_whole() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let held = site.hold("a", &image(40, |leaf| leaf % 2 == 0));
    let patch = site.hold_patch("a", &Bytes(5).take(3_000_001));
    let empty = site.hold_patch("a", b"");
    let form = site.hold_blob("a", Kind::Recipes, &Bytes(6).take(70_001));
    for key in [held.manifest_key, patch, empty, form] {
        b.fetch(&remote(&a, key), None, None, &job(&site.held("b", key)))
            .unwrap();
        let (theirs, ours) = (site.held("a", key), site.held("b", key));
        assert_eq!(std::fs::read(theirs).unwrap(), std::fs::read(ours).unwrap());
    }
}

#[test]
fn damage_is_told_and_leaves_nothing_at_the_destination() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = image(20, |_| false);
    let held = site.hold("a", &bytes);
    let patch = site.hold_patch("a", &Bytes(5).take(100_000));
    let damage = |key, at: u64| {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(site.held("a", key))
            .unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"damage", at).unwrap();
    };
    damage(held.key, 10 * LEAF_SIZE + 5);
    damage(patch, 50);
    let dest = site.path("b/output");
    let other = site.path("b/other");
    for (key, manifest, dest) in [
        (held.key, Some(held.manifest_path.as_path()), &dest),
        (patch, None, &other),
    ] {
        let error = b
            .fetch(&remote(&a, key), manifest, None, &job(dest))
            .unwrap_err();
        assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
        assert!(!dest.exists());
    }
    std::fs::write(site.held("a", held.key), &bytes).unwrap();
    let received = b
        .fetch(
            &remote(&a, held.key),
            Some(&held.manifest_path),
            None,
            &job(&dest),
        )
        .unwrap();
    assert_eq!(received, bytes.len() as u64 - 10 * LEAF_SIZE);
    assert_eq!(std::fs::read(&dest).unwrap(), bytes);
}

#[test]
fn a_copy_of_another_size_is_refused() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = image(20, |_| false);
    let held = site.hold("a", &bytes);
    for size in [5 * LEAF_SIZE, bytes.len() as u64 + 1] {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(site.held("a", held.key))
            .unwrap();
        file.set_len(size).unwrap();
        let error = b
            .fetch(
                &remote(&a, held.key),
                Some(&held.manifest_path),
                None,
                &job(&site.path("x")),
            )
            .unwrap_err();
        assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
    }
}

#[test]
fn a_cancelled_fetch_goes_on_where_it_was() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = image(100, |_| false);
    let held = site.hold("a", &bytes);
    let patch = site.hold_patch("a", &bytes[..5_000_000]);
    for (key, manifest, size) in [
        (
            held.key,
            Some(held.manifest_path.as_path()),
            bytes.len() as u64,
        ),
        (patch, None, 5_000_000),
    ] {
        let dest = site.path("b/output");
        let cancel = Cancel::default();
        let arrived = AtomicU64::new(0);
        let report = |done: u64, _| {
            arrived.store(done, Ordering::SeqCst);
            done < size / 4
        };
        let limited = Job {
            cancel: cancel.clone(),
            report: Some(&report),
            ..job(&dest)
        };
        let error = b
            .fetch(&remote(&a, key), manifest, Some(4e6), &limited)
            .unwrap_err();
        assert!(matches!(error, TransferError::Cancelled { .. }), "{error}");
        assert!(!dest.exists());
        let kept = arrived.load(Ordering::SeqCst);
        assert!(kept >= size / 4);
        let received = b
            .fetch(&remote(&a, key), manifest, None, &job(&dest))
            .unwrap();
        assert!(received <= size - kept, "{received} of {size} after {kept}");
        assert_eq!(std::fs::read(&dest).unwrap(), &bytes[..size as usize]);
        std::fs::remove_file(&dest).unwrap();
    }
}

#[test]
fn what_is_found_in_a_part_is_verified_before_use() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = image(20, |leaf| leaf == 3);
    let held = site.hold("a", &bytes);
    let dest = site.path("b/output");
    let mut found = bytes.clone();
    let leaf = LEAF_SIZE as usize;
    found[3 * leaf + 7] = 1;
    found[5 * leaf + 7] ^= 1;
    found.extend_from_slice(b"more than there should be");
    std::fs::write(site.path("b/.output.part"), &found).unwrap();
    let received = b
        .fetch(
            &remote(&a, held.key),
            Some(&held.manifest_path),
            None,
            &job(&dest),
        )
        .unwrap();
    assert_eq!(received, LEAF_SIZE);
    assert_eq!(std::fs::read(&dest).unwrap(), bytes);

    let patch = site.hold_patch("a", &bytes[..100_000]);
    for found in [&bytes[..40_000], &bytes[..100_000], &bytes[..200_000]] {
        std::fs::write(site.path("b/.output.part"), found).unwrap();
        b.fetch(&remote(&a, patch), None, None, &job(&dest))
            .unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), &bytes[..100_000]);
    }
    std::fs::write(site.path("b/.output.part"), b"something else").unwrap();
    // What of it was wrong is asked for again, and the peer is not blamed.
    let received = b
        .fetch(&remote(&a, patch), None, None, &job(&dest))
        .unwrap();
    assert_eq!(received, 100_000);
    assert_eq!(std::fs::read(&dest).unwrap(), &bytes[..100_000]);
    assert!(b.take_complaints().is_empty());
}

#[test]
fn peers_read_behind_an_arriving_template() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let bytes = image(100, |leaf| leaf % 10 == 0);
    let held = site.hold("a", &bytes);
    a.set_rate(Some(8e6)).unwrap();
    let (one, two) = (site.path("b/one"), site.path("c/two"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            b.fetch(
                &remote(&a, held.key),
                Some(&held.manifest_path),
                None,
                &job(&one),
            )
        });
        until("the object is in flight", || b.stats().in_flight == 1);
        c.fetch(
            &remote(&b, held.key),
            Some(&held.manifest_path),
            None,
            &job(&two),
        )
        .unwrap();
        first.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&one).unwrap(), bytes);
    assert_eq!(std::fs::read(&two).unwrap(), bytes);
    assert_sent(&a, Kind::Templates, held.manifest.data_size());
    assert_sent(&b, Kind::Templates, held.manifest.data_size());
    c.fetch(
        &remote(&b, held.key),
        Some(&held.manifest_path),
        None,
        &job(&two),
    )
    .unwrap();
    b.lend(held.key, &one, Duration::ZERO).unwrap();
    let again = c.fetch(
        &remote(&b, held.key),
        Some(&held.manifest_path),
        None,
        &job(&two),
    );
    assert!(matches!(again, Err(TransferError::ObjectMissing { .. })));
}

#[test]
fn any_range_of_an_arriving_template_is_right() {
    let site = Site::new();
    let a = site.plane("a");
    let bytes = image(60, |leaf| leaf % 4 == 1);
    let held = site.hold("nowhere", &bytes);
    site.hold("a", &bytes);
    a.set_rate(Some(8e6)).unwrap();
    let c = site.plane("c");
    let dest = site.path("c/output");
    std::thread::scope(|scope| {
        let job = Job {
            lend: Duration::from_secs(600),
            ..job(&dest)
        };
        let (a, c, held, bytes) = (&a, &c, &held, &bytes);
        scope.spawn(move || {
            c.fetch(&remote(a, held.key), Some(&held.manifest_path), None, &job)
                .unwrap();
        });
        until("the object is in flight", || c.stats().in_flight == 1);
        for thread in 0..4 {
            scope.spawn(move || {
                let client = Client::new(
                    Some(Keys::single(site_key())),
                    Duration::from_secs(20),
                    Arc::default(),
                );
                let stop = Stop::new(Cancel::default(), Arc::default());
                let source = HttpSource::open(Arc::new(client), remote(c, held.key), stop).unwrap();
                assert_eq!(source.len(), bytes.len() as u64);
                let mut random = Bytes(0x1234_5678 + thread);
                for _ in 0..25 {
                    let start = random.next() as usize % bytes.len();
                    let length = random.next() as usize % (bytes.len() - start).min(300_000);
                    let mut buffer = vec![0; length];
                    source.read_exact_at(&mut buffer, start as u64).unwrap();
                    assert!(buffer == bytes[start..start + length]);
                }
            });
        }
    });
}

#[test]
fn peers_read_behind_an_arriving_patch() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let patch = site.hold_patch("a", &Bytes(9).take(4_000_000));
    a.set_rate(Some(8e6)).unwrap();
    std::thread::scope(|scope| {
        let first =
            scope.spawn(|| b.fetch(&remote(&a, patch), None, None, &job(&site.held("b", patch))));
        until("the object is in flight", || b.stats().in_flight == 1);
        c.fetch(&remote(&b, patch), None, None, &job(&site.held("c", patch)))
            .unwrap();
        first.join().unwrap().unwrap();
    });
    assert_sent(&a, Kind::Patches, 4_000_000);
}

#[test]
fn readers_of_a_transfer_that_fails_are_sent_away() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let held = site.hold("a", &image(100, |_| false));
    a.set_rate(Some(1e6)).unwrap();
    let cancel = Cancel::default();
    let (one, two) = (site.path("b/one"), site.path("c/two"));
    std::thread::scope(|scope| {
        let cancelled = Job {
            cancel: cancel.clone(),
            ..job(&one)
        };
        let held = &held;
        let (a, b, c, two) = (&a, &b, &c, &two);
        let first = scope.spawn(move || {
            b.fetch(
                &remote(a, held.key),
                Some(&held.manifest_path),
                None,
                &cancelled,
            )
        });
        until("the object is in flight", || b.stats().in_flight == 1);
        let second = scope.spawn(move || {
            c.fetch(
                &remote(b, held.key),
                Some(&held.manifest_path),
                None,
                &job(two),
            )
        });
        until("somebody reads behind", || b.readers(held.key) == 1);
        cancel.cancel();
        assert!(matches!(
            first.join().unwrap(),
            Err(TransferError::Cancelled { .. })
        ));
        let error = second.join().unwrap().unwrap_err();
        assert!(
            matches!(
                error,
                TransferError::PeerUnavailable { .. } | TransferError::ObjectMissing { .. }
            ),
            "{error}"
        );
    });
    a.set_rate(None).unwrap();
    c.fetch(
        &remote(&a, held.key),
        Some(&held.manifest_path),
        None,
        &job(&two),
    )
    .unwrap();
}

#[test]
fn a_holder_that_stalls_is_left() {
    let site = Site::new();
    let a = site.plane("a");
    let limits = Limits {
        stall: Duration::from_millis(200),
        ..Limits::default()
    };
    let b = DataPlane::open(diffcache_dataplane::plane::Config {
        limits,
        ..site.config("b")
    })
    .unwrap();
    let c = site.plane("c");
    let held = site.hold("a", &image(10, |_| false));
    // One slice a minute, as good as nothing.
    a.set_rate(Some(4.0)).unwrap();
    let cancel = Cancel::default();
    let dest = site.path("b/one");
    std::thread::scope(|scope| {
        let cancelled = Job {
            cancel: cancel.clone(),
            ..job(&dest)
        };
        let (a, b, held) = (&a, &b, &held);
        scope.spawn(move || {
            b.fetch(
                &remote(a, held.key),
                Some(&held.manifest_path),
                None,
                &cancelled,
            )
            .unwrap_err()
        });
        until("the object is in flight", || b.stats().in_flight == 1);
        let error = c
            .fetch(
                &remote(b, held.key),
                Some(&held.manifest_path),
                None,
                &job(&site.path("c/two")),
            )
            .unwrap_err();
        assert!(
            matches!(error, TransferError::PeerUnavailable { .. }),
            "{error}"
        );
        assert!(error.to_string().contains("nothing came"), "{error}");
        cancel.cancel();
        a.set_rate(None).unwrap();
    });
}

#[test]
fn an_object_is_fetched_once_at_a_time() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let patch = site.hold_patch("a", &Bytes(9).take(1_000_000));
    a.set_rate(Some(2e6)).unwrap();
    std::thread::scope(|scope| {
        let first =
            scope.spawn(|| b.fetch(&remote(&a, patch), None, None, &job(&site.path("b/one"))));
        until("the object is in flight", || b.stats().in_flight == 1);
        let second = b.fetch(&remote(&a, patch), None, None, &job(&site.path("b/two")));
        assert!(matches!(second, Err(TransferError::AlreadyInFlight { .. })));
        first.join().unwrap().unwrap();
    });
    assert!(!site.path("b/two").exists());
}

#[test]
fn an_evicted_object_is_served_to_its_end() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = Bytes(9).take(2_000_000);
    let patch = site.hold_patch("a", &bytes);
    a.set_rate(Some(4e6)).unwrap();
    let dest = site.path("b/one");
    std::thread::scope(|scope| {
        let fetched = scope.spawn(|| b.fetch(&remote(&a, patch), None, None, &job(&dest)));
        until("somebody reads", || a.readers(patch) == 1);
        std::fs::remove_file(site.held("a", patch)).unwrap();
        fetched.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&dest).unwrap(), bytes);
    until("nobody reads", || a.readers(patch) == 0);
}

#[test]
fn a_finished_output_can_be_lent() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let held = site.hold("a", &image(10, |_| false));
    let dest = site.path("b/output");
    let lent = Job {
        lend: Duration::from_secs(600),
        ..job(&dest)
    };
    b.fetch(
        &remote(&a, held.key),
        Some(&held.manifest_path),
        None,
        &lent,
    )
    .unwrap();
    std::fs::rename(&dest, site.path("b/elsewhere")).unwrap();
    let fetch = || {
        c.fetch(
            &remote(&b, held.key),
            Some(&held.manifest_path),
            None,
            &job(&site.path("c/two")),
        )
    };
    fetch().unwrap();
    b.lend(held.key, &site.path("b/elsewhere"), Duration::ZERO)
        .unwrap();
    assert!(matches!(fetch(), Err(TransferError::ObjectMissing { .. })));
    b.lend(
        held.key,
        &site.path("b/elsewhere"),
        Duration::from_secs(600),
    )
    .unwrap();
    fetch().unwrap();
}

#[test]
fn closing_ends_what_is_under_way() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let patch = site.hold_patch("a", &Bytes(9).take(1_000_000));
    a.set_rate(Some(1000.0)).unwrap();
    std::thread::scope(|scope| {
        let dest = site.path("b/one");
        let (a, b) = (&a, &b);
        let fetched = scope.spawn(move || b.fetch(&remote(a, patch), None, None, &job(&dest)));
        until("the object is in flight", || a.readers(patch) == 1);
        b.close();
        assert!(matches!(
            fetched.join().unwrap(),
            Err(TransferError::Cancelled { .. })
        ));
        a.close();
    });
    assert_eq!(a.stats().connections, 0);
    let error = b
        .fetch(&remote(&a, patch), None, None, &job(&site.path("x")))
        .unwrap_err();
    assert!(matches!(error, TransferError::Cancelled { .. }));
    a.close();
}

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
    let error = b
        .fetch(
            &Remote {
                peer,
                key,
                trace: None,
            },
            None,
            None,
            &job(&site.path("x")),
        )
        .unwrap_err();
    assert!(
        matches!(error, TransferError::PeerUnavailable { .. }),
        "{error}"
    );
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec();
    let rest = part("Content-Range: bytes 400-999/1000\r\n", &bytes[400..]);
    let peer = broken_peer(vec![[head, rest].concat()]);
    b.fetch(
        &Remote {
            peer,
            key,
            trace: None,
        },
        None,
        None,
        &job(&site.path("x")),
    )
    .unwrap();
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
        let error = b
            .fetch(
                &Remote {
                    peer,
                    key,
                    trace: None,
                },
                None,
                None,
                &job(&site.path("x")),
            )
            .unwrap_err();
        assert!(
            matches!(error, TransferError::PeerUnavailable { .. }),
            "{answer}: {error}"
        );
    }
    let wrong = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n9876543210";
    let peer = broken_peer(vec![wrong.into()]);
    let dest = site.path("y");
    let error = b
        .fetch(
            &Remote {
                peer,
                key,
                trace: None,
            },
            None,
            None,
            &job(&dest),
        )
        .unwrap_err();
    assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
    let endless = "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n";
    let peer = broken_peer(vec![endless.into(), endless.into()]);
    let error = b
        .fetch(
            &Remote {
                peer,
                key,
                trace: None,
            },
            None,
            None,
            &job(&dest),
        )
        .unwrap_err();
    // The peer breaks off; the disk is not full because it says so.
    assert!(
        matches!(error, TransferError::PeerUnavailable { .. }),
        "{error}"
    );
    assert!(!dest.exists());
}

struct Family {
    base: common::Image,
    target: common::Image,
    patch: diffcache_dataplane::ids::ObjectKey,
    bytes: Vec<u8>,
}

/// A base at `a`, a target at `r` and a patch between them at `a`.
fn family(site: &Site) -> Family {
    let base = image(120, |leaf| leaf % 9 == 0);
    let mut bytes = base.clone();
    bytes.extend_from_slice(&Bytes(77).take(900_000));
    bytes[40 * LEAF_SIZE as usize..][..300_000].copy_from_slice(&Bytes(78).take(300_000));
    let path = site.path("patch");
    create(&base, &bytes, &path, &CreateOptions::default()).unwrap();
    let (base, target) = (site.hold("a", &base), site.hold("r", &bytes));
    let patch = site.hold_patch("a", &std::fs::read(&path).unwrap());
    Family {
        base,
        target,
        patch,
        bytes,
    }
}

#[test]
fn a_template_is_built_from_what_lies_elsewhere() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let family = family(&site);
    let local = |key| Place::Local(site.held("a", key));
    let far = |key| Place::Remote(remote(&a, key), None);
    let dest = site.path("b/output");
    let (base, patch) = (family.base.key, family.patch);
    for (base, patch) in [
        (local(base), local(patch)),
        (far(base), local(patch)),
        (local(base), far(patch)),
        (far(base), far(patch)),
    ] {
        let built = b
            .build(
                &base,
                &patch,
                &family.target.manifest_path,
                None,
                &job(&dest),
            )
            .unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), family.bytes);
        assert_eq!(built.base_bytes > 0, matches!(base, Place::Remote(..)));
        assert_eq!(built.patch_bytes > 0, matches!(patch, Place::Remote(..)));
        std::fs::remove_file(&dest).unwrap();
    }
    assert_eq!(b.stats().in_flight, 0);
}

#[test]
fn a_build_that_fails_leaves_nothing() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let family = family(&site);
    let dest = site.path("b/output");
    let far = |key| Place::Remote(remote(&a, key), None);
    let build = |base, patch| {
        b.build(
            &base,
            &patch,
            &family.target.manifest_path,
            None,
            &job(&dest),
        )
    };
    let (base, patch) = (family.base.key, family.patch);
    let missing = site.hold_patch("nowhere", b"x");
    assert!(matches!(
        build(far(base), far(missing)),
        Err(TransferError::ObjectMissing { .. })
    ));
    let other = far(family.target.manifest_key);
    assert!(matches!(
        build(other, far(patch)),
        Err(TransferError::ObjectMissing { .. } | TransferError::BaseMismatch { .. })
    ));
    let local = site.held("a", patch);
    let whole = std::fs::read(&local).unwrap();
    for (at, bit) in [(whole.len() / 2, 1), (whole.len() - 9, 4), (20, 2)] {
        let mut flipped = whole.clone();
        flipped[at] ^= bit;
        std::fs::write(&local, &flipped).unwrap();
        let error = build(far(base), far(patch)).unwrap_err();
        assert!(
            matches!(
                error,
                TransferError::Integrity { .. }
                    | TransferError::Format { .. }
                    | TransferError::BaseMismatch { .. }
            ),
            "{error}"
        );
    }
    std::fs::write(&local, &whole[..whole.len() / 2]).unwrap();
    build(far(base), far(patch)).unwrap_err();
    std::fs::write(&local, &whole).unwrap();
    let path = site.held("a", base);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = build(far(base), far(patch)).unwrap_err();
    assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
    assert!(!dest.exists() && !site.path("b/.output.part").exists());
}

#[test]
fn peers_read_behind_a_build() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let family = family(&site);
    a.set_rate(Some(8e6)).unwrap();
    let (one, two) = (site.path("b/one"), site.path("c/two"));
    std::thread::scope(|scope| {
        let first = scope.spawn(|| {
            let (base, patch) = (remote(&a, family.base.key), remote(&a, family.patch));
            let manifest = &family.target.manifest_path;
            let dest = &one;
            b.build(
                &Place::Remote(base, None),
                &Place::Remote(patch, None),
                manifest,
                None,
                &job(dest),
            )
        });
        until("the object is in flight", || b.stats().in_flight == 1);
        let target = &family.target;
        c.fetch(
            &remote(&b, target.key),
            Some(&target.manifest_path),
            None,
            &job(&two),
        )
        .unwrap();
        first.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&two).unwrap(), family.bytes);
}

#[test]
fn a_borrowed_file_is_served_until_it_has_changed_and_after_it_is_removed() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let bytes = image(40, |index| index % 5 == 0);
    let held = site.hold("a", &bytes);
    // As Nova has it: elsewhere, and touched now and then.
    let base = site.path("base");
    std::fs::rename(site.held("a", held.key), &base).unwrap();
    assert!(a
        .borrow(held.manifest_key, &base, &held.manifest_path)
        .is_err());
    a.borrow(held.key, &base, &held.manifest_path).unwrap();
    File::options()
        .write(true)
        .open(&base)
        .unwrap()
        .set_modified(std::time::UNIX_EPOCH)
        .unwrap();
    let dest = site.path("first");
    let fetch = |dest: &Path| {
        b.fetch(
            &remote(&a, held.key),
            Some(&held.manifest_path),
            None,
            &job(dest),
        )
    };
    fetch(&dest).unwrap();
    assert_eq!(std::fs::read(&dest).unwrap(), bytes);
    std::fs::copy(&base, site.path("again")).unwrap();
    std::fs::remove_file(&base).unwrap();
    fetch(&site.path("second")).unwrap();
    assert_eq!(std::fs::read(site.path("second")).unwrap(), bytes);
    a.give_back(held.key);
    let missing = fetch(&site.path("third")).unwrap_err();
    assert!(
        matches!(missing, TransferError::ObjectMissing { .. }),
        "{missing}"
    );
    let again = site.path("again");
    a.borrow(held.key, &again, &held.manifest_path).unwrap();
    let writer = File::options().write(true).open(&again).unwrap();
    writer.write_all_at(b"changed", 33 * LEAF_SIZE).unwrap();
    let cut_off = fetch(&site.path("fourth")).unwrap_err();
    // Not damaged bytes, which would be held against the host; a second attempt may have found nothing any more.
    assert!(
        matches!(
            cut_off,
            TransferError::PeerUnavailable { .. } | TransferError::ObjectMissing { .. }
        ),
        "{cut_off}"
    );
    assert!(a.stats().events(Event::Dropped) >= 1);
    assert_eq!(a.take_changed(), [held.key]);
    assert_eq!(a.take_changed(), []);
    let missing = fetch(&site.path("fourth")).unwrap_err();
    assert!(
        matches!(missing, TransferError::ObjectMissing { .. }),
        "{missing}"
    );
}
