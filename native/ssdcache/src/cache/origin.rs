//! Origins by their path: files and block devices.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use super::attach::origin_id;
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

/// An origin, and the number that tells it from others.
pub struct Origin {
    path: PathBuf,
    id: u64,
    /// Bytes that it has, or had when it was attached.
    size: u64,
    file: OnceLock<File>,
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

    /// The number that tells it from others.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    fn file(&self) -> io::Result<&File> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let (file, id) = identify(&self.path)?;
        if id != self.id || file.size()? != self.size {
            return Err(io::Error::other(format!(
                "{}: another file or device than the one that was attached, or of another size; \
                 detach the volume and attach it again",
                self.path.display()
            )));
        }
        Ok(self.file.get_or_init(|| file))
    }
}

fn identify(path: &Path) -> io::Result<(File, u64)> {
    let (file, (device, inode, born)) = open(path)?;
    let id = origin_id(&path.to_string_lossy(), device, inode, born);
    Ok((file, id))
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

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file()?.zero(offset, length)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.get().map_or(Ok(self.size), Disk::size)
    }
}

#[cfg(test)]
mod tests {
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
    fn a_directory_is_no_origin() {
        assert!(Origin::open(&std::env::temp_dir()).is_err());
    }
}
