//! Building a target: to a file, to a sink, or only to verify that it can be built.

use std::path::Path;
use std::time::{Duration, Instant};

use diffcache_base::hex;

use super::frame_cache::FrameCache;
use super::new_file::NewFile;
use super::reader::PatchFile;
use super::verified::VerifiedBase;
use super::PatchError;
use crate::manifest::{leaf_len, Manifest, LEAF_SIZE};
use crate::sink::LeafSink;
use crate::source::{FileSource, ReadAt};
use crate::task::{for_each_piece_with, Task};

use super::build::{leaves_of, Build, PIECE_LEAVES};

/// The outcome of applying a patch.
#[derive(Debug, Clone)]
pub struct ApplyStats {
    /// The target's manifest: every leaf of it that was built was compared with it, or it was computed from them.
    pub manifest: Manifest,
    /// Whether the output shares unchanged blocks with the base.
    pub reflinked: bool,
    /// Bytes of the target that were built and hashed; less than all only from a `VerifiedBase`.
    pub bytes_verified: u64,
    /// Bytes written to the output or passed to the sink.
    pub bytes_written: u64,
    /// Time taken.
    pub elapsed: Duration,
}

/// Builds the target in a new file beside `output` and renames it. Blocks are shared with the base where the filesystem can; otherwise the output is
/// sparse where the target is zero. Every byte is verified before the rename. `output` may be the base itself, which it then replaces.
///
/// # Errors
/// `BaseMismatch`, `Changed`, `Corrupt`, `Format`, `NoSpace`, `Source`, `Io`, `Cancelled`; nothing is left behind.
pub fn apply(
    base: &Path,
    patch: &Path,
    output: &Path,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let base = FileSource::open(base)?;
    let patch = PatchFile::open(FileSource::open(patch)?)?;
    patch.check_base_size(&base)?;
    let file = NewFile::begin(&base, &patch, output)?;
    let (manifest, bytes_written) = build_all(&base, &patch, &file, task)?;
    Ok(ApplyStats {
        bytes_verified: manifest.size(),
        manifest,
        reflinked: file.finish(task)?,
        bytes_written,
        elapsed: started.elapsed(),
    })
}

/// Does the same as `apply`, but where the output shares blocks with the base only the leaves that differ from the base's at the same place are built and verified:
/// the others are as good as the base. Where blocks cannot be shared, every byte is read anyway, and verified.
///
/// # Errors
/// As `apply`; before anything is written, `BaseMismatch` if the patch was created from another image than the one that was verified.
pub fn apply_verified(
    base: &VerifiedBase,
    patch: &Path,
    output: &Path,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let patch = PatchFile::open(FileSource::open(patch)?)?;
    patch.check_base_size(base.source())?;
    let target = patch.target_manifest(base.manifest(), &task.silent())?;
    let file = NewFile::begin(base.source(), &patch, output)?;
    let (manifest, bytes_verified, bytes_written) = if file.is_clone() {
        let (verified, written) = build_changes(base.source(), &patch, &target, &file, task)?;
        (target, verified, written)
    } else {
        let (manifest, written) = build_all(base.source(), &patch, &file, task)?;
        (manifest, target.size(), written)
    };
    base.check_unchanged()?;
    Ok(ApplyStats {
        manifest,
        reflinked: file.finish(task)?,
        bytes_verified,
        bytes_written,
        elapsed: started.elapsed(),
    })
}

/// Builds all of a target; returns its manifest and the bytes written.
fn build_all(
    base: &FileSource,
    patch: &PatchFile<FileSource>,
    file: &NewFile<'_>,
    task: &Task<'_>,
) -> Result<(Manifest, u64), PatchError> {
    let laid_out = file.lay_out(task)?;
    let build = Build {
        patch,
        base,
        meter: task.meter(patch.header().target_size),
    };
    let (manifest, written) = build.run(task, |first, data| file.write(first, data))?;
    Ok((manifest, laid_out + written))
}

/// Builds in a clone of the base the leaves that differ from the base's; returns the bytes verified and written.
fn build_changes(
    base: &FileSource,
    patch: &PatchFile<FileSource>,
    target: &Manifest,
    file: &NewFile<'_>,
    task: &Task<'_>,
) -> Result<(u64, u64), PatchError> {
    let laid_out = file.lay_out(task)?;
    let changed = patch.leaves_to_build();
    let verified = changed
        .iter()
        .map(|leaf| leaf_len(target.size(), u64::from(*leaf)) as u64)
        .sum();
    let build = Build {
        patch,
        base,
        meter: task.meter(verified),
    };
    let written = build.run_changes(&changed, target, task, |first, data| {
        file.write(first, data)
    })?;
    Ok((verified, laid_out + written))
}

