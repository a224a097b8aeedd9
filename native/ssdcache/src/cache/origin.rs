//! Origins by their names: files and block devices by their path, and what others serve.

mod claim;
pub mod daemon;
pub mod direct;
pub mod held;
pub mod nbd;
mod single;

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use diffcache_nbd::address::Address;
use rustix::fs::ioctl_blksszget;
use serde_json::Value;

use self::claim::Claim;
use self::daemon::Daemon;
use self::direct::Direct;
use self::nbd::NbdOrigin;
use self::single::Singles;
use crate::device::disk::Disk;

/// Opens a file or a block device, and returns its device, its inode and when it was created, in
/// nanoseconds; of a block device, whose node is created anew at each start of the host, its
/// number alone.
///
/// # Errors
/// The system refused, or it is neither.
pub fn open(path: &Path) -> io::Result<(File, (u64, u64, u64))> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return Ok((file, (metadata.rdev(), 0, 0)));
    }
    if !kind.is_file() {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            "neither a file nor a block device",
        ));
    }
    let born = metadata.created().ok();
    let born = born.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |time| time.as_nanos() as u64);
    Ok((file, (metadata.dev(), metadata.ino(), born)))
}

/// A number that identifies an origin, by where it is, and by when it was created: a file
/// in the place of another may have its path and inode. `born` is in nanoseconds, 0 if unknown.
#[must_use]
pub fn origin_id(path: &str, device: u64, inode: u64, born: u64) -> u64 {
    let seed = device.rotate_left(32) ^ inode ^ born.rotate_left(16);
    xxhash_rust::xxh3::xxh3_64_with_seed(path.as_bytes(), seed)
}

/// Begins the name of an origin that a server of NBD has.
const NBD: &str = "nbd";
/// Begins QEMU's options of a block device, as in the names of files that it opens.
const JSON: &str = "json:";
/// Bytes that QEMU requests at least.
const SECTOR: u64 = 512;

/// A file by its device and inode, or a block device by its number.
pub type Identity = (u64, u64);

/// An origin, and the number that identifies it.
pub struct Named {
    /// The origin.
    pub disk: Box<dyn Disk>,
    /// Its number, see [`origin_id`].
    pub id: u64,
}

/// Opens origins by their names: an absolute path; `nbd://` or `nbd+unix://`; `json:` with what
/// QEMU opens. Two of the same `json:` name share a daemon.
pub struct Origins {
    /// Where daemons have their sockets.
    directory: PathBuf,
    /// The cache's own device, which is none.
    device: Identity,
    daemons: Singles<NbdOrigin<Daemon>>,
}

impl Origins {
    /// Opens nothing yet; and never the device of the cache.
    #[must_use]
    pub fn new(directory: PathBuf, device: Identity) -> Self {
        Self {
            directory,
            device,
            daemons: Singles::default(),
        }
    }

    /// Whether this may be the name of an origin.
    #[must_use]
    pub fn is_name(name: &str) -> bool {
        let known = ["/", JSON, held::PREFIX];
        known.iter().any(|prefix| name.starts_with(prefix)) || Address::parse(name).is_ok()
    }

    /// Opens an origin.
    ///
    /// # Errors
    /// It cannot be opened, or this is no name of an origin.
    pub fn open(&self, name: &str) -> io::Result<Named> {
        let id = origin_id(name, 0, 0, 0);
        self.refuse_device(name)?;
        let disk: Box<dyn Disk> = if let Some(options) = name.strip_prefix(JSON) {
            let daemon = |source| NbdOrigin::open(source);
            Box::new(self.shared(id, options, daemon)?)
        } else if name.starts_with(NBD) {
            Box::new(NbdOrigin::open(Address::parse(name)?)?)
        } else {
            let origin = Origin::open(Path::new(name))?;
            check_size(origin.size()?)?;
            return Ok(Named {
                id: origin.id(),
                disk: Box::new(origin),
            });
        };
        check_size(disk.size()?)?;
        Ok(Named { disk, id })
    }

    /// An origin that cannot be opened now, such as before the host's storage is there. Each
    /// request looks for it; until then, all that need it fail.
    ///
    /// # Errors
    /// This is no name of an origin.
    pub fn missing(&self, name: &str, id: u64, size: u64) -> io::Result<Named> {
        let disk: Box<dyn Disk> = if let Some(options) = name.strip_prefix(JSON) {
            let daemon = |source| Ok(NbdOrigin::missing(source, size));
            Box::new(self.shared(id, options, daemon)?)
        } else if name.starts_with(NBD) {
            Box::new(NbdOrigin::missing(Address::parse(name)?, size))
        } else {
            Box::new(Origin::missing(Path::new(name), id, size))
        };
        Ok(Named { disk, id })
    }

