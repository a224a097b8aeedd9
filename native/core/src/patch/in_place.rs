//! Turning a base into the target in place.
//!
//! 1. The whole target is put together and verified; what the base lacks at its place is written to a *journal*, a sparse file beside the base, at the
//!    offsets that it has in the target. The base is not touched.
//! 2. The journal is flushed, and then marked complete, and that is flushed.
//! 3. The base is changed from the journal, flushed, read again and compared with the target's content id. The journal is removed.
//!
//! If this is interrupted, the same call again completes it: before the journal is complete the base still is the base; from then on
//! the journal has all that the base may lack, and putting a block in its place twice does no harm. The journal takes what the patch's literals and moved
//! blocks take unpacked.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Instant;

use diffcache_base::output::sync_parent;
use rustix::fs::{copy_file_range, fallocate, flock, FallocateFlags, FlockOperation};
use rustix::io::retry_on_intr;

use super::apply::ApplyStats;
use super::build::{Build, STEP_BLOCKS};
use super::format::Header;
use super::reader::PatchFile;
use super::runs::{within, Run, Src, BLOCK, BLOCK_LEN};
use super::PatchError;
use crate::manifest::Manifest;
use crate::source::{data_after, FileSource};
use crate::task::Task;

const MAGIC: &[u8; 8] = b"DCINPLC1";
/// Bytes of the mark that makes a journal complete; it follows the target's last block.
const MARK_LEN: usize = 128;
/// Bytes moved at a time where the filesystem does not copy by itself.
const COPY: usize = 1 << 20;

/// Turns the file `base` into the patch's target, by way of a new file `journal`, which should be on the same filesystem and is gone afterwards.
///
/// # Errors
/// `BaseMismatch`, `Corrupt`, `Format`, `NoSpace`, `Source`, `Io`, `Cancelled`, `Busy`: the base is as it was. `Interrupted`: the base is neither base
/// nor target; the same call again, with the journal, completes it.
pub fn apply_in_place(
    base: &Path,
    patch: &Path,
    journal: &Path,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let patch = PatchFile::open(FileSource::open(patch)?)?;
    let base_name = base.display().to_string();
    let file = open_base(base).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => PatchError::Busy {
            name: base_name.clone(),
        },
        _ => PatchError::from_write(&base_name, error),
    })?;
    let journal = Journal {
        path: journal,
        name: journal.display().to_string(),
        header: patch.header(),
    };
    let source = |file: &File| {
        let file = file
            .try_clone()
            .map_err(|error| PatchError::from_write(&base_name, error))?;
        Ok::<_, PatchError>(FileSource::from_file(file, base_name.clone())?)
    };
    let kept = match journal.complete()? {
        Some(kept) => kept,
        None => journal.write(&patch, &source(&file)?, task)?,
    };
    let interrupted = |source| PatchError::Interrupted {
        name: base_name.clone(),
        journal: journal.name.clone(),
        source,
    };
    let replay = Replay {
        journal: &kept,
        base: &file,
        header: patch.header(),
    };
    let bytes_written = replay
        .run(patch.runs(), &source(&file)?)
        .map_err(interrupted)?;
    let manifest = Manifest::from_source(&source(&file)?, &task.silent())?;
    if manifest.content_id() != patch.header().target_hash {
        return Err(interrupted(io::Error::other(
            "what was written does not read back as the target: the disk or the journal is damaged",
        )));
    }
    journal.remove()?;
    Ok(ApplyStats {
        bytes_verified: manifest.size(),
        manifest,
        reflinked: false,
        bytes_written,
        elapsed: started.elapsed(),
    })
}

/// Opens and locks a base; `WouldBlock` if another process has locked it.
fn open_base(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "only regular files are changed in place",
        ));
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Returns where the mark of a journal starts.
fn mark_offset(header: &Header) -> u64 {
    header.target_size.next_multiple_of(BLOCK)
}

fn mark(header: &Header) -> [u8; MARK_LEN] {
    let mut mark = [0; MARK_LEN];
    mark[..8].copy_from_slice(MAGIC);
    mark[8..40].copy_from_slice(&header.base_hash);
    mark[40..72].copy_from_slice(&header.target_hash);
    mark[72..104].copy_from_slice(&header.meta_hash);
    mark
}

struct Journal<'a> {
    path: &'a Path,
    name: String,
    header: &'a Header,
}

