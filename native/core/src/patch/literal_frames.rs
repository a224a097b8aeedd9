//! Compressing literals on all cores, and writing their frames in the order of the file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

use super::compare::Images;
use super::compress::{Compressor, Encoded, Surroundings, MIXED};
use super::error::PatchError;
use super::format::{Coded, Frame};
use super::literals::{Literals, Part};
use super::near_frames::{NearCoder, Zone, EDGE};
use super::runs::{Run, Src, BLOCK, BLOCK_LEN};
use super::writer::PatchWriter;
use crate::near::align::Hint;
use crate::near::index::AnchorIndex;
use crate::source::read_padded;
use crate::task::Task;

/// Literal blocks per unit of work: 4 MiB. Frames do not cross units, and are smaller at their ends.
const UNIT_BLOCKS: u32 = 1024;
/// Most units that are coded with and without near copies where a sample is to decide.
const MAX_SAMPLES: u32 = 8;
/// Most threads that compress, each with up to three units in memory.
const MAX_THREADS: usize = 4;

/// How literals are compressed.
#[derive(Clone, Copy)]
pub(super) struct Effort<'a> {
    /// One of zstd's levels.
    pub zstd_level: i32,
    /// Whether frames may be near ones.
    pub is_near: bool,
    /// Where the base has the anchors of the literals, if it was searched for them.
    pub near: Option<&'a AnchorIndex>,
    /// Whether what may be near frames is coded without them as well, and the shorter kept.
    pub is_compared: bool,
    /// How the job runs.
    pub task: Task<'a>,
}

/// Returns the parts whose literals are in `from..to`, clipped to it.
pub(super) fn parts_between(parts: &[Part], from: u32, to: u32) -> impl Iterator<Item = Part> + '_ {
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

/// Compresses the copies that `Literals::unshare` returned and appends them to the file.
pub(super) fn compress_copies(
    images: &Images<'_>,
    parts: &[Part],
    effort: &Effort<'_>,
    file: &mut PatchWriter<'_>,
    coded: &mut Coded,
) -> Result<(), PatchError> {
    let mut worker = Worker {
        images,
        runs: &[],
        parts,
        compressor: Compressor::new(effort.zstd_level, EDGE)?,
        near: None,
        is_compared: false,
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
    parts: &[Part],
    effort: &Effort<'_>,
    file: &mut PatchWriter<'_>,
) -> Result<Coded, PatchError> {
    let meter = effort.task.meter(u64::from(literals.count) * BLOCK);
    let mut coded = Coded::default();
    code_units(images, literals, parts, effort, |frames| {
        meter.add(append(frames, file, &mut coded)?);
        Ok(())
    })?;
    Ok(coded)
}

/// Does the same with few literals, which are coded as near copies, where these are shorter, and all without; appends what takes fewer bytes.
pub(super) fn compress_compared(
    images: &Images<'_>,
    literals: &Literals,
    parts: &[Part],
    effort: &Effort<'_>,
    file: &mut PatchWriter<'_>,
) -> Result<Coded, PatchError> {
    let code = |is_near| {
        let effort = Effort { is_near, ..*effort };
        let mut all = Vec::new();
        code_units(images, literals, parts, &effort, |mut frames| {
            all.append(&mut frames);
            Ok(())
        })?;
        Ok::<_, PatchError>(all)
    };
    let mut frames = code(false)?;
    if effort.is_near {
        let near = code(true)?;
        if len_of(&near) < len_of(&frames) {
            frames = near;
        }
    }
    let mut coded = Coded::default();
    let meter = effort.task.meter(u64::from(literals.count) * BLOCK);
    meter.add(append(frames, file, &mut coded)?);
    Ok(coded)
}

/// Codes all units, and passes the frames of each on in order.
fn code_units(
    images: &Images<'_>,
    literals: &Literals,
    parts: &[Part],
    effort: &Effort<'_>,
    mut put: impl FnMut(Vec<Encoded>) -> Result<(), PatchError>,
) -> Result<(), PatchError> {
    let units = literals.count.div_ceil(UNIT_BLOCKS);
    let next = AtomicU32::new(0);
    let threads = effort.task.threads_for(u64::from(units)).min(MAX_THREADS);
    std::thread::scope(|scope| {
        // Bounded, so that a slow disk holds the compressors up instead of filling the memory.
        let (sender, receiver) = sync_channel(threads);
        for _ in 0..threads {
            let sender = sender.clone();
            let next = &next;
            let mut worker = Worker::new(images, literals, parts, effort)?;
            scope.spawn(move || loop {
                let unit = next.fetch_add(1, Ordering::Relaxed);
                if unit >= units {
                    return;
                }
                let frames = effort
                    .task
                    .check()
                    .map_err(PatchError::from)
                    .and_then(|()| worker.unit(unit));
                // The receiver is gone after an error: the rest is not needed.
                if sender.send((unit, frames)).is_err() {
                    return;
                }
            });
        }
        drop(sender);
        let mut waiting = std::collections::BTreeMap::new();
        let mut due = 0;
        for (unit, frames) in receiver {
            waiting.insert(unit, frames?);
            while let Some(frames) = waiting.remove(&due) {
                put(frames)?;
                due += 1;
            }
        }
        Ok(())
    })
}

/// Returns whether a sample of the literals is smaller with near copies. Their frames are smaller, so that what resembles nothing takes more bytes.
pub(super) fn is_smaller_near(
    images: &Images<'_>,
    literals: &Literals,
    parts: &[Part],
    effort: &Effort<'_>,
) -> Result<bool, PatchError> {
    let units = literals.count.div_ceil(UNIT_BLOCKS);
    let step = units.div_ceil(MAX_SAMPLES).max(1) as usize;
    let mut bytes = [0, 0];
    for (is_near, bytes) in [false, true].into_iter().zip(&mut bytes) {
        let effort = Effort { is_near, ..*effort };
        let mut worker = Worker::new(images, literals, parts, &effort)?;
        for unit in (0..units).step_by(step) {
            effort.task.check()?;
            *bytes += len_of(&worker.unit(unit)?);
        }
    }
    Ok(bytes[1] < bytes[0])
}

/// Returns the bytes that frames take in the file.
fn len_of(frames: &[Encoded]) -> usize {
    frames.iter().map(|frame| frame.bytes.len()).sum()
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
        let dict_from = coded.pieces.len() as u32;
        coded.pieces.extend_from_slice(&frame.pieces);
        let entry = Frame {
            offset: file.at,
            first,
            blocks: frame.blocks,
            len: frame.bytes.len() as u32,
            kind: frame.kind,
            dict: (dict_from, coded.pieces.len() as u32),
            check: frame.check,
        };
        file.append(&frame.bytes)?;
        coded.frames.push(entry);
        raw += u64::from(frame.blocks) * BLOCK;
    }
    Ok(raw)
}

