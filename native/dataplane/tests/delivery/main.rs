//! Deliveries from ranked sources: one copy over the WAN per site, failover, fills that give way.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod arrivals;
mod builds;
#[path = "../common/mod.rs"]
mod common;
mod fills;

use std::path::PathBuf;
use std::time::Duration;

use common::{image, until, Bytes, Image, Site, HELD};
use diffcache_core::manifest::LEAF_SIZE;
use diffcache_core::patch::{create, CreateOptions};
use diffcache_core::source::FileSource;
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::claimant::{arrival_key, rendezvous_order, SiteHost};
use diffcache_dataplane::fetching::delivery::{
    Class, Delivery, Link, Order, PartSource, Progress, Source,
};
use diffcache_dataplane::fetching::peer::Peer;
use diffcache_dataplane::fetching::wan::Handle;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::plane::{Config, DataPlane};

const LEND: Duration = Duration::from_secs(600);

/// A repository and hosts that know each other.
struct Hosts {
    site: Site,
    repository: DataPlane,
    hosts: Vec<DataPlane>,
    image: Image,
    bytes: Vec<u8>,
}

impl Hosts {
    fn new() -> Hosts {
        Hosts::with(|config| config)
    }

    fn with(change: impl Fn(Config) -> Config) -> Hosts {
        let site = Site::new();
        let bytes = image(24, |leaf| leaf % 5 == 0);
        let image = site.hold("repo", &bytes);
        let repository = site.plane("repo");
        let open = |name| {
            let config = Config {
                lend_time: LEND,
                ..site.config(name)
            };
            DataPlane::open(change(config)).unwrap()
        };
        let hosts: Vec<_> = ["h1", "h2", "h3"].into_iter().map(open).collect();
        let all = Hosts {
            site,
            repository,
            hosts,
            image,
            bytes,
        };
        all.acquaint(&["h1", "h2", "h3"]);
        all
    }

    /// Give every host the site's map.
    fn acquaint(&self, names: &[&str]) {
        let known: Vec<_> = names.iter().map(|name| self.known(name)).collect();
        for host in &self.hosts {
            host.claimant.set_site(known.clone());
        }
    }

    fn known(&self, name: &str) -> SiteHost {
        SiteHost {
            name: name.to_owned(),
            url: self.host(name).url().to_owned(),
        }
    }

    fn host(&self, name: &str) -> &DataPlane {
        let number: usize = name[1..].parse().unwrap();
        &self.hosts[number - 1]
    }

    /// The hosts in the order in which they are asked to coordinate an object.
    fn ranked(&self, key: ObjectKey) -> Vec<&'static str> {
        rendezvous_order(key, ["h1", "h2", "h3"])
    }

    fn repository_source(&self) -> Source {
        Source::Host {
            host: "repo".to_owned(),
            url: self.repository.url().to_owned(),
            link: Link::Wan,
        }
    }

    fn peer_source(&self, name: &str) -> Source {
        Source::Host {
            host: name.to_owned(),
            url: self.host(name).url().to_owned(),
            link: Link::Lan,
        }
    }

    fn dest(&self, name: &str) -> PathBuf {
        self.site.path(name).join("output")
    }

    fn order(&self, name: &str, sources: Vec<Source>) -> Order {
        Order {
            kind: "images".to_owned(),
            id: self.image.key.id_hex(),
            dest: self.dest(name),
            sources,
            manifest: Some(self.image.manifest_path.clone()),
            class: Class::Request,
            rate: None,
            durable: false,
            max_size: None,
            in_place: false,
            trace: None,
        }
    }

    fn wan_order(&self, name: &str) -> Order {
        self.order(name, vec![self.repository_source()])
    }

    fn fill_order(&self, name: &str) -> Order {
        Order {
            class: Class::Fill,
            ..self.wan_order(name)
        }
    }

    fn deliver(&self, name: &str, order: &Order) -> Result<Delivery, TransferError> {
        self.host(name).deliver(order, &Handle::default(), None)
    }

    /// Deliver at a host and check what arrived; returns bytes over WAN and LAN.
    fn moved(&self, name: &str, order: &Order) -> (u64, u64) {
        let delivery = self.deliver(name, order).unwrap();
        assert!(delivery.source.is_some(), "{delivery:?}");
        assert_eq!(std::fs::read(&order.dest).unwrap(), self.bytes);
        (delivery.wan_bytes, delivery.lan_bytes)
    }

    fn size(&self) -> u64 {
        self.image.manifest.data_size()
    }

    fn sent_over_wan(&self) -> u64 {
        self.repository.stats().counters.sent(Kind::Images)
    }

    /// Checks that one copy crossed the WAN; the repository counts bytes after it has sent them.
    fn assert_one_copy_sent(&self) {
        until("a whole copy was counted", || {
            self.sent_over_wan() >= self.size()
        });
        assert_eq!(self.sent_over_wan(), self.size());
    }
}

