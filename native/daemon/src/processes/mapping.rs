//! A mapping of memory that several processes share.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::DaemonError;

/// Create memory of a length that no process can change: a process that maps it can read all of it, whatever others do.
///
/// # Errors
/// `System`.
pub fn create(name: &str, len: u64) -> Result<OwnedFd, DaemonError> {
    let create = || {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, len)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Ok(fd)
    };
    create().map_err(DaemonError::system::<rustix::io::Errno>(
        "create shared memory",
    ))
}

/// Memory behind a descriptor, unmapped when dropped.
pub struct Mapping {
    /// First byte, at the beginning of a page.
    pub base: NonNull<u8>,
    /// Number of bytes.
    pub len: usize,
}

impl Mapping {
    /// Map all of a descriptor of at least `least` bytes.
    ///
    /// # Errors
    /// `System`, or `Config` if it is shorter.
    pub fn new(fd: impl AsFd, least: usize) -> Result<Mapping, DaemonError> {
        let found = rustix::fs::fstat(&fd).map_err(DaemonError::system("size shared memory"))?;
        let len = usize::try_from(found.st_size).unwrap_or(0);
        if len < least {
            let reason = format!("shared memory has {len} bytes, not at least {least}");
            return Err(DaemonError::Config(reason));
        }
        // SAFETY: a new mapping at an address of the kernel's choice; the descriptor is one of ours, of this length, and sealed against others.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        };
        let base = base.map_err(DaemonError::system("map shared memory"))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| DaemonError::Config("the shared memory has no address".to_owned()))?;
        Ok(Mapping { base, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and what borrows from it borrows this value.
        if let Err(error) = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) } {
            log::warn!("Could not unmap shared memory: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a worker could cut the memory, and the keeper died of SIGBUS.
    #[test]
    fn no_process_changes_the_length_of_shared_memory_or_what_may_be_done_with_it() {
        let fd = create("test", 4096).unwrap();
        for len in [0, 4095, 4097] {
            assert_eq!(
                rustix::fs::ftruncate(&fd, len),
                Err(rustix::io::Errno::PERM)
            );
        }
        assert!(rustix::fs::fcntl_add_seals(&fd, SealFlags::FUTURE_WRITE).is_err());
        assert_eq!(Mapping::new(&fd, 4096).unwrap().len, 4096);
    }
}