/// Returns where the blocks of a group may come from, by their place in it: what follows, in the base, what is before them, or the same place.
fn hints(runs: &[Run], group: &[Part]) -> Vec<Hint> {
    let mut hints = Vec::new();
    let mut at = 0u32;
    for part in group {
        let next = runs.partition_point(|run| run.start <= part.start);
        let before = next.checked_sub(2).map(|i| runs[i]);
        if let Some((before, Src::Base(from))) = before.map(|run| (run, run.src)) {
            if before.end() == part.start {
                hints.push((at, u64::from(from + before.len) * BLOCK));
            }
        }
        hints.extend((0..part.len).map(|block| {
            let place = u64::from(part.start + block) * BLOCK;
            (at + block * BLOCK as u32, place)
        }));
        at += part.len * BLOCK as u32;
    }
    hints
}

struct Worker<'a> {
    images: &'a Images<'a>,
    runs: &'a [Run],
    parts: &'a [Part],
    compressor: Compressor,
    near: Option<NearCoder<'a>>,
    is_compared: bool,
    raw: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(
        images: &'a Images<'a>,
        literals: &'a Literals,
        parts: &'a [Part],
        effort: &Effort<'a>,
    ) -> Result<Worker<'a>, PatchError> {
        let has_base = !images.base.is_empty() && effort.is_near;
        let coder = || NearCoder::new(images.base, effort.near, effort.zstd_level);
        Ok(Worker {
            images,
            runs: &literals.runs,
            parts,
            compressor: Compressor::new(effort.zstd_level, if has_base { EDGE } else { MIXED })?,
            near: has_base.then(coder).transpose()?,
            is_compared: effort.is_compared,
            raw: Vec::new(),
        })
    }

    fn unit(&mut self, unit: u32) -> Result<Vec<Encoded>, PatchError> {
        let (from, to) = (unit * UNIT_BLOCKS, (unit + 1) * UNIT_BLOCKS);
        let parts: Vec<Part> = parts_between(self.parts, from, to).collect();
        let mut frames = Vec::new();
        // Long stretches and shared ones have frames of their own; those between have some in common.
        for group in parts.chunk_by(Part::shares_frames_with) {
            let solid = group.iter().any(Part::is_solid);
            self.read(group)?;
            let surroundings = if solid {
                Surroundings::Solid
            } else {
                Surroundings::Mixed
            };
            self.group(group, surroundings, &mut frames)?;
        }
        Ok(frames)
    }

    /// Codes a group of parts, which was read: zone by zone where it resembles the base.
    fn group(
        &mut self,
        group: &[Part],
        surroundings: Surroundings,
        frames: &mut Vec<Encoded>,
    ) -> Result<(), PatchError> {
        let Worker {
            near,
            compressor,
            raw,
            ..
        } = self;
        let Some(near) = near else {
            return compressor.frames(raw, surroundings, frames);
        };
        let zones = near.plan(raw, &hints(self.runs, group))?;
        let first = frames.len();
        let bytes = |zone: Zone| zone.first * BLOCK_LEN..zone.end * BLOCK_LEN;
        for zone in &zones {
            let zone = *zone;
            if !zone.is_near {
                compressor.frames(&raw[bytes(zone)], surroundings, frames)?;
                continue;
            }
            near.frames(raw, zone, |part, coded| match coded {
                Some(frame) => {
                    frames.push(frame);
                    Ok(())
                }
                None => compressor.frames(&raw[bytes(part)], Surroundings::Mixed, frames),
            })?;
        }
        if self.is_compared && zones.iter().any(|zone| zone.is_near) {
            let mut plain = Vec::new();
            compressor.frames(raw, surroundings, &mut plain)?;
            if len_of(&plain) < len_of(&frames[first..]) {
                frames.truncate(first);
                frames.append(&mut plain);
            }
        }
        Ok(())
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
