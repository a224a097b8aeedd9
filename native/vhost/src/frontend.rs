//! The other side: a light guest with one ring, and what QEMU does for it.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{fence, Ordering};

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags};
use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

use crate::message::{protocol, request, send, Kind, Message};

/// Descriptors of the ring.
pub const SIZE: u16 = 128;
/// Requests at the same time.
pub const SLOTS: usize = SIZE as usize / 4;
/// Bytes of a request's data.
pub const DATA: u32 = 1 << 16;

/// Where the guest has things.
pub const BASE: u64 = 1 << 20;
const AVAILABLE: u64 = BASE + 0x1000;
const USED: u64 = BASE + 0x2000;
const HEADERS: u64 = BASE + 0x4000;
/// Where the data of the first request are.
pub const BUFFERS: u64 = BASE + 0x10000;
/// Bytes of its memory.
pub const MEMORY: u64 = 0x10000 + SLOTS as u64 * DATA as u64;
const USER: u64 = 0x7000_0000_0000;

/// Kinds of requests.
pub mod kind {
    #![allow(missing_docs)]
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// What survives a process of the other side.
#[derive(Debug)]
pub struct Kept {
    memory: File,
    kick: OwnedFd,
    /// The other side notifies the guest.
    pub call: OwnedFd,
    inflight: Option<(Vec<u8>, OwnedFd)>,
}

/// A guest that is connected.
pub struct Guest {
    /// Its memory.
    pub memory: GuestMemoryMmap<()>,
    /// The connection.
    pub stream: UnixStream,
    /// What survives it.
    pub kept: Kept,
    free: VecDeque<usize>,
    offered: u16,
    seen: u16,
    kicked: u16,
}

/// The features that this guest wants.
pub const FEATURES: u64 = 1 << 32 | 1 << 30 | 1 << 29 | 1 << 28 | 1 << 9;

fn map(file: &File) -> io::Result<GuestMemoryMmap<()>> {
    let file = FileOffset::new(file.try_clone()?, 0);
    let region = MmapRegion::from_file(file, MEMORY as usize).map_err(io::Error::other)?;
    let region = GuestRegionMmap::new(region, GuestAddress(BASE));
    let region = region.ok_or(io::ErrorKind::InvalidInput)?;
    GuestMemoryMmap::from_regions(vec![region]).map_err(io::Error::other)
}

impl Kept {
    /// Memory of zeroes.
    ///
    /// # Errors
    /// The system refused.
    pub fn new() -> io::Result<Self> {
        let memory = memfd_create("guest", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, MEMORY)?;
        Ok(Self {
            memory: memory.into(),
            kick: eventfd(0, EventfdFlags::CLOEXEC)?,
            call: eventfd(0, EventfdFlags::CLOEXEC)?,
            inflight: None,
        })
    }
}

impl Guest {
    /// Connects with an existing memory and resumes its ring.
    ///
    /// # Errors
    /// The other side refused.
    pub fn connect(path: &Path, kept: Kept) -> io::Result<Self> {
        let mut guest = Self {
            memory: map(&kept.memory)?,
            stream: UnixStream::connect(path)?,
            kept,
            free: (0..SLOTS).collect(),
            offered: 0,
            seen: 0,
            kicked: 0,
        };
        guest.begin()?;
        Ok(guest)
    }

