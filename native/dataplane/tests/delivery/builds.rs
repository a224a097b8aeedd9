//! Images that are built, from parts of two hosts.

use super::*;

/// A base at h2, a patch at h3, and the order to build from them at h1.
fn build_order(all: &Hosts) -> (Order, ObjectKey, ObjectKey) {
    let mut old = all.bytes.clone();
    old[3 * LEAF_SIZE as usize..4 * LEAF_SIZE as usize].fill(7);
    let base = all.site.hold("h2", &old);
    let path = all.site.path("patch");
    create(
        &FileSource::open(&all.site.held("h2", base.key)).unwrap(),
        &FileSource::open(&all.site.held("repo", all.image.key)).unwrap(),
        &path,
        &CreateOptions::default(),
    )
    .unwrap();
    let patch = all.site.hold_patch("h3", &std::fs::read(&path).unwrap());
    let part = |name: &str, key: ObjectKey| PartSource::Host {
        host: name.to_owned(),
        url: all.host(name).url().to_owned(),
        kind: key.kind.as_str().to_owned(),
        id: key.id_hex(),
        max_size: None,
    };
    let build = Source::Build {
        base: part("h2", base.key),
        patch: part("h3", patch),
    };
    let order = all.order("h1", vec![build, all.repository_source()]);
    (order, base.key, patch)
}

#[test]
fn an_image_is_built_from_parts_of_two_hosts() {
    let all = Hosts::new();
    let (order, _, _) = build_order(&all);
    let (wan, lan) = all.moved("h1", &order);
    assert_eq!(wan, 0);
    assert!(lan > 0);
}

#[test]
fn the_host_of_a_lost_part_is_named_and_the_next_source_taken() {
    let all = Hosts::new();
    let (order, _, _) = build_order(&all);
    all.host("h3").close();
    let delivery = all.deliver("h1", &order).unwrap();
    assert_eq!(delivery.source, Some(1));
    assert_eq!(delivery.failures[0].host.as_deref(), Some("h3"));
}

#[test]
fn a_damaged_part_ends_the_list_for_the_caller_to_look() {
    let all = Hosts::new();
    let (order, _, patch) = build_order(&all);
    let path = all.site.held("h3", patch);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0);
    std::fs::write(&path, bytes).unwrap();
    let delivery = all.deliver("h1", &order).unwrap();
    assert_eq!(delivery.source, None);
    assert_eq!(delivery.failures.len(), 1, "{delivery:?}");
    assert_eq!(delivery.failures[0].host, None);
    assert!(!order.dest.exists());
}
