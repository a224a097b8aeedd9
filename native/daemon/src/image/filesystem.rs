//! The mounted directory: one read-only file, named by its content.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::time::Duration;

use fuse_backend_rs::abi::fuse_abi::{stat64, CreateIn, FsOptions, OpenOptions, SetattrValid};
use fuse_backend_rs::api::filesystem::{
    Context, DirEntry, Entry, FileSystem, GetxattrReply, ZeroCopyWriter,
};

use crate::image::lazy_file::LazyFile;
use crate::peers::hints::Hints;
use crate::prefetch::learned::Learned;
use crate::prefetch::record::{now_ns, unix_now, Recorder};
use crate::sizes::CHUNK;

const ROOT: u64 = 1;
const FILE: u64 = 2;
/// Nothing here ever changes.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// The file system of one image.
pub struct Directory {
    name: String,
    file: Arc<LazyFile>,
    learned: Learned,
    hints: Option<Arc<Hints>>,
    recorder: Option<Recorder>,
    /// Numbers of the user that the file is of, and of the group that may read it.
    owner: (u32, u32),
}

fn error<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

impl Directory {
    /// Show a file to this process's user and a group; its reads are counted, and go to other hosts as hints and to the recorder, if there are any.
    pub fn new(
        file: Arc<LazyFile>,
        learned: Learned,
        hints: Option<Arc<Hints>>,
        recorder: Option<Recorder>,
        group: u32,
    ) -> Directory {
        Directory {
            name: file.leaves().manifest().content_id_hex(),
            file,
            learned,
            hints,
            recorder,
            owner: (rustix::process::geteuid().as_raw(), group),
        }
    }

    /// Read a range that is in the local file into the answer.
    fn send(&self, writer: &mut dyn ZeroCopyWriter, offset: u64, len: usize) -> io::Result<()> {
        let descriptor = self.file.leaves().file().as_raw_fd();
        // SAFETY: it is open as long as `self.file` is there, and is not closed here. A read at an offset changes nothing of it.
        let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        writer.write_all_from(&mut *file, len, offset)
    }

    fn attributes(&self, inode: u64) -> io::Result<stat64> {
        // SAFETY: plain numbers, of which zero is a valid value each.
        let mut stat: stat64 = unsafe { std::mem::zeroed() };
        stat.st_ino = inode;
        stat.st_blksize = 1 << 18;
        // The kernel looks at the caller (`default_permissions`).
        (stat.st_uid, stat.st_gid) = self.owner;
        match inode {
            ROOT => {
                stat.st_mode = libc::S_IFDIR | 0o550;
                stat.st_nlink = 2;
            }
            FILE => {
                stat.st_mode = libc::S_IFREG | 0o440;
                stat.st_nlink = 1;
                stat.st_size = self.file.size() as i64;
                stat.st_mtime = self.file.modified_s() as i64;
                stat.st_atime = stat.st_mtime;
                stat.st_ctime = stat.st_mtime;
                stat.st_blocks = self.file.size().div_ceil(512) as i64;
            }
            _ => return error(libc::ENOENT),
        }
        Ok(stat)
    }
}

impl FileSystem for Directory {
    type Inode = u64;
    type Handle = u64;

    fn init(&self, _: FsOptions) -> io::Result<FsOptions> {
        Ok(FsOptions::ASYNC_READ
            | FsOptions::ASYNC_DIO
            | FsOptions::BIG_WRITES
            | FsOptions::MAX_PAGES
            | FsOptions::INIT_EXT
            | FsOptions::PARALLEL_DIROPS)
    }

    fn lookup(&self, _: &Context, parent: u64, name: &CStr) -> io::Result<Entry> {
        if parent != ROOT || name.to_bytes() != self.name.as_bytes() {
            return error(libc::ENOENT);
        }
        Ok(Entry {
            inode: FILE,
            generation: 0,
            attr: self.attributes(FILE)?,
            attr_flags: 0,
            attr_timeout: FOREVER,
            entry_timeout: FOREVER,
        })
    }

    fn getattr(&self, _: &Context, inode: u64, _: Option<u64>) -> io::Result<(stat64, Duration)> {
        // Not cached: a look at the folder has to find a mount whose daemon is gone.
        let time = match inode {
            ROOT => Duration::ZERO,
            _ => FOREVER,
        };
        Ok((self.attributes(inode)?, time))
    }

