//! Writing versions to disks in place: only the blocks that differ.

use std::fs::File;
use std::os::unix::fs::FileExt;

use diffcache_core::task::{for_each_in_order, Task};

use crate::error::{Result, VersionsError};
use crate::restore::{Image, Window};

/// Bytes that are prepared and written at a time.
const PIECE: u64 = 1 << 20;
/// Pieces that are prepared while others are written.
const AHEAD: usize = 8;
const ZEROES: usize = 1 << 20;

/// A disk that is written to.
pub trait Writer {
    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// Any error ends the work.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Makes `len` bytes from an offset on zero.
    ///
    /// # Errors
    /// As `write`.
    fn zero(&mut self, offset: u64, len: u64) -> Result<()>;

    /// Makes all that was written durable.
    ///
    /// # Errors
    /// As `write`.
    fn flush(&mut self) -> Result<()>;
}

/// A raw disk.
pub struct RawDisk {
    file: File,
    name: String,
}

impl RawDisk {
    /// A file that is open for writing; `name` is for messages.
    pub fn new(file: File, name: String) -> Self {
        Self { file, name }
    }
}

impl Writer for RawDisk {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all_at(bytes, offset)
            .map_err(VersionsError::io(&self.name))
    }

    fn zero(&mut self, offset: u64, len: u64) -> Result<()> {
        let zeroes = vec![0; ZEROES.min(len as usize)];
        let mut done = 0;
        while done < len {
            let part = (zeroes.len() as u64).min(len - done);
            self.write(offset + done, &zeroes[..part as usize])?;
            done += part;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.file.sync_all().map_err(VersionsError::io(&self.name))
    }
}

impl Image<'_> {
    /// Writes some ranges of blocks to a disk, in order. Returns the bytes written, zeroes included.
    ///
    /// # Errors
    /// As `to_raw`; what the writer returns.
    pub fn write_ranges(
        &self,
        ranges: &[(u64, u64)],
        disk: &mut dyn Writer,
        task: &Task<'_>,
    ) -> Result<u64> {
        let block = self.block();
        let pieces = pieces(ranges, block, self.size);
        let total = pieces.iter().map(|piece| piece.1).sum();
        let meter = task.meter(total);
        let build = |(start, len): (u64, u64)| {
            let window = self.window(start, len.next_multiple_of(block))?;
            Ok::<_, VersionsError>((start, len, window))
        };
        for_each_in_order(
            &task.silent(),
            pieces,
            AHEAD,
            build,
            |(start, len, window)| {
                task.check()?;
                write_window(&window, start, len, disk)?;
                meter.add(len);
                Ok(())
            },
        )?;
        Ok(total)
    }
}

/// Ranges of blocks as (offset, length) in bytes, within the disk and none longer than `PIECE`.
fn pieces(ranges: &[(u64, u64)], block: u64, size: u64) -> Vec<(u64, u64)> {
    let mut out = Vec::new();
    for (first, count) in ranges {
        let mut at = first * block;
        let end = ((first + count) * block).min(size);
        while at < end {
            let len = PIECE.min(end - at);
            out.push((at, len));
            at += len;
        }
    }
    out
}

fn write_window(window: &Window, start: u64, len: u64, disk: &mut dyn Writer) -> Result<()> {
    let mut done = 0;
    for (from, data) in &window.data {
        if *from > done {
            disk.zero(start + done as u64, (*from - done) as u64)?;
        }
        let to = (*from + *data).min(len as usize);
        disk.write(start + *from as u64, &window.bytes[*from..to])?;
        done = to;
    }
    if (done as u64) < len {
        disk.zero(start + done as u64, len - done as u64)?;
    }
    Ok(())
}
