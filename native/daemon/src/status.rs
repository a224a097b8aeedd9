//! What one mount has done so far, answered by the keeper on a socket in the state folder.

use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diffcache_core::manifest::Manifest;
use serde_json::json;

use crate::config::Config;
use crate::error::DaemonError;
use crate::leaves::{self, CHUNK};
use crate::shared::{Counter, Shared};

/// Return the path of the socket in a state folder.
pub fn socket_path(state: &Path) -> PathBuf {
    state.join("socket")
}

/// Return the state as the JSON of `diffcache lazy status`.
///
/// # Errors
/// Of the local disk.
pub fn describe(
    config: &Config,
    manifest: &Manifest,
    shared: &Shared,
) -> io::Result<serde_json::Value> {
    let (data_chunks, present) = leaves::count_chunks(&config.state, manifest)?;
    let (prefetched, prefetched_used) = shared.count_prefetched();
    let complete = shared.get(Counter::Complete) == 1;
    let plain = complete.then(|| leaves::data_path(&config.state, manifest));
    Ok(json!({
        "content_id": manifest.content_id_hex(),
        "size": manifest.size(),
        "chunk": CHUNK,
        "chunks": manifest.size().div_ceil(CHUNK),
        "data_chunks": data_chunks,
        "present": present,
        "complete": complete,
        "plain_path": plain,
        "reads": shared.get(Counter::Reads),
        "bytes_read": shared.get(Counter::BytesRead),
        "bytes_fetched": shared.get(Counter::BytesFetched),
        "misses": shared.get(Counter::Misses),
        "prefetched": prefetched,
        "prefetched_used": prefetched_used,
        "stall_ms": shared.get(Counter::StallUs) / 1000,
        "errors": shared.get(Counter::Errors),
        "corrupt": shared.get(Counter::Corrupt),
        "recorded": shared.get(Counter::Recorded),
        "not_recorded": shared.get(Counter::NotRecorded),
        "not_kept": shared.get(Counter::NotKept),
        "worker_restarts": shared.get(Counter::WorkerRestarts),
        "worker_pid": shared.get(Counter::WorkerPid),
        "sources": [{
            "url": config.image,
            "requests": shared.get(Counter::SourceRequests),
            "bytes": shared.get(Counter::SourceBytes),
            "failures": shared.get(Counter::SourceFailures),
        }],
    }))
}

/// Answer each connection with the state, from a thread.
///
/// # Errors
/// `Path` if the socket cannot be made.
pub fn serve(
    config: Config,
    manifest: Arc<Manifest>,
    shared: Arc<Shared>,
) -> Result<(), DaemonError> {
    let path = socket_path(&config.state);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(DaemonError::at("remove", &path)(error));
        }
        _ => {}
    }
    let listener = UnixListener::bind(&path).map_err(DaemonError::at("listen at", &path))?;
    let run = move || {
        for connection in listener.incoming() {
            let answer = |mut connection: std::os::unix::net::UnixStream| {
                let state = describe(&config, &manifest, &shared)?;
                connection.write_all(state.to_string().as_bytes())
            };
            if let Err(error) = connection.and_then(answer) {
                eprintln!("Could not answer a request for the status: {error}");
            }
        }
    };
    let thread = std::thread::Builder::new()
        .name("status".to_owned())
        .spawn(run);
    thread
        .map(drop)
        .map_err(DaemonError::system("start a thread"))
}
