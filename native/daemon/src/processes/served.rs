//! One image that the supervisor serves: its folder, its configuration and its keeper.
//!
//! What starts, ends or changes the keeper of an image takes its turn first, and may then wait for seconds. Nothing that concerns other images
//! waits for a turn: the supervisor's look at all passes those over whose turn is taken.

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use diffcache_base::locks;
use diffcache_base::locks::Unpoisoned;
use diffcache_base::output::replace_durably;
use diffcache_core::manifest::Manifest;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Deserializer};
use serde_json::{json, Value};

use crate::config::{self, Homes, Hydrate, Place};
use crate::error::DaemonError;
use crate::prefetch::profile;
use crate::processes::keeper;
use crate::processes::mounts::Mounts;
use crate::processes::program;
use crate::processes::refusal::Refusal;
use crate::processes::restarts::Pauses;
use crate::processes::status;
use crate::sizes::CHUNK;
use crate::tuning::Tuning;

/// How long a keeper may take until its image can be read, on a host that is busy, too: clients wait for a minute.
const START_TIME: Duration = Duration::from_secs(45);
/// How long a keeper may take until it has ended, and until it works by what was changed.
const STOP_TIME: Duration = Duration::from_secs(15);
const CHANGE_TIME: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// A change of an image that is served.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Where it comes from.
    pub sources: Option<Vec<Place>>,
    /// Hosts that fetch it for one another.
    pub homes: Option<Homes>,
    /// When the rest is fetched.
    pub hydrate: Option<Hydrate>,
    /// Bytes per second of that; null removes the limit.
    #[serde(default, deserialize_with = "given")]
    pub rate: Option<Option<u64>>,
    /// Seconds that a read waits.
    pub wait: Option<f64>,
    /// File of another profile.
    pub profile: Option<PathBuf>,
    /// Whether what is kept is verified again, as another process found it wrong.
    #[serde(default)]
    pub verify: bool,
}

/// Read a value that may be null; that it is absent is the field's default.
fn given<'a, D: Deserializer<'a>>(json: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(json).map(Some)
}

/// One image.
pub struct Image {
    folder: PathBuf,
    mounts: Mounts,
    /// What keepers run.
    program: PathBuf,
    /// Whether it is served, and is to be listed.
    is_served: AtomicBool,
    keeper: Mutex<Keeper>,
}

/// The keeper of an image, as far as this process started it.
struct Keeper {
    child: Option<Child>,
    next_start: Instant,
    pauses: Pauses,
    /// Whether the image was removed: another one of its name is another image.
    is_gone: bool,
}

/// The right to start, end or change the keeper of an image, until it is dropped.
pub struct Turn<'a> {
    image: &'a Image,
    keeper: MutexGuard<'a, Keeper>,
}

/// Write a file that survives a power cut.
fn write_durably(path: &Path, text: &[u8]) -> Result<(), DaemonError> {
    replace_durably(path, |file| file.write_all(text)).map_err(DaemonError::at("write", path))
}

impl Image {
    /// Name an image by its folder; `program` is what its keepers run.
    pub fn new(folder: PathBuf, mounts: Mounts, program: &Path) -> Image {
        Image {
            folder,
            mounts,
            program: program.to_owned(),
            is_served: AtomicBool::new(false),
            keeper: Mutex::new(Keeper {
                child: None,
                next_start: Instant::now(),
                pauses: Pauses::new(FIRST_PAUSE),
                is_gone: false,
            }),
        }
    }

    /// Return its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Return whether it is served.
    pub fn is_served(&self) -> bool {
        self.is_served.load(Ordering::SeqCst)
    }

    /// Note that it is served.
    pub fn set_served(&self) {
        self.is_served.store(true, Ordering::SeqCst);
    }

