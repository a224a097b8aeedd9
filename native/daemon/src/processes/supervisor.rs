//! The service beside an agent: serves any number of images, each by a keeper and a worker of its own.
//!
//! One pair of processes for each image, so that a fault with one image touches no guest of another. Keepers live on when this process ends: the
//! next one finds them by their sockets, and starts those that are gone from what is on the disk. Below the state folder, `images/CONTENT_ID` has
//! `config.json`, `manifest`, `profile` and what the keeper keeps there; a folder without `config.json` was not finished, or is being removed.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_core::manifest::Manifest;
use diffcache_dataplane::gate::lock;
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Deserializer};
use serde_json::{json, Value};

use crate::config::{self, Homes, Hydrate, Identity, Place};
use crate::error::DaemonError;
use crate::image::leaves::CHUNK;
use crate::prefetch::profile;
use crate::processes::http::{self, Answer, Request};
use crate::processes::keeper;
use crate::processes::mounts::{Mounts, Unmounted};
use crate::processes::program;
use crate::processes::restarts::Pauses;
use crate::processes::signals;
use crate::processes::status;
use crate::tuning::Tuning;

/// How long a keeper may take until its image can be read, and until it has ended.
const START_TIME: Duration = Duration::from_secs(15);
const STOP_TIME: Duration = Duration::from_secs(15);
/// How often keepers are looked after.
const LOOK_TIME: Duration = Duration::from_millis(500);
/// How long a keeper may take to work by what was changed.
const CHANGE_TIME: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MOST_CLIENTS: usize = 64;

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

/// What is to change of an image that is served.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    sources: Option<Vec<Place>>,
    homes: Option<Homes>,
    hydrate: Option<Hydrate>,
    /// Null removes the limit.
    #[serde(default, deserialize_with = "given")]
    rate: Option<Option<u64>>,
    wait: Option<f64>,
    profile: Option<PathBuf>,
}

/// Read a value that may be null; that it is absent is the field's default.
fn given<'a, D: Deserializer<'a>>(json: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(json).map(Some)
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("{0}")]
    Invalid(String),
    #[error("image {0} is not served here")]
    Unknown(String),
    #[error("image {0} is open: shut the servers down that use it, or wait until their base image was replaced")]
    Busy(String),
    #[error("{0}")]
    Failed(String),
}

impl From<DaemonError> for Refusal {
    fn from(error: DaemonError) -> Refusal {
        match error {
            DaemonError::Path { .. } | DaemonError::System(..) | DaemonError::Mounter(_) => {
                Refusal::Failed(error.to_string())
            }
            error => Refusal::Invalid(error.to_string()),
        }
    }
}

impl Refusal {
    fn answer(&self) -> Answer {
        let (status, kind) = match self {
            Refusal::Invalid(_) => (400, "InvalidInput"),
            Refusal::Unknown(_) => (404, "NotFound"),
            Refusal::Busy(_) => (409, "Conflict"),
            Refusal::Failed(_) => (503, "ServiceUnavailable"),
        };
        Answer::error(status, kind, &self.to_string())
    }
}

/// One image, and its keeper as far as this process started it.
struct Image {
    folder: PathBuf,
    mounts: Mounts,
    keeper: Option<Child>,
    next_start: Instant,
    pauses: Pauses,
}

/// The images of a host.
struct Supervisor {
    config: Config,
    mounts: Mounts,
    images: Mutex<BTreeMap<String, Image>>,
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
    let listener = listen(&config.socket, config.socket_group)?;
    let supervisor = Arc::new(Supervisor {
        mounts: Mounts::new(config.mounter.clone()),
        config,
        images: Mutex::default(),
    });
    supervisor.find_images(&images)?;
    let clients = supervisor.clone();
    let accept = move || clients.accept(&listener);
    std::thread::Builder::new()
        .name("clients".to_owned())
        .spawn(accept)
        .map_err(DaemonError::system("start a thread"))?;
    eprintln!("Serving images below {}", supervisor.config.mount.display());
    loop {
        supervisor.look_after();
        if signals::wait(Some(LOOK_TIME)) == Some(signals::Signal::Stop) {
            break;
        }
    }
    let socket = &supervisor.config.socket;
    fs::remove_file(socket).map_err(DaemonError::at("remove", socket))
}

fn create_folder(path: &Path, mode: u32) -> Result<(), DaemonError> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(path);
    created.map_err(DaemonError::at("create", path))
}

fn lock_state(state: &Path) -> Result<File, DaemonError> {
    let path = state.join("lock");
    let file = File::create(&path).map_err(DaemonError::at("open", &path))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DaemonError::Config(format!(
            "another diffcached uses {}",
            state.display()
        ))),
        Err(error) => Err(DaemonError::at("lock", &path)(error)),
    }
}

