//! What one mount serves, as JSON: the command line of `diffcache lazy serve` in the daemon's own terms.

use std::path::PathBuf;

use diffcache_core::manifest::Manifest;
use diffcache_prefetch::Profile;
use serde::{Deserialize, Serialize};

use crate::error::DaemonError;
use crate::profile;

/// When the rest of the image is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hydrate {
    /// Never: only what is read.
    #[default]
    None,
    /// While no read waits.
    Idle,
    /// Within this many seconds from the start of the daemon.
    Seconds(f64),
}

/// One image to serve.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Path or URL of the image.
    pub image: String,
    /// Manifest of the image.
    pub manifest: PathBuf,
    /// Folder to mount at.
    pub mount: PathBuf,
    /// Folder of what is kept between runs.
    pub state: PathBuf,
    /// Whether chunks are fetched before they are read.
    #[serde(default = "yes")]
    pub prefetch: bool,
    /// File of a profile of the image.
    pub profile: Option<PathBuf>,
    /// When the rest of the image is fetched.
    #[serde(default)]
    pub hydrate: Hydrate,
    /// Bytes per second that hydration may take at most.
    pub rate: Option<u64>,
    /// File for the reads of guests, as a scenario.
    pub record: Option<PathBuf>,
    /// Seconds that a read waits for a source.
    pub wait: f64,
}

fn yes() -> bool {
    true
}

impl Config {
    /// Parse a configuration.
    ///
    /// # Errors
    /// `Config`.
    pub fn parse(text: &str) -> Result<Config, DaemonError> {
        let config: Config =
            serde_json::from_str(text).map_err(|error| DaemonError::Config(error.to_string()))?;
        if !(config.wait >= 0.0 && config.wait <= 1e9) {
            return Err(DaemonError::Config(format!(
                "wait {} is out of range",
                config.wait
            )));
        }
        if let Hydrate::Seconds(seconds) = config.hydrate {
            if !(seconds > 0.0 && seconds <= 1e9) {
                let reason = format!("a deadline of {seconds} s is out of range");
                return Err(DaemonError::Config(reason));
            }
        }
        if config.rate == Some(0) {
            return Err(DaemonError::Config("rate 0 fetches nothing".to_owned()));
        }
        Ok(config)
    }

    /// Load the profile for an image of so many chunks; empty if there is none.
    ///
    /// # Errors
    /// `Profile`.
    pub fn load_profile(&self, chunks: u64) -> Result<Profile, DaemonError> {
        let Some(path) = &self.profile else {
            return Ok(Profile::default());
        };
        profile::load(path, chunks).map_err(|error| DaemonError::Profile {
            path: path.clone(),
            error,
        })
    }

    /// Load the manifest, which its own hash verifies.
    ///
    /// # Errors
    /// `Manifest`.
    pub fn load_manifest(&self) -> Result<Manifest, DaemonError> {
        Manifest::load(&self.manifest).map_err(|error| DaemonError::Manifest {
            path: self.manifest.clone(),
            error,
        })
    }
}
