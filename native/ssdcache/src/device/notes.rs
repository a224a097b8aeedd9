//! Small files beside the device, each of which is there, durably, or not.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use diffcache_base::output::{replace_durably, sync_parent};

/// Returns what a note says; none if there is no note.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some),
    }
}

/// Writes a note in place of an earlier one.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    replace_durably(path, |file| file.write_all(text.as_bytes()))
}

/// Removes a note, if there is one.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| sync_parent(path)),
    }
}
