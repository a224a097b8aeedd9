//! The literals of a patch: numbering, and compressing them on all cores in the order of the file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

use super::compare::Images;
use super::compress::{Compressor, Encoded, Surroundings, MIXED};
use super::create::PatchWriter;
use super::format::{Coded, Frame};
use super::index::{BlockIndex, Sampling};
use super::reader::{read_cost, read_padded};
use super::runs::{push, within, Run, Src, BLOCK, BLOCK_LEN};
use super::PatchError;
use crate::task::Task;

/// Literal blocks per unit of work: 16 MiB. Frames do not cross units, and are smaller at their ends.
const UNIT_BLOCKS: u32 = 4096;
/// Most threads that compress, each with up to three units in memory.
const MAX_THREADS: usize = 8;
/// Any range of the target of this many blocks (256 KiB) is read at twice its size at most.
const WINDOW_BLOCKS: u32 = 64;
/// A stretch of literals of this many blocks (1 MiB) is long.
const SOLID: u32 = 256;

/// A stretch of literals that the target holds twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Repeat {
    /// First block of the second occurrence.
    pub start: u32,
    /// Its blocks.
    pub len: u32,
    /// First block of the first occurrence, which ends before the second begins.
    pub first: u32,
}

/// Shorter repeats are left to zstd.
const MIN_REPEAT: u32 = 8;
/// Blocks whose hashes are kept for finding repeats: 192 MiB. Beyond, nothing is looked for.
const MAX_HASHES: usize = 1 << 24;

/// Finds long stretches of literals that the target holds twice. `hashes` are those of all literal blocks of `runs`, in order.
pub(super) fn find_repeats(
    images: &Images<'_>,
    runs: &[Run],
    hashes: &[u64],
) -> Result<Vec<Repeat>, PatchError> {
    let open = runs.iter().filter(|run| matches!(run.src, Src::Literal(_)));
    let blocks: Vec<u32> = open
        .flat_map(|run| run.start..run.end())
        .take(MAX_HASHES)
        .collect();
    let hashes = &hashes[..blocks.len().min(hashes.len())];
    let entries = hashes.iter().copied().zip(0u32..);
    let index = BlockIndex::new(Sampling::for_blocks(0), hashes.len(), entries);
    let mut repeats = Vec::new();
    let mut at = 0;
    while at < hashes.len() {
        // The candidate that goes on longest; first copies come first, so the stretch is found at its first occurrence.
        let length = |first: usize| {
            let same = |n: &usize| {
                first + n < at
                    && hashes[first + n] == hashes[at + n]
                    && blocks[first + n] - blocks[first] == *n as u32
            };
            (0..hashes.len() - at)
                .take_while(|n| same(n) && blocks[at + n] - blocks[at] == *n as u32)
                .count()
        };
        let best = index
            .candidates(hashes[at])
            .map(|first| first as usize)
            .filter(|first| *first < at)
            .map(|first| (length(first), first))
            .max();
        match best {
            Some((len, first)) if len >= MIN_REPEAT as usize => {
                let repeat = Repeat {
                    start: blocks[at],
                    len: len as u32,
                    first: blocks[first],
                };
                let len = verified(images, repeat)?;
                if len >= MIN_REPEAT {
                    repeats.push(Repeat { len, ..repeat });
                }
                at += (len as usize).max(1);
            }
            _ => at += 1,
        }
    }
    Ok(repeats)
}

/// How many blocks of a repeat are equal indeed.
fn verified(images: &Images<'_>, repeat: Repeat) -> Result<u32, PatchError> {
    let (mut a, mut b) = ([0; BLOCK_LEN], [0; BLOCK_LEN]);
    for n in 0..repeat.len {
        read_padded(images.target, u64::from(repeat.first + n) * BLOCK, &mut a)?;
        read_padded(images.target, u64::from(repeat.start + n) * BLOCK, &mut b)?;
        if a != b {
            return Ok(n);
        }
    }
    Ok(repeat.len)
}

