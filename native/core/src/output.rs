//! Files that appear whole or not at all.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

static SERIAL: AtomicU64 = AtomicU64::new(0);

/// A file that is written beside its final place and renamed to it by `commit`. Dropped without, it is removed. Who needs it to survive a power cut
/// calls `File::sync_data` before; a crash of the process alone never leaves a half-written file at the final place.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    part: PathBuf,
    committed: bool,
}

impl Output {
    /// Creates an empty file in the directory of `path`.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` if `path` has no file name.
    pub fn create(path: &Path) -> io::Result<Output> {
        let name = path.file_name().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: not a file's name", path.display()),
            )
        })?;
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mut part_name = std::ffi::OsString::from(".");
        part_name.push(name);
        part_name.push(format!(".{}-{serial}.part", std::process::id()));
        let part = path.with_file_name(part_name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&part)?;
        Ok(Output {
            file,
            path: path.to_owned(),
            part,
            committed: false,
        })
    }

    /// The open file, for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Has what was written so far go to the disk from now on, which takes none of the caller's time unless the disk's queue is full.
    pub fn begin_writeback(&self) {
        let fd = self.file.as_raw_fd();
        // SAFETY: the descriptor is open as long as `self`, and no memory is given.
        let begun = unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        // Not all filesystems do it. It is done later then, as without.
        let _ = begun;
    }

    /// Where it lies until it is committed.
    pub fn part(&self) -> &Path {
        &self.part
    }

    /// Gives the file its final name, replacing what had it.
    ///
    /// # Errors
    /// What the system says; the file is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        std::fs::rename(&self.part, &self.path)?;
        self.committed = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.committed {
            // Nothing can be done if even this fails; the name says that it is a part.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn committed_files_stay_and_others_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let mut output = Output::create(&path).unwrap();
        output.file.write_all(b"whole").unwrap();
        assert!(!path.exists());
        output.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        drop(Output::create(&path).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
