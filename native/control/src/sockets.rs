//! Sockets of this process.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Opens a socket that this user alone may connect to.
///
/// # Errors
/// The system refused.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    // What an earlier process left; the device's lock keeps others away.
    remove_socket(path)?;
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener
}

/// Removes a socket, if it is there.
///
/// # Errors
/// The system refused.
pub fn remove_socket(path: &Path) -> io::Result<()> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Opens a socket that members of a group may connect to, too, if one is given.
///
/// # Errors
/// The system refused.
pub fn listen_for_group(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    let listener = listen(path)?;
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o660))?;
    }
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_group_may_connect_to_the_exports_if_one_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd");
        let mode = || std::fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        let _own = listen_for_group(&path, None).unwrap();
        assert_eq!(0o600, mode());
        let group = std::fs::metadata(folder.path()).unwrap().gid();
        let _shared = listen_for_group(&path, Some(group)).unwrap();
        assert_eq!(0o660, mode());
    }
}
