//! The process: what runs in it, from the start to the end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use diffcache_ssdcache::cache::{Cache, Due};
use serde_json::json;

use crate::config::Config;
use crate::control::{self, Commands};
use crate::error::ConfigError;
use crate::exports::Volumes;
use crate::opening;
use crate::server::{self, Clients};
use crate::sockets::{listen, listen_for_group};
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
    let process = Path::new("/proc/self");
    stop::block().map_err(ConfigError::file(process))?;
    let (cache, origins) = opening::open(&mut config)?;
    let cache = Arc::new(cache);
    let gate = Arc::new(Gate::default());
    let clients = Arc::new(Clients::default());
    let socket = config.socket()?.to_owned();
    let listener =
        listen_for_group(&socket, config.socket_group).map_err(ConfigError::file(&socket))?;
    if let Some(path) = config.control.clone() {
        let commands = Commands {
            cache: cache.clone(),
            origins,
            clients: clients.clone(),
        };
        let listener = listen(&path).map_err(ConfigError::file(&path))?;
        let serve = move || control::serve(&listener, &Arc::new(commands));
        start(serve).map_err(ConfigError::file(process))?;
    }
    stop::watch(&cache, &gate, config.sockets()).map_err(ConfigError::file(process))?;
    keep_in_order(&cache).map_err(ConfigError::file(process))?;
    if let Some(descriptor) = config.ready_fd.take() {
        announce(&cache, &socket, descriptor).map_err(ConfigError::file(process))?;
    }
    server::serve(&listener, Volumes { cache, gate }, &clients);
    Err(ConfigError::file(&socket)(io::Error::other(
        "no more clients come",
    )))
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
            log::warn!("Could not clear intents, will retry: {error}");
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
            log::warn!("Could not write blocks back, will retry: {error}");
        }
    };
    if let Err(error) = start(work) {
        log::warn!("Could not start a thread to write blocks back: {error}");
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
