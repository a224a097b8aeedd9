//! Making a patch: compare, match, compress.
//!
//! 1. *Compare* (parallel, one pass over base and target side by side, holes not read): leaves that are equal at the same offset are settled, the others
//!    block by block; the base's blocks are hashed for the index and both images' leaves for their content ids.
//! 2. *Match* (parallel): what is left of the target is looked up in the index, at any block of the base; hits are compared byte by byte.
//! 3. *Compress* (parallel): what is left then are the literals.

use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{clock_gettime, ClockId};

use super::format::{
    block_count, encode_frames, encode_map, Coded, Header, HEADER_LEN, LEAF_BLOCKS, MAX_RUNS,
    MAX_SIZE, STALE_UNKNOWN,
};
use super::index::{block_hash, BlockIndex, Sampling};
use super::literals::{compress_all, compress_copies, find_repeats, Literals};
use super::reader::{changed_leaves, read_padded};
use super::runs::{push, Run, Src, BLOCK, BLOCK_LEN};
use super::PatchError;
use crate::manifest::{
    expand_pieces, is_zero, leaf_count, leaf_hash, leaf_len, LeafHash, Manifest, LEAF_LEN,
    LEAF_SIZE,
};
use crate::output::Output;
use crate::source::{ReadAt, SourceError};
use crate::task::{for_each_piece_with, Meter, Task};

/// Leaves per piece of work.
const PIECE_LEAVES: u64 = 16;
const PIECE_BLOCKS: u32 = PIECE_LEAVES as u32 * LEAF_BLOCKS;
const PIECE_LEN: usize = PIECE_LEAVES as usize * LEAF_LEN;

/// How to make a patch.
///
/// Anonymous memory, whatever the images: up to 0.5 GiB for the index of the base and 0.2 GiB for finding
/// repeats, 32 bytes per 64 KiB of either image that is not zero, 0.1 KiB per MiB of either, and some
/// 30 MiB per thread.
#[derive(Clone, Copy)]
pub struct CreateOptions<'a> {
    /// 1 is the fast path; higher levels spend more time on compressing. 3 is the default.
    pub level: i32,
    /// How the job runs.
    pub task: Task<'a>,
}

impl Default for CreateOptions<'_> {
    fn default() -> Self {
        CreateOptions {
            level: 3,
            task: Task::default(),
        }
    }
}

/// What making a patch came to.
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

/// Makes the patch from `base` to `target` in a new file, which is renamed to `output` when it is complete.
///
/// # Errors
/// `TooLarge`, `Source`, `NoSpace`, `Io`, `Zstd`, `Cancelled`; nothing is left behind.
pub fn create(
    base: &dyn ReadAt,
    target: &dyn ReadAt,
    output: &Path,
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
    let compared = images.compare(options)?;
    let (runs, hashes) = images.match_moved(&compared, options)?;
    let repeats = find_repeats(&images, &runs, &hashes)?;
    let mut literals = Literals::number(runs, &repeats);
    let name = output.display().to_string();
    let out = Output::create(output).map_err(|error| PatchError::from_write(&name, error))?;
    let mut file = PatchWriter {
        out: &out,
        name: &name,
        at: HEADER_LEN,
    };
    let mut coded = compress_all(&images, &literals, options, &mut file)?;
    let copies = literals.unshare(&coded);
    compress_copies(&images, &copies, options, &mut file, &mut coded)?;
    let mut header = empty_header(&compared, options.level);
    count_blocks(&mut header, &literals.runs);
    file.write_meta(&mut header, &literals, &coded, &compared.target)?;
    header.create_wall_us = started.elapsed().as_micros() as u64;
    header.create_cpu_us = cpu_time().saturating_sub(cpu_before).as_micros() as u64;
    file.write_at(&header.encode(), 0)?;
    // Whoever cancelled gets no output, however late it was.
    options.task.check()?;
    out.commit()
        .map_err(|error| PatchError::from_write(&name, error))?;
    Ok(CreateStats {
        header,
        base: compared.base,
        target: compared.target,
        elapsed: started.elapsed(),
    })
}

/// CPU time of this process so far.
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

/// A patch file that is being written.
pub(super) struct PatchWriter<'a> {
    out: &'a Output,
    name: &'a str,
    /// Where the next bytes go.
    pub at: u64,
}

