//! Volumes as disks of guests whose memory is shared: a socket of vhost-user for each, and a process of
//! its own behind it, see `diffcache-vhost`.
//!
//! The socket is of this process and stays when the other one ends, which serves one connection of
//! QEMU: the next one is started, and QEMU connects again. Sockets stay in their directory when this
//! process ends, too: the next one serves those of volumes that it has.

use std::collections::HashMap;
use std::fs::{create_dir, read_dir, set_permissions, File, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_control::{listen_for_group, remove_socket};
use diffcache_ssdcache::cache::{Cache, Volume};
use diffcache_ssdcache::shared::Lent;
use rustix::event::{eventfd, EventfdFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::{fcntl_setfd, FdFlags};
use rustix::process::{pidfd_open, pidfd_send_signal, Pid, PidfdFlags, Signal};

use crate::exports::Volumes;
use crate::server::{self, Clients};

/// The file that this process runs, whatever has become of its name.
const OWN: &str = "/proc/self/exe";
/// The word of the command line that a process of a guest is started with.
pub const WORD: &str = "guest";
/// What follows the name of the socket of NBD in that of the directory.
pub const SUFFIX: &str = ".vhost";
/// A process that ends before this time is followed by another one only after it.
const SHORT: Duration = Duration::from_millis(200);
/// One that failed, only after this time: QEMU tries to connect again as often.
const FAILED: Duration = Duration::from_secs(1);
/// After others that failed, twice the time of the one before; at most this.
const LONGEST: Duration = Duration::from_secs(30);

/// The volumes that are served by vhost-user.
pub struct Guests {
    /// Where sockets are.
    pub directory: PathBuf,
    /// Number of the group that may connect, besides this user.
    pub group: Option<u32>,
    /// The exports that processes of guests are clients of.
    pub volumes: Arc<Volumes>,
    /// These clients.
    pub clients: Arc<Clients>,
    /// Those that are served, by the names of volumes.
    pub open: Mutex<HashMap<String, Arc<Guest>>>,
}

/// A volume that is served.
pub struct Guest {
    name: String,
    path: PathBuf,
    listener: UnixListener,
    lent: Arc<Lent>,
    /// Has the process look at the size of the volume.
    nudge: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_closing: bool,
    process: Option<OwnedFd>,
}

impl Guest {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
    }

    /// Where QEMU connects.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Has the guest see the size of the volume.
    pub fn nudge(&self) {
        // It fails if the process has not looked for long, and will.
        let _ = rustix::io::write(&self.nudge, &1u64.to_ne_bytes());
    }

    fn close(&self) -> io::Result<()> {
        let mut state = self.state();
        state.is_closing = true;
        if let Some(process) = &state.process {
            // It may have ended.
            let _ = pidfd_send_signal(process, Signal::KILL);
        }
        drop(state);
        self.changed.notify_all();
        remove_socket(&self.path)
    }
}

impl Guests {
    fn cache(&self) -> &Cache {
        &self.volumes.cache
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Guest>>> {
        self.open.lock().unpoisoned()
    }

    /// The socket of a volume, if it is served.
    pub fn find(&self, name: &str) -> Option<Arc<Guest>> {
        self.lock().get(name).cloned()
    }

    /// Serves a volume, if it is not yet: QEMU can connect when this returns.
    ///
    /// # Errors
    /// It is held or being detached, or blocks are read by threads; the system refused.
    pub fn open(self: &Arc<Self>, volume: &Volume) -> io::Result<()> {
        let name = volume.name();
        // Who connects is asked for nothing else: the name is a secret.
        let path = self.directory.join(volume.export());
        let mut open = self.lock();
        if open.contains_key(name) {
            return Ok(());
        }
        if volume.is_held() {
            return Err(io::Error::other("the volume is held"));
        }
        if self.cache().files().is_none() {
            return Err(no_files());
        }
        // Nothing is shared with a guest that cannot connect.
        let take_back = |_: &io::Error| self.cache().take_back(volume);
        let guest = self.serve(volume, path).inspect_err(take_back)?;
        open.insert(name.to_owned(), guest);
        Ok(())
    }

    /// Listens for the guest of a volume.
    fn serve(self: &Arc<Self>, volume: &Volume, path: PathBuf) -> io::Result<Arc<Guest>> {
        let lent = self.cache().lend(volume)?;
        if !self.directory.exists() {
            create_dir(&self.directory)?;
            // Members of the group reach sockets in it whose names they know.
            set_permissions(&self.directory, Permissions::from_mode(0o711))?;
        }
        let guest = Arc::new(Guest {
            name: volume.name().to_owned(),
            listener: listen_for_group(&path, self.group)?,
            path,
            lent,
            nudge: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let (guests, kept) = (self.clone(), guest.clone());
        // Its processes end with this thread.
        std::thread::Builder::new().spawn(move || guests.keep(&kept))?;
        Ok(guest)
    }

    /// Ends to serve a volume: its guest gets errors, if it has one.
    ///
    /// # Errors
    /// The socket could not be removed.
    pub fn close(&self, volume: &Volume) -> io::Result<()> {
        // To the end: another socket would be removed.
        let mut open = self.lock();
        let Some(guest) = open.remove(volume.name()) else {
            return Ok(());
        };
        self.cache().take_back(volume);
        guest.close()
    }

    /// Serves the volumes whose sockets a process before this one has left, and removes the others.
    pub fn reopen(self: &Arc<Self>) -> io::Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        for entry in read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let mut volumes = self.cache().volumes().into_iter();
            let served = match volumes.find(|volume| volume.export() == name) {
                Some(volume) => self.open(&volume),
                None => remove_socket(&entry.path()),
            };
            if let Err(error) = served {
                log::warn!("Could not serve socket {name} of vhost-user again: {error}");
            }
        }
        Ok(())
    }

    /// Has a process serve a guest, again and again.
    fn keep(self: &Arc<Self>, guest: &Guest) {
        let name = &guest.name;
        let mut least = SHORT;
        loop {
            let begun = Instant::now();
            let ended = self.run(guest);
            least = rest(ended.is_ok(), least);
            let state = guest.state();
            if let (Err(error), false) = (&ended, state.is_closing) {
                log::warn!("Volume {name}: the process of its guest ended: {error}");
            }
            let rest = least.saturating_sub(begun.elapsed());
            let waited = guest
                .changed
                .wait_timeout_while(state, rest, |state| !state.is_closing);
            if waited.unpoisoned().0.is_closing {
                return;
            }
        }
    }

    /// Runs a process to its end.
    fn run(self: &Arc<Self>, guest: &Guest) -> io::Result<()> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut child = self.start(guest, theirs)?;
        let served = self.watch(guest, &child, ours);
        if served.is_err() {
            child.kill()?;
        }
        let status = child.wait();
        guest.state().process = None;
        served?;
        match status? {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(status.to_string())),
        }
    }

    /// Serves a process as a client, and has it end with its volume.
    fn watch(&self, guest: &Guest, child: &Child, stream: UnixStream) -> io::Result<()> {
        server::start(stream, &self.volumes, &self.clients)?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let process = pidfd_open(pid.ok_or(ErrorKind::InvalidData)?, PidfdFlags::empty())?;
        let mut state = guest.state();
        if state.is_closing {
            return Err(io::Error::other("the volume is served no longer"));
        }
        state.process = Some(process);
        Ok(())
    }

    fn start(&self, guest: &Guest, daemon: UnixStream) -> io::Result<Child> {
        let Some(files) = self.cache().files() else {
            return Err(no_files());
        };
        // Opened anew: a copy could be written to, and has the same flags.
        let reopen = |file: &File, flags| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::empty())
        };
        let device = reopen(&files.buffered, OFlags::RDONLY)?;
        let direct = reopen(&files.direct, OFlags::RDONLY | OFlags::DIRECT)?;
        guest.lent.with_files(|[index, hits]| {
            let handed = [
                guest.listener.as_fd(),
                daemon.as_fd(),
                index,
                hits,
                device.as_fd(),
                direct.as_fd(),
                guest.nudge.as_fd(),
            ];
            spawn(&handed)
        })
    }
}

fn no_files() -> io::Error {
    io::Error::other("cached blocks are read by threads, and vhost-user needs io_uring")
}

/// The least time from the start of a process to that of the next one; for the one before it was `last`.
pub fn rest(has_served: bool, last: Duration) -> Duration {
    match has_served {
        true => SHORT,
        false => (last * 2).clamp(FAILED, LONGEST),
    }
}

/// Starts a process that gets descriptors.
fn spawn(files: &[BorrowedFd<'_>]) -> io::Result<Child> {
    let mut command = Command::new(OWN);
    let numbers: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
    command
        .arg0("diffcache-ssdcached")
        .arg(WORD)
        .arg(std::process::id().to_string())
        .args(numbers.iter().map(i32::to_string))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    // SAFETY: the closure is system calls on descriptors that are open meanwhile, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            for number in &numbers {
                fcntl_setfd(BorrowedFd::borrow_raw(*number), FdFlags::empty())?;
            }
            Ok(())
        });
    }
    command.spawn()
}
