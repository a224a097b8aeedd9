//! The process: what runs in it, from the start to the end.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use diffcache_control::{listen, listen_for_group};
use diffcache_ssdcache::cache::{Cache, Task};
use diffcache_ssdcache::shared::hits::MOST;
use serde_json::json;

use crate::config::Config;
use crate::control::{Commands, LIMITS};
use crate::error::ConfigError;
use crate::exports::Volumes;
use crate::guests::{Guests, SUFFIX};
use crate::opening;
use crate::queues::Queues;
use crate::server::{self, Clients};
use crate::stop::{self, Gate};
use crate::waiting::Waiting;

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
    let queues = Arc::new(Queues::default());
    let volumes = Arc::new(Volumes {
        cache: cache.clone(),
        gate: gate.clone(),
        queues: queues.clone(),
    });
    let guests = Arc::new(Guests {
        directory: format!("{}{SUFFIX}", config.socket.display()).into(),
        group: config.socket_group,
        volumes: volumes.clone(),
        clients: clients.clone(),
        open: Mutex::default(),
    });
    guests.reopen().map_err(ConfigError::file(process))?;
    let socket = config.socket.clone();
    let listener =
        listen_for_group(&socket, config.socket_group).map_err(ConfigError::file(&socket))?;
    if let Some(path) = config.control.clone() {
        let commands = Commands {
            cache: cache.clone(),
            origins,
            clients: clients.clone(),
            queues,
            guests,
            waiting: Waiting::default(),
        };
        let listener = listen(&path).map_err(ConfigError::file(&path))?;
        let answer = move |line: &[u8]| commands.execute(line);
        let serve = move || diffcache_control::serve(&listener, LIMITS, answer);
        start(serve).map_err(ConfigError::file(process))?;
    }
    stop::watch(&cache, &gate, config.sockets()).map_err(ConfigError::file(process))?;
    keep_in_order(&cache).map_err(ConfigError::file(process))?;
    if let Some(descriptor) = config.ready_fd.take() {
        announce(&cache, &socket, descriptor).map_err(ConfigError::file(process))?;
    }
    server::serve(&listener, &volumes, &clients);
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
        begin(&settled, settled.take_idle(), "clear intents");
    })?;
    let judged = cache.clone();
    start(move || loop {
        std::thread::sleep(JUDGE);
        judged.judge_device();
    })?;
    let written_back = cache.clone();
    start(move || loop {
        std::thread::sleep(WRITE_BACK);
        for volume in written_back.volumes() {
            written_back.take_hits(&volume, MOST);
        }
        begin(&written_back, written_back.take_due(), "write blocks back");
    })
}

/// Begins tasks of volumes, each in a thread of its own: an origin may hang.
fn begin(cache: &Arc<Cache>, tasks: Vec<Task>, what: &'static str) {
    for task in tasks {
        let cache = cache.clone();
        let work = move || {
            if let Some(error) = cache.run(&task) {
                log::warn!("Could not {what}, will retry: {error}");
            }
        };
        if let Err(error) = start(work) {
            log::warn!("Could not start a thread to {what}: {error}");
        }
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
