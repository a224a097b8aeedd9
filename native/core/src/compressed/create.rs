//! Making the compressed form of an image.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{data_groups, data_leaves, CompressedError, Encoder, GROUP_LEAVES, GROUP_LEN};
use super::{HEADER_LEN, MAGIC, VERSION};
use crate::leaf::LEAF_SIZE;
use crate::manifest::Manifest;
use crate::source::{FileSource, ReadAt};
use crate::task::{for_each_piece_with, Meter, Task};
use diffcache_base::output::Output;

/// Groups compressed before they are written: what bounds the memory, to twice 32 MiB.
const BATCH: usize = 32;

/// What a form takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// Bytes of the data leaves.
    pub data: u64,
    /// Bytes of the form.
    pub bytes: u64,
    /// Frames that hold their bytes as they are.
    pub stored: u64,
}

/// Compresses the data leaves of `content` to the file `output`, which appears whole or not at all.
///
/// Every leaf is verified against the manifest before it is compressed. `level` is zstd's.
///
/// # Errors
/// `Leaf` if the content differs from its manifest; `Source`, `NoSpace`, `Io`, `Zstd`, `Cancelled`.
pub fn create(
    content: &Path,
    manifest: &Manifest,
    output: &Path,
    level: i32,
    task: &Task<'_>,
) -> Result<Summary, CompressedError> {
    let source = FileSource::open(content)?;
    let name = output.display().to_string();
    let fail = |error| CompressedError::from_write(&name, error);
    let file = Output::create(output).map_err(fail)?;
    let groups: Vec<u64> = data_groups(manifest).collect();
    let start = (HEADER_LEN + 4 * groups.len()) as u64;
    let mut writer = Writer {
        position: start,
        lengths: Vec::with_capacity(4 * groups.len()),
        stored: 0,
    };
    let meter = task.meter(manifest.data_size());
    for batch in groups.chunks(BATCH) {
        for frame in compress(&source, manifest, batch, level, (task, &meter))? {
            writer.stored += u64::from(frame.stored);
            let length = frame.bytes.len() as u32;
            writer.lengths.extend_from_slice(&length.to_le_bytes());
            let written = file.file().write_all_at(&frame.bytes, writer.position);
            written.map_err(fail)?;
            writer.position += u64::from(length);
        }
    }
    let head = header(manifest, &writer.lengths);
    file.file().write_all_at(&head, 0).map_err(fail)?;
    file.commit().map_err(fail)?;
    Ok(Summary {
        data: manifest.data_size(),
        bytes: writer.position,
        stored: writer.stored,
    })
}

struct Writer {
    position: u64,
    lengths: Vec<u8>,
    stored: u64,
}

struct Compressed {
    bytes: Vec<u8>,
    stored: bool,
}

fn compress(
    source: &FileSource,
    manifest: &Manifest,
    groups: &[u64],
    level: i32,
    (task, meter): (&Task<'_>, &Meter<'_>),
) -> Result<Vec<Compressed>, CompressedError> {
    for_each_piece_with(
        task,
        groups.len() as u64,
        || (None, Vec::with_capacity(GROUP_LEN)),
        |(encoder, raw), piece| {
            read_group(source, manifest, groups[piece as usize], raw)?;
            let encoder = match encoder {
                Some(encoder) => encoder,
                None => encoder.insert(Encoder::new(level)?),
            };
            let mut bytes = Vec::new();
            let stored = !encoder.encode(raw, &mut bytes)?;
            bytes.shrink_to_fit();
            meter.add(raw.len() as u64);
            Ok(Compressed { bytes, stored })
        },
    )
}

fn read_group(
    source: &FileSource,
    manifest: &Manifest,
    group: u64,
    raw: &mut Vec<u8>,
) -> Result<(), CompressedError> {
    raw.clear();
    for (leaf, length) in data_leaves(manifest, group) {
        let at = raw.len();
        raw.resize(at + length, 0);
        source.read_exact_at(&mut raw[at..], leaf * LEAF_SIZE)?;
        if !manifest.verify_leaf(leaf, &raw[at..]) {
            return Err(CompressedError::Leaf { leaf });
        }
    }
    Ok(())
}

fn header(manifest: &Manifest, lengths: &[u8]) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEADER_LEN + lengths.len());
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&VERSION.to_le_bytes());
    head.extend_from_slice(&(GROUP_LEAVES as u32).to_le_bytes());
    head.extend_from_slice(&manifest.size().to_le_bytes());
    head.extend_from_slice(&((lengths.len() / 4) as u32).to_le_bytes());
    head.extend_from_slice(&[0; 4]);
    head.extend_from_slice(&manifest.content_id());
    head.extend_from_slice(blake3::hash(lengths).as_bytes());
    head.extend_from_slice(lengths);
    head
}
