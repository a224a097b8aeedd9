//! The mounter itself: one thread, which carries out one request after another.
//!
//! Whatever a client sends is hostile. It names an image, never a path. Folders are opened without following a link and held while they are mounted at; they
//! have to belong to the client. No call here asks a mounted file system, which is the client's and may never answer.

use std::fmt;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use rustix::net::sockopt::{socket_acceptconn, socket_peercred, socket_type};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, UCred,
};

use crate::fuse;
use crate::protocol::{Answer, Outcome, Request, Verb};

/// What clients may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Mounts of `diffcached` in the namespace at most.
    pub mounts: usize,
    /// Connections at a time; further ones wait.
    pub connections: usize,
    /// Until a connection sends its request.
    pub request: Duration,
    /// Without a connection, until the process ends. systemd starts it again.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            mounts: 1024,
            connections: 32,
            request: Duration::from_secs(2),
            idle: Duration::from_secs(60),
        }
    }
}

/// How folders are opened: to be named by the descriptor, without a request to their file system, and not through a link.
const FOLDER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Longer than any request, so that one that is too long is seen to be.
const REQUEST_LEN: usize = 128;

/// A client that has not sent its request.
struct Waiting {
    connection: OwnedFd,
    until: Instant,
}

/// Why a request is not carried out.
struct Refusal(Outcome, String);

impl Refusal {
    fn failed(text: impl fmt::Display) -> Refusal {
        Refusal(Outcome::Failed, text.to_string())
    }
}

/// Serves clients of one folder.
pub struct Mounter<'a> {
    folder: &'a Path,
    limits: Limits,
}

/// Answer the clients of a listening socket until none came for `limits.idle`.
///
/// # Errors
/// If the socket is none that can be used, or /proc cannot be read.
pub fn serve(listener: BorrowedFd<'_>, folder: &Path, limits: Limits) -> io::Result<()> {
    let is_usable = socket_acceptconn(listener) == Ok(true)
        && socket_type(listener) == Ok(SocketType::SEQPACKET);
    if !is_usable {
        let reason = "standard input is no listening socket of type SEQPACKET: \
                      start the mounter through diffcache-lazy-mount.socket";
        return Err(io::Error::other(reason));
    }
    if !folder.is_absolute() {
        let reason = format!("{} is no absolute path", folder.display());
        return Err(io::Error::other(reason));
    }
    Mounter { folder, limits }.run(listener)
}

