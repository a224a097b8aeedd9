//! Making an image of the same guest in which stale blocks are zero.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{survey, Survey};
use diffcache_base::output::Output;
use diffcache_core::manifest::is_zero;
use diffcache_core::source::{data_pieces, ReadAt, SourceError};
use diffcache_core::task::{for_each_piece_with, Cancelled, Task};

/// Bytes of a piece of work.
const PIECE: u64 = 1 << 20;
/// Granularity of holes in the output.
const BLOCK: usize = 4096;
/// Pieces whose results wait for being summed up.
const ROUND: u64 = 1 << 16;

/// Why an image could not be trimmed.
#[derive(Debug, thiserror::Error)]
pub enum TrimError {
    /// The image could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The output could not be written.
    #[error("{name}: cannot write: {source}")]
    Io {
        /// The output.
        name: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No filesystem says which blocks are free.
    #[error("{0}")]
    Unknown(String),
    /// The caller stopped the job.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// What trimming came to, in bytes.
#[derive(Debug, Clone)]
pub struct TrimStats {
    /// The filesystems that were found.
    pub survey: Survey,
    /// Size of the image, and of the output.
    pub size: u64,
    /// What is not zero in the image.
    pub data_before: u64,
    /// What is not zero in the output.
    pub data_after: u64,
}

/// Writes the guest's content to a new raw file, sparse where it is zero or stale, which is renamed to `output` when it is complete.
///
/// # Errors
/// `Unknown` if no filesystem is known and clean, `Source`, `Io`, `Cancelled`; nothing is left behind.
pub fn trim(image: &dyn ReadAt, output: &Path, task: &Task<'_>) -> Result<TrimStats, TrimError> {
    let survey = survey(image)?;
    if !survey.is_known() {
        return Err(TrimError::Unknown(reason(&survey)));
    }
    let name = output.display().to_string();
    let failed = |source| TrimError::Io {
        name: name.clone(),
        source,
    };
    let out = Output::create(output).map_err(failed)?;
    out.file().set_len(image.len()).map_err(failed)?;
    let pieces = data_pieces(image, PIECE)?;
    let meter = task.meter(pieces.count() * PIECE);
    let buffer = || vec![0; PIECE as usize];
    let (mut data_before, mut data_after) = (0, 0);
    for first in (0..pieces.count()).step_by(ROUND as usize) {
        let count = ROUND.min(pieces.count() - first);
        let parts = for_each_piece_with(task, count, buffer, |data, i| {
            let start = pieces.number(first + i) * PIECE;
            let data = &mut data[..(image.len() - start).min(PIECE) as usize];
            image.read_exact_at(data, start)?;
            let before = count_data(data);
            for (from, to) in survey.free_within(start, start + data.len() as u64) {
                data[(from - start) as usize..(to - start) as usize].fill(0);
            }
            let after = write_data(&out, start, data).map_err(failed)?;
            meter.add(PIECE);
            Ok::<_, TrimError>((before, after))
        })?;
        for (before, after) in parts {
            data_before += before;
            data_after += after;
        }
    }
    image.check_unchanged()?;
    task.check()?;
    out.commit().map_err(failed)?;
    Ok(TrimStats {
        survey,
        size: image.len(),
        data_before,
        data_after,
    })
}

fn reason(survey: &Survey) -> String {
    let reasons = survey
        .filesystems
        .iter()
        .filter_map(|found| Some((found, found.free.as_ref().err()?)));
    let reasons: Vec<String> = reasons
        .map(|(found, reason)| format!("{} at byte {}: {reason}", found.kind, found.offset))
        .collect();
    match reasons.is_empty() {
        true => {
            "no ext4 or xfs filesystem was found: it is not known which blocks are stale".to_owned()
        }
        false => reasons.join("; "),
    }
}

fn count_data(data: &[u8]) -> u64 {
    let blocks = data.chunks(BLOCK).filter(|block| !is_zero(block));
    blocks.map(|block| block.len() as u64).sum()
}

/// Writes what is not zero; returns how much.
fn write_data(out: &Output, start: u64, data: &[u8]) -> std::io::Result<u64> {
    let mut written = 0;
    let mut at = 0;
    let kinds: Vec<bool> = data.chunks(BLOCK).map(is_zero).collect();
    for group in kinds.chunk_by(|a, b| a == b) {
        let end = (at + group.len() * BLOCK).min(data.len());
        if group.first() == Some(&false) {
            out.file().write_all_at(&data[at..end], start + at as u64)?;
            written += (end - at) as u64;
        }
        at = end;
    }
    Ok(written)
}