/// How literals are compressed.
#[derive(Clone, Copy)]
pub(super) struct Effort<'a> {
    /// One of zstd's levels.
    pub zstd_level: i32,
    /// How the job runs.
    pub task: Task<'a>,
}

/// A finished map.
pub(super) struct Literals {
    /// Runs of the whole target, literals numbered.
    pub runs: Vec<Run>,
    /// Number of literal blocks that the patch holds.
    pub count: u32,
    /// Literals that repeats refer to, as ranges; they may overlap.
    shared: Vec<(u32, u32)>,
}

impl Literals {
    /// Numbers the literals in order of the target. Of long stretches that the target holds twice, the second refers to the first.
    pub fn number(runs: Vec<Run>, repeats: &[Repeat]) -> Literals {
        let mut literals = Literals {
            runs: Vec::with_capacity(runs.len()),
            count: 0,
            shared: Vec::new(),
        };
        let mut repeats = repeats.iter().peekable();
        for run in runs {
            if !matches!(run.src, Src::Literal(_)) {
                push(&mut literals.runs, run);
                continue;
            }
            let mut at = run.start;
            while let Some(repeat) = repeats.next_if(|repeat| repeat.start < run.end()) {
                literals.add_new(at, repeat.start);
                literals.add_repeat(*repeat);
                at = repeat.start + repeat.len;
            }
            literals.add_new(at, run.end());
        }
        literals
    }

    fn add_new(&mut self, start: u32, end: u32) {
        push(
            &mut self.runs,
            Run {
                start,
                len: end - start,
                src: Src::Literal(self.count),
            },
        );
        self.count += end - start;
    }

    /// Adds a stretch whose first occurrence is numbered already; it may lie in several runs by now.
    fn add_repeat(&mut self, repeat: Repeat) {
        let sources: Vec<Run> =
            within(&self.runs, repeat.first, repeat.first + repeat.len).collect();
        for source in sources {
            if let Src::Literal(at) = source.src {
                self.shared.push((at, at + source.len));
            }
            let start = repeat.start + (source.start - repeat.first);
            push(&mut self.runs, Run { start, ..source });
        }
    }

    /// Gives repeats copies of their own where reading them where they first occur costs a reader more
    /// than twice the window that it wants. Returns the new parts, which follow all literals so far.
    pub fn unshare(&mut self, coded: &Coded) -> Vec<Part> {
        let mut next = 0;
        let mut parts = Vec::new();
        let mut i = 0;
        while let Some(run) = self.runs.get(i).copied() {
            let new = new_part(&run, next).map_or(0, |part| part.len);
            next += new;
            let back = Run {
                len: run.len - new,
                ..run
            };
            if matches!(run.src, Src::Literal(_)) && back.len > 0 && self.is_dear(back, coded) {
                let part = Run {
                    src: Src::Literal(self.count),
                    ..back
                };
                self.count += part.len;
                parts.push(Part {
                    start: part.start,
                    len: part.len,
                    literal: self.count - part.len,
                    is_shared: false,
                });
                self.runs[i] = part;
                if new > 0 {
                    i += 1;
                    let rest = Run {
                        start: back.end(),
                        len: new,
                        src: run.src.plus(back.len),
                    };
                    self.runs.insert(i, rest);
                }
            }
            i += 1;
        }
        parts
    }

    /// Whether any window that touches a run is too expensive to read.
    fn is_dear(&self, run: Run, coded: &Coded) -> bool {
        // Every fourth window; the limit leaves room for those between.
        let limit = 2 * u64::from(WINDOW_BLOCKS) * BLOCK - (16 << 10);
        let windows = (run.start.saturating_sub(WINDOW_BLOCKS - 1)..run.end()).step_by(4);
        windows
            .map(|first| self.cost(coded, first))
            .any(|cost| cost > limit)
    }

