//! Making, describing and applying qcow2 patches.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::container::{self, Container, Header};
use crate::describe::{describe, Description};
use crate::error::Qcow2Error;
use crate::form::Origin;
use crate::header;
use crate::part::Masked;
use crate::rebuild::{rebuild, Ingredients};
use crate::source::Qcow2Source;
use diffcache_core::manifest::{to_hex, Hash, Manifest};
use diffcache_core::output::Output;
use diffcache_core::patch::{self as block, CreateOptions, PatchView};
use diffcache_core::source::{FileSource, ReadAt};
use diffcache_core::task::{for_each_piece, Task};

/// Content is copied in pieces of this many bytes.
const COPY: usize = 4 << 20;

/// An image file and what a guest reads from it.
pub struct Image {
    file: Arc<FileSource>,
    qcow2: Option<Qcow2Source>,
}

impl Image {
    /// Opens an image of either kind, told by its first bytes.
    pub fn open(path: &Path) -> Result<Self, Qcow2Error> {
        let file = Arc::new(FileSource::open(path)?);
        let qcow2 = match header::Header::probe(&file)? {
            true => Some(Qcow2Source::open(Arc::clone(&file) as Arc<dyn ReadAt>)?),
            false => None,
        };
        Ok(Self { file, qcow2 })
    }

    /// The bytes of the file.
    pub fn file(&self) -> &FileSource {
        &self.file
    }

    /// What a guest reads; of a raw image the file itself.
    pub fn content(&self) -> &dyn ReadAt {
        match &self.qcow2 {
            Some(content) => content,
            None => &*self.file,
        }
    }

    /// The image's tables, if it is a qcow2 image.
    pub fn qcow2(&self) -> Option<&Qcow2Source> {
        self.qcow2.as_ref()
    }

    fn hash(&self, task: &Task<'_>) -> Result<Hash, Qcow2Error> {
        Ok(Manifest::from_source(self.file(), &task.silent())?.content_id())
    }
}

/// What a patch is, and the block patch inside.
#[derive(Debug, Clone)]
pub struct PatchInfo {
    /// The fixed part.
    pub header: Header,
    /// Bytes of the patch.
    pub patch_size: u64,
    /// The patch of the guest's content.
    pub content: block::PatchInfo,
}

/// Describes a patch without reading any base.
pub fn info(patch: &Path) -> Result<PatchInfo, Qcow2Error> {
    let source = FileSource::open(patch)?;
    let container = Container::open(&source)?;
    let content = block::info(&container.content())?;
    Ok(PatchInfo {
        header: *container.header(),
        patch_size: source.len(),
        content,
    })
}

/// Writes to `patch` what turns `base` into `target`. `patch` appears when it is complete.
pub fn create(
    base: &Path,
    target: &Path,
    patch: &Path,
    options: &CreateOptions<'_>,
) -> Result<PatchInfo, Qcow2Error> {
    let task = &options.task;
    let (base, target) = (Image::open(base)?, Image::open(target)?);
    let description = match target.qcow2() {
        Some(image) => Some(describe(image, base.qcow2(), task)?),
        None => None,
    };
    let description = description.as_ref();
    let form = description.map(|description| description.form.encode(&description.placed));
    let output = Output::create(patch).map_err(Qcow2Error::Write)?;
    let out = output.file();
    let mut header = new_header(&base, &target, description, task)?;
    let (placed, _) = container::encode(header, form.as_deref())?;
    header.stored_hash = write_stored(&target, description, out, placed.stored_at())?;
    header.content_len = add_content(
        &base,
        &target,
        description,
        patch,
        (out, placed.content_at()),
        options,
    )?;
    let (_, front) = container::encode(header, form.as_deref())?;
    write(out.write_all_at(&front, 0))?;
    base.file().check_unchanged()?;
    target.file().check_unchanged()?;
    // Whoever cancelled gets no output, however late it was.
    task.check()?;
    write(output.commit())?;
    info(patch)
}

fn write<T>(result: io::Result<T>) -> Result<T, Qcow2Error> {
    result.map_err(Qcow2Error::Write)
}

