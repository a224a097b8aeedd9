//! Reading a file beside other work: slowly, and from the disk.

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use rustix::fs::{fadvise, Advice};

use super::{FileSource, ReadAt, SourceError};

/// A file of which no more than this many bytes per second are read. What the page cache has of it is dropped before: memory says nothing of the disk.
/// What a program maps, or has not been written back, stays, and is read from memory.
pub struct PacedFile {
    file: FileSource,
    rate: u64,
    /// When the next read may begin.
    due: Mutex<Instant>,
}

impl PacedFile {
    /// Opens a file as [`FileSource::open`] does; `rate` is in bytes per second, 0 counts as 1.
    ///
    /// # Errors
    /// `Io` if it cannot be opened.
    pub fn open(path: &Path, rate: u64) -> Result<PacedFile, SourceError> {
        let file = FileSource::open(path)?;
        // What the kernel reads ahead would be dropped, and read once more.
        let _ = fadvise(file.file(), 0, None, Advice::Random);
        Ok(PacedFile {
            file,
            rate: rate.max(1),
            due: Mutex::new(Instant::now()),
        })
    }

    fn wait(&self, bytes: usize) {
        let now = Instant::now();
        let begin = {
            let mut due = self.due.lock().unpoisoned();
            let begin = now.max(*due);
            *due = begin + Duration::from_secs_f64(bytes as f64 / self.rate as f64);
            begin
        };
        std::thread::sleep(begin - now);
    }

    fn drop_pages(&self, offset: u64, len: usize) {
        // An advice; a filesystem without a page cache refuses it.
        let _ = fadvise(
            self.file.file(),
            offset,
            NonZeroU64::new(len as u64),
            Advice::DontNeed,
        );
    }
}

impl ReadAt for PacedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn name(&self) -> &str {
        self.file.name()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), SourceError> {
        self.wait(buf.len());
        self.drop_pages(offset, buf.len());
        self.file.read_exact_at(buf, offset)?;
        // Nor is it to take the place of what is used.
        self.drop_pages(offset, buf.len());
        Ok(())
    }

    fn next_data(&self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        self.file.next_data(offset)
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        self.file.check_unchanged()
    }
}

/// Has the disk serve the calling thread only while nothing else wants it, where its scheduler has classes (`ioprio_set(2)`).
///
/// # Errors
/// What the system says.
pub fn use_idle_io() -> std::io::Result<()> {
    const WHO_PROCESS: i32 = 1;
    const CLASS_IDLE: i32 = 3 << 13;
    // SAFETY: the call takes three numbers, and changes nothing but the priority of the calling thread.
    let done = unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_bounds_what_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [7; 3000]).unwrap();
        let file = PacedFile::open(&path, 20_000).unwrap();
        let began = Instant::now();
        let mut buf = [0; 1000];
        for offset in [0, 1000, 2000] {
            file.read_exact_at(&mut buf, offset).unwrap();
            assert_eq!(buf, [7; 1000]);
        }
        // The third read waits for the first two.
        assert!(began.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn a_thread_becomes_idle() {
        std::thread::spawn(use_idle_io).join().unwrap().unwrap();
    }
}
