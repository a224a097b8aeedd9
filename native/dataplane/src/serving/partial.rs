//! Images that diffcached of this host serves while they arrive.
//!
//! Their bytes are in a sparse file of diffcached, which alone knows the leaves that are there. Before a range is sent, diffcached is asked for it
//! on the socket `peers` beside that file; it fetches what is absent, or does not, and verifies what an unclean end left. Then the range goes from the
//! file to the reader.
//!
//! A request on the socket is one byte, 0 for what is there, 1 for what can be fetched or 2 for what is there or arriving, then the offset and the length of the range, u64 little-endian
//! each. The answer is one byte: 0 if the range is in the file, 1 if it is absent, 2 if it could not be fetched, 3 if its bytes follow (where the
//! disk did not take them). A connection carries any number of requests, of one reader after the other.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;

use crate::ids::ObjectKey;
use crate::serving::hints;
use crate::serving::object_file::{regular_size, ObjectsError};
use crate::serving::ranges::{RangeAnswer, RangeRequest, Want, LONGEST_RANGE};
use crate::serving::referrals::{self, HostName, ReferableRequest, Turn};

/// Name of the socket in the folder of an image.
pub const SOCKET: &str = "peers";
/// How long diffcached may take to fetch a range.
pub const FETCH_TIME: Duration = Duration::from_secs(25);
/// How long it may wait for a range that is arriving.
pub const ARRIVING_TIME: Duration = Duration::from_secs(2);
/// Its answer comes a little later than that at the latest.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Idle connections kept to a socket, and for how long: less than diffcached keeps them.
const MOST_IDLE: usize = 8;
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Connections to a socket of diffcached that wait for another request.
struct Connections {
    socket: &'static str,
    /// How long diffcached may take to answer.
    time: Duration,
    idle: Mutex<Vec<(UnixStream, Instant)>>,
}

impl Connections {
    fn new(socket: &'static str, time: Duration) -> Connections {
        Connections {
            socket,
            time,
            idle: Mutex::default(),
        }
    }

