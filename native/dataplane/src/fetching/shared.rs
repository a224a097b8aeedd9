//! What an image that is built from a base at a peer shares with images that this host has: leaves at the same place are taken from there, and what
//! the base has of them is not asked for.
//!
//! An index of the leaves of all images here ([`ContentIndex`]) says where to look. It is built from their manifests when it is first needed, and
//! follows what is here. What it finds is read and compared with the manifest of the image that is built before it counts as arrived.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::content_index::ContentIndex;
use diffcache_core::hash_tree::Hash;
use diffcache_core::manifest::{Manifest, LEAF_LEN};
use diffcache_core::task::{for_each_piece_with, Cancelled, Task};

use crate::counters::Counters;
use crate::error::TransferError;
use crate::fetching::client::Stop;
use crate::fetching::leaves::Leaves;
use crate::ids::{Kind, ObjectKey};
use crate::serving::borrowed::Borrowed;
use crate::serving::objects::Objects;

/// Leaves that are read, verified and taken at a time: 1 MiB.
const STEP_LEAVES: u64 = 16;

/// Images of other programs that are served from here.
type BorrowedImages = HashMap<Hash, Arc<Borrowed>>;

/// The images that this host has, by their leaves.
pub struct SharedLeaves {
    objects: Arc<Objects>,
    counters: Arc<Counters>,
    index: Mutex<ContentIndex>,
}

impl SharedLeaves {
    /// Knows no image yet.
    pub fn new(objects: Arc<Objects>, counters: Arc<Counters>) -> SharedLeaves {
        SharedLeaves {
            objects,
            counters,
            index: Mutex::default(),
        }
    }

    /// Takes the leaves that `leaves` lacks from images that are here.
    ///
    /// An image that cannot be read, that changed, or whose manifest is not here is left out: its leaves come from where the others do.
    pub fn take(&self, leaves: &Leaves<'_>, stop: &Stop) -> Result<(), TransferError> {
        if leaves.next_missing(0, 1).is_none() {
            return Ok(());
        }
        let borrowed = self.objects.borrowed_images();
        let shares = {
            let mut index = self.index.lock().unpoisoned();
            self.update(&mut index, &borrowed);
            index.shared(&leaves.manifest, |leaf| !leaves.is_ready(leaf))
        };
        for share in shares {
            if let Some(image) = self.open(share.image, &borrowed) {
                let bytes = image.copy_to(leaves, &share.leaves, stop)?;
                self.counters.add_shared(bytes);
            }
        }
        Ok(())
    }

    /// Has the index contain the images that are here, with their manifests.
    fn update(&self, index: &mut ContentIndex, borrowed: &BorrowedImages) {
        let held = self.objects.held_images();
        index.retain(|image| held.contains(image) || borrowed.contains_key(image));
        for file in borrowed.values() {
            index.add(file.manifest());
        }
        for id in held {
            if !index.contains(&id) {
                if let Some(manifest) = self.manifest(id) {
                    index.add(&manifest);
                }
            }
        }
    }

    /// The manifest of an image, which authenticates itself.
    fn manifest(&self, id: Hash) -> Option<Manifest> {
        let kind = Kind::Manifests;
        let (mut file, _) = self.objects.open_held(ObjectKey { kind, id }).ok()??;
        let manifest = Manifest::read_from(&mut file).ok()?;
        (manifest.content_id() == id).then_some(manifest)
    }

    fn open(&self, id: Hash, borrowed: &BorrowedImages) -> Option<Here> {
        let kind = Kind::Images;
        let file = match self.objects.open_held(ObjectKey { kind, id }) {
            Ok(Some((file, _))) => file,
            _ => borrowed.get(&id)?.file().try_clone().ok()?,
        };
        Some(Here { file })
    }
}

/// The file of an image that is here.
struct Here {
    file: File,
}

impl Here {
    /// Shares or copies leaves as far as they are right; returns their bytes.
    fn copy_to(
        &self,
        leaves: &Leaves<'_>,
        wanted: &[Range<u64>],
        stop: &Stop,
    ) -> Result<u64, TransferError> {
        let steps: Vec<Range<u64>> = wanted.iter().cloned().flat_map(steps).collect();
        let failure = Mutex::new(None);
        let copy = |buffer: &mut Vec<u8>, step: u64| {
            let copied = stop
                .check(leaves.key)
                .and_then(|()| self.copy_step(leaves, &steps[step as usize], buffer));
            copied.map_err(|error| {
                failure.lock().unpoisoned().get_or_insert(error);
                Cancelled
            })
        };
        let task = Task::default();
        let copied = for_each_piece_with(&task, steps.len() as u64, Vec::new, copy);
        match failure.into_inner().unpoisoned() {
            Some(error) => Err(error),
            None => Ok(copied.map_or(0, |bytes| bytes.iter().sum())),
        }
    }

    fn copy_step(
        &self,
        leaves: &Leaves<'_>,
        step: &Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<u64, TransferError> {
        let (start, end) = leaves.byte_range(step.start, step.end);
        buffer.resize((end - start) as usize, 0);
        let before = self.stamp();
        if before.is_none() || self.file.read_exact_at(buffer, start).is_err() {
            return Ok(0);
        }
        let mut copied = 0;
        for run in right_leaves(&leaves.manifest, step.start, buffer) {
            let (from, to) = leaves.byte_range(run.start, run.end);
            let data = &buffer[(from - start) as usize..(to - start) as usize];
            if leaves.share(run, data, &self.file, || self.stamp() == before)? {
                copied += to - from;
            }
        }
        Ok(copied)
    }

    /// Size and time of the last change.
    fn stamp(&self) -> Option<(u64, i64, i64)> {
        let found = self.file.metadata().ok()?;
        Some((found.size(), found.mtime(), found.mtime_nsec()))
    }
}

/// Divides a run of leaves.
fn steps(run: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = run.end;
    run.step_by(STEP_LEAVES as usize)
        .map(move |first| first..end.min(first + STEP_LEAVES))
}

/// The runs of leaves, of those from number `first` on, that are what a manifest says.
fn right_leaves(manifest: &Manifest, first: u64, data: &[u8]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for (leaf, bytes) in (first..).zip(data.chunks(LEAF_LEN)) {
        if manifest.verify_leaf(leaf, bytes) {
            match runs.last_mut() {
                Some(run) if run.end == leaf => run.end += 1,
                _ => runs.push(leaf..leaf + 1),
            }
        }
    }
    runs
}
