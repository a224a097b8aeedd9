//! A split ring of a guest.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{fence, Ordering};

use diffcache_base::words::Words;
use vm_memory::{Address, GuestAddress};

use crate::memory::{Memory, Segment};
use crate::message::invalid;

/// Descriptors of a ring at most.
pub const LARGEST: u16 = 1024;
/// Segments of a request, at most.
const MOST_SEGMENTS: usize = LARGEST as usize;
const DESCRIPTOR: u64 = 16;
const NEXT: u16 = 1;
const WRITABLE: u16 = 2;
const INDIRECT: u16 = 4;
/// The guest wants no interrupts, or the device no notifications.
const QUIET: u16 = 1;

/// A request's segments.
#[derive(Debug, Default)]
pub struct Chain {
    /// What the device reads.
    pub readable: Vec<Segment>,
    /// What it writes.
    pub writable: Vec<Segment>,
}

impl Chain {
    fn add(&mut self, segment: Segment, is_writable: bool) -> io::Result<()> {
        if self.readable.len() + self.writable.len() >= MOST_SEGMENTS {
            return Err(invalid("a request has too many segments"));
        }
        match is_writable {
            true => self.writable.push(segment),
            false if !self.writable.is_empty() => {
                return Err(invalid("a request is to be read behind what is written"));
            }
            false => self.readable.push(segment),
        }
        Ok(())
    }
}

/// A ring.
#[derive(Default)]
pub struct Ring {
    /// How many descriptors it has.
    pub size: u16,
    descriptors: GuestAddress,
    available: GuestAddress,
    used: GuestAddress,
    /// The number of the next request.
    pub next: u16,
    /// The number of the next answer.
    pub answered: u16,
    /// Up to which answer the guest was notified.
    notified: u16,
    /// Whether each side says from which number on it is to be notified.
    pub by_index: bool,
    /// Whether requests are taken.
    pub is_enabled: bool,
    /// Whether they are, and what was under way before was repeated.
    pub is_started: bool,
    /// Whether what the guest wrote makes no sense.
    pub is_broken: bool,
    /// The guest notifies the device.
    pub kick: Option<OwnedFd>,
    /// The device notifies the guest.
    pub call: Option<OwnedFd>,
    /// Requests that wait for the daemon.
    pub running: usize,
}

impl Ring {
    /// Sets where its parts are: descriptors, what is available, what was used.
    pub fn set_addresses(&mut self, [descriptors, available, used]: [GuestAddress; 3]) {
        (self.descriptors, self.available, self.used) = (descriptors, available, used);
    }

    /// Whether requests are to be taken.
    pub fn is_ready(&self) -> bool {
        self.is_enabled && self.kick.is_some() && self.size > 0 && !self.is_broken
    }

    /// How many answers the guest has seen written.
    pub fn used_index(&self, memory: &Memory) -> io::Result<u16> {
        let at = place(self.used, 2)?;
        Ok(u16::from_le(memory.load(at, Ordering::Acquire)?))
    }

    /// Begins where the last process ended: behind all answers, and what is under way.
    pub fn resume(&mut self, memory: &Memory, under_way: u16) -> io::Result<()> {
        self.answered = self.used_index(memory)?;
        self.notified = self.answered;
        self.next = self.answered.wrapping_add(under_way);
        Ok(())
    }

    fn has_more(&self, memory: &Memory) -> io::Result<bool> {
        let index = u16::from_le(memory.load(place(self.available, 2)?, Ordering::Acquire)?);
        match index.wrapping_sub(self.next) {
            more if more > self.size => Err(invalid("a ring has more requests than descriptors")),
            more => Ok(more > 0),
        }
    }

    /// Takes the first descriptor of the next request.
    pub fn pop(&mut self, memory: &Memory) -> io::Result<Option<u16>> {
        if !self.has_more(memory)? {
            return Ok(None);
        }
        let at = place(self.available, 4 + 2 * u64::from(self.next % self.size))?;
        let head = u16::from_le(memory.load(at, Ordering::Relaxed)?);
        if head >= self.size {
            return Err(invalid("a request begins with no descriptor"));
        }
        self.next = self.next.wrapping_add(1);
        Ok(Some(head))
    }

