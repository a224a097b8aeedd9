//! Images that are refused.

use super::*;

pub(super) fn sample_header() -> Header {
    Header::read(&sample(PLAIN)).unwrap()
}

/// A small valid image to spoil.
fn sample(flavour: Flavour) -> Vec<u8> {
    let mut content = vec![7; 10 * CLUSTER];
    content[3 * CLUSTER..5 * CLUSTER].fill(0);
    image(&content, flavour)
}

fn refusal(spoil: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = sample(ZLIB);
    spoil(&mut bytes);
    match open(bytes) {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn images_that_name_other_files_are_refused() {
    let backing = refusal(|image| {
        put64(image, 8, 200);
        put32(image, 16, 11);
        image[200..211].copy_from_slice(b"/etc/shadow");
    });
    assert!(backing.contains("backing file"), "{backing}");
    // The refusal comes first, whatever else is wrong with the header.
    let unfinished = refusal(|image| {
        put32(image, 16, 11);
        put32(image, 100, 0);
    });
    assert!(unfinished.contains("backing file"), "{unfinished}");
    let length_only = refusal(|image| put32(image, 16, 4));
    assert!(length_only.contains("backing file"), "{length_only}");
    let data_bit = refusal(|image| put64(image, 72, 4));
    assert!(data_bit.contains("data file"), "{data_bit}");
    let data_name = refusal(|image| {
        put32(image, 104, 0x4441_5441);
        put32(image, 108, 11);
    });
    assert!(data_name.contains("data file"), "{data_name}");
}

#[test]
fn encrypted_corrupt_and_unknown_images_are_refused() {
    for (at, value, word) in [
        (32, 2, "encrypted"),
        (76, 2, "corrupt"),
        (76, 16, "extended"),
        (76, 32, "unknown"),
        (4, 4, "version"),
    ] {
        let reason = refusal(|image| put32(image, at, value));
        assert!(reason.contains(word), "{reason}");
    }
}

#[test]
fn zero_marks_need_version_3() {
    let spoil = |version: u32| {
        let mut bytes = sample(ZLIB);
        put32(&mut bytes, 4, version);
        put64(&mut bytes, FIRST_L2, 1);
        Map::read(&bytes).map(|map| map.cluster(0))
    };
    assert_eq!(spoil(3).unwrap(), Cluster::Zero);
    assert!(matches!(spoil(2), Err(Qcow2Error::Damaged(_))));
}

#[test]
fn absurd_and_misplaced_tables_are_refused() {
    for (what, spoil) in [
        (
            "large",
            (|image| put32(image, 36, u32::MAX)) as fn(&mut Vec<u8>),
        ),
        ("too large", |image| put32(image, 56, u32::MAX)),
        ("misplaced", |image| put64(image, 40, 1 << 62)),
        ("misplaced", |image| put64(image, 40, L1 as u64 + 8)),
        ("misplaced", |image| put64(image, 48, u64::MAX - 511)),
        ("short", |image| put64(image, 24, 1 << 40)),
        ("16 TiB", |image| put64(image, 24, 1 << 60)),
        ("clusters", |image| put32(image, 20, 40)),
        ("overlap", |image| put64(image, 40, REFBLOCK as u64)),
        ("overlap", |image| put64(image, L1, L1 as u64)),
        ("overlap", |image| put64(image, REFTABLE, FIRST_L2 as u64)),
        ("second-level table is misplaced", |image| {
            put64(image, L1, 1 << 50)
        }),
        ("overlaps a table", |image| {
            put64(image, FIRST_L2, plain_entry(L1 as u64))
        }),
        ("overlaps a table", |image| {
            put64(image, FIRST_L2, compressed_entry(BITS, L1 as u64 + 5, 100))
        }),
        ("the same place", |image| {
            image.copy_within(FIRST_L2..FIRST_L2 + 8, FIRST_L2 + 8)
        }),
    ] {
        let reason = refusal(spoil);
        assert!(reason.contains(what), "{what}: {reason}");
    }
}
