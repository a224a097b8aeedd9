//! A file on its way: written beside its destination, renamed when it is whole.
//!
//! The destination `dir/name` is written as `dir/.name.part`. One process at a time has it, by flock(2); what a dead process left is found and
//! used again after its bytes have been verified.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diffcache_core::reflink;
use rustix::fs::{copy_file_range, FallocateFlags, FlockOperation, OFlags};

use crate::error::TransferError;
use crate::ids::ObjectKey;

/// Where `dest` is written before it is whole; `None` if `dest` has no file name.
pub fn part_path(dest: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(dest.file_name()?);
    name.push(".part");
    Some(dest.with_file_name(name))
}

/// What a finished file has to survive. Killing the process never leaves a half-written destination, whichever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The end of the process: the system writes the bytes when it likes to.
    Process,
    /// A power cut: the bytes are on the disk before the name is.
    Power,
}

impl Durability {
    /// That of a file which has to survive a power cut, or need not.
    pub fn of(durable: bool) -> Durability {
        match durable {
            true => Durability::Power,
            false => Durability::Process,
        }
    }
}

/// An open, locked part of a destination.
pub struct Part {
    key: ObjectKey,
    dest: PathBuf,
    path: PathBuf,
    file: Arc<File>,
}

impl Part {
    /// Opens the part of `dest`, new or left by a process that ended.
    pub fn open(key: ObjectKey, dest: &Path) -> Result<Part, TransferError> {
        let path = part_path(dest).ok_or_else(|| {
            TransferError::Invalid(format!("'{}' is not the name of a file", dest.display()))
        })?;
        let fail = |error| TransferError::file(key, &path, error);
        loop {
            let file = open_locked(&path).map_err(fail)?;
            let file = file.ok_or_else(|| TransferError::AlreadyInFlight {
                object: key.to_string(),
            })?;
            // Between open and lock another process may have finished with the name.
            let ours = file.metadata().map_err(fail)?;
            let there = match std::fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                there => there.map_err(fail)?,
            };
            if there.ino() == ours.ino() && there.dev() == ours.dev() {
                return Ok(Part {
                    key,
                    dest: dest.to_owned(),
                    path,
                    file: Arc::new(file),
                });
            }
        }
    }

    /// The object.
    pub fn key(&self) -> ObjectKey {
        self.key
    }

    /// The open file.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns whether the part has no bytes yet.
    pub fn is_empty(&self) -> Result<bool, TransferError> {
        let found = self.file.metadata().map_err(|error| self.error(error))?;
        Ok(found.len() == 0)
    }

    /// Shares the blocks of another file, where the file system can; false where it cannot.
    pub fn clone_blocks(&self, of: &File) -> bool {
        reflink::share_blocks(&self.file, of)
    }

    /// Copies the bytes `start..end` of another file to the same place, by sharing its blocks where the file system can; false if that failed.
    pub fn share_range(&self, of: &File, start: u64, end: u64) -> bool {
        let (mut from, mut to) = (start, start);
        while to < end {
            let want = usize::try_from(end - to).unwrap_or(usize::MAX);
            match copy_file_range(of, Some(&mut from), &*self.file, Some(&mut to), want) {
                Ok(count) if count > 0 => (),
                Err(rustix::io::Errno::INTR) => (),
                _ => return false,
            }
        }
        true
    }

    /// Makes the bytes `start..end` zero and gives their blocks back.
    pub fn punch(&self, start: u64, end: u64) -> Result<(), TransferError> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = rustix::fs::fallocate(&*self.file, flags, start, end - start);
        punched.map_err(|error| self.error(error.into()))
    }

    /// Returns the path of the part until it is complete.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A local error, with the part's name.
    pub fn error(&self, error: io::Error) -> TransferError {
        TransferError::file(self.key, &self.path, error)
    }

    /// Fails if the file system cannot take this many bytes more.
    pub fn check_space(&self, bytes: u64) -> Result<(), TransferError> {
        let space = rustix::fs::fstatvfs(&*self.file).map_err(|error| self.error(error.into()))?;
        if space.f_bavail.saturating_mul(space.f_frsize) < bytes {
            return Err(self.error(io::ErrorKind::StorageFull.into()));
        }
        Ok(())
    }

    /// Makes the part the destination; readers of that name find either the old file or the new.
    pub fn commit(&self, durability: Durability) -> Result<(), TransferError> {
        if durability == Durability::Power {
            self.file.sync_data().map_err(|error| self.error(error))?;
        }
        std::fs::rename(&self.path, &self.dest).map_err(|error| self.error(error))?;
        match durability {
            Durability::Power => self.sync_directory(),
            Durability::Process => Ok(()),
        }
    }

    fn sync_directory(&self) -> Result<(), TransferError> {
        let directory = match self.dest.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| TransferError::file(self.key, directory, error))
    }

    /// Removes the part.
    pub fn discard(&self) {
        // If even this fails the part stays for the next attempt, which verifies its bytes.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open_locked(path: &Path) -> io::Result<Option<File>> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o644)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use std::os::unix::fs::FileExt;

    fn key() -> ObjectKey {
        ObjectKey::parse("patches", &"a".repeat(64)).unwrap()
    }

    #[test]
    fn a_part_becomes_its_destination_or_goes() {
        let directory = Directory::new();
        let dest = directory.path.join("object");
        let part = Part::open(key(), &dest).unwrap();
        part.file().write_all_at(b"abc", 0).unwrap();
        assert!(matches!(
            Part::open(key(), &dest),
            Err(TransferError::AlreadyInFlight { .. })
        ));
        drop(part);
        let part = Part::open(key(), &dest).unwrap();
        assert_eq!(part.file().metadata().unwrap().len(), 3);
        part.commit(Durability::Power).unwrap();
        assert_eq!(std::fs::read(&dest).unwrap(), b"abc");
        let again = Part::open(key(), &dest).unwrap();
        assert_eq!(again.file().metadata().unwrap().len(), 0);
        again.discard();
        assert_eq!(std::fs::read_dir(&directory.path).unwrap().count(), 1);
    }

    #[test]
    fn too_little_space_is_told_beforehand() {
        let directory = Directory::new();
        let part = Part::open(key(), &directory.path.join("object")).unwrap();
        part.check_space(0).unwrap();
        assert!(matches!(
            part.check_space(u64::MAX),
            Err(TransferError::NoSpace { .. })
        ));
    }

    #[test]
    fn names_are_beside_the_destination() {
        assert_eq!(
            part_path(Path::new("/a/b")).unwrap(),
            Path::new("/a/.b.part")
        );
        assert_eq!(part_path(Path::new("b")).unwrap(), Path::new(".b.part"));
        assert_eq!(part_path(Path::new("/")), None);
        assert!(matches!(
            Part::open(key(), Path::new("/")),
            Err(TransferError::Invalid(_))
        ));
    }
}
