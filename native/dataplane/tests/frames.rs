//! Images in frames, between hosts of a site on a slow network.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use common::peers::{range_of, send_head, send_range_head, Peer};
use common::{
    compressible, job, remote, site_key, until, until_asked, Image, Site, HELD, PATIENCE,
};
use diffcache_core::compressed::Encoder;
use diffcache_core::source::ReadAt;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::fetching::client::{Client, Stop};
use diffcache_dataplane::fetching::delivery::{parse_order, Delivery};
use diffcache_dataplane::fetching::peer::{self, Remote};
use diffcache_dataplane::fetching::source::HttpSource;
use diffcache_dataplane::fetching::wan::Handle;
use diffcache_dataplane::gate::{Cancel, Gate};
use diffcache_dataplane::ids::Kind;
use diffcache_dataplane::plane::{Config, DataPlane, Job};
use diffcache_dataplane::transport::auth::Keys;

const LEAVES: usize = 100;

struct Scene {
    site: Site,
    holder: DataPlane,
    host: DataPlane,
    bytes: Vec<u8>,
    held: Image,
    dest: PathBuf,
}

impl Scene {
    fn new() -> Scene {
        let site = Site::new();
        let (holder, host) = (site.plane("holder"), site.plane("host"));
        let bytes = compressible(LEAVES);
        let held = site.hold("holder", &bytes);
        let dest = site.path("host/output");
        Scene {
            site,
            holder,
            host,
            bytes,
            held,
            dest,
        }
    }

    fn data(&self) -> u64 {
        self.held.manifest.data_size()
    }

    /// Lets the host fetch the image from a peer, in frames if that takes the offer.
    fn fetch(&self, from: &Remote) -> Result<u64, TransferError> {
        let job = Job {
            frames: true,
            ..job(&self.dest)
        };
        let manifest = Some(self.held.manifest_path.as_path());
        self.host.fetch(from, manifest, None, &job)
    }

    fn is_fetched(&self) -> bool {
        std::fs::read(&self.dest).unwrap() == self.bytes
    }

    fn from(&self, peer: &Peer) -> Remote {
        Remote {
            peer: peer::Peer::parse(&peer.url()).unwrap(),
            key: self.held.key,
            trace: None,
        }
    }
}

#[test]
fn an_image_crosses_in_frames_that_are_half_as_long() {
    let scene = Scene::new();
    let from = remote(&scene.holder, scene.held.key);
    let received = scene.fetch(&from).unwrap();
    assert!(scene.is_fetched());
    assert!(received < scene.data() * 6 / 10, "{received}");
    let sent = || scene.holder.stats().counters.sent(Kind::Images);
    until("the bytes were counted", || sent() >= received);
    assert_eq!(sent(), received);
}

#[test]
fn blobs_are_sent_as_they_are() {
    let scene = Scene::new();
    let patch = scene.site.hold_patch("holder", &vec![7; 1 << 20]);
    let job = Job {
        frames: true,
        ..job(&scene.dest)
    };
    let from = remote(&scene.holder, patch);
    assert_eq!(scene.host.fetch(&from, None, None, &job).unwrap(), 1 << 20);
}

#[test]
fn borrowed_and_arriving_images_cross_in_frames() {
    let scene = Scene::new();
    let content = scene.site.path("base");
    std::fs::write(&content, &scene.bytes).unwrap();
    let lender = scene.site.plane("lender");
    let manifest = &scene.held.manifest_path;
    lender.borrow(scene.held.key, &content, manifest).unwrap();
    let received = scene.fetch(&remote(&lender, scene.held.key)).unwrap();
    assert!(scene.is_fetched() && received < scene.data() * 6 / 10);

    // Behind a host that reads from a slow one; it has nothing of it at first.
    std::fs::remove_file(&scene.dest).unwrap();
    scene.holder.set_rate(HELD).unwrap();
    let middle = scene.site.plane("middle");
    let path = scene.site.path("middle/output");
    std::thread::scope(|scope| {
        let arriving = scope.spawn(|| {
            let from = remote(&scene.holder, scene.held.key);
            middle.fetch(&from, Some(manifest), None, &job(&path))
        });
        until("the image is arriving", || middle.stats().in_flight == 1);
        let behind = scope.spawn(|| scene.fetch(&remote(&middle, scene.held.key)));
        until_asked(&middle);
        scene.holder.set_rate(None).unwrap();
        let received = behind.join().unwrap().unwrap();
        assert!(scene.is_fetched() && received < scene.data() * 6 / 10);
        arriving.join().unwrap().unwrap();
    });
}

