//! Images that several patches make of a base, one after another.

use super::*;

/// A site with a base, and a repository with a patch from it and another one from what that makes.
struct Chain {
    site: Site,
    middle_patch: [u8; 32],
}

impl Chain {
    fn new() -> Chain {
        let mut site = Site::new();
        let middle = site.target.clone();
        // A piece has moved by less than a block, and differs a little.
        site.target.extend_from_slice(&middle[100..100 + MIB / 2]);
        site.target[5 * MIB / 2] ^= 1;
        let last = middle.len() + MIB / 4;
        site.target[last] ^= 1;
        site.target[MIB / 2..MIB / 2 + 50_000].copy_from_slice(&noise(4, 50_000));
        let middle_patch = site.patch_id;
        let output = site.repository.folder.path().join("patch");
        create(&middle, &site.target, &output, &CreateOptions::default()).unwrap();
        site.patch = fs::read(&output).unwrap();
        site.patch_id = *blake3::hash(&site.patch).as_bytes();
        fs::rename(&output, site.patch_path()).unwrap();
        Chain { site, middle_patch }
    }

    fn place(&self, patches: [[u8; 32]; 2]) -> BuildPlace {
        let [through, patch] = patches.map(|id| self.site.repository.place(id, true));
        BuildPlace {
            base: self.site.peer.place(id_of(&self.site.base), false),
            through: vec![through],
            patch,
        }
    }

    fn open(&self, patches: [[u8; 32]; 2]) -> BuildSource {
        let peers = Peers::new(&Identity::default()).unwrap();
        let (site, place) = (&self.site, self.place(patches));
        BuildSource::open(&place, &peers, &site.manifest(), site.state.path()).unwrap()
    }

    fn source(&self) -> BuildSource {
        self.open([self.middle_patch, self.site.patch_id])
    }

    fn patches_len(&self) -> u64 {
        let middle = self.site.repository.path(Kind::Patches, &self.middle_patch);
        fs::metadata(middle).unwrap().len() + self.site.patch.len() as u64
    }
}

#[test]
fn chunks_are_built_and_each_byte_of_all_patches_comes_once() {
    let chain = Chain::new();
    let (site, source) = (&chain.site, chain.source());
    assert!(!source.is_near());
    let chunks = (site.target.len() as u64).div_ceil(CHUNK);
    let mut of_patches = 0;
    for chunk in (0..chunks).rev() {
        of_patches += site.read(&source, chunk..chunk + 1).unwrap().of_patch;
    }
    assert!(of_patches <= chain.patches_len(), "{of_patches}");
    assert_eq!(site.read(&source, 0..chunks).unwrap().of_patch, 0);
    // The next worker finds both on the disk.
    for id in [chain.middle_patch, site.patch_id] {
        fs::remove_file(site.repository.path(Kind::Patches, &id)).unwrap();
    }
    let again = site.read(&chain.source(), 0..chunks).unwrap();
    assert_eq!(again.of_patch, 0);
    assert!(again.moved > 0);
}

#[test]
fn patches_that_do_not_follow_one_another_are_refused() {
    let chain = Chain::new();
    let ids = [chain.middle_patch, chain.site.patch_id];
    for patches in [[ids[1], ids[0]], [ids[1], ids[1]], [ids[0], ids[0]]] {
        let failed = chain.site.read(&chain.open(patches), 0..1);
        assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    }
    chain.site.read(&chain.source(), 0..4).unwrap();
}

#[test]
fn a_base_that_is_gone_is_no_fault_of_the_patches() {
    let chain = Chain::new();
    let source = chain.source();
    let base = id_of(&chain.site.base);
    fs::remove_file(chain.site.peer.path(Kind::Images, &base)).unwrap();
    let failed = chain.site.read(&source, 0..1);
    assert!(matches!(failed, Err(SourceError::Absent(_))), "{failed:?}");
}

#[test]
fn a_damaged_patch_below_is_wrong_and_not_kept() {
    let chain = Chain::new();
    let source = chain.source();
    let path = chain
        .site
        .repository
        .path(Kind::Patches, &chain.middle_patch);
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[300] ^= 1;
    fs::write(&path, damaged).unwrap();
    let failed = chain.site.read(&source, 4..6);
    assert!(matches!(failed, Err(SourceError::Wrong(_))), "{failed:?}");
    fs::write(&path, whole).unwrap();
    chain.site.read(&source, 4..6).unwrap();
}

#[test]
fn the_name_has_all_patches() {
    let chain = Chain::new();
    let ids = [chain.middle_patch, chain.site.patch_id];
    let name = chain.source().name().to_owned();
    let places = ids.map(|id| name.find(&hex::encode(&id)[..12]));
    assert!(places[0].is_some() && places[0] < places[1], "{name}");
}
