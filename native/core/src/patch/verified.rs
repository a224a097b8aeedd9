//! A base that was verified before, so that what a patch leaves of it need not be read again.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::PatchError;
use crate::manifest::{leaf_count, leaf_len, Manifest, LEAF_LEN, LEAF_SIZE};
use crate::source::{data_after, FileSource, ReadAt, Stamp};

/// Leaves that are read to recognise the image. Of two images of which 80 in 100 leaves are the same, one passes for the other with a
/// chance of less than one in a million.
const SAMPLES: u32 = 64;

/// A file and the manifest that it was compared with, or built from, at an earlier time.
///
/// Having one means to trust that the file still has that content. What is cheap to check is checked: a file that was written, renamed
/// or given to another user after its manifest was written is refused, and so is one of another length, with a hole where the manifest has
/// data, or with another content in any of some leaves chosen by chance. What remains unseen are bits that the disk lost since, and
/// changes by a program that can write to the disk beneath the filesystem, or to both files.
pub struct VerifiedBase {
    source: FileSource,
    manifest: Manifest,
    opened: Stamp,
}

impl VerifiedBase {
    /// Opens an image that was verified when the manifest's file was written, or before.
    ///
    /// # Errors
    /// `Unverified` if the file is not what was verified then; `Manifest`, `Source`.
    pub fn open(path: &Path, manifest: &Path) -> Result<VerifiedBase, PatchError> {
        let source = FileSource::open(path)?;
        let written = FileSource::open(manifest)?;
        let base = VerifiedBase {
            manifest: Manifest::load(manifest)?,
            opened: source.stamp()?,
            source,
        };
        base.check_age(&written)?;
        base.check_size()?;
        base.check_holes()?;
        base.check_samples()?;
        Ok(base)
    }

