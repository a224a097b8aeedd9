//! Compressing literals on all cores, and writing their frames in the order of the file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

use super::compare::Images;
use super::compress::{Compressor, Encoded, Surroundings};
use super::error::PatchError;
use super::format::{Coded, Frame};
use super::literals::{Literals, Part};
use super::runs::{BLOCK, BLOCK_LEN};
use super::writer::PatchWriter;
use crate::source::read_padded;
use crate::task::Task;

/// Literal blocks per unit of work: 16 MiB. Frames do not cross units, and are smaller at their ends.
const UNIT_BLOCKS: u32 = 4096;
/// Most threads that compress, each with up to three units in memory.
const MAX_THREADS: usize = 8;

/// How literals are compressed.
#[derive(Clone, Copy)]
pub(super) struct Effort<'a> {
    /// One of zstd's levels.
    pub zstd_level: i32,
    /// How the job runs.
    pub task: Task<'a>,
}

/// Returns the parts whose literals are in a unit, clipped to it.
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
                    // The receiver is gone after an error: the rest is not needed.
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
        // Long stretches and shared ones have frames of their own; those between have some in common.
        for group in parts.chunk_by(Part::shares_frames_with) {
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