    /// The segments of the request that begins with a descriptor.
    pub fn chain(&self, memory: &Memory, head: u16, chain: &mut Chain) -> io::Result<()> {
        chain.readable.clear();
        chain.writable.clear();
        let (mut table, mut size, mut number) = (self.descriptors, u32::from(self.size), head);
        let mut is_indirect = false;
        // As many as there are, and the one that leads to a table.
        for _ in 0..=MOST_SEGMENTS {
            if u32::from(number) >= size {
                return Err(invalid("a request continues with no descriptor"));
            }
            let mut bytes = [0; DESCRIPTOR as usize];
            memory.read(&mut bytes, place(table, DESCRIPTOR * u64::from(number))?)?;
            let words = Words(&bytes);
            let (address, length) = (GuestAddress(words.le64(0)), words.le32(8));
            let flags = words.le16(12);
            if flags & INDIRECT != 0 {
                if is_indirect || flags & NEXT != 0 || length == 0 || length % 16 != 0 {
                    return Err(invalid("a table of descriptors is malformed"));
                }
                (table, size, number, is_indirect) = (address, length / 16, 0, true);
                continue;
            }
            chain.add(Segment { address, length }, flags & WRITABLE != 0)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            number = words.le16(14);
        }
        Err(invalid("a request has no end"))
    }

    /// Answers a request: so many bytes were written.
    pub fn push(&mut self, memory: &Memory, head: u16, written: u32) -> io::Result<()> {
        let at = place(self.used, 4 + 8 * u64::from(self.answered % self.size))?;
        let mut element = [0; 8];
        element[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        element[4..].copy_from_slice(&written.to_le_bytes());
        memory.write(&element, at)?;
        self.answered = self.answered.wrapping_add(1);
        memory.store(
            self.answered.to_le(),
            place(self.used, 2)?,
            Ordering::Release,
        )
    }

    /// Whether the guest is to be notified of the answers since the last call.
    pub fn is_notification_due(&mut self, memory: &Memory) -> io::Result<bool> {
        let new = self.answered.wrapping_sub(self.notified);
        if new == 0 {
            return Ok(false);
        }
        fence(Ordering::SeqCst);
        let is_due = if self.by_index {
            let at = place(self.available, 4 + 2 * u64::from(self.size))?;
            let wanted = u16::from_le(memory.load(at, Ordering::Relaxed)?);
            self.answered.wrapping_sub(wanted).wrapping_sub(1) < new
        } else {
            let flags = u16::from_le(memory.load(self.available, Ordering::Relaxed)?);
            flags & QUIET == 0
        };
        self.notified = self.answered;
        Ok(is_due)
    }

    /// Notifies the guest.
    pub fn interrupt(&self) {
        if let Some(call) = &self.call {
            // It fails if the counter is full, and the guest is notified then.
            let _ = rustix::io::write(call, &1u64.to_ne_bytes());
        }
    }

    /// Has the guest notify the device of more requests. `true`: there are some already.
    pub fn listen(&self, memory: &Memory) -> io::Result<bool> {
        if self.by_index {
            let at = place(self.used, 4 + 8 * u64::from(self.size))?;
            memory.store(self.next.to_le(), at, Ordering::Relaxed)?;
        } else {
            memory.store(0u16, self.used, Ordering::Relaxed)?;
        }
        fence(Ordering::SeqCst);
        self.has_more(memory)
    }

    /// Has the guest not notify the device, if that takes no index.
    pub fn stop_listening(&self, memory: &Memory) -> io::Result<()> {
        match self.by_index {
            true => Ok(()),
            false => memory.store(QUIET.to_le(), self.used, Ordering::Relaxed),
        }
    }
}

fn place(base: GuestAddress, offset: u64) -> io::Result<GuestAddress> {
    let at = base.checked_add(offset);
    at.ok_or_else(|| invalid("a ring is at the end of all memory"))
}
