//! Commands over a unix socket: one JSON object in a line, and one in return.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_ssdcache::cache::origin::Origins;
use diffcache_ssdcache::cache::{Cache, CacheError, Mode, Run, Volume};
use serde::Deserialize;
use serde_json::{json, Value};
use thiserror::Error;

use crate::error::ConfigError;
use crate::server::Clients;
use crate::volumes::VolumeConfig;

/// Bytes of a command.
const MAX_COMMAND: u64 = 64 << 10;
/// Blocks that a command lists, at most: a list is made while no request is served.
const MOST_HOT: usize = 1 << 17;
/// A client that is slower is not waited for.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Clients of a volume that was detached have this time to leave.
const LEAVE: Duration = Duration::from_secs(2);
/// Commands at the same time; others wait.
const MAX_CLIENTS: usize = 16;
/// How long to wait after a client could not be served.
const AGAIN: Duration = Duration::from_millis(100);

/// Why a command is refused.
#[derive(Debug, Error)]
enum Refused {
    /// The cache
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The volume
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// mode {0} is not known
    #[error("mode {0} is not known")]
    Mode(String),
}

/// A volume to attach.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attachment {
    volume: String,
    origin: String,
    mode: String,
    limit: u32,
    #[serde(default)]
    sequential: u64,
    #[serde(default)]
    admission: u8,
}

/// Settings of a volume; those that are not given stay.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Changes {
    volume: String,
    limit: Option<u32>,
    mode: Option<String>,
    sequential: Option<u64>,
    admission: Option<u8>,
}

/// A command.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Command {
    /// Returns the state of all.
    Status {},
    /// Attaches a volume until it is detached.
    Attach(Attachment),
    /// Ends an epoch of all volumes.
    Epoch {},
    /// Returns what was requested of a volume in the last epoch.
    Curve { volume: String },
    /// Returns which blocks of a volume would stay the longest, at most so many.
    Hot { volume: String, most: usize },
    /// Caches blocks of a volume while there is room for them.
    Warm { volume: String, runs: Vec<Run> },
    /// Gives a volume the size that its origin has now.
    Resize { volume: String },
    /// Ends the connections of a volume's clients, which see its size when they connect again.
    Disconnect { volume: String },
    /// Changes settings of a volume.
    Set(Changes),
    /// Writes the dirty blocks of a held volume back to its origin.
    Recover { volume: String, origin: String },
    /// Writes the dirty blocks of a volume back, and makes what was written to it durable.
    Flush { volume: String },
    /// Has flushes succeed although the origin of a volume lost what was written before.
    #[serde(rename = "accept-loss")]
    AcceptLoss { volume: String },
    /// Says that the guest which used a volume has ended, and with it what it did not flush.
    #[serde(rename = "guest-ended")]
    GuestEnded { volume: String },
    /// Forgets what is cached of a volume.
    Invalidate {
        volume: String,
        #[serde(default)]
        discard_dirty: bool,
    },
    /// Ends the attachment of a volume.
    Detach {
        volume: String,
        #[serde(default)]
        discard_dirty: bool,
    },
}

/// What commands concern.
pub struct Commands {
    /// The cache.
    pub cache: Arc<Cache>,
    /// What opens origins.
    pub origins: Arc<Origins>,
    /// The clients of the exports.
    pub clients: Arc<Clients>,
}

/// Serves commands until the process ends.
pub fn serve(listener: &UnixListener, commands: &Arc<Commands>) {
    let clients = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, or of memory: others may free some.
            std::thread::sleep(AGAIN);
            continue;
        };
        if Arc::strong_count(&clients) > MAX_CLIENTS {
            answer(
                &stream,
                &error("too many commands at the same time; repeat it"),
            );
            continue;
        }
        let (commands, client) = (commands.clone(), clients.clone());
        let run = move || {
            if let Ok(value) = commands.receive(&stream) {
                answer(&stream, &value);
            }
            drop(client);
        };
        // The client sees the end of the connection.
        if let Err(error) = std::thread::Builder::new().spawn(run) {
            log::warn!("Could not start a thread for a command: {error}");
            std::thread::sleep(AGAIN);
        }
    }
}

fn answer(mut stream: &UnixStream, value: &Value) {
    let sent = stream
        .set_write_timeout(Some(TIMEOUT))
        .and_then(|()| stream.write_all(format!("{value}\n").as_bytes()));
    if let Err(error) = sent {
        log::warn!("Could not answer a command: {error}");
    }
}

fn error(text: &str) -> Value {
    json!({ "error": text })
}

