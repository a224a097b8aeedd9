//! What QEMU says of a guest.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use super::{Device, RINGS};
use crate::inflight::Inflight;
use crate::memory::map;
use crate::message::{invalid, protocol, request, send, Kind, Message};
use crate::request::{MOST_SECTORS, SECTOR};
use crate::ring::LARGEST;

/// Features of the disk and of its rings.
pub mod features {
    pub const SEG_MAX: u64 = 1 << 2;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const LOG_ALL: u64 = 1 << 26;
    pub const INDIRECT: u64 = 1 << 28;
    pub const EVENT_INDEX: u64 = 1 << 29;
    pub const PROTOCOL: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const ALL: u64 = SEG_MAX
        | BLK_SIZE
        | FLUSH
        | TOPOLOGY
        | MQ
        | DISCARD
        | WRITE_ZEROES
        | LOG_ALL
        | INDIRECT
        | EVENT_INDEX
        | PROTOCOL
        | VERSION_1;
}

const PROTOCOL: u64 = protocol::MQ
    | protocol::LOG_SHMFD
    | protocol::REPLY_ACK
    | protocol::BACKEND_REQ
    | protocol::CONFIG
    | protocol::INFLIGHT_SHMFD;
/// In place of a descriptor, none is given.
const NO_FILE: u64 = 1 << 8;
/// Bytes of the disk's configuration, and of what is in front of it in a message.
const CONFIG: usize = 256;
const CONFIG_HEAD: usize = 12;
/// Data segments of a request: those of a ring of 128 descriptors.
const SEGMENTS: u32 = 126;

impl Device {
    /// Handles a message, and replies to it.
    ///
    /// # Errors
    /// The other side broke the protocol, or the connection failed: it ends.
    pub fn handle(&mut self, stream: &UnixStream, mut message: Message) -> io::Result<()> {
        let (number, needs_reply) = (message.request, message.needs_reply);
        let word = |value: u64| Some(value.to_le_bytes().to_vec());
        let reply = match number {
            request::GET_FEATURES => word(features::ALL),
            request::GET_PROTOCOL_FEATURES => word(PROTOCOL),
            request::GET_QUEUE_NUM => word(RINGS as u64),
            request::GET_CONFIG => Some(self.configuration(&message)?),
            request::GET_VRING_BASE => Some(self.take_base(&message)?),
            request::GET_INFLIGHT_FD => return give_inflight(stream, &message),
            request::SET_LOG_BASE => {
                self.set_log(&mut message)?;
                word(0)
            }
            _ => {
                self.set(message)?;
                let acknowledged = needs_reply && self.protocol & protocol::REPLY_ACK != 0;
                word(0).filter(|_| acknowledged)
            }
        };
        match reply {
            Some(reply) => send(stream, (number, Kind::Reply), &reply, &[]),
            None => Ok(()),
        }
    }

    fn set(&mut self, mut message: Message) -> io::Result<()> {
        match message.request {
            request::SET_FEATURES => self.set_features(message.word(0)),
            request::SET_PROTOCOL_FEATURES => {
                self.protocol = message.word(0);
                Ok(())
            }
            request::SET_OWNER | request::RESET_OWNER | request::SET_CONFIG => Ok(()),
            request::SET_MEM_TABLE => self.memory.set(message),
            request::SET_LOG_FD | request::SET_VRING_ERR => Ok(()),
            request::SET_BACKEND_REQ_FD => {
                self.backend = Some(UnixStream::from(message.file()?));
                // The size may have changed while QEMU was not connected.
                self.tell_of_change()
            }
            request::SET_INFLIGHT_FD => self.set_inflight(&mut message),
            request::SET_VRING_NUM => {
                let (ring, size) = (self.ring(&message)?, message.half(4));
                let known = u16::try_from(size)
                    .ok()
                    .filter(|size| size.is_power_of_two());
                let size = known.filter(|size| *size <= LARGEST);
                self.rings[ring].size = size.ok_or_else(|| invalid("a ring has a wrong size"))?;
                Ok(())
            }
            request::SET_VRING_BASE => {
                let ring = self.ring(&message)?;
                self.rings[ring].next = message.half(4) as u16;
                Ok(())
            }
            request::SET_VRING_ADDR => {
                let ring = self.ring(&message)?;
                let at = |at: usize| self.memory.of_user(message.word(at));
                let places = [at(8)?, at(24)?, at(16)?];
                self.rings[ring].set_addresses(places);
                Ok(())
            }
            request::SET_VRING_ENABLE => {
                let ring = self.ring(&message)?;
                self.rings[ring].is_enabled = message.half(4) != 0;
                self.start(ring)?;
                // What came while it was not enabled is not notified again.
                self.serve(ring);
                Ok(())
            }
            request::SET_VRING_KICK => {
                let (ring, kick) = self.notifier(&mut message)?;
                let kick = kick.ok_or_else(|| invalid("a ring is to be polled"))?;
                if let Some(old) = self.rings[ring].kick.replace(kick) {
                    // It is not there if the ring was never ready.
                    let _ = rustix::event::epoll::delete(&self.epoll, old);
                    self.rings[ring].is_started = false;
                }
                self.start(ring)
            }
            request::SET_VRING_CALL => {
                let (ring, call) = self.notifier(&mut message)?;
                self.rings[ring].call = call;
                // The guest may not have been notified of what is answered already, also by a process
                // before this one.
                self.rings[ring].interrupt();
                Ok(())
            }
            number => Err(invalid(&format!("request {number} is not known"))),
        }
    }

