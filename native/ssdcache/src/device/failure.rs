//! Notes of devices that failed, in a directory that is not on them.
//!
//! A cache that is formatted has a new number, so that a note never concerns it.

use std::io;
use std::path::{Path, PathBuf};

use diffcache_base::hex;

use super::notes;

/// Returns the file for the device with a number.
#[must_use]
pub fn path(state: &Path, id: &[u8; 16]) -> PathBuf {
    state.join(format!("{}.failed", hex::encode(id)))
}

/// Writes a note; it is durable when this returns.
///
/// # Errors
/// It cannot be written.
pub fn note(path: &Path, error: &io::Error) -> io::Result<()> {
    notes::write(path, &format!("The cache device failed: {error}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_written_once_and_again() {
        let name = format!("diffcache-note-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).unwrap();
        let file = path(&directory, &[0xab; 16]);
        let name = format!("{}.failed", "ab".repeat(16));
        assert_eq!(name, file.file_name().unwrap().to_str().unwrap());
        for reason in ["it is gone", "it is gone again"] {
            note(&file, &io::Error::other(reason)).unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            assert_eq!(format!("The cache device failed: {reason}\n"), text);
        }
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(note(&file, &io::Error::other("it is gone")).is_err());
    }
}
