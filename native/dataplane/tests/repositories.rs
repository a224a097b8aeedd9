//! Several repositories: which one is read from, what a dead one costs, and when it is used again.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Instant;

use common::peers::Relay;
use common::{image, until, Image, Site};
use diffcache_core::manifest::LEAF_SIZE;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::claimant::SiteHost;
use diffcache_dataplane::fetching::delivery::{Class, Delivery, Link, Order, Progress, Source};
use diffcache_dataplane::fetching::wan::Handle;
use diffcache_dataplane::ids::Kind;
use diffcache_dataplane::plane::{Config, DataPlane};

/// A host and two repositories with the same image.
struct Two {
    site: Site,
    image: Image,
    bytes: Vec<u8>,
    first: DataPlane,
    second: DataPlane,
    host: DataPlane,
}

impl Two {
    fn new() -> Two {
        Two::of(24)
    }

    fn of(leaves: usize) -> Two {
        let site = Site::new();
        let bytes = image(leaves, |leaf| leaf % 5 == 0);
        site.hold("first", &bytes);
        let image = site.hold("second", &bytes);
        let (first, second) = (site.plane("first"), site.plane("second"));
        let host = site.plane("h1");
        let two = Two {
            site,
            image,
            bytes,
            first,
            second,
            host,
        };
        two.announce(two.first.url());
        two
    }

    fn announce(&self, first: &str) {
        self.host.set_repositories(&[
            SiteHost {
                name: "first".to_owned(),
                url: first.to_owned(),
            },
            SiteHost {
                name: "second".to_owned(),
                url: self.second.url().to_owned(),
            },
        ]);
    }

    /// An order of the image, from the repository at `first` and then from the second one.
    fn order(&self, first: &str) -> Order {
        let source = |host: &str, url: &str| Source::Host {
            host: host.to_owned(),
            url: url.to_owned(),
            link: Link::Wan,
        };
        Order {
            kind: "images".to_owned(),
            id: self.image.key.id_hex(),
            dest: self.site.path("h1").join("output"),
            sources: vec![source("first", first), source("second", self.second.url())],
            manifest: Some(self.image.manifest_path.clone()),
            class: Class::Request,
            rate: None,
            durable: false,
            max_size: None,
            in_place: false,
            trace: None,
        }
    }

    fn deliver(&self, order: &Order) -> Delivery {
        let _ = std::fs::remove_file(&order.dest);
        let delivery = self.host.deliver(order, &Handle::default(), None).unwrap();
        if delivery.source.is_some() {
            assert_eq!(std::fs::read(&order.dest).unwrap(), self.bytes);
        }
        delivery
    }

    fn size(&self) -> u64 {
        self.image.manifest.data_size()
    }
}

