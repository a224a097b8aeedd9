//! What the data plane of this host asks for peers, on sockets in the state folder: ranges, of which some are referred to other hosts, and hints that
//! go with them.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use diffcache_dataplane::serving::hints;
use diffcache_dataplane::serving::partial::{ARRIVING_TIME, FETCH_TIME, SOCKET};
use diffcache_dataplane::serving::ranges::{RangeAnswer, RangeRequest, Want};
use diffcache_dataplane::serving::referrals::{self, ReferableRequest, Turn};

use crate::error::DaemonError;
use crate::image::chunk::Provided;
use crate::image::lazy_file::LazyFile;
use crate::peers::hints::Hints;
use crate::peers::referrals::{Answering, Decision, Referrals};
use crate::processes::status;
use crate::sizes::CHUNK;

/// Connections at a time: requests beyond them fail, and peers ask elsewhere.
const MOST_CONNECTIONS: usize = 128;
/// How long a connection may be idle, and take an answer.
const IDLE_TIME: Duration = Duration::from_secs(60);
/// After a connection that could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that is counted.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Answers all requests of a connection.
type Answer = Arc<dyn Fn(UnixStream) -> io::Result<()> + Send + Sync>;

/// Answer requests for ranges from threads.
///
/// # Errors
/// `Path` if the socket cannot be made.
pub fn serve(state: &Path, file: &Arc<LazyFile>) -> Result<(), DaemonError> {
    remove(state, SOCKET)?;
    let file = file.clone();
    listen(
        state,
        SOCKET,
        Arc::new(move |stream| answer_all(stream, &file)),
    )
}

/// Answer requests for hints from threads, if there are any.
///
/// # Errors
/// `Path` if the socket cannot be made.
pub fn serve_hints(state: &Path, hints: Option<Arc<Hints>>) -> Result<(), DaemonError> {
    remove(state, hints::SOCKET)?;
    let Some(known) = hints else {
        return Ok(());
    };
    listen(
        state,
        hints::SOCKET,
        Arc::new(move |stream| teach(stream, &known)),
    )
}

/// Answer requests for ranges of hosts that follow referrals from threads, if any is referred.
///
/// # Errors
/// `Path` if the socket cannot be made.
pub fn serve_referrals(
    state: &Path,
    file: &Arc<LazyFile>,
    known: Option<Referrals>,
) -> Result<(), DaemonError> {
    remove(state, referrals::SOCKET)?;
    let Some(known) = known.filter(Referrals::is_used) else {
        return Ok(());
    };
    let file = file.clone();
    listen(
        state,
        referrals::SOCKET,
        Arc::new(move |stream| refer_all(stream, &file, &known)),
    )
}

/// Remove the socket of the worker before this one.
fn remove(state: &Path, name: &str) -> Result<(), DaemonError> {
    let path = state.join(name);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(DaemonError::at("remove", &path)(error))
        }
        _ => Ok(()),
    }
}

fn listen(state: &Path, name: &str, answer: Answer) -> Result<(), DaemonError> {
    let listener = status::within(state, name, |short| UnixListener::bind(short))
        .map_err(DaemonError::at("listen at", &state.join(name)))?;
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || accept(&listener, &answer));
    thread
        .map(drop)
        .map_err(DaemonError::system("start a thread"))
}

fn accept(listener: &UnixListener, answer: &Answer) {
    let count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let place = Place(count.clone());
        if count.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
            // The data plane sees the end of the connection.
            continue;
        }
        let answer = answer.clone();
        let started = stream.and_then(|stream| {
            let run = move || {
                let _place = place;
                if let Err(error) = answer(stream) {
                    log::warn!("Could not answer a request for a peer: {error}");
                }
            };
            let thread = std::thread::Builder::new().name("peer".to_owned());
            thread.spawn(run)
        });
        if let Err(error) = started {
            log::warn!("Could not serve the data plane: {error}");
            std::thread::sleep(PAUSE);
        }
    }
}

fn answer_all(mut stream: UnixStream, file: &LazyFile) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIME))?;
    stream.set_write_timeout(Some(IDLE_TIME))?;
    while let Some(request) = unless_idle(RangeRequest::read(&mut stream))? {
        answer(&request, file).write(&mut stream)?;
    }
    Ok(())
}

fn refer_all(mut stream: UnixStream, file: &LazyFile, known: &Referrals) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIME))?;
    stream.set_write_timeout(Some(IDLE_TIME))?;
    while let Some(request) = unless_idle(ReferableRequest::read(&mut stream))? {
        let (turn, answering) = take_turn(&request, file, known);
        turn.write(&mut stream)?;
        if turn.is_sent() && referrals::wait_until_sent(&mut stream).is_err() {
            // The host that asked, or the data plane, is gone.
            break;
        }
        drop(answering);
    }
    Ok(())
}

/// Answer a request, or refer it to another host once its range is here: it is fetched once whatever becomes of the referral.
fn take_turn<'a>(
    request: &ReferableRequest,
    file: &LazyFile,
    known: &'a Referrals,
) -> (Turn, Option<Answering<'a>>) {
    let found = provide(&request.range, file);
    if found != RangeAnswer::InFile {
        // What the disk did not take would be fetched again for a host that comes back.
        return (Turn::Here(count(found, &request.range, file)), None);
    }
    let RangeRequest { offset, len, .. } = request.range;
    let chunks = offset / CHUNK..(offset + len).div_ceil(CHUNK);
    match known.decide(chunks, &request.requester) {
        Decision::Refer(name) => (Turn::At(name), None),
        Decision::Answer(answering) => {
            let answer = count(found, &request.range, file);
            (Turn::Here(answer), Some(answering))
        }
    }
}

/// End a connection over which no request has come for long, as one that was closed.
fn unless_idle<T>(found: io::Result<Option<T>>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        found => found,
    }
}

fn teach(mut stream: UnixStream, known: &Hints) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIME))?;
    stream.set_write_timeout(Some(IDLE_TIME))?;
    while let Some(text) = unless_idle(hints::read(&mut stream))? {
        hints::write(&mut stream, &known.answer(&text))?;
    }
    Ok(())
}

fn answer(request: &RangeRequest, file: &LazyFile) -> RangeAnswer {
    count(provide(request, file), request, file)
}

/// Count a range that is sent.
fn count(answer: RangeAnswer, request: &RangeRequest, file: &LazyFile) -> RangeAnswer {
    if matches!(answer, RangeAnswer::InFile | RangeAnswer::Bytes(_)) {
        file.count_provided(request.len);
    }
    answer
}

fn provide(request: &RangeRequest, file: &LazyFile) -> RangeAnswer {
    if request.offset + request.len > file.size() {
        return RangeAnswer::Failed;
    }
    let limit = match request.want {
        Want::Arriving => ARRIVING_TIME,
        Want::Present | Want::Fetched => FETCH_TIME,
    };
    match file.provide(request, limit) {
        Ok(Provided::InFile) => RangeAnswer::InFile,
        Ok(Provided::Absent) => RangeAnswer::Absent,
        Ok(Provided::Bytes(bytes)) => RangeAnswer::Bytes(bytes),
        Err(error) => {
            let offset = request.offset;
            log::warn!("Could not fetch the range at {offset} for a peer: {error}");
            RangeAnswer::Failed
        }
    }
}
