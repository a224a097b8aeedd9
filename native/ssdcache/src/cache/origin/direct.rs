//! Reads and writes past the page cache of the kernel, at any offset and of any length.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, RwLock};

use diffcache_base::locks::Unpoisoned;
use rustix::fs::{fcntl_getfl, fcntl_setfl, OFlags};

use super::claim::Claim;
use crate::device::aligned::Aligned;
use crate::device::disk::Disk;

/// A file or block device that is opened with `O_DIRECT`.
///
/// The kernel takes only offsets, lengths and addresses in memory that are multiples of a number:
/// data are copied, and the rest of a unit that is written in part is read before.
pub struct Direct {
    file: File,
    /// Bytes: offsets and lengths are multiples of it.
    unit: u64,
    /// Writes of whole units share it; those of parts exclude one another and them.
    parts: RwLock<()>,
    /// Keeps others from the device.
    _claim: Option<Arc<Claim>>,
}

impl Direct {
    /// Has a file read and written past the page cache.
    ///
    /// # Errors
    /// Its file system cannot do this.
    pub fn new(file: File, unit: u64) -> io::Result<Self> {
        fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::DIRECT)?;
        Ok(Self {
            file,
            unit,
            parts: RwLock::default(),
            _claim: None,
        })
    }

    /// Keeps others from the device as long as this is open.
    pub(super) fn holding(self, claim: Arc<Claim>) -> Self {
        Self {
            _claim: Some(claim),
            ..self
        }
    }

    /// The whole units that a range touches.
    fn whole(&self, offset: u64, length: usize) -> Range<u64> {
        let end = offset + length as u64;
        offset - offset % self.unit..end.next_multiple_of(self.unit)
    }

    fn write(
        &self,
        bytes: &[u8],
        offset: u64,
        write: impl Fn(&File, &[u8], u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let whole = self.whole(offset, bytes.len());
        let mut copy = Aligned::new((whole.end - whole.start) as usize);
        let from = (offset - whole.start) as usize;
        if copy.get().len() == bytes.len() {
            copy.get_mut().copy_from_slice(bytes);
            let _shared = self.parts.read().unpoisoned();
            return write(&self.file, copy.get(), whole.start);
        }
        let _alone = self.parts.write().unpoisoned();
        self.file.read_at(copy.get_mut(), whole.start)?;
        copy.get_mut()[from..from + bytes.len()].copy_from_slice(bytes);
        write(&self.file, copy.get(), whole.start)
    }
}

impl Disk for Direct {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let whole = self.whole(offset, buffer.len());
        let mut copy = Aligned::new((whole.end - whole.start) as usize);
        self.file.read_at(copy.get_mut(), whole.start)?;
        let from = (offset - whole.start) as usize;
        buffer.copy_from_slice(&copy.get()[from..from + buffer.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write(bytes, offset, <File as Disk>::write_at)
    }

    fn write_durably(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write(bytes, offset, <File as Disk>::write_durably)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    fn identity(&self) -> Option<String> {
        self.file.identity()
    }

    /// Parts of units at both ends are written, as the kernel takes whole ones alone.
    fn zero(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = offset + length;
        let units = offset.next_multiple_of(self.unit)..end - end % self.unit;
        if units.is_empty() {
            return self.write_at(&vec![0; length as usize], offset);
        }
        for part in [offset..units.start, units.end..end] {
            if !part.is_empty() {
                self.write_at(&vec![0; (part.end - part.start) as usize], part.start)?;
            }
        }
        let _shared = self.parts.read().unpoisoned();
        self.file.zero(units.start, units.end - units.start)
    }

    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of the build, because some systems' temporary files have no `O_DIRECT`.
    fn file(name: &str) -> (File, std::path::PathBuf) {
        let program = std::env::current_exe().unwrap();
        let path = program.with_file_name(format!("direct-{name}-{}", std::process::id()));
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path);
        (file.unwrap(), path)
    }

    #[test]
    fn any_range_is_read_and_written() {
        let (file, path) = file("ranges");
        file.set_len(64 << 10).unwrap();
        let direct = Direct::new(file, 4096).unwrap();
        let mut expected = vec![0; 64 << 10];
        let mut random = 7_u64;
        for step in 0..200_usize {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let (offset, length) = ((random >> 33) as usize % 60_000, step * 23 % 5000 + 1);
            let length = length.min((64 << 10) - offset);
            let bytes = vec![step as u8; length];
            direct.write_at(&bytes, offset as u64).unwrap();
            expected[offset..offset + length].copy_from_slice(&bytes);
            let mut found = vec![0; length + offset % 97];
            let start = offset - offset % 97;
            direct.read_at(&mut found, start as u64).unwrap();
            assert_eq!(expected[start..start + found.len()], found[..]);
        }
        direct.write_durably(&[9; 3], 5).unwrap();
        expected[5..8].fill(9);
        direct.sync().unwrap();
        assert_eq!(expected, std::fs::read(&path).unwrap());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn zeroes_of_parts_of_units_leave_the_rest_as_it_was() {
        let (file, path) = file("zeroes");
        file.set_len(64 << 10).unwrap();
        let direct = Direct::new(file, 4096).unwrap();
        direct.write_at(&[7; 64 << 10], 0).unwrap();
        let mut expected = vec![7; 64 << 10];
        let ranges = [
            (512, 512),
            (4096 + 512, 4096),
            (16384, 8192),
            (32768 + 1, 20000),
            (8191, 2),
        ];
        for (offset, length) in ranges {
            direct.zero(offset, length).unwrap();
            expected[offset as usize..(offset + length) as usize].fill(0);
            assert_eq!(expected, std::fs::read(&path).unwrap());
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn parts_of_a_unit_that_are_written_at_once_are_all_there() {
        let (file, path) = file("parts");
        file.set_len(4096).unwrap();
        let direct = Direct::new(file, 4096).unwrap();
        std::thread::scope(|scope| {
            for part in 0..8_u8 {
                let direct = &direct;
                scope.spawn(move || {
                    direct
                        .write_at(&[part + 1; 512], u64::from(part) * 512)
                        .unwrap();
                });
            }
        });
        let found = std::fs::read(&path).unwrap();
        for part in 0..8 {
            assert!(found[part * 512..][..512]
                .iter()
                .all(|&b| b == part as u8 + 1));
        }
        std::fs::remove_file(path).unwrap();
    }
}
