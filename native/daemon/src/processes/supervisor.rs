//! The service beside an agent: serves any number of images, each by a keeper and a worker of its own.
//!
//! One pair of processes for each image, so that a fault with one image touches no guest of another. Keepers live on when this process ends: the
//! next one finds them by their sockets, and starts those that are gone from what is on the disk. Below the state folder, `images/CONTENT_ID` has
//! `config.json`, `manifest`, `profile` and what the keeper keeps there; a folder without `config.json` was not finished, or is being removed.

mod start;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use diffcache_base::locks::{self, ShortLock};
use diffcache_control::{listen_for_group, Limits};
use diffcache_core::manifest::Manifest;
use serde::Deserialize;
use serde_json::{json, Value};

use crate::config::{self, Homes, Hydrate, Identity, Place};
use crate::error::DaemonError;
use crate::processes::mounts::{Mounts, Unmounted};
use crate::processes::program;
use crate::processes::refusal::Refusal;
use crate::processes::served::{self, Change, Image, Turn};
use crate::processes::signals;
use crate::processes::status::{self, Question};
use crate::processes::supervisor::start::{create_folder, lock_state};
use crate::tuning::Tuning;

/// How often keepers are looked after.
const LOOK_TIME: Duration = Duration::from_millis(500);
/// Commands at the same time, and their sizes.
const LIMITS: Limits = Limits {
    command: 1 << 20,
    clients: 64,
};
/// How long an image is in use before it is said to be open, and how often that is looked at.
const BUSY_TIME: Duration = Duration::from_millis(500);
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// How long the keepers together may take to answer for a list.
const LIST_TIME: Duration = Duration::from_secs(2);

/// The service's configuration, as JSON.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Socket to listen on.
    pub socket: PathBuf,
    /// Number of the group that may connect, besides this user; none for no group.
    pub socket_group: Option<u32>,
    /// Folder of what is kept.
    pub state: PathBuf,
    /// Folder below which images are mounted.
    pub mount: PathBuf,
    /// Number of the group that may read images; none for the service's own.
    pub image_group: Option<u32>,
    /// Socket of the mounter; none to mount by own rights.
    pub mounter: Option<PathBuf>,
    /// How this host shows its identity to data planes.
    #[serde(default)]
    pub identity: Identity,
    /// Whether hosts of a site teach each other what is read of images.
    #[serde(default = "yes")]
    pub hints: bool,
    /// Whether the rest of a file is fetched when a part of it is read.
    #[serde(default = "yes")]
    pub files: bool,
    /// What operators set for all images; it holds for those that are served from then on.
    #[serde(default)]
    pub tuning: Tuning,
    /// Whether new workers have the kernel send unanswered requests again, where it can.
    #[serde(default = "yes")]
    pub resend: bool,
}

impl Config {
    /// Parse a configuration.
    ///
    /// # Errors
    /// `Config`.
    pub fn parse(text: &str) -> Result<Config, DaemonError> {
        let config: Config =
            serde_json::from_str(text).map_err(|error| DaemonError::Config(error.to_string()))?;
        config.tuning.check()?;
        Ok(config)
    }
}

fn yes() -> bool {
    true
}

/// An image that is to be served.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    manifest: PathBuf,
    sources: Vec<Place>,
    homes: Option<Homes>,
    profile: Option<PathBuf>,
    #[serde(default = "yes")]
    prefetch: bool,
    #[serde(default)]
    hydrate: Hydrate,
    rate: Option<u64>,
    wait: f64,
}

/// The images of a host.
struct Supervisor {
    config: Config,
    mounts: Mounts,
    /// What keepers run.
    program: PathBuf,
    /// Also those that are being added; see [`Image::is_served`].
    images: ShortLock<BTreeMap<String, Arc<Image>>>,
}

/// A command of the agent.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
enum Command {
    /// Describes all images.
    List {},
    /// Describes an image.
    Show { image: String },
    /// Returns what instances here have read of an image.
    Profile { image: String },
    /// Serves an image, or serves it from other sources; answered when it can be read.
    Add { image: String, wanted: Wanted },
    /// Changes an image that is served.
    Change { image: String, changed: Change },
    /// Stops serving an image that no process has open, and removes what is kept of it.
    Remove { image: String },
}

