//! Reads of a file and of a socket by io_uring: many with one system call.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use io_uring::register::Restriction;
use io_uring::squeue::Flags;
use io_uring::types::Fixed;
use io_uring::{opcode, squeue, IoUring, Probe};

/// Reads of the file at the same time.
const READS: usize = 64;
/// Bytes of a read at most.
pub const LARGEST: usize = 64 << 10;
/// Pieces of a read at most, and of all of them.
pub const PIECES: usize = 16;
const ALL_PIECES: usize = 128;
/// Bytes that are received at once.
const INPUT: usize = 32 << 10;
/// What the kernel takes as addresses for `O_DIRECT`.
const ALIGNMENT: usize = 4096;
/// The numbers of the files.
const DIRECT: Fixed = Fixed(0);
const BUFFERED: Fixed = Fixed(1);
const SOCKET: Fixed = Fixed(2);
/// Tell completions of others from those of reads.
const RECEIVED: u64 = u64::MAX;
const CANCELLED: u64 = u64::MAX - 1;
const READY: u64 = u64::MAX - 2;
/// What a socket with something to receive is ready for (poll(2)).
const READABLE: u32 = 1;

/// Operations of the kernel.
const NEEDED: [u8; 4] = [
    opcode::Read::CODE,
    opcode::Recv::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
];

/// A file that is open twice.
#[derive(Debug, Clone, Copy)]
pub struct Disk<'a> {
    /// With `O_DIRECT`: past the memory of the system.
    pub direct: BorrowedFd<'a>,
    /// Through it.
    pub buffered: BorrowedFd<'a>,
}

/// What became of something that was begun.
pub enum Event<'a, T> {
    /// Bytes were received; none: no more come.
    Received(io::Result<&'a [u8]>),
    /// A read of the file ended.
    Read(Read<'a, T>),
}

/// A read of the file that ended.
pub struct Read<'a, T> {
    /// What was given to [`Ring::begin`].
    pub item: T,
    /// Its bytes; none: it failed.
    pub bytes: Option<&'a [u8]>,
    /// What it took, if its end was waited for.
    pub took: Option<Duration>,
}

struct Begun<T> {
    item: T,
    length: usize,
    pieces: usize,
    is_whole: bool,
    /// None: not yet given to the kernel.
    at: Option<Instant>,
}

/// A queue of the kernel, and the memory that it writes to.
pub struct Ring<T> {
    ring: IoUring,
    /// Room for each read, then for what is received. Only through pointers, while the kernel writes.
    memory: Vec<u8>,
    /// The first aligned byte of it.
    start: usize,
    reads: Vec<Option<Begun<T>>>,
    free: Vec<usize>,
    pieces: usize,
    is_receiving: bool,
    /// When the last wait ended; none: there was nothing to wait for.
    waited: Option<Instant>,
}

/// Finds out whether this process may use io_uring.
///
/// # Errors
/// The kernel forbids it, or is too old.
pub fn check() -> io::Result<()> {
    let ring = IoUring::new(2)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    enable(&queue()?)?;
    match NEEDED.iter().all(|code| probe.is_supported(*code)) {
        true => Ok(()),
        false => Err(ErrorKind::Unsupported.into()),
    }
}

/// A queue without interrupts of the thread, if the kernel has such. It takes nothing yet.
fn queue() -> io::Result<IoUring> {
    let entries = (2 * ALL_PIECES) as u32;
    let disabled = || {
        let mut builder = IoUring::builder();
        builder.setup_r_disabled();
        builder
    };
    match disabled().setup_coop_taskrun().build(entries) {
        Err(error) if error.kind() == ErrorKind::InvalidInput => disabled().build(entries),
        found => found,
    }
}

/// Has a queue take what is used here alone, of its own files: who takes a process over that may make
/// no other system calls cannot make them by it.
fn enable(ring: &IoUring) -> io::Result<()> {
    let mut allowed: Vec<_> = NEEDED.map(Restriction::sqe_op).into();
    allowed.push(Restriction::sqe_flags_allowed(Flags::FIXED_FILE.bits()));
    ring.submitter().register_restrictions(&mut allowed)?;
    ring.submitter().register_enable_rings()
}

