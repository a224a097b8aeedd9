//! The space that a file of a cache has from the beginning, so that it is not missing later.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    fallocate, fstatfs, fstatvfs, ioctl_getflags, ioctl_setflags, FallocateFlags, IFlags,
};

use crate::error::ConfigError;

/// File systems that write elsewhere what is written again, by their magic numbers.
const BTRFS: u64 = 0x9123_683e;
const COPYING: [(u64, &str); 2] = [(0x2fc1_2fc1, "ZFS"), (0xca45_1a4e, "bcachefs")];
const SECTOR: u64 = 512;
/// Bytes that are written at once.
const ZEROES: u64 = 1 << 20;

/// Gives the file of a device, whose content is of no use, the space that the cache needs. The
/// file is as it was if there is not enough.
///
/// # Errors
/// There is not enough space, or the file system cannot keep it for the file.
pub fn reserve(path: &Path, file: &File, bytes: u64) -> Result<(), ConfigError> {
    let failed = |error| ConfigError::file(path)(error);
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Ok(());
    }
    check_space(path, file, bytes)?;
    let is_btrfs = write_in_place(path, file, metadata.len())?;
    let reserved = fallocate(file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from);
    // Where the space was never written, the first write takes metadata, which may be missing, too.
    let reserved = reserved.and_then(|()| match is_btrfs {
        true => write_zeroes(file, bytes),
        false => Ok(()),
    });
    reserved.map_err(|error| {
        // Others took the space meanwhile.
        let _ = file.set_len(metadata.len());
        failed(error)
    })
}

fn write_zeroes(file: &File, bytes: u64) -> io::Result<()> {
    let zeroes = vec![0; ZEROES as usize];
    for at in (0..bytes).step_by(ZEROES as usize) {
        let count = ZEROES.min(bytes - at) as usize;
        file.write_all_at(&zeroes[..count], at)?;
    }
    file.sync_data()
}

/// Refuses more than is free, before anything is written.
fn check_space(path: &Path, file: &File, bytes: u64) -> Result<(), ConfigError> {
    use std::os::unix::fs::MetadataExt;
    let failed = |error| ConfigError::file(path)(error);
    let system = fstatvfs(file).map_err(|error| failed(error.into()))?;
    let free = system.f_bavail.saturating_mul(system.f_frsize);
    let own = file.metadata().map_err(failed)?.blocks() * SECTOR;
    let missing = bytes.saturating_sub(own);
    if missing > free {
        return Err(ConfigError::Space {
            path: path.to_owned(),
            reason: format!(
                "the cache needs {missing} more bytes, but {free} are free in its file system; lower \
                 --capacity"
            ),
        });
    }
    Ok(())
}

/// Has a file keep its space when it is written again. Returns whether it is on btrfs.
fn write_in_place(path: &Path, file: &File, length: u64) -> Result<bool, ConfigError> {
    let refused = |what: &str| {
        ConfigError::Space {
        path: path.to_owned(),
        reason: format!(
            "{what}, where a write takes new space and fails when there is none; use a block device \
             or another file system"
        ),
    }
    };
    let Ok(system) = fstatfs(file) else {
        return Ok(false);
    };
    let magic = system.f_type as u64 & 0xffff_ffff;
    if let Some((_, name)) = COPYING.iter().find(|(number, _)| *number == magic) {
        return Err(refused(&format!("it is on {name}")));
    }
    if magic != BTRFS {
        return Ok(false);
    }
    let flags = ioctl_getflags(file).map_err(|_| refused("it is on btrfs"))?;
    if flags.contains(IFlags::NOCOW) {
        return Ok(true);
    }
    // Only a file without content can be changed so.
    let changed = file.set_len(0).is_ok() && ioctl_setflags(file, flags | IFlags::NOCOW).is_ok();
    if !changed {
        let _ = file.set_len(length);
        return Err(refused("it is on btrfs, and cannot be written in place"));
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_free_is_refused_before_anything_is_written() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10).unwrap();
        let refused = reserve(file.path(), file.as_file(), 1 << 60).unwrap_err();
        assert!(
            refused.to_string().contains("lower --capacity"),
            "{refused}"
        );
        let found = file.as_file().metadata().unwrap();
        use std::os::unix::fs::MetadataExt;
        assert_eq!((10, 0), (found.len(), found.blocks()));
        reserve(file.path(), file.as_file(), 8192).unwrap();
        assert_eq!(8192, file.as_file().metadata().unwrap().len());
    }
}
