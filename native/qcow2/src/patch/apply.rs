//! Applying patches.

use std::fs::File;
use std::path::Path;

use diffcache_base::hex;
use diffcache_base::output::Output;
use diffcache_core::manifest::{Hash, Manifest};
use diffcache_core::patch::{self as block, PatchView};
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_core::task::Task;

use super::container::{Container, Header};
use crate::error::{written, Qcow2Error};
use crate::image::{copy_content, Image};
use crate::recipe::{rebuild, Ingredients};
use crate::source::Qcow2Source;

/// Stored streams are hashed in pieces of this many bytes.
const PIECE: u64 = 4 << 20;

/// An opened patch and an opened base.
struct Application<'a> {
    base: &'a Image,
    container: &'a Container<FileSource>,
}

/// Writes the target of `patch` to `output`, which appears when it is complete and has the promised hash.
///
/// # Errors
/// `Source`, `BadPatch`, `BaseMismatch`, `Integrity`, `Compressor`, `Memory`, `Content`, `Write`, `Cancelled`; nothing is left behind.
pub fn apply(
    base: &Path,
    patch: &Path,
    output: &Path,
    task: &Task<'_>,
) -> Result<Header, Qcow2Error> {
    let container = Container::open(FileSource::open(patch)?)?;
    let base = Image::open(base)?;
    let application = Application {
        base: &base,
        container: &container,
    };
    let output = written(Output::create(output))?;
    let built = application
        .build(output.file(), task)
        .and_then(|()| application.check_output(&output, task));
    built.map_err(|error| application.diagnose(error, task))?;
    task.check()?;
    written(output.commit())?;
    Ok(*container.header())
}

/// Checks that `patch` would apply to `base`, writing nothing. Clusters are not compressed again: their settings were tried when the patch
/// was created.
///
/// # Errors
/// As [`apply`].
pub fn verify(base: &Path, patch: &Path, task: &Task<'_>) -> Result<Header, Qcow2Error> {
    let container = Container::open(FileSource::open(patch)?)?;
    let base = Image::open(base)?;
    let application = Application {
        base: &base,
        container: &container,
    };
    application.copies(task)?;
    if let Some(recipe) = container.recipe() {
        recipe.settings.compressor()?;
    }
    if hash_of(&container.stored())? != container.header().stored_hash {
        return Err(Qcow2Error::bad_patch(
            "its stored clusters do not match their hash",
        ));
    }
    block::verify(base.content(), &container.content(), task)?;
    Ok(*container.header())
}

/// Hashes a source by reading it once, in order.
fn hash_of(source: &dyn ReadAt) -> Result<Hash, Qcow2Error> {
    let mut hasher = blake3::Hasher::new();
    let mut at = 0;
    while at < source.len() {
        let mut piece = vec![0; PIECE.min(source.len() - at) as usize];
        source.read_exact_at(&mut piece, at)?;
        hasher.update(&piece);
        at += piece.len() as u64;
    }
    Ok(*hasher.finalize().as_bytes())
}

impl<'a> Application<'a> {
    fn build(&self, out: &File, task: &Task<'_>) -> Result<(), Qcow2Error> {
        let copies = self.copies(task)?;
        let view = PatchView::open(self.base.content(), self.container.content(), None)?;
        match self.container.recipe() {
            None => copy_content(&view, out, task),
            Some(recipe) => {
                let stored = self.container.stored();
                let ingredients = Ingredients {
                    recipe,
                    content: &view,
                    base: copies,
                    stored: &stored,
                };
                rebuild(&ingredients, out, task)
            }
        }
    }

    /// Returns the base to copy streams from, if it is the file that the patch was created from.
    fn copies(&self, task: &Task<'_>) -> Result<Option<&'a Qcow2Source>, Qcow2Error> {
        let header = self.container.header();
        let image = match (self.base.qcow2(), self.container.recipe()) {
            (Some(image), Some(_)) if self.base.hash(task)? == header.base_hash => Some(image),
            _ => None,
        };
        if header.needs_base_file && image.is_none() {
            return Err(Qcow2Error::BaseMismatch(format!(
                "it needs the qcow2 file that it was created from, whose hash is {}",
                hex::encode(&header.base_hash)
            )));
        }
        Ok(image)
    }

    fn check_output(&self, output: &Output, task: &Task<'_>) -> Result<(), Qcow2Error> {
        let made = FileSource::open(&output.part())?;
        let hash = Manifest::from_source(&made, &task.silent())?.content_id();
        match hash == self.container.header().target_hash {
            true => Ok(()),
            false => Err(Qcow2Error::Integrity),
        }
    }

    /// Returns `BaseMismatch` instead of `error` if the base is not the one that the patch was created from.
    fn diagnose(&self, error: Qcow2Error, task: &Task<'_>) -> Qcow2Error {
        if matches!(
            error,
            Qcow2Error::Write(_) | Qcow2Error::Cancelled(_) | Qcow2Error::Compressor { .. }
        ) {
            return error;
        }
        let Ok(wanted) = block::info(&self.container.content()).map(|info| info.header.base_hash)
        else {
            return error;
        };
        match Manifest::from_source(self.base.content(), &task.silent()) {
            Ok(found) if found.content_id() != wanted => Qcow2Error::BaseMismatch(format!(
                "its content is {} instead of {}",
                found.content_id_hex(),
                hex::encode(&wanted)
            )),
            _ => error,
        }
    }
}