impl<T> Ring<T> {
    /// A ring for a file and a socket.
    ///
    /// # Errors
    /// The kernel has no room for it.
    pub fn new(disk: Disk<'_>, socket: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = queue()?;
        let files = [disk.direct, disk.buffered, socket].map(|file| file.as_raw_fd());
        ring.submitter().register_files(&files)?;
        enable(&ring)?;
        let memory = vec![0; READS * LARGEST + INPUT + ALIGNMENT];
        Ok(Self {
            ring,
            start: memory.as_ptr().align_offset(ALIGNMENT),
            memory,
            reads: (0..READS).map(|_| None).collect(),
            free: (0..READS).rev().collect(),
            pieces: 0,
            is_receiving: false,
            waited: None,
        })
    }

    /// Whether reads are under way.
    pub fn is_reading(&self) -> bool {
        self.pieces > 0
    }

    /// Whether the kernel has anything to do.
    pub fn is_busy(&self) -> bool {
        self.is_reading() || self.is_receiving
    }

    /// Whether a read has to end before another one begins.
    pub fn is_full(&self) -> bool {
        self.free.is_empty() || self.pieces + PIECES > ALL_PIECES
    }

    /// Begins to read pieces of the file, at most [`PIECES`] and together [`LARGEST`], as offsets and
    /// lengths, through memory or not. Returns the item if the ring [is full](Self::is_full).
    pub fn begin(&mut self, (pieces, is_buffered): (&[(u64, usize)], bool), item: T) -> Option<T> {
        let file = if is_buffered { BUFFERED } else { DIRECT };
        let length = pieces.iter().map(|(_, length)| length).sum();
        let fits = length <= LARGEST && (1..=PIECES).contains(&pieces.len());
        if !fits || self.is_full() {
            return Some(item);
        }
        let Some(number) = self.free.pop() else {
            return Some(item);
        };
        let mut at = self.room(number);
        for (offset, length) in pieces {
            let read = opcode::Read::new(file, self.pointer(at), *length as u32)
                .offset(*offset)
                .build()
                .user_data((length << 16 | number) as u64);
            self.push(&read);
            at += length;
        }
        self.pieces += pieces.len();
        self.reads[number] = Some(Begun {
            item,
            length,
            pieces: pieces.len(),
            is_whole: true,
            at: None,
        });
        None
    }

    /// Begins to receive, if that is not under way.
    pub fn receive(&mut self) {
        if !self.is_receiving {
            let into = self.pointer(self.room(READS));
            let receive = opcode::Recv::new(SOCKET, into, INPUT as u32);
            self.push(&receive.build().user_data(RECEIVED));
            self.is_receiving = true;
        }
    }

    /// Begins to wait for something to receive, if that is not under way, in place of
    /// [`receive`](Self::receive).
    pub fn watch(&mut self) {
        if !self.is_receiving {
            let watch = opcode::PollAdd::new(SOCKET, READABLE).build();
            self.push(&watch.user_data(READY));
            self.is_receiving = true;
        }
    }