impl Journal<'_> {
    /// Returns the journal of an earlier call for the same patch, if that journal is complete.
    fn complete(&self) -> Result<Option<File>, PatchError> {
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.path);
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PatchError::from_write(&self.name, error)),
        };
        let mut found = [0; MARK_LEN];
        match file.read_exact_at(&mut found, mark_offset(self.header)) {
            Ok(()) if found == mark(self.header) => Ok(Some(file)),
            // Never completed, so that the base was not touched.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Ok(()) if found == [0; MARK_LEN] => Ok(None),
            Ok(()) => Err(PatchError::Io {
                name: self.name.clone(),
                source: io::Error::other(
                    "it belongs to another patch; finish that one first, or remove it if that is not wanted",
                ),
            }),
            Err(error) => Err(PatchError::from_write(&self.name, error)),
        }
    }

    /// Verifies the target and writes what the base lacks of it. Removes itself after an error.
    fn write(
        &self,
        patch: &PatchFile<FileSource>,
        base: &FileSource,
        task: &Task<'_>,
    ) -> Result<File, PatchError> {
        patch.check_base_size(base)?;
        let written = self.write_changes(patch, base, task);
        if written.is_err() {
            // It is not complete and blocks no later call; the error that counts is the one before.
            let _ = std::fs::remove_file(self.path);
        }
        written
    }

    fn write_changes(
        &self,
        patch: &PatchFile<FileSource>,
        base: &FileSource,
        task: &Task<'_>,
    ) -> Result<File, PatchError> {
        let failed = |error| PatchError::from_write(&self.name, error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_NOFOLLOW)
            .open(self.path)
            .map_err(failed)?;
        let build = Build {
            patch,
            base,
            meter: task.meter(self.header.target_size),
        };
        build.run(task, |first, data| {
            let mut written = 0;
            for run in within(patch.runs(), first, first + STEP_BLOCKS).filter(is_change) {
                let start = (run.start - first) as usize * BLOCK_LEN;
                let end = (start + run.len as usize * BLOCK_LEN).min(data.len());
                let offset = u64::from(run.start) * BLOCK;
                file.write_all_at(&data[start..end], offset)
                    .map_err(failed)?;
                written += (end - start) as u64;
            }
            Ok(written)
        })?;
        task.check()?;
        file.sync_data().map_err(failed)?;
        file.write_all_at(&mark(self.header), mark_offset(self.header))
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_parent(self.path))
            .map_err(failed)?;
        Ok(file)
    }

    fn remove(&self) -> Result<(), PatchError> {
        std::fs::remove_file(self.path)
            .and_then(|()| sync_parent(self.path))
            .map_err(|error| PatchError::from_write(&self.name, error))
    }
}

/// Returns whether a run's bytes are in the journal.
fn is_change(run: &Run) -> bool {
    match run.src {
        Src::Zero => false,
        Src::Base(block) => block != run.start,
        Src::Literal(_) => true,
    }
}

struct Replay<'a> {
    journal: &'a File,
    base: &'a File,
    header: &'a Header,
}