/// Serve until SIGTERM. What is mounted stays, and so do its keepers.
///
/// # Errors
/// As `DaemonError`.
pub fn run(config: Config) -> Result<(), DaemonError> {
    signals::block();
    let images = config.state.join("images");
    for folder in [&config.state, &images, &config.mount] {
        // Guests' processes pass through; what is in the folders of images is private.
        create_folder(folder, 0o711)?;
    }
    let _lock = lock_state(&config.state)?;
    let listener = listen_for_group(&config.socket, config.socket_group)
        .map_err(DaemonError::at("listen at", &config.socket))?;
    let supervisor = Arc::new(Supervisor::new(config, Path::new(program::OWN)));
    supervisor.find_images(&images)?;
    supervisor.renew_all();
    let clients = supervisor.clone();
    let answer = move |line: &[u8]| clients.answer(line);
    let accept = move || diffcache_control::serve(&listener, LIMITS, answer);
    std::thread::Builder::new()
        .name("clients".to_owned())
        .spawn(accept)
        .map_err(DaemonError::system("start a thread"))?;
    log::info!("Serving images below {}", supervisor.config.mount.display());
    loop {
        supervisor.look_after();
        if signals::wait(Some(LOOK_TIME)) == Some(signals::Signal::Stop) {
            break;
        }
    }
    let socket = &supervisor.config.socket;
    fs::remove_file(socket).map_err(DaemonError::at("remove", socket))
}

fn is_content_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

impl Supervisor {
    fn new(config: Config, program: &Path) -> Supervisor {
        Supervisor {
            mounts: Mounts::new(config.mounter.clone()),
            config,
            program: program.to_owned(),
            images: ShortLock::default(),
        }
    }

    fn new_image(&self, id: &str) -> Arc<Image> {
        let folder = self.config.state.join("images").join(id);
        Arc::new(Image::new(folder, self.mounts.clone(), &self.program))
    }

    /// Return the images that are served.
    fn served(&self) -> Vec<(String, Arc<Image>)> {
        let images = self.images.lock();
        let served = images.iter().filter(|(_, image)| image.is_served());
        served
            .map(|(id, image)| (id.clone(), image.clone()))
            .collect()
    }

    /// Start keepers again that have ended, except where something is done with the image now.
    fn look_after(&self) {
        for (_, image) in self.served() {
            if let Some(mut turn) = image.try_turn() {
                turn.look_after();
            }
        }
    }

    fn answer(&self, line: &[u8]) -> Value {
        match diffcache_control::parse(line) {
            Ok(command) => self
                .execute(command)
                .unwrap_or_else(|refusal| refusal.answer()),
            Err(refused) => refused,
        }
    }

    fn execute(&self, command: Command) -> Result<Value, Refusal> {
        let (name, found) = match command {
            Command::List {} => ("images", self.list(LIST_TIME)),
            Command::Show { image } => ("image", self.find(&image)?.describe(&image)),
            Command::Profile { image } => ("profile", self.show_profile(&image)?),
            Command::Add { image, wanted } => ("image", self.add(&image, wanted)?),
            Command::Change { image, changed } => ("image", self.change(&image, changed)?),
            Command::Remove { image } => {
                self.remove(&image)?;
                ("removed", json!(image))
            }
        };
        Ok(json!({ name: found }))
    }

    /// Describe all images, each with what its keeper answers within a time.
    fn list(&self, time: Duration) -> Value {
        locks::begin("ask keepers");
        let served = self.served().into_iter();
        // All are asked before the first answer is waited for.
        let asked: Vec<_> = served
            .map(|(id, image)| (id, Question::begin(image.folder()), image))
            .collect();
        let deadline = Instant::now() + time;
        let described = asked.into_iter().map(|(id, question, image)| {
            let found = question.and_then(|question| question.answer(deadline));
            image.describe_as(&id, found)
        });
        described.collect()
    }

    fn find(&self, id: &str) -> Result<Arc<Image>, Refusal> {
        let found = self.images.lock().get(id).cloned();
        found
            .filter(|image| image.is_served())
            .ok_or_else(|| Refusal::Unknown(id.to_owned()))
    }

    /// Return what instances here have read of an image.
    fn show_profile(&self, id: &str) -> Result<Value, Refusal> {
        let image = self.find(id)?;
        status::ask_profile(image.folder()).map_err(|error| {
            Refusal::Failed(format!("the keeper of {id} does not answer: {error}"))
        })
    }

    /// Serve an image, or serve it from other sources if it is served already. Returns when it can be read.
    fn add(&self, id: &str, wanted: Wanted) -> Result<Value, Refusal> {
        if !is_content_id(id) {
            return Err(Refusal::Invalid(format!("'{id}' is no content id")));
        }
        loop {
            let mut images = self.images.lock();
            let image = images.entry(id.to_owned());
            let image = image.or_insert_with(|| self.new_image(id)).clone();
            drop(images);
            let Some(mut turn) = image.turn() else {
                // It was removed before the turn came: another one has its name.
                continue;
            };
            return match image.is_served() {
                true => serve_again(&mut turn, id, wanted),
                false => self.begin(&mut turn, id, wanted),
            };
        }
    }

