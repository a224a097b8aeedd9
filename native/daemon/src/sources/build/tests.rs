//! Tests of building chunks from objects at real data planes.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_base::hex;
use diffcache_core::manifest::Manifest;
use diffcache_core::patch::format::info;
use diffcache_core::patch::{create, CreateOptions};
use diffcache_core::task::Task;
use diffcache_dataplane::fetching::minimum_rate::Floors;
use diffcache_dataplane::plane::{Config, DataPlane};
use diffcache_dataplane::serving::service::Limits;

use super::*;
use crate::config::Identity;
use crate::image::chunk::ChunkError;
use crate::image::leaves::Leaves;
use crate::processes::shared::{Counter, Shared, SourceCounter};
use crate::sources::local_patch::remove_others;
use crate::sources::selection::{Sources, Wanted};

mod chains;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The next build: a piece of it is new, one has moved, one is zeroes.
fn next_build(base: &[u8]) -> Vec<u8> {
    let mut target = base.to_vec();
    target[MIB..MIB + 300_000].copy_from_slice(&noise(2, 300_000));
    target.copy_within(0..MIB / 2, 2 * MIB);
    target[3 * MIB..3 * MIB + MIB / 2].fill(0);
    target.extend_from_slice(&noise(3, 12_345));
    target
}

fn id_of(bytes: &[u8]) -> [u8; 32] {
    Manifest::from_source(&bytes, &Task::default())
        .unwrap()
        .content_id()
}

/// A host with objects.
struct Host {
    folder: tempfile::TempDir,
    plane: DataPlane,
}

impl Host {
    fn new(name: &str) -> Host {
        let folder = tempfile::tempdir().unwrap();
        let plane = DataPlane::open(Config {
            root: folder.path().to_owned(),
            name: name.to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            advertise_url: None,
            keys: None,
            tls: None,
            rate: None,
            latency: Duration::ZERO,
            claim_ttl: LIMIT,
            lend_time: Duration::ZERO,
            timeout: LIMIT,
            floors: Floors::default(),
            compress_below: 0.0,
            distrust_time: LIMIT,
            limits: Limits::default(),
            traces: false,
        });
        Host {
            folder,
            plane: plane.unwrap(),
        }
    }

    fn path(&self, kind: Kind, id: &[u8; 32]) -> PathBuf {
        self.folder.path().join(kind.as_str()).join(hex::encode(id))
    }

    fn place(&self, id: [u8; 32], wan: bool) -> ObjectPlace {
        ObjectPlace {
            peer: self.plane.url().to_owned(),
            id,
            wan,
        }
    }
}

/// A site with a base, and a repository with a patch from it.
struct Site {
    base: Vec<u8>,
    target: Vec<u8>,
    patch: Vec<u8>,
    patch_id: [u8; 32],
    peer: Host,
    repository: Host,
    state: tempfile::TempDir,
}

impl Site {
    fn new() -> Site {
        let base = noise(1, 4 * MIB);
        let target = next_build(&base);
        let (peer, repository) = (Host::new("peer"), Host::new("repository"));
        fs::write(peer.path(Kind::Images, &id_of(&base)), &base).unwrap();
        let output = repository.folder.path().join("patch");
        create(&base, &target, &output, &CreateOptions::default()).unwrap();
        let patch = fs::read(&output).unwrap();
        let patch_id = *blake3::hash(&patch).as_bytes();
        fs::rename(&output, repository.path(Kind::Patches, &patch_id)).unwrap();
        Site {
            base,
            target,
            patch,
            patch_id,
            peer,
            repository,
            state: tempfile::tempdir().unwrap(),
        }
    }

    fn manifest(&self) -> Manifest {
        Manifest::from_source(&self.target, &Task::default()).unwrap()
    }

    fn source(&self) -> BuildSource {
        let place = BuildPlace {
            base: self.peer.place(id_of(&self.base), false),
            through: Vec::new(),
            patch: self.repository.place(self.patch_id, true),
        };
        let peers = Peers::new(&Identity::default()).unwrap();
        BuildSource::open(&place, &peers, &self.manifest(), self.state.path()).unwrap()
    }

    fn patch_path(&self) -> PathBuf {
        self.repository.path(Kind::Patches, &self.patch_id)
    }

