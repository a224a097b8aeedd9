//! What to serve: the parameters of the command line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use diffcache_partitions::eviction::Policy;
use diffcache_ssdcache::cache::{DirtyMax, Options};

use crate::error::ConfigError;
use crate::volumes::VolumeConfig;

/// All parameters.
pub struct Config {
    device: Option<PathBuf>,
    capacity: Option<u32>,
    /// Whether the device is made an empty cache.
    pub(crate) format: bool,
    pub(crate) options: Options,
    /// Whether volumes in write-back are held after a start of the host.
    pub(crate) hold: bool,
    /// Where failures of devices are noted.
    state: Option<PathBuf>,
    pub(crate) volumes: Vec<VolumeConfig>,
    /// The socket for commands.
    pub(crate) control: Option<PathBuf>,
    /// The socket of NBD.
    socket: Option<PathBuf>,
    /// Number of the group that may connect to it, besides this user.
    pub(crate) socket_group: Option<u32>,
    /// The descriptor that is written to when the cache is ready.
    pub(crate) ready_fd: Option<i32>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            device: None,
            capacity: None,
            format: false,
            options: Options {
                eviction: Policy::Lru,
                admission: 1,
                dirty_max: DirtyMax::Percent(50),
                dirty_age: Duration::from_secs(30),
                discard_dirty: false,
                samples: 0,
            },
            hold: false,
            state: None,
            volumes: Vec::new(),
            control: None,
            socket: None,
            socket_group: None,
            ready_fd: None,
        }
    }
}

impl Config {
    /// Reads parameters, `KEY=VALUE` each.
    ///
    /// # Errors
    /// One is not known, or its value is wrong.
    pub fn parse<'a>(words: impl Iterator<Item = &'a str>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            config.set(key, value)?;
        }
        Ok(config)
    }

    /// Takes a parameter.
    ///
    /// # Errors
    /// It is not known, or its value is wrong.
    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let refused = |reason: &str| ConfigError::Parameter {
            key: key.to_owned(),
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        let number = |_| refused("not a whole number of the range");
        match key {
            "device" => self.device = Some(value.into()),
            "capacity" => self.capacity = Some(value.parse().map_err(number)?),
            "format" => self.format = value == "true",
            "evict" => {
                let policy = Policy::named(value);
                self.options.eviction = policy.ok_or_else(|| refused("no such policy"))?;
            }
            "samples" => self.options.samples = value.parse().map_err(number)?,
            "admission" => {
                let admission: u8 = value.parse().map_err(number)?;
                self.options.admission = admission.max(1);
            }
            "dirty_max" => {
                let bound = match value.strip_suffix('%') {
                    Some(percent) => percent.parse().map(DirtyMax::Percent),
                    None => value.parse().map(DirtyMax::Blocks),
                };
                self.options.dirty_max = bound.map_err(number)?;
            }
            "dirty_age" => {
                let seconds = value.parse().map_err(number)?;
                self.options.dirty_age = Duration::from_secs(seconds);
            }
            "discard_dirty" => self.options.discard_dirty = value == "true",
            "hold" => self.hold = value == "true",
            "state" => self.state = Some(value.into()),
            "control" => self.control = Some(value.into()),
            "socket" => self.socket = Some(value.into()),
            "socket_group" => self.socket_group = Some(value.parse().map_err(number)?),
            "ready_fd" => self.ready_fd = Some(value.parse().map_err(number)?),
            "volume" => {
                let volume = serde_json::from_str(value);
                self.volumes
                    .push(volume.map_err(|error| refused(&error.to_string()))?);
            }
            _ => return Err(refused("no such parameter")),
        }
        Ok(())
    }

    /// The sockets of this process: of NBD, and for commands.
    #[must_use]
    pub fn sockets(&self) -> Vec<PathBuf> {
        let sockets = [&self.socket, &self.control];
        sockets.into_iter().flatten().cloned().collect()
    }

    /// The socket of NBD.
    ///
    /// # Errors
    /// The parameter is missing.
    pub fn socket(&self) -> Result<&Path, ConfigError> {
        self.socket.as_deref().ok_or(ConfigError::Missing("socket"))
    }

    pub(crate) fn device(&self) -> Result<&Path, ConfigError> {
        self.device.as_deref().ok_or(ConfigError::Missing("device"))
    }

    pub(crate) fn state(&self) -> Result<&Path, ConfigError> {
        self.state.as_deref().ok_or(ConfigError::Missing("state"))
    }

    pub(crate) fn capacity(&self) -> Result<u32, ConfigError> {
        self.capacity.ok_or(ConfigError::Missing("capacity"))
    }
}
