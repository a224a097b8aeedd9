//! Mounts of FUSE as `diffcached` has them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;

const DEVICE: &str = "/dev/fuse";
const KIND: &str = "fuse.diffcached";
const SOURCE: &str = "diffcached";

/// Open a connection to FUSE, for one mount.
///
/// # Errors
/// Of the device; the message names it.
pub fn open() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|error| named(DEVICE, error.into()))
}

fn named(path: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

/// Mount a connection at a folder, for those users of the host that owner, group and modes of its files admit. The kernel compares them.
///
/// # Errors
/// Of the call.
pub fn mount(folder: &Path, fuse: impl AsFd) -> io::Result<()> {
    let options = format!(
        "fd={},rootmode=40550,user_id=0,group_id=0,allow_other,default_permissions,max_read={}",
        fuse.as_fd().as_raw_fd(),
        1 << 20
    );
    let options = std::ffi::CString::new(options)?;
    // Not read-only: Nova sets the time of a base image that it uses. The worker refuses all other changes.
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(rustix::mount::mount(
        SOURCE,
        folder,
        KIND,
        flags,
        options.as_c_str(),
    )?)
}

/// Return the IDs of the mounts of `diffcached` in this mount namespace. Asks no file system, as one whose daemon hangs would not answer.
///
/// # Errors
/// Of /proc.
pub fn mounts() -> io::Result<Vec<u64>> {
    let path = "/proc/self/mountinfo";
    let text = fs::read_to_string(path).map_err(|error| named(path, error))?;
    Ok(text.lines().filter_map(own).collect())
}

/// Return the ID of a line of mountinfo (proc_pid_mountinfo(5)) if it is a mount of `diffcached`.
fn own(line: &str) -> Option<u64> {
    // Blanks in paths are escaped, and so is a name of a source.
    let (mount, system) = line.split_once(" - ")?;
    let mut words = system.split(' ');
    let is_own = words.next() == Some(KIND) && words.next() == Some(SOURCE);
    is_own.then(|| mount.split(' ').next()?.parse().ok())?
}

/// Return the ID of the mount that an open file is on, likewise.
///
/// # Errors
/// Of /proc.
pub fn mount_id(file: impl AsFd) -> io::Result<u64> {
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let text = fs::read_to_string(&path).map_err(|error| named(&path, error))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    id.and_then(|id| id.trim().parse().ok())
        .ok_or_else(|| io::Error::other(format!("{path} has no mnt_id")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_diffcached_are_found_in_mountinfo() {
        let line =
            |system: &str| format!("36 35 0:50 / /a\\040-\\040b rw,nosuid shared:9 - {system}");
        assert_eq!(
            own(&line("fuse.diffcached diffcached rw,user_id=0")),
            Some(36)
        );
        for system in [
            "fuse.diffcached other rw",
            "fuse.sshfs diffcached rw",
            "ext4 /dev/sda rw",
            "",
        ] {
            assert_eq!(own(&line(system)), None, "{system}");
        }
        assert_eq!(own("36 35 0:50 / /a rw"), None);
    }

    #[test]
    fn files_of_one_mount_have_its_id() {
        let proc = fs::File::open("/proc/self/status").unwrap();
        let other = fs::File::open("/proc/self/stat").unwrap();
        let root = fs::File::open("/").unwrap();
        assert_eq!(mount_id(&proc).unwrap(), mount_id(&other).unwrap());
        assert_ne!(mount_id(&proc).unwrap(), mount_id(&root).unwrap());
    }
}
