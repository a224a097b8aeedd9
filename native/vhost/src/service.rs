//! The process of a guest.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use diffcache_ssdcache::shared::hits::Hits;
use diffcache_ssdcache::shared::index::Index;
use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};

use crate::cached::{Cached, Reads};
use crate::device::{Device, RINGS};
use crate::forward::Forward;
use crate::message::Message;

/// Numbers of what epoll reports, besides those of rings.
const SOCKET: u64 = RINGS as u64;
const DAEMON: u64 = SOCKET + 1;
const NUDGE: u64 = SOCKET + 2;
/// Events at once.
const EVENTS: usize = 64;

/// What a process is started with, in this order.
#[derive(Debug)]
pub struct Handed {
    /// Where QEMU connects.
    pub listener: UnixListener,
    /// The connection to the daemon's exports.
    pub daemon: UnixStream,
    /// The index of the volume.
    pub index: OwnedFd,
    /// The ring of hits.
    pub hits: OwnedFd,
    /// The device, to read it through the memory of the system.
    pub device: OwnedFd,
    /// And past it.
    pub direct: OwnedFd,
    /// Says that the volume changed.
    pub nudge: OwnedFd,
}

impl Handed {
    /// How many descriptors there are.
    pub const COUNT: usize = 7;

    /// Takes descriptors over.
    ///
    /// # Safety
    /// Nothing else uses these numbers.
    #[must_use]
    pub unsafe fn from_raw(numbers: [RawFd; Self::COUNT]) -> Self {
        // SAFETY: the caller says so.
        let files = numbers.map(|number| unsafe { OwnedFd::from_raw_fd(number) });
        let [listener, daemon, index, hits, device, direct, nudge] = files;
        Self {
            listener: listener.into(),
            daemon: daemon.into(),
            index,
            hits,
            device,
            direct,
            nudge,
        }
    }
}

/// Serves one connection of QEMU to its end. `restrict` gives up what is not needed any more before that
/// begins.
///
/// # Errors
/// QEMU broke the protocol, or a connection failed.
pub fn run(handed: Handed, restrict: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let index = Index::open(handed.index)?;
    let hits = Hits::open(handed.hits)?;
    let export = format!("{:032x}", index.facts().export);
    let forward = Forward::new(handed.daemon, &export)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
    let named = epoll::EventData::new_u64;
    epoll::add(&epoll, forward.file(), named(DAEMON), edges)?;
    let edges = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(&epoll, &handed.nudge, named(NUDGE), edges)?;
    let reads = Reads::new([&handed.direct, &handed.device, &epoll].map(AsFd::as_fd));
    let cached = Cached::new(index, hits, File::from(handed.device), reads);
    let mut device = Device::new(cached, forward, epoll);
    restrict()?;
    let (stream, _) = handed.listener.accept()?;
    epoll::add(
        device.epoll(),
        stream.as_fd(),
        named(SOCKET),
        epoll::EventFlags::IN,
    )?;
    serve(&mut device, &stream)
}

fn serve(device: &mut Device, stream: &UnixStream) -> io::Result<()> {
    let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
    loop {
        let next = device.begin_due();
        device.send()?;
        let is_due = device.wait_for_reads()?;
        let timeout = if is_due { Some(Duration::ZERO) } else { next };
        // Longer ones than that have no end.
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        events.clear();
        match epoll::wait(
            device.epoll(),
            spare_capacity(&mut events),
            timeout.as_ref(),
        ) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        device.serve_waiting();
        for event in &events {
            match event.data.u64() {
                SOCKET => match Message::receive(stream)? {
                    Some(message) => device.handle(stream, message)?,
                    None => return Ok(()),
                },
                DAEMON => device.take_answers()?,
                NUDGE => device.refresh()?,
                ring => device.serve(ring as usize),
            }
        }
    }
}
