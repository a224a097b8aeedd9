//! Requests of a client, served by several threads.
//!
//! One thread at a time, the reader, takes requests from the socket. Reads that wait for no disk it
//! answers itself, many with one system call. Before it serves a request that may wait, another
//! thread becomes the reader, so that slow requests do not keep others from being served.
//!
//! Reads past the page cache do not wait for one another in threads: see [`direct`].
//!
//! Another thread costs more than a write to the page cache. While such requests are quick (see
//! [`pace`](super::pace)), the thread that is the reader serves them, too. It lends the reader
//! meanwhile: if one of them is not quick after all, a thread that watches takes the reader over.

mod direct;

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_base::sync::{self, thread, Arc, Condvar, Mutex, MutexGuard};

use super::buffers::Buffers;
use super::pace::Pace;
use super::Export;
use crate::protocol::{errno, number, Command, Request, MAX_DATA, REPLY_BYTES};
use direct::{Direct, Step};

/// Threads of a client: requests that wait at the same time.
const MAX_THREADS: usize = 64;
/// A thread that was not needed for this time ends.
const IDLE: Duration = Duration::from_secs(10);
/// A thread that watches ends a loan of the reader after once to twice this time.
const LONGEST: Duration = Duration::from_millis(5);

/// Serves a client that has chosen an export, until it leaves.
///
/// # Errors
/// The client broke the protocol, or the connection failed.
pub fn transmit<E: Export>(stream: UnixStream, export: Arc<E>) -> io::Result<()> {
    let reader = Reader {
        buffers: Buffers::new(),
        direct: Direct::new(export.as_ref(), &stream),
    };
    let connection = Arc::new(Connection {
        stream,
        export,
        turns: Mutex::new(Turns {
            reader: Some(Box::new(reader)),
            tasks: VecDeque::new(),
            loan: None,
            loans: 0,
            watch: Watch::None,
            is_open: true,
            threads: 1,
            waiting: 0,
            pace: Pace::default(),
        }),
        changed: Condvar::new(),
        ended: Condvar::new(),
        sending: Mutex::new(()),
        failure: Mutex::new(None),
    });
    connection.work();
    // Others complete what they have begun.
    let mut turns = connection.turns.lock().unpoisoned();
    while turns.threads > 0 {
        let waited = connection.ended.wait(turns);
        turns = waited.unpoisoned();
    }
    let failure = connection.failure.lock().unpoisoned().take();
    failure.map_or(Ok(()), Err)
}

/// Whether a thread looks for loans that take long.
#[derive(Clone, Copy, PartialEq)]
enum Watch {
    None,
    /// One was called, and has not come yet.
    Called,
    Watched,
}

/// What a thread needs to take requests.
struct Reader<R> {
    buffers: Buffers,
    direct: Direct<R>,
}

/// What a thread does next.
enum Turn<R> {
    /// Take requests.
    Read(Box<Reader<R>>),
    /// Serve one that another thread took.
    Serve(Request, Task<R>),
}

/// Which thread takes requests, and how many there are.
struct Turns<R> {
    /// None while a thread has it for itself.
    reader: Option<Box<Reader<R>>>,
    /// Requests that the reader took for threads that were called.
    tasks: VecDeque<(Request, Task<R>)>,
    /// The number of the loan, while the thread that serves a request needs the reader back.
    loan: Option<u64>,
    /// How many loans there were.
    loans: u64,
    watch: Watch,
    /// Whether more requests are taken.
    is_open: bool,
    threads: usize,
    /// Those that wait for their turn.
    waiting: usize,
    /// How long requests take that may wait.
    pace: Pace,
}

impl<R> Turns<R> {
    /// Takes the reader, if no thread needs it back.
    fn take_reader(&mut self) -> Option<Box<Reader<R>>> {
        if self.loan.is_some() {
            return None;
        }
        let reader = self.reader.take()?;
        if self.watch == Watch::Called {
            // By the thread that was called, perhaps: the next loan calls again.
            self.watch = Watch::None;
        }
        Some(reader)
    }

    /// Ends a loan; none if it has ended.
    fn take_back(&mut self, loan: u64) -> Option<Box<Reader<R>>> {
        if self.loan != Some(loan) || !self.is_open {
            return None;
        }
        self.loan = None;
        self.reader.take()
    }
}

