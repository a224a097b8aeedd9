//! Creating a patch: compare, match, compress.
//!
//! 1. *Compare* (parallel, one pass over base and target side by side, holes not read): leaves that are equal at the same offset are settled, the others
//!    block by block; the blocks of the base, and those of the target that are not settled, are hashed while they are in the processor's cache, and
//!    both images' leaves for their content ids.
//! 2. *Match* (parallel): what is left of the target is looked up in the index, at any block of the base. Only hits are read again, and compared byte
//!    by byte.
//! 3. *Search* (parallel): what is left then are the literals. Where there are many, and a sample of them resembles the base, the base is
//!    searched for content that resembles them; if the target was laid out anew, only what it has not of the base as it was.
//! 4. *Compress* (parallel): literals are coded as near copies, or compressed.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{clock_gettime, ClockId};

use super::compare::{Compared, Images};
use super::compress::zstd_level;
use super::error::PatchError;
use super::format::{Header, MAX_SIZE, STALE_UNKNOWN};
use super::literal_frames::{
    compress_all, compress_compared, compress_copies, is_smaller_near, Effort,
};
use super::literals::Literals;
use super::matching::match_moved;
use super::near_index::search_base;
use super::options::CreateOptions;
use super::repeats::find_repeats;
use super::runs::{Run, Src, BLOCK};
use super::writer::PatchWriter;
use crate::manifest::Manifest;
use crate::source::ReadAt;
use diffcache_base::output::Output;

/// Most literal blocks that are coded with and without near copies, and kept in memory meanwhile: 32 MiB.
const MAX_COMPARED: u32 = 1 << 13;

/// The outcome of creating a patch.
#[derive(Debug, Clone)]
pub struct CreateStats {
    /// The patch's header.
    pub header: Header,
    /// Manifest of the base, a by-product.
    pub base: Manifest,
    /// Manifest of the target, a by-product.
    pub target: Manifest,
    /// Time taken.
    pub elapsed: Duration,
}

/// Creates the patch from `base` to `target` in a new file, which is renamed to `output` when it is complete.
///
/// # Errors
/// `TooLarge`, `Source` (also if an image was written to meanwhile), `NoSpace`, `Io`, `Zstd`, `Cancelled`; nothing is left behind.
pub fn create(
    base: &dyn ReadAt,
    target: &dyn ReadAt,
    output: &Path,
    options: &CreateOptions<'_>,
) -> Result<CreateStats, PatchError> {
    let name = output.display().to_string();
    let failed = |error| PatchError::from_write(&name, error);
    let out = Output::create(output).map_err(failed)?;
    let stats = create_in(base, target, &out, &name, options)?;
    // Literals were read after the hashes: if an image changed in between, they do not match.
    base.check_unchanged()?;
    target.check_unchanged()?;
    // A cancelled job leaves no output, however late it was cancelled.
    options.task.check()?;
    out.commit().map_err(failed)?;
    Ok(stats)
}

/// Writes the patch from `base` to `target` to an empty output, which errors call `name`, and leaves it to the caller to commit it.
///
/// # Errors
/// As `create`.
pub fn create_in(
    base: &dyn ReadAt,
    target: &dyn ReadAt,
    out: &Output,
    name: &str,
    options: &CreateOptions<'_>,
) -> Result<CreateStats, PatchError> {
    let started = Instant::now();
    let cpu_before = cpu_time();
    for (name, size) in [("base", base.len()), ("target", target.len())] {
        if size > MAX_SIZE {
            return Err(PatchError::TooLarge { name, size });
        }
    }
    let images = Images { base, target };
    let mut compared = images.compare(options)?;
    let (runs, hashes) = match_moved(&images, &mut compared, options)?;
    let repeats = find_repeats(&images, &runs, &hashes)?;
    let mut literals = Literals::number(runs, &repeats);
    let mut file = PatchWriter::new(out, name);
    let mut header = empty_header(&compared, options.level);
    count_blocks(&mut header, &literals.runs);
    let (new, known) = (header.blocks_inserted, header.blocks_copied);
    let parts = literals.new_parts();
    let resemblance = search_base(&images, &literals.runs, &parts, literals.count, options)?;
    let mut effort = Effort {
        zstd_level: zstd_level(options.level, new, known),
        is_near: resemblance.is_possible(),
        near: resemblance.index(),
        is_compared: literals.count <= MAX_COMPARED,
        task: options.task,
    };
    if resemblance.is_uncertain() && !effort.is_compared {
        effort.is_near = is_smaller_near(&images, &literals, &parts, &effort)?;
    }
    let compress = match effort.is_compared {
        true => compress_compared,
        false => compress_all,
    };
    let mut coded = compress(&images, &literals, &parts, &effort, &mut file)?;
    let copies = literals.unshare(&coded);
    compress_copies(&images, &copies, &effort, &mut file, &mut coded)?;
    header.stale_blocks = stale_blocks(options.free, &literals.runs);
    file.write_meta(&mut header, &literals.runs, &coded, &compared.target)?;
    header.create_wall_us = started.elapsed().as_micros() as u64;
    header.create_cpu_us = cpu_time().saturating_sub(cpu_before).as_micros() as u64;
    file.write_at(&header.encode(), 0)?;
    Ok(CreateStats {
        header,
        base: compared.base,
        target: compared.target,
        elapsed: started.elapsed(),
    })
}

/// Returns the CPU time of this process so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn empty_header(compared: &Compared, level: i32) -> Header {
    Header {
        base_size: compared.base.size(),
        target_size: compared.target.size(),
        patch_size: 0,
        base_hash: compared.base.content_id(),
        target_hash: compared.target.content_id(),
        blocks_copied: 0,
        blocks_inserted: 0,
        blocks_zero: 0,
        stale_blocks: STALE_UNKNOWN,
        meta_offset: 0,
        map_len: 0,
        frames_len: 0,
        leaves: 0,
        runs: 0,
        frames: 0,
        level: level as u64,
        create_cpu_us: 0,
        create_wall_us: 0,
        meta_hash: [0; 32],
    }
}

fn count_blocks(header: &mut Header, runs: &[Run]) {
    for run in runs {
        let count = match run.src {
            Src::Zero => &mut header.blocks_zero,
            Src::Base(_) => &mut header.blocks_copied,
            Src::Literal(_) => &mut header.blocks_inserted,
        };
        *count += u64::from(run.len);
    }
}

/// Counts the inserted blocks that are wholly within what the target's filesystems mark free.
fn stale_blocks(free: Option<&[(u64, u64)]>, runs: &[Run]) -> u64 {
    let Some(free) = free else {
        return STALE_UNKNOWN;
    };
    let inserted = runs.iter().filter(|run| matches!(run.src, Src::Literal(_)));
    let stale = inserted.map(|run| {
        let (start, end) = (u64::from(run.start) * BLOCK, u64::from(run.end()) * BLOCK);
        let first = free.partition_point(|(_, to)| *to <= start);
        let inside = free[first..].iter().take_while(|(from, _)| *from < end);
        let blocks = inside.map(|(from, to)| {
            ((*to).min(end) / BLOCK).saturating_sub((*from).max(start).div_ceil(BLOCK))
        });
        blocks.sum::<u64>()
    });
    stale.sum()
}