impl Mounter<'_> {
    fn run(&self, listener: BorrowedFd<'_>) -> io::Result<()> {
        let mut clients: Vec<Waiting> = Vec::new();
        let mut idle_until = Instant::now() + self.limits.idle;
        loop {
            let ready = self.wait(listener, &clients, idle_until)?;
            let now = Instant::now();
            let is_idle = clients.is_empty() && !ready.listener;
            if is_idle && now >= idle_until {
                return Ok(());
            }
            if !is_idle {
                idle_until = now + self.limits.idle;
            }
            let mut ready_clients = ready.clients.into_iter();
            clients.retain(|client| match ready_clients.next() {
                Some(true) => {
                    self.serve_client(&client.connection);
                    false
                }
                _ => now < client.until,
            });
            if ready.listener {
                clients.extend(self.accept(listener)?);
            }
        }
    }

    /// Wait for a client to do something, or for a time to come.
    fn wait(
        &self,
        listener: BorrowedFd<'_>,
        clients: &[Waiting],
        idle_until: Instant,
    ) -> io::Result<Ready> {
        let until = clients.iter().map(|client| client.until).min();
        let time = until
            .unwrap_or(idle_until)
            .saturating_duration_since(Instant::now());
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        let has_room = clients.len() < self.limits.connections;
        let connections = clients.iter().map(|client| client.connection.as_fd());
        let polled = connections.chain(has_room.then_some(listener));
        let mut polled: Vec<_> = polled
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match rustix::event::poll(&mut polled, Some(&time)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut found = polled.iter().map(|fd| !fd.revents().is_empty());
        Ok(Ready {
            clients: found.by_ref().take(clients.len()).collect(),
            listener: found.next().unwrap_or(false),
        })
    }

    fn accept(&self, listener: BorrowedFd<'_>) -> io::Result<Option<Waiting>> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        match rustix::net::accept_with(listener, flags) {
            Ok(connection) => Ok(Some(Waiting {
                connection,
                until: Instant::now() + self.limits.request,
            })),
            // The client has gone.
            Err(Errno::CONNABORTED | Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Carry out the request of a connection and answer it. What a client does wrong concerns its own connection only.
    fn serve_client(&self, connection: &OwnedFd) {
        let mut message = [0; REQUEST_LEN];
        let len = match rustix::net::recv(connection, &mut message, RecvFlags::empty()) {
            Ok((_, 0)) | Err(_) => return,
            Ok((_, len)) => len.min(REQUEST_LEN),
        };
        let Ok(peer) = socket_peercred(connection) else {
            return;
        };
        let request = Request::parse(&message[..len]);
        let carried_out = match &request {
            Some(request) => self.carry_out(request, &peer),
            None => Err(Refusal::failed("that is no request")),
        };
        let named = request
            .as_ref()
            .map_or("a request".to_owned(), Request::to_string);
        let (answer, fuse) = match carried_out {
            Ok((answer, fuse)) => {
                log::info!("{named}: done for process {}", peer.pid.as_raw_nonzero());
                (answer, fuse)
            }
            Err(Refusal(outcome, text)) => {
                if outcome == Outcome::Failed {
                    let pid = peer.pid.as_raw_nonzero();
                    let uid = peer.uid.as_raw();
                    log::warn!("{named}: refused to process {pid} of user {uid}: {text}");
                }
                (Answer { outcome, text }, None)
            }
        };
        let sent = send(connection, &answer, fuse.as_ref());
        if let (Err(error), Some(request), Some(_)) = (sent, &request, fuse) {
            log::warn!("{named}: undone, the client does not take it: {error}");
            let undone = self.unmount(request, &peer, UnmountFlags::DETACH);
            if let Err(Refusal(_, text)) = undone {
                log::error!("{named}: could not undo it: {text}");
            }
        }
    }

    fn carry_out(
        &self,
        request: &Request,
        peer: &UCred,
    ) -> Result<(Answer, Option<OwnedFd>), Refusal> {
        let fuse = match request.verb {
            Verb::Mount => Some(self.mount(request, peer)?),
            Verb::Unmount => self
                .unmount(request, peer, UnmountFlags::empty())
                .map(|()| None)?,
            Verb::Detach => self
                .unmount(request, peer, UnmountFlags::DETACH)
                .map(|()| None)?,
        };
        let answer = Answer {
            outcome: Outcome::Done,
            text: self.path(request).display().to_string(),
        };
        Ok((answer, fuse))
    }

    fn path(&self, request: &Request) -> PathBuf {
        self.folder.join(request.id.as_str())
    }

    fn mount(&self, request: &Request, peer: &UCred) -> Result<OwnedFd, Refusal> {
        let folder = self.open_folder(peer)?;
        let path = self.path(request);
        let place = open_below(&folder, request).map_err(|error| refuse_path(&path, error))?;
        if !is_same_mount(&place, &folder)? {
            let path = path.display();
            return Err(Refusal::failed(format!(
                "a file system is mounted at {path}: unmount it first"
            )));
        }
        check_owner(&place, &path, peer)?;
        let mounts = fuse::mounts().map_err(Refusal::failed)?;
        if mounts.len() >= self.limits.mounts {
            return Err(Refusal::failed(format!(
                "{} images are mounted, the most that may be: have some removed, or raise the number in \
                 diffcache-lazy-mount.service",
                mounts.len()
            )));
        }
        let fuse = fuse::open().map_err(Refusal::failed)?;
        // By the descriptor: the name may be another folder's by now.
        let held = PathBuf::from(format!("/proc/self/fd/{}", place.as_raw_fd()));
        fuse::mount(&held, &fuse).map_err(|error| refuse_path(&path, error))?;
        Ok(fuse)
    }

    fn unmount(&self, request: &Request, peer: &UCred, how: UnmountFlags) -> Result<(), Refusal> {
        let folder = self.open_folder(peer)?;
        let path = self.path(request);
        let absent = || {
            Refusal(
                Outcome::Absent,
                format!("{} is not mounted", path.display()),
            )
        };
        let place = match open_below(&folder, request) {
            Err(Errno::NOENT) => return Err(absent()),
            found => found.map_err(|error| refuse_path(&path, error))?,
        };
        if is_same_mount(&place, &folder)? {
            return Err(absent());
        }
        let mount = fuse::mount_id(&place).map_err(Refusal::failed)?;
        if !fuse::mounts().map_err(Refusal::failed)?.contains(&mount) {
            let path = path.display();
            return Err(Refusal::failed(format!(
                "what is mounted at {path} is not of diffcached"
            )));
        }
        // Held, it would be busy.
        drop(place);
        let held = format!(
            "/proc/self/fd/{}/{}",
            folder.as_raw_fd(),
            request.id.as_str()
        );
        match rustix::mount::unmount(held, how | UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(Refusal(
                Outcome::Busy,
                format!("{} is in use", path.display()),
            )),
            Err(error) => Err(refuse_path(&path, error)),
        }
    }

    /// Open the folder of all mounts for a client that owns it.
    fn open_folder(&self, peer: &UCred) -> Result<OwnedFd, Refusal> {
        let folder = open_path(self.folder).map_err(|error| refuse_path(self.folder, error))?;
        check_owner(&folder, self.folder, peer)?;
        Ok(folder)
    }
}

/// What can be read from.
struct Ready {
    clients: Vec<bool>,
    listener: bool,
}

/// Open a folder by its absolute path, one component after another: `openat2` could do it at once, which systemd's `RestrictSUIDSGID` does not permit.
fn open_path(path: &Path) -> Result<OwnedFd, Errno> {
    let root = rustix::fs::open("/", FOLDER, Mode::empty())?;
    path.components()
        .try_fold(root, |folder, component| match component {
            Component::RootDir => Ok(folder),
            Component::Normal(name) => rustix::fs::openat(&folder, name, FOLDER, Mode::empty()),
            _ => Err(Errno::INVAL),
        })
}

/// Open the folder of an image, whose name is one component.
fn open_below(folder: &OwnedFd, request: &Request) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, request.id.as_str(), FOLDER, Mode::empty())
}

