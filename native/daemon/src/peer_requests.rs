//! What the data plane of this host asks for peers, on a socket in the state folder.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use diffcache_dataplane::serving::partial::{RangeAnswer, RangeRequest, FETCH_TIME, SOCKET};

use crate::error::DaemonError;
use crate::lazy_file::{LazyFile, Provided};
use crate::status;

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

/// Answer requests from threads.
///
/// # Errors
/// `Path` if the socket cannot be made.
pub fn serve(state: &Path, file: &Arc<LazyFile>) -> Result<(), DaemonError> {
    let path = state.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DaemonError::at("remove", &path)(error));
        }
        _ => {}
    }
    let listener = status::within(state, SOCKET, |short| UnixListener::bind(short))
        .map_err(DaemonError::at("listen at", &path))?;
    let file = file.clone();
    let thread = std::thread::Builder::new()
        .name("peers".to_owned())
        .spawn(move || accept(&listener, &file));
    thread
        .map(drop)
        .map_err(DaemonError::system("start a thread"))
}

fn accept(listener: &UnixListener, file: &Arc<LazyFile>) {
    let count = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let place = Place(count.clone());
        if count.fetch_add(1, Ordering::SeqCst) >= MOST_CONNECTIONS {
            // The data plane sees the end of the connection.
            continue;
        }
        let file = file.clone();
        let started = stream.and_then(|stream| {
            let run = move || {
                let _place = place;
                if let Err(error) = answer_all(stream, &file) {
                    eprintln!("Could not answer a request for a peer: {error}");
                }
            };
            let thread = std::thread::Builder::new().name("peer".to_owned());
            thread.spawn(run)
        });
        if let Err(error) = started {
            eprintln!("Could not serve the data plane: {error}");
            std::thread::sleep(PAUSE);
        }
    }
}

fn answer_all(mut stream: UnixStream, file: &LazyFile) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE_TIME))?;
    stream.set_write_timeout(Some(IDLE_TIME))?;
    while let Some(request) = RangeRequest::read(&mut stream)? {
        answer(&request, file).write(&mut stream)?;
    }
    Ok(())
}

fn answer(request: &RangeRequest, file: &LazyFile) -> RangeAnswer {
    if request.offset + request.len > file.size() {
        return RangeAnswer::Failed;
    }
    match file.provide(request, FETCH_TIME) {
        Ok(Provided::InFile) => RangeAnswer::InFile,
        Ok(Provided::Absent) => RangeAnswer::Absent,
        Ok(Provided::Bytes(bytes)) => RangeAnswer::Bytes(bytes),
        Err(error) => {
            let offset = request.offset;
            eprintln!("Could not fetch the range at {offset} for a peer: {error}");
            RangeAnswer::Failed
        }
    }
}
