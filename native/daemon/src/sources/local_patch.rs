//! The part of a patch that is on the local disk.
//!
//! `STATE/PATCH_ID.patch` is the patch with holes. Its header and its end, which say where everything is, are fetched at the first use, and each
//! frame when a read needs it. A frame has a checksum, so that no note is needed of which are there.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Instant;

use diffcache_base::hex;
use diffcache_base::locks::Unpoisoned;
use diffcache_core::patch::format::{frame_check, Frame, Header, HEADER_LEN};
use diffcache_core::patch::frame_cache::FrameCache;
use diffcache_core::patch::reader::PatchFile;
use diffcache_core::patch::PatchError;
use diffcache_core::source::{FileSource, ReadAt};

use crate::peers::object::Object;
use crate::sizes::CHUNK;
use crate::sources::source::SourceError;

/// Return where a patch is kept in a state folder.
fn path_of(state: &Path, id: &[u8; 32]) -> PathBuf {
    state.join(format!("{}.patch", hex::encode(id)))
}

/// Remove patches that are used no more from a state folder.
///
/// # Errors
/// Of the local disk.
pub fn remove_others(state: &Path, used: &[[u8; 32]]) -> io::Result<()> {
    let used: Vec<_> = used.iter().map(|id| path_of(state, id)).collect();
    for entry in std::fs::read_dir(state)? {
        let path = entry?.path();
        if path.extension().is_some_and(|name| name == "patch") && !used.contains(&path) {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

/// What a frame is, by its offset; nothing is known of the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameState {
    /// A thread is looking at it, or fetching it.
    Busy,
    /// It is on the disk.
    Local,
}

type States = Mutex<HashMap<u64, FrameState>>;

/// A patch whose frames can be fetched.
pub struct Opened {
    patch: PatchFile<FileSource>,
    cache: FrameCache,
    states: States,
    freed: Condvar,
}

impl Opened {
    /// Return the header.
    pub fn header(&self) -> &Header {
        self.patch.header()
    }

    /// Fill a buffer with the blocks from `first` on, whose frames are there.
    ///
    /// # Errors
    /// As `PatchFile::rebuild`.
    pub fn rebuild(
        &self,
        base: &dyn ReadAt,
        first: u32,
        buffer: &mut [u8],
    ) -> Result<(), PatchError> {
        self.patch.rebuild(base, first, buffer, &self.cache)
    }

    /// Take those of some frames that no thread has taken and that may be absent; wait while there are none and others are busy. Empty when all are
    /// local.
    fn claim(&self, frames: &[Frame], end: Instant) -> Result<Claim<'_>, SourceError> {
        let mut states = self.states.lock().unpoisoned();
        loop {
            let of = |state| {
                let is = |frame: &&Frame| states.get(&frame.offset).copied() == state;
                frames.iter().filter(is).copied().collect::<Vec<_>>()
            };
            let (unknown, busy) = (of(None), of(Some(FrameState::Busy)));
            if !unknown.is_empty() || busy.is_empty() {
                for frame in &unknown {
                    states.insert(frame.offset, FrameState::Busy);
                }
                return Ok(Claim {
                    opened: self,
                    frames: unknown,
                });
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reason = "the patch does not arrive in time".to_owned();
                return Err(SourceError::Unreachable(reason));
            }
            let waited = self.freed.wait_timeout(states, left);
            states = waited.unpoisoned().0;
        }
    }
}

/// Frames that one thread looks at. Those that are not found to be local are given back.
struct Claim<'a> {
    opened: &'a Opened,
    frames: Vec<Frame>,
}

impl Claim<'_> {
    fn set_local(&self, frame: &Frame) {
        self.opened
            .states
            .lock()
            .unpoisoned()
            .insert(frame.offset, FrameState::Local);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut states = self.opened.states.lock().unpoisoned();
        for frame in &self.frames {
            if states.get(&frame.offset) == Some(&FrameState::Busy) {
                states.remove(&frame.offset);
            }
        }
        self.opened.freed.notify_all();
    }
}

/// A patch at a data plane, and what is here of it.
pub struct LocalPatch {
    object: Object,
    path: PathBuf,
    most_bytes: u64,
    opened: Mutex<Option<Arc<Opened>>>,
    /// Whether header and end on the disk may be wrong.
    is_doubtful: AtomicBool,
    received: AtomicU64,
}

impl LocalPatch {
    /// Take a patch on the way to an image of `size` bytes, kept in a state folder.
    pub fn new(object: Object, state: &Path, size: u64) -> LocalPatch {
        LocalPatch {
            path: path_of(state, &object.remote.key.id),
            object,
            // One that is larger than the image is of no use.
            most_bytes: size.max(CHUNK),
            opened: Mutex::default(),
            is_doubtful: AtomicBool::new(false),
            received: AtomicU64::new(0),
        }
    }

    /// Return the bytes that came since the last call.
    pub fn take_received(&self) -> u64 {
        self.received.swap(0, Ordering::Relaxed)
    }

    /// Fetch header and end again before the next use: they are not what they should be.
    pub fn doubt(&self) {
        self.is_doubtful.store(true, Ordering::SeqCst);
        *self.opened.lock().unpoisoned() = None;
    }

