//! Sockets of this process.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::Mode;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that wait to be accepted, at most; no more than the system admits.
const BACKLOG: i32 = 4096;

/// Opens a socket that this user alone may connect to.
///
/// # Errors
/// The system refused.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    // What an earlier process left; the device's lock keeps others away.
    remove_socket(path)?;
    let socket = net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Linux gives the file that is bound the permissions of the socket. A umask would be that of
    // all threads, others of which may listen, too.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
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
    fn many_listen_at_once_for_this_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let created = |name| {
            let path = folder.path().join(name);
            std::fs::write(&path, b"").unwrap();
            std::fs::metadata(&path).unwrap().mode()
        };
        let before = created("before");
        let modes = std::thread::scope(|scope| {
            let listen = |number| {
                let path = folder.path().join(format!("{number}"));
                let _own = listen(&path).unwrap();
                std::fs::symlink_metadata(&path).unwrap().mode() & 0o777
            };
            let threads: Vec<_> = (0..100).map(|n| scope.spawn(move || listen(n))).collect();
            let modes = threads.into_iter().map(|thread| thread.join().unwrap());
            modes.collect::<std::collections::HashSet<_>>()
        });
        assert_eq!(std::collections::HashSet::from([0o600]), modes);
        assert_eq!(before, created("after"));
    }

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
