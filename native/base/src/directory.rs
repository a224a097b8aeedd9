//! Opening files below a directory whose subdirectories other users may change, without following a symbolic link.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{openat, openat2, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens `path` below `directory`. No component of it, the last one included, is followed if it is a symbolic link.
///
/// # Errors
/// `InvalidInput` if `path` is not made of names alone; ELOOP or ENOTDIR if one of them is a symbolic link; else what the system says.
pub fn open_beneath(
    directory: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let names = names_of(path)?;
    match openat2(directory, path, flags, mode, resolve) {
        // Kernels before 5.6 lack it, and filters of system calls answer for it in two ways.
        Err(Errno::NOSYS | Errno::PERM) => walk(directory, &names, flags, mode),
        // A name was changed elsewhere in the tree meanwhile.
        Err(Errno::AGAIN) => walk(directory, &names, flags, mode),
        opened => Ok(opened?),
    }
}

/// The names that a path consists of.
fn names_of(path: &Path) -> io::Result<Vec<&Path>> {
    let names = path.components().map(|part| match part {
        Component::Normal(name) => Some(Path::new(name)),
        _ => None,
    });
    names
        .collect::<Option<Vec<_>>>()
        .filter(|names| !names.is_empty())
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the path has to consist of names, without . and ..",
            )
        })
}

/// The same, one component at a time.
fn walk(
    directory: BorrowedFd<'_>,
    names: &[&Path],
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut reached: Option<OwnedFd> = None;
    for (at, name) in names.iter().enumerate() {
        let from = reached.as_ref().map_or(directory, AsFd::as_fd);
        let last = at + 1 == names.len();
        let opened = match last {
            true => openat(from, *name, flags, mode)?,
            false => openat(from, *name, through, Mode::empty())?,
        };
        reached = Some(opened);
    }
    reached.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    type Open = fn(BorrowedFd<'_>, &Path, OFlags, Mode) -> io::Result<OwnedFd>;

    fn walked(
        directory: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> io::Result<OwnedFd> {
        walk(directory, &names_of(path)?, flags | OFlags::NOFOLLOW, mode)
    }

    /// With the system call, and as on kernels without it.
    const WAYS: [Open; 2] = [open_beneath, walked];

    fn tree() -> (tempfile::TempDir, File) {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        fs::create_dir(outside.path().join("etc")).unwrap();
        fs::write(outside.path().join("etc/file"), "outside").unwrap();
        symlink("../../etc", root.join("a/link")).unwrap();
        symlink("b/file", root.join("a/last")).unwrap();
        let opened = File::open(&root).unwrap();
        (outside, opened)
    }

    #[test]
    fn files_below_are_opened_and_created() {
        for open in WAYS {
            let (_tree, root) = tree();
            let path = Path::new("a/b/file");
            open(root.as_fd(), path, OFlags::RDONLY, Mode::empty()).unwrap();
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let new = Path::new("a/b/new");
            open(root.as_fd(), new, flags, Mode::RUSR | Mode::WUSR).unwrap();
            let again = open(root.as_fd(), new, flags, Mode::RUSR).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        }
    }

    #[test]
    fn no_link_is_followed() {
        for open in WAYS {
            let (_tree, root) = tree();
            for path in ["a/link/file", "a/last"] {
                let flags = OFlags::RDWR | OFlags::CREATE;
                let error = open(root.as_fd(), Path::new(path), flags, Mode::RUSR).unwrap_err();
                let links = [Errno::LOOP, Errno::NOTDIR].map(|errno| Some(errno.raw_os_error()));
                assert!(links.contains(&error.raw_os_error()), "{path}: {error}");
            }
        }
    }

    #[test]
    fn other_components_than_names_are_refused() {
        for open in WAYS {
            let (_tree, root) = tree();
            for path in [
                "",
                ".",
                "..",
                "../etc/file",
                "/etc/passwd",
                "a/../../etc/file",
            ] {
                let error = open(root.as_fd(), Path::new(path), OFlags::RDONLY, Mode::empty());
                assert_eq!(
                    error.unwrap_err().kind(),
                    io::ErrorKind::InvalidInput,
                    "{path}"
                );
            }
        }
    }
}