    /// Take the turn, after whatever is done with the image now; none once it is gone.
    pub fn turn(&self) -> Option<Turn<'_>> {
        locks::begin("wait for an image's turn");
        let keeper = self.keeper.lock().unpoisoned();
        (!keeper.is_gone).then_some(Turn {
            image: self,
            keeper,
        })
    }

    /// Take the turn if nothing is done with the image now.
    pub fn try_turn(&self) -> Option<Turn<'_>> {
        let keeper = match self.keeper.try_lock() {
            Ok(keeper) => keeper,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (!keeper.is_gone).then_some(Turn {
            image: self,
            keeper,
        })
    }

    /// Return the path of its configuration.
    pub fn file(&self) -> PathBuf {
        self.folder.join("config.json")
    }

    /// Read its configuration.
    ///
    /// # Errors
    /// As `Config::load`.
    pub fn load(&self) -> Result<config::Config, DaemonError> {
        config::Config::load(&self.file())
    }

    /// Write its configuration.
    ///
    /// # Errors
    /// `Invalid` for one that the keeper would refuse, `Failed` of the disk.
    pub fn save(&self, config: &config::Config) -> Result<(), Refusal> {
        let text =
            serde_json::to_vec(config).map_err(|error| Refusal::Invalid(error.to_string()))?;
        // What the keeper would refuse is not kept.
        let parsed = std::str::from_utf8(&text).map_err(|error| error.to_string());
        config::Config::parse(parsed.map_err(Refusal::Invalid)?)?;
        let path = self.file();
        Ok(write_durably(&path, &text)?)
    }

    /// Return the longest pause between two starts of the keeper, by its configuration if that can be read.
    fn longest_pause(&self) -> Duration {
        let config = self.load();
        config.map_or_else(
            |_| Tuning::default().longest_pause(),
            |config| config.tuning.longest_pause(),
        )
    }

    /// Describe it, also when its keeper does not answer.
    pub fn describe(&self, id: &str) -> Value {
        locks::begin("ask a keeper");
        self.describe_as(id, status::ask(&self.folder))
    }

    /// Describe it, with what its keeper answered.
    pub fn describe_as(&self, id: &str, found: io::Result<Value>) -> Value {
        let config = self.load().ok();
        let mount = config.as_ref().map(|config| config.mount.clone());
        let mut value = match found {
            Ok(found) => found,
            Err(error) => json!({"error": error.to_string()}),
        };
        value["content_id"] = json!(id);
        value["path"] = json!(mount.map(|mount| mount.join(id)));
        value["data_path"] = json!(self.folder.join(format!("{id}.data")));
        value
    }
}