/// Does the same as `apply` without writing.
///
/// # Errors
/// `BaseMismatch`, `Corrupt`, `Format`, `Source`, `Cancelled`.
pub fn verify(
    base: &dyn ReadAt,
    patch: &dyn ReadAt,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let patch = PatchFile::open(patch)?;
    patch.check_base_size(base)?;
    let build = Build {
        patch: &patch,
        base,
        meter: task.meter(patch.header().target_size),
    };
    let (manifest, bytes_written) = build.run(task, |_, _| Ok(0))?;
    Ok(ApplyStats {
        bytes_verified: manifest.size(),
        manifest,
        reflinked: false,
        bytes_written,
        elapsed: started.elapsed(),
    })
}

/// Returns the target's manifest, from the base's and the patch; reads only the patch's ends.
///
/// # Errors
/// `BaseMismatch`, `Corrupt`, `Format`, `Source`, `Cancelled`.
pub fn target_manifest(
    base: &Manifest,
    patch: &dyn ReadAt,
    task: &Task<'_>,
) -> Result<Manifest, PatchError> {
    PatchFile::open(patch)?.target_manifest(base, task)
}

/// Builds the target from base and patch, wherever they are stored, and passes to `sink` every leaf that it wants and that is not zero, verified against `target`. Base and patch
/// are read in large ranges, each byte about once, by all the task's threads.
///
/// # Errors
/// `TargetMismatch` if the manifest is of another image; `BaseMismatch`; `Leaf` if base and patch give other bytes than the manifest promises;
/// `Corrupt`, `Format`, `Source`, `Sink`, `Cancelled`.
pub fn apply_to_sink(
    base: &dyn ReadAt,
    patch: &dyn ReadAt,
    target: &Manifest,
    sink: &dyn LeafSink,
    task: &Task<'_>,
) -> Result<ApplyStats, PatchError> {
    let started = Instant::now();
    let patch = PatchFile::open(patch)?;
    let header = patch.header();
    if header.target_hash != target.content_id() || header.target_size != target.size() {
        return Err(PatchError::TargetMismatch {
            patch: hex::encode(&header.target_hash),
            wanted: target.content_id_hex(),
        });
    }
    patch.check_base_size(base)?;
    let build = Build {
        patch: &patch,
        base,
        meter: task.meter(target.size()),
    };
    let cache = FrameCache::default();
    let pieces = target.leaf_count().div_ceil(PIECE_LEAVES);
    let wrong = |leaf| PatchError::Leaf {
        leaf,
        target: target.content_id_hex(),
    };
    let written = for_each_piece_with(task, pieces, Vec::new, |buf, piece| {
        let mut written = 0;
        let end = ((piece + 1) * PIECE_LEAVES).min(target.leaf_count());
        for (first, end) in wanted(sink, piece * PIECE_LEAVES, end) {
            let len = ((end * LEAF_SIZE).min(target.size()) - first * LEAF_SIZE) as usize;
            if build.read(first, len, buf, &cache)? {
                for (leaf, data) in leaves_of(first, buf) {
                    if !target.verify_leaf(leaf, data) {
                        return Err(wrong(leaf));
                    }
                    if !target.is_zero_leaf(leaf) {
                        sink.put(leaf, data)?;
                        written += data.len() as u64;
                    }
                }
            } else if target.next_data_leaf(first).is_some_and(|leaf| leaf < end) {
                return Err(wrong(first));
            }
            build.meter.add(len as u64);
        }
        Ok(written)
    })?;
    Ok(ApplyStats {
        manifest: target.clone(),
        reflinked: false,
        bytes_verified: target.size(),
        bytes_written: written.iter().sum(),
        elapsed: started.elapsed(),
    })
}

/// Lists the runs of leaves within `start..end` that a sink wants.
fn wanted(sink: &dyn LeafSink, start: u64, end: u64) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for leaf in (start..end).filter(|leaf| sink.wants(*leaf)) {
        match runs.last_mut() {
            Some(run) if run.1 == leaf => run.1 += 1,
            _ => runs.push((leaf, leaf + 1)),
        }
    }
    runs
}

