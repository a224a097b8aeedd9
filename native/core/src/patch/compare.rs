//! The first pass over base and target: what is equal at the same offset, what is zero, and the hashes of everything else.

use super::error::PatchError;
use super::format::{block_count, LEAF_BLOCKS};
use super::index::{block_hash, BlockIndex, Sampling};
use super::options::CreateOptions;
use super::runs::{push, Run, Src, BLOCK, BLOCK_LEN};
use crate::manifest::{
    is_zero, leaf_count, leaf_hash, leaf_len, Builder, LeafHash, Manifest, LEAF_LEN, LEAF_SIZE,
};
use crate::source::{data_pieces, ReadAt, SourceError};
use crate::task::for_each_piece_with;

/// Leaves per piece of work: 1 MiB.
const PIECE_LEAVES: u64 = 16;
const PIECE_LEN: u64 = PIECE_LEAVES * LEAF_SIZE;
/// Leaves of either image that are read at a time: little enough to stay in a core's own cache until they were looked at. With twice as much, reading
/// takes a third longer.
const READ_LEAVES: u64 = 2;
const READ_LEN: usize = READ_LEAVES as usize * LEAF_LEN;
/// Pieces whose results wait for being gathered.
const ROUND: u64 = 1 << 12;
/// Most blocks whose hashes are kept for the second pass: 32 MiB. It hashes those beyond itself, and keeps none of them for the search for repeats.
pub(super) const MAX_HASHES: usize = 1 << 22;

/// What is not yet known counts as literal until it is matched.
pub(super) const UNKNOWN: Src = Src::Literal(0);

/// The two images.
pub(super) struct Images<'a> {
    pub base: &'a dyn ReadAt,
    pub target: &'a dyn ReadAt,
}

/// The outcome of the first pass.
pub(super) struct Compared {
    pub base: Manifest,
    pub target: Manifest,
    pub index: BlockIndex,
    /// Runs of the target: zero, base at the same offset, or not yet known.
    pub runs: Vec<Run>,
    /// Hashes of the blocks that are not yet known, in order; of the first ones only if there are very many.
    pub hashes: Vec<u64>,
}

/// The first pass's view of a piece.
#[derive(Default)]
struct PieceParts {
    base_leaves: Vec<LeafHash>,
    target_leaves: Vec<LeafHash>,
    entries: Vec<(u64, u32)>,
    runs: Vec<Run>,
    hashes: Vec<u64>,
}

/// An image as one thread reads it: a buffer, and the last range of data that was looked up.
struct Reader<'a> {
    source: &'a dyn ReadAt,
    buf: Vec<u8>,
    /// Where the lookup began, and its answer.
    range: (u64, Option<(u64, u64)>),
}

impl<'a> Reader<'a> {
    fn new(source: &'a dyn ReadAt) -> Reader<'a> {
        Reader {
            source,
            buf: vec![0; READ_LEN],
            range: (u64::MAX, None),
        }
    }

    /// Does the same as `ReadAt::next_data`, without repeating a lookup.
    fn next_data(&mut self, offset: u64) -> Result<Option<(u64, u64)>, SourceError> {
        let (asked, answer) = self.range;
        let covers = asked <= offset && answer.is_none_or(|(_, to)| offset < to);
        if !covers {
            self.range = (offset, self.source.next_data(offset)?);
        }
        Ok(self.range.1.map(|(from, to)| (from.max(offset), to)))
    }

    /// Fills the buffer from `offset` on, holes and what is past the end as zeroes. Returns how much is inside the source, and whether any of it may be
    /// data; if not, the buffer is left alone.
    fn read(&mut self, offset: u64) -> Result<(usize, bool), SourceError> {
        let len = self
            .source
            .len()
            .saturating_sub(offset)
            .min(READ_LEN as u64) as usize;
        let end = offset + len as u64;
        let mut at = offset;
        let mut any = false;
        while at < end {
            let (from, to) = match self.next_data(at)? {
                Some((from, to)) if from < end => (from, to.min(end)),
                _ => break,
            };
            self.buf[(at - offset) as usize..(from - offset) as usize].fill(0);
            let data = &mut self.buf[(from - offset) as usize..(to - offset) as usize];
            self.source.read_exact_at(data, from)?;
            any = true;
            at = to;
        }
        if any {
            self.buf[(at - offset) as usize..].fill(0);
        }
        Ok((len, any))
    }
}

impl Images<'_> {
    /// Runs the first pass.
    pub fn compare(&self, options: &CreateOptions<'_>) -> Result<Compared, PatchError> {
        let base_pieces = data_pieces(self.base, PIECE_LEN)?;
        let blocks = base_pieces.data_len().div_ceil(BLOCK);
        let sampling = Sampling::for_blocks(blocks);
        let pieces = base_pieces.union(data_pieces(self.target, PIECE_LEN)?);
        let mut gathered = Gathered {
            base: Builder::new(self.base.len()),
            target: Builder::new(self.target.len()),
            index: BlockIndex::with_room(sampling, sampling.expected(blocks)),
            runs: Vec::new(),
            hashes: Vec::new(),
            seen: 0,
        };
        let meter = options.task.meter(pieces.count() * PIECE_LEN);
        let readers = || (Reader::new(self.base), Reader::new(self.target));
        for round in 0..pieces.count().div_ceil(ROUND) {
            let first = round * ROUND;
            let count = ROUND.min(pieces.count() - first);
            let parts = for_each_piece_with(&options.task, count, readers, |(base, target), i| {
                let piece = pieces.number(first + i);
                let parts = compare_piece(piece, base, target, sampling)?;
                // Comparing is about half of the work; the other half is counted when literals are written.
                meter.add(PIECE_LEN / 2);
                Ok::<_, PatchError>((piece, parts))
            })?;
            for (piece, parts) in parts {
                gathered.add(piece, parts);
            }
        }
        gathered.finish(self, options)
    }
}

