//! The part of an image that is on the local disk, and which of its leaves are there.
//!
//! `STATE/CONTENT_ID.data` is the image with holes, `STATE/CONTENT_ID.leaves` has the [marks](crate::image::marks). What is marked is verified again
//! before its first use, unless the image was closed and its files are as they were then: a mark is written when the kernel has a leaf, and counts
//! without a look only if the leaf was synced before. While leaves come in they are synced from time to time: once the disk has lost some, the kernel
//! may drop its copy of them at any moment, and all are verified again before their next use.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicU8, Ordering};
use std::sync::{Mutex, RwLock};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::manifest::{leaf_len, Manifest, LEAF_SIZE};

use crate::error::DaemonError;
use crate::image::marks::{self, Found, HEADER_LEN, PRESENT};
use crate::image::storage::Storage;
use crate::sizes::CHUNK;

const CHUNK_LEAVES: u64 = CHUNK / LEAF_SIZE;
/// One part in this many of the disk is left to others, such as servers' own disks, and to what is read: nothing is fetched there before it is read.
const RESERVED_SHARE: u64 = 20;
/// Limits of that part, in bytes.
const LEAST_RESERVE: u64 = 16 * CHUNK;
const MOST_RESERVE: u64 = 8 << 30;

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
    let is_marked = |leaf: &u64| marks.get(HEADER_LEN + *leaf as usize) == Some(&PRESENT);
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

/// Return the bytes that are left free of a disk with this many.
fn reserve(total: u64) -> u64 {
    (total / RESERVED_SHARE).clamp(LEAST_RESERVE, MOST_RESERVE)
}

/// The local part of one image.
pub struct Leaves<F = File> {
    manifest: Manifest,
    data: F,
    marks: F,
    states: Vec<AtomicU8>,
    verified: AtomicU64,
    /// Leaves that were marked, and were not there.
    lost: AtomicU64,
    is_new: bool,
    /// Whether leaves were kept since the last sync.
    is_dirty: AtomicBool,
    /// Held over a sync and what follows from it: the kernel reports to one caller alone what it could not write.
    syncing: Mutex<()>,
    /// Whether the disk loses what it is given.
    is_failing: AtomicBool,
    /// Whether the disk had no room at the last look.
    is_full: AtomicBool,
    /// Whether nothing is kept any more. Shared by those that keep or verify a leaf, so that the end, and a doubt in all leaves, wait for them.
    is_closed: RwLock<bool>,
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
        Leaves::of_files(data, marks, manifest).map_err(DaemonError::at("prepare", &marks_path))
    }

    /// Return the image's bytes; those of absent leaves are holes.
    pub fn file(&self) -> &File {
        &self.data
    }

    /// Note whether the disk loses what it is given: then only what is read is fetched.
    pub fn set_failing(&self, is_failing: bool) {
        self.is_failing.store(is_failing, Ordering::Relaxed);
    }

    /// Return whether the disk has room for more than what is being read.
    pub fn has_room(&self) -> bool {
        if self.is_failing.load(Ordering::Relaxed) {
            return false;
        }
        let Ok(disk) = rustix::fs::fstatvfs(&self.data) else {
            return true; // What cannot tell is tried.
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let reserve = reserve(disk.f_blocks.saturating_mul(disk.f_frsize));
        let is_full = free <= reserve;
        if is_full && !self.is_full.swap(is_full, Ordering::Relaxed) {
            log::warn!(
                "Fetching only what is read of {}: its disk has {} MB left, and {} MB are kept free",
                self.manifest.content_id_hex(),
                free / 1_000_000,
                reserve / 1_000_000
            );
        }
        self.is_full.store(is_full, Ordering::Relaxed);
        !is_full
    }
}