#[test]
fn once_over_the_wan_then_from_the_holder() {
    let all = Hosts::new();
    assert_eq!(all.moved("h1", &all.wan_order("h1")), (all.size(), 0));
    for name in ["h2", "h3"] {
        assert_eq!(all.moved(name, &all.wan_order(name)), (0, all.size()));
    }
    all.assert_one_copy_sent();
}

#[test]
fn hosts_that_ask_together_move_one_copy() {
    let all = Hosts::new();
    all.repository.set_rate(Some(4e6)).unwrap();
    let deliver = |name| all.deliver(name, &all.wan_order(name)).unwrap();
    let deliver = &deliver;
    let warnings: Vec<String> = std::thread::scope(|scope| {
        let threads = ["h1", "h2", "h3"].map(|name| scope.spawn(move || deliver(name)));
        let each = threads.map(|thread| thread.join().unwrap());
        assert!(each.iter().all(|delivery| delivery.source.is_some()));
        each.into_iter().flat_map(|one| one.warnings).collect()
    });
    for name in ["h1", "h2", "h3"] {
        assert_eq!(std::fs::read(all.dest(name)).unwrap(), all.bytes);
    }
    // Only where the machine had the holder wait for longer than the others do there is another copy.
    if warnings.is_empty() {
        all.assert_one_copy_sent();
    } else {
        let is_takeover = |text: &String| text.contains("taking over");
        assert!(warnings.iter().all(is_takeover), "{warnings:?}");
    }
}

#[test]
fn a_dead_holder_is_taken_over() {
    let all = Hosts::new();
    let ranked = all.ranked(all.image.key);
    // Not the coordinator, so that its claim outlives it.
    let (holder, survivor) = (ranked[1], ranked[2]);
    all.moved(holder, &all.wan_order(holder));
    all.host(holder).close();
    let delivery = all.deliver(survivor, &all.wan_order(survivor)).unwrap();
    assert_eq!(delivery.wan_bytes, all.size());
    assert!(
        delivery.warnings.iter().any(|text| text.contains(holder)),
        "{:?}",
        delivery.warnings
    );
    // The takeover is known to the coordinator.
    assert_eq!(
        all.moved(ranked[0], &all.wan_order(ranked[0])),
        (0, all.size())
    );
}

#[test]
fn dead_coordinators_are_passed_over() {
    let all = Hosts::new();
    let ranked = all.ranked(all.image.key);
    all.host(ranked[0]).close();
    let (second, third) = (ranked[1], ranked[2]);
    assert_eq!(all.moved(second, &all.wan_order(second)), (all.size(), 0));
    assert_eq!(all.moved(third, &all.wan_order(third)), (0, all.size()));
    assert_eq!(all.host(second).stats().claims, 1);
    assert_eq!(all.host(third).claimant.unreachable.names(), [ranked[0]]);
}

