//! The start: the device is opened or formatted, and the origins of the volumes are.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use diffcache_nbd::server::check_ring;
use diffcache_ssdcache::cache::origin::{self, held, Origins};
use diffcache_ssdcache::cache::{Attachment, Cache, CacheError, Mode};
use diffcache_ssdcache::device::format::{FormatError, Kept, VolumeRecord};
use diffcache_ssdcache::device::losses::LossNotes;
use diffcache_ssdcache::device::unsaved::Notes;
use diffcache_ssdcache::device::{failure, Device, DeviceError, Place};

use crate::config::Config;
use crate::error::ConfigError;
use crate::space;
use crate::volumes::{hold, lasting, random, reattach, Reopened, VolumeConfig};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const MACHINE_ID: &str = "/etc/machine-id";

/// Opens the device and the origins, and returns besides what opens further origins.
///
/// # Errors
/// The device cannot be opened, or a volume of the parameters that it does not know; or they do
/// not fit.
pub fn open(config: &mut Config) -> Result<(Cache, Arc<Origins>), ConfigError> {
    let volumes = std::mem::take(&mut config.volumes);
    let path = &config.device;
    // Whatever it has.
    let (file, (device, inode, _)) = origin::open(path).map_err(ConfigError::file(path))?;
    let state = &config.state;
    let opening = Opening {
        config,
        path,
        state,
        place: Place {
            host: number_of(MACHINE_ID)?,
            boot: number_of(BOOT_ID)?,
        },
        origins: Arc::new(Origins::new(state.to_owned(), (device, inode))),
    };
    let (mut device, attachments, notes) = match config.format {
        true => opening.format_device(file, volumes)?,
        false => opening.reopen_device(file, volumes)?,
    };
    match check_ring().and_then(|()| device.open_files()) {
        Ok(()) => log::info!("Cached blocks are read by io_uring"),
        Err(error) => log::info!("Cached blocks are read by threads: no io_uring: {error}"),
    }
    let note = opening.note_of(&device)?;
    let losses = LossNotes::new(state, &opening.place.boot);
    let cache = Cache::open(device, config.cache.options()?, attachments)?
        .noting_unsaved(notes)?
        .noting_losses(losses)
        .noting_failure(Box::new(move |error| failure::note(&note, error)));
    Ok((cache, opening.origins))
}

/// A device, the volumes that it is opened with, and its notes.
type Opened = (Device, Vec<Attachment>, Notes);

/// What the start goes by.
struct Opening<'a> {
    config: &'a Config,
    /// The device.
    path: &'a Path,
    /// Where notes are.
    state: &'a Path,
    place: Place,
    origins: Arc<Origins>,
}

