//! Files that appear whole or not at all, and directories whose entries survive a power cut.

use std::collections::hash_map::RandomState;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::io;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{linkat, AtFlags, CWD};

/// Most bytes of the final name that the name of the unfinished file repeats: a name has 255 at most.
const NAME_BYTES: usize = 200;
/// Names that are tried. One is enough unless another program guesses them.
const TRIES: u32 = 64;

/// A file without a name that is written on the filesystem of its final place, and gets its name by `commit`. Where the filesystem knows no such files
/// it has another name meanwhile, beside its final place. Dropped without, it is removed. A crash of the process never leaves a half-written file at the
/// final place; where a power cut must not either, [`Output::commit_durably`] does it.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    /// Its name until it is committed, if it has one.
    part: Option<PathBuf>,
}

impl Output {
    /// Creates an empty file on the filesystem of `path`, which no other program finds.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` if `path` has no file name or is a device, a socket or a pipe, which a rename would replace.
    pub fn create(path: &Path) -> io::Result<Output> {
        refuse_special(path)?;
        match Output::nameless(path) {
            Ok(output) => Ok(output),
            // Filesystems and kernels report in several ways that they cannot; any other failure shows in the next attempt.
            Err(_) => Output::beside(path),
        }
    }

    fn nameless(path: &Path) -> io::Result<Output> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_TMPFILE)
            .open(directory_of(path))?;
        // It gets its name by way of this directory.
        std::fs::metadata(by_descriptor(&file))?;
        Ok(Output {
            file,
            path: path.to_owned(),
            part: None,
        })
    }

    fn beside(path: &Path) -> io::Result<Output> {
        let (part, file) = with_new_name(path, |part| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create_new(true)
                .open(part)
        })?;
        Ok(Output {
            file,
            path: path.to_owned(),
            part: Some(part),
        })
    }

    /// Returns the open file, for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Starts writing back what was written so far, which takes none of the caller's time unless the disk's queue is full.
    pub fn begin_writeback(&self) {
        let fd = self.file.as_raw_fd();
        // SAFETY: the descriptor is open as long as `self`, and no memory is given.
        let begun = unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        // Not all filesystems do it. It is done later then, as without.
        let _ = begun;
    }

    /// Returns the path by which this process can open it until it is committed.
    pub fn part(&self) -> PathBuf {
        match &self.part {
            Some(part) => part.clone(),
            None => by_descriptor(&self.file),
        }
    }

    /// Gives the file its final name, replacing what had it.
    ///
    /// # Errors
    /// What the system says; the file is removed then.
    pub fn commit(mut self) -> io::Result<()> {
        close(self.file.try_clone()?)?;
        // A name that is taken cannot be replaced by a link, only by another name.
        let part = match self.part.take() {
            Some(part) => part,
            None => self.link()?,
        };
        let part = self.part.insert(part);
        std::fs::rename(part, &self.path)?;
        self.part = None;
        Ok(())
    }

    /// Does what `commit` does, so that it survives a power cut.
    ///
    /// # Errors
    /// As `commit`; if only the directory cannot be flushed, the file has its final name.
    pub fn commit_durably(self) -> io::Result<()> {
        self.file.sync_all()?;
        let path = self.path.clone();
        self.commit()?;
        sync_parent(&path)
    }

    fn link(&self) -> io::Result<PathBuf> {
        let from = by_descriptor(&self.file);
        let link = |to: &Path| Ok(linkat(CWD, &from, CWD, to, AtFlags::SYMLINK_FOLLOW)?);
        Ok(with_new_name(&self.path, link)?.0)
    }
}

/// Replaces a file, or creates it, by one with the bytes that `write` writes: after a power cut it is the former file or the new one.
///
/// # Errors
/// Those of `write`, `Output::create` and `Output::commit_durably`.
pub fn replace_durably(
    path: &Path,
    write: impl FnOnce(&mut &File) -> io::Result<()>,
) -> io::Result<()> {
    let output = Output::create(path)?;
    write(&mut output.file())?;
    output.commit_durably()
}

/// Flushes the directory of a file, so that the file's name, or its absence, survives a power cut.
///
/// # Errors
/// What the system says.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

