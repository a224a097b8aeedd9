//! The commands that the control socket takes.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_control::{error, parse, Limits};
use diffcache_ssdcache::cache::origin::Origins;
use diffcache_ssdcache::cache::{Cache, CacheError, Mode, Run, Volume};
use diffcache_ssdcache::rates::Rates;
use serde::Deserialize;
use serde_json::{json, Value};
use thiserror::Error;

use crate::error::ConfigError;
use crate::guests::Guests;
use crate::queues::Queues;
use crate::server::Clients;
use crate::volumes::VolumeConfig;
use crate::waiting::Waiting;

/// Commands at the same time, and their sizes. Of many volumes, whose origins hang together, some wait.
pub const LIMITS: Limits = Limits {
    command: 64 << 10,
    clients: 4096,
};
/// Blocks that a command lists, at most: a list is made while no request is served.
const MOST_HOT: usize = 1 << 17;
/// Clients of a volume that was detached have this time to leave.
const LEAVE: Duration = Duration::from_secs(2);
/// Writes wait for no longer.
const MOST_QUEUED: Duration = Duration::from_secs(10);

/// Why a command is refused.
#[derive(Debug, Error)]
enum Refused {
    /// The cache
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The volume
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// vhost-user
    #[error("vhost-user: {0}")]
    Vhost(io::Error),
    /// mode {0} is not known
    #[error("mode {0} is not known")]
    Mode(String),
    /// Too many commands
    #[error("commands to volume {0} wait for its origin; repeat this when they are done")]
    Slow(String),
}

impl Refused {
    /// How clients tell it from others.
    fn kind(&self) -> &'static str {
        match self {
            Self::Slow(_) => "Slow",
            _ => "Refused",
        }
    }
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
    #[serde(default)]
    rates: Rates,
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
    rates: Option<Rates>,
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
    /// Returns which blocks of a volume would stay the longest, at most this many.
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
    /// Has the writes of a volume wait for a time at most; 0 has them go on.
    Queue { volume: String, milliseconds: u64 },
    /// Forgets what is cached of a volume.
    Invalidate {
        volume: String,
        #[serde(default)]
        discard_dirty: bool,
    },
    /// Serves a volume by vhost-user, too; the state says where.
    #[serde(rename = "vhost-open")]
    VhostOpen { volume: String },
    /// Ends that.
    #[serde(rename = "vhost-close")]
    VhostClose { volume: String },
    /// Ends the attachment of a volume.
    Detach {
        volume: String,
        #[serde(default)]
        discard_dirty: bool,
    },
}

impl Command {
    /// The volume whose origin it may wait for.
    fn waits_for(&self) -> Option<&str> {
        match self {
            Self::Attach(Attachment { volume, .. })
            | Self::Warm { volume, .. }
            | Self::Resize { volume }
            | Self::Set(Changes { volume, .. })
            | Self::Recover { volume, .. }
            | Self::Flush { volume }
            | Self::GuestEnded { volume }
            | Self::Invalidate { volume, .. }
            | Self::Detach { volume, .. } => Some(volume),
            _ => None,
        }
    }
}

/// What commands concern.
pub struct Commands {
    /// The cache.
    pub cache: Arc<Cache>,
    /// What opens origins.
    pub origins: Arc<Origins>,
    /// The clients of the exports.
    pub clients: Arc<Clients>,
    /// Writes that wait.
    pub queues: Arc<Queues>,
    /// The volumes that are served by vhost-user.
    pub guests: Arc<Guests>,
    /// Commands that may wait for origins.
    pub waiting: Waiting,
}

impl Commands {
    /// Executes a command, and returns its answer.
    pub fn execute(&self, line: &[u8]) -> Value {
        match parse(line) {
            Ok(command) => {
                let done = self.run_in_turn(command);
                done.unwrap_or_else(|refused| error(refused.kind(), &refused.to_string()))
            }
            Err(refused) => refused,
        }
    }

    /// Runs a command, unless too many of its volume wait.
    fn run_in_turn(&self, command: Command) -> Result<Value, Refused> {
        let begin = |volume: &str| {
            let turn = self.waiting.begin(volume);
            turn.ok_or_else(|| Refused::Slow(volume.to_owned()))
        };
        let _turn = command.waits_for().map(begin).transpose()?;
        self.run(command)
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
            Command::Resize { volume } => {
                cache.resize(&*cache.volume(&volume)?)?;
                self.nudge(&volume);
            }
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
            Command::Queue {
                volume,
                milliseconds,
            } => {
                let queued = self.queue(&cache.volume(&volume)?.export(), milliseconds);
                return Ok(json!({ "queued": queued }));
            }
            Command::Invalidate {
                volume,
                discard_dirty,
            } => cache.invalidate(&*cache.volume(&volume)?, discard_dirty)?,
            Command::VhostOpen { volume } => {
                let volume = cache.volume(&volume)?;
                self.guests.open(&volume).map_err(Refused::Vhost)?;
            }
            Command::VhostClose { volume } => {
                let volume = cache.volume(&volume)?;
                self.guests.close(&volume).map_err(Refused::Vhost)?;
            }
            Command::Detach {
                volume,
                discard_dirty,
            } => {
                let volume = cache.volume(&volume)?;
                cache.detach(&volume, discard_dirty)?;
                self.guests.close(&volume).map_err(Refused::Vhost)?;
                self.wait_for_clients(volume);
            }
        }
        Ok(json!({ "status": self.status() }))
    }

    /// Has the guest of a volume look at what changed of it.
    fn nudge(&self, volume: &str) {
        if let Some(guest) = self.guests.find(volume) {
            guest.nudge();
        }
    }

    /// Has writes wait, or go on. Whether they have waited until now.
    fn queue(&self, export: &str, milliseconds: u64) -> bool {
        let waited = self.queues.end(export);
        if milliseconds > 0 {
            let time = Duration::from_millis(milliseconds).min(MOST_QUEUED);
            self.queues.begin(export, time);
        }
        waited
    }

    /// The state of the cache, and of each volume how many `leaving` clients have ended and are
    /// waited for by others, and its socket of vhost-user, if it has one.
    fn status(&self) -> Value {
        let leaving = self.clients.leaving();
        let mut status = json!(self.cache.status());
        let volumes = status["volumes"].as_object_mut();
        for (name, volume) in volumes.into_iter().flatten() {
            let guest = self.guests.find(name);
            volume["vhost"] = json!(guest.map(|guest| guest.path().clone()));
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
            rates: attachment.rates,
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
        if let Some(rates) = changes.rates {
            cache.set_rates(&volume, rates)?;
            self.nudge(&changes.volume);
        }
        if let Some(mode) = mode {
            cache.set_mode(&volume, mode)?;
        }
        Ok(())
    }
}
