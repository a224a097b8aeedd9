//! Creating patches.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use diffcache_base::output::Output;
use diffcache_core::manifest::Hash;
use diffcache_core::patch::{create_in, CreateOptions};
use diffcache_core::source::ReadAt;
use diffcache_core::task::Task;
use diffcache_filesystems::survey;

use super::container::{self, Header};
use super::part::Masked;
use super::{info, PatchInfo};
use crate::error::{written, Qcow2Error};
use crate::image::Image;
use crate::recipe::{describe, Description, Origin};

/// Writes the patch from `base` to `target`. `patch` appears when it is complete.
///
/// # Errors
/// `Source`, `Refused`, `Damaged`, `Content`, `Hash`, `Compressor`, `Memory`, `Write`, `Cancelled`; nothing is left behind.
pub fn create(
    base: &Path,
    target: &Path,
    patch: &Path,
    options: &CreateOptions<'_>,
) -> Result<PatchInfo, Qcow2Error> {
    let task = &options.task;
    let (base, target) = (Image::open(base)?, Image::open(target)?);
    let mut description = match target.qcow2() {
        Some(image) => Some(describe(image, base.qcow2(), task)?),
        None => None,
    };
    let file = target.manifest(task)?;
    // Streams that may be copied from a base come from a file that a reader in order would have to hash first.
    if let (Some(description), None) = (&mut description, base.qcow2()) {
        description.add_sequence(&file);
    }
    let description = description.as_ref();
    let recipe = description.map(|description| description.recipe.encode(&description.placed));
    let output = written(Output::create(patch))?;
    let out = output.file();
    let mut header = new_header(&base, &target, description, file.content_id(), task)?;
    let (placed, _) = container::encode(header, recipe.as_deref())?;
    header.stored_hash = write_stored(&target, description, out, placed.stored_at())?;
    header.content_len = add_content(
        &base,
        &target,
        description,
        patch,
        (out, placed.content_at()),
        options,
    )?;
    let (_, front) = container::encode(header, recipe.as_deref())?;
    written(out.write_all_at(&front, 0))?;
    base.file().check_unchanged()?;
    target.file().check_unchanged()?;
    // A cancelled job leaves no output, however late it was cancelled.
    task.check()?;
    written(output.commit())?;
    info(patch)
}

fn new_header(
    base: &Image,
    target: &Image,
    description: Option<&Description>,
    target_hash: Hash,
    task: &Task<'_>,
) -> Result<Header, Qcow2Error> {
    let streams = description.map_or(&[][..], |description| &description.recipe.streams);
    let count = |wanted: fn(&Origin) -> bool| {
        streams
            .iter()
            .filter(|stream| wanted(&stream.origin))
            .count() as u64
    };
    Ok(Header {
        base_is_qcow2: base.qcow2().is_some(),
        target_is_qcow2: target.qcow2().is_some(),
        needs_base_file: description
            .is_some_and(|description| description.recipe.needs_base_file()),
        base_size: base.file().len(),
        target_size: target.file().len(),
        base_hash: base.hash(task)?,
        target_hash,
        stored_hash: [0; 32],
        recipe_len: 0,
        recipe_size: 0,
        stored_len: description.map_or(0, |description| description.recipe.stored()),
        content_len: 0,
        clusters_compressed: streams.len() as u64,
        clusters_stored: count(|origin| matches!(origin, Origin::Stored(_))),
        clusters_copied: count(|origin| matches!(origin, Origin::Copy(_))),
    })
}

/// Writes the streams that are stored, from `offset` on; returns their hash.
fn write_stored(
    target: &Image,
    description: Option<&Description>,
    out: &File,
    offset: u64,
) -> Result<Hash, Qcow2Error> {
    let mut hasher = blake3::Hasher::new();
    let mut at = offset;
    let mut stream = Vec::new();
    let described = description
        .iter()
        .flat_map(|description| description.recipe.streams.iter().zip(&description.placed));
    for (described, &(place, _)) in described {
        if let Origin::Stored(length) = described.origin {
            stream.resize(length as usize, 0);
            target.file().read_exact_at(&mut stream, place)?;
            hasher.update(&stream);
            written(out.write_all_at(&stream, at))?;
            at += u64::from(length);
        }
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Writes the content patch to a file of its own and appends it to another at an offset; returns its length. `patch` is the path of the whole.
fn add_content(
    base: &Image,
    target: &Image,
    description: Option<&Description>,
    patch: &Path,
    (mut out, offset): (&File, u64),
    options: &CreateOptions<'_>,
) -> Result<u64, Qcow2Error> {
    let content = written(Output::create(patch))?;
    // Describing a compressed target is most of the work and has reported it.
    let task = if description.is_some() {
        options.task.silent()
    } else {
        options.task
    };
    let cluster_size = target
        .qcow2()
        .map_or(1, |image| image.map().header().cluster_size());
    let masked = description.map_or_else(Vec::new, |description| description.masked.clone());
    let visible = Masked::new(target.content(), cluster_size, masked);
    let survey = survey(&visible)?;
    let options = CreateOptions {
        free: survey.known_free(),
        task,
        ..*options
    };
    let name = patch.display().to_string();
    create_in(base.content(), &visible, &content, &name, &options)?;
    let mut part = content.file();
    written(io::Seek::rewind(&mut part))?;
    written(io::Seek::seek(&mut out, io::SeekFrom::Start(offset)))?;
    written(io::copy(&mut part, &mut out))
}