#[test]
fn without_any_coordinator_it_goes_straight_to_the_repository() {
    let all = Hosts::new();
    all.host("h1").claimant.set_site(vec![
        SiteHost {
            name: "h2".to_owned(),
            url: "http://127.0.0.1:1".to_owned(),
        },
        SiteHost {
            name: "h3".to_owned(),
            url: "http://127.0.0.1:1".to_owned(),
        },
    ]);
    all.host("h1").claimant.unreachable.add("h1");
    assert_eq!(all.moved("h1", &all.wan_order("h1")), (all.size(), 0));
    assert_eq!(all.host("h1").stats().claims, 0);
}

#[test]
fn a_failed_holder_gives_its_claim_back() {
    let all = Hosts::new();
    std::fs::remove_file(all.site.held("repo", all.image.key)).unwrap();
    let delivery = all.deliver("h1", &all.wan_order("h1")).unwrap();
    assert_eq!(delivery.source, None);
    let failure = &delivery.failures[0];
    assert!(matches!(failure.error, TransferError::ObjectMissing { .. }));
    assert_eq!(failure.host.as_deref(), Some("repo"));
    for host in &all.hosts {
        assert_eq!(host.stats().claims, 0);
    }
}

#[test]
fn an_unreachable_repository_is_remembered() {
    let all = Hosts::new();
    all.repository.close();
    let delivery = all.deliver("h1", &all.wan_order("h1")).unwrap();
    let error = &delivery.failures[0].error;
    assert!(
        matches!(error, TransferError::PeerUnavailable { .. }),
        "{error}"
    );
    assert_eq!(all.host("h1").repositories.passed_over(), ["repo"]);
}

#[test]
fn a_holder_that_sends_garbage_is_taken_over() {
    let all = Hosts::new();
    let ranked = all.ranked(all.image.key);
    all.moved(ranked[0], &all.wan_order(ranked[0]));
    // Held objects come before lent ones.
    let mut wrong = all.bytes.clone();
    wrong[LEAF_SIZE as usize + 5] ^= 1;
    std::fs::write(all.site.held(ranked[0], all.image.key), wrong).unwrap();
    let delivery = all.deliver(ranked[1], &all.wan_order(ranked[1])).unwrap();
    assert!(delivery.wan_bytes > 0);
    assert_eq!(std::fs::read(all.dest(ranked[1])).unwrap(), all.bytes);
}

#[test]
fn what_crossed_the_wan_is_lent_until_the_space_is_needed() {
    let all = Hosts::new();
    assert!(!all.host("h1").stop_lending());
    all.moved("h1", &all.wan_order("h1"));
    assert_eq!(all.host("h1").stats().lent, 1);
    assert!(all.host("h1").stop_lending());
    assert_eq!(all.host("h1").stats().lent, 0);
    assert!(!all.host("h1").stop_lending());
}

#[test]
fn without_lending_the_claim_ends_with_the_delivery() {
    let all = Hosts::with(|config| Config {
        lend_time: Duration::ZERO,
        ..config
    });
    all.moved("h1", &all.wan_order("h1"));
    for host in &all.hosts {
        assert_eq!(host.stats().claims, 0);
    }
}

#[test]
fn what_is_held_is_claimed_a_while_longer_without_lending_too() {
    let all = Hosts::with(|config| Config {
        lend_time: Duration::ZERO,
        ..config
    });
    let held = Order {
        dest: all.site.held("h1", all.image.key),
        in_place: true,
        ..all.wan_order("h1")
    };
    std::fs::create_dir_all(held.dest.parent().unwrap()).unwrap();
    assert_eq!(all.deliver("h1", &held).unwrap().wan_bytes, all.size());
    // Before any site map says so.
    assert_eq!(all.moved("h2", &all.wan_order("h2")), (0, all.size()));
}