impl PatchWriter<'_> {
    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), PatchError> {
        self.write_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), PatchError> {
        self.out
            .file()
            .write_all_at(bytes, offset)
            .map_err(|error| PatchError::from_write(self.name, error))
    }

    fn write_meta(
        &mut self,
        header: &mut Header,
        literals: &Literals,
        coded: &Coded,
        target: &Manifest,
    ) -> Result<(), PatchError> {
        let pack = |bytes: Vec<u8>| {
            zstd::bulk::compress(&bytes, 9).map_err(|_| PatchError::Zstd("cannot compress the map"))
        };
        let map = pack(encode_map(&literals.runs))?;
        let frames = pack(encode_frames(&coded.frames, &coded.pieces))?;
        let changed = changed_leaves(header, &literals.runs);
        header.meta_offset = self.at;
        header.map_len = map.len() as u64;
        header.frames_len = frames.len() as u64;
        header.runs = literals.runs.len() as u64;
        header.frames = coded.frames.len() as u64;
        header.leaves = changed.len() as u64;
        let mut hashes = BufWriter::new(Vec::with_capacity(changed.len() * 32));
        for leaf in changed {
            if let Some(LeafHash::Data(hash)) = target.leaf(u64::from(leaf)) {
                hashes
                    .write_all(&hash)
                    .map_err(|error| PatchError::from_write(self.name, error))?;
            }
        }
        let hashes = hashes.into_inner().map_err(|error| {
            PatchError::from_write(self.name, io::Error::from(error.error().kind()))
        })?;
        let meta = [map, frames, hashes].concat();
        header.meta_hash = *blake3::hash(&meta).as_bytes();
        self.append(&meta)?;
        header.patch_size = self.at;
        Ok(())
    }
}

/// The two images.
pub(super) struct Images<'a> {
    pub base: &'a dyn ReadAt,
    pub target: &'a dyn ReadAt,
}

/// What the first pass knows.
pub(super) struct Compared {
    base: Manifest,
    target: Manifest,
    index: BlockIndex,
    /// Runs of the target: zero, base at the same offset, or not yet known.
    runs: Vec<Run>,
}

/// What is not yet known counts as literal until it is matched.
const UNKNOWN: Src = Src::Literal(0);

/// The first pass's view of a piece.
#[derive(Default)]
struct PieceParts {
    base_leaves: Vec<LeafHash>,
    target_leaves: Vec<LeafHash>,
    entries: Vec<(u64, u32)>,
    runs: Vec<Run>,
}

/// A thread's buffers for a piece of each image.
struct Buffers {
    base: Vec<u8>,
    target: Vec<u8>,
}

impl Buffers {
    fn new() -> Buffers {
        Buffers {
            base: vec![0; PIECE_LEN],
            target: vec![0; PIECE_LEN],
        }
    }
}

/// Reads what a source has from `offset` on into `buf`, holes as zeroes without reading them. Returns how much is inside the source, and whether
/// any of it may be data.
fn read_sparse(
    source: &dyn ReadAt,
    offset: u64,
    buf: &mut [u8],
) -> Result<(usize, bool), SourceError> {
    let len = source.len().saturating_sub(offset).min(buf.len() as u64) as usize;
    let end = offset + len as u64;
    let mut at = offset;
    let mut any = false;
    while at < end {
        let (from, to) = match source.next_data(at)? {
            Some((from, to)) if from < end => (from, to.min(end)),
            _ => break,
        };
        if any || from > offset {
            buf[(at - offset) as usize..(from - offset) as usize].fill(0);
        }
        source.read_exact_at(
            &mut buf[(from - offset) as usize..(to - offset) as usize],
            from,
        )?;
        any = true;
        at = to;
    }
    if any {
        buf[(at - offset) as usize..].fill(0);
    }
    Ok((len, any))
}

/// Bytes of data that a source may have, as far as it knows of holes.
fn data_bytes(source: &dyn ReadAt) -> Result<u64, SourceError> {
    let (mut at, mut bytes) = (0, 0);
    while let Some((from, to)) = source.next_data(at)? {
        bytes += to - from;
        at = to;
    }
    Ok(bytes)
}

