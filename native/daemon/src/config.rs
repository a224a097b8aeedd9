//! What one mount serves, as JSON: the command line of `diffcache lazy serve` in the daemon's own terms.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use diffcache_base::hex;
use diffcache_core::manifest::Manifest;
use diffcache_prefetch::Profile;
use serde::{Deserialize, Serialize};

use crate::error::DaemonError;
use crate::prefetch::profile;
use crate::sizes::MAX_SOURCES;
use crate::tuning::Tuning;

/// Patches that may be applied to a base one after another.
pub const MAX_PATCHES: usize = 4;

/// What is served now, for the threads of a keeper.
pub type SharedConfig = Arc<RwLock<Config>>;

/// When the rest of the image is fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Hydrate {
    /// Never: only what is read.
    #[default]
    None,
    /// Never, but the chunks of the profile are fetched at once, before any read.
    Profile,
    /// While no read waits.
    Idle,
    /// Within this many seconds from the start of the daemon.
    Seconds(f64),
}

/// Where an image is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Place {
    /// A path, or the URL of an HTTP server that answers Range.
    Plain(String),
    /// The data plane of a host.
    Peer(PeerPlace),
    /// A base and patches that make the image of it.
    Build(BuildPlace),
    /// A saved version, in a store on this host.
    Version(VersionPlace),
    /// A process of this host.
    Local(LocalPlace),
}

/// A process of this host that serves the image over HTTP and answers Range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalPlace {
    /// What it is, for logs and the status.
    pub name: String,
    /// Its unix socket.
    pub socket: PathBuf,
    /// Path of the image there.
    pub path: String,
}

/// A saved version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VersionPlace {
    /// Its ID, for logs and the status.
    pub version: String,
    /// File that says where its blocks are; see `version`.
    pub description: PathBuf,
    /// Its base image, raw or qcow2, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<PathBuf>,
}

/// A base and patches, at data planes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BuildPlace {
    /// The base, whole.
    pub base: ObjectPlace,
    /// Patches that are applied before the last one, the base's first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<ObjectPlace>,
    /// The patch that makes the image. All are of the block codec.
    pub patch: ObjectPlace,
}

impl BuildPlace {
    /// Return all patches, in the order in which they are applied.
    pub fn patches(&self) -> impl Iterator<Item = &ObjectPlace> {
        self.through.iter().chain([&self.patch])
    }
}

/// An object at the data plane of a host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectPlace {
    /// Base URL of the data plane.
    pub peer: String,
    /// Id of the object, 64 hexadecimal digits.
    #[serde(with = "hex_id")]
    pub id: [u8; 32],
    /// Whether it is behind a WAN.
    #[serde(default)]
    pub wan: bool,
}

impl fmt::Display for ObjectPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", &hex::encode(&self.id)[..12], self.peer)
    }
}

/// Ids in JSON.
mod hex_id {
    use diffcache_base::hex;
    use serde::{de::Error, Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(id: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(id))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        hex::decode(&text)
            .ok_or_else(|| D::Error::custom(format!("'{text}' is no id of an object")))
    }
}

/// The data plane of a host, which serves the image by its content id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerPlace {
    /// Base URL of the data plane.
    pub peer: String,
    /// Whether it is behind a WAN, where bytes are dear: it is read in the compressed form, if it has that.
    #[serde(default)]
    pub wan: bool,
}

/// The hosts of a site, which fetch an image for one another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Homes {
    /// Name of this host.
    pub own: String,
    /// All of them.
    pub hosts: Vec<HomeHost>,
}

/// A host of a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeHost {
    /// Its name, by which all hosts rank it.
    pub name: String,
    /// Base URL of its data plane.
    pub url: String,
}

impl Place {
    /// Return the base and the patches that it is read through, if it is.
    pub fn build(&self) -> Option<&BuildPlace> {
        match self {
            Place::Build(place) => Some(place),
            Place::Plain(_) | Place::Peer(_) | Place::Version(_) | Place::Local(_) => None,
        }
    }

    /// Return what logs and the status call it.
    pub fn name(&self) -> String {
        match self {
            Place::Plain(name) => name.clone(),
            Place::Peer(place) => place.peer.clone(),
            Place::Version(place) => format!("version {}", place.version),
            Place::Local(place) => place.name.clone(),
            Place::Build(place) => {
                let patches = place.patches().map(|patch| format!(", patch {patch}"));
                format!("base {}{}", place.base, patches.collect::<String>())
            }
        }
    }
}

/// How this host shows data planes who it is; nothing where they ask for nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Name of the key that requests are signed with.
    pub key_name: Option<String>,
    /// File with that key, as hexadecimal digits.
    pub key_file: Option<PathBuf>,
    /// Certificates of the authorities of the deployment.
    pub tls_ca_file: Option<PathBuf>,
    /// This host's certificate.
    pub tls_cert_file: Option<PathBuf>,
    /// Its private key.
    pub tls_key_file: Option<PathBuf>,
    /// Certificates that were revoked.
    pub tls_crl_file: Option<PathBuf>,
    /// Whether hosts are asked in the clear that announce no TLS.
    #[serde(default)]
    pub tls_plain_peers: bool,
}