impl Commands {
    fn receive(&self, stream: &UnixStream) -> io::Result<Value> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(MAX_COMMAND)).read_until(b'\n', &mut line)?;
        Ok(self.execute(&line))
    }

    /// Executes a command, and returns its answer.
    pub(crate) fn execute(&self, line: &[u8]) -> Value {
        match serde_json::from_slice(line) {
            Ok(command) => {
                let done = self.run(command);
                done.unwrap_or_else(|failed| error(&failed.to_string()))
            }
            Err(refused) => error(&format!("not a command: {refused}")),
        }
    }

    /// Waits until the clients of a volume have left, so that its origin is closed, and disconnects
    /// those that do not leave.
    fn wait_for_clients(&self, volume: Arc<Volume>) {
        let export = volume.export();
        let used = Arc::downgrade(&volume);
        drop(volume);
        let has_left = || {
            let deadline = Instant::now() + LEAVE;
            while used.strong_count() > 0 && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            used.strong_count() == 0
        };
        if !has_left() {
            self.clients.disconnect(&export);
            has_left();
        }
    }

    fn run(&self, command: Command) -> Result<Value, Refused> {
        let cache = &self.cache;
        match command {
            Command::Status {} => {}
            Command::Attach(attachment) => self.attach(attachment)?,
            Command::Epoch {} => cache.end_epoch(),
            Command::Curve { volume } => {
                let epoch = cache.volume(&volume)?.epoch();
                return Ok(json!({ "curve": epoch.as_deref() }));
            }
            Command::Hot { volume, most } => {
                let runs = cache.hottest(&*cache.volume(&volume)?, most.min(MOST_HOT));
                return Ok(json!({ "hot": runs }));
            }
            Command::Warm { volume, runs } => {
                let warmed = cache.warm(&*cache.volume(&volume)?, &runs)?;
                return Ok(json!({ "warmed": warmed }));
            }
            Command::Resize { volume } => cache.resize(&*cache.volume(&volume)?)?,
            Command::Disconnect { volume } => {
                self.clients.disconnect(&cache.volume(&volume)?.export());
            }
            Command::Set(changes) => self.change(&changes)?,
            Command::Recover { volume, origin } => {
                let volume = cache.volume(&volume)?;
                let opened = self.origins.open(&origin);
                let opened = opened.map_err(ConfigError::file(origin))?;
                cache.recover(&volume, opened.disk)?;
            }
            Command::Flush { volume } => {
                let volume = cache.volume(&volume)?;
                cache.flush_back(&volume)?;
            }
            Command::AcceptLoss { volume } => cache.accept_loss(&*cache.volume(&volume)?),
            Command::GuestEnded { volume } => cache.end_guest(&*cache.volume(&volume)?),
            Command::Invalidate {
                volume,
                discard_dirty,
            } => cache.invalidate(&*cache.volume(&volume)?, discard_dirty)?,
            Command::Detach {
                volume,
                discard_dirty,
            } => {
                let volume = cache.volume(&volume)?;
                cache.detach(&volume, discard_dirty)?;
                self.wait_for_clients(volume);
            }
        }
        Ok(json!({ "status": self.status() }))
    }

    /// The state of the cache, and of each volume how many `leaving` clients have ended and are
    /// waited for by others.
    fn status(&self) -> Value {
        let leaving = self.clients.leaving();
        let mut status = json!(self.cache.status());
        let volumes = status["volumes"].as_object_mut();
        for volume in volumes.into_iter().flat_map(|found| found.values_mut()) {
            let export = volume["export"].as_str().unwrap_or_default();
            volume["leaving"] = json!(leaving.get(export).unwrap_or(&0));
        }
        status
    }

    fn attach(&self, attachment: Attachment) -> Result<(), Refused> {
        let volume = VolumeConfig {
            name: attachment.volume,
            origin: attachment.origin,
            mode: attachment.mode,
            limit: attachment.limit,
            sequential: attachment.sequential,
            admission: attachment.admission,
        };
        self.cache.attach(volume.lasting(&self.origins)?)?;
        Ok(())
    }

    /// Changes settings of a volume; of a mode that is not known, none of them.
    fn change(&self, changes: &Changes) -> Result<(), Refused> {
        let cache = &self.cache;
        let volume = cache.volume(&changes.volume)?;
        let named = |name: &String| Mode::named(name).ok_or_else(|| Refused::Mode(name.clone()));
        let mode = changes.mode.as_ref().map(named).transpose()?;
        if let Some(limit) = changes.limit {
            cache.set_limit(&volume, limit)?;
        }
        if let Some(sequential) = changes.sequential {
            cache.set_sequential(&volume, sequential)?;
        }
        if let Some(admission) = changes.admission {
            cache.set_admission(&volume, admission)?;
        }
        if let Some(mode) = mode {
            cache.set_mode(&volume, mode)?;
        }
        Ok(())
    }
}