    /// Replace a byte of the patch at the repository.
    fn damage_patch(&self, at: usize) {
        let mut damaged = self.patch.clone();
        damaged[at] ^= 1;
        fs::write(self.patch_path(), damaged).unwrap();
    }

    fn read(&self, source: &BuildSource, chunks: Range<u64>) -> Result<Fetched, SourceError> {
        let end = (chunks.end * CHUNK).min(self.target.len() as u64);
        let len = (end - chunks.start * CHUNK) as usize;
        let fetched = source.fetch(&chunks, len, LIMIT, &mut |_| {})?;
        assert_eq!(
            fetched.bytes,
            &self.target[(chunks.start * CHUNK) as usize..end as usize]
        );
        Ok(fetched)
    }
}

#[test]
fn chunks_are_built_and_each_byte_of_the_patch_comes_once() {
    let site = Site::new();
    let source = site.source();
    assert!(!source.is_near());
    let mut of_patch = 0;
    for chunk in (0..17).rev() {
        let fetched = site.read(&source, chunk..chunk + 1).unwrap();
        assert!(fetched.moved >= fetched.of_patch);
        of_patch += fetched.of_patch;
    }
    assert_eq!(of_patch, site.patch.len() as u64);
    assert_eq!(site.read(&source, 0..4).unwrap().of_patch, 0);
    // The next worker finds it on the disk.
    fs::remove_file(site.patch_path()).unwrap();
    let fetched = site.read(&site.source(), 4..8).unwrap();
    assert_eq!((fetched.of_patch, fetched.others.len()), (0, 0));
}

#[test]
fn a_read_takes_no_more_of_the_patch_than_it_needs() {
    let site = Site::new();
    let source = site.source();
    let header = info(&site.patch).unwrap().header;
    let ends = header.patch_size - header.meta_offset + 288;
    // Blocks of the base alone.
    assert_eq!(site.read(&source, 0..1).unwrap().of_patch, ends);
    let new = site.read(&source, 4..5).unwrap().of_patch;
    assert!(0 < new && new < header.meta_offset, "{new}");
}

#[test]
fn threads_that_need_the_same_frames_share_them() {
    let site = Site::new();
    let source = site.source();
    let read = || site.read(&source, 4..6).unwrap().of_patch;
    let of_patch: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(of_patch <= site.patch.len() as u64);
    assert_eq!(site.read(&source, 4..6).unwrap().of_patch, 0);
}

#[test]
fn a_damaged_frame_is_not_kept() {
    let site = Site::new();
    let source = site.source();
    site.damage_patch(300);
    site.read(&source, 0..1).unwrap();
    let failed = site.read(&source, 4..8);
    assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    fs::write(site.patch_path(), &site.patch).unwrap();
    site.read(&source, 4..8).unwrap();
}

#[test]
fn ends_that_are_damaged_or_of_another_patch_are_fetched_again() {
    let site = Site::new();
    let source = site.source();
    for at in [50, site.patch.len() - 5] {
        site.damage_patch(at);
        let failed = site.read(&source, 0..1);
        assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    }
    let other = site.repository.folder.path().join("other");
    create(
        &site.base,
        &noise(9, MIB),
        &other,
        &CreateOptions::default(),
    )
    .unwrap();
    fs::rename(&other, site.patch_path()).unwrap();
    let failed = site.read(&source, 0..1);
    assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    fs::write(site.patch_path(), &site.patch).unwrap();
    site.read(&source, 0..17).unwrap();
    // Frames stay, header and end come again.
    source.distrust();
    let again = site.read(&source, 0..17).unwrap().of_patch;
    assert!(0 < again && again < site.patch.len() as u64 / 10, "{again}");
}

#[test]
fn a_patch_that_is_larger_than_the_image_is_refused() {
    let site = Site::new();
    let mut larger = site.patch.clone();
    larger.resize(site.target.len() + 1, 0);
    fs::write(site.patch_path(), larger).unwrap();
    let failed = site.read(&site.source(), 0..1);
    assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    let kept = fs::metadata(
        site.state
            .path()
            .join(hex::encode(&site.patch_id) + ".patch"),
    );
    assert_eq!(kept.unwrap().len(), 0);
}

