//! How a process mounts and unmounts: by its own rights, or through the mounter.
//!
//! The supervisor names the mounter to its keepers in their environment, not in the configuration of an image: it depends on the rights that a process was
//! started with. So a keeper that was started with the capability uses it to its end, also as another program.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use diffcache_base::locks;
use diffcache_mounter::client;
use diffcache_mounter::fuse;
use diffcache_mounter::protocol::{Answer, ContentId, Outcome, Request, Verb};
use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::error::DaemonError;

/// Variable of the environment with the path of the mounter's socket.
const VARIABLE: &str = "DIFFCACHE_MOUNTER";

/// How a process mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounts {
    /// By itself.
    Own,
    /// Through the mounter at this socket.
    Mounter(PathBuf),
}

/// How unmounting ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It is not mounted any more.
    Done,
    /// A process uses it.
    Busy,
    /// It was not mounted.
    Absent,
}

impl Mounts {
    /// Return how this process mounts, as the one that started it said.
    pub fn of_process() -> Mounts {
        Mounts::new(std::env::var_os(VARIABLE).map(PathBuf::from))
    }

    /// Mount through the mounter at a socket, if there is one.
    pub fn new(mounter: Option<PathBuf>) -> Mounts {
        mounter.map_or(Mounts::Own, Mounts::Mounter)
    }

    /// Have a process that is to be started mount likewise.
    pub fn hand_over<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match self {
            Mounts::Own => command.env_remove(VARIABLE),
            Mounts::Mounter(socket) => command.env(VARIABLE, socket),
        }
    }

    /// Check that the mounter can be reached, if there is one.
    ///
    /// # Errors
    /// `Mounter`.
    pub fn check(&self) -> Result<(), DaemonError> {
        locks::begin("look for the mounter");
        match self {
            Mounts::Own => Ok(()),
            Mounts::Mounter(socket) => {
                client::check(socket).map_err(|error| DaemonError::Mounter(error.to_string()))
            }
        }
    }

    /// Mount a new FUSE file system at a folder, and return its descriptor.
    ///
    /// # Errors
    /// `Path` or `Mounter`.
    pub fn mount(&self, folder: &Path) -> Result<OwnedFd, DaemonError> {
        let at = |error: io::Error| DaemonError::at("mount at", folder)(error);
        match self {
            Mounts::Own => {
                let fuse = fuse::open().map_err(at)?;
                fuse::mount(folder, &fuse).map_err(at)?;
                Ok(fuse)
            }
            Mounts::Mounter(socket) => {
                let (answer, fuse) = ask(socket, Verb::Mount, folder)?;
                let fuse = fuse.ok_or_else(|| failed(Verb::Mount, folder, &answer.text))?;
                if is_mounted(folder).map_err(at)? {
                    return Ok(fuse);
                }
                self.detach(folder)?;
                let reason = "other processes do not see what the mounter mounts: \
                              let diffcache-lazy-mount.service have no mount namespace of its own";
                Err(failed(Verb::Mount, folder, reason))
            }
        }
    }

    /// Unmount a folder, unless a process uses what is mounted there. The kernel looks for one in all mount namespaces.
    ///
    /// # Errors
    /// `Path` or `Mounter`.
    pub fn unmount(&self, folder: &Path) -> Result<Unmounted, DaemonError> {
        self.end(Verb::Unmount, folder)
    }

    /// Unmount a folder for new readers. Those that have the file open keep it.
    ///
    /// # Errors
    /// `Path` or `Mounter`.
    pub fn detach(&self, folder: &Path) -> Result<Unmounted, DaemonError> {
        self.end(Verb::Detach, folder)
    }

    fn end(&self, verb: Verb, folder: &Path) -> Result<Unmounted, DaemonError> {
        locks::begin("unmount an image");
        match self {
            Mounts::Own => unmount(verb, folder),
            Mounts::Mounter(socket) => {
                let (answer, _) = ask(socket, verb, folder)?;
                match answer.outcome {
                    Outcome::Done => Ok(Unmounted::Done),
                    Outcome::Busy => Ok(Unmounted::Busy),
                    Outcome::Absent => Ok(Unmounted::Absent),
                    Outcome::Failed => Err(failed(verb, folder, &answer.text)),
                }
            }
        }
    }
}

fn unmount(verb: Verb, folder: &Path) -> Result<Unmounted, DaemonError> {
    let how = match verb {
        Verb::Detach => UnmountFlags::DETACH,
        Verb::Unmount | Verb::Mount => UnmountFlags::empty(),
    };
    match rustix::mount::unmount(folder, how | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Unmounted::Done),
        Err(rustix::io::Errno::BUSY) => Ok(Unmounted::Busy),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => Ok(Unmounted::Absent),
        Err(error) => Err(DaemonError::at("unmount", folder)(error)),
    }
}

/// Return whether a folder is a mount of `diffcached`, without a request to that.
fn is_mounted(folder: &Path) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    Ok(fuse::mounts()?.contains(&fuse::mount_id(&folder)?))
}

fn failed(verb: Verb, folder: &Path, reason: &str) -> DaemonError {
    DaemonError::Mounter(format!("cannot {verb} {}: {reason}", folder.display()))
}

/// Have the mounter do something with a folder, which has to be one of those that it has.
fn ask(socket: &Path, verb: Verb, folder: &Path) -> Result<(Answer, Option<OwnedFd>), DaemonError> {
    let id = folder.file_name().and_then(|name| name.to_str());
    let id = id.and_then(ContentId::parse).ok_or_else(|| {
        failed(
            verb,
            folder,
            "its name is no content ID, as the mounter needs",
        )
    })?;
    let found = client::ask(socket, &Request { verb, id });
    let (answer, fuse) = found.map_err(|error| failed(verb, folder, &error.to_string()))?;
    if answer.outcome == Outcome::Done && Path::new(&answer.text) != folder {
        let reason = format!(
            "the mounter has {}: give [lazy] mount and diffcache-lazy-mount.service the same folder",
            answer.text
        );
        return Err(failed(verb, folder, &reason));
    }
    Ok((answer, fuse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_are_started_mount_likewise() {
        for mounts in [Mounts::Own, Mounts::Mounter("/run/a socket".into())] {
            let mut command = Command::new("true");
            mounts.hand_over(&mut command);
            let found = command.get_envs().find(|(name, _)| *name == VARIABLE);
            let socket = found.and_then(|(_, value)| value).map(PathBuf::from);
            assert_eq!(Mounts::new(socket), mounts);
        }
    }

    #[test]
    fn a_mounter_that_is_away_is_named_with_the_next_step() {
        let mounts = Mounts::Mounter("/absent/mounter".into());
        let folder = Path::new("/m").join("0a".repeat(32));
        for text in [
            mounts.check().unwrap_err().to_string(),
            mounts.mount(&folder).unwrap_err().to_string(),
            mounts.detach(&folder).unwrap_err().to_string(),
        ] {
            assert!(text.contains("/absent/mounter"), "{text}");
            assert!(text.contains("start diffcache-lazy-mount.socket"), "{text}");
        }
    }

    #[test]
    fn the_mounter_is_not_asked_for_a_folder_that_is_no_content_id() {
        let mounts = Mounts::Mounter("/absent/mounter".into());
        let text = mounts.mount(Path::new("/m/etc")).unwrap_err().to_string();
        assert!(text.contains("cannot mount /m/etc"), "{text}");
        assert!(text.contains("no content ID"), "{text}");
    }
}
