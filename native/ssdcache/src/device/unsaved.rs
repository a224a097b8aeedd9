//! Notes of origins of which a device may have newer blocks, in a directory that is not on it.
//!
//! Written before a volume gets its first dirty block, and removed when all were written back. An
//! origin with a note is not served with another device in the place of that one: it has older
//! blocks, and only the note shows it.

use std::io;
use std::path::{Path, PathBuf};

use diffcache_base::hex;

use super::notes;

/// Notes of one device.
pub struct Notes {
    state: PathBuf,
    device: String,
    /// The device that this one was before it was formatted.
    former: Option<String>,
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
            former: None,
            discards: false,
        }
    }

    /// Has the newer blocks be lost that other devices may have: their notes are as none.
    #[must_use]
    pub fn discarding(self, discards: bool) -> Self {
        Self { discards, ..self }
    }

    /// Takes notes of a device that was formatted, without dirty blocks, as those of this one.
    #[must_use]
    pub fn replacing(self, former: Option<&[u8; 16]>) -> Self {
        let former = former.map(|id| hex::encode(id));
        Self { former, ..self }
    }

    /// Returns the file of an origin.
    #[must_use]
    pub fn path(&self, origin: u64) -> PathBuf {
        self.state.join(format!("{origin:016x}.unsaved"))
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
        let device = text.lines().next().unwrap_or_default().to_owned();
        let known = device == self.device || self.former.as_ref() == Some(&device);
        Ok((!known).then_some(device))
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
        let formatted = |former| Notes::new(&directory, &other).replacing(Some(former));
        assert!(formatted(&[3; 16]).elsewhere(ORIGIN).unwrap().is_some());
        assert_eq!(None, formatted(&one).elsewhere(ORIGIN).unwrap());
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
