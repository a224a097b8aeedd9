//! What to serve: the configuration of the command line, in JSON.

use std::path::PathBuf;
use std::time::Duration;

use diffcache_partitions::eviction::Policy;
use diffcache_ssdcache::cache::{DirtyMax, Options};
use serde::Deserialize;

use crate::error::ConfigError;
use crate::volumes::VolumeConfig;

/// What to serve.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    pub(crate) device: PathBuf,
    /// Blocks of the cache.
    pub(crate) capacity: u32,
    /// Whether the device is made an empty cache.
    #[serde(default)]
    pub(crate) format: bool,
    #[serde(default)]
    pub(crate) cache: CacheConfig,
    /// Whether volumes in write-back are held after a start of the host.
    #[serde(default)]
    pub(crate) hold: bool,
    /// Where failures of devices are noted.
    pub(crate) state: PathBuf,
    #[serde(default)]
    pub(crate) volumes: Vec<VolumeConfig>,
    /// The socket for commands.
    pub(crate) control: Option<PathBuf>,
    /// The socket of NBD.
    pub(crate) socket: PathBuf,
    /// Number of the group that may connect to it, besides this user.
    pub(crate) socket_group: Option<u32>,
    /// The descriptor that is written to when the cache is ready.
    pub(crate) ready_fd: Option<i32>,
}

/// How blocks are cached.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CacheConfig {
    /// Name of the policy of eviction.
    evict: String,
    admission: u8,
    /// A number of blocks, or a percentage.
    dirty_max: String,
    /// Seconds.
    dirty_age: u64,
    pub(crate) discard_dirty: bool,
    samples: usize,
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self {
            evict: Policy::Lru.name().to_owned(),
            admission: 1,
            dirty_max: "50%".to_owned(),
            dirty_age: 30,
            discard_dirty: false,
            samples: 0,
        }
    }
}

impl CacheConfig {
    /// The options of the cache.
    ///
    /// # Errors
    /// A value is wrong.
    pub(crate) fn options(&self) -> Result<Options, ConfigError> {
        let refused = |key: &str, value: &str, reason: &str| ConfigError::Parameter {
            key: key.to_owned(),
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        let dirty_max = match self.dirty_max.strip_suffix('%') {
            Some(percent) => percent.parse().map(DirtyMax::Percent),
            None => self.dirty_max.parse().map(DirtyMax::Blocks),
        };
        Ok(Options {
            eviction: Policy::named(&self.evict)
                .ok_or_else(|| refused("evict", &self.evict, "no such policy"))?,
            admission: self.admission.max(1),
            dirty_max: dirty_max.map_err(|_| {
                refused(
                    "dirty_max",
                    &self.dirty_max,
                    "not a whole number of the range",
                )
            })?,
            dirty_age: Duration::from_secs(self.dirty_age),
            discard_dirty: self.discard_dirty,
            samples: self.samples,
        })
    }
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// It is not JSON, or a value in it is missing, not known or wrong.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Ok(serde_json::from_str(text)?)
    }

    /// The sockets of this process: of NBD, and for commands.
    #[must_use]
    pub fn sockets(&self) -> Vec<PathBuf> {
        let mut sockets = vec![self.socket.clone()];
        sockets.extend(self.control.clone());
        sockets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &str) -> Result<Options, String> {
        let text =
            format!(r#"{{"device": "/d", "capacity": 1, "state": "/s", "socket": "/n"{more}}}"#);
        let config = Config::parse(&text).map_err(|error| error.to_string())?;
        config.cache.options().map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_given_has_a_default() {
        let options = parse("").unwrap();
        assert_eq!(options.dirty_max, DirtyMax::Percent(50));
        let options = parse(r#", "cache": {"dirty_max": "7", "admission": 0}"#).unwrap();
        assert_eq!(
            (options.dirty_max, options.admission),
            (DirtyMax::Blocks(7), 1)
        );
    }

    #[test]
    fn wrong_values_are_refused_and_named() {
        for (more, reason) in [
            (r#", "devise": 1"#, "unknown field `devise`"),
            (r#", "cache": {"dirt": 1}"#, "unknown field `dirt`"),
            (r#", "cache": {"evict": "x"}"#, "evict: x: no such policy"),
            (r#", "cache": {"dirty_max": "5%%"}"#, "dirty_max: 5%%: "),
            (r#", "hold": "true""#, "invalid type"),
            (r#"} x"#, "trailing"),
        ] {
            let refused = parse(more).err().unwrap();
            assert!(refused.contains(reason), "{more}: {refused}");
        }
        let refused = Config::parse("{}").err().unwrap().to_string();
        assert!(refused.contains("missing field `device`"), "{refused}");
    }
}
