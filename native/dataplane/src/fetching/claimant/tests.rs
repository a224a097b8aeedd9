//! Tests of the applying side of claims.

use std::collections::HashSet;

use super::*;

fn key(kind: &str, digit: &str) -> ObjectKey {
    ObjectKey::parse(kind, &digit.repeat(64)).unwrap()
}

#[test]
fn all_hosts_compute_the_same_order() {
    let names: Vec<String> = (0..20).map(|n| format!("h{n}")).collect();
    let forward = || names.iter().map(String::as_str);
    let order = rendezvous_order(key("images", "a"), forward());
    assert_eq!(order, rendezvous_order(key("images", "a"), forward().rev()));
    let firsts: HashSet<&str> = (0..200_u64)
        .map(|n| {
            let mut key = key("patches", "0");
            key.id[..8].copy_from_slice(&n.to_le_bytes());
            rendezvous_order(key, forward())[0]
        })
        .collect();
    assert!(firsts.len() > 15, "{firsts:?}");
}

#[test]
fn the_order_is_the_one_that_all_hosts_of_a_site_compute() {
    // Computed with sorted() and SHA-256 of Python.
    let names = ["h1", "h2", "h3", "h4", "h5"];
    assert_eq!(
        rendezvous_order(key("images", "a"), names),
        ["h4", "h3", "h1", "h5", "h2"]
    );
    assert_eq!(
        rendezvous_order(key("patches", "0"), names),
        ["h1", "h2", "h3", "h5", "h4"]
    );
    assert_eq!(
        arrival_key(key("images", "a")).id_hex(),
        "fcf63e09e98604b792dd995327409422fce3595a12e497f46afd17839c71c94f"
    );
}

#[test]
fn a_host_that_did_not_answer_is_passed_over() {
    let unreachable = Unreachable::default();
    unreachable.add("h1");
    assert!(unreachable.contains("h1") && !unreachable.contains("h2"));
    assert_eq!(unreachable.names(), ["h1"]);
    unreachable.clear();
    assert!(unreachable.names().is_empty());
}