    /// What reading a window costs; copies that are not compressed yet count as one frame.
    fn cost(&self, coded: &Coded, first: u32) -> u64 {
        let known = coded
            .frames
            .last()
            .map_or(0, |frame| frame.first + frame.blocks);
        let window = || within(&self.runs, first, first + WINDOW_BLOCKS);
        let copied = window().any(|run| matches!(run.src, Src::Literal(at) if at >= known));
        let (base, patch) = read_cost(&self.runs, coded, first, first + WINDOW_BLOCKS);
        base + patch + if copied { MIXED as u64 } else { 0 }
    }

    /// The runs of literals that are new, in order; those that refer back left out. What repeats refer
    /// to are parts of their own: frames that begin and end with them cost their readers no more than
    /// what they want.
    fn new_parts(&self) -> Vec<Part> {
        let mut edges: Vec<u32> = self
            .shared
            .iter()
            .flat_map(|(from, to)| [*from, *to])
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let shared = merged(&self.shared);
        let mut next = 0;
        let mut parts = Vec::new();
        for run in &self.runs {
            let Some(run) = new_part(run, next) else {
                continue;
            };
            let end = next + run.len;
            let first_edge = edges.partition_point(|edge| *edge <= next);
            let inner = edges[first_edge..]
                .iter()
                .copied()
                .take_while(|edge| *edge < end);
            for edge in inner.chain([end]) {
                let start = run.start + (run.len - (end - next));
                let is_shared = shared[..shared.partition_point(|(from, _)| *from <= next)]
                    .last()
                    .is_some_and(|(_, to)| next < *to);
                parts.push(Part {
                    start,
                    len: edge - next,
                    literal: next,
                    is_shared,
                });
                next = edge;
            }
        }
        parts
    }
}

/// New literals that lie together in the target, and are wholly shared or not at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// First block in the target.
    start: u32,
    len: u32,
    /// Index of the first literal.
    literal: u32,
    is_shared: bool,
}

impl Part {
    fn is_solid(&self) -> bool {
        self.len >= SOLID && !self.is_shared
    }

    /// Whether the two may have frames in common.
    fn goes_with(&self, next: &Part) -> bool {
        !(self.is_shared || next.is_shared || self.is_solid() || next.is_solid())
    }
}

/// Ranges, sorted and with overlapping ones joined.
fn merged(ranges: &[(u32, u32)]) -> Vec<(u32, u32)> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in sorted {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// The part of a run that holds the literals from `next` on, if it does. What comes before refers back.
pub(super) fn new_part(run: &Run, next: u32) -> Option<Run> {
    match run.src {
        Src::Literal(at) if at <= next && next - at < run.len => {
            let skip = next - at;
            Some(Run {
                start: run.start + skip,
                len: run.len - skip,
                src: Src::Literal(next),
            })
        }
        _ => None,
    }
}

/// The parts whose literals lie in a unit, clipped to it.
fn unit_parts(parts: &[Part], unit: u32) -> impl Iterator<Item = Part> + '_ {
    let (from, to) = (unit * UNIT_BLOCKS, (unit + 1) * UNIT_BLOCKS);
    let skip = parts.partition_point(|part| part.literal + part.len <= from);
    parts[skip..]
        .iter()
        .take_while(move |part| part.literal < to)
        .map(move |part| {
            let literal = part.literal.max(from);
            let start = part.start + (literal - part.literal);
            let len = (part.literal + part.len).min(to) - literal;
            Part {
                start,
                len,
                literal,
                ..*part
            }
        })
}

/// Compresses the copies that `Literals::unshare` made and appends them to the file.
pub(super) fn compress_copies(
    images: &Images<'_>,
    parts: &[Part],
    effort: &Effort<'_>,
    file: &mut PatchWriter<'_>,
    coded: &mut Coded,
) -> Result<(), PatchError> {
    let mut worker = Worker {
        images,
        parts,
        compressor: Compressor::new(effort.zstd_level)?,
        raw: Vec::new(),
    };
    for group in parts.chunks(64) {
        effort.task.check()?;
        let mut frames = Vec::new();
        worker.read(group)?;
        let raw = &worker.raw;
        worker
            .compressor
            .frames(raw, Surroundings::Mixed, &mut frames)?;
        append(frames, file, coded)?;
    }
    Ok(())
}

