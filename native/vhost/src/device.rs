//! The disk of a guest: its rings, and what becomes of requests.

mod late;
mod messages;

use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use diffcache_nbd::protocol::{Command, Request as NbdRequest};
use diffcache_ssdcache::rates::Limiter;
use diffcache_ssdcache::shared::index::Facts;
use rustix::event::epoll;
use rustix::event::{poll, PollFd, PollFlags};

use crate::cached::Cached;
use crate::forward::{Answer, Forward};
use crate::inflight::Inflight;
use crate::memory::{Memory, Segment};
use crate::request::{parse, Request, Status, Work, ID_BYTES};
use crate::ring::{Chain, Ring};
use late::Late;
use messages::features;

/// Rings of a guest at most: one for each of its processors.
pub const RINGS: usize = 256;
/// Bytes of requests that are under way, beyond which no more are taken.
const MOST_BYTES: usize = 16 << 20;
/// What a request counts as at least: it takes memory, and the daemon time, without data, too.
const LEAST_BYTES: usize = 16 << 10;
/// Requests of a ring that are taken before others have their turn.
const TURN: usize = 256;

/// A request that the daemon serves.
struct Pending {
    place: Place,
    /// Where the data of a read go.
    into: Vec<Segment>,
    status: Segment,
    bytes: usize,
}

/// A read of the device, and what belongs to it.
type Reading = (Place, Request, Vec<Segment>);
/// A ring, and the first descriptor of a request.
type Place = (usize, u16);

/// The disk.
pub struct Device {
    cached: Cached<Reading>,
    facts: Facts,
    forward: Forward,
    epoll: std::os::fd::OwnedFd,
    memory: Memory,
    rings: Vec<Ring>,
    /// Features of the guest, and of the protocol.
    features: u64,
    protocol: u64,
    backend: Option<std::os::unix::net::UnixStream>,
    inflight: Option<Inflight>,
    pending: Vec<Option<Pending>>,
    free: Vec<usize>,
    bytes: usize,
    chain: Chain,
    size: u64,
    /// Rings that have more requests than were taken.
    waiting: Vec<usize>,
    /// What the volume may do, and requests that wait for it.
    limiter: Limiter<Late>,
}

impl Device {
    /// A disk that is not connected. The descriptors of rings are added to `epoll`, with their numbers.
    pub fn new(cached: Cached<Reading>, forward: Forward, epoll: std::os::fd::OwnedFd) -> Self {
        Self {
            facts: cached.index.facts(),
            size: cached.index.size(),
            limiter: Limiter::new(cached.index.rates(), Instant::now()),
            cached,
            forward,
            epoll,
            memory: Memory::default(),
            rings: (0..RINGS).map(|_| Ring::default()).collect(),
            features: 0,
            protocol: 0,
            backend: None,
            inflight: None,
            pending: Vec::new(),
            free: Vec::new(),
            bytes: 0,
            chain: Chain::default(),
            waiting: Vec::new(),
        }
    }

    pub fn epoll(&self) -> std::os::fd::BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Begins to serve a ring that has become ready: first what the process before this one left.
    fn start(&mut self, number: usize) -> io::Result<()> {
        let ring = &mut self.rings[number];
        if !ring.is_ready() || ring.is_started {
            return Ok(());
        }
        ring.is_started = true;
        let used = ring.used_index(&self.memory)?;
        let left = match &mut self.inflight {
            Some(inflight) => inflight.under_way(number, used)?,
            None => Vec::new(),
        };
        let base = ring.next;
        ring.resume(&self.memory, left.len() as u16)?;
        if left.is_empty() {
            ring.next = base;
        }
        if let Some(kick) = &ring.kick {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(
                &self.epoll,
                kick,
                epoll::EventData::new_u64(number as u64),
                flags,
            )?;
        }
        let begun = Instant::now();
        for head in left {
            self.take(number, head, begun)?;
        }
        self.serve(number);
        Ok(())
    }

    /// Ends to serve a ring: what is under way is completed.
    fn stop(&mut self, number: usize) -> io::Result<()> {
        if let Some(kick) = self.rings[number].kick.take() {
            // It is not there if the ring was never ready.
            let _ = epoll::delete(&self.epoll, kick);
        }
        self.begin_all(number);
        while self.rings[number].running > 0 {
            self.forward.send()?;
            if self.cached.reads.is_busy() {
                self.cached.reads.wait(false)?;
                self.take_reads();
                continue;
            }
            let both = PollFlags::IN | PollFlags::OUT;
            let is_sending = self.forward.has_output();
            let wanted = if is_sending { both } else { PollFlags::IN };
            let file = self.forward.file();
            poll(&mut [PollFd::new(&file, wanted)], None)?;
            self.take_answers()?;
        }
        self.notify(number);
        self.rings[number].call = None;
        self.rings[number].is_started = false;
        Ok(())
    }