fn is_same_mount(place: &OwnedFd, folder: &OwnedFd) -> Result<bool, Refusal> {
    let id = |fd| fuse::mount_id(fd).map_err(Refusal::failed);
    Ok(id(place)? == id(folder)?)
}

fn check_owner(file: &OwnedFd, path: &Path, peer: &UCred) -> Result<(), Refusal> {
    let found = rustix::fs::fstat(file).map_err(|error| refuse_path(path, error))?;
    if found.st_uid != peer.uid.as_raw() {
        return Err(Refusal::failed(format!(
            "{} belongs to user {}, not to user {}",
            path.display(),
            found.st_uid,
            peer.uid.as_raw()
        )));
    }
    Ok(())
}

fn refuse_path(path: &Path, error: impl Into<io::Error>) -> Refusal {
    let (path, error) = (path.display(), error.into());
    Refusal::failed(match Errno::from_io_error(&error) {
        Some(Errno::NOTDIR) => {
            format!("{path} is no directory, or a link, or below one: links are not followed")
        }
        _ => format!("{path}: {error}"),
    })
}

fn send(connection: &OwnedFd, answer: &Answer, fuse: Option<&OwnedFd>) -> Result<(), Errno> {
    let text = answer.encode();
    let descriptors: Vec<_> = fuse.iter().map(|fuse| fuse.as_fd()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(connection, &[IoSlice::new(&text)], &mut control, flags).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::net::{AddressFamily, SocketAddrUnix};

    use super::*;
    use crate::client;
    use crate::protocol::ContentId;

    const LIMITS: Limits = Limits {
        mounts: 8,
        connections: 2,
        request: Duration::from_millis(50),
        idle: Duration::from_millis(300),
    };

    fn listen(socket: &Path, kind: SocketType) -> OwnedFd {
        let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .unwrap();
        rustix::net::bind(&fd, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        rustix::net::listen(&fd, 16).unwrap();
        fd
    }

    /// Ask a mounter of a folder, which ends when it is idle.
    fn ask(prepare: impl FnOnce(&Path), verb: Verb) -> Answer {
        let here = tempfile::tempdir().unwrap();
        let (socket, folder) = (here.path().join("socket"), here.path().join("mount"));
        fs::create_dir(&folder).unwrap();
        prepare(&folder);
        let listener = listen(&socket, SocketType::SEQPACKET);
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(listener.as_fd(), &folder, LIMITS));
            let id = ContentId::parse(&"0a".repeat(32)).unwrap();
            let (answer, fuse) = client::ask(&socket, &Request { verb, id }).unwrap();
            assert!(fuse.is_none());
            server.join().unwrap().unwrap();
            answer
        })
    }

    #[test]
    fn links_are_not_followed() {
        let aside = tempfile::tempdir().unwrap();
        for verb in [Verb::Mount, Verb::Unmount, Verb::Detach] {
            let found = ask(
                |folder| symlink(aside.path(), folder.join("0a".repeat(32))).unwrap(),
                verb,
            );
            assert_eq!(found.outcome, Outcome::Failed);
            assert!(found.text.contains("links are not followed"), "{found:?}");
        }
    }

    #[test]
    fn what_is_not_mounted_is_absent() {
        for verb in [Verb::Unmount, Verb::Detach] {
            let found = ask(
                |folder| fs::create_dir(folder.join("0a".repeat(32))).unwrap(),
                verb,
            );
            assert_eq!(found.outcome, Outcome::Absent, "{found:?}");
            assert_eq!(ask(|_| {}, verb).outcome, Outcome::Absent);
        }
    }

    #[test]
    fn an_idle_mounter_ends_and_leaves_its_socket() {
        let here = tempfile::tempdir().unwrap();
        let socket = here.path().join("socket");
        let listener = listen(&socket, SocketType::SEQPACKET);
        let start = Instant::now();
        serve(listener.as_fd(), here.path(), LIMITS).unwrap();
        assert!(start.elapsed() >= LIMITS.idle);
        // For the one that systemd starts next.
        client::check(&socket).unwrap();
    }

    #[test]
    fn silent_clients_are_closed_and_others_served() {
        let here = tempfile::tempdir().unwrap();
        let socket = here.path().join("socket");
        let listener = listen(&socket, SocketType::SEQPACKET);
        let connect = || {
            let kind = SocketType::SEQPACKET;
            let flags = SocketFlags::CLOEXEC;
            let fd = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
            rustix::net::connect(&fd, &SocketAddrUnix::new(&socket).unwrap()).unwrap();
            fd
        };
        let silent: Vec<_> = (0..6).map(|_| connect()).collect();
        std::thread::scope(|scope| {
            let server = scope.spawn(|| serve(listener.as_fd(), here.path(), LIMITS));
            let id = ContentId::parse(&"0a".repeat(32)).unwrap();
            let start = Instant::now();
            let verb = Verb::Unmount;
            let (answer, _) = client::ask(&socket, &Request { verb, id }).unwrap();
            assert_eq!(answer.outcome, Outcome::Absent);
            // Three times two of them.
            assert!(start.elapsed() >= 3 * LIMITS.request);
            for client in &silent {
                let mut message = [0; 8];
                let (_, len) = rustix::net::recv(client, &mut message, RecvFlags::empty()).unwrap();
                assert_eq!(len, 0);
            }
            server.join().unwrap().unwrap();
        });
    }

    #[test]
    fn other_sockets_and_relative_folders_are_refused() {
        let here = tempfile::tempdir().unwrap();
        let stream = listen(&here.path().join("stream"), SocketType::STREAM);
        let error = serve(stream.as_fd(), here.path(), LIMITS).unwrap_err();
        assert!(error.to_string().contains("diffcache-lazy-mount.socket"));
        let file = fs::File::open("/dev/null").unwrap();
        assert!(serve(file.as_fd(), here.path(), LIMITS).is_err());
        let listener = listen(&here.path().join("socket"), SocketType::SEQPACKET);
        let error = serve(listener.as_fd(), Path::new("mount"), LIMITS).unwrap_err();
        assert!(error.to_string().contains("no absolute path"));
    }
}