impl Turn<'_> {
    /// Return the image.
    pub fn image(&self) -> &Image {
        self.image
    }

    /// Return whether this process has started a keeper.
    #[cfg(test)]
    pub fn is_started(&self) -> bool {
        self.keeper.child.is_some()
    }

    /// Note that the image is gone.
    pub fn set_gone(&mut self) {
        self.image.is_served.store(false, Ordering::SeqCst);
        self.keeper.is_gone = true;
    }

    /// Start a keeper in a process group of its own: it outlives this process.
    ///
    /// # Errors
    /// `System`.
    pub fn start(&mut self) -> Result<(), DaemonError> {
        let mut keeper = Command::new(&self.image.program);
        self.image.mounts.hand_over(&mut keeper);
        let keeper = keeper
            .arg0(program::NAME)
            .arg("keep")
            .arg(self.image.file())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(DaemonError::system("start a keeper"))?;
        self.keeper.child = Some(keeper);
        Ok(())
    }

    /// Wait until the keeper's worker has begun.
    ///
    /// # Errors
    /// `Failed`.
    pub fn wait_until_served(&mut self) -> Result<Value, Refusal> {
        locks::begin("wait for a keeper");
        let start = Instant::now();
        while start.elapsed() < START_TIME {
            if let Ok(found) = status::ask(&self.image.folder) {
                if found["worker_pid"].is_u64() {
                    return Ok(found);
                }
            }
            if let Some(Ok(Some(ended))) = self.keeper.child.as_mut().map(Child::try_wait) {
                let reason = format!("its keeper ended ({ended}); the log of diffcached says why");
                return Err(Refusal::Failed(reason));
            }
            std::thread::sleep(POLL);
        }
        Err(Refusal::Failed(format!(
            "its keeper did not serve it within {} s",
            START_TIME.as_secs()
        )))
    }

    /// Wait until the keeper works by the configuration that was saved, if it answers at all.
    pub fn wait_until_changed(&self) {
        locks::begin("wait for a keeper");
        let Ok(config) = self.image.load() else {
            return;
        };
        let (wanted, start) = (json!(config.digest()), Instant::now());
        while start.elapsed() < CHANGE_TIME {
            match status::ask(&self.image.folder) {
                Ok(found) if found["settings"] == wanted => return,
                Ok(_) => std::thread::sleep(POLL),
                Err(_) => return,
            }
        }
        log::warn!(
            "The keeper of {} does not change",
            self.image.folder.display()
        );
    }

    fn pid(&self) -> Option<Pid> {
        let own = self
            .keeper
            .child
            .as_ref()
            .map(|keeper| u64::from(keeper.id()));
        let told = || status::ask(&self.image.folder).ok()?["pid"].as_u64();
        Pid::from_raw(i32::try_from(own.or_else(told)?).ok()?)
    }

    /// Send the keeper a signal, if there is one.
    pub fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid() else { return };
        if let Err(error) = rustix::process::kill_process(pid, signal) {
            log::warn!(
                "Could not signal the keeper of {}: {error}",
                self.image.folder.display()
            );
        }
    }

    /// Return whether the keeper has ended. What cannot be seen has not: its image may be served.
    fn has_ended(&mut self) -> bool {
        let folder = self.image.folder.display();
        let ended = match &mut self.keeper.child {
            Some(child) => child.try_wait().map(|ended| {
                if let Some(ended) = ended {
                    log::warn!("The keeper of {folder} ended ({ended})");
                }
                ended.is_some()
            }),
            // One that is exchanged does not answer for a moment, and has its lock.
            None => keeper::is_locked(&self.image.folder).map(|is_locked| !is_locked),
        };
        let ended = ended.unwrap_or_else(|error| {
            log::warn!("Could not check the keeper of {folder}: {error}");
            false
        });
        if ended {
            self.keeper.child = None;
        }
        ended
    }

    /// End the keeper, and wait until it has.
    pub fn stop(&mut self) {
        locks::begin("wait for the end of a keeper");
        self.signal(Signal::TERM);
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() > STOP_TIME {
                log::warn!("Killing the keeper of {}", self.image.folder.display());
                self.signal(Signal::KILL);
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Start the keeper again if it has ended.
    pub fn look_after(&mut self) {
        if !self.has_ended() {
            self.keeper.pauses.reset();
            return;
        }
        let now = Instant::now();
        if now < self.keeper.next_start {
            return;
        }
        let longest = self.image.longest_pause();
        self.keeper.next_start = now + self.keeper.pauses.take(longest);
        if let Err(error) = self.start() {
            log::error!("Could not serve {}: {error}", self.image.folder.display());
        }
    }

    /// Change what the keeper does, now and after its next start.
    ///
    /// # Errors
    /// `Invalid` for what cannot be used, `Failed` of the disk.
    pub fn change(&self, change: Change) -> Result<(), Refusal> {
        let image = self.image;
        let found = image.load()?;
        let last = found.profile.as_deref();
        let profile = change.profile.map(|path| {
            let to = next_profile(&image.folder, last);
            copy_profile(&path, &to, &found.load_manifest()?)
        });
        let profile = profile.transpose()?;
        let changed = config::Config {
            profile: profile.or_else(|| found.profile.clone()),
            sources: change.sources.unwrap_or_else(|| found.sources.clone()),
            homes: change.homes.or_else(|| found.homes.clone()),
            hydrate: change
                .hydrate
                .map_or(found.hydrate, |wanted| set_again(wanted, found.hydrate)),
            rate: change.rate.unwrap_or(found.rate),
            wait: change.wait.unwrap_or(found.wait),
            doubts: found.doubts + u64::from(change.verify),
            ..found.clone()
        };
        if changed != found {
            image.save(&changed)?;
            self.signal(Signal::HUP);
            if let Some(last) = last.filter(|last| changed.profile.as_deref() != Some(last)) {
                if let Err(error) = fs::remove_file(last) {
                    log::warn!("Could not remove {}: {error}", last.display());
                }
            }
        }
        Ok(())
    }
}

/// Copy a file durably, and return where to.
///
/// # Errors
/// `Path`.
pub fn copy(from: &Path, to: &Path) -> Result<PathBuf, DaemonError> {
    let bytes = fs::read(from).map_err(DaemonError::at("read", from))?;
    write_durably(to, &bytes)?;
    Ok(to.to_owned())
}

/// Keep a profile that can be used with an image.
///
/// # Errors
/// `Path`, or `Profile` for one that cannot be used.
pub fn copy_profile(from: &Path, to: &Path, manifest: &Manifest) -> Result<PathBuf, DaemonError> {
    let limited = |error| DaemonError::Profile {
        path: from.to_owned(),
        error,
    };
    // What is checked is what is kept, also if the file is replaced meanwhile.
    let text = profile::read(from).map_err(limited)?;
    profile::parse(&text, manifest.size().div_ceil(CHUNK)).map_err(limited)?;
    write_durably(to, &text)?;
    Ok(to.to_owned())
}

/// Return the path for an image's next profile: another one each time, which tells the keeper that it is another profile.
fn next_profile(folder: &Path, last: Option<&Path>) -> PathBuf {
    let number = last.and_then(|path| path.extension()?.to_str()?.parse().ok());
    folder.join(format!("profile.{}", number.unwrap_or(0u64) + 1))
}

/// Make a deadline differ from the last one. It counts from when it was set, and keepers compare configurations.
fn set_again(wanted: Hydrate, last: Hydrate) -> Hydrate {
    match wanted {
        Hydrate::Seconds(seconds) if wanted == last => {
            Hydrate::Seconds(f64::from_bits(seconds.to_bits() + 1))
        }
        _ => wanted,
    }
}