impl Images<'_> {
    /// The first pass.
    fn compare(&self, options: &CreateOptions<'_>) -> Result<Compared, PatchError> {
        let (base_size, target_size) = (self.base.len(), self.target.len());
        let sampling = Sampling::for_blocks(data_bytes(self.base)?.div_ceil(BLOCK));
        let pieces = leaf_count(base_size.max(target_size)).div_ceil(PIECE_LEAVES);
        let meter = options.task.meter(target_size);
        let parts = for_each_piece_with(&options.task, pieces, Buffers::new, |buffers, piece| {
            let parts = self.compare_piece(piece, buffers, sampling)?;
            Ok::<_, PatchError>((parts, report(&meter, target_size, piece)))
        })?;
        let count = parts.iter().map(|(parts, ())| parts.entries.len()).sum();
        let entries = parts
            .iter()
            .flat_map(|(parts, ())| parts.entries.iter().copied());
        let index = BlockIndex::new(sampling, count, entries);
        let mut runs = Vec::new();
        parts
            .iter()
            .flat_map(|(parts, ())| &parts.runs)
            .for_each(|run| push_unknown(&mut runs, *run));
        let (base_leaves, target_leaves): (Vec<_>, Vec<_>) = parts
            .into_iter()
            .map(|(parts, ())| (parts.base_leaves, parts.target_leaves))
            .unzip();
        let base = self.manifest(self.base, base_leaves, options)?;
        let target = self.manifest(self.target, target_leaves, options)?;
        Ok(Compared {
            base,
            target,
            index,
            runs,
        })
    }

    fn manifest(
        &self,
        image: &dyn ReadAt,
        pieces: Vec<Vec<LeafHash>>,
        options: &CreateOptions<'_>,
    ) -> Result<Manifest, PatchError> {
        if leaf_count(image.len()) != 1 {
            let leaves = expand_pieces(image.len(), PIECE_LEAVES, pieces.into_iter());
            return Ok(Manifest::from_leaves(
                image.len(),
                leaves,
                &options.task.silent(),
            )?);
        }
        let mut data = vec![0; image.len() as usize];
        image.read_exact_at(&mut data, 0)?;
        Ok(Manifest::of_single_leaf(&data))
    }

    fn compare_piece(
        &self,
        piece: u64,
        buffers: &mut Buffers,
        sampling: Sampling,
    ) -> Result<PieceParts, PatchError> {
        let offset = piece * PIECE_LEN as u64;
        let (base_len, base_any) = read_sparse(self.base, offset, &mut buffers.base)?;
        let (target_len, target_any) = read_sparse(self.target, offset, &mut buffers.target)?;
        let base = base_any.then_some(&buffers.base);
        let target = target_any.then_some(&buffers.target);
        let mut parts = PieceParts::default();
        for i in 0..PIECE_LEAVES {
            let leaf = piece * PIECE_LEAVES + i;
            let range = i as usize * LEAF_LEN..(i as usize + 1) * LEAF_LEN;
            let pair = Pair {
                leaf,
                base: base.map(|data| &data[range.clone()]),
                base_len: leaf_len(base_len as u64, i),
                target: target.map(|data| &data[range.clone()]),
                target_len: leaf_len(target_len as u64, i),
            };
            pair.compare(sampling, &mut parts);
        }
        // Pieces of zeroes go without: see `expand_pieces`.
        for leaves in [&mut parts.base_leaves, &mut parts.target_leaves] {
            if leaves.iter().all(|leaf| *leaf == LeafHash::Zero) {
                *leaves = Vec::new();
            }
        }
        Ok(parts)
    }

    /// The second pass: settles what the first left open. Returns the runs, and the hashes of the
    /// blocks that are literals, in order.
    fn match_moved(
        &self,
        compared: &Compared,
        options: &CreateOptions<'_>,
    ) -> Result<(Vec<Run>, Vec<u64>), PatchError> {
        let open = split_unknown(&compared.runs);
        let matcher = Matcher {
            images: self,
            index: &compared.index,
        };
        let buffers = || (Vec::new(), vec![0; BLOCK_LEN]);
        let parts = for_each_piece_with(
            &options.task.silent(),
            open.len() as u64,
            buffers,
            |(data, scratch), i| {
                let group = &open[i as usize];
                let mut found = Found::default();
                for run in group {
                    matcher.settle(*run, data, scratch, &mut found)?;
                }
                Ok::<_, PatchError>(found)
            },
        )?;
        let hashes = parts
            .iter()
            .flat_map(|found| found.hashes.iter().copied())
            .collect();
        let mut found = parts.into_iter().flat_map(|found| found.runs);
        let mut runs = Vec::new();
        for run in &compared.runs {
            if run.src != UNKNOWN {
                push(&mut runs, *run);
                continue;
            }
            let mut left = run.len;
            while left > 0 {
                let Some(part) = found.next() else { break };
                left = left.saturating_sub(part.len);
                push_unknown(&mut runs, part);
            }
        }
        match runs.len() > MAX_RUNS {
            // Then the hashes fit no longer, and are done without.
            true => Ok((coarsen(runs), Vec::new())),
            false => Ok((runs, hashes)),
        }
    }
}