    /// Serve an image that is not served yet.
    fn begin(&self, turn: &mut Turn<'_>, id: &str, wanted: Wanted) -> Result<Value, Refusal> {
        let added = self.mounts.check().map_err(Refusal::from);
        let added = added.and_then(|()| {
            let created = self.create(turn, id, wanted);
            let served = created.and_then(|()| turn.wait_until_served().map(drop));
            if served.is_err() {
                turn.stop();
                self.discard(turn.image(), id)?;
            }
            served
        });
        if let Err(refusal) = added {
            self.forget(turn, id);
            return Err(refusal);
        }
        turn.image().set_served();
        Ok(turn.image().describe(id))
    }

    /// Forget an image that is served no longer.
    fn forget(&self, turn: &mut Turn<'_>, id: &str) {
        turn.set_gone();
        self.images.lock().remove(id);
    }

    fn create(&self, turn: &mut Turn<'_>, id: &str, wanted: Wanted) -> Result<(), Refusal> {
        let (mount, folder) = (self.config.mount.join(id), turn.image().folder());
        create_folder(folder, 0o700)?;
        create_folder(&mount, 0o711)?;
        let found = Manifest::load(&wanted.manifest).map_err(|error| DaemonError::Manifest {
            path: wanted.manifest.clone(),
            error,
        })?;
        if found.content_id_hex() != id {
            let path = wanted.manifest.display();
            return Err(Refusal::Invalid(format!(
                "manifest {path} is not that of {id}"
            )));
        }
        let profile = wanted
            .profile
            .map(|path| served::copy_profile(&path, &folder.join("profile.1"), &found));
        let config = config::Config {
            sources: wanted.sources,
            homes: wanted.homes,
            hints: self.config.hints,
            files: self.config.files,
            resend: self.config.resend,
            identity: self.config.identity.clone(),
            group: self.config.image_group,
            manifest: served::copy(&wanted.manifest, &folder.join("manifest"))?,
            mount,
            state: folder.to_owned(),
            prefetch: wanted.prefetch,
            tuning: self.config.tuning.clone(),
            profile: profile.transpose()?,
            hydrate: wanted.hydrate,
            rate: wanted.rate,
            record: None,
            wait: wanted.wait,
            doubts: 0,
        };
        turn.image().save(&config)?;
        Ok(turn.start()?)
    }

    fn change(&self, id: &str, change: Change) -> Result<Value, Refusal> {
        let image = self.find(id)?;
        let turn = image.turn();
        let turn = turn.ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        turn.change(change)?;
        turn.wait_until_changed();
        Ok(image.describe(id))
    }

    /// Stop serving an image that no process has open, and remove what is kept of it.
    fn remove(&self, id: &str) -> Result<(), Refusal> {
        let image = self.find(id)?;
        let turn = image.turn();
        let mut turn = turn.ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        self.unmount(id)?;
        turn.stop();
        self.discard(&image, id)?;
        self.forget(&mut turn, id);
        Ok(())
    }

    /// Unmount an image. The kernel knows who uses it, in each mount namespace; a keeper that has just begun looks at its file, too.
    fn unmount(&self, id: &str) -> Result<(), Refusal> {
        let (folder, start) = (self.config.mount.join(id), Instant::now());
        while self.mounts.unmount(&folder)? == Unmounted::Busy {
            if start.elapsed() > BUSY_TIME {
                return Err(Refusal::Busy(id.to_owned()));
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        Ok(())
    }

    /// Remove the folders of an image; what is left by a kill is removed at the next start.
    fn discard(&self, image: &Image, id: &str) -> Result<(), Refusal> {
        let gone = |result: io::Result<()>| match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Refusal::Failed(format!(
                "cannot remove image {id}: {error}"
            ))),
            _ => Ok(()),
        };
        gone(fs::remove_file(image.file()))?;
        gone(fs::remove_dir_all(image.folder()))?;
        gone(fs::remove_dir(self.config.mount.join(id)))
    }
}

/// Serve an image that is served already from other sources.
fn serve_again(turn: &mut Turn<'_>, id: &str, wanted: Wanted) -> Result<Value, Refusal> {
    // Its hydration stays: a deadline that was set meanwhile is not reset by the next server.
    turn.change(Change {
        sources: Some(wanted.sources),
        homes: wanted.homes,
        wait: Some(wanted.wait),
        profile: wanted.profile,
        ..Change::default()
    })?;
    turn.look_after();
    turn.wait_until_served()?;
    Ok(turn.image().describe(id))
}
