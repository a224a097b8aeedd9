//! Objects that are read while they arrive.

use super::*;

#[test]
fn peers_read_behind_an_arriving_image() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let bytes = image(100, |leaf| leaf % 10 == 0);
    let held = site.hold("a", &bytes);
    a.set_rate(HELD).unwrap();
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
        let second = scope.spawn(|| {
            c.fetch(
                &remote(&b, held.key),
                Some(&held.manifest_path),
                None,
                &job(&two),
            )
        });
        until_asked(&b);
        a.set_rate(None).unwrap();
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&one).unwrap(), bytes);
    assert_eq!(std::fs::read(&two).unwrap(), bytes);
    assert_sent(&a, Kind::Images, held.manifest.data_size());
    assert_sent(&b, Kind::Images, held.manifest.data_size());
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
fn any_range_of_an_arriving_image_is_right() {
    let site = Site::new();
    let a = site.plane("a");
    let bytes = image(60, |leaf| leaf % 4 == 1);
    let held = site.hold("nowhere", &bytes);
    site.hold("a", &bytes);
    a.set_rate(HELD).unwrap();
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
                let client = Client::new(Some(Keys::single(site_key())), PATIENCE, Arc::default());
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
        until_asked(c);
        a.set_rate(Some(8e6)).unwrap();
    });
}

#[test]
fn peers_read_behind_an_arriving_patch() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let patch = site.hold_patch("a", &Bytes(9).take(4_000_000));
    a.set_rate(HELD).unwrap();
    std::thread::scope(|scope| {
        let first =
            scope.spawn(|| b.fetch(&remote(&a, patch), None, None, &job(&site.held("b", patch))));
        until("the object is in flight", || b.stats().in_flight == 1);
        let second =
            scope.spawn(|| c.fetch(&remote(&b, patch), None, None, &job(&site.held("c", patch))));
        until_asked(&b);
        a.set_rate(None).unwrap();
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
    });
    assert_sent(&a, Kind::Patches, 4_000_000);
}

#[test]
fn readers_of_a_transfer_that_fails_are_sent_away() {
    let site = Site::new();
    let (a, b, c) = (site.plane("a"), site.plane("b"), site.plane("c"));
    let held = site.hold("a", &image(100, |_| false));
    a.set_rate(HELD).unwrap();
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
        until_asked(b);
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
    a.set_rate(HELD).unwrap();
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