/// A repository that accepts connections and closes them; returns its URL and the number of connections.
fn broken_repository() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = accepted.clone();
    std::thread::spawn(move || {
        for _ in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (url, accepted)
}

#[test]
fn a_dead_repository_is_tried_once_by_ten_deliveries() {
    let two = Two::new();
    let (url, accepted) = broken_repository();
    two.announce(&url);
    let (order, begun) = (two.order(&url), Instant::now());
    let failures: usize = (0..10)
        .map(|_| {
            let delivery = two.deliver(&order);
            assert_eq!(delivery.source, Some(1));
            delivery.failures.len()
        })
        .sum();
    assert_eq!(failures, 1);
    let connections = accepted.load(Ordering::SeqCst);
    // One for a transfer; the rest are probes, the first after a second.
    let probes = begun.elapsed().as_secs() as usize;
    assert!((1..=1 + probes).contains(&connections), "{connections}");
    let reports = two.host.repositories.reports(Instant::now());
    assert_eq!(reports[0].failures, 1);
    let (_, reason) = reports[0].outage.clone().unwrap();
    assert!(reason.contains(&url), "{reason}");
    assert_eq!((reports[1].transfers, reports[1].failures), (10, 0));
    assert_eq!(reports[1].bytes, 10 * two.size());
    let complaints = two.host.take_complaints();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert_eq!(complaints[0].about, "first");
}

#[test]
fn a_transfer_continues_from_the_other_repository() {
    // More than a connection holds: the first one is not ahead of the reader by half of it.
    let two = Two::of(640);
    two.first.set_rate(Some(20e6)).unwrap();
    let order = two.order(two.first.url());
    let half = two.size() / 2;
    let watch = |progress: Progress| {
        if progress.over_wan && progress.done > half {
            two.first.close();
        }
        true
    };
    let delivered = two.host.deliver(&order, &Handle::default(), Some(&watch));
    let delivery = delivered.unwrap();
    assert_eq!(delivery.source, Some(1));
    assert_eq!(delivery.failures.len(), 1);
    assert_eq!(delivery.failures[0].host.as_deref(), Some("first"));
    assert_eq!(std::fs::read(&order.dest).unwrap(), two.bytes);
    // What arrived of a leaf that is not whole is lost, and nothing else.
    let (least, most) = (two.size(), two.size() + LEAF_SIZE);
    assert!(
        (least..most).contains(&delivery.wan_bytes),
        "{} bytes of {least}",
        delivery.wan_bytes
    );
    let received = two.host.stats().counters.received(Kind::Images);
    assert_eq!(received, delivery.wan_bytes);
    let reports = two.host.repositories.reports(Instant::now());
    assert!(reports[0].bytes > half, "{reports:?}");
    assert_eq!(reports[0].bytes + reports[1].bytes, delivery.wan_bytes);
    // The second one delivered less than half: the first half was not read again.
    assert!(reports[1].bytes < half + LEAF_SIZE, "{reports:?}");
}

#[test]
fn a_repository_without_the_object_costs_a_request_and_stays_in_use() {
    let two = Two::new();
    std::fs::remove_file(two.site.held("first", two.image.key)).unwrap();
    let delivery = two.deliver(&two.order(two.first.url()));
    assert_eq!(delivery.source, Some(1));
    let error = &delivery.failures[0].error;
    assert!(
        matches!(error, TransferError::ObjectMissing { .. }),
        "{error}"
    );
    assert_eq!(delivery.wan_bytes, two.size());
    assert!(two.host.repositories.passed_over().is_empty());
}

#[test]
fn a_repository_that_sends_garbage_twice_is_left_for_another() {
    let two = Two::new();
    let mut wrong = two.bytes.clone();
    wrong[LEAF_SIZE as usize + 5] ^= 1;
    std::fs::write(two.site.held("first", two.image.key), wrong).unwrap();
    let order = two.order(two.first.url());
    for failures in [1, 1, 0] {
        let delivery = two.deliver(&order);
        assert_eq!(delivery.source, Some(1));
        assert_eq!(delivery.failures.len(), failures);
    }
    let alone = two.host.left_alone();
    assert_eq!(alone[0].host, "first");
}

#[test]
fn a_repository_that_lives_again_is_used_again() {
    let two = Two::new();
    let relay = Relay::new();
    two.announce(&relay.url());
    let order = two.order(&relay.url());
    assert_eq!(two.deliver(&order).source, Some(1));
    assert_eq!(two.host.repositories.passed_over(), ["first"]);
    let again = DataPlane::open(Config {
        advertise_url: Some(relay.url()),
        ..two.site.config("first")
    })
    .unwrap();
    relay.lead_to(again.address());
    until("it is found to answer", || {
        two.host.repositories.passed_over().is_empty()
    });
    let delivery = two.deliver(&order);
    assert_eq!((delivery.source, delivery.failures.len()), (Some(0), 0));
    drop(again);
}

#[test]
fn a_dead_repository_is_tried_if_nothing_else_is_left() {
    let two = Two::new();
    let both = two.order(two.first.url());
    two.first.close();
    two.second.close();
    let failed = two.deliver(&both);
    assert_eq!((failed.source, failed.failures.len()), (None, 2));
    // Both are known to be dead by now: the last one is tried all the same.
    let failed = two.deliver(&both);
    assert_eq!((failed.source, failed.failures.len()), (None, 2));
    let alone = Order {
        sources: both.sources[..1].to_vec(),
        ..both
    };
    assert_eq!(two.deliver(&alone).failures.len(), 1);
    assert_eq!(two.host.repositories.passed_over(), ["first", "second"]);
}

#[test]
fn the_rate_of_a_link_is_measured_by_transfers_that_nothing_else_limits() {
    let two = Two::new();
    let order = two.order(two.first.url());
    let limited = Order {
        class: Class::Fill,
        rate: Some(1e9),
        ..order.clone()
    };
    let rate = || two.host.repositories.reports(Instant::now())[0].rate;
    for _ in 0..8 {
        two.deliver(&limited);
    }
    assert_eq!(rate(), None);
    for _ in 0..8 {
        two.deliver(&order);
    }
    assert!(rate().unwrap() > 0.0);
    assert_eq!(two.host.peer_rate(), None);
    let from_peer = Order {
        sources: vec![Source::Host {
            host: "second".to_owned(),
            url: two.second.url().to_owned(),
            link: Link::Lan,
        }],
        ..order
    };
    for _ in 0..8 {
        two.deliver(&from_peer);
    }
    assert!(two.host.peer_rate().unwrap() > 0.0);
}
