//! What hosts tell each other of objects that they bring over the WAN.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::Duration;

use common::{until, Site};
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::fetching::announcements::{is_announced, Announcement, Stage};
use diffcache_dataplane::fetching::claimant::{derived_key, rendezvous_order, SiteHost};
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::plane::{Config, DataPlane};

fn key(number: u8) -> ObjectKey {
    ObjectKey {
        kind: Kind::Images,
        id: [number; 32],
    }
}

fn hosts(claim_ttl: Duration) -> (Site, Vec<DataPlane>) {
    let site = Site::new();
    let open = |name| {
        DataPlane::open(Config {
            claim_ttl,
            ..site.config(name)
        })
        .unwrap()
    };
    let planes: Vec<_> = ["h1", "h2", "h3"].into_iter().map(open).collect();
    let known: Vec<_> = ["h1", "h2", "h3"]
        .into_iter()
        .zip(&planes)
        .map(|(name, plane)| SiteHost {
            name: name.to_owned(),
            url: plane.url().to_owned(),
        })
        .collect();
    for plane in &planes {
        plane.claimant.set_site(known.clone());
    }
    (site, planes)
}

fn announce(plane: &DataPlane, key: ObjectKey, stage: Stage) -> Announcement {
    Announcement::new(&plane.claimant, key, stage, &mut |text| panic!("{text}")).unwrap()
}

fn is_seen(plane: &DataPlane, key: ObjectKey, stage: Stage) -> bool {
    is_announced(&plane.claimant, key, stage, &mut |_| ()).unwrap()
}

#[test]
fn all_hosts_see_what_one_announced_until_it_is_taken_back() {
    let (_site, planes) = hosts(Duration::from_secs(30));
    // Whichever host coordinates it.
    for number in 0..20 {
        let announced = announce(&planes[0], key(number), Stage::Considered);
        for plane in &planes {
            assert!(is_seen(plane, key(number), Stage::Considered));
            assert!(!is_seen(plane, key(number), Stage::Coming));
            assert!(!is_seen(plane, key(number + 100), Stage::Considered));
        }
        drop(announced);
        for plane in &planes {
            assert!(!is_seen(plane, key(number), Stage::Considered));
        }
    }
}

#[test]
fn the_object_itself_is_not_claimed() {
    let (_site, planes) = hosts(Duration::from_secs(30));
    let _announced = announce(&planes[0], key(1), Stage::Coming);
    let claimed = planes[1].claimant.claim(key(1), None, &mut |_| ()).unwrap();
    assert!(planes[1].claimant.is_own(&claimed));
}

#[test]
fn the_second_host_takes_nothing_back() {
    let (_site, planes) = hosts(Duration::from_secs(30));
    let _first = announce(&planes[0], key(1), Stage::Coming);
    drop(announce(&planes[1], key(1), Stage::Coming));
    assert!(is_seen(&planes[2], key(1), Stage::Coming));
}

#[test]
fn it_is_renewed_until_it_is_left_and_expires_then() {
    let (_site, planes) = hosts(Duration::from_millis(300));
    let is_elsewhere = |object: &ObjectKey| {
        let claimed = derived_key(Stage::Coming.name(), *object);
        rendezvous_order(claimed, ["h1", "h2", "h3"])[0] != "h1"
    };
    let object = (0..).map(key).find(is_elsewhere).unwrap();
    let announced = announce(&planes[0], object, Stage::Coming);
    let requests = || {
        let each = planes.iter();
        each.map(|plane| plane.stats().events(Event::Request))
            .sum::<u64>()
    };
    let claimed = requests();
    until("it was renewed", || requests() > claimed + 4);
    // A renewal that came late has claimed it anew.
    until("it is seen", || is_seen(&planes[1], object, Stage::Coming));
    announced.leave();
    until("it has expired", || {
        !is_seen(&planes[1], object, Stage::Coming)
    });
}

#[test]
fn that_of_a_dead_host_expires() {
    let (_site, planes) = hosts(Duration::from_millis(300));
    let coming = derived_key(Stage::Coming.name(), key(1));
    // As a host that was killed: it is not renewed.
    planes[0].claimant.claim(coming, None, &mut |_| ()).unwrap();
    until("it has expired", || {
        !is_seen(&planes[1], key(1), Stage::Coming)
    });
}