fn report(meter: &Meter<'_>, target_size: u64, piece: u64) {
    let start = piece * PIECE_LEN as u64;
    // Comparing is about half of the work; the other half is counted when literals are written.
    meter.add(target_size.saturating_sub(start).min(PIECE_LEN as u64) / 2);
}

/// Appends a run; neighbouring unknown ones join.
fn push_unknown(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if run.src == UNKNOWN && last.src == UNKNOWN && last.end() == run.start => {
            last.len += run.len
        }
        _ => push(runs, run),
    }
}

/// The unknown runs in groups of about a piece, none longer than a piece.
fn split_unknown(runs: &[Run]) -> Vec<Vec<Run>> {
    let mut groups: Vec<Vec<Run>> = Vec::new();
    let mut size = PIECE_BLOCKS;
    for run in runs.iter().filter(|run| run.src == UNKNOWN) {
        let mut at = run.start;
        while at < run.end() {
            let len = (run.end() - at).min(PIECE_BLOCKS);
            let part = Run {
                start: at,
                len,
                src: UNKNOWN,
            };
            match groups.last_mut() {
                Some(group) if size < PIECE_BLOCKS => group.push(part),
                _ => {
                    groups.push(vec![part]);
                    size = 0;
                }
            }
            size += len;
            at += len;
        }
    }
    groups
}

/// Keeps the map within its limit: where copying alternates with literals that often, the shortest copies become literals.
fn coarsen(mut runs: Vec<Run>) -> Vec<Run> {
    let mut shortest = 1;
    while runs.len() > MAX_RUNS {
        let mut coarse = Vec::new();
        for mut run in runs {
            if run.len <= shortest {
                run.src = UNKNOWN;
            }
            push_unknown(&mut coarse, run);
        }
        runs = coarse;
        shortest *= 2;
    }
    runs
}

/// One leaf of both images; `None` for a hole. Data are padded with zeroes to a whole leaf; the lengths say how much is inside the image.
struct Pair<'a> {
    leaf: u64,
    base: Option<&'a [u8]>,
    base_len: usize,
    target: Option<&'a [u8]>,
    target_len: usize,
}

impl Pair<'_> {
    fn compare(&self, sampling: Sampling, parts: &mut PieceParts) {
        let base = self.base.filter(|data| !is_zero(data));
        let target = self.target.filter(|data| !is_zero(data));
        let base_hash = base.map(|data| leaf_hash(self.leaf, &data[..self.base_len]));
        if self.base_len > 0 {
            parts
                .base_leaves
                .push(base_hash.map_or(LeafHash::Zero, LeafHash::Data));
        }
        if let Some(data) = base {
            self.index_base(data, sampling, parts);
        }
        if self.target_len == 0 {
            return;
        }
        let first = self.leaf as u32 * LEAF_BLOCKS;
        let blocks = self.target_len.div_ceil(BLOCK_LEN) as u32;
        let Some(data) = target else {
            parts.target_leaves.push(LeafHash::Zero);
            push(
                &mut parts.runs,
                Run {
                    start: first,
                    len: blocks,
                    src: Src::Zero,
                },
            );
            return;
        };
        let same = base.is_some_and(|base| self.base_len == self.target_len && base == data);
        match base_hash.filter(|_| same) {
            Some(hash) => {
                parts.target_leaves.push(LeafHash::Data(hash));
                push(
                    &mut parts.runs,
                    Run {
                        start: first,
                        len: blocks,
                        src: Src::Base(first),
                    },
                );
            }
            None => {
                parts.target_leaves.push(LeafHash::Data(leaf_hash(
                    self.leaf,
                    &data[..self.target_len],
                )));
                self.compare_blocks(base, data, parts);
            }
        }
    }

    fn index_base(&self, data: &[u8], sampling: Sampling, parts: &mut PieceParts) {
        let first = self.leaf as u32 * LEAF_BLOCKS;
        for (i, block) in data[..self.base_len].chunks(BLOCK_LEN).enumerate() {
            // A short last block is indexed as it counts: padded.
            let block =
                &data[i * BLOCK_LEN..i * BLOCK_LEN + block.len().next_multiple_of(BLOCK_LEN)];
            if !is_zero(block) {
                let hash = block_hash(block);
                if sampling.takes(hash) {
                    parts.entries.push((hash, first + i as u32));
                }
            }
        }
    }

    fn compare_blocks(&self, base: Option<&[u8]>, target: &[u8], parts: &mut PieceParts) {
        let first = self.leaf as u32 * LEAF_BLOCKS;
        let base_blocks = self.base_len.div_ceil(BLOCK_LEN);
        for (i, block) in target
            .chunks(BLOCK_LEN)
            .take(self.target_len.div_ceil(BLOCK_LEN))
            .enumerate()
        {
            let start = first + i as u32;
            let equal = || {
                base.is_some_and(|base| {
                    i < base_blocks && base[i * BLOCK_LEN..(i + 1) * BLOCK_LEN] == *block
                })
            };
            let src = match () {
                () if is_zero(block) => Src::Zero,
                () if equal() => Src::Base(start),
                () => UNKNOWN,
            };
            push_unknown(&mut parts.runs, Run { start, len: 1, src });
        }
    }
}