    /// Returns the file.
    pub fn source(&self) -> &FileSource {
        &self.source
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Fails if the file was written to since it was opened.
    ///
    /// # Errors
    /// `Changed`, `Source`.
    pub fn check_unchanged(&self) -> Result<(), PatchError> {
        if self.source.stamp()? == self.opened {
            return Ok(());
        }
        Err(PatchError::Changed {
            name: self.source.name().to_owned(),
        })
    }

    fn unverified(&self, reason: String) -> PatchError {
        PatchError::Unverified {
            name: self.source.name().to_owned(),
            reason,
        }
    }

    /// Returns the time of a file's last change of any kind cannot be set by a program that writes to it, unlike that of its bytes.
    fn check_age(&self, manifest: &FileSource) -> Result<(), PatchError> {
        if times(&self.source)?.changed > times(manifest)?.written {
            return Err(self.unverified(format!(
                "it was changed after {} was written",
                manifest.name()
            )));
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), PatchError> {
        let (found, expected) = (self.source.len(), self.manifest.size());
        if found != expected {
            return Err(self.unverified(format!("it has {found} bytes, not {expected}")));
        }
        Ok(())
    }

    /// Returns a file that was not written to its end has holes where its manifest has data.
    fn check_holes(&self) -> Result<(), PatchError> {
        let mut hole = 0;
        loop {
            let data = data_after(&self.source, hole)?;
            let end = data.map_or(leaf_count(self.manifest.size()), |(from, _)| {
                from / LEAF_SIZE
            });
            match self.manifest.next_data_leaf(hole.div_ceil(LEAF_SIZE)) {
                Some(leaf) if leaf < end => {
                    return Err(self.unverified(format!("leaf {leaf} was never written")))
                }
                _ => {}
            }
            match data {
                Some((_, to)) => hole = to,
                None => return Ok(()),
            }
        }
    }

    fn check_samples(&self) -> Result<(), PatchError> {
        let mut buf = vec![0; LEAF_LEN];
        let chance = RandomState::new();
        let count = leaf_count(self.manifest.size());
        for sample in 0..SAMPLES.min(u32::try_from(count).unwrap_or(SAMPLES)) {
            let leaf = chance.hash_one(sample) % count;
            let leaf = self.manifest.next_data_leaf(leaf);
            let Some(leaf) = leaf.or_else(|| self.manifest.next_data_leaf(0)) else {
                break;
            };
            let data = &mut buf[..leaf_len(self.manifest.size(), leaf)];
            self.source.read_exact_at(data, leaf * LEAF_SIZE)?;
            if !self.manifest.verify_leaf(leaf, data) {
                return Err(self.unverified(format!("leaf {leaf} is another one")));
            }
        }
        Ok(())
    }
}

/// Seconds and nanoseconds.
struct Times {
    /// When a file was changed in any way.
    changed: (i64, i64),
    /// When its bytes were, at the latest: setting that time changes the file now.
    written: (i64, i64),
}

fn times(file: &FileSource) -> Result<Times, PatchError> {
    let found = file.file().metadata().map_err(|source| PatchError::Io {
        name: file.name().to_owned(),
        source,
    })?;
    let changed = (found.ctime(), found.ctime_nsec());
    Ok(Times {
        changed,
        written: changed.min((found.mtime(), found.mtime_nsec())),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    use super::*;
    use crate::images::noise;
    use crate::task::Task;

    struct Held {
        dir: tempfile::TempDir,
    }

    impl Held {
        /// Returns an image with a hole in it, and its manifest.
        fn new() -> Held {
            let dir = tempfile::tempdir().unwrap();
            let held = Held { dir };
            let file = File::create(held.path("base")).unwrap();
            file.set_len(40 * LEAF_SIZE - 5).unwrap();
            for leaf in (0..39).filter(|leaf| leaf % 8 != 3) {
                file.write_all_at(&noise(leaf + 1, LEAF_LEN), leaf * LEAF_SIZE)
                    .unwrap();
            }
            held.describe();
            held
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Writes the manifest of what is there.
        fn describe(&self) {
            let source = FileSource::open(&self.path("base")).unwrap();
            let made = Manifest::from_source(&source, &Task::default()).unwrap();
            made.save(&self.path("manifest")).unwrap();
        }

        /// Writes the same manifest again, as if the file had been verified now.
        fn vouch(&self) {
            let same = Manifest::load(&self.path("manifest")).unwrap();
            same.save(&self.path("manifest")).unwrap();
        }

        fn file(&self) -> File {
            File::options().write(true).open(self.path("base")).unwrap()
        }

        fn refusal(&self) -> String {
            let opened = VerifiedBase::open(&self.path("base"), &self.path("manifest"));
            match opened.map(|_| ()) {
                Err(PatchError::Unverified { reason, .. }) => reason,
                other => format!("{other:?}"),
            }
        }
    }

    #[test]
    fn what_was_verified_is_taken() {
        let held = Held::new();
        let base = VerifiedBase::open(&held.path("base"), &held.path("manifest")).unwrap();
        base.check_unchanged().unwrap();
    }

    #[test]
    fn a_file_that_changed_since_is_refused() {
        let held = Held::new();
        // A program that may write to them can set the times of their bytes.
        let manifest = File::options().write(true).open(held.path("manifest"));
        let far = std::time::SystemTime::now() + std::time::Duration::from_secs(99);
        manifest.unwrap().set_modified(far).unwrap();
        let changed = |name| times(&FileSource::open(&held.path(name)).unwrap());
        while changed("base").unwrap().changed <= changed("manifest").unwrap().changed {
            held.file().write_all_at(b"x", 0).unwrap();
        }
        let long_ago = std::time::SystemTime::UNIX_EPOCH;
        held.file().set_modified(long_ago).unwrap();
        assert!(held.refusal().contains("changed after"));
    }

    #[test]
    fn another_length_is_refused() {
        let held = Held::new();
        held.file().set_len(40 * LEAF_SIZE).unwrap();
        held.vouch();
        assert!(held.refusal().contains("bytes, not"));
    }

    #[test]
    fn a_file_that_was_not_written_to_its_end_is_refused() {
        let held = Held::new();
        held.file().set_len(20 * LEAF_SIZE).unwrap();
        held.file().set_len(40 * LEAF_SIZE - 5).unwrap();
        held.vouch();
        assert_eq!(held.refusal(), "leaf 20 was never written");
    }

    #[test]
    fn a_file_whose_start_was_not_written_is_refused() {
        let held = Held::new();
        let whole = std::fs::read(held.path("base")).unwrap();
        std::fs::remove_file(held.path("base")).unwrap();
        let file = File::create(held.path("base")).unwrap();
        file.write_all_at(&whole[LEAF_LEN..], LEAF_SIZE).unwrap();
        held.vouch();
        assert_eq!(held.refusal(), "leaf 0 was never written");
    }

    #[test]
    fn another_image_of_the_same_length_is_refused() {
        let held = Held::new();
        for leaf in (0..39).filter(|leaf| leaf % 8 != 3) {
            held.file()
                .write_all_at(&noise(leaf + 99, LEAF_LEN), leaf * LEAF_SIZE)
                .unwrap();
        }
        held.vouch();
        assert!(held.refusal().contains("another one"));
    }
}
