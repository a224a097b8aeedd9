//! Images that are built from a base and a patch.

use super::*;

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
fn an_image_is_built_from_what_lies_elsewhere() {
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

/// Where the file system cannot share blocks, all of the target is built.
#[test]
fn a_known_base_is_not_read_where_the_target_is_the_same() {
    let site = Site::new();
    let b = site.plane("b");
    let family = family(&site);
    let (base, patch) = (family.base.key, family.patch);
    let path = site.held("a", base);
    let known = Place::Known(path.clone(), family.base.manifest_path.clone());
    let dest = site.path("b/output");
    let build = || {
        b.build(
            &known,
            &Place::Local(site.held("a", patch)),
            &family.target.manifest_path,
            None,
            &job(&dest),
        )
    };
    build().unwrap();
    assert_eq!(std::fs::read(&dest).unwrap(), family.bytes);
    // What the disk lost since the file was known is in a leaf that is the target's, too.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[LEAF_SIZE as usize * 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let copy = std::fs::File::create(site.path("copy")).unwrap();
    let shares = diffcache_core::reflink::share_blocks(&copy, &std::fs::File::open(&path).unwrap());
    match build() {
        Ok(_) => {
            assert!(shares);
            let mut expected = family.bytes.clone();
            expected[LEAF_SIZE as usize * 100] ^= 1;
            assert!(std::fs::read(&dest).unwrap() == expected);
        }
        Err(error) => assert!(!shares, "{error}"),
    }
    // A leaf that changes is built, and verified.
    bytes[LEAF_SIZE as usize * 44 + 60_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let error = build().unwrap_err();
    assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
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
    a.set_rate(HELD).unwrap();
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
        let second = scope.spawn(|| {
            c.fetch(
                &remote(&b, target.key),
                Some(&target.manifest_path),
                None,
                &job(&two),
            )
        });
        until_asked(&b);
        a.set_rate(None).unwrap();
        second.join().unwrap().unwrap();
        first.join().unwrap().unwrap();
    });
    assert_eq!(std::fs::read(&two).unwrap(), family.bytes);
}
