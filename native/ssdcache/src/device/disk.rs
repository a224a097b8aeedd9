//! What has bytes at offsets: the SSD, and the volumes' origins.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::sync::Arc;

use rustix::fs::{fadvise, fallocate, Advice, FallocateFlags, OFlags};
use rustix::io::{preadv2, pwritev2, Errno, ReadWriteFlags};

/// Zeroes that are written at once.
const ZEROES: u64 = 1 << 20;

/// A file that is open twice.
pub struct Files {
    /// Is read past the memory of the system.
    pub direct: File,
    /// Is read through it.
    pub buffered: File,
}

/// A file, a block device, or what stands for one.
pub trait Disk: Send + Sync {
    /// Fills a buffer from an offset.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills a buffer from an offset, if the bytes are in memory. `false`: not all are, and the
    /// buffer may have anything.
    fn read_now(&self, _buffer: &mut [u8], _offset: u64) -> bool {
        false
    }

    /// Fills a buffer from an offset, past the memory of the system if that is possible.
    fn read_afresh(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buffer, offset)
    }

    /// The file that has the bytes, for others to read; none: there is no such.
    ///
    /// # Errors
    /// It cannot be read past the memory of the system.
    fn files(&self) -> io::Result<Option<Files>> {
        Ok(None)
    }

    /// Writes bytes at an offset; they survive the end of the process, but not that of the host.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Writes bytes at an offset so that they survive a power cut.
    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes all that was written before survive a power cut. A failure may be reported only once,
    /// after which what was written since the last success may be lost.
    fn sync(&self) -> io::Result<()>;

    /// Whether what was written survives the end of every process of this host.
    fn outlives_processes(&self) -> bool {
        true
    }

    /// What it reads and writes, whatever its name is; none if that is not known.
    fn identity(&self) -> Option<String> {
        None
    }

    /// Has reads of a range return what the disk has, and not what the memory of the system has of
    /// writes that were lost.
    fn forget_lost(&self, _offset: u64, _length: u64) {}

    /// Replaces a range by zeroes, and returns its space if that is possible.
    fn zero(&self, offset: u64, length: u64) -> io::Result<()>;

    /// Its size in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Its size in bytes, where what serves it knows that of an earlier moment.
    fn size_now(&self) -> io::Result<u64> {
        self.size()
    }
}

impl<T: Disk> Disk for Arc<T> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_ref().read_at(buffer, offset)
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.as_ref().read_now(buffer, offset)
    }

    fn read_afresh(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_ref().read_afresh(buffer, offset)
    }

    fn files(&self) -> io::Result<Option<Files>> {
        self.as_ref().files()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.as_ref().write_at(bytes, offset)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.as_ref().write_durably(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.as_ref().sync()
    }

    fn outlives_processes(&self) -> bool {
        self.as_ref().outlives_processes()
    }

    fn identity(&self) -> Option<String> {
        self.as_ref().identity()
    }

    fn forget_lost(&self, offset: u64, length: u64) {
        self.as_ref().forget_lost(offset, length);
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        self.as_ref().zero(offset, length)
    }

    fn size(&self) -> io::Result<u64> {
        self.as_ref().size()
    }

    fn size_now(&self) -> io::Result<u64> {
        self.as_ref().size_now()
    }
}

impl Disk for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(buffer, offset)
    }

    fn read_now(&self, buffer: &mut [u8], offset: u64) -> bool {
        let length = buffer.len();
        let mut into = [IoSliceMut::new(buffer)];
        let read = preadv2(self, &mut into, offset, ReadWriteFlags::NOWAIT);
        // Some file systems do not know the flag: their bytes are never in memory.
        read.is_ok_and(|count| count == length)
    }

    fn read_afresh(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let length = NonZeroU64::new(buffer.len() as u64);
        fadvise(self, offset, length, Advice::DontNeed)?;
        self.read_exact_at(buffer, offset)
    }

    fn files(&self) -> io::Result<Option<Files>> {
        // Opened anew, as all copies of a descriptor have the same flags.
        let path = format!("/proc/self/fd/{}", self.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let opened = File::options().read(true).custom_flags(flags).open(path);
        Ok(Some(Files {
            direct: opened?,
            buffered: self.try_clone()?,
        }))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = [IoSlice::new(&bytes[done..])];
            let at = offset + done as u64;
            match pwritev2(self, &rest, at, ReadWriteFlags::DSYNC) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn identity(&self) -> Option<String> {
        let metadata = self.metadata().ok()?;
        Some(match metadata.file_type().is_block_device() {
            true => format!("device {}", metadata.rdev()),
            false => format!("file {} {}", metadata.dev(), metadata.ino()),
        })
    }

    fn forget_lost(&self, offset: u64, length: u64) {
        // Advice: a system that does not take it goes on as before.
        let _ = fadvise(self, offset, NonZeroU64::new(length), Advice::DontNeed);
    }

    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        // What cannot return space may still zero a range, and what cannot is written.
        for how in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
            match fallocate(self, how | FallocateFlags::KEEP_SIZE, offset, length) {
                Err(Errno::OPNOTSUPP) => {}
                zeroed => return Ok(zeroed?),
            }
        }
        let zeroes = vec![0; ZEROES.min(length) as usize];
        for part in (offset..offset + length).step_by(ZEROES as usize) {
            let count = ZEROES.min(offset + length - part) as usize;
            self.write_all_at(&zeroes[..count], part)?;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        // A block device has no size of a file, but an end.
        let mut file = self;
        file.seek(SeekFrom::End(0))
    }
}