struct Connection<E: Export> {
    stream: UnixStream,
    export: Arc<E>,
    turns: Mutex<Turns<E::Read>>,
    /// A thread may become the reader, or none will.
    changed: Condvar,
    /// A thread ended.
    ended: Condvar,
    /// The thread that sends has it.
    sending: Mutex<()>,
    /// Why the connection ended, if the client did not end it.
    failure: Mutex<Option<io::Error>>,
}

/// A request that may wait, with what was taken or begun.
enum Task<R> {
    Read(R),
    Write(Vec<u8>),
    Zero,
    Flush,
    Refuse(u32),
    /// A read that is to be begun.
    LateRead,
    /// One that waits until it may begin.
    Limited(Box<Task<R>>),
}

impl<E: Export> Connection<E> {
    /// Serves requests until there are no more, or others suffice.
    fn work(self: &Arc<Self>) {
        let mut answer = Vec::new();
        let mut kept = None;
        while let Some(turn) = kept.take().map(Turn::Read).or_else(|| self.take_turn()) {
            let mut reader = match turn {
                Turn::Read(reader) => reader,
                Turn::Serve(request, task) => {
                    self.perform(&request, task, &mut answer);
                    self.send(&answer);
                    continue;
                }
            };
            match self.take(&mut reader) {
                Ok(Some(task)) if reader.direct.is_busy() => {
                    if let Some((request, task)) = self.hand_over(task) {
                        self.send_all(&mut reader);
                        self.perform(&request, task, &mut answer);
                        self.send(&answer);
                    }
                    kept = Some(reader);
                }
                Ok(Some((request, task))) if !is_paced(&request, &task) => {
                    self.send_all(&mut reader);
                    self.pass_turn(reader);
                    self.perform(&request, task, &mut answer);
                    self.send(&answer);
                }
                Ok(Some((request, task))) => {
                    let loan = self.begin(reader);
                    let started = Instant::now();
                    self.perform(&request, task, &mut answer);
                    kept = self.end(loan, started.elapsed(), &answer);
                }
                Ok(None) => {
                    let settled = self.settle(&mut reader, &mut answer);
                    settled.map_or_else(|error| self.fail(error), |()| self.close());
                }
                Err(error) => self.fail(error),
            }
        }
        self.turns.lock().unpoisoned().threads -= 1;
        self.ended.notify_all();
    }

    /// Waits until there is something to do; none: this thread is not needed any more.
    fn take_turn(&self) -> Option<Turn<E::Read>> {
        let mut turns = self.turns.lock().unpoisoned();
        loop {
            if let Some((request, task)) = turns.tasks.pop_front() {
                return Some(Turn::Serve(request, task));
            }
            if !turns.is_open {
                return None;
            }
            if let Some(reader) = turns.take_reader() {
                return Some(Turn::Read(reader));
            }
            if turns.watch == Watch::Called {
                turns = self.watch(turns);
                continue;
            }
            let (woken, has_timed_out) = self.wait(turns, IDLE);
            turns = woken;
            let is_called =
                turns.reader.is_some() || turns.watch == Watch::Called || !turns.tasks.is_empty();
            if has_timed_out && !is_called && turns.waiting > 0 {
                return None;
            }
        }
    }

