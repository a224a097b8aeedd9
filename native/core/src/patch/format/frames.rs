//! Literal frames, and what reading them costs.

use crate::patch::runs::{within, Run, Src, BLOCK};

/// One literal frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Where its bytes start in the patch file.
    pub offset: u64,
    /// Index of its first literal block.
    pub first: u32,
    /// Its literal blocks.
    pub blocks: u32,
    /// Its bytes in the patch file.
    pub len: u32,
    /// How they are coded.
    pub kind: FrameKind,
    /// Its pieces of dictionary, as a range of the list of all pieces.
    pub dict: (u32, u32),
    /// Low 32 bits of the XXH3 of its bytes in the patch file.
    pub check: u32,
}

/// How the bytes of a frame are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// As they are.
    Stored,
    /// By zstd, with the dictionary as prefix if there is one.
    Zstd,
    /// As copies from the pieces of the base, differences and literals.
    Near,
}

/// A piece of the base used as dictionary: first block and number of blocks.
pub type Piece = (u32, u32);

/// The frames of a patch, in order, and the pieces of their dictionaries.
#[derive(Debug, Clone, Default)]
pub struct Coded {
    /// All frames; together they hold all literals.
    pub frames: Vec<Frame>,
    /// All pieces of dictionary.
    pub pieces: Vec<Piece>,
}

impl Coded {
    /// Returns the frames that hold `len` literals from `at` on, by index.
    pub fn frames_of(&self, at: u32, len: u32) -> std::ops::Range<u32> {
        let start = self
            .frames
            .partition_point(|frame| frame.first + frame.blocks <= at);
        let end = self.frames.partition_point(|frame| frame.first < at + len);
        start as u32..end as u32
    }

    /// Returns the pieces of a frame's dictionary.
    pub fn dict(&self, frame: &Frame) -> &[Piece] {
        &self.pieces[frame.dict.0 as usize..frame.dict.1 as usize]
    }

    /// Returns the frames that hold literals of the blocks `first..end`, in the order of the file.
    pub fn frames_within(&self, runs: &[Run], first: u32, end: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        for run in within(runs, first, end) {
            if let Src::Literal(at) = run.src {
                frames.extend(self.frames_of(at, run.len));
            }
        }
        frames.sort_unstable();
        frames.dedup();
        frames.iter().map(|i| self.frames[*i as usize]).collect()
    }

    /// Returns how many bytes of base and of patch a read of the blocks `first..end` takes.
    pub fn read_cost(&self, runs: &[Run], first: u32, end: u32) -> (u64, u64) {
        let (mut base, mut patch) = (0u64, 0u64);
        for run in within(runs, first, end) {
            if let Src::Base(_) = run.src {
                base += u64::from(run.len) * BLOCK;
            }
        }
        for frame in &self.frames_within(runs, first, end) {
            patch += u64::from(frame.len);
            base += self
                .dict(frame)
                .iter()
                .map(|(_, len)| u64::from(*len) * BLOCK)
                .sum::<u64>();
        }
        (base, patch)
    }
}

/// Returns the checksum of a frame.
pub fn frame_check(bytes: &[u8]) -> u32 {
    xxhash_rust::xxh3::xxh3_64(bytes) as u32
}
