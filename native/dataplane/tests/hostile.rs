//! Hostile peers and clients: they cost a bounded time, and no honest peer is blamed.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::time::Duration;

use common::peers::{send_head, send_range_head, Peer, Relay};
use common::{image, site_key, until, Bytes, Site, PATIENCE};
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::announcements::{is_announced, Stage};
use diffcache_dataplane::fetching::client::{Ask, Client, Connection, Fault, Stop};
use diffcache_dataplane::fetching::delivery::{parse_hosts, parse_order, Delivery};
use diffcache_dataplane::fetching::minimum_rate::Floors;
use diffcache_dataplane::fetching::peer::{self, Remote};
use diffcache_dataplane::fetching::wan::Handle;
use diffcache_dataplane::gate::Cancel;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::plane::{Config, DataPlane};
use diffcache_dataplane::serving::ranges::Want;
use diffcache_dataplane::transport::auth::Keys;

/// The sources of an order: names and URLs of hosts of the site, and the repository's URL.
fn order(key: ObjectKey, dest: &Path, manifest: Option<&Path>, sources: &[(&str, &str)]) -> String {
    let sources: Vec<_> = sources
        .iter()
        .map(|(host, url)| {
            let link = if *host == "repo" { "wan" } else { "lan" };
            serde_json::json!({"host": {"host": host, "url": url, "link": link}})
        })
        .collect();
    serde_json::json!({
        "kind": key.kind.as_str(), "id": key.id_hex(), "dest": dest, "sources": sources,
        "manifest": manifest, "class": "request", "rate": null, "durable": false, "in_place": false,
    })
    .to_string()
}

fn deliver(plane: &DataPlane, order: &str) -> Result<Delivery, TransferError> {
    plane.deliver(&parse_order(order).unwrap(), &Handle::default(), None)
}

struct Scene {
    site: Site,
    repo: DataPlane,
    victim: DataPlane,
    key: ObjectKey,
    manifest: PathBuf,
    bytes: Vec<u8>,
}

/// Tests have less time than transfers; honest hosts are faster than this on any machine.
fn impatient(site: &Site) -> Config {
    Config {
        timeout: Duration::from_secs(12),
        floors: Floors {
            site: 16.0,
            wan: 16.0,
            span: Duration::from_secs(5),
        },
        ..site.config("victim")
    }
}

impl Scene {
    fn new() -> Scene {
        let site = Site::new();
        let bytes = image(40, |_| false);
        let held = site.hold("repo", &bytes);
        Scene {
            repo: site.plane("repo"),
            victim: DataPlane::open(impatient(&site)).unwrap(),
            key: held.key,
            manifest: held.manifest_path,
            bytes,
            site,
        }
    }

    fn dest(&self) -> PathBuf {
        self.site.path("victim/output")
    }

    /// Delivers the image in a thread, so that a test can give it a time.
    fn deliver_in_time(self: &Arc<Scene>, sources: Vec<(String, String)>) -> Receiver<Delivery> {
        let (sender, receiver) = channel();
        let scene = self.clone();
        std::thread::spawn(move || {
            let sources: Vec<_> = sources
                .iter()
                .map(|(host, url)| (host.as_str(), url.as_str()))
                .collect();
            let manifest = Some(scene.manifest.as_path());
            let text = order(scene.key, &scene.dest(), manifest, &sources);
            let _ = sender.send(deliver(&scene.victim, &text).unwrap());
        });
        receiver
    }
}

#[test]
fn a_peer_that_drips_is_given_up_for_another_source() {
    let scene = Arc::new(Scene::new());
    let size = scene.bytes.len();
    let drip = Peer::new(move |request, stream| {
        send_range_head(request, stream, size)?;
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_secs(1));
        }
        None
    });
    let delivered = scene.deliver_in_time(vec![
        ("drip".to_owned(), drip.url()),
        ("repo".to_owned(), scene.repo.url().to_owned()),
    ]);
    let delivery = delivered.recv_timeout(PATIENCE).unwrap();
    assert_eq!(delivery.source, Some(1));
    let error = &delivery.failures[0].error;
    assert!(error.to_string().contains("less than the"), "{error}");
    assert_eq!(std::fs::read(scene.dest()).unwrap(), scene.bytes);
}

