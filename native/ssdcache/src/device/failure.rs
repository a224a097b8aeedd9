//! Notes of devices that failed, in a directory that is not on them.
//!
//! A cache that is formatted has a new number, so that a note never concerns it.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Returns the file for the device with a number.
#[must_use]
pub fn path(state: &Path, id: &[u8; 16]) -> PathBuf {
    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    state.join(format!("{digits}.failed"))
}

/// Writes a note; it is durable when this returns.
///
/// # Errors
/// It cannot be written.
pub fn note(path: &Path, error: &io::Error) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    let mut file = match created {
        // Of an earlier process that ended before it could say more.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            File::options().write(true).open(path)?
        }
        created => created?,
    };
    writeln!(file, "The cache device failed: {error}")?;
    file.sync_all()?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
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