    /// Refuses the device of the cache: by its path, or anywhere in QEMU's options.
    fn refuse_device(&self, name: &str) -> io::Result<()> {
        let options = name.strip_prefix(JSON);
        let options = options.and_then(|text| serde_json::from_str(text).ok());
        let mut paths = Vec::new();
        match &options {
            Some(options) => collect_paths(options, &mut paths),
            None => paths.push(name),
        }
        let is_device = |path: &&str| identity(Path::new(path)) == Some(self.device);
        match paths
            .iter()
            .find(|path| path.starts_with('/') && is_device(path))
        {
            None => Ok(()),
            Some(path) => Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("{path} is the device of the cache itself; name the volume's origin"),
            )),
        }
    }

    fn shared(
        &self,
        id: u64,
        options: &str,
        open: impl FnOnce(Daemon) -> io::Result<NbdOrigin<Daemon>>,
    ) -> io::Result<Arc<NbdOrigin<Daemon>>> {
        self.daemons.get(id, |ends| {
            let socket = daemon::socket(&self.directory, id);
            open(Daemon::new(options, socket, ends)?)
        })
    }
}

/// Refuses a size that is no multiple of a sector: QEMU requests whole sectors, also at the end.
pub(super) fn check_size(size: u64) -> io::Result<()> {
    if size % SECTOR == 0 {
        return Ok(());
    }
    Err(io::Error::new(
        ErrorKind::InvalidInput,
        format!("its size of {size} bytes is no multiple of {SECTOR}; make it larger"),
    ))
}

/// What a path is, if that can be seen.
fn identity(path: &Path) -> Option<Identity> {
    let metadata = std::fs::metadata(path).ok()?;
    Some(match metadata.file_type().is_block_device() {
        true => (metadata.rdev(), 0),
        false => (metadata.dev(), metadata.ino()),
    })
}

/// The texts of a JSON document.
fn collect_paths<'a>(value: &'a Value, paths: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => paths.push(text.strip_prefix("file:").unwrap_or(text)),
        Value::Array(values) => values.iter().for_each(|value| collect_paths(value, paths)),
        Value::Object(fields) => fields
            .values()
            .for_each(|value| collect_paths(value, paths)),
        _ => {}
    }
}

/// An origin by its path. A block device is used past the page cache: what other hosts write to
/// it, while this one does not have it, would not be seen in it.
pub struct Origin {
    path: PathBuf,
    id: u64,
    /// Bytes that it has, or had when it was attached.
    size: u64,
    file: OnceLock<Box<dyn Disk>>,
}

impl Origin {
    /// Opens an origin.
    ///
    /// # Errors
    /// See [`open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, id) = identify(path)?;
        let size = file.size()?;
        Ok(Self {
            path: path.to_owned(),
            id,
            size,
            file: OnceLock::from(file),
        })
    }

    /// An origin that cannot be opened now, such as before the host's storage is there. Each
    /// request looks for it; until then, all that need it fail.
    #[must_use]
    pub fn missing(path: &Path, id: u64, size: u64) -> Self {
        Self {
            path: path.to_owned(),
            id,
            size,
            file: OnceLock::new(),
        }
    }

    /// The number that identifies it.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    fn file(&self) -> io::Result<&dyn Disk> {
        if let Some(file) = self.file.get() {
            return Ok(file.as_ref());
        }
        let (file, id) = identify(&self.path)?;
        if id != self.id || file.size()? != self.size {
            return Err(io::Error::other(format!(
                "{}: another file or device than the one that was attached, or of another size; \
                 detach the volume and attach it again",
                self.path.display()
            )));
        }
        Ok(self.file.get_or_init(|| file).as_ref())
    }
}

fn identify(path: &Path) -> io::Result<(Box<dyn Disk>, u64)> {
    let (file, (device, inode, born)) = open(path)?;
    let id = origin_id(&path.to_string_lossy(), device, inode, born);
    if !file.metadata()?.file_type().is_block_device() {
        return Ok((Box::new(file), id));
    }
    let claim = Claim::new(path, device)?;
    let unit = u64::from(ioctl_blksszget(&file)?);
    Ok((Box::new(Direct::new(file, unit)?.holding(claim)), id))
}

impl Disk for Origin {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file()?.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file()?.write_at(bytes, offset)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file()?.write_durably(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        match self.file.get() {
            Some(file) => file.sync(),
            // Nothing was written to it.
            None => Ok(()),
        }
    }

