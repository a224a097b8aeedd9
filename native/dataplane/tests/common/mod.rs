//! Planes on loopback, and images to move between them.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

pub mod peers;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use diffcache_core::manifest::{Manifest, LEAF_SIZE};
use diffcache_core::source::FileSource;
use diffcache_core::task::Task;
use diffcache_dataplane::counters::Event;
use diffcache_dataplane::fetching::minimum_rate::Floors;
use diffcache_dataplane::fetching::part::Durability;
use diffcache_dataplane::fetching::peer::{Peer, Remote};
use diffcache_dataplane::gate::Cancel;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::plane::{Config, DataPlane, Job};
use diffcache_dataplane::serving::service::Limits;
use diffcache_dataplane::transport::auth::{Keys, SiteKey};

/// A rate at which nothing arrives: what is under way stays so until a test lets it continue.
pub const HELD: Option<f64> = Some(1.0);

/// How long tests wait for what has to come, however slow the machine is.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// A generator whose bytes are the same in every run.
pub struct Bytes(pub u64);

impl Bytes {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

pub fn site_key() -> SiteKey {
    SiteKey::new("site", &[7; 32]).unwrap()
}

pub struct Site {
    directory: tempfile::TempDir,
}

impl Site {
    pub fn new() -> Site {
        Site {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn config(&self, name: &str) -> Config {
        Config {
            root: self.path(name),
            name: name.to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            advertise_url: None,
            keys: Some(Keys::single(site_key())),
            tls: None,
            rate: None,
            latency: Duration::ZERO,
            claim_ttl: Duration::from_secs(30),
            lend_time: Duration::ZERO,
            timeout: PATIENCE,
            floors: Floors::default(),
            compress_below: 0.0,
            distrust_time: Duration::from_secs(300),
            limits: Limits::default(),
            traces: false,
        }
    }

    pub fn plane(&self, name: &str) -> DataPlane {
        DataPlane::open(self.config(name)).unwrap()
    }

    /// Where a host keeps an object.
    pub fn held(&self, host: &str, key: ObjectKey) -> PathBuf {
        self.path(host).join(key.kind.as_str()).join(key.id_hex())
    }

    /// Puts an image into a host's holdings, with its manifest.
    pub fn hold(&self, host: &str, image: &[u8]) -> Image {
        let path = self.path(&format!("{host}/staging/image"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_sparse(&path, image);
        let manifest =
            Manifest::from_source(&FileSource::open(&path).unwrap(), &Task::default()).unwrap();
        let key = ObjectKey {
            kind: Kind::Images,
            id: manifest.content_id(),
        };
        let manifest_key = ObjectKey {
            kind: Kind::Manifests,
            ..key
        };
        let manifest_path = self.held(host, manifest_key);
        for path in [&manifest_path, &self.held(host, key)] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        }
        manifest.save(&manifest_path).unwrap();
        std::fs::rename(&path, self.held(host, key)).unwrap();
        Image {
            key,
            manifest_key,
            manifest,
            manifest_path,
        }
    }

    /// Puts bytes into a host's holdings as a patch.
    pub fn hold_patch(&self, host: &str, bytes: &[u8]) -> ObjectKey {
        self.hold_blob(host, Kind::Patches, bytes)
    }

    pub fn hold_blob(&self, host: &str, kind: Kind, bytes: &[u8]) -> ObjectKey {
        let key = ObjectKey {
            kind,
            id: *blake3::hash(bytes).as_bytes(),
        };
        let path = self.held(host, key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        key
    }
}

pub struct Image {
    pub key: ObjectKey,
    pub manifest_key: ObjectKey,
    pub manifest: Manifest,
    pub manifest_path: PathBuf,
}

/// Leaves that are zero are left out of the file.
pub fn write_sparse(path: &Path, image: &[u8]) {
    let file = File::create(path).unwrap();
    file.set_len(image.len() as u64).unwrap();
    for (index, leaf) in image.chunks(LEAF_SIZE as usize).enumerate() {
        if leaf.iter().any(|byte| *byte != 0) {
            file.write_all_at(leaf, index as u64 * LEAF_SIZE).unwrap();
        }
    }
}

/// An image of this many leaves and a bit, in which every leaf of `zero` is zero.
pub fn image(leaves: usize, zero: impl Fn(usize) -> bool) -> Vec<u8> {
    let leaf = LEAF_SIZE as usize;
    let mut image = Bytes(88_172_645_463_325_252).take(leaves * leaf + 1234);
    for index in (0..leaves).filter(|index| zero(*index)) {
        image[index * leaf..(index + 1) * leaf].fill(0);
    }
    image
}

pub fn remote(plane: &DataPlane, key: ObjectKey) -> Remote {
    Remote {
        peer: Peer::parse(plane.url()).unwrap(),
        key,
        trace: None,
    }
}

pub fn job(dest: &Path) -> Job<'_> {
    Job {
        dest,
        lend: Duration::ZERO,
        durability: Durability::Process,
        report: None,
        cancel: Cancel::default(),
        interrupt: Cancel::default(),
        max_size: None,
        over_wan: false,
        frames: false,
        received: None,
    }
}

/// Checks what a plane has sent; it counts bytes after it has sent them.
pub fn assert_sent(plane: &DataPlane, kind: Kind, bytes: u64) {
    let sent = || plane.stats().counters.sent(kind);
    until("the bytes were counted", || sent() >= bytes);
    assert_eq!(sent(), bytes);
}

/// Waits for something that another thread brings about.
pub fn until(what: &str, probe: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !probe() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a peer that knows nothing of a plane has asked it for an object.
pub fn until_asked(plane: &DataPlane) {
    until("there is a reader behind", || {
        // The first request learns the plane's boot.
        plane.stats().events(Event::Request) > 1
    });
}

/// Leaves of text that compress, some noise, and zeroes.
pub fn compressible(leaves: usize) -> Vec<u8> {
    let mut image = image(leaves, |leaf| leaf % 3 == 0);
    for (number, leaf) in image.chunks_mut(LEAF_SIZE as usize).enumerate() {
        if number % 3 == 1 {
            let line = format!("option_{number} = default\n");
            let text = line.repeat(leaf.len() / line.len() + 1);
            leaf.copy_from_slice(&text.as_bytes()[..leaf.len()]);
        }
    }
    image
}