    /// Make an exchange over a connection, and over a new one if that ended with its worker.
    fn exchange<T>(
        &self,
        folder: &File,
        run: impl Fn(&UnixStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let (found, stream) = self.begin(folder, run)?;
        self.keep(stream);
        Ok(found)
    }

    /// Make an exchange as `exchange` does, and return the connection, too.
    fn begin<T>(
        &self,
        folder: &File,
        run: impl Fn(&UnixStream) -> io::Result<T>,
    ) -> io::Result<(T, UnixStream)> {
        if let Some(stream) = self.take() {
            match run(&stream) {
                Ok(found) => return Ok((found, stream)),
                Err(error) if is_ended(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let stream = UnixStream::connect(within(folder, self.socket))?;
        stream.set_read_timeout(Some(self.time))?;
        stream.set_write_timeout(Some(self.time))?;
        Ok((run(&stream)?, stream))
    }

    fn take(&self) -> Option<UnixStream> {
        let (stream, since) = self.idle.lock().unpoisoned().pop()?;
        (since.elapsed() < IDLE_TIME).then_some(stream)
    }

    fn keep(&self, stream: UnixStream) {
        let mut idle = self.idle.lock().unpoisoned();
        idle.retain(|(_, since)| since.elapsed() < IDLE_TIME);
        if idle.len() < MOST_IDLE {
            idle.push((stream, Instant::now()));
        }
    }
}

/// Return whether the other end of a connection is gone.
fn is_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// An image of diffcached.
pub struct Partial {
    folder: File,
    file: Arc<File>,
    size: u64,
    ranges: Connections,
    hints: Connections,
    referrals: Connections,
}

impl Partial {
    /// Open an image by its folder in the state of diffcached.
    ///
    /// # Errors
    /// `NotAFile`, or of the system.
    pub fn open(key: ObjectKey, folder: &Path) -> Result<Partial, ObjectsError> {
        let mut options = File::options();
        options.read(true).custom_flags(libc::O_NOFOLLOW);
        let folder = options.open(folder)?;
        let data = within(&folder, &format!("{}.data", key.id_hex()));
        let file = options.open(data)?;
        let size = regular_size(&rustix::fs::fstat(&file).map_err(io::Error::from)?)?;
        Ok(Partial {
            folder,
            file: Arc::new(file),
            size,
            ranges: Connections::new(SOCKET, ANSWER_TIME),
            hints: Connections::new(hints::SOCKET, hints::ANSWER_TIME),
            referrals: Connections::new(referrals::SOCKET, ANSWER_TIME),
        })
    }

    /// Bytes of the image.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What diffcached knows besides what a requester does; `None` if it has no hints.
    ///
    /// # Errors
    /// `InvalidData` if one of the texts is none; else of the connection.
    pub fn hints(&self, known: &str) -> io::Result<Option<String>> {
        if !hints::is_text(known) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let text = self.hints.exchange(&self.folder, |mut stream| {
            hints::write(&mut stream, known)?;
            Ok(hints::read(&mut stream)?.ok_or(io::ErrorKind::UnexpectedEof)?)
        })?;
        Ok((!text.is_empty()).then_some(text))
    }

    fn ask(&self, request: RangeRequest) -> io::Result<RangeAnswer> {
        self.ranges.exchange(&self.folder, |mut stream| {
            stream.write_all(&request.encode())?;
            RangeAnswer::read(&mut stream, request.len)
        })
    }

    /// Ask for a range for a host that follows referrals, and return what counts it until it was sent.
    fn ask_for(
        self: &Arc<Self>,
        request: ReferableRequest,
    ) -> io::Result<(Turn, Option<Answering>)> {
        let begun = self.referrals.begin(&self.folder, |mut stream| {
            request.write(&mut stream)?;
            Turn::read(&mut stream, request.range.len)
        });
        match begun {
            Ok((turn, stream)) if turn.is_sent() => {
                let partial = self.clone();
                let stream = Some(stream);
                Ok((turn, Some(Answering { partial, stream })))
            }
            Ok((turn, stream)) => {
                self.referrals.keep(stream);
                Ok((turn, None))
            }
            // diffcached refers none, or takes no more connections there.
            Err(error) if has_no_listener(&error) || is_ended(&error) => {
                Ok((Turn::Here(self.ask(request.range)?), None))
            }
            Err(error) => Err(error),
        }
    }
}

fn has_no_listener(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    matches!(error.kind(), NotFound | ConnectionRefused)
}

/// A range that is being sent, as diffcached knows until this is dropped.
struct Answering {
    partial: Arc<Partial>,
    stream: Option<UnixStream>,
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Some(mut stream) = self.stream.take() else {
            return;
        };
        // Otherwise it learns from the end of the connection.
        if referrals::write_sent(&mut stream).is_ok() {
            self.partial.referrals.keep(stream);
        }
    }
}

/// The path of an entry of an open folder, short enough for a socket.
fn within(folder: &File, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()).into()
}

/// Reads an image of diffcached for one request of a peer.
pub struct PartialReader {
    partial: Arc<Partial>,
    want: Want,
    /// The host that is about to read, if it follows referrals.
    requester: Option<HostName>,
    answering: Option<Answering>,
    /// The bytes from the first offset up to the second may be read: from here, or from the file.
    ready: (u64, u64),
    bytes: Option<Vec<u8>>,
}

/// Bytes that may be sent.
pub enum Piece<'a> {
    /// In the file, up to this offset.
    File(Arc<File>, u64),
    /// These.
    Bytes(&'a [u8]),
}

/// Why bytes cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum PartialError {
    /// They are not there.
    #[error("the object is arriving here, and this range has not arrived")]
    Absent,
    /// Another host has them, or is getting them.
    #[error("this host is busy, ask host {}", .0.as_str())]
    Referred(HostName),
    /// No source serves them.
    #[error("the object is arriving here, but this range cannot be had now")]
    Failed,
    /// diffcached does not answer.
    #[error("the object is arriving here, but diffcached does not answer: {0}")]
    Unanswered(#[from] io::Error),
}

impl PartialReader {
    /// A reader that has read nothing yet.
    pub fn new(partial: Arc<Partial>, want: Want) -> PartialReader {
        PartialReader {
            partial,
            want,
            requester: None,
            answering: None,
            ready: (0, 0),
            bytes: None,
        }
    }

    /// Let diffcached refer the host that is about to read, if all that it reads is one range of diffcached's.
    pub fn referable(self, requester: Option<HostName>) -> PartialReader {
        PartialReader { requester, ..self }
    }

    /// Whether diffcached is to know when the bytes were sent.
    pub fn is_counted(&self) -> bool {
        self.answering.is_some()
    }

    /// Return bytes from `position` on, none at or after `end`; have them fetched if they are absent and wanted.
    ///
    /// # Errors
    /// As `PartialError`.
    pub fn read(&mut self, position: u64, end: u64) -> Result<Piece<'_>, PartialError> {
        let (first, stop) = self.ready;
        if !(first..stop).contains(&position) {
            self.load(position, end)?;
        }
        let (first, stop) = self.ready;
        let stop = stop.min(end);
        Ok(match &self.bytes {
            None => Piece::File(self.partial.file.clone(), stop),
            Some(bytes) => {
                Piece::Bytes(&bytes[(position - first) as usize..(stop - first) as usize])
            }
        })
    }

    fn load(&mut self, position: u64, end: u64) -> Result<(), PartialError> {
        // Ranges of one answer end where those of any reader do.
        let stop = (position / LONGEST_RANGE + 1) * LONGEST_RANGE;
        let stop = stop.min(end);
        let request = RangeRequest {
            want: self.want,
            offset: position,
            len: stop - position,
        };
        self.bytes = None;
        let requester = self.requester.take().filter(|_| stop == end);
        let turn = match requester {
            None => Turn::Here(self.partial.ask(request)?),
            Some(requester) => {
                let range = request;
                let (turn, answering) = self
                    .partial
                    .ask_for(ReferableRequest { range, requester })?;
                self.answering = answering;
                turn
            }
        };
        let answer = match turn {
            Turn::Here(answer) => answer,
            Turn::At(name) => return Err(PartialError::Referred(name)),
        };
        match answer {
            RangeAnswer::InFile => {}
            RangeAnswer::Bytes(bytes) => self.bytes = Some(bytes),
            RangeAnswer::Absent => return Err(PartialError::Absent),
            RangeAnswer::Failed => return Err(PartialError::Failed),
        }
        self.ready = (position, stop);
        Ok(())
    }
}
