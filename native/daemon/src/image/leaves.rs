//! The part of an image that is on the local disk, and which of its leaves are there.
//!
//! `STATE/CONTENT_ID.data` is the image with holes. `STATE/CONTENT_ID.leaves` is, little-endian: `DCLEAVES`, u32 version, u32 1 after a clean end
//! and 0 while a worker uses it, u64 size, content id (32 bytes), 8 bytes 0; then one byte per leaf, 1 = present. After an unclean end
//! what is marked is verified again before its first use.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicU8, Ordering};

use diffcache_core::compressed::GROUP_LEAVES;
use diffcache_core::leaf::LEAF_LEN;
use diffcache_core::manifest::{leaf_len, Manifest, LEAF_SIZE};

use crate::error::DaemonError;

/// Bytes of a chunk, which one request fetches.
pub const CHUNK: u64 = 256 << 10;
/// Chunks of a group, which have one frame in a compressed form, and one home at a site.
pub const GROUP_CHUNKS: u64 = GROUP_LEAVES * LEAF_LEN as u64 / CHUNK;
const CHUNK_LEAVES: u64 = CHUNK / LEAF_SIZE;
/// Room on the disk that is left to what is being read.
const RESERVE: u64 = 16 * CHUNK;
const HEADER_LEN: usize = 64;
const CLEAN_AT: u64 = 12;

const ABSENT: u8 = 0;
const CLAIMED: u8 = 1;
const VERIFIED: u8 = 2;

/// Return the path of an image's bytes in a state folder.
pub fn data_path(state: &Path, manifest: &Manifest) -> PathBuf {
    state.join(format!("{}.data", manifest.content_id_hex()))
}

/// Which chunks of an image a state folder has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Presence {
    /// Chunks with data.
    pub data_chunks: u64,
    /// Those of them that are marked present.
    pub present: u64,
    /// Bytes of the others.
    pub absent_bytes: u64,
}

/// Count the chunks with data, and those of them that are marked present in a state folder.
///
/// # Errors
/// Of the local disk.
pub fn count_chunks(state: &Path, manifest: &Manifest) -> io::Result<Presence> {
    count_some(state, manifest, 0..manifest.size().div_ceil(CHUNK))
}

/// Count as `count_chunks` does, but only some chunks of the image.
///
/// # Errors
/// Of the local disk.
pub fn count_some(
    state: &Path,
    manifest: &Manifest,
    chunks: impl Iterator<Item = u64>,
) -> io::Result<Presence> {
    let marks = std::fs::read(data_path(state, manifest).with_extension("leaves"))?;
    let is_marked = |leaf: &u64| marks.get(HEADER_LEN + *leaf as usize) == Some(&1);
    let mut found = Presence::default();
    for chunk in chunks {
        let mut leaves = data_leaves(manifest, chunk).peekable();
        if leaves.peek().is_none() {
            continue;
        }
        found.data_chunks += 1;
        if leaves.all(|leaf| is_marked(&leaf)) {
            found.present += 1;
        } else {
            found.absent_bytes += CHUNK.min(manifest.size() - chunk * CHUNK);
        }
    }
    Ok(found)
}

fn data_leaves(manifest: &Manifest, chunk: u64) -> impl Iterator<Item = u64> + '_ {
    let first = chunk * CHUNK_LEAVES;
    let end = (first + CHUNK_LEAVES).min(manifest.leaf_count());
    (first..end).filter(|leaf| !manifest.is_zero_leaf(*leaf))
}

/// The local part of one image.
pub struct Leaves {
    manifest: Manifest,
    data: File,
    marks: File,
    states: Vec<AtomicU8>,
    verified: AtomicU64,
    is_new: bool,
}

