//! The folders, the lock and the socket of the service.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use crate::error::DaemonError;

pub(super) fn create_folder(path: &Path, mode: u32) -> Result<(), DaemonError> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(path);
    created.map_err(DaemonError::at("create", path))
}

pub(super) fn lock_state(state: &Path) -> Result<File, DaemonError> {
    let path = state.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    // A user who can open it can lock it, and keep this service from starting.
    let file = options
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path);
    let file = file.map_err(DaemonError::at("open", &path))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DaemonError::Config(format!(
            "another diffcached uses {}",
            state.display()
        ))),
        Err(error) => Err(DaemonError::at("lock", &path)(error)),
    }
}

/// Listen under a name that appears with its mode and group.
pub(super) fn listen(path: &Path, group: Option<u32>) -> Result<UnixListener, DaemonError> {
    let at = |action| DaemonError::at(action, path);
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("replace")(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh).map_err(at("listen at"))?;
    let mode = |mode| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode));
    mode(0o600).map_err(at("hand over"))?;
    if let Some(group) = group {
        std::os::unix::fs::chown(&fresh, None, Some(group)).map_err(at("hand over"))?;
        mode(0o660).map_err(at("hand over"))?;
    }
    fs::rename(&fresh, path).map_err(at("listen at"))?;
    Ok(listener)
}