/// Listen under a name that appears with its mode and group.
fn listen(path: &Path, group: Option<u32>) -> Result<UnixListener, DaemonError> {
    let at = |action| DaemonError::at(action, path);
    let fresh = path.with_extension("new");
    match fs::remove_file(&fresh) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at("replace")(error)),
        _ => {}
    }
    let listener = UnixListener::bind(&fresh).map_err(at("listen at"))?;
    let mode = |mode| fs::set_permissions(&fresh, fs::Permissions::from_mode(mode));
    mode(0o600).map_err(at("hand over"))?;
    if let Some(group) = group {
        std::os::unix::fs::chown(&fresh, None, Some(group)).map_err(at("hand over"))?;
        mode(0o660).map_err(at("hand over"))?;
    }
    fs::rename(&fresh, path).map_err(at("listen at"))?;
    Ok(listener)
}

fn write_durably(path: &Path, text: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&fresh, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

fn is_content_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::Invalid(format!("the body cannot be used: {error}")))
}

impl Image {
    fn new(folder: PathBuf, mounts: Mounts) -> Image {
        Image {
            folder,
            mounts,
            keeper: None,
            next_start: Instant::now(),
            pauses: Pauses::new(FIRST_PAUSE),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("config.json")
    }

    fn load(&self) -> Result<config::Config, DaemonError> {
        config::Config::load(&self.file())
    }

    fn save(&self, config: &config::Config) -> Result<(), Refusal> {
        let text =
            serde_json::to_vec(config).map_err(|error| Refusal::Invalid(error.to_string()))?;
        // What the keeper would refuse is not kept.
        let parsed = std::str::from_utf8(&text).map_err(|error| error.to_string());
        config::Config::parse(parsed.map_err(Refusal::Invalid)?)?;
        let path = self.file();
        write_durably(&path, &text).map_err(|error| DaemonError::at("write", &path)(error).into())
    }

    /// Start a keeper in a process group of its own: it outlives this process.
    fn start(&mut self) -> Result<(), DaemonError> {
        let mut keeper = Command::new(program::OWN);
        self.mounts.hand_over(&mut keeper);
        let keeper = keeper
            .arg0(program::NAME)
            .arg("keep")
            .arg(self.file())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(DaemonError::system("start a keeper"))?;
        self.keeper = Some(keeper);
        Ok(())
    }

    /// Wait until the keeper's worker has begun.
    fn wait_until_served(&mut self) -> Result<Value, Refusal> {
        let start = Instant::now();
        while start.elapsed() < START_TIME {
            if let Ok(found) = status::ask(&self.folder) {
                if found["worker_pid"].as_u64().unwrap_or(0) > 0 {
                    return Ok(found);
                }
            }
            if let Some(Ok(Some(ended))) = self.keeper.as_mut().map(Child::try_wait) {
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
    fn wait_until_changed(&self) {
        let Ok(config) = self.load() else { return };
        let (wanted, start) = (json!(config.digest()), Instant::now());
        while start.elapsed() < CHANGE_TIME {
            match status::ask(&self.folder) {
                // One of an earlier release does not tell.
                Ok(found) if found["settings"].is_null() || found["settings"] == wanted => return,
                Ok(_) => std::thread::sleep(POLL),
                Err(_) => return,
            }
        }
        eprintln!("The keeper of {} does not change", self.folder.display());
    }

    fn pid(&self) -> Option<Pid> {
        let own = self.keeper.as_ref().map(|keeper| u64::from(keeper.id()));
        let told = || status::ask(&self.folder).ok()?["pid"].as_u64();
        Pid::from_raw(i32::try_from(own.or_else(told)?).ok()?)
    }

    fn signal(&self, signal: Signal) {
        let Some(pid) = self.pid() else { return };
        if let Err(error) = rustix::process::kill_process(pid, signal) {
            eprintln!(
                "Could not signal the keeper of {}: {error}",
                self.folder.display()
            );
        }
    }

    /// Return whether the keeper has ended.
    fn has_ended(&mut self) -> bool {
        match &mut self.keeper {
            Some(keeper) => match keeper.try_wait() {
                Ok(None) => false,
                Ok(Some(ended)) => {
                    eprintln!("The keeper of {} ended ({ended})", self.folder.display());
                    self.keeper = None;
                    true
                }
                Err(error) => {
                    eprintln!("Could not check a keeper: {error}");
                    false
                }
            },
            // One that is exchanged does not answer for a moment.
            None => !status::is_answered(&self.folder) && !keeper::is_locked(&self.folder),
        }
    }

    /// End the keeper, and wait until it has.
    fn stop(&mut self) {
        self.signal(Signal::TERM);
        let start = Instant::now();
        while !self.has_ended() {
            if start.elapsed() > STOP_TIME {
                eprintln!("Killing the keeper of {}", self.folder.display());
                self.signal(Signal::KILL);
                return;
            }
            std::thread::sleep(POLL);
        }
    }

    /// Return the longest pause between two starts of the keeper, by its configuration if that can be read.
    fn longest_pause(&self) -> Duration {
        let config = self.load();
        config.map_or_else(
            |_| Tuning::default().longest_pause(),
            |config| config.tuning.longest_pause(),
        )
    }

    /// Start the keeper again if it has ended.
    fn look_after(&mut self) {
        if !self.has_ended() {
            self.pauses.reset();
            return;
        }
        let now = Instant::now();
        if now < self.next_start {
            return;
        }
        self.next_start = now + self.pauses.take(self.longest_pause());
        if let Err(error) = self.start() {
            eprintln!("Could not serve {}: {error}", self.folder.display());
        }
    }

    /// Describe it, also when its keeper does not answer.
    fn describe(&self, id: &str) -> Value {
        let (config, found) = (self.load().ok(), status::ask(&self.folder));
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

impl Supervisor {
    /// Take over what earlier processes served.
    fn find_images(&self, folder: &Path) -> Result<(), DaemonError> {
        let entries = fs::read_dir(folder).map_err(DaemonError::at("read", folder))?;
        let mut images = lock(&self.images);
        for entry in entries.flatten() {
            let id = entry.file_name().to_string_lossy().into_owned();
            let image = Image::new(entry.path(), self.mounts.clone());
            if is_content_id(&id) && image.file().exists() {
                self.renew(&image);
                images.insert(id, image);
            } else {
                eprintln!(
                    "Removing {}, which was not finished",
                    entry.path().display()
                );
                fs::remove_dir_all(entry.path())
                    .map_err(DaemonError::at("remove", &entry.path()))?;
            }
        }
        Ok(())
    }

    /// Have a keeper use the identity that this process was started with, and the program that is installed.
    fn renew(&self, image: &Image) {
        let renewed = image.load().map_err(Refusal::from).and_then(|found| {
            if found.identity != self.config.identity {
                image.save(&config::Config {
                    identity: self.config.identity.clone(),
                    ..found
                })?;
            }
            Ok(())
        });
        image.signal(Signal::HUP);
        if let Err(error) = renewed {
            eprintln!(
                "Could not renew the keys of {}: {error}",
                image.folder.display()
            );
        }
    }

    fn look_after(&self) {
        lock(&self.images).values_mut().for_each(Image::look_after);
    }

    fn accept(self: Arc<Supervisor>, listener: &UnixListener) {
        let clients = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming() {
            let (supervisor, clients) = (self.clone(), clients.clone());
            let serve = move |stream: UnixStream| {
                if clients.fetch_add(1, Ordering::SeqCst) < MOST_CLIENTS {
                    if let Err(error) = http::serve(stream, |request| supervisor.answer(request)) {
                        eprintln!("Could not answer a client: {error}");
                    }
                }
                clients.fetch_sub(1, Ordering::SeqCst);
            };
            let started = stream.and_then(|stream| {
                std::thread::Builder::new()
                    .name("client".to_owned())
                    .spawn(move || serve(stream))
            });
            if let Err(error) = started {
                eprintln!("Could not serve a client: {error}");
                std::thread::sleep(FIRST_PAUSE);
            }
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        let parts: Vec<_> = request.path.split('/').skip(1).collect();
        let answer = match (request.method.as_str(), parts.as_slice()) {
            ("GET", ["v1", "images"]) => Ok(Answer(200, self.list())),
            ("GET", ["v1", "images", id]) => self.show(id).map(|found| Answer(200, found)),
            ("GET", ["v1", "images", id, "profile"]) => {
                self.show_profile(id).map(|found| Answer(200, found))
            }
            ("PUT", ["v1", "images", id]) => {
                self.add(id, &request.body).map(|found| Answer(200, found))
            }
            ("PATCH", ["v1", "images", id]) => self
                .change(id, &request.body)
                .map(|found| Answer(200, found)),
            ("DELETE", ["v1", "images", id]) => self.remove(id).map(|()| Answer(204, Value::Null)),
            (method, _) => {
                let reason = format!("there is nothing at {method} {}", request.path);
                return Answer::error(404, "NotFound", &reason);
            }
        };
        answer.unwrap_or_else(|refusal| refusal.answer())
    }

    fn list(&self) -> Value {
        let images = lock(&self.images);
        let described: Vec<_> = images
            .iter()
            .map(|(id, image)| image.describe(id))
            .collect();
        json!({"images": described})
    }

    fn show(&self, id: &str) -> Result<Value, Refusal> {
        let images = lock(&self.images);
        let image = images.get(id);
        Ok(image
            .ok_or_else(|| Refusal::Unknown(id.to_owned()))?
            .describe(id))
    }

    /// Return what instances here have read of an image.
    fn show_profile(&self, id: &str) -> Result<Value, Refusal> {
        let images = lock(&self.images);
        let image = images
            .get(id)
            .ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        let folder = image.folder.clone();
        drop(images);
        status::ask_profile(&folder).map_err(|error| {
            Refusal::Failed(format!("the keeper of {id} does not answer: {error}"))
        })
    }

    /// Serve an image, or serve it from other sources if it is served already. Returns when it can be read.
    fn add(&self, id: &str, body: &[u8]) -> Result<Value, Refusal> {
        if !is_content_id(id) {
            return Err(Refusal::Invalid(format!("'{id}' is no content id")));
        }
        let wanted: Wanted = parse(body)?;
        let mut images = lock(&self.images);
        if let Some(image) = images.get_mut(id) {
            // Its hydration stays: a deadline that was set meanwhile is not reset by the next server.
            let change = Change {
                sources: Some(wanted.sources),
                homes: wanted.homes,
                wait: Some(wanted.wait),
                profile: wanted.profile,
                ..Change::default()
            };
            change_image(image, change)?;
            image.look_after();
            image.wait_until_served()?;
            return Ok(image.describe(id));
        }
        self.mounts.check()?;
        let folder = self.config.state.join("images").join(id);
        let mut image = Image::new(folder, self.mounts.clone());
        let added = self.create(&mut image, id, wanted);
        let added = added.and_then(|()| image.wait_until_served());
        if let Err(refusal) = added {
            image.stop();
            self.discard(&image, id)?;
            return Err(refusal);
        }
        let described = image.describe(id);
        images.insert(id.to_owned(), image);
        Ok(described)
    }

    fn create(&self, image: &mut Image, id: &str, wanted: Wanted) -> Result<(), Refusal> {
        let mount = self.config.mount.join(id);
        create_folder(&image.folder, 0o700)?;
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
            .map(|path| copy_profile(&path, &image.folder.join("profile.1"), &found));
        let config = config::Config {
            sources: wanted.sources,
            homes: wanted.homes,
            hints: self.config.hints,
            files: self.config.files,
            resend: self.config.resend,
            identity: self.config.identity.clone(),
            manifest: copy(&wanted.manifest, &image.folder.join("manifest"))?,
            mount,
            state: image.folder.clone(),
            prefetch: wanted.prefetch,
            tuning: self.config.tuning.clone(),
            profile: profile.transpose()?,
            hydrate: wanted.hydrate,
            rate: wanted.rate,
            record: None,
            wait: wanted.wait,
        };
        image.save(&config)?;
        Ok(image.start()?)
    }

    fn change(&self, id: &str, body: &[u8]) -> Result<Value, Refusal> {
        let change = parse(body)?;
        let images = lock(&self.images);
        let image = images
            .get(id)
            .ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        change_image(image, change)?;
        image.wait_until_changed();
        Ok(image.describe(id))
    }

    /// Stop serving an image that no process has open, and remove what is kept of it.
    fn remove(&self, id: &str) -> Result<(), Refusal> {
        let mut images = lock(&self.images);
        let image = images
            .get_mut(id)
            .ok_or_else(|| Refusal::Unknown(id.to_owned()))?;
        // The kernel knows who uses it, in each mount namespace.
        match self.mounts.unmount(&self.config.mount.join(id))? {
            Unmounted::Busy => return Err(Refusal::Busy(id.to_owned())),
            Unmounted::Done | Unmounted::Absent => {}
        }
        image.stop();
        self.discard(image, id)?;
        images.remove(id);
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
        gone(fs::remove_dir_all(&image.folder))?;
        gone(fs::remove_dir(self.config.mount.join(id)))
    }
}

fn copy(from: &Path, to: &Path) -> Result<PathBuf, DaemonError> {
    let bytes = fs::read(from).map_err(DaemonError::at("read", from))?;
    write_durably(to, &bytes).map_err(DaemonError::at("write", to))?;
    Ok(to.to_owned())
}

/// Keep a profile that can be used with an image.
fn copy_profile(from: &Path, to: &Path, manifest: &Manifest) -> Result<PathBuf, DaemonError> {
    // What is checked is what is kept, also if the file is replaced meanwhile.
    let kept = to.with_extension("unchecked");
    let limited = |error| DaemonError::Profile {
        path: from.to_owned(),
        error,
    };
    let len = fs::metadata(from)
        .map_err(|error| limited(error.into()))?
        .len();
    if len > profile::MAX_FILE_BYTES {
        return Err(limited(profile::ProfileFileError::TooLong));
    }
    copy(from, &kept)?;
    let loaded = profile::load(&kept, manifest.size().div_ceil(CHUNK));
    let checked = loaded
        .map_err(limited)
        .and_then(|_| fs::rename(&kept, to).map_err(DaemonError::at("write", to)));
    if checked.is_err() {
        // Best effort: the first error is the one to report, and the name is used again.
        let _ = fs::remove_file(&kept);
    }
    checked.map(|()| to.to_owned())
}

/// Return the path for an image's next profile: another one each time, which tells the keeper that it is another profile.
fn next_profile(folder: &Path, last: Option<&Path>) -> PathBuf {
    let number = last.and_then(|path| path.extension()?.to_str()?.parse().ok());
    folder.join(format!("profile.{}", number.unwrap_or(0u64) + 1))
}

/// Change what a keeper does, now and after its next start.
fn change_image(image: &Image, change: Change) -> Result<(), Refusal> {
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
        ..found.clone()
    };
    if changed != found {
        image.save(&changed)?;
        image.signal(Signal::HUP);
        if let Some(last) = last.filter(|last| changed.profile.as_deref() != Some(last)) {
            if let Err(error) = fs::remove_file(last) {
                eprintln!("Could not remove {}: {error}", last.display());
            }
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_that_is_set_again_is_another_one() {
        let minute = Hydrate::Seconds(60.0);
        let again = set_again(minute, minute);
        assert_ne!(again, minute);
        assert!(matches!(again, Hydrate::Seconds(seconds) if (seconds - 60.0).abs() < 1e-9));
        assert_eq!(set_again(minute, Hydrate::Idle), minute);
        assert_eq!(set_again(Hydrate::Idle, Hydrate::Idle), Hydrate::Idle);
    }

    #[test]
    fn tuning_that_cannot_be_used_is_refused_at_the_start() {
        let parse = |tuning: Value| {
            let value = json!({"socket": "/s", "state": "/t", "mount": "/m", "tuning": tuning});
            Config::parse(&value.to_string())
        };
        assert_eq!(8, parse(json!({"workers": 8})).unwrap().tuning.workers);
        for name in ["in_flight", "workers", "threshold", "restart_backoff"] {
            let refused = parse(json!({name: 0})).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
        assert!(parse(json!({"fan_out": 65})).is_err());
    }

    #[test]
    fn the_pauses_of_a_keeper_are_those_of_its_image() {
        let folder = tempfile::tempdir().unwrap();
        let image = Image::new(folder.path().to_owned(), Mounts::new(None));
        assert_eq!(Duration::from_secs(5), image.longest_pause());
        let config = json!({
            "sources": ["/a"], "manifest": "/m", "mount": "/t", "state": "/s", "wait": 0.0,
            "tuning": {"restart_backoff": 0.5},
        });
        fs::write(image.file(), config.to_string()).unwrap();
        assert_eq!(Duration::from_millis(500), image.longest_pause());
    }

    #[test]
    fn content_ids_are_hexadecimal() {
        assert!(is_content_id(&"0a".repeat(32)));
        for bad in ["", "0a", "../0a", &"0A".repeat(32), &"0g".repeat(32)] {
            assert!(!is_content_id(bad), "{bad}");
        }
    }

    #[test]
    fn a_rate_is_kept_replaced_or_removed() {
        let rate = |text: &[u8]| parse::<Change>(text).unwrap().rate;
        assert_eq!(None, rate(b"{}"));
        assert_eq!(Some(Some(5)), rate(b"{\"rate\": 5}"));
        assert_eq!(Some(None), rate(b"{\"rate\": null}"));
        assert!(parse::<Change>(b"{\"rate\": -1}").is_err());
    }

    #[test]
    fn requests_with_unknown_fields_are_refused() {
        assert!(parse::<Change>(b"{\"hydrate\": \"idle\"}").is_ok());
        assert!(parse::<Change>(b"{\"hydrat\": \"idle\"}").is_err());
        assert!(parse::<Wanted>(b"{}").is_err());
    }
}
