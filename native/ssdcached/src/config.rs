//! What to serve: the parameters of the command line.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use diffcache_partitions::eviction::Policy;
use diffcache_ssdcache::cache::origin::held::{self, Held};
use diffcache_ssdcache::cache::origin::{self, Identity, Named, Origins};
use diffcache_ssdcache::cache::{Attachment, Cache, CacheError, DirtyMax, Mode, Options};
use diffcache_ssdcache::device::format::{FormatError, Kept, VolumeRecord};
use diffcache_ssdcache::device::losses::LossNotes;
use diffcache_ssdcache::device::unsaved::Notes;
use diffcache_ssdcache::device::{failure, Device, DeviceError, Place};
use serde::Deserialize;
use thiserror::Error;

use crate::space;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE_ID: &str = "/etc/machine-id";
const RANDOM: &str = "/dev/urandom";
const DIRTY_MAX: DirtyMax = DirtyMax::Percent(50);
const DIRTY_AGE: Duration = Duration::from_secs(30);

/// Why a cache cannot be served.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// A parameter
    #[error("{key}: {value}: {reason}")]
    Parameter {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The device failed while it was served
    #[error("{device}: it failed while volumes were written without it, so that what it has may be older; start it with --format (see {note})")]
    Failed {
        /// The device.
        device: PathBuf,
        /// The file that says so.
        note: PathBuf,
    },
    /// Another device may have newer blocks
    #[error("volume {volume}: another cache device ({device}) may have blocks of it that were not written back; start it with that device, or lose them with --discard-dirty (see {note})")]
    Elsewhere {
        /// The volume.
        volume: String,
        /// The number of the other device.
        device: String,
        /// The file that says so.
        note: PathBuf,
    },
    /// A parameter is missing
    #[error("{0}: missing")]
    Missing(&'static str),
    /// A file
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The device
    #[error("{path}: {source}")]
    Device {
        /// The device.
        path: PathBuf,
        /// What is wrong with it.
        source: DeviceError,
    },
    /// Its file
    #[error("{path}: {reason}")]
    Space {
        /// The file of the device.
        path: PathBuf,
        /// Why the cache has no room in it.
        reason: String,
    },
    /// The cache
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A volume as it is given.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Its name.
    pub name: String,
    /// Name of its origin.
    pub origin: String,
    /// Name of its mode.
    pub mode: String,
    /// The most blocks that it has.
    pub limit: u32,
    /// Requests pass the cache by after this many bytes in sequence; 0: never.
    pub sequential: u64,
    /// A block is cached at this reference to it; 0: at that of all volumes.
    #[serde(default)]
    pub admission: u8,
}

impl VolumeConfig {
    /// Opens the origin.
    ///
    /// # Errors
    /// It cannot be opened, or the mode is not known.
    fn attachment(self, origins: &Origins) -> Result<Attachment, ConfigError> {
        self.attach(|name| origins.open(name))
    }

    fn attach(
        self,
        open: impl FnOnce(&str) -> io::Result<Named>,
    ) -> Result<Attachment, ConfigError> {
        let mode = Mode::named(&self.mode).ok_or_else(|| ConfigError::Parameter {
            key: "mode".into(),
            value: self.mode.clone(),
            reason: "no such mode".into(),
        })?;
        let origin = open(&self.origin).map_err(|source| ConfigError::File {
            path: PathBuf::from(&self.origin),
            source,
        })?;
        Ok(Attachment {
            name: self.name,
            origin_id: origin.id,
            origin: origin.disk,
            mode,
            limit: self.limit,
            sequential: self.sequential,
            admission: self.admission,
            random: random()?,
            kept: None,
            held: None,
        })
    }

    /// As [`attachment`](Self::attachment), where a device has had the volume: it is served once its
    /// origin is there.
    fn reattachment(
        self,
        origins: &Origins,
        known: &[VolumeRecord],
    ) -> Result<Attachment, ConfigError> {
        let known = known.iter().find(|record| record.name == self.name);
        let Some(VolumeRecord { origin, size, .. }) = known else {
            return self.attachment(origins);
        };
        self.attach(|name| open_or_wait(origins, name, (*origin, *size)))
    }

    /// Opens the origin of a volume that stays until it is detached.
    ///
    /// # Errors
    /// As [`attachment`](Self::attachment).
    pub fn lasting(self, origins: &Origins) -> Result<Attachment, ConfigError> {
        let name = self.origin.clone();
        Ok(Attachment {
            kept: Some(name),
            ..self.attachment(origins)?
        })
    }
}

/// All parameters.
#[derive(Default)]
pub struct Config {
    device: Option<PathBuf>,
    capacity: Option<u32>,
    format: bool,
    eviction: Option<Policy>,
    admission: u8,
    dirty_max: Option<DirtyMax>,
    dirty_age: Option<Duration>,
    discard_dirty: bool,
    /// Whether volumes in write-back are held after a start of the host.
    hold: bool,
    /// Where failures of devices are noted.
    state: Option<PathBuf>,
    /// Blocks of a volume that are followed for its curve.
    samples: usize,
    volumes: Vec<VolumeConfig>,
    origins: Option<Arc<Origins>>,
    /// The socket for commands.
    pub control: Option<PathBuf>,
    /// The socket of NBD.
    socket: Option<PathBuf>,
    /// Number of the group that may connect to it, besides this user.
    pub socket_group: Option<u32>,
    /// The descriptor that is written to when the cache is ready.
    pub ready_fd: Option<i32>,
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
                let policy = Policy::named(value).ok_or_else(|| refused("no such policy"))?;
                self.eviction = Some(policy);
            }
            "samples" => self.samples = value.parse().map_err(number)?,
            "admission" => self.admission = value.parse().map_err(number)?,
            "dirty_max" => {
                let bound = match value.strip_suffix('%') {
                    Some(percent) => percent.parse().map(DirtyMax::Percent),
                    None => value.parse().map(DirtyMax::Blocks),
                };
                self.dirty_max = Some(bound.map_err(number)?);
            }
            "dirty_age" => {
                self.dirty_age = Some(Duration::from_secs(value.parse().map_err(number)?));
            }
            "discard_dirty" => self.discard_dirty = value == "true",
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

    /// Opens the device and the origins.
    ///
    /// # Errors
    /// The device cannot be opened, or a volume of the parameters that it does not know; or they do
    /// not fit.
    pub fn open(&mut self) -> Result<Cache, ConfigError> {
        let (path, file, identity) = self.device_file()?;
        let origins = Arc::new(Origins::new(self.state()?.to_owned(), identity));
        self.origins = Some(origins.clone());
        let place = Place {
            host: number_of(MACHINE_ID)?,
            boot: number_of(BOOT_ID)?,
        };
        let volumes = std::mem::take(&mut self.volumes);
        let (device, attachments, notes) = if self.format {
            self.format_device(&path, file, place, volumes)?
        } else {
            self.reopen_device(&path, file, place, volumes)?
        };
        let options = Options {
            eviction: self.eviction.unwrap_or(Policy::Lru),
            admission: self.admission.max(1),
            dirty_max: self.dirty_max.unwrap_or(DIRTY_MAX),
            dirty_age: self.dirty_age.unwrap_or(DIRTY_AGE),
            discard_dirty: self.discard_dirty,
            samples: self.samples,
        };
        let note = self.note_of(&device)?;
        let losses = LossNotes::new(self.state()?, &place.boot);
        let cache = Cache::open(device, options, attachments)?
            .noting_unsaved(notes)?
            .noting_losses(losses);
        Ok(cache.noting_failure(Box::new(move |error| failure::note(&note, error))))
    }

    /// Makes the device an empty cache. Whatever is wrong with the volumes is found before.
    fn format_device(
        &self,
        path: &Path,
        file: File,
        place: Place,
        volumes: Vec<VolumeConfig>,
    ) -> Result<Opened, ConfigError> {
        let failed = |source| ConfigError::Device {
            path: path.to_owned(),
            source,
        };
        let origins = self.origins()?;
        let attachments = volumes.into_iter().map(|v| v.attachment(&origins));
        let attachments: Vec<Attachment> = attachments.collect::<Result<_, _>>()?;
        let former = self.check_format(path, &file, place)?;
        let random = random()?;
        let notes = Notes::new(self.state()?, &Device::id_of(&random))
            .replacing(former.as_ref())
            .discarding(self.discard_dirty);
        for attachment in &attachments {
            self.check_unsaved(&notes, attachment)?;
        }
        space::reserve(path, &file, Device::bytes(self.capacity()?))?;
        let device = Device::format(Box::new(file), self.capacity()?, place, random);
        Ok((device.map_err(failed)?, attachments, notes))
    }

    fn reopen_device(
        &self,
        path: &Path,
        file: File,
        place: Place,
        volumes: Vec<VolumeConfig>,
    ) -> Result<Opened, ConfigError> {
        let device = Device::open(Box::new(file), self.capacity()?, place);
        let device = device.map_err(|error| ConfigError::Device {
            path: path.to_owned(),
            source: match error {
                // A file that is too short for a superblock.
                DeviceError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    FormatError::NotOurs.into()
                }
                error => error,
            },
        })?;
        let notes = Notes::new(self.state()?, &device.id()).discarding(self.discard_dirty);
        let origins = self.origins()?;
        let known = device.records().map_err(CacheError::from)?;
        let known: Vec<VolumeRecord> = known.into_iter().flatten().collect();
        let mut attachments = Vec::new();
        for volume in volumes {
            let attachment = volume.reattachment(&origins, &known)?;
            self.check_unsaved(&notes, &attachment)?;
            attachments.push(attachment);
        }
        let named: HashSet<String> = attachments.iter().map(|a| a.name.clone()).collect();
        for (record, kept) in lasting(&device, known) {
            if named.contains(&record.name) {
                continue;
            }
            let reason = self.why_to_hold(&device, &kept, &notes, record.origin);
            attachments.push(match reason {
                Some(reason) => hold((record, kept), &reason)?,
                None => reattach((record, kept), &origins)?,
            });
        }
        Ok((device, attachments, notes))
    }

    /// Why it is not known whether a volume may be served as it was, if it is not.
    fn why_to_hold(
        &self,
        device: &Device,
        kept: &Kept,
        notes: &Notes,
        origin: u64,
    ) -> Option<String> {
        let unknown = self.hold && device.is_after_start();
        if held::is_held(&kept.origin) || unknown && kept.mode == Mode::WriteBack as u8 {
            let reason = "the host was started since it was in write-back, and another one may \
                          have written to it";
            return Some(reason.into());
        }
        match notes.elsewhere(origin) {
            Ok(None) => None,
            Ok(Some(device)) => Some(format!(
                "another cache device ({device}) may have blocks of it that were not written back"
            )),
            Err(error) => Some(format!(
                "it could not be read whether another cache device has blocks of it: {error}"
            )),
        }
    }

    /// What opens origins, always the same.
    ///
    /// # Errors
    /// The device was not opened before.
    pub fn origins(&self) -> Result<Arc<Origins>, ConfigError> {
        let origins = self.origins.clone();
        origins.ok_or(ConfigError::Missing("device"))
    }

    fn state(&self) -> Result<&Path, ConfigError> {
        self.state.as_deref().ok_or(ConfigError::Missing("state"))
    }

    /// Refuses an origin of which another device may have newer blocks.
    fn check_unsaved(&self, notes: &Notes, attachment: &Attachment) -> Result<(), ConfigError> {
        let note = notes.path(attachment.origin_id);
        let found = notes.elsewhere(attachment.origin_id);
        match found.map_err(|source| ConfigError::File {
            path: note.clone(),
            source,
        })? {
            None => Ok(()),
            Some(device) => Err(ConfigError::Elsewhere {
                volume: attachment.name.clone(),
                device,
                note,
            }),
        }
    }

    /// Returns the file that a failure of the device is noted in.
    fn note_of(&self, device: &Device) -> Result<PathBuf, ConfigError> {
        let note = failure::path(self.state()?, &device.id());
        // Where that cannot be seen, the device may be one that failed.
        if note.try_exists().unwrap_or(true) {
            return Err(ConfigError::Failed {
                device: self.device.clone().unwrap_or_default(),
                note,
            });
        }
        Ok(note)
    }

    /// Refuses to erase dirty blocks. Returns the number of the cache that is erased, if it is one.
    fn check_format(
        &self,
        path: &Path,
        file: &File,
        place: Place,
    ) -> Result<Option<[u8; 16]>, ConfigError> {
        if self.discard_dirty {
            return Ok(None);
        }
        let disk = file.try_clone().map_err(|source| ConfigError::File {
            path: path.to_owned(),
            source,
        })?;
        Device::check_clean(Box::new(disk), place).map_err(|source| ConfigError::Device {
            path: path.to_owned(),
            source,
        })
    }

    fn capacity(&self) -> Result<u32, ConfigError> {
        self.capacity.ok_or(ConfigError::Missing("capacity"))
    }

    /// Opens the file or block device, whatever it has.
    fn device_file(&self) -> Result<(PathBuf, File, Identity), ConfigError> {
        let path = self.device.clone();
        let path = path.ok_or(ConfigError::Missing("device"))?;
        match origin::open(&path) {
            Ok((file, (device, inode, _))) => Ok((path, file, (device, inode))),
            Err(source) => Err(ConfigError::File { path, source }),
        }
    }
}

