//! The literals of a patch: numbering, and compressing them on all cores in the order of the file.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::sync_channel;

use super::compress::{Compressor, Encoded};
use super::create::{Coded, CreateOptions, Images, PatchWriter};
use super::format::Frame;
use super::reader::read_padded;
use super::runs::{push, Run, Src, BLOCK, BLOCK_LEN};
use super::PatchError;

/// Literal blocks per unit of work: 8 MiB. Frames do not cross units.
const UNIT_BLOCKS: u32 = 2048;

/// A finished map.
pub(super) struct Literals {
    /// Runs of the whole target, literals numbered.
    pub runs: Vec<Run>,
    /// Number of literal blocks that the patch holds.
    pub count: u32,
}

impl Literals {
    /// Numbers the literals in order of the target.
    pub fn number(runs: Vec<Run>) -> Literals {
        let mut numbered = Vec::with_capacity(runs.len());
        let mut count = 0;
        for mut run in runs {
            if matches!(run.src, Src::Literal(_)) {
                run.src = Src::Literal(count);
                count += run.len;
            }
            push(&mut numbered, run);
        }
        Literals {
            runs: numbered,
            count,
        }
    }

    /// The runs whose literals lie in a unit, clipped to it, with the place of each in the target.
    fn unit(&self, starts: &[(u32, u32)], unit: u32) -> Vec<Run> {
        let (from, to) = (
            unit * UNIT_BLOCKS,
            ((unit + 1) * UNIT_BLOCKS).min(self.count),
        );
        let mut parts = Vec::new();
        let first = starts
            .partition_point(|(literal, _)| *literal <= from)
            .saturating_sub(1);
        for (literal, index) in &starts[first..] {
            let run = &self.runs[*index as usize];
            if *literal >= to {
                break;
            }
            let (a, b) = ((*literal).max(from), (literal + run.len).min(to));
            if a < b {
                parts.push(Run {
                    start: run.start + (a - literal),
                    len: b - a,
                    src: Src::Literal(a),
                });
            }
        }
        parts
    }

    /// First literal and index of every run that holds new literals.
    fn starts(&self) -> Vec<(u32, u32)> {
        let start = |(i, run): (usize, &Run)| match run.src {
            Src::Literal(at) => Some((at, i as u32)),
            _ => None,
        };
        self.runs.iter().enumerate().filter_map(start).collect()
    }
}

/// Compresses all literals and appends them to the file in order.
pub(super) fn compress_all(
    images: &Images<'_>,
    literals: &Literals,
    options: &CreateOptions<'_>,
    file: &mut PatchWriter<'_>,
) -> Result<Coded, PatchError> {
    let units = literals.count.div_ceil(UNIT_BLOCKS);
    let starts = literals.starts();
    let next = AtomicU32::new(0);
    let threads = options.task.threads_for(u64::from(units));
    let meter = options.task.meter(u64::from(literals.count) * BLOCK);
    let mut coded = Coded::default();
    std::thread::scope(|scope| {
        // Bounded, so that a slow disk holds the compressors up instead of filling the memory.
        let (sender, receiver) = sync_channel(threads);
        for _ in 0..threads {
            let sender = sender.clone();
            let (next, starts) = (&next, &starts);
            scope.spawn(move || {
                let mut worker = Worker {
                    images,
                    literals,
                    starts,
                    level: options.level,
                    raw: Vec::new(),
                };
                loop {
                    let unit = next.fetch_add(1, Ordering::Relaxed);
                    if unit >= units {
                        return;
                    }
                    let frames = options
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
    literals: &'a Literals,
    starts: &'a [(u32, u32)],
    level: i32,
    raw: Vec<u8>,
}

impl Worker<'_> {
    fn unit(&mut self, unit: u32) -> Result<Vec<Encoded>, PatchError> {
        let parts = self.literals.unit(self.starts, unit);
        let blocks: u32 = parts.iter().map(|part| part.len).sum();
        self.raw.resize(blocks as usize * BLOCK_LEN, 0);
        let mut at = 0;
        for part in parts {
            let end = at + part.len as usize * BLOCK_LEN;
            read_padded(
                self.images.target,
                u64::from(part.start) * BLOCK,
                &mut self.raw[at..end],
            )?;
            at = end;
        }
        Compressor::new(self.level)?.frames(&self.raw)
    }
}