    fn setattr(
        &self,
        _: &Context,
        inode: u64,
        wanted: stat64,
        _: Option<u64>,
        valid: SetattrValid,
    ) -> io::Result<(stat64, Duration)> {
        // Nova marks base images as used by their time. Nothing else changes.
        let times = SetattrValid::ATIME
            | SetattrValid::MTIME
            | SetattrValid::CTIME
            | SetattrValid::ATIME_NOW
            | SetattrValid::MTIME_NOW;
        if inode != FILE || !times.contains(valid) {
            return error(libc::EROFS);
        }
        if valid.contains(SetattrValid::MTIME_NOW) {
            self.file.set_modified(unix_now());
        } else if valid.contains(SetattrValid::MTIME) {
            self.file
                .set_modified(u64::try_from(wanted.st_mtime).unwrap_or(0));
        }
        Ok((self.attributes(inode)?, FOREVER))
    }

    fn open(
        &self,
        _: &Context,
        inode: u64,
        flags: u32,
        _: u32,
    ) -> io::Result<(Option<u64>, OpenOptions, Option<u32>)> {
        if inode != FILE {
            return error(libc::EISDIR);
        }
        if flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
            return error(libc::EROFS);
        }
        let handle = self.file.next_handle();
        self.learned.open(handle, now_ns());
        let Some(recorder) = &self.recorder else {
            return Ok((Some(handle), OpenOptions::KEEP_CACHE, None));
        };
        recorder.note_open(handle);
        // The page cache would answer what another handle has read, and read ahead for this one.
        Ok((Some(handle), OpenOptions::DIRECT_IO, None))
    }

    fn create(
        &self,
        _: &Context,
        _: u64,
        _: &CStr,
        _: CreateIn,
    ) -> io::Result<(Entry, Option<u64>, OpenOptions, Option<u32>)> {
        error(libc::EROFS)
    }

    fn read(
        &self,
        _: &Context,
        inode: u64,
        handle: u64,
        writer: &mut dyn ZeroCopyWriter,
        size: u32,
        offset: u64,
        _: Option<u64>,
        _: u32,
    ) -> io::Result<usize> {
        if inode != FILE {
            return error(libc::EISDIR);
        }
        let start_ns = now_ns();
        let left = self.file.size().saturating_sub(offset);
        let len = u64::from(size).min(left) as usize;
        let kept_out = match self.file.prepare(handle, offset, len) {
            Ok(kept_out) => kept_out,
            Err(reason) => {
                self.file.count(Err(&reason));
                return error(libc::EIO);
            }
        };
        if kept_out.is_empty() {
            self.send(writer, offset, len)?;
        } else {
            let mut buffer = vec![0; len];
            self.file.copy(offset, &mut buffer, &kept_out)?;
            writer.write_all(&buffer)?;
        }
        self.file.count(Ok(len));
        let chunks = offset / CHUNK..(offset + len as u64).div_ceil(CHUNK);
        let counted = self.learned.read(handle, chunks, start_ns);
        if let Some(hints) = &self.hints {
            counted.iter().for_each(|counted| hints.count(counted));
        }
        if let Some(recorder) = &self.recorder {
            recorder.note_read(handle, offset, len, start_ns);
        }
        Ok(len)
    }

    fn release(
        &self,
        _: &Context,
        _: u64,
        _: u32,
        handle: u64,
        _: bool,
        _: bool,
        _: Option<u64>,
    ) -> io::Result<()> {
        self.file.forget(handle);
        Ok(())
    }

    fn readdir(
        &self,
        _: &Context,
        inode: u64,
        _: u64,
        _: u32,
        offset: u64,
        add_entry: &mut dyn FnMut(DirEntry) -> io::Result<usize>,
    ) -> io::Result<()> {
        if inode != ROOT {
            return error(libc::ENOTDIR);
        }
        let entries: [(u64, u8, &[u8]); 3] = [
            (ROOT, libc::DT_DIR, b"."),
            (ROOT, libc::DT_DIR, b".."),
            (FILE, libc::DT_REG, self.name.as_bytes()),
        ];
        for (number, (ino, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            let entry = DirEntry {
                ino,
                offset: number,
                type_: u32::from(kind),
                name,
            };
            if add_entry(entry)? == 0 {
                break;
            }
        }
        Ok(())
    }

    fn getxattr(&self, _: &Context, _: u64, _: &CStr, _: u32) -> io::Result<GetxattrReply> {
        error(libc::ENOSYS)
    }
}