#[test]
fn a_claim_is_renewed_while_the_object_comes() {
    let ttl = Duration::from_millis(300);
    let all = Hosts::with(|config| Config {
        claim_ttl: ttl,
        ..config
    });
    let ranked = all.ranked(all.image.key);
    all.repository.set_rate(HELD).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| all.moved(ranked[1], &all.wan_order(ranked[1])));
        let coordinator = all.host(ranked[0]);
        // No other host asks it for anything.
        until("the claim was made and renewed", || {
            coordinator.stats().events(Event::Request) > 4
        });
        // A renewal that came late has claimed it anew.
        until("it is claimed", || coordinator.stats().claims == 1);
        all.repository.set_rate(None).unwrap();
    });
}

#[test]
fn the_next_source_delivers_what_the_first_did_not() {
    let all = Hosts::new();
    all.site.hold("h3", &all.bytes);
    all.host("h2").close();
    let order = all.order(
        "h1",
        vec![
            all.peer_source("h2"),
            all.peer_source("h3"),
            all.repository_source(),
        ],
    );
    let delivery = all.deliver("h1", &order).unwrap();
    assert_eq!(delivery.source, Some(1));
    assert_eq!((delivery.wan_bytes, delivery.lan_bytes), (0, all.size()));
    assert_eq!(delivery.failures.len(), 1);
    assert_eq!(delivery.failures[0].host.as_deref(), Some("h2"));
    assert!(all.host("h1").claimant.unreachable.contains("h2"));
    assert_eq!(all.sent_over_wan(), 0);
    assert_eq!(std::fs::read(all.dest("h1")).unwrap(), all.bytes);
}

#[test]
fn no_source_is_left() {
    let all = Hosts::new();
    let order = all.order("h1", vec![all.peer_source("h2"), all.peer_source("h3")]);
    let delivery = all.deliver("h1", &order).unwrap();
    assert_eq!(delivery.source, None);
    let sources: Vec<_> = delivery.failures.iter().map(|found| found.source).collect();
    assert_eq!(sources, [0, 1]);
    assert!(!order.dest.exists());
}

#[test]
fn what_is_wrong_here_ends_the_list() {
    let all = Hosts::new();
    let other = all.site.hold("h2", &Bytes(3).take(100_000));
    let order = Order {
        manifest: Some(other.manifest_path.clone()),
        ..all.order("h1", vec![all.peer_source("h2"), all.repository_source()])
    };
    let delivery = all.deliver("h1", &order).unwrap();
    assert_eq!(delivery.source, None);
    assert_eq!(delivery.failures.len(), 1);
    assert!(matches!(
        delivery.failures[0].error,
        TransferError::Format { .. }
    ));
    assert_eq!(all.sent_over_wan(), 0);
}

#[test]
fn a_trace_reaches_the_hosts_that_an_object_is_read_from() {
    let all = Hosts::with(|config| Config {
        traces: true,
        ..config
    });
    for name in ["h1", "h2"] {
        let order = Order {
            trace: Some(format!("of-{name}")),
            ..all.wan_order(name)
        };
        all.moved(name, &order);
    }
    // The second one reads from the first, which knows a response to be sent only after it was read.
    let served = std::sync::Mutex::new(Vec::new());
    until("what h1 sent was noted", || {
        let mut served = served.lock().unwrap();
        served.extend(all.host("h1").take_served(Duration::ZERO));
        !served.is_empty()
    });
    let served = served.into_inner().unwrap();
    assert_eq!(served[0].trace.as_str(), "of-h2");
    assert_eq!(served[0].object, all.image.key);
    assert!(served[0].bytes > 0 && served[0].requests > 0);
    // It was not set up to keep any.
    assert!(all.repository.take_served(Duration::ZERO).is_empty());
}

#[test]
fn an_order_with_a_text_that_fits_no_header_is_refused() {
    let all = Hosts::new();
    let order = Order {
        trace: Some("a\r\nX-DiffCache-Hold: 9".to_owned()),
        ..all.wan_order("h1")
    };
    let error = all.deliver("h1", &order).unwrap_err();
    assert!(matches!(error, TransferError::Invalid(_)), "{error:?}");
}