    /// Sends a message, and returns its reply.
    ///
    /// # Errors
    /// The other side left.
    pub fn ask(&self, number: u32, body: &[u8]) -> io::Result<Message> {
        send(&self.stream, (number, Kind::Request), body, &[])?;
        let reply = Message::receive(&self.stream)?;
        reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends a message, with descriptors.
    ///
    /// # Errors
    /// The other side left.
    pub fn tell(&self, number: u32, words: &[u64], files: &[&dyn AsFd]) -> io::Result<()> {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let files: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        send(&self.stream, (number, Kind::Request), &body, &files)
    }

    /// Has the other side serve the ring.
    fn begin(&mut self) -> io::Result<()> {
        self.ask(request::GET_FEATURES, &[])?;
        let offered = self.ask(request::GET_PROTOCOL_FEATURES, &[])?.word(0);
        self.tell(
            request::SET_PROTOCOL_FEATURES,
            &[offered & !protocol::REPLY_ACK],
            &[],
        )?;
        self.tell(request::SET_OWNER, &[], &[])?;
        self.tell(request::SET_FEATURES, &[FEATURES], &[])?;
        if offered & protocol::INFLIGHT_SHMFD != 0 {
            if self.kept.inflight.is_none() {
                let mut wanted = vec![0; 24];
                wanted[16] = 1;
                wanted[18..20].copy_from_slice(&SIZE.to_le_bytes());
                let mut reply = self.ask(request::GET_INFLIGHT_FD, &wanted)?;
                self.kept.inflight = Some((reply.body.clone(), reply.file()?));
            }
            if let Some((body, file)) = &self.kept.inflight {
                let kind = (request::SET_INFLIGHT_FD, Kind::Request);
                send(&self.stream, kind, body, &[file.as_fd()])?;
            }
        }
        let region = [1, BASE, MEMORY, USER, 0];
        self.tell(request::SET_MEM_TABLE, &region, &[&self.kept.memory])?;
        let used = self.index(USED)?;
        self.tell(request::SET_VRING_NUM, &[u64::from(SIZE) << 32], &[])?;
        self.tell(request::SET_VRING_BASE, &[u64::from(used) << 32], &[])?;
        let user = |guest: u64| guest - BASE + USER;
        let places = [0, user(BASE), user(USED), user(AVAILABLE), 0];
        self.tell(request::SET_VRING_ADDR, &places, &[])?;
        self.tell(request::SET_VRING_CALL, &[0], &[&self.kept.call])?;
        self.tell(request::SET_VRING_KICK, &[0], &[&self.kept.kick])?;
        self.tell(request::SET_VRING_ENABLE, &[1 << 32], &[])?;
        self.offered = self.index(AVAILABLE)?;
        (self.seen, self.kicked) = (used, self.offered);
        Ok(())
    }

    fn index(&self, ring: u64) -> io::Result<u16> {
        let loaded = self.memory.load(GuestAddress(ring + 2), Ordering::Acquire);
        loaded.map_err(io::Error::other)
    }

    /// Writes to its memory.
    ///
    /// # Errors
    /// It has no such place.
    pub fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let written = self.memory.write_slice(bytes, GuestAddress(at));
        written.map_err(io::Error::other)
    }

    /// Copies from its memory.
    ///
    /// # Errors
    /// It has no such place.
    pub fn get(&self, at: u64, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let read = self.memory.read_slice(&mut bytes, GuestAddress(at));
        read.map(|()| bytes).map_err(io::Error::other)
    }

    /// Where the data of a request are.
    #[must_use]
    pub fn data_at(slot: usize) -> u64 {
        BUFFERS + slot as u64 * u64::from(DATA)
    }

    fn header_at(slot: usize) -> u64 {
        HEADERS + slot as u64 * 32
    }

    /// Writes a descriptor.
    ///
    /// # Errors
    /// It has no such place.
    pub fn describe(
        &self,
        number: u16,
        address: u64,
        (length, flags, next): (u32, u16, u16),
    ) -> io::Result<()> {
        let mut bytes = address.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.put(&bytes, BASE + 16 * u64::from(number))
    }

    /// Offers the request that begins with a descriptor.
    ///
    /// # Errors
    /// It has no such place.
    pub fn offer(&mut self, head: u16) -> io::Result<()> {
        self.put(
            &head.to_le_bytes(),
            AVAILABLE + 4 + 2 * u64::from(self.offered % SIZE),
        )?;
        self.offered = self.offered.wrapping_add(1);
        let at = GuestAddress(AVAILABLE + 2);
        let stored = self.memory.store(self.offered, at, Ordering::Release);
        stored.map_err(io::Error::other)
    }