    /// Waits while the reader is lent again and again. Ends a loan that takes long.
    fn watch<'a>(
        &'a self,
        mut turns: MutexGuard<'a, Turns<E::Read>>,
    ) -> MutexGuard<'a, Turns<E::Read>> {
        turns.watch = Watch::Watched;
        loop {
            let seen = turns.loans;
            let (woken, has_timed_out) = self.wait(turns, LONGEST);
            turns = woken;
            if has_timed_out && turns.loans == seen {
                turns.loan = None;
            }
            let is_free = turns.loan.is_none() && turns.reader.is_some() || !turns.tasks.is_empty();
            let is_over = has_timed_out && turns.loans == seen;
            if is_over || is_free || !turns.is_open {
                turns.watch = Watch::None;
                return turns;
            }
        }
    }

    fn wait<'a>(
        &'a self,
        mut turns: MutexGuard<'a, Turns<E::Read>>,
        longest: Duration,
    ) -> (MutexGuard<'a, Turns<E::Read>>, bool) {
        turns.waiting += 1;
        let place = (&self.turns, &self.changed);
        let (mut woken, has_timed_out) = sync::wait_timeout(place, turns, longest);
        woken.waiting -= 1;
        (woken, has_timed_out)
    }

    /// Lends the reader or, if requests take long, leaves it to another thread. Returns the number
    /// of the loan.
    fn begin(self: &Arc<Self>, mut reader: Box<Reader<E::Read>>) -> Option<u64> {
        let mut turns = self.turns.lock().unpoisoned();
        if !turns.pace.is_quick() {
            drop(turns);
            self.send_all(&mut reader);
            self.pass_turn(reader);
            return None;
        }
        turns.loans += 1;
        turns.loan = Some(turns.loans);
        turns.reader = Some(reader);
        let loan = turns.loan;
        if turns.watch == Watch::None {
            turns.watch = Watch::Called;
            self.call(turns, 1);
        }
        loan
    }

    /// Answers a request. Returns the reader, if this thread lent it and may have it back; it has
    /// the answer then.
    fn end(
        &self,
        loan: Option<u64>,
        spent: Duration,
        answer: &[u8],
    ) -> Option<Box<Reader<E::Read>>> {
        let mut turns = self.turns.lock().unpoisoned();
        turns.pace.count(spent);
        let reader = loan.and_then(|loan| turns.take_back(loan));
        drop(turns);
        let Some(mut reader) = reader else {
            self.send(answer);
            return None;
        };
        if !reader.buffers.add(answer) {
            self.send_all(&mut reader);
            self.send(answer);
        }
        Some(reader)
    }

    /// Makes another thread the reader; the only thread stays it, and becomes it again later.
    fn pass_turn(self: &Arc<Self>, reader: Box<Reader<E::Read>>) {
        let mut turns = self.turns.lock().unpoisoned();
        turns.reader = Some(reader);
        let needed = turns.tasks.len() + 1;
        self.call(turns, needed);
    }

    /// Calls a thread that waits, or a new one if fewer wait than are needed. `false`: there are no
    /// more.
    fn call(self: &Arc<Self>, mut turns: MutexGuard<'_, Turns<E::Read>>, needed: usize) -> bool {
        let is_missing = turns.waiting < needed;
        let starts = is_missing && turns.threads < MAX_THREADS;
        turns.threads += usize::from(starts);
        drop(turns);
        if !starts {
            self.changed.notify_one();
            return !is_missing;
        }
        let connection = self.clone();
        let work = move || connection.work();
        let started = thread::Builder::new().spawn(work);
        if let Err(error) = &started {
            log::warn!(
                "Could not start a thread, requests of a client wait for each other: {error}"
            );
            self.turns.lock().unpoisoned().threads -= 1;
        }
        started.is_ok()
    }

    /// Takes no more requests.
    fn close(&self) {
        self.turns.lock().unpoisoned().is_open = false;
        self.changed.notify_all();
    }

    /// Notes why the connection cannot be used, and ends it.
    fn fail(&self, error: io::Error) {
        self.failure.lock().unpoisoned().get_or_insert(error);
        // Fails if it has ended already.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.close();
    }

    /// Answers reads that wait for nothing, up to a request that may; none: the client left.
    /// Answers that were not sent yet are in the reader.
    fn take(&self, reader: &mut Reader<E::Read>) -> io::Result<Option<(Request, Task<E::Read>)>> {
        loop {
            if reader.buffers.is_full() {
                self.send_all(reader);
            }
            match self.complete(reader)? {
                Step::Nothing => {}
                Step::Done => continue,
                Step::Left => return Ok(None),
                Step::Again(request, read) => return Ok(Some((request, Task::Read(read)))),
            }
            let waits = reader.direct.is_full();
            if waits || !reader.buffers.has_request() {
                self.send_all(reader);
                if !self.wait_for_more(reader)? {
                    return Ok(None);
                }
                continue;
            }
            let request = reader.buffers.request()?;
            let length = request.length as usize;
            let task = match request.command {
                Command::Disconnect => {
                    self.send_all(reader);
                    return Ok(None);
                }
                Command::Write if request.length > MAX_DATA => {
                    return Err(io::Error::new(
                        ErrorKind::InvalidData,
                        "the client sent a write that is too long",
                    ));
                }
                Command::Write => {
                    if !reader.buffers.has(length) {
                        self.send_all(reader);
                    }
                    let data = reader.buffers.data(&self.stream, length)?;
                    self.checked(&request, Task::Write(data))
                }
                Command::Read => match self.checked(&request, Task::LateRead) {
                    Task::LateRead => {
                        let read = self.export.begin_read(request.offset, length);
                        match self.begin_direct(reader, &request, read) {
                            None => continue,
                            Some(read) => Task::Read(read),
                        }
                    }
                    task => task,
                },
                Command::Trim | Command::WriteZeroes => self.checked(&request, Task::Zero),
                Command::Flush => Task::Flush,
                Command::BlockStatus | Command::Other => Task::Refuse(errno::EINVAL),
            };
            return Ok(Some((request, task)));
        }
    }

    /// What is done with a request: it may have to wait, or be refused.
    fn checked(&self, request: &Request, task: Task<E::Read>) -> Task<E::Read> {
        match self.check(request) {
            Some(refusal) => Task::Refuse(refusal),
            None if self.export.may_begin(request) => task,
            None => Task::Limited(Box::new(task)),
        }
    }

    /// The error of a request that is not within the export, or too long.
    fn check(&self, request: &Request) -> Option<u32> {
        let end = request.offset.checked_add(u64::from(request.length));
        let is_write = request.command != Command::Read;
        match end {
            Some(end) if end <= self.export.size() => {
                let is_long = request.command == Command::Read && request.length > MAX_DATA;
                is_long.then_some(errno::EOVERFLOW)
            }
            _ if is_write => Some(errno::ENOSPC),
            _ => Some(errno::EINVAL),
        }
    }

    /// Does what a request says; `answer` is what the client gets.
    fn perform(&self, request: &Request, task: Task<E::Read>, answer: &mut Vec<u8>) {
        answer.clear();
        let length = u64::from(request.length);
        let is_durable = request.is_durable && request.command != Command::Read;
        let mut read = |read| {
            answer.resize(REPLY_BYTES + request.length as usize, 0);
            self.export.read(read, &mut answer[REPLY_BYTES..])
        };
        let result = match task {
            Task::Read(begun) => read(begun),
            Task::LateRead => {
                let length = request.length as usize;
                read(self.export.begin_read(request.offset, length))
            }
            Task::Write(data) => self.export.write(&data, request.offset),
            Task::Zero => self.export.zero(request.offset, length),
            Task::Flush => self.export.flush(),
            Task::Refuse(error) => return answer.extend(request.reply(error).encode()),
            Task::Limited(task) => {
                let has_left = || !self.turns.lock().unpoisoned().is_open;
                self.export.wait(request, &has_left);
                return self.perform(request, *task, answer);
            }
        };
        let result = result.and_then(|()| match is_durable {
            true => self.export.flush(),
            false => Ok(()),
        });
        let error = result.map_or_else(|error| number(&error), |()| 0);
        if error != 0 {
            // Data follow a read that succeeded.
            answer.clear();
        }
        answer.resize(answer.len().max(REPLY_BYTES), 0);
        answer[..REPLY_BYTES].copy_from_slice(&request.reply(error).encode());
    }

    fn send_all(&self, reader: &mut Reader<E::Read>) {
        if !reader.buffers.answers().is_empty() {
            self.send(reader.buffers.answers());
            reader.buffers.clear_answers();
        }
    }

    fn send(&self, bytes: &[u8]) {
        let sending = self.sending.lock().unpoisoned();
        let sent = (&self.stream).write_all(bytes);
        drop(sending);
        if let Err(error) = sent {
            self.fail(error);
        }
    }
}

/// Whether a request is one of those of which some are quick, without a disk.
fn is_paced<R>(request: &Request, task: &Task<R>) -> bool {
    match task {
        Task::Read(_) => true,
        Task::Write(_) => !request.is_durable,
        _ => false,
    }
}