/// A device, the volumes that it is opened with, and its notes.
type Opened = (Device, Vec<Attachment>, Notes);

/// The volumes of a device that stay until they are detached. Those of another host are none.
fn lasting(device: &Device, known: Vec<VolumeRecord>) -> Vec<(VolumeRecord, Kept)> {
    if device.is_foreign() {
        return Vec::new();
    }
    let known = known.into_iter();
    let lasting = known.filter_map(|record| record.kept.clone().map(|kept| (record, kept)));
    lasting.collect()
}

/// Opens an origin that a volume had before. If it is missing, each request looks for it.
fn open_or_wait(origins: &Origins, name: &str, (id, size): (u64, u64)) -> io::Result<Named> {
    origins.open(name).or_else(|error| {
        eprintln!(
            "diffcache-ssdcached: could not open origin {name}, will retry at each request: {error}"
        );
        origins.missing(name, id, size)
    })
}

/// Attaches a volume that was attached before. Its export is served even if its origin is missing.
fn reattach(
    (record, kept): (VolumeRecord, Kept),
    origins: &Origins,
) -> Result<Attachment, ConfigError> {
    let name = &kept.origin;
    let origin = open_or_wait(origins, name, (record.origin, record.size));
    let origin = match origin {
        Ok(origin) => origin,
        Err(error) => return hold((record, kept.clone()), &error.to_string()),
    };
    Ok(Attachment {
        name: record.name,
        origin_id: origin.id,
        origin: origin.disk,
        mode: Mode::numbered(kept.mode),
        limit: kept.limit,
        sequential: kept.sequential,
        admission: kept.admission,
        random: random()?,
        kept: Some(kept.origin),
        held: None,
    })
}