#[test]
fn a_borrowed_file_that_changed_ends_the_response() {
    let scene = Scene::new();
    let content = scene.site.path("base");
    let mut bytes = scene.bytes.clone();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&content, &bytes).unwrap();
    let lender = scene.site.plane("lender");
    let manifest = &scene.held.manifest_path;
    lender.borrow(scene.held.key, &content, manifest).unwrap();
    assert!(scene.fetch(&remote(&lender, scene.held.key)).is_err());
    assert!(!scene.dest.exists());
    assert_eq!(lender.take_changed(), [scene.held.key]);
}

#[test]
fn any_range_of_a_source_is_read_in_frames() {
    let scene = Scene::new();
    let keys = Some(Keys::single(site_key()));
    let client = Client::new(keys, PATIENCE, Arc::default());
    let stop = Stop::new(Cancel::default(), Arc::new(Gate::default()));
    let from = remote(&scene.holder, scene.held.key);
    let source = HttpSource::open(Arc::new(client), from, stop).unwrap();
    let source = source.with_frames();
    let size = scene.bytes.len();
    for (start, end) in [(0, size), (1, 70_000), (65_535, 3 << 20), (size - 9, size)] {
        let before = source.received();
        let mut read = vec![0; end - start];
        source.read_exact_at(&mut read, start as u64).unwrap();
        assert_eq!(read, &scene.bytes[start..end]);
        let received = source.received() - before;
        let length = (end - start) as u64;
        assert_eq!(
            received < length,
            length >= 1 << 16,
            "{received} of {length}"
        );
    }
}

#[test]
fn a_peer_of_an_earlier_release_sends_bytes() {
    let scene = Scene::new();
    let bytes = scene.bytes.clone();
    let old = Peer::new(move |request, stream| {
        assert!(request.contains("X-DiffCache-Accept: zstd"), "{request}");
        send_range_head(request, stream, bytes.len())?;
        let (start, end) = range_of(request)?;
        stream.write_all(&bytes[start..end]).ok()
    });
    assert_eq!(scene.fetch(&scene.from(&old)).unwrap(), scene.data());
    assert!(scene.is_fetched());
}

fn framed(request: &str, stream: &mut TcpStream, size: usize) -> Option<()> {
    let (start, end) = range_of(request)?;
    let last = end - 1;
    send_head(
        stream,
        206,
        &format!(
            "Transfer-Encoding: chunked\r\nX-DiffCache-Coding: zstd\r\nContent-Range: bytes {start}-{last}/{size}\r\n"
        ),
    )
}

fn frame_of(raw: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    Encoder::new(1).unwrap().encode(raw, &mut frame).unwrap();
    frame
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    let line = format!("{:x}\r\n", bytes.len());
    [line.as_bytes(), bytes, b"\r\n"].concat()
}

/// What the first two leaves of data become, and what a hostile peer makes of it.
fn hostile_bodies(bytes: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let raw = &bytes[1 << 16..3 << 16];
    let right = chunk(&frame_of(raw));
    let bomb = frame_of(&vec![0; 1 << 26]);
    let mut wrong = raw.to_vec();
    wrong[77_777] ^= 1;
    let mut longer = right.clone();
    longer.truncate(right.len() - 2);
    longer.extend_from_slice(b"more");
    vec![
        ("an empty chunk", b"0\r\n\r\n".to_vec()),
        (
            "a chunk longer than its bytes",
            chunk(&vec![0; raw.len() + 1]),
        ),
        ("a chunk of a length that is none", b"zz\r\n".to_vec()),
        ("a chunk with an extension", b"5;a=b\r\nabcde\r\n".to_vec()),
        ("a chunk of no end", b"00000000000000000000000000".to_vec()),
        ("a chunk of half the memory", b"7fffffffffff\r\n".to_vec()),
        ("a bomb", chunk(&bomb)),
        ("a short frame", chunk(&frame_of(&raw[1..]))),
        ("no frame", chunk(&[1; 1000])),
        ("other bytes", chunk(&frame_of(&wrong))),
        ("other bytes as they are", chunk(&wrong)),
        ("a frame longer than its chunk", longer),
        ("a second chunk", [right.clone(), right].concat()),
    ]
}