impl Identity {
    /// Return the files that it is read from.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let files = [
            &self.key_file,
            &self.tls_ca_file,
            &self.tls_cert_file,
            &self.tls_key_file,
            &self.tls_crl_file,
        ];
        files.into_iter().flatten()
    }
}

/// One image to serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the image is, the cheapest place first.
    pub sources: Vec<Place>,
    /// Hosts that fetch the image for one another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub homes: Option<Homes>,
    /// Whether they teach each other what is read of it.
    #[serde(default = "yes")]
    pub hints: bool,
    /// Whether the rest of a file is fetched when a part of it is read.
    #[serde(default = "yes")]
    pub files: bool,
    /// Whether a new worker has the kernel send unanswered requests again, where it can.
    #[serde(default = "yes")]
    pub resend: bool,
    /// How this host shows its identity to data planes.
    #[serde(default)]
    pub identity: Identity,
    /// Number of the group that may read the image; none for the process's own.
    pub group: Option<u32>,
    /// Manifest of the image.
    pub manifest: PathBuf,
    /// Folder to mount at.
    pub mount: PathBuf,
    /// Folder of what is kept between runs.
    pub state: PathBuf,
    /// Whether chunks are fetched before they are read.
    #[serde(default = "yes")]
    pub prefetch: bool,
    /// What operators set for all images of a host.
    #[serde(default)]
    pub tuning: Tuning,
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
    /// How often what is kept was found wrong by another process: the worker verifies all of it after each time.
    #[serde(default)]
    pub doubts: u64,
}

fn yes() -> bool {
    true
}

impl Config {
    /// Return a digest of all settings: equal for processes with the same settings.
    pub fn digest(&self) -> String {
        // What was parsed from JSON can be written as such.
        let text = serde_json::to_vec(self).unwrap_or_default();
        blake3::hash(&text).to_hex()[..16].to_owned()
    }

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
        config.tuning.check()?;
        if let Hydrate::Seconds(seconds) = config.hydrate {
            if !(seconds > 0.0 && seconds <= 1e9) {
                let reason = format!("a deadline of {seconds} s is out of range");
                return Err(DaemonError::Config(reason));
            }
        }
        if config.hydrate == Hydrate::Profile && !config.prefetch {
            let reason = "chunks of the profile are fetched by prefetching, which is off";
            return Err(DaemonError::Config(reason.to_owned()));
        }
        if config.rate == Some(0) {
            return Err(DaemonError::Config("rate 0 fetches nothing".to_owned()));
        }
        if config.sources.is_empty() || config.sources.len() > MAX_SOURCES {
            let reason = format!("an image has 1 to {MAX_SOURCES} sources");
            return Err(DaemonError::Config(reason));
        }
        let is_request_line = |place: &LocalPlace| {
            let path = place.path.as_bytes();
            path.starts_with(b"/") && path.iter().all(u8::is_ascii_graphic)
        };
        for place in &config.sources {
            if matches!(place, Place::Local(place) if !is_request_line(place)) {
                let reason = format!("the path of {} cannot be requested", place.name());
                return Err(DaemonError::Config(reason));
            }
        }
        let mut builds = config.sources.iter().filter_map(Place::build);
        if builds.any(|build| build.patches().count() > MAX_PATCHES) {
            let reason = format!("a source has at most {MAX_PATCHES} patches");
            return Err(DaemonError::Config(reason));
        }
        Ok(config)
    }

    /// Read a configuration from a file.
    ///
    /// # Errors
    /// `Path` or `Config`.
    pub fn load(path: &Path) -> Result<Config, DaemonError> {
        let text = std::fs::read_to_string(path);
        Config::parse(&text.map_err(DaemonError::at("read", path))?)
    }

    /// Read the configuration that a worker has as its standard input.
    ///
    /// # Errors
    /// `System` or `Config`.
    pub fn receive() -> Result<Config, DaemonError> {
        let text = io::read_to_string(io::stdin());
        Config::parse(&text.map_err(DaemonError::system("read the configuration"))?)
    }

    /// Name the image in logs: by its first source.
    pub fn image(&self) -> String {
        self.sources.first().map(Place::name).unwrap_or_default()
    }

    /// Load the profile for an image of this many chunks; empty if there is none.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(changes: &str) -> Result<Config, DaemonError> {
        let rest =
            r#""sources": ["/a"], "manifest": "/m", "mount": "/t", "state": "/s", "wait": 0.0"#;
        Config::parse(&format!("{{{rest}, {changes}}}"))
    }

    #[test]
    fn a_profile_is_not_fetched_without_prefetching() {
        assert!(parse(r#""hydrate": "profile""#).is_ok());
        assert!(parse(r#""hydrate": "idle", "prefetch": false"#).is_ok());
        let refused = parse(r#""hydrate": "profile", "prefetch": false"#);
        assert!(matches!(refused, Err(DaemonError::Config(_))));
    }
}