impl Leaves {
    /// Open the part of an image, new or left by an earlier run.
    ///
    /// # Errors
    /// `Path`.
    pub fn open(state: &Path, manifest: Manifest) -> Result<Leaves, DaemonError> {
        let data_path = data_path(state, &manifest);
        let marks_path = data_path.with_extension("leaves");
        let open = |path: &Path| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = options
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(path);
            file.map_err(DaemonError::at("open", path))
        };
        let (data, marks) = (open(&data_path)?, open(&marks_path)?);
        let count = manifest.leaf_count() as usize;
        let header = header(&manifest);
        let states =
            read_states(&marks, &header, count).map_err(DaemonError::at("read", &marks_path))?;
        let fresh = states.is_none();
        let states = states.unwrap_or_else(|| vec![ABSENT; count]);
        // Before the first write: a kill from here on is an unclean end.
        let begin = || -> io::Result<()> {
            if fresh {
                data.set_len(0)?;
                marks.set_len(0)?;
                marks.write_all_at(&header, 0)?;
                marks.set_len((HEADER_LEN + count) as u64)?;
            }
            data.set_len(manifest.size())?;
            marks.write_all_at(&0u32.to_le_bytes(), CLEAN_AT)?;
            marks.sync_all()
        };
        begin().map_err(DaemonError::at("prepare", &marks_path))?;
        let verified = states.iter().filter(|state| **state == VERIFIED).count();
        Ok(Leaves {
            manifest,
            data,
            marks,
            verified: AtomicU64::new(verified as u64),
            is_new: fresh,
            states: states.into_iter().map(AtomicU8::new).collect(),
        })
    }

    /// Return the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Return whether there was nothing of the image when it was opened.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Return the image's bytes; those of absent leaves are holes.
    pub fn file(&self) -> &File {
        &self.data
    }

    /// Return the offset and the length of a chunk.
    pub fn chunk_range(&self, chunk: u64) -> (u64, usize) {
        let start = chunk * CHUNK;
        (
            start,
            self.manifest.size().saturating_sub(start).min(CHUNK) as usize,
        )
    }

    /// Return the length of adjacent chunks.
    pub fn run_len(&self, run: &Range<u64>) -> usize {
        let end = (run.end * CHUNK).min(self.manifest.size());
        end.saturating_sub(run.start * CHUNK) as usize
    }

    /// Return the number of chunks.
    pub fn chunk_count(&self) -> u64 {
        self.manifest.size().div_ceil(CHUNK)
    }

    fn data_leaves(&self, chunk: u64) -> impl Iterator<Item = u64> + '_ {
        data_leaves(&self.manifest, chunk)
    }

    /// Return whether all of the image is local and verified.
    pub fn is_complete(&self) -> bool {
        let data_leaves = self.manifest.leaf_count() - self.manifest.zero_leaf_count();
        self.verified.load(Ordering::Acquire) == data_leaves
    }

    /// Return whether a chunk is local, or was before an unclean end.
    pub fn is_marked(&self, chunk: u64) -> bool {
        self.data_leaves(chunk)
            .all(|leaf| self.state(leaf) != ABSENT)
    }

    /// Return whether the disk has room for more than what is being read.
    pub fn has_room(&self) -> bool {
        // What cannot tell is tried.
        rustix::fs::fstatvfs(&self.data)
            .map_or(true, |disk| disk.f_bavail * disk.f_frsize > RESERVE)
    }

    /// Return the bytes of the leaves that are not local, or not verified yet.
    pub fn absent_bytes(&self) -> u64 {
        let data_leaves = self.manifest.leaf_count() - self.manifest.zero_leaf_count();
        data_leaves.saturating_sub(self.verified.load(Ordering::Acquire)) * LEAF_SIZE
    }

    fn set_verified(&self, leaf: u64) {
        let before = self.states[leaf as usize].swap(VERIFIED, Ordering::AcqRel);
        self.verified
            .fetch_add(u64::from(before != VERIFIED), Ordering::AcqRel);
    }

    fn state(&self, leaf: u64) -> u8 {
        self.states[leaf as usize].load(Ordering::Acquire)
    }

    /// Return whether a chunk is local, after verifying what an unclean end left. Leaves that fail are fetched again.
    ///
    /// # Errors
    /// Of the local disk.
    pub fn check(&self, chunk: u64) -> io::Result<bool> {
        self.check_leaves(self.data_leaves(chunk))
    }

    /// Return whether a range of bytes is local, as `check` does.
    ///
    /// # Errors
    /// Of the local disk.
    pub fn check_range(&self, range: &Range<u64>) -> io::Result<bool> {
        let leaves = range.start / LEAF_SIZE..range.end.div_ceil(LEAF_SIZE);
        self.check_leaves(leaves.filter(|leaf| !self.manifest.is_zero_leaf(*leaf)))
    }

    fn check_leaves(&self, leaves: impl Iterator<Item = u64>) -> io::Result<bool> {
        let mut buffer = Vec::new();
        for leaf in leaves {
            match self.state(leaf) {
                VERIFIED => {}
                CLAIMED => {
                    buffer.resize(leaf_len(self.manifest.size(), leaf), 0);
                    self.data.read_exact_at(&mut buffer, leaf * LEAF_SIZE)?;
                    if !self.manifest.verify_leaf(leaf, &buffer) {
                        self.drop_claim(leaf)?;
                        return Ok(false);
                    }
                    self.set_verified(leaf);
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Forget a leaf that failed, unless its fetch has ended meanwhile.
    fn drop_claim(&self, leaf: u64) -> io::Result<()> {
        let state = &self.states[leaf as usize];
        let order = Ordering::AcqRel;
        if state
            .compare_exchange(CLAIMED, ABSENT, order, Ordering::Acquire)
            .is_ok()
        {
            self.marks.write_all_at(&[0], HEADER_LEN as u64 + leaf)?;
        }
        Ok(())
    }

    /// Return the first leaf with wrong bytes, of bytes that begin with a chunk; the first `kept` leaves are known to be right.
    pub fn find_wrong(&self, chunk: u64, bytes: &[u8], kept: usize) -> Option<u64> {
        let first = chunk * CHUNK_LEAVES;
        let leaves = bytes.chunks(LEAF_SIZE as usize).zip(first..);
        leaves
            .skip(kept)
            .find_map(|(data, leaf)| (!self.manifest.verify_leaf(leaf, data)).then_some(leaf))
    }

    /// Keep a verified chunk.
    ///
    /// # Errors
    /// Of the local disk; leaves from the first that failed are then not marked.
    pub fn keep(&self, chunk: u64, bytes: &[u8]) -> io::Result<()> {
        let leaves = bytes.chunks(LEAF_SIZE as usize).zip(chunk * CHUNK_LEAVES..);
        for (data, leaf) in leaves {
            self.keep_leaf(leaf, data)?;
        }
        Ok(())
    }

    /// Keep the leaves that have arrived of bytes that begin with a chunk, as far as they are whole and right. Return how many are kept, `kept` of
    /// which were before.
    pub fn keep_arrived(&self, chunk: u64, bytes: &[u8], kept: usize) -> usize {
        let arrived = bytes.chunks(LEAF_SIZE as usize).zip(chunk * CHUNK_LEAVES..);
        let is_kept = |(data, leaf): &(&[u8], u64)| {
            data.len() == leaf_len(self.manifest.size(), *leaf)
                && self.manifest.verify_leaf(*leaf, data)
                && self.keep_leaf(*leaf, data).is_ok()
        };
        kept + arrived.skip(kept).take_while(is_kept).count()
    }

    /// Keep a verified leaf; zeros stay a hole.
    fn keep_leaf(&self, leaf: u64, data: &[u8]) -> io::Result<()> {
        if self.manifest.is_zero_leaf(leaf) || self.state(leaf) == VERIFIED {
            return Ok(());
        }
        self.data.write_all_at(data, leaf * LEAF_SIZE)?;
        self.marks.write_all_at(&[1], HEADER_LEN as u64 + leaf)?;
        self.set_verified(leaf);
        Ok(())
    }

    /// Make everything durable and mark a clean end. Unverified leaves keep an end unclean.
    ///
    /// # Errors
    /// Of the local disk.
    pub fn close(&self) -> io::Result<()> {
        self.data.sync_all()?;
        let marks: Vec<u8> = self
            .states
            .iter()
            .map(|state| u8::from(state.load(Ordering::Acquire) != ABSENT))
            .collect();
        self.marks.write_all_at(&marks, HEADER_LEN as u64)?;
        self.marks.sync_all()?;
        if self
            .states
            .iter()
            .any(|state| state.load(Ordering::Acquire) == CLAIMED)
        {
            return Ok(());
        }
        self.marks.write_all_at(&1u32.to_le_bytes(), CLEAN_AT)?;
        self.marks.sync_all()
    }
}

fn header(manifest: &Manifest) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..8].copy_from_slice(b"DCLEAVES");
    header[8] = 1;
    header[16..24].copy_from_slice(&manifest.size().to_le_bytes());
    header[24..56].copy_from_slice(&manifest.content_id());
    header
}

/// Read the leaves' states; none if the file is new, of another version or cut short.
fn read_states(
    marks: &File,
    header: &[u8; HEADER_LEN],
    count: usize,
) -> io::Result<Option<Vec<u8>>> {
    if marks.metadata()?.len() != (HEADER_LEN + count) as u64 {
        return Ok(None);
    }
    let mut found = [0; HEADER_LEN];
    marks.read_exact_at(&mut found, 0)?;
    let clean = found[CLEAN_AT as usize] == 1;
    found[CLEAN_AT as usize] = 0;
    if found != *header {
        eprintln!("Ignoring leaves of an unknown version or another image: fetching again");
        return Ok(None);
    }
    let mut states = vec![0; count];
    marks.read_exact_at(&mut states, HEADER_LEN as u64)?;
    for state in &mut states {
        *state = match *state {
            0 => ABSENT,
            _ if clean => VERIFIED,
            _ => CLAIMED,
        };
    }
    Ok(Some(states))
}