#[test]
fn a_head_that_drips_is_given_up_too() {
    let scene = Arc::new(Scene::new());
    let drip = Peer::new(|_, stream| {
        for byte in b"HTTP/1.1 206 Partial Content\r\nX: "
            .iter()
            .chain([b'x'; 1000].iter())
        {
            stream.write_all(&[*byte]).ok()?;
            std::thread::sleep(Duration::from_secs(1));
        }
        None
    });
    let delivered = scene.deliver_in_time(vec![
        ("drip".to_owned(), drip.url()),
        ("repo".to_owned(), scene.repo.url().to_owned()),
    ]);
    let delivery = delivered.recv_timeout(PATIENCE).unwrap();
    assert_eq!(delivery.source, Some(1));
}

#[test]
fn who_cut_a_wrong_manifest_is_blamed_and_not_who_completed_it() {
    let scene = Scene::new();
    let key = ObjectKey {
        kind: Kind::Manifests,
        ..scene.key
    };
    let right = std::fs::read(&scene.manifest).unwrap();
    let size = right.len();
    let liar = Peer::new(move |_, stream| {
        send_head(stream, 200, &format!("Content-Length: {size}\r\n"))?;
        stream.write_all(&vec![b'x'; size / 2]).ok()?;
        None
    });
    let dest = scene.site.held("victim", key);
    let sources = [("liar", &*liar.url()), ("repo", scene.repo.url())];
    let delivery = deliver(&scene.victim, &order(key, &dest, None, &sources)).unwrap();
    assert_eq!(delivery.source, Some(1), "{delivery:?}");
    assert_eq!(std::fs::read(&dest).unwrap(), right);
    let complaints = scene.victim.take_complaints();
    let about: Vec<_> = complaints.iter().map(|one| one.about.as_str()).collect();
    assert_eq!(about, ["liar"], "{complaints:?}");
}

#[test]
fn a_forged_length_is_a_lie_and_no_full_disk() {
    let scene = Scene::new();
    let patch = scene.site.hold_patch("repo", &Bytes(3).take(100_000));
    let liar = Peer::new(|_, stream| {
        send_head(stream, 200, "Content-Length: 1000000000000000\r\n")?;
        stream.write_all(b"x").ok()
    });
    let dest = scene.site.held("victim", patch);
    let sources = [("liar", &*liar.url()), ("repo", scene.repo.url())];
    let mut text: serde_json::Value =
        serde_json::from_str(&order(patch, &dest, None, &sources)).unwrap();
    text["max_size"] = 100_000.into();
    let delivery = deliver(&scene.victim, &text.to_string()).unwrap();
    assert_eq!(delivery.source, Some(1), "{delivery:?}");
    let error = &delivery.failures[0].error;
    assert!(matches!(error, TransferError::Integrity { .. }), "{error}");
}

#[test]
fn a_length_that_nothing_bounds_is_no_full_disk_either() {
    let scene = Scene::new();
    let patch = scene.site.hold_patch("repo", &Bytes(3).take(100_000));
    let liar = Peer::new(|_, stream| {
        send_head(stream, 200, "Content-Length: 1000000000000000\r\n")?;
        stream.write_all(b"x").ok()?;
        None
    });
    let dest = scene.site.held("victim", patch);
    let sources = [("liar", &*liar.url()), ("repo", scene.repo.url())];
    let delivery = deliver(&scene.victim, &order(patch, &dest, None, &sources)).unwrap();
    assert_eq!(delivery.source, Some(1), "{delivery:?}");
}

#[test]
fn a_peer_that_lies_twice_is_left_alone() {
    let scene = Scene::new();
    let size = scene.bytes.len();
    let liar = Peer::new(move |request, stream| {
        let length = send_range_head(request, stream, size)?;
        stream.write_all(&vec![b'x'; length]).ok()
    });
    let sources = [("liar", &*liar.url()), ("repo", scene.repo.url())];
    let text = order(scene.key, &scene.dest(), Some(&scene.manifest), &sources);
    let mut asked = Vec::new();
    for _ in 0..4 {
        let delivery = deliver(&scene.victim, &text).unwrap();
        assert_eq!(delivery.source, Some(1));
        asked.push(liar.asked());
        std::fs::remove_file(scene.dest()).unwrap();
    }
    assert_eq!(asked[1], asked[3], "{asked:?}");
    let alone = scene.victim.left_alone();
    assert_eq!(alone.len(), 1);
    assert_eq!(alone[0].host, "liar");
    assert!(scene
        .victim
        .take_complaints()
        .iter()
        .any(|one| one.about == "liar" && one.reason.starts_with("left alone for 300 s")));
}