    /// Serves what a guest has put into a ring.
    pub fn serve(&mut self, number: usize) {
        if !self.rings.get(number).is_some_and(Ring::is_ready) {
            return;
        }
        let served = self.serve_some(number);
        self.see_to(number, served);
        self.cached.publish();
        self.notify(number);
    }

    fn serve_some(&mut self, number: usize) -> io::Result<()> {
        let begun = Instant::now();
        self.rings[number].stop_listening(&self.memory)?;
        for _ in 0..TURN {
            if self.bytes >= MOST_BYTES {
                break;
            }
            match self.rings[number].pop(&self.memory)? {
                Some(head) => self.take(number, head, begun)?,
                None if self.rings[number].listen(&self.memory)? => {}
                None => return Ok(()),
            }
        }
        self.waiting.push(number);
        Ok(())
    }

    /// Whether some ring is to be served again now.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty() && self.bytes < MOST_BYTES
    }

    /// Serves rings again that had more requests than were taken.
    pub fn serve_waiting(&mut self) {
        if self.has_waiting() {
            let waiting = std::mem::take(&mut self.waiting);
            waiting.into_iter().for_each(|number| self.serve(number));
        }
    }

    /// Begins a request.
    fn take(&mut self, number: usize, head: u16, begun: Instant) -> io::Result<()> {
        if let Some(inflight) = &mut self.inflight {
            inflight.begin(number, head)?;
        }
        let mut chain = std::mem::take(&mut self.chain);
        let parsed = self.rings[number]
            .chain(&self.memory, head, &mut chain)
            .and_then(|()| parse(&self.memory, &mut chain, self.size));
        let done = match parsed {
            Ok(request) => self.admit((number, head), &request, &mut chain, begun),
            Err(error) => {
                log::debug!("Could not answer a request: {error}");
                self.answer(number, head, 0)
            }
        };
        self.chain = chain;
        done
    }

    fn begin(
        &mut self,
        place: Place,
        request: &Request,
        chain: &mut Chain,
        begun: Instant,
    ) -> io::Result<()> {
        let status = request.status;
        match request.work {
            Work::Refuse(how) => self.complete(place, (&[], &[]), (status, how)),
            Work::Id => {
                let id = self.facts.serial[..ID_BYTES].to_vec();
                self.complete(place, (&id, &chain.writable), (status, Status::Ok))
            }
            Work::Read { offset, length } if self.cached.seek(offset, length) => {
                if let Some(data) = self.cached.read_now(begun) {
                    let put = self.memory.scatter(data, &chain.writable);
                    return self.finish(place, put.map(|()| length), (status, Status::Ok));
                }
                let reading = (place, *request, std::mem::take(&mut chain.writable));
                match self.cached.begin(reading, begun) {
                    None => {
                        self.rings[place.0].running += 1;
                        Ok(())
                    }
                    Some((_, _, into)) => {
                        chain.writable = into;
                        self.pass_on(place, request, chain)
                    }
                }
            }
            _ => self.pass_on(place, request, chain),
        }
    }

    /// Has the daemon do a request.
    fn pass_on(&mut self, place: Place, request: &Request, chain: &mut Chain) -> io::Result<()> {
        let (command, offset, length) = match request.work {
            Work::Read { offset, length } => (Command::Read, offset, length),
            Work::Write { offset, length } => (Command::Write, offset, length),
            Work::Discard { offset, length } => (Command::Trim, offset, length),
            Work::Zero { offset, length } => (Command::WriteZeroes, offset, length),
            _ => (Command::Flush, 0, 0),
        };
        let is_read = command == Command::Read;
        // Without the command to flush, each write is durable.
        let is_durable = self.features & features::FLUSH == 0;
        let number = self.free.pop().unwrap_or(self.pending.len());
        let asked = NbdRequest {
            command,
            is_durable: is_durable && !is_read && command != Command::Flush,
            cookie: 0,
            offset,
            length,
        };
        let (memory, readable) = (&self.memory, &chain.readable);
        let asked = (&asked, if is_read { length } else { 0 });
        let added = self.forward.add(number, asked, |output| match command {
            Command::Write => memory.gather(readable, output),
            _ => Ok(()),
        });
        if number == self.pending.len() {
            self.pending.push(None);
        }
        if added.is_err() {
            self.free.push(number);
            return self.finish(place, Ok(0), (request.status, Status::Failed));
        }
        let has_data = is_read || command == Command::Write;
        let bytes = if has_data { length as usize } else { 0 };
        let pending = Pending {
            place,
            into: std::mem::take(&mut chain.writable),
            status: request.status,
            bytes: bytes.max(LEAST_BYTES),
        };
        self.bytes += pending.bytes;
        self.rings[place.0].running += 1;
        self.pending[number] = Some(pending);
        Ok(())
    }

    /// Writes the data and the status of a request, and answers it.
    fn complete(
        &mut self,
        place: Place,
        (data, into): (&[u8], &[Segment]),
        status: (Segment, Status),
    ) -> io::Result<()> {
        let put = self.memory.scatter(data, into);
        self.finish(place, put.map(|()| data.len() as u32), status)
    }

    /// Writes the status of a request, and answers it. What cannot be written has no data, or no status.
    fn finish(
        &mut self,
        (number, head): Place,
        written: io::Result<u32>,
        (at, status): (Segment, Status),
    ) -> io::Result<()> {
        let (written, status) = written.map_or((0, Status::Failed), |bytes| (bytes, status));
        let put = self.memory.write(&[status as u8], at.address);
        self.answer(number, head, put.map_or(0, |()| written + 1))
    }

    fn answer(&mut self, number: usize, head: u16, written: u32) -> io::Result<()> {
        let ring = &mut self.rings[number];
        match &self.inflight {
            None => ring.push(&self.memory, head, written),
            Some(inflight) => {
                inflight.answer(number, head)?;
                ring.push(&self.memory, head, written)?;
                inflight.end(number, head, ring.answered)
            }
        }
    }

    /// Has the kernel read the device, and waits until a read ends or there is something else to do, such
    /// as rings that wait. `false`: there is nothing yet.
    pub fn wait_for_reads(&mut self) -> io::Result<bool> {
        let has_waiting = self.has_waiting();
        if !self.cached.reads.is_busy() {
            return Ok(has_waiting);
        }
        match has_waiting {
            true => self.cached.reads.submit()?,
            false => self.cached.reads.wait(true)?,
        }
        self.take_reads();
        Ok(true)
    }

    /// Completes what was read of the device.
    fn take_reads(&mut self) {
        let mut rings = Vec::new();
        // What was read is in the memory of the reads until another one begins.
        let mut reads = std::mem::take(&mut self.cached.reads);
        while let Some(((reading, sought, begun), bytes)) = reads.next() {
            let (place, request, into) = reading;
            self.rings[place.0].running -= 1;
            if rings.last() != Some(&place.0) {
                rings.push(place.0);
            }
            let done = match self.cached.take((&sought, begun), bytes) {
                Some(data) => self.complete(place, (data, &into), (request.status, Status::Ok)),
                None => {
                    let mut chain = Chain {
                        writable: into,
                        ..Chain::default()
                    };
                    self.pass_on(place, &request, &mut chain)
                }
            };
            self.see_to(place.0, done);
        }
        self.cached.reads = reads;
        self.cached.publish();
        rings.into_iter().for_each(|ring| self.notify(ring));
    }

    /// Sends requests to the daemon.
    pub fn send(&mut self) -> io::Result<()> {
        self.forward.send()
    }

    /// Completes what the daemon has served.
    pub fn take_answers(&mut self) -> io::Result<()> {
        let mut answered = Vec::new();
        for answer in self.forward.receive()? {
            let Some(pending) = self.pending.get_mut(answer.number).and_then(Option::take) else {
                continue;
            };
            self.free.push(answer.number);
            self.bytes -= pending.bytes;
            self.rings[pending.place.0].running -= 1;
            if answered.last() != Some(&pending.place.0) {
                answered.push(pending.place.0);
            }
            self.complete_forwarded(&pending, &answer);
        }
        answered.into_iter().for_each(|ring| self.notify(ring));
        Ok(())
    }

    fn complete_forwarded(&mut self, pending: &Pending, answer: &Answer) {
        let status = if answer.is_done {
            Status::Ok
        } else {
            Status::Failed
        };
        let data = (&answer.data[..], &pending.into[..]);
        let done = self.complete(pending.place, data, (pending.status, status));
        self.see_to(pending.place.0, done);
    }

    /// Leaves a ring that could not be answered.
    fn see_to(&mut self, number: usize, done: io::Result<()>) {
        if let Err(error) = done {
            self.rings[number].is_broken = true;
            log::warn!("Ring {number} of the guest is served no longer: {error}");
        }
    }

    fn notify(&mut self, number: usize) {
        let ring = &mut self.rings[number];
        let is_due = ring.size > 0 && ring.is_notification_due(&self.memory).unwrap_or(false);
        if is_due {
            ring.interrupt();
        }
    }

    /// Follows other limits of the volume, and has the guest see another size of it.
    pub fn refresh(&mut self) -> io::Result<()> {
        self.refresh_rates();
        let size = self.cached.index.size();
        if size == self.size {
            return Ok(());
        }
        self.size = size;
        self.tell_of_change()
    }

    fn tell_of_change(&self) -> io::Result<()> {
        match &self.backend {
            None => Ok(()),
            Some(backend) => crate::message::send(
                backend,
                (crate::message::CONFIG_CHANGE, crate::message::Kind::Request),
                &[],
                &[],
            ),
        }
    }
}
