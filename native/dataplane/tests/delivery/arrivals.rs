//! Objects that arrive at a site by other means than a transfer.

use super::*;

#[test]
fn fills_leave_what_arrives_by_other_means_alone() {
    let all = Hosts::new();
    let claimant = &all.host("h1").claimant;
    let expected = claimant.expect(all.image.key, &mut |_| ()).unwrap();
    for name in ["h1", "h2", "h3"] {
        let error = all.deliver(name, &all.fill_order(name)).unwrap_err();
        assert!(matches!(error, TransferError::Deferred { .. }), "{error}");
        assert!(error.to_string().contains(&all.image.key.id_hex()));
    }
    assert_eq!(all.sent_over_wan(), 0);
    drop(expected);
    for host in &all.hosts {
        assert_eq!(host.stats().claims, 0);
    }
    assert_eq!(all.moved("h2", &all.fill_order("h2")), (all.size(), 0));
}

#[test]
fn what_arrived_by_other_means_is_read_from_there() {
    let all = Hosts::new();
    let claimant = &all.host("h1").claimant;
    let expected = claimant.expect(all.image.key, &mut |_| ()).unwrap();
    all.site.hold("h1", &all.bytes);
    claimant.offer(all.image.key, &mut |_| ()).unwrap();
    drop(expected);
    assert_eq!(all.moved("h2", &all.fill_order("h2")), (0, all.size()));
}

#[test]
fn requests_do_not_wait_for_arrivals() {
    let all = Hosts::new();
    let claimant = &all.host("h1").claimant;
    let _expected = claimant.expect(all.image.key, &mut |_| ()).unwrap();
    assert_eq!(all.moved("h2", &all.wan_order("h2")), (all.size(), 0));
    let handle = Handle::default();
    handle.promote();
    let order = all.fill_order("h3");
    let delivery = all.host("h3").deliver(&order, &handle, None).unwrap();
    assert_eq!((delivery.wan_bytes, delivery.lan_bytes), (0, all.size()));
}

#[test]
fn two_may_expect_one_object() {
    let all = Hosts::new();
    let claimant = &all.host("h1").claimant;
    let first = claimant.expect(all.image.key, &mut |_| ()).unwrap();
    drop(claimant.expect(all.image.key, &mut |_| ()).unwrap());
    for name in ["h1", "h2"] {
        let outcome = all.deliver(name, &all.fill_order(name));
        assert!(matches!(outcome, Err(TransferError::Deferred { .. })));
    }
    drop(first);
    assert_eq!(all.moved("h1", &all.fill_order("h1")), (all.size(), 0));
}

/// Regression: an expectation that ended took the claim away of one that began meanwhile.
#[test]
fn one_that_ends_leaves_the_claim_to_one_that_begins() {
    let all = Hosts::new();
    let claimant = &all.host("h1").claimant;
    let arrival = arrival_key(all.image.key);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let expected = claimant.expect(all.image.key, &mut |_| ()).unwrap();
                    let holder = claimant.holder(arrival, &mut |_| ()).unwrap();
                    assert_eq!(holder.map(|holder| holder.name).as_deref(), Some("h1"));
                    drop(expected);
                }
            });
        }
    });
    assert!(!claimant.arrives(all.image.key, &mut |_| ()).unwrap());
}

#[test]
fn a_fill_that_looks_at_that_moment_hides_nothing() {
    let all = Hosts::new();
    let arrival = arrival_key(all.image.key);
    let host = all.host(all.ranked(arrival)[0]);
    let coordinator = Peer::parse(host.url()).unwrap();
    // What a fill of h2 does when it looks: it has the claim for a moment.
    let looking = &all.host("h2").claimant;
    looking.claim_at(&coordinator, arrival, None).unwrap();
    let asked = || host.stats().events(Event::Request);
    let before = asked();
    std::thread::scope(|scope| {
        let expecting = scope.spawn(|| {
            let claimant = &all.host("h1").claimant;
            claimant.expect(all.image.key, &mut |_| ()).unwrap()
        });
        until("it has asked in vain", || {
            expecting.is_finished() || asked() > before
        });
        looking.release_at(&coordinator, arrival).unwrap();
        let _expected = expecting.join().unwrap();
        let outcome = all.deliver("h3", &all.fill_order("h3"));
        assert!(matches!(outcome, Err(TransferError::Deferred { .. })));
    });
}

#[test]
fn what_could_not_be_claimed_is_not_waited_for() {
    let all = Hosts::new();
    let h1 = all.host("h1");
    h1.claimant.set_site(vec![SiteHost {
        name: "h2".to_owned(),
        url: "nonsense".to_owned(),
    }]);
    h1.claimant.unreachable.add("h1");
    let expected = h1.claimant.expect(all.image.key, &mut |_| ());
    assert!(matches!(expected, Err(TransferError::Invalid(_))));
    h1.claimant.unreachable.clear();
    all.acquaint(&["h1", "h2", "h3"]);
    assert_eq!(all.moved("h1", &all.fill_order("h1")), (all.size(), 0));
}

#[test]
fn patches_do_not_arrive_by_other_means() {
    let all = Hosts::new();
    let patch = all.site.hold_patch("repo", &Bytes(5).take(50_000));
    let claimant = &all.host("h1").claimant;
    let _expected = claimant.expect(patch, &mut |_| ()).unwrap();
    let order = Order {
        kind: "patches".to_owned(),
        id: patch.id_hex(),
        manifest: None,
        ..all.fill_order("h2")
    };
    let delivery = all.deliver("h2", &order).unwrap();
    assert_eq!(delivery.wan_bytes, 50_000);
}
