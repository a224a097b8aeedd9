//! Images that are built from a base at a peer and share leaves with what a host has.

use super::*;

const LEAF: usize = LEAF_SIZE as usize;

/// A peer with a base, and a host with the patch to its next build.
struct Scene {
    site: Site,
    a: DataPlane,
    b: DataPlane,
    base: common::Image,
    target: common::Image,
    patch: diffcache_dataplane::ids::ObjectKey,
    bytes: Vec<u8>,
}

impl Scene {
    /// The builds differ in leaves 40 to 49, and in their ends.
    fn new() -> Scene {
        let site = Site::new();
        let (a, b) = (site.plane("a"), site.plane("b"));
        let base = image(120, |leaf| leaf % 9 == 0);
        let mut bytes = base.clone();
        bytes[40 * LEAF..50 * LEAF].copy_from_slice(&Bytes(78).take(10 * LEAF));
        bytes.extend_from_slice(&Bytes(77).take(900_000));
        let path = site.path("patch");
        create(&base, &bytes, &path, &CreateOptions::default()).unwrap();
        let patch = site.hold_patch("b", &std::fs::read(&path).unwrap());
        let (base, target) = (site.hold("a", &base), site.hold("r", &bytes));
        Scene {
            site,
            a,
            b,
            base,
            target,
            patch,
            bytes,
        }
    }

    /// Builds the image; returns the bytes of the base that crossed, and those that were taken from other images.
    fn build(&self) -> (u64, u64) {
        let before = self.b.stats().counters.shared();
        let dest = self.site.path("b/output");
        let built = self.b.build(
            &Place::Remote(remote(&self.a, self.base.key), None),
            &Place::Local(self.site.held("b", self.patch)),
            &self.target.manifest_path,
            None,
            &job(&dest),
        );
        let crossed = built.unwrap().base_bytes;
        assert!(std::fs::read(&dest).unwrap() == self.bytes);
        std::fs::remove_file(&dest).unwrap();
        (crossed, self.b.stats().counters.shared() - before)
    }

    /// Bytes of those of the image's leaves that are not zero and for which `wanted` is true.
    fn data_bytes(&self, wanted: impl Fn(u64) -> bool) -> u64 {
        let manifest = &self.target.manifest;
        (0..manifest.leaf_count())
            .filter(|leaf| wanted(*leaf) && !manifest.is_zero_leaf(*leaf))
            .map(|leaf| LEAF_SIZE.min(manifest.size() - leaf * LEAF_SIZE))
            .sum()
    }
}

#[test]
fn of_a_base_at_a_peer_only_what_is_not_here_crosses() {
    let scene = Scene::new();
    let (all, shared) = scene.build();
    assert_eq!(shared, 0);
    let mut sibling = scene.bytes.clone();
    sibling[90 * LEAF..100 * LEAF].copy_from_slice(&Bytes(6).take(10 * LEAF));
    let held = scene.site.hold("b", &sibling);
    let (rest, shared) = scene.build();
    assert_eq!(shared, scene.data_bytes(|leaf| !(90..100).contains(&leaf)));
    assert!(rest * 4 < all, "{rest} of {all}");
    // What is no longer held is not looked for.
    std::fs::remove_file(scene.site.held("b", held.key)).unwrap();
    assert_eq!(scene.build().1, 0);
}

#[test]
fn damage_of_a_held_image_is_not_taken() {
    let scene = Scene::new();
    let held = scene.site.hold("b", &scene.bytes[..120 * LEAF]);
    let path = scene.site.held("b", held.key);
    let file = File::options().write(true).open(&path).unwrap();
    for leaf in [20, 37, 60] {
        file.write_all_at(b"damage", leaf * LEAF_SIZE + 99).unwrap();
    }
    // Nor is what is missing at its end.
    file.set_len(100 * LEAF_SIZE).unwrap();
    let (_, shared) = scene.build();
    let right = |leaf| leaf < 100 && ![20, 37, 60].contains(&leaf);
    assert_eq!(shared, scene.data_bytes(right));
}

#[test]
fn leaves_of_several_images_are_put_together() {
    let scene = Scene::new();
    let half = 60 * LEAF;
    scene.site.hold("b", &scene.bytes[..half]);
    let mut rest = Bytes(5).take(half);
    rest.extend_from_slice(&scene.bytes[half..]);
    scene.site.hold("b", &rest);
    assert_eq!(scene.build(), (0, scene.data_bytes(|_| true)));
}

#[test]
fn a_borrowed_image_is_taken_from_as_long_as_it_is_what_it_was() {
    let scene = Scene::new();
    let (all, _) = scene.build();
    let lent = scene.site.hold("c", &scene.bytes[..60 * LEAF]);
    let path = scene.site.held("c", lent.key);
    scene
        .b
        .borrow(lent.key, &path, &lent.manifest_path)
        .unwrap();
    let (rest, shared) = scene.build();
    assert_eq!(shared, scene.data_bytes(|leaf| leaf < 60));
    assert!(rest < all, "{rest} of {all}");
    std::fs::write(&path, vec![7; 60 * LEAF]).unwrap();
    assert_eq!(scene.build().1, 0);
}