/// What became of unknown runs.
#[derive(Default)]
struct Found {
    runs: Vec<Run>,
    /// Hashes of the blocks that stay unknown, in order.
    hashes: Vec<u64>,
}

/// Looks blocks of the target up in the base.
struct Matcher<'a> {
    images: &'a Images<'a>,
    index: &'a BlockIndex,
}

impl Matcher<'_> {
    /// Splits an unknown run into what the base has somewhere and what it has not.
    fn settle(
        &self,
        run: Run,
        data: &mut Vec<u8>,
        scratch: &mut [u8],
        found: &mut Found,
    ) -> Result<(), PatchError> {
        data.resize(run.len as usize * BLOCK_LEN, 0);
        read_padded(self.images.target, u64::from(run.start) * BLOCK, data)?;
        let (mut parts, mut hashes) = (Vec::new(), Vec::with_capacity(run.len as usize));
        let mut expected = None;
        for (i, block) in data.chunks(BLOCK_LEN).enumerate() {
            let start = run.start + i as u32;
            let hash = block_hash(block);
            let at = self.find(block, hash, expected, scratch)?;
            expected = at.map(|at| at + 1);
            push_unknown(
                &mut parts,
                Run {
                    start,
                    len: 1,
                    src: at.map_or(UNKNOWN, Src::Base),
                },
            );
            hashes.push(hash);
        }
        if !self.index.sampling().is_complete() {
            self.grow_back(run, data, scratch, &mut parts)?;
        }
        for part in parts {
            if part.src == UNKNOWN {
                let from = (part.start - run.start) as usize;
                found
                    .hashes
                    .extend_from_slice(&hashes[from..from + part.len as usize]);
            }
            found.runs.push(part);
        }
        Ok(())
    }

    /// A block of the base with these bytes, best the expected one.
    fn find(
        &self,
        block: &[u8],
        hash: u64,
        expected: Option<u32>,
        scratch: &mut [u8],
    ) -> Result<Option<u32>, PatchError> {
        if let Some(at) = expected {
            if self.equals(at, block, scratch)? {
                return Ok(Some(at));
            }
        }
        for at in self.index.candidates(hash) {
            if self.equals(at, block, scratch)? {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn equals(&self, at: u32, block: &[u8], scratch: &mut [u8]) -> Result<bool, PatchError> {
        if at >= block_count(self.images.base.len()) {
            return Ok(false);
        }
        read_padded(self.images.base, u64::from(at) * BLOCK, scratch)?;
        Ok(scratch == block)
    }

    /// With a sampled index a match may begin before the block by which it was found.
    fn grow_back(
        &self,
        run: Run,
        data: &[u8],
        scratch: &mut [u8],
        found: &mut [Run],
    ) -> Result<(), PatchError> {
        for i in (1..found.len()).rev() {
            let (before, after) = found.split_at_mut(i);
            let (Some(open), Some(part)) = (before.last_mut(), after.first_mut()) else {
                continue;
            };
            while let (UNKNOWN, Src::Base(at)) = (open.src, part.src) {
                let last =
                    (open.end().wrapping_sub(1).wrapping_sub(run.start)) as usize * BLOCK_LEN;
                if open.len <= 1
                    || at == 0
                    || !self.equals(at - 1, &data[last..last + BLOCK_LEN], scratch)?
                {
                    break;
                }
                open.len -= 1;
                *part = Run {
                    start: part.start - 1,
                    len: part.len + 1,
                    src: Src::Base(at - 1),
                };
            }
        }
        Ok(())
    }
}

/// Bytes per leaf that both images share; kept here so that the constants agree.
const _: () = assert!(LEAF_SIZE == LEAF_BLOCKS as u64 * BLOCK);