impl Replay<'_> {
    /// Writes every change to its place and flushes; returns the bytes written.
    fn run(&self, runs: &[Run], base: &FileSource) -> io::Result<u64> {
        let size = self.header.target_size;
        let mut written = 0;
        // What is past the target's end is not needed any more; where the base was shorter, holes follow.
        self.base.set_len(size)?;
        for run in runs {
            let start = u64::from(run.start) * BLOCK;
            let end = (u64::from(run.end()) * BLOCK).min(size);
            if is_change(run) {
                self.copy(start, end)?;
                written += end - start;
            } else if run.src == Src::Zero {
                self.clear(start, end, base)?;
            }
        }
        self.base.sync_all()?;
        Ok(written)
    }

    fn copy(&self, start: u64, end: u64) -> io::Result<()> {
        let (mut from, mut to) = (start, start);
        while to < end {
            let want = usize::try_from(end - to).unwrap_or(usize::MAX);
            match copy_file_range(
                self.journal,
                Some(&mut from),
                self.base,
                Some(&mut to),
                want,
            ) {
                Ok(0) | Err(_) => return self.copy_by_hand(to, end),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn copy_by_hand(&self, start: u64, end: u64) -> io::Result<()> {
        let mut data = vec![0; COPY];
        let mut at = start;
        while at < end {
            let part = &mut data[..(end - at).min(COPY as u64) as usize];
            self.journal.read_exact_at(part, at)?;
            self.base.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Zeroes a range where the base has data.
    fn clear(&self, start: u64, end: u64, base: &FileSource) -> io::Result<()> {
        let mut at = start;
        while let Some((from, to)) = data_after(base, at).map_err(io::Error::other)? {
            if from >= end {
                break;
            }
            let to = to.min(end);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            retry_on_intr(|| fallocate(self.base, flags, from, to - from))?;
            at = to;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patch::{create, CreateOptions};
    use std::path::PathBuf;

    struct Case {
        _dir: tempfile::TempDir,
        base: PathBuf,
        patch: PathBuf,
        journal: PathBuf,
        target: Vec<u8>,
    }

    /// Returns a target whose blocks are the base's in reverse order, and some others.
    fn case() -> Case {
        let dir = tempfile::tempdir().unwrap();
        let block = |n: u32| {
            n.wrapping_mul(2_654_435_761)
                .to_le_bytes()
                .repeat(BLOCK_LEN / 4)
        };
        let base: Vec<u8> = (1..400).flat_map(block).collect();
        let target: Vec<u8> = (1..500).rev().flat_map(block).collect();
        let path = |name| dir.path().join(name);
        std::fs::write(path("base"), &base).unwrap();
        create(&base, &target, &path("patch"), &CreateOptions::default()).unwrap();
        Case {
            base: path("base"),
            patch: path("patch"),
            journal: path("journal"),
            target,
            _dir: dir,
        }
    }

    fn finish(case: &Case) -> Result<ApplyStats, PatchError> {
        apply_in_place(&case.base, &case.patch, &case.journal, &Task::default())
    }

    /// Writes the journal and the first runs in their places, as far as a crash would have let it.
    fn crash_after(case: &Case, runs: usize) {
        let patch = PatchFile::open(FileSource::open(&case.patch).unwrap()).unwrap();
        let base = open_base(&case.base).unwrap();
        let source = FileSource::open(&case.base).unwrap();
        let journal = Journal {
            path: &case.journal,
            name: String::new(),
            header: patch.header(),
        };
        let kept = journal.write(&patch, &source, &Task::default()).unwrap();
        let replay = Replay {
            journal: &kept,
            base: &base,
            header: patch.header(),
        };
        replay.run(&patch.runs()[..runs], &source).unwrap();
    }

    #[test]
    fn an_interrupted_change_goes_on_where_it_was() {
        for runs in [0, 1, 7, 150] {
            let case = case();
            crash_after(&case, runs);
            assert!(case.journal.exists());
            finish(&case).unwrap();
            assert_eq!(std::fs::read(&case.base).unwrap(), case.target);
            assert!(!case.journal.exists());
        }
    }

    #[test]
    fn a_journal_that_is_not_complete_is_made_again() {
        let case = case();
        let base = std::fs::read(&case.base).unwrap();
        std::fs::write(&case.journal, &base[..base.len() / 2]).unwrap();
        finish(&case).unwrap();
        assert_eq!(std::fs::read(&case.base).unwrap(), case.target);
    }

    #[test]
    fn the_journal_of_another_patch_is_kept() {
        let case = case();
        let base = std::fs::read(&case.base).unwrap();
        let mut other = vec![0; case.target.len()];
        other.extend_from_slice(&[7; MARK_LEN]);
        std::fs::write(&case.journal, &other).unwrap();
        assert!(matches!(finish(&case), Err(PatchError::Io { .. })));
        assert_eq!(std::fs::read(&case.base).unwrap(), base);
        assert_eq!(std::fs::read(&case.journal).unwrap(), other);
    }

    #[test]
    fn a_link_in_the_journals_place_is_not_followed() {
        let case = case();
        let base = std::fs::read(&case.base).unwrap();
        let other = case.base.with_file_name("other");
        std::fs::write(&other, b"another's").unwrap();
        std::os::unix::fs::symlink(&other, &case.journal).unwrap();
        assert!(matches!(finish(&case), Err(PatchError::Io { .. })));
        assert_eq!(std::fs::read(&case.base).unwrap(), base);
        assert_eq!(std::fs::read(&other).unwrap(), b"another's");
    }

    #[test]
    fn a_damaged_journal_is_told_and_kept() {
        let case = case();
        crash_after(&case, 3);
        let journal = OpenOptions::new().write(true).open(&case.journal).unwrap();
        journal.write_all_at(b"damage", 100 * BLOCK).unwrap();
        assert!(matches!(finish(&case), Err(PatchError::Interrupted { .. })));
        assert!(case.journal.exists());
    }

    #[test]
    fn a_base_that_is_being_changed_is_refused() {
        let case = case();
        let held = open_base(&case.base).unwrap();
        assert!(matches!(finish(&case), Err(PatchError::Busy { .. })));
        drop(held);
        finish(&case).unwrap();
    }
}