    /// Open the patch that makes the image `target` before `end`, with what an earlier worker left of it.
    ///
    /// # Errors
    /// `Wrong` if it makes another image or is damaged, or those of its host or the local disk.
    pub fn open(&self, target: &[u8; 32], end: Instant) -> Result<Arc<Opened>, SourceError> {
        // Others need the same and wait for it.
        let mut opened = self.opened.lock().unpoisoned();
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        let file = self.file()?;
        let left = match self.is_doubtful.load(Ordering::SeqCst) {
            true => None,
            false => self.check(target, &file).ok(),
        };
        let patch = match left {
            Some(patch) => patch,
            None => {
                self.fetch_ends(&file, end)?;
                self.check(target, &file)?
            }
        };
        self.is_doubtful.store(false, Ordering::SeqCst);
        let patch = Arc::new(Opened {
            patch,
            cache: FrameCache::default(),
            states: States::default(),
            freed: Condvar::new(),
        });
        *opened = Some(patch.clone());
        Ok(patch)
    }

    fn file(&self) -> Result<File, SourceError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let options = options.mode(0o600).custom_flags(libc::O_NOFOLLOW);
        Ok(options.open(&self.path)?)
    }

    fn check(&self, target: &[u8; 32], file: &File) -> Result<PatchFile<FileSource>, SourceError> {
        let patch = PatchFile::open(self.source(file)?).map_err(to_wrong)?;
        if patch.header().target_hash != *target {
            let reason = "the patch makes another image".to_owned();
            return Err(SourceError::Wrong(reason));
        }
        Ok(patch)
    }

    fn source(&self, file: &File) -> Result<FileSource, SourceError> {
        let name = self.path.display().to_string();
        FileSource::from_file(file.try_clone()?, name).map_err(to_unreachable)
    }

    /// Fetch header and end. Frames that are there stay.
    fn fetch_ends(&self, file: &File, end: Instant) -> Result<(), SourceError> {
        let (bytes, size) = self.read((0, HEADER_LEN), end)?;
        if size > self.most_bytes {
            let reason = format!("a patch of {size} bytes is larger than its image");
            return Err(SourceError::Wrong(reason));
        }
        file.set_len(size)?;
        file.write_all_at(&bytes, 0)?;
        let header = Header::read(&self.source(file)?).map_err(to_wrong)?;
        let (bytes, _) = self.read((header.meta_offset, size), end)?;
        file.write_all_at(&bytes, header.meta_offset)?;
        Ok(())
    }

    fn read(&self, range: (u64, u64), end: Instant) -> Result<(Vec<u8>, u64), SourceError> {
        if range.0 == range.1 {
            return Ok((Vec::new(), range.1));
        }
        let found = self.object.read(range, end)?;
        self.received
            .fetch_add(range.1 - range.0, Ordering::Relaxed);
        Ok(found)
    }

    /// Have the frames on the disk that a read of some blocks takes, before `end`.
    ///
    /// # Errors
    /// `Wrong` if a frame is damaged, or those of the host or the local disk.
    pub fn bring(
        &self,
        opened: &Opened,
        blocks: Range<u32>,
        end: Instant,
    ) -> Result<(), SourceError> {
        let frames = opened.patch.frames_within(blocks.start, blocks.end);
        loop {
            let claim = opened.claim(&frames, end)?;
            if claim.frames.is_empty() {
                return Ok(());
            }
            self.bring_claimed(&claim, end)?;
        }
    }

    fn bring_claimed(&self, claim: &Claim<'_>, end: Instant) -> Result<(), SourceError> {
        let file = self.file()?;
        let mut absent = Vec::new();
        for frame in &claim.frames {
            let mut bytes = vec![0; frame.len as usize];
            let found = file.read_exact_at(&mut bytes, frame.offset);
            match found.is_ok() && frame_check(&bytes) == frame.check {
                true => claim.set_local(frame),
                false => absent.push(*frame),
            }
        }
        let is_adjacent = |a: &Frame, b: &Frame| a.offset + u64::from(a.len) == b.offset;
        for group in absent.chunk_by(is_adjacent) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else {
                continue;
            };
            let range = (first.offset, last.offset + u64::from(last.len));
            let (bytes, _) = self.read(range, end)?;
            let mut rest = bytes.as_slice();
            for frame in group {
                let (bytes, others) = rest.split_at(frame.len as usize);
                rest = others;
                if frame_check(bytes) != frame.check {
                    let at = frame.offset;
                    let reason = format!("the frame at byte {at} of the patch is damaged");
                    return Err(SourceError::Wrong(reason));
                }
                file.write_all_at(bytes, frame.offset)?;
                claim.set_local(frame);
            }
        }
        Ok(())
    }
}

fn to_unreachable(error: diffcache_core::source::SourceError) -> SourceError {
    SourceError::Unreachable(error.to_string())
}

/// Return the error of a patch as that of its source.
pub fn to_wrong(error: PatchError) -> SourceError {
    match error {
        PatchError::Source(error) => to_unreachable(error),
        error => SourceError::Wrong(error.to_string()),
    }
}
