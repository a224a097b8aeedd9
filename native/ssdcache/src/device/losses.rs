//! Notes of what origins lost, in a directory that is not on the device.
//!
//! A note ends with the start of the host that it was written in: no client of before runs any more.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};

use diffcache_base::hex;

use super::notes;

/// Notes of origins, of one start of the host.
pub struct LossNotes {
    state: PathBuf,
    boot: String,
}

impl LossNotes {
    /// Notes in the directory `state`, in the start of the host with the number `boot`.
    #[must_use]
    pub fn new(state: &Path, boot: &[u8; 16]) -> Self {
        Self {
            state: state.to_owned(),
            boot: hex::encode(boot),
        }
    }

    fn path(&self, origin: u64) -> PathBuf {
        self.state.join(format!("{origin:016x}.lost"))
    }

    /// Returns which bytes an origin lost in this start of the host.
    ///
    /// # Errors
    /// The note cannot be read, or is damaged.
    pub fn read(&self, origin: u64) -> io::Result<Vec<Range<u64>>> {
        let Some(text) = notes::read(&self.path(origin))? else {
            return Ok(Vec::new());
        };
        let mut lines = text.lines();
        let boot = lines.next().unwrap_or_default();
        if boot.len() == self.boot.len() && boot != self.boot {
            return Ok(Vec::new());
        }
        let damaged = || {
            let path = self.path(origin);
            io::Error::new(
                ErrorKind::InvalidData,
                format!("{}: damaged", path.display()),
            )
        };
        let ranges = lines.map(|line| {
            let (start, end) = line.split_once(' ')?;
            Some(start.parse().ok()?..end.parse().ok()?)
        });
        let ranges: Option<Vec<Range<u64>>> = ranges.collect();
        ranges.filter(|_| boot == self.boot).ok_or_else(damaged)
    }

    /// Notes which bytes an origin lost, in place of an earlier note; durable when this returns.
    ///
    /// # Errors
    /// It cannot be written, or not be removed.
    pub fn write(&self, origin: u64, lost: &[Range<u64>]) -> io::Result<()> {
        let path = self.path(origin);
        if lost.is_empty() {
            return notes::remove(&path);
        }
        let mut text = format!("{}\n", self.boot);
        for range in lost {
            text += &format!("{} {}\n", range.start, range.end);
        }
        notes::write(&path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: u64 = 0xabc;

    #[test]
    fn a_note_lasts_until_it_is_empty_or_the_host_is_started() {
        let folder = tempfile::tempdir().unwrap();
        let [before, after] = [[1; 16], [2; 16]].map(|boot| LossNotes::new(folder.path(), &boot));
        assert!(before.read(ORIGIN).unwrap().is_empty());
        before.write(ORIGIN, &[]).unwrap();
        let lost = [0..5, 4096..8192];
        before.write(ORIGIN, &lost).unwrap();
        assert_eq!(lost[..], before.read(ORIGIN).unwrap());
        assert!(before.read(ORIGIN + 1).unwrap().is_empty());
        assert!(after.read(ORIGIN).unwrap().is_empty());
        before.write(ORIGIN, &[]).unwrap();
        assert!(before.read(ORIGIN).unwrap().is_empty());
    }

    #[test]
    fn a_damaged_note_is_not_taken_for_none() {
        let folder = tempfile::tempdir().unwrap();
        let notes = LossNotes::new(folder.path(), &[1; 16]);
        let boot = "01".repeat(16);
        for text in ["", "01", &format!("{boot}\n1"), &format!("{boot}\n1 x\n")] {
            std::fs::write(notes.path(ORIGIN), text).unwrap();
            assert!(notes.read(ORIGIN).is_err(), "{text:?}");
        }
    }
}
