//! The program that a process of the daemon runs, and the one that was installed since.
//!
//! An upgrade puts another file in place of the program while its processes run. A keeper and its workers share memory, so workers are started from
//! the file that the keeper itself runs, whatever has become of its name.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The file that this process runs, which can be run again when it has no name any more.
pub const OWN: &str = "/proc/self/exe";
/// What lists of processes show for it.
pub const NAME: &str = "diffcached";
/// What the kernel adds to the name of a file that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// Return the path of a program that has the name of this one and is another file, if there is one.
pub fn successor() -> Option<PathBuf> {
    let own = fs::read_link(OWN).ok()?;
    let path = without_mark(&own);
    is_other(path).then(|| path.to_owned())
}

/// Have the kernel end this process sooner or later than others when it is out of memory (proc_pid_oom_score_adj(5)).
pub fn set_oom_score(score: i32) {
    if let Err(error) = fs::write("/proc/self/oom_score_adj", score.to_string()) {
        log::warn!("Running with the score of others when memory is short: {error}");
    }
}

fn without_mark(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    Path::new(OsStr::from_bytes(
        bytes.strip_suffix(REMOVED).unwrap_or(bytes),
    ))
}

fn is_other(path: &Path) -> bool {
    let identify = |path: &Path| {
        let found = fs::metadata(path)?;
        Ok::<_, std::io::Error>((found.dev(), found.ino()))
    };
    match (identify(Path::new(OWN)), identify(path)) {
        (Ok(own), Ok(found)) => own != found,
        // Without a file of that name there is no other program.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_removed_file_is_no_part_of_its_name() {
        for text in ["/usr/bin/diffcached", "/usr/bin/diffcached (deleted)"] {
            assert_eq!(
                without_mark(Path::new(text)),
                Path::new("/usr/bin/diffcached")
            );
        }
    }

    #[test]
    fn another_file_is_another_program_and_none_is_not() {
        assert!(!is_other(Path::new(OWN)));
        assert!(is_other(Path::new("/")));
        assert!(!is_other(Path::new("/absent/diffcached")));
    }
}