#[test]
fn the_repository_is_reported_but_never_left_alone() {
    let scene = Scene::new();
    let path = scene.site.held("repo", scene.key);
    let damaged = vec![b'x'; scene.bytes.len()];
    std::fs::write(&path, damaged).unwrap();
    let sources = [("repo", scene.repo.url())];
    let text = order(scene.key, &scene.dest(), Some(&scene.manifest), &sources);
    for _ in 0..3 {
        assert_eq!(deliver(&scene.victim, &text).unwrap().source, None);
    }
    std::fs::write(&path, &scene.bytes).unwrap();
    assert_eq!(deliver(&scene.victim, &text).unwrap().source, Some(0));
}

#[test]
fn a_claims_answer_sends_a_signed_request_to_known_hosts_only() {
    let scene = Scene::new();
    let trap = Peer::new(|_, _| None);
    let trap_url = trap.url();
    let coordinator = Peer::new(move |_, stream| {
        let body = format!("{{\"holder\": \"x\", \"url\": \"{trap_url}\"}}");
        send_head(stream, 200, &format!("Content-Length: {}\r\n", body.len()))?;
        stream.write_all(body.as_bytes()).ok()
    });
    // Many hosts at one address, so that one of them ranks before the victim.
    let hosts: Vec<_> = (0..30)
        .map(|number| serde_json::json!({"name": format!("c{number}"), "url": coordinator.url()}))
        .collect();
    let hosts = serde_json::Value::from(hosts).to_string();
    scene.victim.claimant.set_site(parse_hosts(&hosts).unwrap());
    let sources = [("repo", scene.repo.url())];
    let text = order(scene.key, &scene.dest(), Some(&scene.manifest), &sources);
    let delivery = deliver(&scene.victim, &text).unwrap();
    assert_eq!(delivery.source, Some(0));
    assert!(!coordinator.requests.lock().unwrap().is_empty());
    assert!(trap.requests.lock().unwrap().is_empty());
    assert!(
        delivery
            .warnings
            .iter()
            .any(|text| text.contains("does not know")),
        "{:?}",
        delivery.warnings
    );
}

/// Makes the victim's coordinator of nearly everything answer each request in one way.
fn coordinate(scene: &Scene, status: u16, body: &'static str) -> Peer {
    let coordinator = Peer::new(move |_, stream| {
        let length = format!("Content-Length: {}\r\n", body.len());
        send_head(stream, status, &length)?;
        stream.write_all(body.as_bytes()).ok()
    });
    let hosts: Vec<_> = (0..30)
        .map(|number| serde_json::json!({"name": format!("c{number}"), "url": coordinator.url()}))
        .collect();
    let hosts = serde_json::Value::from(hosts).to_string();
    scene.victim.claimant.set_site(parse_hosts(&hosts).unwrap());
    coordinator
}

#[test]
fn a_coordinator_that_does_not_say_knows_of_no_announcement() {
    let scene = Scene::new();
    let body = "{\"error\": \"this method is not for that path\", \"reason\": \"method\"}";
    let coordinator = coordinate(&scene, 405, body);
    let mut warnings = Vec::new();
    let mut warn = |text| warnings.push(text);
    let claimant = &scene.victim.claimant;
    assert!(!is_announced(claimant, scene.key, Stage::Coming, &mut warn).unwrap());
    assert!(warnings.is_empty(), "{warnings:?}");
    assert!(claimant.unreachable.names().is_empty());
    let requests = coordinator.requests.lock().unwrap();
    let is_asked = |one: &String| one.starts_with("GET /v1/claims/");
    assert!(requests.iter().any(is_asked));
}

#[test]
fn what_a_coordinator_says_of_an_announcement_may_be_nonsense() {
    let scene = Scene::new();
    let _coordinator = coordinate(&scene, 200, "{\"holder\": 7}");
    let mut warnings = Vec::new();
    let mut warn = |text| warnings.push(text);
    let claimant = &scene.victim.claimant;
    let found = is_announced(claimant, scene.key, Stage::Coming, &mut warn);
    assert!(!found.unwrap());
    assert!(
        warnings.iter().all(|text| text.contains("malformed")),
        "{warnings:?}"
    );
    assert!(!warnings.is_empty());
}

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; 4096];
    let count = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..count]).into_owned()
}

