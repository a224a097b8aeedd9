//! The literals of a patch: numbering them, and dividing them into parts that are compressed on their own.

use super::compress::MIXED;
use super::format::Coded;
use super::repeats::Repeat;
use super::runs::{push, within, Run, Src, BLOCK};

/// Any range of the target of this many blocks (256 KiB) is read at twice its size at most.
const WINDOW_BLOCKS: u32 = 64;
/// A stretch of literals of this many blocks (1 MiB) is long.
const SOLID: u32 = 256;

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

    /// Adds a stretch whose first occurrence is numbered already; it may be in several runs by now.
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
    /// than twice the window that it needs. Returns the new parts, which follow all literals so far.
    pub fn unshare(&mut self, coded: &Coded) -> Vec<Part> {
        let mut next = 0;
        let mut parts = Vec::new();
        let mut i = 0;
        while let Some(run) = self.runs.get(i).copied() {
            let new = run.new_literals(next).map_or(0, |part| part.len);
            next += new;
            let back = Run {
                len: run.len - new,
                ..run
            };
            if matches!(run.src, Src::Literal(_)) && back.len > 0 && self.is_expensive(back, coded)
            {
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

    /// Returns whether any window that touches a run is too expensive to read.
    fn is_expensive(&self, run: Run, coded: &Coded) -> bool {
        // Every fourth window; the limit leaves room for those between.
        let limit = 2 * u64::from(WINDOW_BLOCKS) * BLOCK - (16 << 10);
        let windows = (run.start.saturating_sub(WINDOW_BLOCKS - 1)..run.end()).step_by(4);
        windows
            .map(|first| self.cost(coded, first))
            .any(|cost| cost > limit)
    }

    /// Returns what reading a window costs; copies that are not compressed yet count as one frame.
    fn cost(&self, coded: &Coded, first: u32) -> u64 {
        let known = coded
            .frames
            .last()
            .map_or(0, |frame| frame.first + frame.blocks);
        let window = || within(&self.runs, first, first + WINDOW_BLOCKS);
        let copied = window().any(|run| matches!(run.src, Src::Literal(at) if at >= known));
        let (base, patch) = coded.read_cost(&self.runs, first, first + WINDOW_BLOCKS);
        base + patch + if copied { MIXED as u64 } else { 0 }
    }

    /// Returns the runs of literals that are new, in order; those that refer back left out. What repeats refer
    /// to are parts of their own: frames that begin and end with them cost their readers no more than
    /// what they want.
    pub fn new_parts(&self) -> Vec<Part> {
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
            let Some(run) = run.new_literals(next) else {
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

/// New literals that are next to each other in the target, and are wholly shared or not at all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// First block in the target.
    pub start: u32,
    /// Number of blocks.
    pub len: u32,
    /// Index of the first literal.
    pub literal: u32,
    /// Whether repeats refer to it.
    pub is_shared: bool,
}

impl Part {
    /// Returns whether the part is long enough for frames of its own.
    pub fn is_solid(&self) -> bool {
        self.len >= SOLID && !self.is_shared
    }

    /// Returns whether the two may have frames in common.
    pub fn shares_frames_with(&self, next: &Part) -> bool {
        !(self.is_shared || next.is_shared || self.is_solid() || next.is_solid())
    }
}

/// Sorts ranges and joins overlapping ones.
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