    fn identity(&self) -> Option<String> {
        self.file.get().and_then(|file| file.identity())
    }

    fn forget_lost(&self, offset: u64, length: u64) {
        if let Some(file) = self.file.get() {
            file.forget_lost(offset, length);
        }
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file()?.zero(offset, length)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.get().map_or(Ok(self.size), |file| file.size())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn file(name: &str, size: u64) -> PathBuf {
        let name = format!("diffcache-origin-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::create(&path).unwrap().set_len(size).unwrap();
        path
    }

    #[test]
    fn a_missing_origin_is_used_once_it_is_there() {
        let path = file("late", 8192);
        let away = path.with_extension("away");
        let id = Origin::open(&path).unwrap().id();
        std::fs::rename(&path, &away).unwrap();
        let origin = Origin::missing(&path, id, 8192);
        assert_eq!(8192, origin.size().unwrap());
        origin.sync().unwrap();
        assert!(origin.read_at(&mut [0; 10], 0).is_err());
        std::fs::rename(&away, &path).unwrap();
        origin.write_at(&[7; 10], 4090).unwrap();
        let mut found = [0; 10];
        origin.read_at(&mut found, 4090).unwrap();
        assert_eq!([7; 10], found);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn another_file_is_not_the_missing_origin() {
        let path = file("other", 8192);
        let id = Origin::open(&path).unwrap().id();
        for (id, size) in [(id, 4096), (id + 1, 8192)] {
            let origin = Origin::missing(&path, id, size);
            assert!(origin.write_at(&[7; 10], 0).is_err());
            assert_eq!(size, origin.size().unwrap());
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn an_origin_is_the_same_by_its_path_a_link_and_a_hard_link() {
        let path = file("same", 4096);
        let [link, hard] = ["link", "hard"].map(|name| path.with_extension(name));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::fs::hard_link(&path, &hard).unwrap();
        let other = file("another", 4096);
        let identity = |path: &PathBuf| Origin::open(path).unwrap().identity().unwrap();
        assert_eq!(identity(&path), identity(&link));
        assert_eq!(identity(&path), identity(&hard));
        assert_ne!(identity(&path), identity(&other));
        for path in [path, link, hard, other] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn an_origin_has_whole_sectors() {
        let odd = file("odd", 5000);
        let device = file("odd-device", 0);
        let origins = Origins::new(std::env::temp_dir(), identity(&device).unwrap());
        let refused = origins.open(&odd.to_string_lossy()).err().unwrap();
        assert!(refused.to_string().contains("5000 bytes"), "{refused}");
        std::fs::write(&odd, [0; 5120]).unwrap();
        origins.open(&odd.to_string_lossy()).unwrap();
        for path in [odd, device] {
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn the_device_of_the_cache_is_no_origin() {
        let (path, link) = (file("device", 8192), file("link", 0));
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let origins = Origins::new(std::env::temp_dir(), identity(&path).unwrap());
        let names = [&path, &link].map(|path| path.to_string_lossy().into_owned());
        let json = format!(
            r#"json:{{"driver":"raw","file":{{"filename":"{}"}}}}"#,
            names[1]
        );
        for name in [&names[0], &names[1], &json] {
            let refused = origins.open(name).err().unwrap().to_string();
            assert!(refused.contains("device of the cache"), "{refused}");
        }
        let other = file("no-device", 8192);
        origins.open(&other.to_string_lossy()).unwrap();
        for path in [path, link, other] {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Regression: a daemon was started under the lock of all of them.
    #[test]
    fn an_origin_is_opened_while_the_daemon_of_another_one_starts() {
        let origins = Origins::new(std::env::temp_dir(), (0, 0));
        let options = r#"{"driver":"null-co"}"#;
        let open = |id, begun: &dyn Fn()| {
            origins.shared(id, options, |source| {
                begun();
                Ok(NbdOrigin::missing(source, 4096))
            })
        };
        let (begin, begun) = channel();
        let (go_on, wait) = channel::<()>();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                open(1, &move || {
                    begin.send(()).unwrap();
                    wait.recv().unwrap();
                })
            });
            begun.recv().unwrap();
            let other = open(2, &|| {}).unwrap();
            let again = open(2, &|| panic!("it is open")).unwrap();
            assert!(Arc::ptr_eq(&other, &again));
            go_on.send(()).unwrap();
            slow.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_directory_is_no_origin() {
        assert!(Origin::open(&std::env::temp_dir()).is_err());
    }
}