#[test]
fn patches_that_no_source_names_are_removed() {
    let site = Site::new();
    site.read(&site.source(), 0..1).unwrap();
    let kept = site
        .state
        .path()
        .join(hex::encode(&site.patch_id) + ".patch");
    fs::write(site.state.path().join("x.data"), b"data").unwrap();
    remove_others(site.state.path(), &[site.patch_id]).unwrap();
    assert!(kept.exists());
    remove_others(site.state.path(), &[]).unwrap();
    assert!(!kept.exists() && site.state.path().join("x.data").exists());
}

/// Sources of the image: the build, then the whole image.
struct Both {
    sources: Sources,
    leaves: Leaves,
    shared: Arc<Shared>,
    folder: tempfile::TempDir,
}

impl Both {
    fn new(site: &Site) -> Both {
        let folder = tempfile::tempdir().unwrap();
        let whole = folder.path().join("whole");
        fs::write(&whole, &site.target).unwrap();
        let shared = Arc::new(Shared::map(Shared::create(17).unwrap()).unwrap());
        let whole = crate::sources::source::open_plain(whole.to_str().unwrap());
        let sources = vec![Box::new(site.source()) as Box<dyn Source>, whole];
        Both {
            sources: Sources::new(sources, shared.clone()),
            leaves: Leaves::open(folder.path(), site.manifest()).unwrap(),
            shared,
            folder,
        }
    }

    /// Read some chunks and return the requests of both sources, and the failures of the build.
    fn read(&self, site: &Site, chunks: Range<u64>) -> [u64; 3] {
        let wanted = Wanted {
            leaves: &self.leaves,
            run: &chunks,
            before_arrival: &|_| {},
            on_arrival: &|| {},
        };
        let fetched = self.sources.fetch_directly(wanted, Instant::now() + LIMIT);
        let start = (chunks.start * CHUNK) as usize;
        let bytes = fetched.unwrap().bytes;
        assert_eq!(bytes, &site.target[start..start + bytes.len()]);
        let count = |index, counter| {
            let counter = self.shared.source_counter(index, counter);
            counter.load(Ordering::SeqCst)
        };
        [
            count(0, SourceCounter::Requests),
            count(1, SourceCounter::Requests),
            count(0, SourceCounter::Failures),
        ]
    }
}

#[test]
fn a_base_that_vanishes_leaves_the_rest_to_the_next_source() {
    let site = Site::new();
    let both = Both::new(&site);
    assert_eq!(both.read(&site, 0..4), [1, 0, 0]);
    fs::remove_file(site.peer.path(Kind::Images, &id_of(&site.base))).unwrap();
    assert_eq!(both.read(&site, 12..15), [2, 1, 1]);
    assert_eq!(both.shared.get(Counter::Corrupt), 0);
    // It is left alone for a while.
    assert_eq!(both.read(&site, 8..9), [2, 2, 1]);
    drop(both.folder);
}

#[test]
fn wrong_bytes_of_base_or_patch_are_counted_and_left_to_the_next_source() {
    let site = Site::new();
    let mut other = site.base.clone();
    other[MIB / 4] ^= 1;
    fs::write(site.peer.path(Kind::Images, &id_of(&site.base)), other).unwrap();
    let both = Both::new(&site);
    assert_eq!(both.read(&site, 0..4), [1, 1, 1]);
    assert_eq!(both.shared.get(Counter::Corrupt), 1);

    let site = Site::new();
    site.damage_patch(300);
    let both = Both::new(&site);
    assert_eq!(both.read(&site, 4..8), [1, 1, 1]);
    assert_eq!(both.shared.get(Counter::Corrupt), 1);
    // For minutes.
    assert_eq!(both.read(&site, 0..4), [1, 2, 1]);
}

#[test]
fn a_base_of_another_size_is_wrong() {
    let site = Site::new();
    let path = site.peer.path(Kind::Images, &id_of(&site.base));
    fs::write(path, &site.base[..2 * MIB]).unwrap();
    let failed = site.read(&site.source(), 0..1);
    assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    assert!(ChunkError::from(failed.unwrap_err()).delay().is_zero());
}