#[test]
fn a_signed_request_cannot_be_sent_to_another_host_nor_after_a_restart() {
    let site = Site::new();
    let patch = site.hold_patch("a", b"a secret");
    site.hold_patch("b", b"a secret");
    let relay = Relay::new();
    let open = || {
        let config = Config {
            advertise_url: Some(relay.url()),
            ..site.config("a")
        };
        let plane = DataPlane::open(config).unwrap();
        relay.lead_to(plane.address());
        plane
    };
    let (a, b, c) = (open(), site.plane("b"), site.plane("c"));
    let dest = site.held("c", patch);
    let sources = [("a", &*relay.url())];
    let delivery = deliver(&c, &order(patch, &dest, None, &sources)).unwrap();
    assert_eq!(delivery.source, Some(0), "{delivery:?}");
    let text = String::from_utf8(relay.seen.lock().unwrap().clone()).unwrap();
    let captured = &text[text.find("GET /v1/objects/").unwrap()..];
    let at_b = ask(b.url().strip_prefix("http://").unwrap(), captured);
    assert!(at_b.starts_with("HTTP/1.1 401"), "{at_b}");
    assert!(at_b.contains("wrong-destination"), "{at_b}");
    let ask_a = || ask(&relay.address.to_string(), captured);
    assert!(ask_a().contains("replayed"));
    a.close();
    let again = open();
    let answer = ask_a();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(answer.contains("stale-boot"), "{answer}");
    // A client that has the key still gets the object.
    std::fs::remove_file(&dest).unwrap();
    let delivery = deliver(&c, &order(patch, &dest, None, &sources)).unwrap();
    assert_eq!(delivery.source, Some(0), "{delivery:?}");
    drop(again);
}

#[test]
fn connections_that_send_a_byte_at_a_time_take_no_places() {
    let scene = Scene::new();
    let address = scene.repo.url().strip_prefix("http://").unwrap().to_owned();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let attackers: Vec<_> = (0..4)
        .map(|_| {
            let (address, stop) = (address.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut open: Vec<TcpStream> = Vec::new();
                while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                    open.retain_mut(|stream| stream.write_all(b"G").is_ok());
                    while open.len() < 150 {
                        let connected = TcpStream::connect_timeout(
                            &address.parse().unwrap(),
                            Duration::from_secs(1),
                        );
                        match connected {
                            Ok(stream) => open.push(stream),
                            Err(_) => break,
                        }
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        })
        .collect();
    until("the attack has begun", || {
        scene.repo.stats().connections > 100
    });
    let sources = [("repo", scene.repo.url())];
    let text = order(scene.key, &scene.dest(), Some(&scene.manifest), &sources);
    for number in 0..16 {
        let delivery = deliver(&scene.victim, &text).unwrap();
        assert_eq!(delivery.source, Some(0), "{number}: {delivery:?}");
        std::fs::remove_file(scene.dest()).unwrap();
        // The next one needs a connection of its own.
        scene.victim.reload_tls().unwrap();
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    for attacker in attackers {
        attacker.join().unwrap();
    }
}

#[test]
fn a_peer_that_needs_long_is_told_from_a_connection_that_was_forgotten() {
    // It answers once over each connection, after the introduction.
    let peer = Peer::new(|request, stream| match request.contains("bytes=0-0") {
        true => {
            send_range_head(request, stream, 10)?;
            stream.write_all(b"x").ok()
        }
        false => Some(()),
    });
    let client = Client::new(
        Some(Keys::single(site_key())),
        Duration::from_millis(200),
        Arc::default(),
    );
    let stop = Stop::new(Cancel::default(), Arc::default());
    let remote = Remote {
        peer: peer::Peer::parse(&peer.url()).unwrap(),
        key: ObjectKey::parse("images", &"a".repeat(64)).unwrap(),
        trace: None,
    };
    let path = remote.key.object_path();
    let read = |connection: &mut Connection, range| {
        let ask = Ask {
            method: "GET",
            path: &path,
            range: Some(range),
            body: b"",
            hold: 0,
            want: Want::Fetched,
            takes_frames: false,
            known: None,
            requester: None,
        };
        client.send(connection, &remote, &ask)?;
        client.receive_range(connection, &remote, range, &stop)?;
        connection.read(&mut [0], &stop)
    };
    // On a busy machine its time may be too short for what is answered, too.
    let connected = || loop {
        if let Ok(connection) = client.renewed(&remote.peer, &stop) {
            return connection;
        }
    };
    let slow = read(&mut connected(), (5, 6));
    assert!(matches!(slow, Err(Fault::Slow { .. })), "{slow:?}");
    let mut connection = connected();
    while read(&mut connection, (0, 1)).is_err() {
        connection = connected();
    }
    let forgotten = read(&mut connection, (5, 6));
    assert!(matches!(forgotten, Err(Fault::Broken(_))), "{forgotten:?}");
}
