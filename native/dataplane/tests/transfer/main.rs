//! Objects between planes: fetched, built, interrupted, read while they arrive.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod behind;
mod builds;
#[path = "../common/mod.rs"]
mod common;
mod nonsense;
mod shared;

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use common::{
    assert_sent, image, job, remote, site_key, until, until_asked, Bytes, Site, HELD, PATIENCE,
};
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
fn an_image_arrives_sparse_and_only_its_data_crosses() {
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
    assert_sent(&a, Kind::Images, held.manifest.data_size());
    assert_eq!(b.stats().counters.received(Kind::Images), received);
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
fn an_object_is_fetched_once_at_a_time() {
    let site = Site::new();
    let (a, b) = (site.plane("a"), site.plane("b"));
    let patch = site.hold_patch("a", &Bytes(9).take(1_000_000));
    a.set_rate(HELD).unwrap();
    std::thread::scope(|scope| {
        let first =
            scope.spawn(|| b.fetch(&remote(&a, patch), None, None, &job(&site.path("b/one"))));
        until("the object is in flight", || b.stats().in_flight == 1);
        let second = b.fetch(&remote(&a, patch), None, None, &job(&site.path("b/two")));
        assert!(matches!(second, Err(TransferError::AlreadyInFlight { .. })));
        a.set_rate(None).unwrap();
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
    a.set_rate(HELD).unwrap();
    let dest = site.path("b/one");
    std::thread::scope(|scope| {
        let fetched = scope.spawn(|| b.fetch(&remote(&a, patch), None, None, &job(&dest)));
        until("there is a reader", || a.readers(patch) == 1);
        std::fs::remove_file(site.held("a", patch)).unwrap();
        a.set_rate(None).unwrap();
        fetched.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&dest).unwrap(), bytes);
    until("there is no reader", || a.readers(patch) == 0);
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

fn assert_missing(error: &TransferError) {
    assert!(
        matches!(error, TransferError::ObjectMissing { .. }),
        "{error}"
    );
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
    assert_missing(&fetch(&site.path("third")).unwrap_err());
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
    assert_missing(&fetch(&site.path("fourth")).unwrap_err());
}
