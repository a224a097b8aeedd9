//! Images, raw or qcow2, and what a guest reads from them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use diffcache_base::output::Output;
use diffcache_core::manifest::{Hash, Manifest};
use diffcache_core::source::{data_after, FileSource, ReadAt};
use diffcache_core::task::{for_each_piece, Task};

use crate::error::{written, Qcow2Error};
use crate::header::Header;
use crate::source::Qcow2Source;

/// Content is copied in pieces of this many bytes.
const COPY: usize = 4 << 20;

/// An image file and what a guest reads from it.
pub struct Image {
    file: Arc<FileSource>,
    qcow2: Option<Qcow2Source>,
}

impl Image {
    /// Opens an image; its first bytes say whether it is qcow2.
    ///
    /// # Errors
    /// `Source`; of a qcow2 image also `Refused` and `Damaged`.
    pub fn open(path: &Path) -> Result<Self, Qcow2Error> {
        let file = Arc::new(FileSource::open(path)?);
        let qcow2 = match Header::probe(&file)? {
            true => Some(Qcow2Source::open(Arc::clone(&file) as Arc<dyn ReadAt>)?),
            false => None,
        };
        Ok(Self { file, qcow2 })
    }

    /// Returns the file.
    pub fn file(&self) -> &FileSource {
        &self.file
    }

    /// Returns what a guest reads; of a raw image the file itself.
    pub fn content(&self) -> &dyn ReadAt {
        match &self.qcow2 {
            Some(content) => content,
            None => &*self.file,
        }
    }

    /// Returns the opened qcow2 image, `None` if the image is raw.
    pub fn qcow2(&self) -> Option<&Qcow2Source> {
        self.qcow2.as_ref()
    }

    /// Returns the manifest of the file.
    ///
    /// # Errors
    /// `Hash`, `Cancelled`.
    pub fn manifest(&self, task: &Task<'_>) -> Result<Manifest, Qcow2Error> {
        Ok(Manifest::from_source(self.file(), &task.silent())?)
    }

    /// Returns the content id of the file.
    ///
    /// # Errors
    /// As [`Image::manifest`].
    pub fn hash(&self, task: &Task<'_>) -> Result<Hash, Qcow2Error> {
        Ok(self.manifest(task)?.content_id())
    }
}

/// Writes a source to an empty file, holes as holes.
pub(crate) fn copy_content(
    source: &dyn ReadAt,
    out: &File,
    task: &Task<'_>,
) -> Result<(), Qcow2Error> {
    let meter = task.meter(source.len());
    written(out.set_len(source.len()))?;
    for_each_piece(task, source.len().div_ceil(COPY as u64), |piece| {
        let start = piece * COPY as u64;
        let end = (start + COPY as u64).min(source.len());
        let mut at = start;
        while let Some((from, to)) = data_after(source, at)?.filter(|range| range.0 < end) {
            let mut bytes = vec![0; (to.min(end) - from) as usize];
            source.read_exact_at(&mut bytes, from)?;
            written(out.write_all_at(&bytes, from))?;
            at = to.min(end);
        }
        meter.add(end - start);
        Ok::<(), Qcow2Error>(())
    })?;
    Ok(())
}

/// Writes the guest content of an image to `output` as a raw file, sparse where it is zero; returns its manifest. `output` appears when it
/// is complete.
///
/// # Errors
/// As [`Image::open`]; `Write`, `Cancelled`.
pub fn to_raw(image: &Path, output: &Path, task: &Task<'_>) -> Result<Manifest, Qcow2Error> {
    let image = Image::open(image)?;
    let output = written(Output::create(output))?;
    copy_content(image.content(), output.file(), task)?;
    let manifest = Manifest::from_source(&FileSource::open(&output.part())?, &task.silent())?;
    image.file().check_unchanged()?;
    task.check()?;
    written(output.commit())?;
    Ok(manifest)
}

/// Returns how many bytes of the guest's disk an image stores, by its tables: what [`to_raw`] writes at most.
///
/// # Errors
/// As [`Image::open`].
pub fn data_size(image: &Path) -> Result<u64, Qcow2Error> {
    let image = Image::open(image)?;
    let content = image.content();
    let (mut at, mut size) = (0, 0);
    while let Some((from, to)) = data_after(content, at)? {
        size += to - from;
        at = to;
    }
    Ok(size)
}

/// Computes the manifest of an image's guest content: the same for a raw image and for a qcow2 image of one content.
///
/// # Errors
/// As [`Image::open`]; `Cancelled`.
pub fn content_manifest(image: &Path, task: &Task<'_>) -> Result<Manifest, Qcow2Error> {
    Ok(Manifest::from_source(Image::open(image)?.content(), task)?)
}