/// Returns the bytes of leaf `leaf` of the patch's target.
pub(super) fn target_leaf_len<P: ReadAt>(patch: &PatchFile<P>, leaf: u64) -> usize {
    leaf_len(patch.header().target_size, leaf)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Seek;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::images::{noise, pair, BLOCK};
    use crate::patch::{create, CreateOptions};

    /// A base and a patch in files.
    struct Case {
        dir: tempfile::TempDir,
    }

    impl Case {
        fn new(base: &[u8], target: &[u8]) -> Case {
            let case = Case {
                dir: tempfile::tempdir().unwrap(),
            };
            std::fs::write(case.path("base"), base).unwrap();
            create(
                &base,
                &target,
                &case.path("patch"),
                &CreateOptions::default(),
            )
            .unwrap();
            case
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Does what `apply_verified` does where the filesystem can share blocks, with a copy in place of the clone.
        fn apply(&self, manifest: &Manifest) -> Result<(u64, u64), PatchError> {
            let base = FileSource::open(&self.path("base"))?;
            let patch = PatchFile::open(FileSource::open(&self.path("patch"))?)?;
            let target = patch.target_manifest(manifest, &Task::default())?;
            let copy = |mut file: &File, mut base: &File| {
                base.rewind().unwrap();
                std::io::copy(&mut base, &mut file).unwrap();
                true
            };
            let file = NewFile::begin_by(&base, &patch, &self.path("out"), copy)?;
            let counts = build_changes(&base, &patch, &target, &file, &Task::default())?;
            file.finish(&Task::default())?;
            Ok(counts)
        }

        fn output(&self) -> Option<Vec<u8>> {
            std::fs::read(self.path("out")).ok()
        }

        fn names(&self) -> usize {
            std::fs::read_dir(self.dir.path()).unwrap().count()
        }
    }

    fn manifest(image: &[u8]) -> Manifest {
        Manifest::from_source(&image, &Task::default()).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn changes_alone_make_the_target_of_a_clone((base, target) in pair()) {
            let case = Case::new(&base, &target);
            let (verified, _) = case.apply(&manifest(&base)).unwrap();
            prop_assert!(case.output().unwrap() == target);
            prop_assert!(verified <= target.len() as u64);
        }

        #[test]
        fn damage_is_found_in_what_changes((base, target) in pair(), at in any::<prop::sample::Index>()) {
            prop_assume!(!base.is_empty());
            let case = Case::new(&base, &target);
            let mut damaged = base.clone();
            let at = at.index(base.len());
            damaged[at] ^= 0x40;
            std::fs::write(case.path("base"), &damaged).unwrap();
            match case.apply(&manifest(&base)) {
                // Either the target has no use for the byte, or its leaf is the base's and was not read.
                Ok(_) => {
                    let mut expected = target.clone();
                    if expected != case.output().unwrap() {
                        expected[at] ^= 0x40;
                    }
                    prop_assert!(case.output().unwrap() == expected);
                }
                Err(error) => {
                    let told = matches!(error, PatchError::BaseMismatch { .. });
                    prop_assert!(told, "{}", error);
                    prop_assert_eq!(case.names(), 2);
                }
            }
        }

        #[test]
        fn no_damaged_patch_changes_a_clone((base, target) in pair(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let case = Case::new(&base, &target);
            let mut patch = std::fs::read(case.path("patch")).unwrap();
            let at = at.index(patch.len());
            patch[at] ^= 1 << bit;
            std::fs::write(case.path("patch"), &patch).unwrap();
            prop_assert!(case.apply(&manifest(&base)).is_err());
            prop_assert_eq!(case.names(), 2);
        }
    }

    #[test]
    fn only_changed_leaves_are_read() {
        let base = noise(1, 100 * BLOCK * 16);
        let mut target = base.clone();
        target[50 * BLOCK..51 * BLOCK].copy_from_slice(&noise(2, BLOCK));
        // Leaves 40 and 41 become copies of others, and 60 zero.
        let moved = base[800 * BLOCK..832 * BLOCK].to_vec();
        target[640 * BLOCK..672 * BLOCK].copy_from_slice(&moved);
        target[960 * BLOCK..976 * BLOCK].fill(0);
        let case = Case::new(&base, &target);
        let (verified, written) = case.apply(&manifest(&base)).unwrap();
        assert!(case.output().unwrap() == target);
        assert_eq!(verified, 3 * LEAF_SIZE);
        assert_eq!(written, BLOCK as u64);
    }

    #[test]
    fn damage_in_a_changed_leaf_is_found() {
        let base = noise(1, 40 * BLOCK);
        let mut target = base.clone();
        target[BLOCK..2 * BLOCK].fill(7);
        let case = Case::new(&base, &target);
        let mut damaged = base.clone();
        damaged[3 * BLOCK] ^= 1;
        std::fs::write(case.path("base"), damaged).unwrap();
        assert!(matches!(
            case.apply(&manifest(&base)),
            Err(PatchError::BaseMismatch { .. })
        ));
        assert_eq!(case.names(), 2);
    }

    #[test]
    fn the_manifest_of_another_image_is_refused() {
        let base = noise(1, 40 * BLOCK);
        let case = Case::new(&base, &noise(2, 40 * BLOCK));
        assert!(matches!(
            case.apply(&manifest(&noise(3, 40 * BLOCK))),
            Err(PatchError::BaseMismatch { .. })
        ));
        assert_eq!(case.names(), 2);
    }

    #[test]
    fn a_base_that_changes_meanwhile_is_noticed() {
        let base = noise(1, 40 * BLOCK);
        let case = Case::new(&base, &noise(2, 40 * BLOCK));
        let source = FileSource::open(&case.path("base")).unwrap();
        let patch = PatchFile::open(FileSource::open(&case.path("patch")).unwrap()).unwrap();
        let file = NewFile::begin_by(&source, &patch, &case.path("out"), |_, _| true).unwrap();
        let other = File::options().write(true).open(case.path("base")).unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(9);
        other.set_modified(later).unwrap();
        assert!(matches!(
            file.finish(&Task::default()),
            Err(PatchError::Changed { .. })
        ));
        assert_eq!(case.names(), 2);
    }
}