    /// Has the kernel do what was begun, and waits until there is an [event](Self::next_event).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn wait(&mut self) -> io::Result<()> {
        let waits = self.ring.completion().is_empty();
        self.enter(waits)
    }

    /// Has the kernel do what was begun.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn submit(&mut self) -> io::Result<()> {
        self.enter(false)
    }

    fn enter(&mut self, waits: bool) -> io::Result<()> {
        let begun = Instant::now();
        let new = self.reads.iter_mut().flatten();
        new.for_each(|read| read.at = read.at.or(Some(begun)));
        loop {
            match self.ring.submit_and_wait(usize::from(waits)) {
                Ok(_) => break,
                Err(error) if is_passing(&error) => {
                    if !waits || !self.ring.completion().is_empty() {
                        break;
                    }
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
        self.waited = waits.then(Instant::now);
        Ok(())
    }

    /// Takes the next read that ended, where nothing is [received](Self::receive).
    pub fn next_read(&mut self) -> Option<Read<'_, T>> {
        loop {
            let (number, result) = self.completion()?;
            match number {
                CANCELLED => {}
                READY | RECEIVED => self.is_receiving = false,
                number => {
                    if let Some(number) = self.end_piece(number as usize, result) {
                        return self.end(number);
                    }
                }
            }
        }
    }

    fn completion(&mut self) -> Option<(u64, i32)> {
        let ended = self.ring.completion().next()?;
        Some((ended.user_data(), ended.result()))
    }

    /// Takes the next thing that ended.
    pub fn next_event(&mut self) -> Option<Event<'_, T>> {
        loop {
            let (number, result) = self.completion()?;
            match number {
                CANCELLED => {}
                RECEIVED => {
                    self.is_receiving = false;
                    if !self.received(result).is_err_and(|error| is_passing(&error)) {
                        return Some(Event::Received(self.received(result)));
                    }
                }
                number => {
                    if let Some(number) = self.end_piece(number as usize, result) {
                        return self.end(number).map(Event::Read);
                    }
                }
            }
        }
    }

    fn received(&self, result: i32) -> io::Result<&[u8]> {
        let count = usize::try_from(result);
        let count = count.map_err(|_| io::Error::from_raw_os_error(-result))?;
        Ok(self.bytes(READS, count))
    }

    /// Ends a piece. Returns the number of the read if it was its last one.
    fn end_piece(&mut self, number: usize, result: i32) -> Option<usize> {
        let (number, length) = (number & 0xffff, number >> 16);
        let read = self.reads.get_mut(number)?.as_mut()?;
        read.is_whole &= usize::try_from(result) == Ok(length);
        read.pieces -= 1;
        self.pieces -= 1;
        (read.pieces == 0).then_some(number)
    }

    fn end(&mut self, number: usize) -> Option<Read<'_, T>> {
        let read = self.reads[number].take()?;
        self.free.push(number);
        let took = self.waited.zip(read.at).map(|(to, from)| to - from);
        let bytes = read.is_whole.then(|| self.bytes(number, read.length));
        Some(Read {
            item: read.item,
            bytes,
            took,
        })
    }

    /// Where the memory of a read begins, or that of what is received.
    fn room(&self, number: usize) -> usize {
        self.start + number * LARGEST
    }

    fn pointer(&mut self, at: usize) -> *mut u8 {
        // SAFETY: all rooms are within the memory.
        unsafe { self.memory.as_mut_ptr().add(at) }
    }

    /// Bytes of a room that the kernel does not write to.
    fn bytes(&self, number: usize, length: usize) -> &[u8] {
        // SAFETY: they are within the memory, and initialised; the operation that wrote to the room
        // has ended, and another one begins with a unique borrow of this.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.room(number)), length) }
    }

    /// Adds to the queue, which has room for all pieces, for a receipt and for its end.
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory of the operation is that of this, which waits for its end before it is
        // dropped; no other operation has the same room.
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "more was begun than there is room for");
    }
}

/// Whether the kernel can do it at another time.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy
    )
}

impl<T> Drop for Ring<T> {
    /// Waits until the kernel writes to the memory no more.
    fn drop(&mut self) {
        if self.is_receiving {
            for begun in [RECEIVED, READY] {
                let cancel = opcode::AsyncCancel::new(begun).build();
                self.push(&cancel.user_data(CANCELLED));
            }
        }
        while self.is_busy() {
            if let Err(error) = self.wait() {
                log::error!("Could not end reads: {error}");
                // It stays written to.
                std::mem::forget(std::mem::take(&mut self.memory));
                return;
            }
            while self.next_read().is_some() {}
        }
    }
}
