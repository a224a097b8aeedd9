//! Manifests of versions. Of leaves that a version shares with a tree whose manifest is known nothing is read.

use diffcache_core::manifest::{
    is_zero, leaf_count, leaf_hash, leaf_len, Builder, LeafHash, Manifest, ManifestError, LEAF_SIZE,
};
use diffcache_core::source::data_pieces;
use diffcache_core::task::{for_each_piece, Task};

use crate::error::{Result, VersionsError};
use crate::restore::content::read;
use crate::restore::Image;
use crate::store::nodes::NodeRef;
use crate::store::tree;

/// A tree whose manifest is known: that of another version of the same base image, or all the base image's blocks.
pub struct Known<'a> {
    /// The tree.
    pub root: NodeRef,
    /// Its manifest.
    pub manifest: &'a Manifest,
}

/// Returns the manifest of a version.
///
/// # Errors
/// As `Image::to_raw`; `Invalid` if the version is too large to have one.
pub fn create(image: &Image<'_>, known: Option<Known<'_>>, task: &Task<'_>) -> Result<Manifest> {
    // An image of a single leaf has nothing but its content id.
    let has_leaves = |size| leaf_count(size) > 1;
    let known = known.filter(|known| has_leaves(known.manifest.size()) && has_leaves(image.size));
    let manifest = match known {
        Some(known) => return carry(image, &known, task),
        None => Manifest::from_source(image, task),
    };
    manifest.map_err(to_versions_error)
}

fn carry(image: &Image<'_>, known: &Known<'_>, task: &Task<'_>) -> Result<Manifest> {
    let changed = changed_leaves(image, known)?;
    let data = data_pieces(image, LEAF_SIZE)?;
    let wanted = (0..data.count()).map(|index| data.number(index));
    let wanted: Vec<u64> = wanted.filter(|leaf| changed.has(*leaf)).collect();
    let meter = task.meter(wanted.len() as u64 * LEAF_SIZE);
    let hashed = for_each_piece(task, wanted.len() as u64, |index| {
        let leaf = hash(image, wanted[index as usize])?;
        meter.add(LEAF_SIZE);
        Ok::<_, VersionsError>(leaf)
    })?;
    let mut hashed = wanted.into_iter().zip(hashed).peekable();
    let mut builder = Builder::new(image.size);
    let mut next = known.manifest.next_data_leaf(0);
    while let Some(leaf) = next {
        if !changed.has(leaf) {
            while let Some((before, hash)) = hashed.next_if(|(hashed, _)| *hashed < leaf) {
                builder.add(before, &[hash]);
            }
            builder.add(leaf, known.manifest.leaf(leaf).as_slice());
        }
        next = known.manifest.next_data_leaf(leaf + 1);
    }
    for (leaf, hash) in hashed {
        builder.add(leaf, &[hash]);
    }
    builder.finish(&task.silent()).map_err(to_versions_error)
}

fn hash(image: &Image<'_>, leaf: u64) -> Result<LeafHash> {
    let mut bytes = vec![0; leaf_len(image.size, leaf)];
    read(image, &mut bytes, leaf * LEAF_SIZE)?;
    Ok(match is_zero(&bytes) {
        true => LeafHash::Zero,
        false => LeafHash::Data(leaf_hash(leaf, &bytes)),
    })
}

/// Leaves, one bit each. All after the last bit are in it.
struct Leaves(Vec<u64>, u64);

impl Leaves {
    fn has(&self, leaf: u64) -> bool {
        leaf >= self.1 || self.0[(leaf / 64) as usize] >> (leaf % 64) & 1 == 1
    }
}

/// Returns the leaves that a version may not share with a known tree: those with a block at another place, and those that one of both does not
/// have whole.
fn changed_leaves(image: &Image<'_>, known: &Known<'_>) -> Result<Leaves> {
    let whole = image.size.min(known.manifest.size()) / LEAF_SIZE;
    let mut changed = Leaves(vec![0; whole.div_ceil(64) as usize], whole);
    let blocks = LEAF_SIZE / u64::from(image.store.block_size);
    tree::diff(&image.store.maps, known.root, image.root, &mut |part| {
        let end = (part.start + part.len).div_ceil(blocks).min(whole);
        for leaf in part.start / blocks..end {
            changed.0[(leaf / 64) as usize] |= 1 << (leaf % 64);
        }
        Ok(())
    })?;
    Ok(changed)
}

fn to_versions_error(error: ManifestError) -> VersionsError {
    match error {
        ManifestError::Source(error) => error.into(),
        ManifestError::Cancelled(error) => error.into(),
        error => VersionsError::Invalid(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_manifest_of_a_base_that_ends_within_a_block_ends() {
        let store = Store::new(4096, None).unwrap();
        for base_size in [1, 511, 4095, 4097, (1 << 20) + 512, 1_000_000] {
            let base = vec![7u8; base_size];
            let image = Image {
                store: &store,
                root: NodeRef::Base,
                size: 3 << 20,
                base: Some(&base),
            };
            let mut content = base.clone();
            content.resize(3 << 20, 0);
            let expected = Manifest::from_source(&content, &Task::default()).unwrap();
            let found = create(&image, None, &Task::default()).unwrap();
            assert_eq!(found.content_id(), expected.content_id());
        }
    }
}
