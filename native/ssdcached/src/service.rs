//! The process: what runs in it, from the start to the end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diffcache_ssdcache::cache::{Cache, Due};
use serde_json::json;

use crate::config::{Config, ConfigError};
use crate::control::{self, Commands};
use crate::exports::Volumes;
use crate::server::{self, Clients};
use crate::stop::{self, Gate};

/// Time between two looks for blocks to write back.
const WRITE_BACK: Duration = Duration::from_millis(250);
/// Intents of regions are cleared that were not written for this time.
const SETTLE: Duration = Duration::from_secs(5);
/// How often it is decided whether the device is too slow.
const JUDGE: Duration = Duration::from_secs(5);

/// Serves what is configured, until a signal ends the process.
///
/// # Errors
/// The device, a socket or a volume of the configuration cannot be used.
pub fn run(mut config: Config) -> Result<Infallible, ConfigError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ConfigError::File { path, source }
    };
    let process = Path::new("/proc/self");
    stop::block().map_err(failed(process))?;
    let cache = Arc::new(config.open()?);
    let gate = Arc::new(Gate::default());
    let clients = Arc::new(Clients::default());
    let socket = config.socket()?.to_owned();
    let listener = listen(&socket, config.socket_group).map_err(failed(&socket))?;
    if let Some(path) = config.control.clone() {
        let commands = Commands {
            cache: cache.clone(),
            origins: config.origins()?,
            clients: clients.clone(),
        };
        let listener = control::listen(&path).map_err(failed(&path))?;
        let serve = move || control::serve(&listener, &Arc::new(commands));
        start(serve).map_err(failed(process))?;
    }
    stop::watch(&cache, &gate, config.sockets()).map_err(failed(process))?;
    keep_in_order(&cache).map_err(failed(process))?;
    if let Some(descriptor) = config.ready_fd.take() {
        announce(&cache, &socket, descriptor).map_err(failed(process))?;
    }
    server::serve(&listener, Volumes { cache, gate }, &clients);
    Err(failed(&socket)(io::Error::other("no more clients come")))
}

/// Opens the socket of the exports, to which members of a group may connect, too.
fn listen(path: &Path, group: Option<u32>) -> io::Result<UnixListener> {
    let listener = control::listen(path)?;
    if let Some(group) = group {
        std::os::unix::fs::chown(path, None, Some(group))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o660))?;
    }
    Ok(listener)
}

fn start(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().spawn(work).map(drop)
}

/// Starts what runs beside the requests.
fn keep_in_order(cache: &Arc<Cache>) -> io::Result<()> {
    let settled = cache.clone();
    start(move || loop {
        std::thread::sleep(SETTLE);
        if let Err(error) = settled.settle() {
            eprintln!("diffcache-ssdcached: could not clear intents, will retry: {error}");
        }
    })?;
    let judged = cache.clone();
    start(move || loop {
        std::thread::sleep(JUDGE);
        judged.judge_device();
    })?;
    let written_back = cache.clone();
    start(move || loop {
        std::thread::sleep(WRITE_BACK);
        for due in written_back.take_due() {
            write_back(&written_back, due);
        }
    })
}

/// Writes the blocks of a volume back in a thread of their own: its origin may hang.
fn write_back(cache: &Arc<Cache>, due: Due) {
    let cache = cache.clone();
    let work = move || {
        if let Some(error) = cache.write_back_due(&due) {
            eprintln!("diffcache-ssdcached: could not write blocks back, will retry: {error}");
        }
    };
    if let Err(error) = start(work) {
        eprintln!("diffcache-ssdcached: could not start a thread to write blocks back: {error}");
    }
}

/// Says on the descriptor that was given for it what is served; the socket accepts clients.
fn announce(cache: &Cache, socket: &Path, descriptor: RawFd) -> io::Result<()> {
    let socket = escape(&socket.to_string_lossy());
    let uri = |export: String| format!("nbd+unix:///{export}?socket={socket}");
    let volumes = cache.volumes();
    let exports: BTreeMap<&str, String> = volumes
        .iter()
        .map(|volume| (volume.name(), uri(volume.export())))
        .collect();
    let line = json!({ "ready": true, "pid": std::process::id(), "exports": exports });
    // SAFETY: the caller duplicated this descriptor for this process alone; it is used once.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    File::from(descriptor).write_all(format!("{line}\n").as_bytes())
}

/// A path as part of a URI.
fn escape(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let escaped = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_group_may_connect_to_the_exports_if_one_is_configured() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nbd");
        let mode = || std::fs::symlink_metadata(&path).unwrap().mode() & 0o777;
        let _own = listen(&path, None).unwrap();
        assert_eq!(0o600, mode());
        let group = std::fs::metadata(folder.path()).unwrap().gid();
        let _shared = listen(&path, Some(group)).unwrap();
        assert_eq!(0o660, mode());
    }
}
