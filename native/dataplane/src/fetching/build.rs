//! Making an image from a base and a patch that are read where they lie: the paper's on-the-fly mode. Only the result is written, and of that only
//! what differs, if the base is a file of a file system that can share blocks.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::patch::{apply_to_sink, PatchError};
use diffcache_core::sink::{LeafSink, SinkError};
use diffcache_core::source::{FileSource, ReadAt, SourceError};
use diffcache_core::task::Task;

use crate::error::TransferError;
use crate::fetching::client::Stop;
use crate::fetching::fetch::open_manifest;
use crate::fetching::leaves::Leaves;
use crate::fetching::part::Part;
use crate::fetching::peer::Remote;
use crate::fetching::source::HttpSource;
use crate::gate::Cancel;
use crate::ids::{Kind, ObjectKey};
use crate::plane::{check_rate, DataPlane, Job};
use crate::progress::Meter;
use crate::shaper::Shaper;

/// Threads that read from peers: enough to ask for the next piece while one arrives and one is verified.
const REMOTE_THREADS: usize = 4;

/// The location of a base or a patch.
pub enum Place {
    /// In a file of this host.
    Local(PathBuf),
    /// In a file of this host that is known to be right: its leaves are those of a manifest, and need not be read to be sure of that.
    Known(PathBuf, PathBuf),
    /// At a peer, with the most bytes it can have if that is known.
    Remote(Remote, Option<u64>),
}

/// What building took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Built {
    /// Bytes of the base that came over the wire.
    pub base_bytes: u64,
    /// Bytes of the patch that came over the wire.
    pub patch_bytes: u64,
}

/// An opened place.
enum Source {
    Local(FileSource),
    Remote(Box<HttpSource>),
}

impl Source {
    fn reader(&self) -> &dyn ReadAt {
        match self {
            Source::Local(file) => file,
            Source::Remote(remote) => remote.as_ref(),
        }
    }

    /// The file whose blocks the part shares from now on, if it can, and what the file was like before.
    fn twin(&self, part: &Part) -> Result<Option<(&FileSource, Stamp)>, TransferError> {
        let Source::Local(file) = self else {
            return Ok(None);
        };
        let stamp = Stamp::of(file)?;
        Ok(part.clone_blocks(file.file()).then_some((file, stamp)))
    }

    fn received(&self) -> u64 {
        match self {
            Source::Local(_) => 0,
            Source::Remote(remote) => remote.received(),
        }
    }

    fn take_failure(&self) -> Option<TransferError> {
        match self {
            Source::Local(_) => None,
            Source::Remote(remote) => remote.take_failure(),
        }
    }
}

/// When a file was changed last; shows whether what was cloned is what was read.
#[derive(PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(file: &FileSource) -> Result<Stamp, TransferError> {
        let found = file.file().metadata();
        let found = found.map_err(|source| TransferError::File {
            path: file.name().into(),
            source,
        })?;
        Ok(Stamp {
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
        })
    }

    fn check(&self, key: ObjectKey, file: &FileSource) -> Result<(), TransferError> {
        if *self == Stamp::of(file)? {
            return Ok(());
        }
        Err(TransferError::Integrity {
            object: key.to_string(),
            reason: format!("its base {} changed while it was read", file.name()),
            blame: None,
        })
    }
}

/// Passes leaves on, and keeps the error that ended that.
struct Writer<'a> {
    leaves: &'a Leaves<'a>,
    stop: &'a Stop,
    failure: Mutex<Option<TransferError>>,
}

impl LeafSink for Writer<'_> {
    fn wants(&self, index: u64) -> bool {
        !self.leaves.is_ready(index)
    }

    fn put(&self, index: u64, data: &[u8]) -> Result<(), SinkError> {
        let stored = self
            .stop
            .check(self.leaves.key)
            .and_then(|()| self.leaves.store_verified(index, data));
        stored.map_err(|error| {
            let closed = SinkError::Closed {
                name: self.leaves.key.to_string(),
                reason: error.to_string(),
            };
            self.failure.lock().unpoisoned().get_or_insert(error);
            closed
        })
    }
}

