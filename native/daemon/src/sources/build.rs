//! An image read through a base and patches, which are at data planes: the paper's on-the-fly mode for a file that is still arriving.
//!
//! The base is read where it is, by ranges; of patches each byte crosses the network once and is kept beside the image. What comes out is as good
//! as base and patches are, and is verified like what any other source sends.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::Manifest;
use diffcache_core::patch::PatchError;
use diffcache_core::source::{self as core_source, ReadAt};
use diffcache_dataplane::ids::{Kind, ObjectKey};

use crate::config::{BuildPlace, ObjectPlace, Place};
use crate::error::DaemonError;
use crate::peers::object::Object;
use crate::peers::peer::{Peers, Role};
use crate::sizes::CHUNK;
use crate::sources::local_patch::{to_wrong, LocalPatch, Opened};
use crate::sources::source::{Arrived, Fetched, Source, SourceError};

/// Bytes of a block of a patch.
const BLOCK: u64 = 4096;

/// A base and patches.
pub struct BuildSource {
    name: String,
    is_near: bool,
    base: Object,
    /// In the order in which they are applied.
    patches: Vec<LocalPatch>,
    /// Content id of the image.
    target: [u8; 32],
    /// Bytes of the base that came since they were counted.
    base_received: AtomicU64,
}

impl BuildSource {
    /// Take a base and patches as the source of an image; the patches are kept in a state folder.
    ///
    /// # Errors
    /// `Config` if a URL cannot be used.
    pub fn open(
        place: &BuildPlace,
        peers: &Peers,
        manifest: &Manifest,
        state: &Path,
    ) -> Result<BuildSource, DaemonError> {
        let object = |place: &ObjectPlace, kind| {
            let role = match place.wan {
                true => Role::Repository,
                false => Role::Holder,
            };
            peers.object(&place.peer, role, ObjectKey { kind, id: place.id })
        };
        let open = |patch| {
            let object = object(patch, Kind::Patches)?;
            Ok(LocalPatch::new(object, state, manifest.size()))
        };
        Ok(BuildSource {
            name: Place::Build(place.clone()).name(),
            is_near: !(place.base.wan || place.patches().any(|patch| patch.wan)),
            base: object(&place.base, Kind::Images)?,
            patches: place.patches().map(open).collect::<Result<_, _>>()?,
            target: manifest.content_id(),
            base_received: AtomicU64::new(0),
        })
    }

    /// Open all patches before `end`. What one is made for, the next in line says.
    fn open_patches(&self, end: Instant) -> Result<Vec<Layer<'_>>, SourceError> {
        let mut target = self.target;
        let mut layers = Vec::with_capacity(self.patches.len());
        for patch in self.patches.iter().rev() {
            let opened = patch.open(&target, end)?;
            target = opened.header().base_hash;
            layers.push(Layer { patch, opened });
        }
        layers.reverse();
        Ok(layers)
    }
}

impl Source for BuildSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_near(&self) -> bool {
        self.is_near
    }

    fn fetch(
        &self,
        run: &Range<u64>,
        len: usize,
        limit: Duration,
        _: Arrived<'_>,
    ) -> Result<Fetched, SourceError> {
        let mut bytes = vec![0; len];
        self.read_at(run.start * CHUNK, &mut bytes, limit)?;
        let of_patch = self.patches.iter().map(LocalPatch::take_received).sum();
        Ok(Fetched {
            bytes,
            others: Vec::new(),
            moved: of_patch + self.base_received.swap(0, Ordering::Relaxed),
            of_patch,
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], limit: Duration) -> Result<(), SourceError> {
        let end = Instant::now() + limit;
        let layers = self.open_patches(end)?;
        let first = layers.first();
        let base = Base {
            object: &self.base,
            size: first.map_or(0, |layer| layer.opened.header().base_size),
            end,
            received: &self.base_received,
            failure: Mutex::default(),
        };
        let whole = Stage {
            base: &base,
            layers: &layers,
        };
        whole.read(buffer, offset)
    }

    fn distrust(&self) {
        for patch in &self.patches {
            patch.doubt();
        }
    }

    fn prepare(&self, limit: Duration) -> Result<(), SourceError> {
        self.open_patches(Instant::now() + limit).map(drop)
    }
}

/// A patch while one range is built.
struct Layer<'a> {
    patch: &'a LocalPatch,
    opened: Arc<Opened>,
}

/// What the first patches make of the base: of none, the base itself.
struct Stage<'a> {
    base: &'a Base<'a>,
    layers: &'a [Layer<'a>],
}

impl Stage<'_> {
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let Some((top, layers)) = self.layers.split_last() else {
            return self.base.read(buffer, offset);
        };
        let below = Stage { layers, ..*self };
        let skipped = (offset % BLOCK) as usize;
        if skipped == 0 {
            return below.build(top, offset, buffer);
        }
        let mut blocks = vec![0; skipped + buffer.len()];
        below.build(top, offset - skipped as u64, &mut blocks)?;
        buffer.copy_from_slice(&blocks[skipped..]);
        Ok(())
    }

    /// Apply a patch to this, from the start of a block on.
    fn build(&self, top: &Layer<'_>, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        // Images have fewer than 2^32 blocks.
        let first = (offset / BLOCK) as u32;
        let blocks = first..first + (buffer.len() as u64).div_ceil(BLOCK) as u32;
        top.patch.bring(&top.opened, blocks, self.base.end)?;
        top.opened
            .rebuild(self, first, buffer)
            .map_err(|error| self.base.explain(error))
    }
}

impl ReadAt for Stage<'_> {
    fn len(&self) -> u64 {
        let top = self.layers.last();
        top.map_or(self.base.size, |top| top.opened.header().target_size)
    }

    fn read_exact_at(
        &self,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), core_source::SourceError> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.read(buffer, offset)
            .map_err(|error| self.base.note(error))
    }
}

/// The base while one range is built of it.
struct Base<'a> {
    object: &'a Object,
    size: u64,
    end: Instant,
    received: &'a AtomicU64,
    failure: Mutex<Option<SourceError>>,
}

impl Base<'_> {
    /// Keep the error of a read for `explain`, and return what the reader of a patch takes.
    fn note(&self, error: SourceError) -> core_source::SourceError {
        let reason = error.to_string();
        *self.failure.lock().unpoisoned() = Some(error);
        core_source::SourceError::Unavailable {
            name: "base".to_owned(),
            reason,
        }
    }

    /// Return why building failed: the error of what it is built of, of which the patch's reader knows the text alone.
    fn explain(&self, error: PatchError) -> SourceError {
        self.failure
            .lock()
            .unpoisoned()
            .take()
            .unwrap_or_else(|| to_wrong(error))
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), SourceError> {
        let range = (offset, offset + buffer.len() as u64);
        let (bytes, size) = self.object.read(range, self.end)?;
        if size != self.size {
            let reason = format!("the base has {size} bytes, not {}", self.size);
            return Err(SourceError::Wrong(reason));
        }
        buffer.copy_from_slice(&bytes);
        self.received
            .fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
