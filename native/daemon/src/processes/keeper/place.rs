//! The folder to mount at, and the lock of the state folder.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::error::DaemonError;
use crate::processes::mounts::{Mounts, Unmounted};
use crate::processes::status;

/// How long a worker may take to end when it is asked to.
pub(super) const DRAIN: Duration = Duration::from_secs(10);

/// How long the mount of a daemon that died may be seen.
const MOUNT_END: Duration = Duration::from_secs(2);
/// From linux/magic.h.
const FUSE_MAGIC: rustix::fs::FsWord = 0x6573_5546;

/// A mounted directory, unmounted when dropped.
pub(super) struct Mount<'a>(pub(super) &'a Path, pub(super) Mounts);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        // It may be unmounted already, by the service that started this keeper.
        if let Err(error) = self.1.detach(self.0) {
            log::warn!("Left {} mounted: {error}", self.0.display());
        }
    }
}

/// Return whether a keeper, or a worker that it has left, uses a state folder.
///
/// # Errors
/// If that cannot be seen.
pub fn is_locked(state: &Path) -> io::Result<bool> {
    let file = match File::open(state.join("lock")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    // Freed again when the file is closed.
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(false),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Create the state folder and refuse a second daemon on it.
pub(super) fn lock_state(state: &Path) -> Result<File, DaemonError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(state);
    made.map_err(DaemonError::at("create", state))?;
    let path = state.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = options
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path);
    let file = file.map_err(DaemonError::at("open", &path))?;
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(DaemonError::at("lock", &path)(error)),
        }
        // The worker of a keeper that was killed ends by itself.
        if status::is_answered(state) || start.elapsed() > DRAIN {
            return Err(DaemonError::Config(format!(
                "another diffcached uses {}: stop it first or give another --state",
                state.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Check the folder to mount at, and free it from the mounts of daemons that died.
pub(super) fn prepare_mount(path: &Path, mounts: &Mounts) -> Result<(), DaemonError> {
    let start = Instant::now();
    loop {
        let found = match fs::symlink_metadata(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => {
                if mounts.detach(path)? == Unmounted::Done {
                    log::info!("Unmounted {}, left by a daemon that died", path.display());
                }
                None
            }
            found => Some(found.map_err(DaemonError::at("mount at", path))?),
        };
        if found.as_ref().is_some_and(|found| !found.is_dir()) {
            let reason = io::Error::from_raw_os_error(libc::ENOTDIR);
            return Err(DaemonError::at("mount at", path)(reason));
        }
        if found.is_some() && !is_fuse_mount(path).map_err(DaemonError::at("mount at", path))? {
            return Ok(());
        }
        // The end of a daemon's mount is seen a moment after its lock is free.
        if start.elapsed() > MOUNT_END {
            return Err(DaemonError::Config(format!(
                "a FUSE file system is mounted at {}: unmount it or give another --mount",
                path.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Return whether a folder is the root of a mounted FUSE file system.
fn is_fuse_mount(path: &Path) -> io::Result<bool> {
    let folder = File::open(path);
    let folder = match folder {
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => return Ok(true),
        folder => folder?,
    };
    let flags = rustix::fs::AtFlags::EMPTY_PATH;
    let found = rustix::fs::statx(&folder, c"", flags, rustix::fs::StatxFlags::TYPE)?;
    let is_root = found
        .stx_attributes
        .contains(rustix::fs::StatxAttributes::MOUNT_ROOT);
    Ok(is_root && rustix::fs::fstatfs(&folder)?.f_type == FUSE_MAGIC)
}