impl DataPlane {
    /// Builds the image whose manifest is given into `job.dest`, at most at `rate` bytes per second from peers.
    ///
    /// Whatever goes wrong, `job.dest` is not touched; what this call began is removed.
    pub fn build(
        &self,
        base: &Place,
        patch: &Place,
        manifest: &Path,
        rate: Option<f64>,
        job: &Job<'_>,
    ) -> Result<Built, TransferError> {
        let shaper = Arc::new(Shaper::new(check_rate(rate)?));
        let manifest = open_manifest(manifest)?;
        let key = ObjectKey {
            kind: Kind::Images,
            id: manifest.content_id(),
        };
        let refused = Cancel::default();
        let stop = self.stop(job).or(refused.clone());
        stop.check(key)?;
        let landing = self.begin(key)?;
        let part = Part::open(key, job.dest)?;
        let is_new = part.is_empty()?;
        let known = match base {
            Place::Known(_, manifest) => Some(open_manifest(manifest)?),
            _ => None,
        };
        let run = || {
            let base = self.open_place(base, &stop, &shaper)?;
            let patch = self.open_place(patch, &stop, &shaper)?;
            let meter = Meter::new(job.report, 0, refused);
            let flight = landing.flight().clone();
            let twin = if is_new { base.twin(&part)? } else { None };
            let Some((twin, before)) = twin else {
                let leaves = Leaves::open(key, manifest, &part, flight, meter)?;
                if matches!(base, Source::Remote(_)) {
                    self.shared.take(&leaves, &stop)?;
                }
                return apply(&base, &patch, &leaves, &stop);
            };
            let leaves = Leaves::open_twin(key, manifest, &part, flight, meter, twin)?;
            if let Some(known) = known {
                leaves.keep(&known);
            }
            let built = apply(&base, &patch, &leaves, &stop)?;
            before.check(key, twin)?;
            Ok(built)
        };
        let outcome = run().and_then(|built| self.land(landing, &part, job).map(|()| built));
        outcome.inspect_err(|error| {
            if is_new || matches!(error, TransferError::NoSpace { .. }) {
                part.discard();
            }
            self.judge(error);
        })
    }

    fn open_place(
        &self,
        place: &Place,
        stop: &Stop,
        shaper: &Arc<Shaper>,
    ) -> Result<Source, TransferError> {
        match place {
            Place::Local(path) | Place::Known(path, _) => {
                let file = FileSource::open(path).map_err(|error| local_error(path, error))?;
                Ok(Source::Local(file))
            }
            Place::Remote(remote, max_size) => {
                let source = HttpSource::open(self.client.clone(), remote.clone(), stop.clone())?;
                source.check_size(*max_size)?;
                let source = source.with_shaper(shaper.clone());
                Ok(Source::Remote(Box::new(match self.is_lan_slow() {
                    true => source.with_frames(),
                    false => source,
                })))
            }
        }
    }
}

fn local_error(path: &Path, error: SourceError) -> TransferError {
    let source = match error {
        SourceError::Io { source, .. } => source,
        other => std::io::Error::other(other.to_string()),
    };
    TransferError::File {
        path: path.to_owned(),
        source,
    }
}

fn apply(
    base: &Source,
    patch: &Source,
    leaves: &Leaves<'_>,
    stop: &Stop,
) -> Result<Built, TransferError> {
    let writer = Writer {
        leaves,
        stop,
        failure: Mutex::new(None),
    };
    let remote = matches!(base, Source::Remote(_)) || matches!(patch, Source::Remote(_));
    let task = Task {
        threads: if remote { REMOTE_THREADS } else { 0 },
        ..Task::default()
    };
    let manifest = leaves.manifest.clone();
    let applied = apply_to_sink(base.reader(), patch.reader(), &manifest, &writer, &task);
    applied.map_err(|error| {
        let first = writer.failure.lock().unpoisoned().take();
        first
            .or_else(|| base.take_failure())
            .or_else(|| patch.take_failure())
            .unwrap_or_else(|| translate(leaves.key, error))
    })?;
    Ok(Built {
        base_bytes: base.received(),
        patch_bytes: patch.received(),
    })
}

/// A patcher's own error as ours.
fn translate(key: ObjectKey, error: PatchError) -> TransferError {
    let object = key.to_string();
    let reason = error.to_string();
    match error {
        PatchError::Cancelled(_) => TransferError::Cancelled { object },
        PatchError::Source(SourceError::Io { name, source }) => TransferError::File {
            path: name.into(),
            source,
        },
        PatchError::BaseMismatch { .. } | PatchError::Unverified { .. } => {
            TransferError::BaseMismatch { object, reason }
        }
        PatchError::Format(_)
        | PatchError::Version { .. }
        | PatchError::TargetMismatch { .. }
        | PatchError::TooLarge { .. }
        | PatchError::Manifest(_) => TransferError::Format { object, reason },
        PatchError::Source(_)
        | PatchError::Sink(_)
        | PatchError::Io { .. }
        | PatchError::NoSpace { .. }
        | PatchError::Busy { .. }
        | PatchError::Changed { .. }
        | PatchError::Interrupted { .. }
        | PatchError::Corrupt(_)
        | PatchError::Leaf { .. }
        | PatchError::Zstd(_) => TransferError::Integrity {
            object,
            reason,
            blame: None,
        },
    }
}