impl Opening<'_> {
    /// Makes the device an empty cache. Whatever is wrong with the volumes is found before.
    fn format_device(&self, file: File, volumes: Vec<VolumeConfig>) -> Result<Opened, ConfigError> {
        let attachments = volumes.into_iter().map(|v| v.attachment(&self.origins));
        let attachments: Vec<Attachment> = attachments.collect::<Result<_, _>>()?;
        let former = self.check_format(&file)?;
        if let Some(former) = former {
            // It has no dirty blocks, and once it is formatted nothing shows that they are of it.
            let forgotten = Notes::new(self.state, &former).retain(&[]);
            forgotten.map_err(ConfigError::file(self.state))?;
        }
        let random = random()?;
        let notes = Notes::new(self.state, &Device::id_of(&random))
            .discarding(self.config.cache.discard_dirty);
        for attachment in &attachments {
            self.check_unsaved(&notes, attachment)?;
        }
        space::reserve(self.path, &file, Device::bytes(self.config.capacity))?;
        let device = Device::format(Box::new(file), self.config.capacity, self.place, random);
        Ok((
            device.map_err(|error| self.failed(error))?,
            attachments,
            notes,
        ))
    }

    fn reopen_device(&self, file: File, volumes: Vec<VolumeConfig>) -> Result<Opened, ConfigError> {
        let device = Device::open(Box::new(file), self.config.capacity, self.place);
        let device = device.map_err(|error| match error {
            // A file that is too short for a superblock.
            DeviceError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.failed(FormatError::NotOurs.into())
            }
            error => self.failed(error),
        })?;
        let notes =
            Notes::new(self.state, &device.id()).discarding(self.config.cache.discard_dirty);
        let known = device.records().map_err(CacheError::from)?;
        let known: Vec<VolumeRecord> = known.into_iter().flatten().collect();
        let named: HashSet<String> = volumes.iter().map(|v| v.name.clone()).collect();
        let lasting = lasting(&device, known.clone()).into_iter();
        let others = lasting.filter(|(record, _)| !named.contains(&record.name));
        let with_reasons = others.map(|(record, kept)| {
            let reason = self.why_to_hold(&device, &kept, &notes, record.origin);
            (record, kept, reason)
        });
        let others: Vec<_> = with_reasons.collect();
        let served = others.iter().filter(|(_, _, reason)| reason.is_none());
        let is_known = |volume: &&VolumeConfig| known.iter().any(|old| old.name == volume.name);
        let again = volumes.iter().filter(is_known).map(|v| &v.origin);
        let origins = again.chain(served.map(|(_, kept, _)| &kept.origin));
        let mut opened = Reopened::all(&self.origins, origins.cloned().collect());
        let mut attachments = Vec::new();
        for volume in volumes {
            let attachment = volume.reattachment(&mut opened, &known)?;
            self.check_unsaved(&notes, &attachment)?;
            attachments.push(attachment);
        }
        for (record, kept, reason) in others {
            attachments.push(match reason {
                Some(reason) => hold((record, kept), &reason)?,
                None => reattach((record, kept), &mut opened)?,
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
        let unknown = self.config.hold && device.is_after_start();
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

    /// Refuses an origin of which another device may have newer blocks.
    fn check_unsaved(&self, notes: &Notes, attachment: &Attachment) -> Result<(), ConfigError> {
        let note = notes.path(attachment.origin_id);
        let found = notes.elsewhere(attachment.origin_id);
        match found.map_err(ConfigError::file(&note))? {
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
        let note = failure::path(self.state, &device.id());
        // Where that cannot be seen, the device may be one that failed.
        if note.try_exists().unwrap_or(true) {
            return Err(ConfigError::Failed {
                device: self.path.to_owned(),
                note,
            });
        }
        Ok(note)
    }

    /// Refuses to erase dirty blocks. Returns the number of the cache that is erased, if it is one.
    fn check_format(&self, file: &File) -> Result<Option<[u8; 16]>, ConfigError> {
        if self.config.cache.discard_dirty {
            return Ok(None);
        }
        let disk = file.try_clone().map_err(ConfigError::file(self.path))?;
        Device::check_clean(Box::new(disk), self.place).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: DeviceError) -> ConfigError {
        let path = self.path.to_owned();
        ConfigError::Device { path, source }
    }
}

/// The number that a file has as 32 hexadecimal digits, perhaps with hyphens.
fn number_of(path: &str) -> Result<[u8; 16], ConfigError> {
    let digits: String = std::fs::read_to_string(path)
        .map_err(ConfigError::file(path))?
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    fn start(folder: &Path, format: bool) -> Result<(Cache, Arc<Origins>), ConfigError> {
        let config = serde_json::json!({
            "device": folder.join("ssd"), "capacity": 16, "format": format,
            "state": folder, "socket": folder.join("nbd"),
        });
        open(&mut Config::parse(&config.to_string())?)
    }

    /// Regression: what was noted of a device that was formatted since had its origin refused for ever.
    #[test]
    fn notes_of_volumes_that_a_device_does_not_have_end_with_a_start_or_its_format() {
        let folder = tempfile::tempdir().unwrap();
        File::create_new(folder.path().join("ssd")).unwrap();
        let (origin, of_another) = (1, 2);
        Notes::new(folder.path(), &[9; 16])
            .begin(of_another)
            .unwrap();
        drop(start(folder.path(), true).unwrap());
        for format in [false, true] {
            let mut id = [0; 16];
            let file = File::open(folder.path().join("ssd")).unwrap();
            file.read_exact_at(&mut id, 24).unwrap();
            let notes = Notes::new(folder.path(), &id);
            notes.begin(origin).unwrap();
            drop(start(folder.path(), format).unwrap());
            assert!(!notes.path(origin).exists(), "format: {format}");
            assert!(notes.path(of_another).exists());
        }
    }

    #[test]
    fn a_device_of_an_unknown_format_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let device = File::create_new(folder.path().join("ssd")).unwrap();
        drop(start(folder.path(), true).unwrap());
        drop(start(folder.path(), false).unwrap());
        // Both copies of the superblock say that it has format 2, and their checksums are right.
        let path = folder.path().join("ssd");
        for at in [0, 4096] {
            let mut head = [0; 512];
            let file = File::options().read(true).write(true).open(&path).unwrap();
            file.read_exact_at(&mut head, at).unwrap();
            head[8] = 2;
            let check = xxh3_64(&head[..504]);
            head[504..].copy_from_slice(&check.to_le_bytes());
            file.write_all_at(&head, at).unwrap();
        }
        drop(device);
        for format in [false, true] {
            let refused = start(folder.path(), format).err().unwrap().to_string();
            let expected = format!("{}: it has format 2, and", path.display());
            assert!(refused.starts_with(&expected), "{refused}");
        }
    }
}