fn new_header(
    base: &Image,
    target: &Image,
    description: Option<&Description>,
    task: &Task<'_>,
) -> Result<Header, Qcow2Error> {
    let streams = description.map_or(&[][..], |description| &description.form.streams);
    let count = |wanted: fn(&Origin) -> bool| {
        streams
            .iter()
            .filter(|stream| wanted(&stream.origin))
            .count() as u64
    };
    Ok(Header {
        base_is_qcow2: base.qcow2().is_some(),
        target_is_qcow2: target.qcow2().is_some(),
        needs_base_file: description.is_some_and(|description| description.form.needs_base_file()),
        base_size: base.file().len(),
        target_size: target.file().len(),
        base_hash: base.hash(task)?,
        target_hash: target.hash(task)?,
        stored_hash: [0; 32],
        form_len: 0,
        form_size: 0,
        stored_len: description.map_or(0, |description| description.form.stored()),
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
        .flat_map(|description| description.form.streams.iter().zip(&description.placed));
    for (described, &(place, _)) in described {
        if let Origin::Stored(length) = described.origin {
            stream.resize(length as usize, 0);
            target.file().read_exact_at(&mut stream, place)?;
            hasher.update(&stream);
            write(out.write_all_at(&stream, at))?;
            at += u64::from(length);
        }
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Makes the content patch in a file of its own and adds it to a file at an offset; returns its length. `patch` is where the whole is going to be.
fn add_content(
    base: &Image,
    target: &Image,
    description: Option<&Description>,
    patch: &Path,
    (mut out, offset): (&File, u64),
    options: &CreateOptions<'_>,
) -> Result<u64, Qcow2Error> {
    let content = write(Output::create(patch))?;
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
    block::create::write(
        base.content(),
        &visible,
        &content,
        &patch.display().to_string(),
        &CreateOptions { task, ..*options },
    )?;
    let mut part = content.file();
    write(io::Seek::rewind(&mut part))?;
    write(io::Seek::seek(&mut out, io::SeekFrom::Start(offset)))?;
    write(io::copy(&mut part, &mut out))
}

/// An opened patch and an opened base.
struct Application<'a> {
    base: &'a Image,
    container: &'a Container<FileSource>,
}

/// Writes the target of `patch` to `output`, which appears when it is complete and has the promised hash.
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
    let output = write(Output::create(output))?;
    let built = application
        .build(output.file(), task)
        .and_then(|()| application.check_output(&output, task));
    built.map_err(|error| application.blame(error, task))?;
    task.check()?;
    write(output.commit())?;
    Ok(*container.header())
}

/// Checks that `patch` would apply to `base`, writing nothing. The compressed clusters are not made: their recipe was tried when the patch was.
pub fn verify(base: &Path, patch: &Path, task: &Task<'_>) -> Result<Header, Qcow2Error> {
    let container = Container::open(FileSource::open(patch)?)?;
    let base = Image::open(base)?;
    let application = Application {
        base: &base,
        container: &container,
    };
    application.copies(task)?;
    if let Some(form) = container.form() {
        form.recipe.compressor()?;
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
        let mut piece = vec![0; (COPY as u64).min(source.len() - at) as usize];
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
        match self.container.form() {
            None => copy_content(&view, out, task),
            Some(form) => {
                let stored = self.container.stored();
                let ingredients = Ingredients {
                    form,
                    content: &view,
                    base: copies,
                    stored: &stored,
                };
                rebuild(&ingredients, out, task)
            }
        }
    }

    /// The base to copy streams from: only the very file that the patch was made from will do.
    fn copies(&self, task: &Task<'_>) -> Result<Option<&'a Qcow2Source>, Qcow2Error> {
        let header = self.container.header();
        let image = match (self.base.qcow2(), self.container.form()) {
            (Some(image), Some(_)) if self.base.hash(task)? == header.base_hash => Some(image),
            _ => None,
        };
        if header.needs_base_file && image.is_none() {
            return Err(Qcow2Error::BaseMismatch(format!(
                "it needs the very qcow2 file that it was made from, whose hash is {}",
                to_hex(&header.base_hash)
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

    /// Tells a wrong base from a damaged patch: a failure of the second kind stays as it is.
    fn blame(&self, error: Qcow2Error, task: &Task<'_>) -> Qcow2Error {
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
                to_hex(&wanted)
            )),
            _ => error,
        }
    }
}

/// Writes a source to an empty file, holes as holes.
fn copy_content(source: &dyn ReadAt, out: &File, task: &Task<'_>) -> Result<(), Qcow2Error> {
    let meter = task.meter(source.len());
    write(out.set_len(source.len()))?;
    for_each_piece(task, source.len().div_ceil(COPY as u64), |piece| {
        let start = piece * COPY as u64;
        let end = (start + COPY as u64).min(source.len());
        let mut at = start;
        while let Some((from, to)) = source.next_data(at)?.filter(|range| range.0 < end) {
            let mut bytes = vec![0; (to.min(end) - from) as usize];
            source.read_exact_at(&mut bytes, from)?;
            write(out.write_all_at(&bytes, from))?;
            at = to.min(end);
        }
        meter.add(end - start);
        Ok::<(), Qcow2Error>(())
    })?;
    Ok(())
}

/// Writes the guest content of the image at `image` to `output` as a raw file, sparse where it is zero; returns its manifest.
pub fn to_raw(image: &Path, output: &Path, task: &Task<'_>) -> Result<Manifest, Qcow2Error> {
    let image = Image::open(image)?;
    let output = write(Output::create(output))?;
    copy_content(image.content(), output.file(), task)?;
    let manifest = Manifest::from_source(&FileSource::open(&output.part())?, &task.silent())?;
    image.file().check_unchanged()?;
    task.check()?;
    write(output.commit())?;
    Ok(manifest)
}

/// The manifest of an image's guest content, whatever its form.
pub fn content_manifest(image: &Path, task: &Task<'_>) -> Result<Manifest, Qcow2Error> {
    Ok(Manifest::from_source(Image::open(image)?.content(), task)?)
}