/// Returns the directory of a file, which is the working directory for a name alone.
pub fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(part) = &self.part {
            // There is no remedy if even this fails; the name says that it is a part.
            let _ = std::fs::remove_file(part);
        }
    }
}

fn by_descriptor(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Creates a file under a name beside `path` that no other file has.
fn with_new_name<T>(
    path: &Path,
    make: impl Fn(&Path) -> io::Result<T>,
) -> io::Result<(PathBuf, T)> {
    let chance = RandomState::new();
    let mut tried = 0;
    loop {
        let part = part_path(path, &chance, tried)?;
        match make(&part) {
            Ok(made) => return Ok((part, made)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => {
                tried += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

fn part_path(path: &Path, chance: &RandomState, number: u32) -> io::Result<PathBuf> {
    let name = path.file_name().ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: not a file's name", path.display()),
        )
    })?;
    let name = &name.as_bytes()[..name.len().min(NAME_BYTES)];
    let mut part = OsString::from(".");
    part.push(OsStr::from_bytes(name));
    part.push(format!(".{:016x}.part", chance.hash_one(number)));
    Ok(path.with_file_name(part))
}

/// Fails if a rename to `path` would replace anything but a file.
fn refuse_special(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(found) if !found.is_file() => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is no regular file, and would be replaced by one; name another output",
        )),
        // Any other failure shows when the file is created.
        _ => Ok(()),
    }
}

/// Closes a file. Only now do network filesystems report data that did not arrive; any descriptor of the file serves for that.
fn close(file: File) -> io::Result<()> {
    // SAFETY: the descriptor was open and owned by `file` alone.
    match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

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

    #[test]
    fn a_file_is_replaced_or_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state");
        for text in ["first", "second"] {
            replace_durably(&path, |file| file.write_all(text.as_bytes())).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        let failed = replace_durably(&path, |file| {
            file.write_all(b"third")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_name_alone_is_in_the_working_directory() {
        assert_eq!(directory_of(Path::new("a")), Path::new("."));
        assert_eq!(directory_of(Path::new("a/b")), Path::new("a"));
        assert_eq!(directory_of(Path::new("/a")), Path::new("/"));
    }

    #[test]
    fn two_outputs_of_one_name_are_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let outputs: Vec<Output> = (0..8).map(|_| Output::create(&path).unwrap()).collect();
        for (output, text) in outputs.iter().zip(b'a'..) {
            output.file().write_all_at(&[text; 9], 0).unwrap();
        }
        for (output, text) in outputs.into_iter().zip(b'a'..) {
            output.commit().unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), [text; 9]);
        }
    }

    #[test]
    fn a_killed_process_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let output = Output::create(&path).unwrap();
        output.file().write_all_at(b"whole", 0).unwrap();
        // A file without a name is freed with the last process that has it open.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(std::fs::read(output.part()).unwrap(), b"whole");
        output.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn without_nameless_files_a_part_lies_beside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let output = Output::beside(&path).unwrap();
        output.file().write_all_at(b"whole", 0).unwrap();
        assert_eq!(std::fs::read(output.part()).unwrap(), b"whole");
        drop(Output::beside(&path).unwrap());
        output.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_another_program_left_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        // Processes in containers have the same numbers, and so had their files.
        for serial in 0..4096 {
            let name = format!(".image.{}-{serial}.part", std::process::id());
            std::fs::write(dir.path().join(name), b"another's").unwrap();
        }
        for make in [Output::create, Output::beside] {
            let output = make(&path).unwrap();
            output.file().write_all_at(b"ours", 0).unwrap();
            output.commit().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        for left in std::fs::read_dir(dir.path()).unwrap() {
            assert_eq!(std::fs::read(left.unwrap().path()).unwrap(), b"another's");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4096);
    }

    #[test]
    fn the_longest_name_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("n".repeat(255));
        Output::create(&path).unwrap().commit().unwrap();
        assert!(path.exists());
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        assert_eq!(
            Output::create(&path).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            Output::create(dir.path()).unwrap_err().kind(),
            io::ErrorKind::IsADirectory
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
