//! Images over the WAN in their compressed form.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

mod common;

use std::os::unix::fs::FileExt;
use std::path::Path;

use common::{job, remote, until, Image, Site};
use diffcache_core::compressed::{self, Index};
use diffcache_core::task::Task;
use diffcache_dataplane::error::TransferError;
use diffcache_dataplane::ids::{Kind, ObjectKey};
use diffcache_dataplane::plane::{DataPlane, Job};

struct Scene {
    site: Site,
    repository: DataPlane,
    host: DataPlane,
    image: Vec<u8>,
    held: Image,
}

impl Scene {
    fn new() -> Scene {
        let site = Site::new();
        let (repository, host) = (site.plane("repository"), site.plane("host"));
        let image = common::compressible(100);
        let held = site.hold("repository", &image);
        Scene {
            site,
            repository,
            host,
            image,
            held,
        }
    }

    fn form(&self) -> ObjectKey {
        ObjectKey {
            kind: Kind::Compressed,
            ..self.held.key
        }
    }

    fn compress(&self) -> u64 {
        let (content, form) = (self.held.key, self.form());
        compressed::create(
            &self.site.held("repository", content),
            &self.held.manifest,
            &self.site.held("repository", form),
            3,
            &Task::default(),
        )
        .unwrap()
        .bytes
    }

    fn fetch(&self, dest: &Path, over_wan: bool) -> Result<u64, TransferError> {
        let job = Job {
            over_wan,
            ..job(dest)
        };
        let manifest = Some(self.held.manifest_path.as_path());
        self.host.fetch(
            &remote(&self.repository, self.held.key),
            manifest,
            None,
            &job,
        )
    }

    fn damage_form(&self, at: u64) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.site.held("repository", self.form()))
            .unwrap();
        file.write_all_at(b"damage", at).unwrap();
    }

    fn sent(&self, kind: Kind) -> u64 {
        self.repository.stats().counters.sent(kind)
    }

    /// Waits until the repository has counted bytes: it counts after it has sent.
    fn until_sent(&self, kind: Kind, bytes: u64) {
        until("the bytes were counted", || self.sent(kind) >= bytes);
    }
}

#[test]
fn only_the_compressed_form_crosses_the_wan() {
    let scene = Scene::new();
    let bytes = scene.compress();
    let dest = scene.site.path("host/output");
    assert_eq!(scene.fetch(&dest, true).unwrap(), bytes);
    assert_eq!(std::fs::read(&dest).unwrap(), scene.image);
    scene.until_sent(Kind::Compressed, bytes);
    assert_eq!(scene.sent(Kind::Compressed), bytes);
    assert_eq!(scene.sent(Kind::Images), 0);
    assert!(bytes < scene.held.manifest.data_size() * 6 / 10, "{bytes}");
}

#[test]
fn within_a_site_and_without_a_form_the_leaves_cross_as_they_are() {
    let scene = Scene::new();
    let data = scene.held.manifest.data_size();
    let dest = scene.site.path("host/output");
    assert_eq!(scene.fetch(&dest, true).unwrap(), data);
    scene.compress();
    assert_eq!(scene.fetch(&dest, false).unwrap(), data);
    assert_eq!(scene.sent(Kind::Compressed), 0);
    assert_eq!(std::fs::read(&dest).unwrap(), scene.image);
}

#[test]
fn a_damaged_form_costs_bytes_and_nothing_else() {
    for at in [3, 70, 100_000] {
        let scene = Scene::new();
        scene.compress();
        scene.damage_form(at);
        let dest = scene.site.path("host/output");
        scene.fetch(&dest, true).unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), scene.image);
        let complaints = scene.host.take_complaints();
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].reason.contains("read uncompressed instead"));
        assert!(scene.host.left_alone().is_empty());
    }
}

#[test]
fn a_transfer_that_was_cut_off_reads_the_missing_frames_alone() {
    let scene = Scene::new();
    scene.compress();
    let form = scene.site.held("repository", scene.form());
    let whole = std::fs::read(&form).unwrap();
    let index = Index::length(&scene.held.manifest);
    let parsed = Index::parse(
        &whole[..index as usize],
        whole.len() as u64,
        &scene.held.manifest,
    )
    .unwrap();
    let dest = scene.site.path("host/output");
    // What an earlier attempt left: all but the second frame.
    let part = dest.with_file_name(".output.part");
    let mut left = scene.image.clone();
    left[1 << 20..2 << 20].fill(0);
    std::fs::write(&part, left).unwrap();
    let received = scene.fetch(&dest, true).unwrap();
    assert_eq!(received, index + parsed.frames()[1].length as u64);
    assert_eq!(std::fs::read(&dest).unwrap(), scene.image);
}

#[test]
fn a_form_is_no_object_to_fetch_by_itself() {
    let scene = Scene::new();
    scene.compress();
    let dest = scene.site.path("host/output");
    let remote = remote(&scene.repository, scene.form());
    let refused = scene.host.fetch(&remote, None, None, &job(&dest));
    assert!(matches!(refused, Err(TransferError::Invalid(_))));
}