    fn set_features(&mut self, wanted: u64) -> io::Result<()> {
        if wanted & !features::ALL != 0 {
            return Err(invalid("features are wanted that were not offered"));
        }
        self.features = wanted;
        if wanted & features::LOG_ALL == 0 {
            self.memory.set_log(None);
        }
        for ring in &mut self.rings {
            ring.by_index = wanted & features::EVENT_INDEX != 0;
            ring.is_enabled |= wanted & features::PROTOCOL == 0;
        }
        Ok(())
    }

    /// The number of the ring that a message is of.
    fn ring(&self, message: &Message) -> io::Result<usize> {
        let ring = message.half(0) as usize;
        let known = Some(ring).filter(|ring| *ring < RINGS && message.body.len() >= 8);
        known.ok_or_else(|| invalid("there is no such ring"))
    }

    /// The ring that a message is of, and the descriptor that was given for it.
    fn notifier(&self, message: &mut Message) -> io::Result<(usize, Option<OwnedFd>)> {
        let word = message.word(0);
        let file = match word & NO_FILE {
            0 => Some(message.file()?),
            _ => None,
        };
        if message.body.len() < 8 {
            return Err(invalid("a message is too short"));
        }
        Ok(((word & 0xff) as usize, file))
    }

    fn take_base(&mut self, message: &Message) -> io::Result<Vec<u8>> {
        let number = self.ring(message)?;
        self.stop(number)?;
        self.waiting.retain(|waiting| *waiting != number);
        let ring = &mut self.rings[number];
        ring.is_broken = false;
        let next = u32::from(ring.next);
        Ok([number as u32, next].map(u32::to_le_bytes).concat())
    }

    fn set_log(&mut self, message: &mut Message) -> io::Result<()> {
        let (length, offset) = (message.word(0), message.word(8));
        self.memory
            .set_log(Some(map(message.file()?, offset, length)?));
        Ok(())
    }

    fn set_inflight(&mut self, message: &mut Message) -> io::Result<()> {
        let place = (message.word(8), message.word(0));
        let (rings, size) = (message.half(16) as u16, (message.half(16) >> 16) as u16);
        self.inflight = Some(Inflight::open(message.file()?, place, rings, size)?);
        Ok(())
    }

    /// The part of the configuration that a message asks for.
    fn configuration(&self, message: &Message) -> io::Result<Vec<u8>> {
        let (offset, length) = (message.half(0) as usize, message.half(4) as usize);
        let mut config = [0; CONFIG];
        let mut put = |at: usize, bytes: &[u8]| config[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &(self.size / SECTOR).to_le_bytes());
        put(12, &SEGMENTS.to_le_bytes());
        put(20, &(SECTOR as u32).to_le_bytes());
        // Blocks of 8 sectors, and the best size of requests in sectors.
        put(24, &[3, 0, 8, 0]);
        put(34, &(RINGS as u16).to_le_bytes());
        for at in [36, 48] {
            put(at, &MOST_SECTORS.to_le_bytes());
            put(at + 4, &1u32.to_le_bytes());
        }
        put(44, &8u32.to_le_bytes());
        // Zeroes may give space back.
        put(56, &[1]);
        let end = offset.saturating_add(length);
        let part = config
            .get(offset..end)
            .filter(|_| message.body.len() >= CONFIG_HEAD);
        let part = part.ok_or_else(|| invalid("there is no such configuration"))?;
        Ok([&message.body[..CONFIG_HEAD], part].concat())
    }
}

fn give_inflight(stream: &UnixStream, message: &Message) -> io::Result<()> {
    let (rings, size) = (message.half(16) as u16, (message.half(16) >> 16) as u16);
    let (file, length) = Inflight::make(rings, size)?;
    let mut body = length.to_le_bytes().to_vec();
    body.extend([0; 8]);
    body.extend(message.body.get(16..20).unwrap_or(&[0; 4]));
    // QEMU sends the structure with what the compiler adds to it.
    body.resize(message.body.len().max(body.len()), 0);
    send(
        stream,
        (message.request, Kind::Reply),
        &body,
        &[file.as_fd()],
    )
}
