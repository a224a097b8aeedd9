//! Notes of origins of which a device may have newer blocks, in a directory that is not on it.
//!
//! Written before a volume gets its first dirty block, and removed when all were written back. An
//! origin with a note is not served with another device in the place of that one: it has older
//! blocks, and only the note shows it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use diffcache_base::hex;

use super::notes;

const SUFFIX: &str = ".unsaved";

/// Notes of one device.
pub struct Notes {
    state: PathBuf,
    device: String,
    /// Whether blocks that other devices may have are lost.
    discards: bool,
}

impl Notes {
    /// Notes in the directory `state` of the device with the number `id`.
    #[must_use]
    pub fn new(state: &Path, id: &[u8; 16]) -> Self {
        Self {
            state: state.to_owned(),
            device: hex::encode(id),
            discards: false,
        }
    }

    /// Has the newer blocks be lost that other devices may have: their notes are as none.
    #[must_use]
    pub fn discarding(self, discards: bool) -> Self {
        Self { discards, ..self }
    }

    /// Returns the file of an origin.
    #[must_use]
    pub fn path(&self, origin: u64) -> PathBuf {
        self.state.join(format!("{origin:016x}{SUFFIX}"))
    }

    /// Returns the device that may have newer blocks of an origin, if it is another one than this
    /// one.
    ///
    /// # Errors
    /// The note cannot be read.
    pub fn elsewhere(&self, origin: u64) -> io::Result<Option<String>> {
        if self.discards {
            return Ok(None);
        }
        let Some(text) = notes::read(&self.path(origin))? else {
            return Ok(None);
        };
        Ok(Some(device_of(&text))
            .filter(|device| *device != self.device)
            .map(str::to_owned))
    }

    /// Notes that this device may have newer blocks of an origin; durable when this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(&self, origin: u64) -> io::Result<()> {
        notes::write(&self.path(origin), &format!("{}\n", self.device))
    }

    /// Removes the note of an origin; nothing happens if there is none, or that of another device.
    ///
    /// # Errors
    /// It cannot be read, or not be removed.
    pub fn end(&self, origin: u64) -> io::Result<()> {
        if self.elsewhere(origin)?.is_some() {
            return Ok(());
        }
        notes::remove(&self.path(origin))
    }

    /// Removes the notes of this device of all origins but these.
    ///
    /// # Errors
    /// One cannot be read, or not be removed.
    pub fn retain(&self, origins: &[u64]) -> io::Result<()> {
        let kept: Vec<PathBuf> = origins.iter().map(|origin| self.path(*origin)).collect();
        let found = match std::fs::read_dir(&self.state) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            found => found?,
        };
        for found in found {
            let path = found?.path();
            let is_note = path.to_str().is_some_and(|path| path.ends_with(SUFFIX));
            if !is_note || kept.contains(&path) {
                continue;
            }
            if notes::read(&path)?.is_some_and(|text| device_of(&text) == self.device) {
                notes::remove(&path)?;
            }
        }
        Ok(())
    }
}

/// The device that a note is of.
fn device_of(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORIGIN: u64 = 0xabc;

    #[test]
    fn an_origin_is_noted_until_all_was_written_back() {
        let name = format!("diffcache-unsaved-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let [one, other] = [[1; 16], [2; 16]];
        let notes = Notes::new(&directory, &one);
        let blank = Notes::new(&directory, &other);
        assert_eq!(None, blank.elsewhere(ORIGIN).unwrap());
        notes.end(ORIGIN).unwrap();
        for _ in 0..2 {
            notes.begin(ORIGIN).unwrap();
            assert_eq!(None, notes.elsewhere(ORIGIN).unwrap());
            let found = blank.elsewhere(ORIGIN).unwrap();
            assert_eq!(Some("01".repeat(16)), found);
        }
        // The end of another device's blocks is not that of this one's.
        blank.end(ORIGIN).unwrap();
        assert!(blank.elsewhere(ORIGIN).unwrap().is_some());
        for (others, is_kept) in [(&blank, true), (&notes, false)] {
            others.retain(&[]).unwrap();
            assert_eq!(is_kept, blank.elsewhere(ORIGIN).unwrap().is_some());
        }
        notes.begin(ORIGIN).unwrap();
        notes.retain(&[ORIGIN + 1, ORIGIN]).unwrap();
        assert!(blank.elsewhere(ORIGIN).unwrap().is_some());
        let discarding = Notes::new(&directory, &other).discarding(true);
        assert_eq!(None, discarding.elsewhere(ORIGIN).unwrap());
        discarding.end(ORIGIN).unwrap();
        notes.begin(ORIGIN).unwrap();
        assert_eq!(None, blank.elsewhere(ORIGIN + 1).unwrap());
        notes.end(ORIGIN).unwrap();
        assert_eq!(None, blank.elsewhere(ORIGIN).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(notes.begin(ORIGIN).is_err());
    }

    #[test]
    fn a_note_that_is_damaged_is_of_another_device() {
        let name = format!("diffcache-damaged-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let notes = Notes::new(&directory, &[1; 16]);
        std::fs::write(notes.path(ORIGIN), "").unwrap();
        assert_eq!(Some(String::new()), notes.elsewhere(ORIGIN).unwrap());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