    /// Begins a request, and returns its number; none: there are too many. Data to be written are
    /// already at [`data_at`](Self::data_at) the number.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn begin_request(
        &mut self,
        kind: u32,
        sector: u64,
        length: u32,
    ) -> io::Result<Option<usize>> {
        let Some(slot) = self.free.pop_front() else {
            return Ok(None);
        };
        let mut header = kind.to_le_bytes().to_vec();
        header.extend([0; 4]);
        header.extend(sector.to_le_bytes());
        header.push(0xff);
        let at = Self::header_at(slot);
        self.put(&header, at)?;
        let head = slot as u16 * 4;
        let is_in = matches!(kind, kind::IN | kind::GET_ID);
        let has_data = length > 0;
        self.describe(head, at, (16, 1, head + if has_data { 1 } else { 2 }))?;
        if has_data {
            let flags = if is_in { 3 } else { 1 };
            self.describe(head + 1, Self::data_at(slot), (length, flags, head + 2))?;
        }
        self.describe(head + 2, at + 16, (1, 2, 0))?;
        self.offer(head)?;
        Ok(Some(slot))
    }

    /// The next free number, whose data may be written before a request is begun.
    #[must_use]
    pub fn next_slot(&self) -> Option<usize> {
        self.free.front().copied()
    }

    /// Notifies the other side of requests, if it wants that.
    ///
    /// # Errors
    /// The system refused.
    pub fn kick(&mut self) -> io::Result<()> {
        fence(Ordering::SeqCst);
        let at = GuestAddress(USED + 4 + 8 * u64::from(SIZE));
        let wanted: u16 = self
            .memory
            .load(at, Ordering::Relaxed)
            .map_err(io::Error::other)?;
        let new = self.offered.wrapping_sub(self.kicked);
        self.kicked = self.offered;
        if self.offered.wrapping_sub(wanted).wrapping_sub(1) < new {
            self.kick_anyway()?;
        }
        Ok(())
    }

    /// Notifies the other side.
    ///
    /// # Errors
    /// The system refused.
    pub fn kick_anyway(&self) -> io::Result<()> {
        rustix::io::write(&self.kept.kick, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Takes an answer, if there is one: the number of the request and its status.
    ///
    /// # Errors
    /// The memory is too small.
    pub fn answer(&mut self) -> io::Result<Option<(usize, u8)>> {
        if self.index(USED)? == self.seen {
            return Ok(None);
        }
        let element = self.get(USED + 4 + 8 * u64::from(self.seen % SIZE), 4)?;
        self.seen = self.seen.wrapping_add(1);
        let slot = usize::from(element[0]) / 4 + usize::from(element[1]) * 64;
        let status = self.get(Self::header_at(slot) + 16, 1)?[0];
        self.free.push_back(slot);
        Ok(Some((slot, status)))
    }

    /// Waits for answers.
    ///
    /// # Errors
    /// The system refused.
    pub fn wait(&mut self) -> io::Result<()> {
        let at = GuestAddress(AVAILABLE + 4 + 2 * u64::from(SIZE));
        self.memory
            .store(self.seen, at, Ordering::Relaxed)
            .map_err(io::Error::other)?;
        fence(Ordering::SeqCst);
        if self.index(USED)? == self.seen {
            // The other side may have made it one that is not waited for.
            poll(&mut [PollFd::new(&self.kept.call, PollFlags::IN)], None)?;
            rustix::io::read(&self.kept.call, &mut [0; 8])?;
        }
        Ok(())
    }

    /// Does a request, and returns its status and its data.
    ///
    /// # Errors
    /// The connection failed.
    pub fn perform(&mut self, kind: u32, sector: u64, data: &[u8]) -> io::Result<(u8, Vec<u8>)> {
        let slot = self.next_slot().ok_or(io::ErrorKind::WouldBlock)?;
        self.put(data, Self::data_at(slot))?;
        self.begin_request(kind, sector, data.len() as u32)?;
        self.kick()?;
        loop {
            if let Some((answered, status)) = self.answer()? {
                if answered == slot {
                    return Ok((status, self.get(Self::data_at(slot), data.len())?));
                }
                continue;
            }
            self.wait()?;
        }
    }
}