/// Keeps a volume, whose dirty blocks stay on the device, from its origin. Its record says so: a
/// later start holds it, too.
fn hold((record, kept): (VolumeRecord, Kept), reason: &str) -> Result<Attachment, ConfigError> {
    let held = Arc::new(Held::new(record.size, reason));
    let origin = held::name(&kept.origin);
    let name = &record.name;
    eprintln!("diffcache-ssdcached: volume {name}: held, {reason}");
    Ok(Attachment {
        name: record.name,
        origin_id: record.origin,
        origin: Box::new(held.clone()),
        mode: Mode::WriteBack,
        limit: kept.limit,
        sequential: kept.sequential,
        admission: kept.admission,
        random: random()?,
        kept: Some(origin),
        held: Some(held),
    })
}

fn read(path: &str) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::File {
        path: path.into(),
        source,
    })
}

/// The number that a file has as 32 hexadecimal digits, perhaps with hyphens.
fn number_of(path: &str) -> Result<[u8; 16], ConfigError> {
    let digits: String = read(path)?
        .chars()
        .filter(char::is_ascii_hexdigit)
        .collect();
    let number = u128::from_str_radix(&digits, 16).map_err(|error| ConfigError::Parameter {
        key: path.to_owned(),
        value: digits,
        reason: error.to_string(),
    })?;
    Ok(number.to_be_bytes())
}

fn random() -> Result<[u8; 24], ConfigError> {
    use std::io::Read;
    let mut bytes = [0; 24];
    let read = File::open(RANDOM).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|source| ConfigError::File {
        path: RANDOM.into(),
        source,
    })?;
    Ok(bytes)
}
