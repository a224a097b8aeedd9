//! Memory of several processes, of a size that none of them can change.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{
    fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create, MemfdFlags, SealFlags,
};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// The mapping of such a memory.
#[derive(Debug)]
pub struct Memory {
    file: OwnedFd,
    start: NonNull<u64>,
    length: usize,
    is_writable: bool,
}

// SAFETY: it is accessed by atomics alone.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Makes a memory of zeroes; `for_readers`: others can only read it.
    ///
    /// # Errors
    /// The system refused.
    pub fn new(name: &str, length: usize, for_readers: bool) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, length as u64)?;
        let memory = Self::map(file, length, true)?;
        let mut seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        if for_readers {
            seals |= SealFlags::FUTURE_WRITE;
        }
        fcntl_add_seals(&memory.file, seals)?;
        Ok(memory)
    }

    /// Maps a memory that another process made.
    ///
    /// # Errors
    /// It is shorter than expected, or may become so.
    pub fn open(file: OwnedFd, is_writable: bool) -> io::Result<Self> {
        let length = usize::try_from(fstat(&file)?.st_size).unwrap_or(0);
        let seals = fcntl_get_seals(&file)?;
        if length == 0 || !seals.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::map(file, length, is_writable)
    }

    fn map(file: OwnedFd, length: usize, is_writable: bool) -> io::Result<Self> {
        let mut access = ProtFlags::READ;
        if is_writable {
            access |= ProtFlags::WRITE;
        }
        // SAFETY: a new mapping replaces none.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                length,
                access,
                MapFlags::SHARED,
                &file,
                0,
            )
        }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            file,
            start,
            length,
            is_writable,
        })
    }

    /// Its descriptor, for another process.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// All of it. Those who did not map it to write only load.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: it stays mapped for as long as this is borrowed, is aligned to a page, and other
        // processes change it by atomics.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length / 8) }
    }

    /// All of it in halves of these.
    pub fn halves(&self) -> &[AtomicU32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), self.length / 4) }
    }

    /// Whether this process may store to it.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing borrows it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