#[test]
fn hostile_frames_are_refused_and_blamed() {
    let bytes = compressible(LEAVES);
    for (what, body) in hostile_bodies(&bytes) {
        let scene = Scene::new();
        let size = bytes.len();
        let peer = Peer::new(move |request, stream| {
            framed(request, stream, size)?;
            stream.write_all(&body).ok()
        });
        let error = scene.fetch(&scene.from(&peer)).unwrap_err();
        assert!(
            matches!(error, TransferError::Integrity { .. }),
            "{what}: {error}"
        );
        assert!(!scene.dest.exists(), "{what}");
        let complaints = scene.host.take_complaints();
        assert_eq!(complaints.len(), 1, "{what}: {complaints:?}");
    }
}

#[test]
fn frames_without_an_offer_are_refused() {
    let scene = Scene::new();
    let size = scene.bytes.len();
    let peer = Peer::new(move |request, stream| {
        assert!(!request.contains("X-DiffCache-Accept"), "{request}");
        framed(request, stream, size)
    });
    let manifest = Some(scene.held.manifest_path.as_path());
    let fetched = scene
        .host
        .fetch(&scene.from(&peer), manifest, None, &job(&scene.dest));
    assert!(matches!(
        fetched,
        Err(TransferError::PeerUnavailable { .. })
    ));
}

#[test]
fn a_transfer_that_breaks_in_a_frame_resumes() {
    let scene = Scene::new();
    let bytes = scene.bytes.clone();
    let first = std::sync::atomic::AtomicBool::new(true);
    let peer = Peer::new(move |request, stream| {
        framed(request, stream, bytes.len())?;
        let (start, end) = range_of(request)?;
        for raw in bytes[start..end].chunks(1 << 20) {
            let chunk = chunk(&frame_of(raw));
            let breaks = first.swap(false, std::sync::atomic::Ordering::Relaxed);
            let length = if breaks { chunk.len() / 2 } else { chunk.len() };
            stream.write_all(&chunk[..length]).ok()?;
            if breaks {
                return None;
            }
        }
        stream.write_all(b"0\r\n\r\n").ok()
    });
    scene.fetch(&scene.from(&peer)).unwrap();
    assert!(scene.is_fetched());
}

/// A host of a site whose holder sends 8 MB/s, and two images that it has.
struct Slow {
    site: Site,
    holder: DataPlane,
    host: DataPlane,
    images: Vec<Image>,
}

impl Slow {
    fn new(compress_below: f64) -> Slow {
        let site = Site::new();
        let holder = site.plane("holder");
        holder.set_rate(Some(20e6)).unwrap();
        let host = DataPlane::open(Config {
            compress_below,
            ..site.config("host")
        })
        .unwrap();
        let images = [200, 201].map(|leaves| site.hold("holder", &compressible(leaves)));
        Slow {
            site,
            holder,
            host,
            images: images.into(),
        }
    }

    /// Bytes that an image took, and those of its data.
    fn deliver(&self, image: &Image) -> (u64, u64) {
        let order = serde_json::json!({
            "kind": "images", "id": image.key.id_hex(),
            "dest": self.site.path("host/output"), "manifest": image.manifest_path,
            "sources": [{"host": {"host": "holder", "url": self.holder.url(), "link": "lan"}}],
            "class": "request", "rate": null, "durable": false, "in_place": false,
        });
        let order = parse_order(&order.to_string()).unwrap();
        let delivery: Delivery = self.host.deliver(&order, &Handle::default(), None).unwrap();
        assert_eq!(delivery.source, Some(0), "{:?}", delivery.failures);
        (delivery.lan_bytes, image.manifest.data_size())
    }
}

#[test]
fn frames_are_asked_for_once_the_network_was_measured_to_be_slow() {
    let slow = Slow::new(25e6);
    let (bytes, data) = slow.deliver(&slow.images[0]);
    assert_eq!(bytes, data, "before anything was measured");
    assert!(slow.host.peer_rate().unwrap() < 25e6);
    let (bytes, data) = slow.deliver(&slow.images[1]);
    assert!(bytes < data * 6 / 10, "{bytes} of {data}");
    for compress_below in [0.0, 1e3] {
        let fast = Slow::new(compress_below);
        for image in &fast.images {
            let (bytes, data) = fast.deliver(image);
            assert_eq!(bytes, data);
        }
    }
}
