//! An image read through a base and a patch, which are at data planes: the paper's on-the-fly mode for a file that is still arriving.
//!
//! The base is read where it is, by ranges; of the patch each byte crosses the network once and is kept beside the image. What comes out is as good
//! as base and patch are, and is verified like what any other source sends.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_core::manifest::Manifest;
use diffcache_core::patch::PatchError;
use diffcache_core::source::{self as core_source, ReadAt};
use diffcache_dataplane::ids::{Kind, ObjectKey};

use crate::config::{BuildPlace, ObjectPlace, Place};
use crate::error::DaemonError;
use crate::lazy_file::lock;
use crate::leaves::CHUNK;
use crate::local_patch::{to_wrong, LocalPatch};
use crate::object::Object;
use crate::peer::{Peers, Role};
use crate::source::{Fetched, Source, SourceError};

/// Bytes of a block of a patch.
const BLOCK: u64 = 4096;

/// A base and a patch.
pub struct BuildSource {
    name: String,
    is_near: bool,
    base: Object,
    patch: LocalPatch,
    /// Bytes of the base that came since they were counted.
    base_received: AtomicU64,
}

impl BuildSource {
    /// Take a base and a patch as the source of an image; the patch is kept in a state folder.
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
        let patch = object(&place.patch, Kind::Patches)?;
        Ok(BuildSource {
            name: Place::Build(place.clone()).name(),
            is_near: !(place.base.wan || place.patch.wan),
            base: object(&place.base, Kind::Templates)?,
            patch: LocalPatch::new(patch, state, manifest.content_id(), manifest.size()),
            base_received: AtomicU64::new(0),
        })
    }
}

impl Source for BuildSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_near(&self) -> bool {
        self.is_near
    }

    fn fetch(&self, run: &Range<u64>, len: usize, limit: Duration) -> Result<Fetched, SourceError> {
        let mut bytes = vec![0; len];
        self.read_at(run.start * CHUNK, &mut bytes, limit)?;
        let of_patch = self.patch.take_received();
        Ok(Fetched {
            bytes,
            others: Vec::new(),
            moved: of_patch + self.base_received.swap(0, Ordering::Relaxed),
            of_patch,
        })
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8], limit: Duration) -> Result<(), SourceError> {
        let end = Instant::now() + limit;
        let patch = self.patch.open(end)?;
        // A chunk begins at a block, and images have fewer than 2^32 of them.
        let first = (offset / BLOCK) as u32;
        let blocks = first..first + (buffer.len() as u64).div_ceil(BLOCK) as u32;
        self.patch.bring(&patch, blocks, end)?;
        let base = Base {
            object: &self.base,
            size: patch.header().base_size,
            end,
            received: &self.base_received,
            failure: Mutex::default(),
        };
        patch
            .rebuild(&base, first, buffer)
            .map_err(|error| base.explain(error))
    }

    fn distrust(&self) {
        self.patch.doubt();
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
    /// Return why building failed: the base's own error, of which the patch's reader knows the text alone.
    fn explain(&self, error: PatchError) -> SourceError {
        lock(&self.failure)
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

impl ReadAt for Base<'_> {
    fn len(&self) -> u64 {
        self.size
    }

    fn read_exact_at(
        &self,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<(), core_source::SourceError> {
        if buffer.is_empty() {
            return Ok(());
        }
        self.read(buffer, offset).map_err(|error| {
            let reason = error.to_string();
            *lock(&self.failure) = Some(error);
            core_source::SourceError::Unavailable {
                name: "base".to_owned(),
                reason,
            }
        })
    }
}

#[cfg(test)]
mod tests;
