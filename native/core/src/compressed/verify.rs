//! Checking a compressed form that is a file.

use std::path::Path;

use super::{data_leaves, CompressedError, Decoder, Index, GROUP_LEN};
use crate::manifest::Manifest;
use crate::source::{FileSource, ReadAt};
use crate::task::{for_each_piece_with, Task};

/// Reads where the frames of a form are; their bytes are not read.
///
/// # Errors
/// `Format` if it is damaged or of other content; `Source`.
pub fn open(form: &Path, manifest: &Manifest) -> Result<Index, CompressedError> {
    index(&FileSource::open(form)?, manifest)
}

fn index(source: &dyn ReadAt, manifest: &Manifest) -> Result<Index, CompressedError> {
    let length = Index::length(manifest).min(source.len());
    let mut bytes = vec![0; length as usize];
    source.read_exact_at(&mut bytes, 0)?;
    let parsed = Index::parse(&bytes, source.len(), manifest);
    parsed.map_err(|error| error.of(source.name()))
}

/// Decompresses every frame of a form and compares its leaves with the manifest.
///
/// # Errors
/// `Format` if a frame is damaged, `Leaf` if it holds other bytes; `Source`, `Cancelled`.
pub fn verify(
    source: &dyn ReadAt,
    manifest: &Manifest,
    task: &Task<'_>,
) -> Result<(), CompressedError> {
    let index = index(source, manifest)?;
    let meter = task.meter(source.len());
    let buffers = || (Decoder::new(), Vec::new(), Vec::with_capacity(GROUP_LEN));
    for_each_piece_with(
        task,
        index.frames().len() as u64,
        buffers,
        |(decoder, bytes, raw), number| {
            let frame = &index.frames()[number as usize];
            bytes.resize(frame.length, 0);
            source.read_exact_at(bytes, frame.offset)?;
            decoder.decode(frame, bytes, raw)?;
            let mut rest = &raw[..];
            for (leaf, length) in data_leaves(manifest, frame.group) {
                let (data, after) = rest.split_at(length);
                if !manifest.verify_leaf(leaf, data) {
                    return Err(CompressedError::Leaf { leaf });
                }
                rest = after;
            }
            meter.add(frame.length as u64);
            Ok(())
        },
    )
    .map(drop)
}