/// Compresses all literals and appends them to the file in order.
pub(super) fn compress_all(
    images: &Images<'_>,
    literals: &Literals,
    effort: &Effort<'_>,
    file: &mut PatchWriter<'_>,
) -> Result<Coded, PatchError> {
    let units = literals.count.div_ceil(UNIT_BLOCKS);
    let parts = literals.new_parts();
    let next = AtomicU32::new(0);
    let threads = effort.task.threads_for(u64::from(units)).min(MAX_THREADS);
    let meter = effort.task.meter(u64::from(literals.count) * BLOCK);
    let mut coded = Coded::default();
    std::thread::scope(|scope| {
        // Bounded, so that a slow disk holds the compressors up instead of filling the memory.
        let (sender, receiver) = sync_channel(threads);
        for _ in 0..threads {
            let sender = sender.clone();
            let (next, parts) = (&next, parts.as_slice());
            let compressor = Compressor::new(effort.zstd_level)?;
            scope.spawn(move || {
                let mut worker = Worker {
                    images,
                    parts,
                    compressor,
                    raw: Vec::new(),
                };
                loop {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    if unit >= units {
                        return;
                    }
                    let frames = effort
                        .task
                        .check()
                        .map_err(PatchError::from)
                        .and_then(|()| worker.unit(unit));
                    // The receiver is gone after an error: nobody wants the rest.
                    if sender.send((unit, frames)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut waiting = std::collections::BTreeMap::new();
        let mut due = 0;
        for (unit, frames) in receiver {
            waiting.insert(unit, frames?);
            while let Some(frames) = waiting.remove(&due) {
                meter.add(append(frames, file, &mut coded)?);
                due += 1;
            }
        }
        Ok(())
    })
    .map(|()| coded)
}

/// Appends a unit's frames; returns the bytes that they hold.
fn append(
    frames: Vec<Encoded>,
    file: &mut PatchWriter<'_>,
    coded: &mut Coded,
) -> Result<u64, PatchError> {
    let mut raw = 0;
    for frame in frames {
        let first = coded
            .frames
            .last()
            .map_or(0, |last| last.first + last.blocks);
        let dict = (coded.pieces.len() as u32, coded.pieces.len() as u32);
        let entry = Frame {
            offset: file.at,
            first,
            blocks: frame.blocks,
            len: frame.bytes.len() as u32,
            kind: frame.kind,
            dict,
            check: frame.check,
        };
        file.append(&frame.bytes)?;
        coded.frames.push(entry);
        raw += u64::from(frame.blocks) * BLOCK;
    }
    Ok(raw)
}

struct Worker<'a> {
    images: &'a Images<'a>,
    parts: &'a [Part],
    compressor: Compressor,
    raw: Vec<u8>,
}

impl Worker<'_> {
    fn unit(&mut self, unit: u32) -> Result<Vec<Encoded>, PatchError> {
        let parts: Vec<Part> = unit_parts(self.parts, unit).collect();
        let mut frames = Vec::new();
        // Long stretches and shared ones have frames of their own; what lies between has some in common.
        for group in parts.chunk_by(Part::goes_with) {
            let solid = group.iter().any(Part::is_solid);
            self.read(group)?;
            let surroundings = if solid {
                Surroundings::Solid
            } else {
                Surroundings::Mixed
            };
            self.compressor
                .frames(&self.raw, surroundings, &mut frames)?;
        }
        Ok(frames)
    }

    /// Reads the blocks of a group of parts of the target.
    fn read(&mut self, group: &[Part]) -> Result<(), PatchError> {
        let blocks: u32 = group.iter().map(|part| part.len).sum();
        self.raw.resize(blocks as usize * BLOCK_LEN, 0);
        let mut at = 0;
        for part in group {
            let end = at + part.len as usize * BLOCK_LEN;
            read_padded(
                self.images.target,
                u64::from(part.start) * BLOCK,
                &mut self.raw[at..end],
            )?;
            at = end;
        }
        Ok(())
    }
}