impl<F: Storage> Leaves<F> {
    /// Take the files of an image.
    ///
    /// # Errors
    /// Of the local disk.
    pub fn of_files(data: F, marks: F, manifest: Manifest) -> io::Result<Leaves<F>> {
        let stamp = data.stamp()?;
        let found = marks::read(&marks, &manifest, stamp)?;
        let is_new = found == Found::Nothing;
        if is_new {
            data.resize(0)?;
            marks::begin(&marks, &manifest)?;
        }
        // Before the first change: a kill from here on is an unclean end.
        marks::unseal(&marks)?;
        if is_new || stamp.len != manifest.size() {
            data.resize(manifest.size())?;
        }
        let (marked, state) = match found {
            Found::Nothing => (vec![0; manifest.leaf_count() as usize], ABSENT),
            Found::Claims(marked) => (marked, CLAIMED),
            Found::Sealed(marked) => (marked, VERIFIED),
        };
        if state == CLAIMED {
            // What is not on the disk yet would not be dropped. What cannot be written is found wrong.
            let _ = data.sync();
            data.forget_cached();
        }
        let states: Vec<u8> = marked
            .into_iter()
            .map(|mark| if mark == PRESENT { state } else { ABSENT })
            .collect();
        let verified = states.iter().filter(|state| **state == VERIFIED).count();
        Ok(Leaves {
            manifest,
            data,
            marks,
            verified: AtomicU64::new(verified as u64),
            lost: AtomicU64::new(0),
            is_new,
            is_dirty: AtomicBool::new(state == CLAIMED),
            syncing: Mutex::new(()),
            is_failing: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            states: states.into_iter().map(AtomicU8::new).collect(),
            is_closed: RwLock::new(false),
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

    /// Return how many marked leaves were found lost or wrong since the last call.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }

    /// Return whether a chunk is local, after verifying what an unclean end left. Leaves that fail are fetched again.
    pub fn check(&self, chunk: u64) -> bool {
        self.check_leaves(self.data_leaves(chunk))
    }

    /// Return whether a range of bytes is local, as `check` does.
    pub fn check_range(&self, range: &Range<u64>) -> bool {
        let leaves = range.start / LEAF_SIZE..range.end.div_ceil(LEAF_SIZE);
        self.check_leaves(leaves.filter(|leaf| !self.manifest.is_zero_leaf(*leaf)))
    }

    fn check_leaves(&self, mut leaves: impl Iterator<Item = u64>) -> bool {
        let mut buffer = Vec::new();
        leaves.all(|leaf| match self.state(leaf) {
            VERIFIED => true,
            CLAIMED => self.check_claim(leaf, &mut buffer),
            _ => false,
        })
    }

    /// Return whether a marked leaf is there. One that cannot be read keeps its mark, and is fetched all the same.
    fn check_claim(&self, leaf: u64, buffer: &mut Vec<u8>) -> bool {
        buffer.resize(leaf_len(self.manifest.size(), leaf), 0);
        let sharing = self.is_closed.read();
        if let Err(error) = self.data.read_at(buffer, leaf * LEAF_SIZE) {
            log::warn!("Could not read leaf {leaf} from the local disk, fetching it: {error}");
            return false;
        }
        if self.manifest.verify_leaf(leaf, buffer) {
            self.set_verified(leaf);
            return true;
        }
        drop(sharing);
        self.drop_claim(leaf);
        // Its fetch may have ended meanwhile.
        self.state(leaf) == VERIFIED
    }

    /// Forget a leaf that failed, unless its fetch has ended meanwhile.
    fn drop_claim(&self, leaf: u64) {
        let state = &self.states[leaf as usize];
        let order = Ordering::AcqRel;
        if state
            .compare_exchange(CLAIMED, ABSENT, order, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        self.lost.fetch_add(1, Ordering::Relaxed);
        let kept = self.unless_closed(|| marks::mark(&self.marks, leaf, 0));
        if let Err(error) = kept {
            // A reader that finds the mark verifies it as well.
            log::warn!("Could not unmark leaf {leaf}: {error}");
        }
    }

    /// Change the files, unless they were closed.
    fn unless_closed(&self, change: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let is_closed = self.is_closed.read();
        match *is_closed.unpoisoned() {
            true => Err(io::Error::other("the image was closed")),
            false => change(),
        }
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
        self.unless_closed(|| {
            self.data.write_at(data, leaf * LEAF_SIZE)?;
            self.is_dirty.store(true, Ordering::Release);
            marks::mark(&self.marks, leaf, PRESENT)?;
            self.set_verified(leaf);
            Ok(())
        })
    }

    /// Make durable what was kept since the last call. If the disk has lost any of it, all that is kept is verified again before its next use.
    ///
    /// # Errors
    /// Of the local disk.
    pub fn flush(&self) -> io::Result<()> {
        let _turn = self.syncing.lock().unpoisoned();
        if !self.is_dirty.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let synced = self.data.sync();
        if synced.is_err() {
            self.doubt();
            self.is_dirty.store(true, Ordering::Release);
        }
        synced
    }

    /// Have all leaves verified again before their next use, from the disk: the kernel reports what it could not write once, and not of which leaves.
    pub fn doubt(&self) {
        // Waits for those that keep or verify a leaf: none of them is left out.
        let _alone = self.is_closed.write();
        let order = Ordering::AcqRel;
        for state in &self.states {
            let doubted = state.compare_exchange(VERIFIED, CLAIMED, order, Ordering::Acquire);
            self.verified
                .fetch_sub(u64::from(doubted.is_ok()), Ordering::AcqRel);
        }
        self.data.forget_cached();
    }

    /// Keep nothing any more, make what is kept durable, and seal it if all of it was verified.
    ///
    /// # Errors
    /// Of the local disk; what is marked is then verified at the next start.
    pub fn close(&self) -> io::Result<()> {
        // Waits for those that keep a leaf: what is marked below is what is synced.
        let mut is_closed = self.is_closed.write().unpoisoned();
        *is_closed = true;
        drop(is_closed);
        // A sync that fails now has all leaves doubted first.
        let _turn = self.syncing.lock().unpoisoned();
        let states: Vec<u8> = self
            .states
            .iter()
            .map(|state| state.load(Ordering::Acquire))
            .collect();
        self.data.sync()?;
        let marks: Vec<u8> = states
            .iter()
            .map(|state| u8::from(*state != ABSENT))
            .collect();
        marks::write(&self.marks, &marks)?;
        if states.contains(&CLAIMED) {
            return Ok(());
        }
        marks::close(&self.marks, &self.manifest, self.data.stamp()?, &marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the rest of images took all but 4 MiB of a disk, and servers' own disks on it had no room.
    #[test]
    fn a_part_of_the_disk_is_left_to_others() {
        assert_eq!(reserve(100 << 30), 5 << 30);
        assert_eq!(reserve(100 << 40), MOST_RESERVE);
        assert_eq!(reserve(1 << 20), LEAST_RESERVE);
    }
}
