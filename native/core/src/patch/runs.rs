//! The block map of a target: where each 4 KiB block comes from, as runs.

/// Bytes per block. The last block of an image counts as padded with zeroes.
pub const BLOCK: u64 = 4096;
/// `BLOCK` as a length in memory.
pub const BLOCK_LEN: usize = 4096;

/// Where a run of blocks comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Src {
    /// All zeroes.
    Zero,
    /// The base's blocks from this one on.
    Base(u32),
    /// The patch's literals from this one on.
    Literal(u32),
}

impl Src {
    /// Returns where the block `n` further on comes from.
    pub fn plus(self, n: u32) -> Src {
        match self {
            Src::Zero => Src::Zero,
            Src::Base(at) => Src::Base(at + n),
            Src::Literal(at) => Src::Literal(at + n),
        }
    }
}

/// `len` blocks of the target from `start` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First block in the target.
    pub start: u32,
    /// Number of blocks, at least 1.
    pub len: u32,
    /// Where they come from.
    pub src: Src,
}

impl Run {
    /// Returns the block after the last.
    pub fn end(&self) -> u32 {
        self.start + self.len
    }

    /// Returns the part of this run inside `start..end`, if any.
    pub fn clip(&self, start: u32, end: u32) -> Option<Run> {
        let from = self.start.max(start);
        let to = self.end().min(end);
        (from < to).then(|| Run {
            start: from,
            len: to - from,
            src: self.src.plus(from - self.start),
        })
    }

    /// Returns the part of this run that holds the literals from `next` on, if it does. The part before refers to earlier literals.
    pub fn new_literals(&self, next: u32) -> Option<Run> {
        match self.src {
            Src::Literal(at) if at <= next && next - at < self.len => {
                let skip = next - at;
                Some(Run {
                    start: self.start + skip,
                    len: self.len - skip,
                    src: Src::Literal(next),
                })
            }
            _ => None,
        }
    }
}

/// Appends a run, joining it to the last one where it continues it.
pub fn push(runs: &mut Vec<Run>, run: Run) {
    if run.len == 0 {
        return;
    }
    if let Some(last) = runs.last_mut() {
        if last.end() == run.start && last.src.plus(last.len) == run.src {
            last.len += run.len;
            return;
        }
    }
    runs.push(run);
}

/// Returns the runs that touch `start..end`, clipped to it. `runs` cover the target without gaps, in order.
pub fn within(runs: &[Run], start: u32, end: u32) -> impl Iterator<Item = Run> + '_ {
    let first = runs.partition_point(|run| run.end() <= start);
    runs[first..]
        .iter()
        .map_while(move |run| run.clip(start, end))
}

/// Returns the same as `within`, each part with the run that it is a part of.
pub fn parts_within(runs: &[Run], start: u32, end: u32) -> impl Iterator<Item = (&Run, Run)> + '_ {
    let first = runs.partition_point(|run| run.end() <= start);
    runs[first..]
        .iter()
        .map_while(move |run| run.clip(start, end).map(|part| (run, part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_join_where_they_continue() {
        let mut runs = Vec::new();
        for (start, src) in [
            (0, Src::Zero),
            (1, Src::Zero),
            (2, Src::Base(7)),
            (3, Src::Base(8)),
            (4, Src::Base(8)),
            (5, Src::Literal(0)),
        ] {
            push(&mut runs, Run { start, len: 1, src });
        }
        assert_eq!(
            runs.iter().map(|run| run.len).collect::<Vec<_>>(),
            [2, 2, 1, 1]
        );
        let part: Vec<Run> = within(&runs, 1, 4).collect();
        assert_eq!(
            part,
            [
                Run {
                    start: 1,
                    len: 1,
                    src: Src::Zero
                },
                Run {
                    start: 2,
                    len: 2,
                    src: Src::Base(7)
                },
            ]
        );
    }
}