/// The outcome of all pieces so far.
struct Gathered {
    base: Builder,
    target: Builder,
    index: BlockIndex,
    runs: Vec<Run>,
    hashes: Vec<u64>,
    /// Blocks of the target that the runs cover.
    seen: u32,
}

impl Gathered {
    fn add(&mut self, piece: u64, parts: PieceParts) {
        self.base.add(piece * PIECE_LEAVES, &parts.base_leaves);
        self.target.add(piece * PIECE_LEAVES, &parts.target_leaves);
        for (hash, block) in parts.entries {
            self.index.insert(hash, block);
        }
        if let Some(first) = parts.runs.first() {
            self.zeroes_up_to(first.start);
        }
        for run in parts.runs {
            self.seen = run.end();
            push_unknown(&mut self.runs, run);
        }
        let room = MAX_HASHES - self.hashes.len();
        self.hashes
            .extend_from_slice(&parts.hashes[..parts.hashes.len().min(room)]);
    }

    /// Adds zeroes up to a block: pieces without data are not compared.
    fn zeroes_up_to(&mut self, block: u32) {
        let run = Run {
            start: self.seen,
            len: block - self.seen,
            src: Src::Zero,
        };
        push(&mut self.runs, run);
        self.seen = block;
    }

    fn finish(
        mut self,
        images: &Images<'_>,
        options: &CreateOptions<'_>,
    ) -> Result<Compared, PatchError> {
        self.zeroes_up_to(block_count(images.target.len()));
        let manifest = |image: &dyn ReadAt, builder: Builder| {
            if leaf_count(image.len()) != 1 {
                return Ok::<_, PatchError>(builder.finish(&options.task.silent())?);
            }
            let mut data = vec![0; image.len() as usize];
            image.read_exact_at(&mut data, 0)?;
            Ok(Manifest::of_single_leaf(&data))
        };
        Ok(Compared {
            base: manifest(images.base, self.base)?,
            target: manifest(images.target, self.target)?,
            index: self.index,
            runs: self.runs,
            hashes: self.hashes,
        })
    }
}

fn compare_piece(
    piece: u64,
    base: &mut Reader<'_>,
    target: &mut Reader<'_>,
    sampling: Sampling,
) -> Result<PieceParts, PatchError> {
    let mut parts = PieceParts::default();
    for part in 0..PIECE_LEAVES / READ_LEAVES {
        let first = piece * PIECE_LEAVES + part * READ_LEAVES;
        let (base_len, base_any) = base.read(first * LEAF_SIZE)?;
        let (target_len, target_any) = target.read(first * LEAF_SIZE)?;
        for i in 0..READ_LEAVES {
            let range = i as usize * LEAF_LEN..(i as usize + 1) * LEAF_LEN;
            let pair = Pair {
                leaf: first + i,
                base: base_any.then(|| &base.buf[range.clone()]),
                base_len: leaf_len(base_len as u64, i),
                target: target_any.then(|| &target.buf[range.clone()]),
                target_len: leaf_len(target_len as u64, i),
            };
            pair.compare(sampling, &mut parts);
        }
    }
    Ok(parts)
}

/// Appends a run; neighbouring unknown ones join.
pub(super) fn push_unknown(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if run.src == UNKNOWN && last.src == UNKNOWN && last.end() == run.start => {
            last.len += run.len
        }
        _ => push(runs, run),
    }
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
            if src == UNKNOWN {
                parts.hashes.push(block_hash(block));
            }
            push_unknown(&mut parts.runs, Run { start, len: 1, src });
        }
    }
}

/// Bytes per leaf that both images share; kept here so that the constants agree.
const _: () = assert!(LEAF_SIZE == LEAF_BLOCKS as u64 * BLOCK);
